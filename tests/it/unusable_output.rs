//! Output of a model that cannot be passed on, and output that its client does not see.

use crate::harness::batch_jobs::{ended, line, results, uploaded};
use crate::harness::script::{Script, ScriptStep, event, json_answer, role, sse, text};
use crate::harness::{Bench, Client, Provider, gateway::Running, until, within};
use penstock_dialect::conformance;
use serde_json::{Value, json};
use std::time::Duration;

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";

/// A plain answer with a tool call that has no name.
fn nameless_call() -> Script {
    let call = json!({"id": "c", "type": "function", "function": {"name": "", "arguments": "{}"}});
    json_answer(
        200,
        &json!({"id": "x", "object": "chat.completion", "created": 1, "model": "t",
        "choices": [{"index": 0, "finish_reason": "tool_calls",
            "message": {"role": "assistant", "content": null, "tool_calls": [call]}}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}}),
    )
}

/// A stream with text and a tool call that has no name.
fn nameless_call_after_text() -> Script {
    let call =
        json!({"index": 0, "id": "c", "type": "function", "function": {"name": "", "arguments": "{}"}});
    let delta =
        json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]});
    vec![sse(), role(), text("Well, let me see."), event(&delta), ScriptStep::End]
}

/// A stream with text and a tool call whose arguments are two objects.
fn two_objects_after_text() -> Script {
    let fragment = |call: Value| event(&json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}));
    let more = |text: &str| fragment(json!({"index": 0, "function": {"arguments": text}}));
    let start =
        json!({"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}});
    vec![sse(), role(), text("Well."), fragment(start), more("{\"a\":1}"), more("{\"b\":2}"), ScriptStep::End]
}

fn body(path: &str, stream: bool) -> Value {
    match path {
        RESPONSES => json!({"model": "m", "input": "Hi", "stream": stream}),
        _ => json!({"model": "m", "max_tokens": 4_000, "stream": stream,
            "messages": [{"role": "user", "content": "Hi"}]}),
    }
}

/// Returns the sum of all charges once the ledger contains this number of requests, charged or not.
async fn total_usage(running: &Running, requests: u64) -> Value {
    within("the ledger", async {
        loop {
            let answer = running.admin().get("/admin/usage?group_by=outcome").await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let usage = answer.json();
            let count = |row: &Value| {
                row["requests"].as_u64().unwrap().max(row["requests_not_charged"].as_u64().unwrap())
            };
            if usage["data"].as_array().unwrap().iter().map(count).sum::<u64>() >= requests {
                return usage["total"].clone();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_request_is_not_repeated_by_anyone() {
    let provider = Provider::start().await;
    provider.always(nameless_call());
    let running = Bench::new().provider("a", &provider).start().await;
    for path in [CHAT, MESSAGES, RESPONSES] {
        let before = provider.calls();
        let answer = running.client.post(path, &body(path, false)).await;
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert_eq!((answer.header("retry-after"), answer.header("x-should-retry")), (None, Some("false")));
        assert_eq!(provider.calls() - before, 1);
    }
    assert_eq!(total_usage(&running, 3).await["requests_not_charged"], 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_line_and_a_background_response_fail_after_one_call() {
    let provider = Provider::start().await;
    provider.always(nameless_call());
    let settings = "[batches]\nretries = 3\nretry_first = \"1ms\"";
    let running = Bench::new().settings(settings).provider("a", &provider).start().await;
    let client: Client = running.key(&json!({"name": "storing", "store_responses": true})).await;
    let file = uploaded(&client, &line("a", "Hi")).await;
    let create = json!({"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"});
    let batch = client.post("/v1/batches", &create).await.json();
    let end = ended(&client, &batch).await;
    let found = results(&client, &end).await;
    assert_eq!(found["a"]["status_code"], 503, "{found:?}");
    assert_eq!(provider.calls(), 1);
    let mut ask = body(RESPONSES, false);
    ask["background"] = json!(true);
    let response = client.post(RESPONSES, &ask).await.json();
    let path = format!("{RESPONSES}/{}", response["id"].as_str().unwrap());
    within("the failure", async {
        while client.get(&path).await.json()["status"] != "failed" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(provider.calls(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_ends_with_its_cost_and_with_the_event_of_its_dialect() {
    let provider = Provider::start().await;
    provider.always(nameless_call_after_text());
    let running = Bench::new().provider("a", &provider).start().await;
    for (number, path) in [CHAT, MESSAGES, RESPONSES].into_iter().enumerate() {
        let answer = running.client.post(path, &body(path, true)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let text = answer.text();
        let last = text.lines().rev().find_map(|line| line.strip_prefix("data: {")).unwrap();
        let last: Value = serde_json::from_str(&format!("{{{last}")).unwrap();
        let holder = if path == RESPONSES { &last["response"] } else { &last };
        assert!(holder["billing_cost"]["credits"].as_f64().unwrap() > 0.0, "{text}");
        assert!(holder["environment_impact"].is_object(), "{text}");
        if path == RESPONSES {
            assert_eq!(conformance::check_responses_stream(&answer.body), Ok(()), "{text}");
            assert_eq!(last["type"], "response.failed");
            assert_eq!(last["sequence_number"], text.matches("event: ").count() - 1);
        } else {
            assert!(last["error"].is_object(), "{text}");
        }
        let total = total_usage(&running, number as u64 + 1).await;
        assert_eq!(total["output_tokens"], 5 * (number + 1), "a token for each four bytes that arrived");
    }
    assert_eq!(provider.calls(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_of_two_objects_are_charged_and_asked_of_one_provider() {
    let (provider, other) = (Provider::start().await, Provider::start().await);
    provider.always(two_objects_after_text());
    other.always(two_objects_after_text());
    let running = Bench::new().provider("a", &provider).provider("b", &other).start().await;
    for (number, path) in [CHAT, MESSAGES, RESPONSES].into_iter().enumerate() {
        let answer = running.client.post(path, &body(path, true)).await;
        let text = answer.text();
        assert!(answer.status == 200 && text.contains("Well."), "{text}");
        assert_eq!(provider.calls() + other.calls(), number + 1, "{text}");
        let total = total_usage(&running, number as u64 + 1).await;
        assert_eq!(total["requests_not_charged"], 0, "{path}: {total}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_does_not_pay_for_reasoning_that_it_did_not_see() {
    let provider = Provider::start().await;
    let thought = json!({"choices": [{"index": 0, "delta": {"reasoning_content": "Hm. ".repeat(4_000)}}]});
    provider.always(vec![sse(), role(), event(&thought), ScriptStep::Hang]);
    let running = Bench::new().provider("a", &provider).start().await;
    let open = running.client.stream_until(MESSAGES, &body(MESSAGES, true), "message_start").await;
    drop(open);
    provider.until_left(1).await;
    until("the exchange to end", || running.gateway.app.in_flight_exchanges() == 0).await;
    let total = total_usage(&running, 1).await;
    assert_eq!((&total["output_tokens"], &total["requests_not_charged"]), (&json!(0), &json!(1)), "{total}");
    assert_eq!(total["credits"].as_f64(), Some(0.0), "{total}");
    // Reasoning that the client got is charged.
    let mut ask = body(MESSAGES, true);
    ask["thinking"] = json!({"type": "enabled", "budget_tokens": 1_024});
    let open = running.client.stream_until(MESSAGES, &ask, "thinking_delta").await;
    drop(open);
    provider.until_left(2).await;
    until("the exchange to end", || running.gateway.app.in_flight_exchanges() == 0).await;
    assert_eq!(total_usage(&running, 2).await["output_tokens"], 4_000);
}
