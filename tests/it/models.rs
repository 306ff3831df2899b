//! Model catalog over HTTP.

use crate::harness::{Bench, Provider};
use serde_json::json;

async fn running() -> (Provider, crate::harness::gateway::Running) {
    let provider = Provider::start().await;
    let block = format!(
        "\n[[models]]\nid = \"org/big\"\nname = \"Big\"\nkind = \"chat\"\ncreated = 1800000000\ncontext_length = 4000\n\
         aliases = [\"claude-opus-4-5\"]\nsupported_parameters = [\"temperature\"]\n\
         price = {{ input = 9.0, output = 9.0 }}\nenergy = {{ active_params_b = 70.0 }}\n\
         [[providers]]\nid = \"b\"\noperator = \"Test\"\ncountry = \"SE\"\ncity = \"Luleå\"\n\
         base_url = \"http://{}/v1\"\n[[providers.offers]]\nmodel = \"org/big\"\nname = \"big\"\n",
        provider.address
    );
    let running = Bench::new().provider("a", &provider).more(&block).start().await;
    (provider, running)
}

fn ids(body: &serde_json::Value) -> Vec<&str> {
    body["data"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_list_is_sorted_filtered_and_paged() {
    let (_provider, running) = running().await;
    let get = async |query: &str| running.client.get(&format!("/v1/models{query}")).await.json();
    let body = get("").await;
    assert_eq!(body["object"], "list");
    let m = body["data"].as_array().unwrap().iter().find(|item| item["id"] == "m").unwrap().clone();
    assert_eq!(m["object"], "model");
    // The price is in EUR per token: one EUR per million tokens.
    assert_eq!(m["pricing"]["input"].as_f64(), Some(0.000_001));
    assert_eq!(ids(&get("?sort=pricing-low-to-high").await), ["m", "org/big"]);
    assert_eq!(ids(&get("?sort=newest").await), ["org/big", "m"]);
    assert_eq!(ids(&get("?sort=context-high-to-low").await), ["m", "org/big"]);
    assert_eq!(ids(&get("?supported_parameters=tools").await), ["m"]);
    assert_eq!(ids(&get("?sort=newest&offset=1&limit=1").await), ["m"]);
    assert_eq!(ids(&get("?output_modalities=image").await), Vec::<&str>::new());
    let refused = running.client.get("/v1/models?sort=best").await;
    assert_eq!((refused.status, refused.json()["error"]["param"].as_str()), (400, Some("sort")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn popularity_follows_the_requests() {
    let (_provider, running) = running().await;
    let mut ask = running.ask();
    ask["model"] = json!("org/big");
    for _ in 0..3 {
        assert_eq!(running.client.post("/v1/chat/completions", &ask).await.status, 200);
    }
    running.chat().await;
    let body = running.client.get("/v1/models?sort=most-popular").await.json();
    assert_eq!(ids(&body)[0], "org/big");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_model_by_id_by_alias_with_a_flavor_and_encoded() {
    let (_provider, running) = running().await;
    for path in ["org/big", "org%2Fbig", "org/big:eco", "claude-opus-4-5"] {
        let answer = running.client.get(&format!("/v1/models/{path}")).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    }
    let missing = running.client.get("/v1/models/nobody").await;
    assert_eq!((missing.status, missing.json()["error"]["code"].as_str()), (404, Some("INFERENCE_3101")));
    let headers = [("anthropic-version", "2023-06-01")];
    let missing = running.client.send("GET", "/v1/models/nobody", &headers, b"").await;
    assert_eq!(missing.json()["type"], "error");
    let list = running.client.send("GET", "/v1/models?limit=1000", &headers, b"").await.json();
    assert!(ids(&list).contains(&"claude-opus-4-5"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_fits_a_pattern_is_answered_under_that_name() {
    let provider = Provider::start().await;
    let bench = Bench::new().model("aliases = [\"*sonnet*\"]").provider("a", &provider);
    let other = "[[models]]\nid = \"claude-sonnet-4-5\"\nkind = \"embedding\"\ncontext_length = 512\n\
                 fallbacks = []\n";
    let running = bench.more(other).start().await;
    provider.always(crate::harness::script::plain("Hello"));
    let mut ask = running.ask();
    for name in ["claude-sonnet-4-5-20250929", "anthropic/Claude-SONNET"] {
        ask["model"] = serde_json::json!(name);
        let answer = running.client.post("/v1/chat/completions", &ask).await;
        assert_eq!((answer.status, answer.json()["model"].as_str()), (200, Some(name)), "{}", answer.text());
        assert_eq!(provider.last().json()["model"], "theirs");
        let item = running.client.get(&format!("/v1/models/{}", name.replace('/', "%2F"))).await;
        assert_eq!((item.status, &item.json()["id"]), (200, &serde_json::json!(name)));
        assert_eq!(item.json()["alias_of"], "m");
    }
    // Exact names first.
    let item = running.client.get("/v1/models/claude-sonnet-4-5").await.json();
    assert_eq!((&item["kind"], item.get("alias_of")), (&serde_json::json!("embedding"), None));
    let listed = running.client.get("/v1/models?include_aliases=true").await.text();
    assert!(!listed.contains('*'), "{listed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_sees_the_models_that_it_may_use_and_no_others() {
    let (_provider, running) = running().await;
    let seen = async |wanted: serde_json::Value| {
        let client = running.key(&wanted).await;
        let list = client.get("/v1/models?include_aliases=true").await.json();
        let mut found: Vec<String> = ids(&list).iter().map(|id| (*id).to_owned()).collect();
        found.sort();
        assert_eq!(list["total_count"].as_u64().unwrap(), found.len() as u64);
        for id in ["m", "org/big", "claude-opus-4-5"] {
            let one = client.get(&format!("/v1/models/{id}")).await;
            let expected = if found.iter().any(|seen| seen == id) { 200 } else { 404 };
            assert_eq!(one.status, expected, "{id} of {found:?}");
        }
        found
    };
    let all = ["claude-opus-4-5", "m", "org/big"];
    assert_eq!(seen(json!({"name": "all"})).await, all);
    assert_eq!(seen(json!({"name": "one", "models": ["m"]})).await, ["m"]);
    assert_eq!(seen(json!({"name": "big", "models": ["org/big"]})).await, ["claude-opus-4-5", "org/big"]);
    let scopes = |scopes: &[&str]| json!({"name": "s", "scopes": scopes});
    assert_eq!(seen(scopes(&["inference.models", "inference.chat"])).await, all);
    assert_eq!(seen(scopes(&["inference.models", "inference.embeddings"])).await, Vec::<String>::new());
    // A key without a scope for requests may still read the catalogue.
    assert_eq!(seen(scopes(&["inference.models"])).await, all);
    // A hidden model is not accepted as a cursor either.
    let one = running.key(&json!({"name": "one", "models": ["m"]})).await;
    assert_eq!(one.get("/v1/models?after_id=org/big").await.status, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_meta_object_and_the_owner_are_given() {
    let (_provider, running) = running().await;
    let get = async |path: &str| running.client.get(path).await.json();
    for item in get("/v1/models?include_meta=true").await["data"].as_array().unwrap() {
        assert_eq!(
            (&item["_meta"]["type"], &item["_meta"]["pricing"]["currency"]),
            (&json!("chat"), &json!("EUR"))
        );
    }
    let big = get("/v1/models/org/big?include_meta=true").await;
    assert_eq!(big["_meta"]["pricing"]["input_cost_per_million_eur"], 9.0);
    assert_eq!(big["owned_by"], "org");
    assert_eq!(get("/v1/models/org/big").await.get("_meta"), None);
    assert_eq!(running.client.get("/v1/models/m?include_meta=perhaps").await.status, 400);
    let provider = Provider::start().await;
    let owned = Bench::new().model("owned_by = \"Somebody\"").provider("a", &provider).start().await;
    assert_eq!(owned.client.get("/v1/models/m").await.json()["owned_by"], "Somebody");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undated_model_takes_its_age_from_its_list_position() {
    let provider = Provider::start().await;
    let undated = "[[models]]\nid = \"undated\"\nkind = \"chat\"\ncontext_length = 4000";
    let bench = Bench::new().provider("a", &provider).more(undated);
    let before = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let again = tempfile::tempdir().unwrap();
    let settings = bench.load(again.path());
    let running = bench.start().await;
    let created = async || running.client.get("/v1/models/undated").await.json()["created"].as_u64().unwrap();
    let first = created().await;
    assert!(first >= before, "{first} is before {before}");
    running.reload(settings).await;
    assert_eq!(created().await, first, "a reload makes no model younger");
    let m = running.client.get("/v1/models/m").await.json();
    assert_eq!(m["created"], 1_700_000_000);
}
