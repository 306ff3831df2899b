//! Tests that embeddings and rerank results are equal at repetition and at every provider, and have the formats of
//! real engines.

use super::super::SimulatorOptions;
use super::{FaultRule, SimulatedFault, SimulatedServer, SimulatorControl, post, server};
use serde_json::{Value, json};

const EMBEDDINGS: &str = "/v1/embeddings";
const RERANK: &str = "/v1/rerank";

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn alike(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

#[tokio::test]
async fn a_text_has_one_vector_wherever_it_is_asked_and_texts_that_share_words_are_similar() {
    let one = server().await;
    let two =
        SimulatedServer::start(SimulatorOptions { seed: 99, ..SimulatorOptions::default() }).await.unwrap();
    let ask = json!({"model": "e", "input": ["a river bends", "the river bends again", "steel gates"]});
    let first = post(one.address, EMBEDDINGS, &ask).await.json();
    assert_eq!(first, post(two.address, EMBEDDINGS, &ask).await.json());
    let vectors: Vec<Vec<f64>> = (0..3).map(|at| numbers(&first["data"][at]["embedding"])).collect();
    assert!(vectors.iter().all(|vector| vector.len() == 1024 && (alike(vector, vector) - 1.0).abs() < 1e-4));
    assert!(alike(&vectors[0], &vectors[1]) > alike(&vectors[0], &vectors[2]) + 0.2);
    assert_eq!(first["usage"]["prompt_tokens"], 13);
    let native = post(one.address, "/embed", &json!({"inputs": ask["input"]})).await;
    assert_eq!(
        (numbers(&native.json()[1]), native.header("x-compute-tokens")),
        (vectors[1].clone(), Some("13"))
    );
    let truncated =
        post(one.address, EMBEDDINGS, &json!({"model": "e", "input": "x", "dimensions": 7})).await.json();
    assert_eq!(numbers(&truncated["data"][0]["embedding"]).len(), 7);
}

#[tokio::test]
async fn a_document_with_the_querys_words_comes_first() {
    let server = server().await;
    let ask = json!({"model": "r", "query": "where does it bend", "documents": ["no", "it does bend", {"text": "it"}]});
    let answer = post(server.address, RERANK, &ask).await.json();
    let order: Vec<&Value> =
        answer["results"].as_array().unwrap().iter().map(|result| &result["index"]).collect();
    assert_eq!(order, [&json!(1), &json!(2), &json!(0)]);
    let texts =
        json!({"query": "where does it bend", "texts": ["no", "it does bend", "it"], "raw_scores": true});
    let native = post(server.address, "/rerank", &texts).await.json();
    assert_eq!(native[0]["index"], 1);
    let logit = native[0]["score"].as_f64().unwrap();
    let score = answer["results"][0]["relevance_score"].as_f64().unwrap();
    assert!((1.0 / (1.0 + (-logit).exp()) - score).abs() < 1e-12);
}

#[tokio::test]
async fn invalid_requests_windows_and_faults_are_those_of_other_paths() {
    let server =
        SimulatedServer::start(SimulatorOptions { context_length: 10, ..SimulatorOptions::default() })
            .await
            .unwrap();
    for (path, ask) in [
        (EMBEDDINGS, json!({"model": "e"})),
        (EMBEDDINGS, json!({"model": "e", "input": ["a", ""]})),
        (EMBEDDINGS, json!({"model": "e", "input": "x".repeat(50)})),
        (RERANK, json!({"model": "r", "documents": ["a"]})),
        (RERANK, json!({"model": "r", "query": "q", "documents": []})),
    ] {
        let seen = post(server.address, path, &ask).await;
        assert_eq!((seen.status, &seen.json()["error"]["code"]), (400, &json!(400)), "{ask}");
    }
    let control: SimulatorControl = server.control();
    control.add_rule(
        FaultRule::new(vec![SimulatedFault::Status { status: 503, retry_after: None, body: None }]).times(1),
    );
    let good = json!({"model": "e", "input": "x"});
    assert_eq!(post(server.address, EMBEDDINGS, &good).await.status, 503);
    control.add_rule(FaultRule::new(vec![SimulatedFault::NoUsage {}]).times(1));
    assert!(post(server.address, EMBEDDINGS, &good).await.json().get("usage").is_none());
    assert!(post(server.address, EMBEDDINGS, &good).await.json()["usage"].is_object());
}
