//! Messages dialect of clients, with providers that speak chat and providers that speak messages.

use crate::harness::script::{
    Script, ScriptStep, cut, delta, done, event, finish, json_answer, message, role, sse, status, stream,
    text, usage,
};
use crate::harness::{Answer, Bench, Provider};
use serde_json::{Value, json};

fn ask(stream: bool) -> Value {
    json!({"model": "m", "max_tokens": 100, "stream": stream,
        "system": "Be brief.", "messages": [{"role": "user", "content": "Hi"}]})
}

/// The events of a messages stream by name.
fn events(answer: &Answer) -> Vec<(String, Value)> {
    penstock_dialect::conformance::check_messages_stream(&answer.body).unwrap();
    answer
        .text()
        .split("\n\n")
        .filter_map(|event| event.split_once("\ndata: "))
        .map(|(name, data)| {
            (name.trim_start_matches("event: ").to_owned(), serde_json::from_str(data).unwrap())
        })
        .collect()
}

fn streamed(answer: &Answer) -> String {
    streamed_text(&events(answer))
}

fn streamed_text(events: &[(String, Value)]) -> String {
    events.iter().filter_map(|(_, event)| event["delta"]["text"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_message_over_a_chat_provider() {
    let provider = Provider::start().await;
    let running =
        Bench::new().model("aliases = [\"claude-haiku-4-5\"]").provider("a", &provider).start().await;
    let mut body = ask(false);
    body["model"] = json!("claude-haiku-4-5");
    let answer = running.client.post("/v1/messages?beta=true", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let message = answer.json();
    assert_eq!(message["type"], "message");
    assert_eq!(message["model"], "claude-haiku-4-5");
    assert_eq!(message["content"], json!([{"type": "text", "text": "Hello"}]));
    assert_eq!(message["stop_reason"], "end_turn");
    assert_eq!(
        (&message["usage"]["input_tokens"], &message["usage"]["output_tokens"]),
        (&json!(11), &json!(7))
    );
    assert!(message["environment_impact"].is_object() && message["billing_cost"].is_object());
    let sent = provider.last().json();
    assert_eq!(sent["messages"][0], json!({"role": "system", "content": "Be brief."}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_with_tools_over_a_chat_provider() {
    let provider = Provider::start().await;
    let call = |index: u64, id: &str, name: &str| {
        event(&delta(
            json!({"tool_calls": [{"index": index, "id": id, "type": "function",
            "function": {"name": name, "arguments": ""}}]}),
            None,
        ))
    };
    let part = |index: u64, piece: &str| {
        event(&delta(json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}), None))
    };
    let script: Script = vec![
        sse(),
        role(),
        text("Looking."),
        call(0, "call_1", "look"),
        part(0, "{\"a\":"),
        call(1, "call_2", "look"),
        part(1, "{\"b\":2}"),
        part(0, "1}"),
        finish("tool_calls"),
        usage(20, 9),
        done(),
        ScriptStep::End,
    ];
    provider.always(script);
    let running = Bench::new().provider("a", &provider).start().await;
    let mut body = ask(true);
    body["tools"] = json!([{"name": "look", "input_schema": {"type": "object"}}]);
    let answer = running.client.post("/v1/messages", &body).await;
    let events = events(&answer);
    let starts: Vec<_> = events
        .iter()
        .filter(|(name, _)| name == "content_block_start")
        .map(|(_, event)| event["content_block"].clone())
        .collect();
    assert_eq!(starts.len(), 3);
    assert_eq!((&starts[1]["type"], &starts[1]["id"]), (&json!("tool_use"), &json!("call_1")));
    let last = &events.iter().rfind(|(name, _)| name == "message_delta").unwrap().1;
    assert_eq!(last["delta"]["stop_reason"], "tool_use");
    assert!(last["environment_impact"].is_object() && last["billing_cost"].is_object());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_messages_stream_fails_over_and_is_rescued() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    bad.then(status(503)).then(cut()).then(cut()).then(cut()).then(cut());
    bad.always(vec![sse(), role(), text("One "), ScriptStep::Cut]);
    good.always(stream(&["One ", "two"]));
    let running = Bench::new()
        .provider_with("bad", &bad, "", "price = { input = 0.1, output = 0.1 }")
        .provider_with("good", &good, "", "price = { input = 9.0, output = 9.0 }")
        .start()
        .await;
    let mut body = ask(true);
    body["model"] = json!("m:price");
    for _ in 0..4 {
        let answer = running.client.post("/v1/messages", &body).await;
        assert_eq!(streamed(&answer), "One two");
    }
    assert!(bad.calls() > 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_without_a_failover_provider_ends_with_an_error_event() {
    let provider = Provider::start().await;
    provider.always(vec![sse(), role(), text("One "), ScriptStep::Cut]);
    let running = Bench::new().provider("a", &provider).start().await;
    let answer = running.client.post("/v1/messages", &ask(true)).await;
    let text = answer.text();
    assert!(answer.whole);
    assert!(text.contains("event: error\ndata: "));
    assert!(!text.contains("message_stop") && !text.contains("billing_cost"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_native_provider_is_passed_through() {
    let provider = Provider::start().await;
    provider.then(json_answer(200, &message("Bonjour", "end_turn")));
    let running = Bench::new().provider_with("a", &provider, "dialects = [\"messages\"]", "").start().await;
    let answer = running.client.post("/v1/messages", &ask(false)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let body = answer.json();
    assert_eq!((&body["model"], &body["content"][0]["text"]), (&json!("m"), &json!("Bonjour")));
    assert!(body["billing_cost"].is_object());
    assert_eq!(provider.last().path, "/v1/messages");
    assert_eq!(provider.last().json()["model"], "theirs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chat_client_reaches_a_provider_that_only_speaks_messages() {
    let provider = Provider::start().await;
    provider.then(json_answer(200, &message("Bonjour", "max_tokens")));
    let running = Bench::new().provider_with("a", &provider, "dialects = [\"messages\"]", "").start().await;
    let body = running.chat().await.json();
    assert_eq!(body["choices"][0]["message"]["content"], "Bonjour");
    assert_eq!(body["choices"][0]["finish_reason"], "length");
    assert_eq!(body["usage"]["total_tokens"], 5);
    assert!(provider.last().json()["max_tokens"].is_u64());
}

/// A request that a messages provider would reject goes to a chat provider, if there is one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chat_client_hears_which_field_no_provider_takes() {
    let (messages, chat) = (Provider::start().await, Provider::start().await);
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let unanswered = json!({"model": "m", "messages": [{"role": "user", "content": "go"},
        {"role": "assistant", "content": null, "tool_calls": [call]}, {"role": "user", "content": "well?"}]});
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/bmp;base64,Qk0="}});
    let odd = json!({"model": "m", "messages": [{"role": "user", "content": [image]}]});
    let vision = "input_modalities = [\"text\", \"image\"]";
    let only = || Bench::new().model(vision).provider_with("a", &messages, "dialects = [\"messages\"]", "");
    let running = only().start().await;
    for (body, param) in
        [(&unanswered, "messages[1].tool_calls[0]"), (&odd, "messages[0].content[0].image_url")]
    {
        let answer = running.client.post("/v1/chat/completions", body).await;
        assert_eq!((answer.status, answer.json()["error"]["param"].as_str()), (400, Some(param)));
    }
    let running = only().provider("b", &chat).start().await;
    for body in [&unanswered, &odd] {
        let answer = running.client.post("/v1/chat/completions", body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!((messages.calls(), chat.calls()), (0, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_wear_the_messages_envelope_on_every_layer() {
    let provider = Provider::start().await;
    provider.always(status(503));
    let running = Bench::new().provider("a", &provider).start().await;
    let nobody = crate::harness::Client { address: running.client.address, key: String::new() };
    let invalid = json!({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "sound"}]}]});
    let unmatched = json!({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content":
        [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}]}]});
    let cases = [
        (nobody.post("/v1/messages", &ask(false)).await, 401, "authentication_error", "AUTH_1001"),
        (running.client.post("/v1/messages", &invalid).await, 400, "invalid_request_error", "INFERENCE_3201"),
        (
            running.client.post("/v1/messages", &unmatched).await,
            400,
            "invalid_request_error",
            "INFERENCE_3201",
        ),
        (running.client.get("/v1/messages").await, 405, "invalid_request_error", "RESOURCE_5002"),
        (running.client.post("/v1/messages", &ask(false)).await, 503, "overloaded_error", "INFERENCE_3103"),
    ];
    for (answer, status, kind, code) in cases {
        let body = answer.json();
        assert_eq!((answer.status, &body["type"]), (status, &json!("error")), "{body}");
        assert_eq!((&body["error"]["type"], &body["error"]["code"]), (&json!(kind), &json!(code)));
        assert_eq!(body["error"]["details"]["error_code"], code);
        assert_eq!(body["request_id"].as_str(), answer.header("request-id"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_counted_exactly_and_nothing_is_asked_of_a_provider() {
    let provider = Provider::start().await;
    let running = Bench::new()
        .model("tokenizer = { builtin = \"o200k_harmony\" }")
        .provider("a", &provider)
        .start()
        .await;
    let mut body = ask(false);
    body.as_object_mut().unwrap().remove("max_tokens");
    let answer = running.client.post("/v1/messages/count_tokens?beta=true", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("x-token-count-method"), Some("exact"));
    let tokens = answer.json()["input_tokens"].as_u64().unwrap();
    assert!((5..200).contains(&tokens), "{tokens}");
    assert_eq!(provider.calls(), 0);
}

/// Tests requests with `max_tokens: 0`. The account has no balance, so even the smallest reserve would be refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_tokens_at_all_are_answered_without_a_provider_and_without_a_charge() {
    for lines in ["", "dialects = [\"messages\"]"] {
        let provider = Provider::start().await;
        let bench = Bench::new().settings("[billing]\ncredit = \"prepaid\"\n");
        let running = bench.provider_with("a", &provider, lines, "").start().await;
        let (mut plain, mut streamed) = (ask(false), ask(true));
        (plain["max_tokens"], streamed["max_tokens"]) = (json!(0), json!(0));
        plain["model"] = json!("m:price");
        let answer = running.client.post("/v1/messages", &plain).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let message = answer.json();
        assert_eq!((&message["type"], &message["role"]), (&json!("message"), &json!("assistant")));
        assert_eq!((&message["model"], &message["content"][0]["text"]), (&json!("m:price"), &json!("")));
        let stop = (&message["stop_reason"], &message["stop_sequence"]);
        assert_eq!(stop, (&json!("max_tokens"), &Value::Null));
        assert_empty(&message);

        let answer = running.client.post("/v1/messages", &streamed).await;
        assert_eq!((answer.status, answer.whole), (200, true), "{}", answer.text());
        assert!(answer.header("content-type").unwrap().starts_with("text/event-stream"));
        let events = events(&answer);
        assert_eq!(events[0].1["message"]["usage"]["input_tokens"], 0);
        let last = &events.iter().rfind(|(name, _)| name == "message_delta").unwrap().1;
        assert_eq!(last["delta"], json!({"stop_reason": "max_tokens", "stop_sequence": null}));
        assert_empty(last);
        assert_eq!(streamed_text(&events), "");

        plain["model"] = json!("none");
        assert_eq!(running.client.post("/v1/messages", &plain).await.status, 404);
        let credits = running.gateway.app.ledger.balance("default").credits;
        assert_eq!((provider.calls(), credits.amount, credits.held), (0, 0, 0));
        assert_eq!(running.client.post("/v1/messages", &ask(false)).await.status, 402, "one token costs");
    }
}

/// Asserts that `environment_impact` and `billing_cost` are present and that all their amounts are zero.
fn assert_empty(end: &Value) {
    assert_eq!((&end["usage"]["input_tokens"], &end["usage"]["output_tokens"]), (&json!(0), &json!(0)));
    assert_eq!(end["billing_cost"], json!({"energy": 0, "credits": 0, "paid_with": "credits"}));
    let impact = &end["environment_impact"];
    for name in ["energy_kwh", "carbon_g_co2", "water_liters"] {
        assert_eq!(impact[name], json!(0), "{name}");
    }
    // The location is that of the provider that would have been selected.
    assert_eq!(impact["provider_id"], "a");
    assert!(impact["renewable_percent"].is_number() && impact["pue"].is_number(), "{impact}");
    assert!(impact["location"].as_str().unwrap().contains(", "), "{impact}");
    assert_eq!(impact["country"], "FR");
    assert_eq!(impact.as_object().unwrap().len(), 8, "{impact}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_over_the_context_window_is_rejected_before_any_provider_call() {
    let provider = Provider::start().await;
    let running = Bench::new()
        .model("context_length = 2000\ntokenizer = { builtin = \"o200k_harmony\" }")
        .provider("a", &provider)
        .start()
        .await;
    let mut long = ask(false);
    long["messages"][0]["content"] = json!("word ".repeat(5_000));
    let answer = running.client.post("/v1/messages", &long).await;
    assert_eq!(answer.status, 400);
    let error = &answer.json()["error"];
    assert_eq!(error["code"], "INFERENCE_3207");
    assert!(error["message"].as_str().unwrap().starts_with("prompt is too long: "));
    assert!(error["details"]["input_tokens"].as_u64().unwrap() > 5_000);
    assert_eq!(provider.calls(), 0);
    // A `max_tokens` that does not fit the window is reduced to the tokens that the prompt leaves.
    let mut greedy = ask(false);
    greedy["messages"][0]["content"] = json!("word ".repeat(1_000));
    greedy["max_tokens"] = json!(64_000);
    let answer = running.client.post("/v1/messages", &greedy).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let sent = provider.last().json();
    let cap = sent["max_tokens"].as_u64().or_else(|| sent["max_completion_tokens"].as_u64()).unwrap();
    assert!((500..1_000).contains(&cap), "{cap}");
}
