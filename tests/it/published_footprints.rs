//! Published footprints and bills through a whole gateway: clients get the values of the test vectors to the digit.

use crate::harness::gateway::Running;
use crate::harness::script::{Script, scores, vectors};
use crate::harness::{Bench, Provider};
use rust_decimal::Decimal;
use serde_json::{Value, json};

/// One vector with its model and its provider.
fn published(id: &str) -> (Value, Value, Value) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/plugins/footprint/testdata/impact_vectors.json");
    let all: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let vector = all["vectors"].as_array().unwrap().iter().find(|vector| vector["id"] == id).unwrap().clone();
    let model = all["models"][vector["inputs"]["model"].as_str().unwrap()].clone();
    let site = all["providers"][vector["inputs"]["provider"].as_str().unwrap()].clone();
    (vector, model, site)
}

/// A gateway whose model and provider are those of the vector.
async fn gateway(kind: &str, provider: &Provider, vector: &Value, model: &Value, site: &Value) -> Running {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let price = decimal(&model["p_in"]) / Decimal::from(100);
    let toml = format!(
        "[[models]]\nid = \"published\"\nkind = \"{kind}\"\ncontext_length = 1000000\nprice = {{ input = {price} }}\n\
         energy = {{ active_params_b = {} }}\n\n\
         [[providers]]\nid = \"{}\"\noperator = \"Test\"\ncountry = \"{}\"\ncity = \"There\"\npue = {}\nwue = {}\n\
         base_url = \"http://{}/v1\"\n[[providers.offers]]\nmodel = \"published\"\n",
        text(&model["active"]),
        text(&vector["inputs"]["provider"]),
        text(&site["location"]),
        text(&site["pue"]),
        text(&site["wue"]),
        provider.address,
    );
    Bench::new().more(&toml).start().await
}

fn decimal(value: &Value) -> Decimal {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    text.parse().or_else(|_| Decimal::from_scientific(&text)).unwrap()
}

async fn tells(id: &str, kind: &str, path: &str, ask: Value, script: impl Fn(u64) -> Script) {
    let (vector, model, site) = published(id);
    let provider = Provider::start().await;
    provider.always(script(vector["inputs"]["usage"]["in"].as_u64().unwrap()));
    let running = gateway(kind, &provider, &vector, &model, &site).await;
    let answer = running.client.post(path, &ask).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = answer.json();
    for object in ["environment_impact", "billing_cost"] {
        for (name, value) in vector[object].as_object().unwrap() {
            let reported = &answer[object][name];
            match value.as_str().unwrap().parse::<Decimal>() {
                Ok(number) => assert_eq!(decimal(reported), number, "{id} {object}.{name}"),
                Err(_) => assert_eq!(reported, value, "{id} {object}.{name}"),
            }
        }
    }
    let provenance = &answer["environment_impact"]["provenance"];
    for name in ["energy_kwh_low", "energy_kwh_high"] {
        assert_eq!(decimal(&provenance[name]), decimal(&vector["disclosure"][name]), "{id} {name}");
    }
    assert_eq!(provenance["method"], vector["disclosure"]["method"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embeddings_of_ten_thousand_tokens() {
    let ask = json!({"model": "published", "input": "x".repeat(10_000)});
    tells("V05", "embedding", "/v1/embeddings", ask, |tokens| vectors(&[&[1.0, 2.0]], tokens)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_pairs_of_330_tokens_ranked() {
    let ask = json!({"model": "published", "query": "q", "documents": vec!["d".repeat(330); 20]});
    tells("V06", "rerank", "/v1/rerank", ask, |tokens| scores(&[0.5; 20], tokens)).await;
}
