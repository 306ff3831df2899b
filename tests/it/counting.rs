//! Prompts that have to be counted before anybody is asked: who sends them uses its limits, and whoever leaves is
//! not counted for.

use crate::harness::bench::Running;
use crate::harness::script::silent;
use crate::harness::{Bench, Provider, until};
use penstock::inject::At;
use serde_json::json;

const CHAT: &str = "/v1/chat/completions";

/// A gateway that asks an engine for the count, which never answers.
async fn counted_by_a_silent_engine() -> (Provider, Running) {
    let engine = Provider::start().await;
    engine.always(silent());
    let lines = "tokenize = \"vllm\"";
    let bench = Bench::new().model("context_length = 64").provider_with("a", &engine, lines, "");
    let running = bench.start().await;
    (engine, running)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_that_is_too_long_is_a_request() {
    let provider = Provider::start().await;
    let model = "context_length = 64\ntokenizer = { builtin = \"gpt-oss\" }";
    let running = Bench::new().model(model).provider("a", &provider).start().await;
    let limits = json!({"requests_per_minute": 1, "concurrent": 1});
    let client = running.key(&json!({"name": "limited", "limits": limits})).await;
    let ask = json!({"model": "m", "messages": [{"role": "user", "content": "far too long ".repeat(100)}]});
    let first = client.post(CHAT, &ask).await;
    assert_eq!((first.status, &first.json()["error"]["code"]), (400, &json!("INFERENCE_3207")));
    assert_eq!(first.header("x-ratelimit-remaining-requests"), Some("0"));
    for _ in 0..2 {
        let again = client.post(CHAT, &ask).await;
        assert_eq!(
            (again.status, &again.json()["error"]["details"]["limit"]),
            (429, &json!("requests_per_minute"))
        );
    }
    assert_eq!(provider.calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_is_not_counted_for() {
    let (engine, running) = counted_by_a_silent_engine().await;
    let ask = json!({"model": "m", "messages": [{"role": "user", "content": "too long ".repeat(100)}]});
    let open = running.client.open("POST", CHAT, &[], ask.to_string().as_bytes()).await;
    engine.until_calls(1).await;
    drop(open);
    until("the request to end", || running.gateway.house.exchanges() == 0).await;
    let asked: Vec<String> = engine.seen().into_iter().map(|seen| seen.path).collect();
    assert_eq!(asked, ["/tokenize"], "nobody is asked for an answer");
    let metrics = running.admin().get("/metrics").await.text();
    assert!(
        metrics.contains("penstock_requests_total{endpoint=\"chat\",model=\"m\",outcome=\"left\""),
        "{metrics}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_counted_for_has_its_seat_and_gives_it_back() {
    let (engine, running) = counted_by_a_silent_engine().await;
    let limits = json!({"concurrent": 1});
    let client = running.key(&json!({"name": "limited", "limits": limits})).await;
    let ask = json!({"model": "m", "messages": [{"role": "user", "content": "too long ".repeat(100)}]});
    // Each time there is a seat again.
    for _ in 0..3 {
        let before = engine.calls();
        let open = client.open("POST", CHAT, &[], ask.to_string().as_bytes()).await;
        engine.until_calls(before + 1).await;
        let again = client.post(CHAT, &ask).await;
        assert_eq!((again.status, &again.json()["error"]["details"]["limit"]), (429, &json!("concurrent")));
        let counts = engine.seen().iter().skip(before).filter(|seen| seen.path == "/tokenize").count();
        assert!(counts <= 1, "nothing is counted beyond the limit");
        drop(open);
        until("the request to end", || running.gateway.house.exchanges() == 0).await;
    }
}

/// A mistake in counting is no prompt without tokens, which would fit any window.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_that_panics_is_our_own_fault_and_nobody_is_asked() {
    let long = "too long ".repeat(10_000);
    let chat = json!({"model": "m", "messages": [{"role": "user", "content": long}]});
    let embedding = json!({"model": "m", "input": long});
    for (kind, path, ask) in [("chat", CHAT, chat), ("embedding", "/v1/embeddings", embedding)] {
        let provider = Provider::start().await;
        let model = "context_length = 64\ntokenizer = { builtin = \"gpt-oss\" }";
        let running = Bench::new().kind(kind).model(model).provider("a", &provider).start().await;
        running.gateway.house.inject.next(At::OffThread, 1);
        let broken = running.client.post(path, &ask).await;
        assert_eq!((broken.status, &broken.json()["error"]["code"]), (500, &json!("SERVER_9001")), "{kind}");
        let long = running.client.post(path, &ask).await;
        assert_eq!(long.json()["error"]["code"], "INFERENCE_3207", "the next is counted again");
        assert_eq!(provider.calls(), 0);
    }
}
