//! The responses dialect, over providers that speak chat and over those that speak messages.

use crate::harness::batch_jobs::{ended, results, uploaded};
use crate::harness::script::{
    Script, ScriptStep, cut, delta, done, event, finish, json_answer, message, plain, role, sse, status,
    stream, text, usage,
};
use crate::harness::{Answer, Bench, Provider};
use penstock_dialect::conformance;
use serde_json::{Value, json};

const RESPONSES: &str = "/v1/responses";

fn ask(stream: bool) -> Value {
    json!({"model": "m", "max_output_tokens": 100, "stream": stream, "instructions": "Be brief.", "input": "Hi"})
}

/// The events of a stream that follows the grammar.
fn events(answer: &Answer) -> Vec<Value> {
    assert_eq!(conformance::check_responses_stream(&answer.body), Ok(()), "{}", answer.text());
    let data = answer.text();
    let data = data.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

fn last_response(answer: &Answer) -> Value {
    events(answer).last().unwrap()["response"].clone()
}

fn streamed_text(answer: &Answer) -> String {
    events(answer)
        .iter()
        .filter(|event| event["type"] == "response.output_text.delta")
        .filter_map(|event| event["delta"].as_str().map(str::to_owned))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_of_a_chat_provider_is_complete() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    let answer = running.client.post(RESPONSES, &ask(false)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let response = answer.json();
    assert_eq!(conformance::check_response(&response), Ok(()));
    assert_eq!((&response["status"], &response["model"]), (&json!("completed"), &json!("m")));
    assert_eq!(response["output"][0]["content"][0]["text"], "Hello");
    assert_eq!(response["usage"]["total_tokens"], 18);
    assert!(response["environment_impact"].is_object() && response["billing_cost"].is_object());
    let sent = provider.last();
    assert_eq!(sent.path, "/v1/chat/completions");
    assert_eq!(
        sent.json()["messages"],
        json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_messages_provider_serves_responses() {
    let provider = Provider::start().await;
    provider.then(json_answer(200, &message("Bonjour", "max_tokens")));
    let running = Bench::new().provider_with("a", &provider, "dialects = [\"messages\"]", "").start().await;
    let answer = running.client.post(RESPONSES, &ask(false)).await;
    let response = answer.json();
    assert_eq!(conformance::check_response(&response), Ok(()), "{}", answer.text());
    assert_eq!(response["output"][0]["content"][0]["text"], "Bonjour");
    assert_eq!(response["incomplete_details"]["reason"], "max_output_tokens");
    let sent = provider.last();
    assert_eq!((sent.path.as_str(), &sent.json()["system"]), ("/v1/messages", &json!("Be brief.")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_has_its_items_and_the_objects_in_the_last_event() {
    let provider = Provider::start().await;
    let reasoning = event(&delta(json!({"reasoning_content": "Two tools."}), None));
    let call = |index: u64, name: &str, arguments: &str| {
        event(&delta(
            json!({"tool_calls": [{"index": index, "id": format!("call_{index}"), "type": "function",
                "function": {"name": name, "arguments": arguments}}]}),
            None,
        ))
    };
    let script: Script = vec![
        sse(),
        role(),
        reasoning,
        text("Looking."),
        call(0, "look", "{\"a\":1}"),
        call(1, "apply_patch", "{\"input\":\"*** Begin\\n\"}"),
        finish("tool_calls"),
        usage(20, 9),
        done(),
        ScriptStep::End,
    ];
    provider.always(script);
    let running = Bench::new().provider("a", &provider).start().await;
    let mut body = ask(true);
    body["tools"] = json!([{"type": "function", "name": "look", "parameters": {"type": "object"}},
        {"type": "custom", "name": "apply_patch"}]);
    body["include"] = json!(["reasoning.encrypted_content"]);
    let answer = running.client.post(RESPONSES, &body).await;
    assert!(answer.header("content-type").unwrap().starts_with("text/event-stream"));
    let response = last_response(&answer);
    let types: Vec<&str> =
        response["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["reasoning", "message", "function_call", "custom_tool_call"]);
    assert_eq!(response["output"][3]["input"], "*** Begin\n");
    assert!(response["environment_impact"].is_object() && response["billing_cost"].is_object());

    // The client sends the output items back, together with the outputs of the calls. The provider then gets the
    // reasoning too.
    let mut input = vec![json!({"role": "user", "content": "Hi"})];
    input.extend(response["output"].as_array().unwrap().iter().cloned());
    input.push(json!({"type": "function_call_output", "call_id": "call_0", "output": "1"}));
    input.push(json!({"type": "custom_tool_call_output", "call_id": "call_1", "output": "Done"}));
    body["input"] = input.into();
    events(&running.client.post(RESPONSES, &body).await);
    let messages = provider.last().json()["messages"].clone();
    assert_eq!(messages[2]["tool_calls"][1]["function"]["arguments"], "{\"input\":\"*** Begin\\n\"}");
    assert_eq!((&messages[3]["role"], &messages[4]["content"]), (&json!("tool"), &json!("Done")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_fails_over_and_is_rescued() {
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
        let answer = running.client.post(RESPONSES, &body).await;
        assert_eq!(streamed_text(&answer), "One two");
        assert_eq!(last_response(&answer)["status"], "completed");
    }
    assert!(bad.calls() > 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_nobody_can_continue_ends_as_failed() {
    let provider = Provider::start().await;
    provider.always(vec![sse(), role(), text("One "), ScriptStep::Cut]);
    let running = Bench::new().provider("a", &provider).start().await;
    let answer = running.client.post(RESPONSES, &ask(true)).await;
    assert!(answer.whole);
    let response = last_response(&answer);
    assert_eq!((&response["status"], &response["error"]["code"]), (&json!("failed"), &json!("server_error")));
    assert!(response.get("billing_cost").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_provider_receives_the_same_as_from_a_chat_client() {
    let provider = Provider::start().await;
    let model = "supported_parameters = [\"tools\", \"response_format\", \"reasoning_effort\", \"top_k\", \"temperature\"]";
    let running = Bench::new().model(model).provider("a", &provider).start().await;
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let chat = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_completion_tokens": 9,
        "reasoning_effort": "none", "temperature": 0.5, "top_k": 5, "user": "u", "parallel_tool_calls": false,
        "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}});
    let responses = json!({"model": "m", "input": "Hi", "max_output_tokens": 9, "user": "u", "store": true,
        "reasoning": {"effort": "none"}, "temperature": 0.5, "top_k": 5, "parallel_tool_calls": false,
        "tools": [{"type": "function", "name": "f", "parameters": schema}],
        "tool_choice": {"type": "function", "name": "f"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": schema}}});
    let first = running.client.post("/v1/chat/completions", &chat).await;
    assert_eq!(first.status, 200, "{}", first.text());
    let sent = provider.last().json();
    let second = running.client.post(RESPONSES, &responses).await;
    assert_eq!(second.status, 200, "{}", second.text());
    assert_eq!(provider.last().json(), sent);
    assert_eq!(first.json()["billing_cost"]["credits"], second.json()["billing_cost"]["credits"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn features_that_need_a_stored_response_or_a_hosted_tool_are_refused_by_name() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    for (member, value, param) in [
        ("previous_response_id", json!("resp_1"), "previous_response_id"),
        ("conversation", json!("conv_1"), "conversation"),
        ("background", json!(true), "background"),
        ("prompt", json!({"id": "pmpt_1"}), "prompt"),
        ("tools", json!([{"type": "web_search"}]), "tools[0].type"),
        ("messages", json!([{"role": "user", "content": "Hi"}]), "messages"),
        ("input", json!([{"type": "item_reference", "id": "msg_1"}]), "input[0].type"),
        (
            "input",
            json!([{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]),
            "input[0].content[0].type",
        ),
    ] {
        let mut body = ask(false);
        body[member] = value;
        let answer = running.client.post(RESPONSES, &body).await;
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status, error["code"].as_str()), (400, Some("INFERENCE_3202")), "{error}");
        assert_eq!(error["param"], param);
    }
    assert_eq!(provider.calls(), 0);
    let stored = running.client.get("/v1/responses/resp_1").await;
    assert_eq!((stored.status, &stored.json()["error"]["type"]), (404, &json!("not_found")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_have_the_envelope_and_the_members_of_the_dialect() {
    let provider = Provider::start().await;
    let model = "supported_parameters = [\"stream\", \"max_tokens\"]";
    let running = Bench::new().model(model).provider("a", &provider).start().await;
    let nobody = crate::harness::Client { address: running.client.address, key: String::new() };
    let answer = nobody.post(RESPONSES, &ask(false)).await;
    assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (401, Some("AUTH_1001")));
    let mut image = ask(false);
    image["input"] = json!([{"role": "user", "content": [
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]}]);
    let mut format = ask(false);
    format["text"] = json!({"format": {"type": "json_object"}});
    let mut invalid = ask(false);
    invalid["input"] =
        json!([{"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "x"}]}]);
    for (body, param) in
        [(image, "input[0].content[0]"), (format, "text.format"), (invalid, "input[0].content[1].type")]
    {
        let answer = running.client.post(RESPONSES, &body).await;
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status, error["param"].as_str()), (400, Some(param)), "{error}");
        assert!(error["message"].is_string() && error["type"].is_string());
    }
    provider.always(status(503));
    let answer = running.client.post(RESPONSES, &ask(true)).await;
    assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (503, Some("INFERENCE_3103")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_hold_for_responses_too() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    let limits = json!({"requests_per_minute": 1, "tokens_per_minute": 100_000});
    let client = running.key(&json!({"name": "limited", "limits": limits})).await;
    let first = client.post(RESPONSES, &ask(false)).await;
    assert_eq!((first.status, first.header("x-ratelimit-remaining-requests")), (200, Some("0")));
    let second = client.post(RESPONSES, &ask(false)).await;
    assert_eq!((second.status, second.json()["error"]["code"].as_str()), (429, Some("RATE_2001")));
    assert!(second.header("retry-after").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn input_tokens_are_counted_without_a_call() {
    let provider = Provider::start().await;
    let model = "tokenizer = { builtin = \"gpt-oss\" }";
    let running = Bench::new().model(model).provider("a", &provider).start().await;
    let count = running
        .client
        .post(
            "/v1/responses/input_tokens",
            &json!({"model": "m", "instructions": "Be brief.", "input": "Hi"}),
        )
        .await;
    assert_eq!(count.status, 200, "{}", count.text());
    assert_eq!(count.header("x-token-count-method"), Some("exact"));
    let counted = count.json();
    assert_eq!(counted["object"], "response.input_tokens");
    // The same conversation in the messages dialect has the same count.
    let body = json!({"model": "m", "system": "Be brief.", "messages": [{"role": "user", "content": "Hi"}]});
    let messages = running.client.post("/v1/messages/count_tokens", &body).await.json();
    assert_eq!(counted["input_tokens"], messages["input_tokens"]);
    assert_eq!(provider.calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_of_a_batch_may_be_responses() {
    let provider = Provider::start().await;
    provider.always(plain("Hello"));
    let running = Bench::new().provider("a", &provider).start().await;
    let line = |id: &str, body: Value| {
        json!({"custom_id": id, "method": "POST", "url": RESPONSES, "body": body}).to_string() + "\n"
    };
    let text = line("good", ask(false)) + &line("bad", json!({"model": "m", "input": []}));
    let file = uploaded(&running.client, &text).await;
    let create = json!({"input_file_id": file, "endpoint": RESPONSES, "completion_window": "24h"});
    let batch = running.client.post("/v1/batches", &create).await;
    assert_eq!(batch.status, 200, "{}", batch.text());
    let found = results(&running.client, &ended(&running.client, &batch.json()).await).await;
    let response = &found["good"]["response"];
    assert_eq!(conformance::check_response(response), Ok(()), "{response}");
    assert_eq!(response["output"][0]["content"][0]["text"], "Hello");
    assert!(response["billing_cost"].is_object());
    let refused = &found["bad"];
    assert_eq!(
        (&refused["status_code"], &refused["response"]["error"]["param"]),
        (&json!(400), &json!("input")),
        "{refused}"
    );
    running.stop().await;
}
