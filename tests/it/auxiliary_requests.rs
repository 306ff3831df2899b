//! Auxiliary requests to a provider (checks, counts) carry the same headers and credentials as requests for answers.

use crate::harness::gateway::PATIENT;
use crate::harness::provider::RecordedRequest;
use crate::harness::script::{ScriptStep, json_answer, message};
use crate::harness::{Bench, Provider, until};
use serde_json::{Value, json};

/// Headers that identify the gateway to a provider.
const LINES: &str = "api_key = { env = \"KEY\" }\nheaders = { x-tenant = \"ours\" }";
const NAMES: [&str; 5] = ["authorization", "x-api-key", "anthropic-version", "x-tenant", "user-agent"];

fn carried(seen: &RecordedRequest) -> Vec<Option<String>> {
    NAMES.iter().map(|name| seen.header(name).map(str::to_owned)).collect()
}

/// Returns the last request of each method.
fn last(provider: &Provider, method: &str) -> Option<RecordedRequest> {
    provider.seen().into_iter().rev().find(|seen| seen.method == method)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_carries_what_requests_carry() {
    for (dialect, known) in [("chat", "authorization"), ("messages", "x-api-key")] {
        let provider = Provider::start().await;
        provider.always(json_answer(200, &message("Hello", "end_turn")));
        let lines = format!(
            "{PATIENT}\n{LINES}\ndialects = [\"{dialect}\"]\nhealth = {{ interval = \"100ms\", timeout = \"40s\" }}"
        );
        let running = Bench::new().provider_with("a", &provider, &lines, "").start().await;
        running.chat().await;
        until("a check", || last(&provider, "GET").is_some()).await;
        let (check, request) = (last(&provider, "GET").unwrap(), last(&provider, "POST").unwrap());
        assert_eq!(check.path, "/v1/models");
        assert!(check.header(known).unwrap().ends_with("value of KEY"), "{dialect}");
        assert_eq!(carried(&check), carried(&request), "{dialect}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_carries_what_requests_carry() {
    for dialect in ["chat", "messages"] {
        let provider = Provider::start().await;
        let lines = format!("{PATIENT}\n{LINES}\ndialects = [\"{dialect}\"]\ntokenize = \"vllm\"");
        let running = Bench::new().provider_with("a", &provider, &lines, "").start().await;
        provider
            .then(json_answer(200, &message("Hello", "end_turn")))
            .then(json_answer(200, &json!({"count": 7, "max_model_len": 32768, "tokens": []})));
        running.chat().await;
        let request = provider.last();
        let answer = running.client.post("/v1/messages/count_tokens", &running.ask()).await;
        assert_eq!(answer.header("x-token-count-method"), Some("engine"), "{}", answer.text());
        let count = provider.last();
        assert_eq!(count.path, "/v1/messages/count_tokens");
        assert_eq!(carried(&count), carried(&request), "{dialect}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_address_is_fetched_from_its_own_provider_only() {
    let (provider, elsewhere) = (Provider::start().await, Provider::start().await);
    let image = vec![ScriptStep::Head(200, Vec::new()), ScriptStep::Body(b"\x89PNG\r\n\x1a\n".to_vec())];
    provider.gets(image.clone());
    elsewhere.gets(image);
    let toml = format!(
        "[[models]]\nid = \"d\"\nkind = \"image\"\ncontext_length = 512\nprice = {{ image = 0.02 }}\n\
         [[providers]]\nid = \"a\"\noperator = \"T\"\ncountry = \"FR\"\ncity = \"Paris\"\n\
         base_url = \"http://{}/v1\"\nimage_hosts = [\"http://{}\"]\n{PATIENT}\n{LINES}\n\
         [[providers.offers]]\nmodel = \"d\"\n",
        provider.address, elsewhere.address
    );
    let running = Bench::new().more(&toml).start().await;
    let drawn = |url: Value| json_answer(200, &json!({"created": 1, "data": [{"url": url}]}));
    let far = format!("http://{}/b.png", elsewhere.address);
    provider.then(drawn(json!("/a.png"))).then(drawn(json!(far)));
    for _ in 0..2 {
        let ask = json!({"model": "d", "prompt": "a cat", "response_format": "b64_json"});
        let answer = running.client.post("/v1/images/generations", &ask).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let (fetched, request) = (last(&provider, "GET").unwrap(), last(&provider, "POST").unwrap());
    assert_eq!(carried(&fetched), carried(&request));
    assert_eq!(fetched.header("x-tenant"), Some("ours"));
    let far = elsewhere.last();
    assert_eq!(far.path, "/b.png");
    for secret in &NAMES[..4] {
        assert_eq!(far.header(secret), None, "{secret} stays with the provider");
    }
}

/// Returns the paths of the provider's requests, in order.
fn paths(provider: &Provider) -> Vec<String> {
    provider.seen().into_iter().map(|seen| seen.path).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_is_silent_keeps_one_request_and_not_the_next() {
    let provider = Provider::start().await;
    let lines = format!("{PATIENT}\ntokenize = \"vllm\"");
    let bench = Bench::new().model("context_length = 2000").provider_with("a", &provider, &lines, "");
    let running = bench.start().await;
    // By its number of bytes, the prompt might have too many tokens; in fact it has about a thousand.
    let mut ask = running.ask();
    ask["messages"][0]["content"] = json!("word ".repeat(1_000));
    provider.then(vec![ScriptStep::Hang]);
    for _ in 0..3 {
        let answer = running.client.post("/v1/chat/completions", &ask).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let (count, chat) = ("/tokenize", "/v1/chat/completions");
    assert_eq!(paths(&provider), [count, chat, chat, chat]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_fails_rests_and_one_that_dislikes_a_prompt_does_not() {
    for (status, then) in [(400, "engine"), (503, "estimate"), (404, "estimate")] {
        let provider = Provider::start().await;
        let lines = format!("{PATIENT}\ntokenize = \"vllm\"");
        let running = Bench::new().provider_with("a", &provider, &lines, "").start().await;
        provider
            .then(json_answer(status, &json!({"error": "no"})))
            .then(json_answer(200, &json!({"count": 7, "max_model_len": 32768, "tokens": []})));
        for method in ["estimate", then] {
            let answer = running.client.post("/v1/messages/count_tokens", &running.ask()).await;
            assert_eq!(answer.header("x-token-count-method"), Some(method), "{status}: {}", answer.text());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_impossible_count_of_an_engine_refuses_no_request() {
    let paths = [("/v1/messages/count_tokens", Some("estimate")), ("/v1/chat/completions", None)];
    for (count, (path, method)) in
        [0, 20_000, u64::MAX].into_iter().flat_map(|count| paths.map(|path| (count, path)))
    {
        let provider = Provider::start().await;
        let lines = format!("{PATIENT}\ntokenize = \"vllm\"");
        let bench = Bench::new().model("context_length = 4096").provider_with("a", &provider, &lines, "");
        let running = bench.start().await;
        provider.then(json_answer(200, &json!({"count": count})));
        let mut ask = running.ask();
        ask["messages"][0]["content"] = json!("hello world ".repeat(600));
        let answer = running.client.post(path, &ask).await;
        assert_eq!(answer.status, 200, "{count}: {}", answer.text());
        assert_eq!(answer.header("x-token-count-method"), method, "{count}");
    }
}
