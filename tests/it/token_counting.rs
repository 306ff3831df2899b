//! Prompts that are counted before any provider call: a count uses the limits of the key, and ends when the client
//! disconnects.

use crate::harness::gateway::Running;
use crate::harness::script::{plain, silent};
use crate::harness::{Bench, Provider, until};
use penstock::net::panic_injection::PanicInjectionPoint;
use penstock_simulator::{SimulatedServer, SimulatorOptions};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";

/// Starts a gateway whose token counts go to an engine that never answers.
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
    until("the request to end", || running.gateway.app.in_flight_exchanges() == 0).await;
    let asked: Vec<String> = engine.seen().into_iter().map(|seen| seen.path).collect();
    assert_eq!(asked, ["/tokenize"], "nobody is asked for an answer");
    let metrics = running.admin().get("/metrics").await.text();
    assert!(
        metrics.contains("penstock_requests_total{endpoint=\"chat\",model=\"m\",outcome=\"left\""),
        "{metrics}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wait_for_an_engine_is_not_the_gateways_own_time() {
    let engine = Provider::start().await;
    engine.then(silent());
    engine.always(plain("Hello"));
    let model = "context_length = 1024";
    let running =
        Bench::new().model(model).provider_with("a", &engine, "tokenize = \"vllm\"", "").start().await;
    let answer = running.client.post(CHAT, &chat_request("not too long ".repeat(100))).await;
    assert_eq!((answer.status, engine.calls()), (200, 2), "{}", answer.text());
    let metrics = running.admin().get("/metrics").await.text();
    let overhead = metrics.lines().filter(|line| line.starts_with("penstock_overhead_seconds_sum"));
    let seconds: f64 = overhead.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum();
    assert!(seconds > 0.0 && seconds < 0.5, "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counted_request_takes_and_releases_its_permit() {
    let (engine, running) = counted_by_a_silent_engine().await;
    let limits = json!({"concurrent": 1});
    let client = running.key(&json!({"name": "limited", "limits": limits})).await;
    let ask = json!({"model": "m", "messages": [{"role": "user", "content": "too long ".repeat(100)}]});
    // Each disconnect ends the count and releases its permit, so the next round can start.
    for _ in 0..3 {
        let before = engine.calls();
        let open = client.open("POST", CHAT, &[], ask.to_string().as_bytes()).await;
        engine.until_calls(before + 1).await;
        let again = client.post(CHAT, &ask).await;
        assert_eq!((again.status, &again.json()["error"]["details"]["limit"]), (429, &json!("concurrent")));
        let counts = engine.seen().iter().skip(before).filter(|seen| seen.path == "/tokenize").count();
        assert!(counts <= 1, "nothing is counted beyond the limit");
        drop(open);
        until("the request to end", || running.gateway.app.in_flight_exchanges() == 0).await;
    }
}

/// Tests that a failed count is not mistaken for an empty prompt, which would fit any context window.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_a_token_count_is_an_internal_error_without_a_provider_call() {
    let long = "too long ".repeat(10_000);
    let chat = json!({"model": "m", "messages": [{"role": "user", "content": long}]});
    let embedding = json!({"model": "m", "input": long});
    for (kind, path, ask) in [("chat", CHAT, chat), ("embedding", "/v1/embeddings", embedding)] {
        let provider = Provider::start().await;
        let model = "context_length = 64\ntokenizer = { builtin = \"gpt-oss\" }";
        let running = Bench::new().kind(kind).model(model).provider("a", &provider).start().await;
        running.gateway.app.panic_injector.arm(PanicInjectionPoint::OffThread, 1);
        let broken = running.client.post(path, &ask).await;
        assert_eq!((broken.status, &broken.json()["error"]["code"]), (500, &json!("SERVER_9001")), "{kind}");
        let long = running.client.post(path, &ask).await;
        assert_eq!(long.json()["error"]["code"], "INFERENCE_3207", "the next is counted again");
        assert_eq!(provider.calls(), 0);
    }
}

const COUNT: &str = "/v1/messages/count_tokens";

/// Letters without a blank: one word for every tokenizer.
fn letters(bytes: usize) -> String {
    ('a'..='z').cycle().step_by(7).take(bytes).collect()
}

fn chat_request(text: impl Into<Value>) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": text.into()}]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counting_meets_the_limits_of_the_key() {
    let provider = Provider::start().await;
    let model = "tokenizer = { builtin = \"gpt-oss\" }";
    let running = Bench::new().model(model).provider("a", &provider).start().await;
    let client = running.key(&json!({"name": "limited", "limits": {"requests_per_minute": 2}})).await;
    for left in ["1", "0"] {
        let counted = client.post(COUNT, &chat_request("Hello")).await;
        assert_eq!(counted.status, 200, "{}", counted.text());
        assert_eq!(counted.header("anthropic-ratelimit-requests-limit"), Some("2"));
        assert_eq!(counted.header("anthropic-ratelimit-requests-remaining"), Some(left));
    }
    let refused = client.post(COUNT, &chat_request("Hello")).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (429, &json!("RATE_2001")));
    assert!(refused.header("retry-after").is_some());
    // A request for an unknown model does not count towards the request limit.
    let client = running.key(&json!({"name": "other", "limits": {"requests_per_minute": 1}})).await;
    let mut nowhere = chat_request("Hello");
    nowhere["model"] = json!("nowhere");
    assert_eq!(client.post(COUNT, &nowhere).await.status, 404);
    assert_eq!(client.post(COUNT, &chat_request("Hello")).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_count_takes_a_concurrency_permit_of_the_key() {
    let (engine, running) = counted_by_a_silent_engine().await;
    let client = running.key(&json!({"name": "limited", "limits": {"concurrent": 1}})).await;
    let open = client.open("POST", COUNT, &[], chat_request("Hello").to_string().as_bytes()).await;
    engine.until_calls(1).await;
    let again = client.post(COUNT, &chat_request("Hello")).await;
    assert_eq!((again.status, &again.json()["error"]["details"]["limit"]), (429, &json!("concurrent")));
    drop(open);
    until("the request to end", || running.gateway.app.in_flight_exchanges() == 0).await;
    assert_eq!(engine.calls(), 1);
}

/// Tests that a disconnect ends a count that would otherwise take long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disconnect_ends_the_count_and_an_account_counts_one_at_a_time() {
    let provider = Provider::start().await;
    let model = "context_length = 900000000\ntokenizer = { builtin = \"gpt-oss\" }";
    let running = Bench::new().model(model).provider("a", &provider).start().await;
    let counting = running.gateway.app.tokenizer_permits.clone();
    let long = chat_request(letters(24 << 20)).to_string();
    let first = running.client.open("POST", COUNT, &[], long.as_bytes()).await;
    until("the first to count", || counting.running_and_waiting_counts() == (1, 0)).await;
    let second = running.client.open("POST", COUNT, &[], long.as_bytes()).await;
    until("the second to wait, though a permit is free", || counting.running_and_waiting_counts() == (1, 1))
        .await;
    let made = running.admin().post("/admin/accounts", &json!({"id": "another"})).await;
    assert!(made.status < 300, "{}", made.text());
    let account = json!({"name": "theirs", "account": "another"});
    let theirs = running.key(&account).await.post(COUNT, &chat_request("word ".repeat(10_000))).await;
    assert_eq!(theirs.status, 200, "{}", theirs.text());
    drop(second);
    until("the second to leave the queue", || counting.running_and_waiting_counts() == (1, 0)).await;
    drop(first);
    until("the count to end", || counting.running_and_waiting_counts() == (0, 0)).await;
    until("the requests to end", || running.gateway.app.in_flight_exchanges() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_stops_one_beyond_the_window() {
    let provider = Provider::start().await;
    let model = "context_length = 40000\ntokenizer = { builtin = \"gpt-oss\" }";
    let running = Bench::new().model(model).provider("a", &provider).start().await;
    for (path, text) in [(CHAT, letters(8 << 20)), (COUNT, letters(8 << 20)), (COUNT, " ".repeat(28 << 20))] {
        let refused = running.client.post(path, &chat_request(text)).await;
        let error = &refused.json()["error"];
        assert_eq!((refused.status, &error["code"]), (400, &json!("INFERENCE_3207")), "{path}");
        let details = &error["details"];
        assert_eq!((&details["context_length"], &details["input_tokens"]), (&json!(40_000), &json!(40_001)));
        assert_eq!(details["input_tokens_at_least"], true);
    }
    // A prompt that fits the window gets an exact count and a normal answer.
    let counted = running.client.post(COUNT, &chat_request("word ".repeat(39_000))).await;
    assert_eq!((counted.status, counted.header("x-token-count-method")), (200, Some("exact")));
    assert!((39_000..=40_000).contains(&counted.json()["input_tokens"].as_u64().unwrap()));
    assert_eq!(provider.calls(), 0);
}

/// Tests prompts that have fewer tokens than the window by every tokenizer, and estimates far above it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_estimate_above_the_window_is_returned() {
    let provider = Provider::start().await;
    let running = Bench::new().model("context_length = 32768").provider("a", &provider).start().await;
    let row = format!("|{}|\n", "-".repeat(100));
    let texts = ["word ".repeat(20_000), row.repeat(2_000), "a".repeat(140_000), "haha".repeat(30_000)];
    for text in texts.into_iter().chain([letters(1 << 20)]) {
        let bytes = text.len() as u64;
        for path in [COUNT, "/v1/responses/input_tokens"] {
            let mut body = chat_request(text.clone());
            if path != COUNT {
                body = json!({"model": "m", "input": text});
            }
            let counted = running.client.post(path, &body).await;
            let found = (counted.status, counted.header("x-token-count-method"));
            assert_eq!(found, (200, Some("estimate")), "{}", counted.text());
            let tokens = counted.json()["input_tokens"].as_u64().unwrap();
            assert!((10_000..=bytes + 1_000).contains(&tokens), "{tokens} of {bytes} bytes");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_of_a_million_values_is_estimated_by_its_bytes() {
    let provider = Provider::start().await;
    let model = "tokenizer = { builtin = \"gpt-oss\" }";
    let running = Bench::new().model(model).provider("a", &provider).start().await;
    let mut body = chat_request("Hello");
    body["tools"] = json!([{"name": "t", "input_schema": {"type": "object", "enum": vec![0; 300_000]}}]);
    let counted = running.client.post(COUNT, &body).await;
    assert_eq!((counted.status, counted.header("x-token-count-method")), (200, Some("estimate")));
    assert!(counted.json()["input_tokens"].as_u64().unwrap() >= 600_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_model_of_a_count_may_be_left_out_where_one_is_configured() {
    let provider = Provider::start().await;
    let model = "tokenizer = { builtin = \"gpt-oss\" }\naliases = [\"*sonnet*\"]";
    let settings = "[default_models]\ncount_tokens = \"m\"";
    let with = Bench::new().settings(settings).model(model).provider("a", &provider).start().await;
    let without = Bench::new().model(model).provider("a", &provider).start().await;
    let mut body = chat_request("Hello");
    let named = with.client.post(COUNT, &body).await.json();
    body["model"] = json!("Claude-SONNET-4-5-20250929:eco");
    assert_eq!(with.client.post(COUNT, &body).await.json(), named, "a pattern");
    for model in [None, Some(Value::Null)] {
        match model {
            Some(model) => body["model"] = model,
            None => drop(body.as_object_mut().unwrap().remove("model")),
        }
        let counted = with.client.post(COUNT, &body).await;
        assert_eq!((counted.status, counted.json()), (200, named.clone()), "{}", counted.text());
        let refused = without.client.post(COUNT, &body).await;
        assert_eq!(refused.status, 400);
        assert!(
            refused.json()["error"]["message"].as_str().unwrap().starts_with("model:"),
            "{}",
            refused.text()
        );
        assert_eq!(with.client.post("/v1/messages", &body).await.status, 400, "for counts alone");
    }
}

/// Tests providers whose engine counts, as in the demo.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_simulated_provider_counts_the_tokens_it_bills() {
    let server = SimulatedServer::start(SimulatorOptions::default()).await.unwrap();
    let base = format!("http://{}/v1", server.address);
    let running = Bench::new().provider_at("a", &base, "tokenize = \"vllm\"", "").start().await;
    let tool = json!({"name": "weather", "description": "Weather of a place", "input_schema":
        {"type": "object", "properties": {"place": {"type": "string", "description": "A town"}}}});
    let turns = json!([
        {"role": "user", "content": "How is the weather in Paris?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"place": "Paris"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "Sunny, 21 degrees"}]},
    ]);
    for (system, messages, tools) in [
        (Value::Null, json!([{"role": "user", "content": "hello world"}]), Value::Null),
        (
            json!("Be brief."),
            json!([{"role": "user", "content": [{"type": "text", "text": "hello"}]}]),
            Value::Null,
        ),
        (Value::Null, turns, json!([tool])),
    ] {
        let mut body = json!({"model": "m", "messages": messages, "max_tokens": 20});
        for (name, value) in [("system", system), ("tools", tools)] {
            if !value.is_null() {
                body[name] = value;
            }
        }
        let counted = running.client.post(COUNT, &body).await;
        assert_eq!(counted.header("x-token-count-method"), Some("engine"), "{}", counted.text());
        let answered = running.client.post("/v1/messages", &body).await.json();
        let usage = &answered["usage"];
        let billed = ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"];
        let billed: u64 = billed.iter().filter_map(|name| usage[*name].as_u64()).sum();
        assert_eq!(counted.json()["input_tokens"], billed, "{answered}");
    }
    server.stop().await;
}
