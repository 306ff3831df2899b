//! Failures of a provider that it reports with statuses of client errors, and failures that a request may have
//! caused.

use crate::harness::script::{ScriptStep, event, json_answer, sse};
use crate::harness::{Bench, Provider};
use serde_json::{Value, json};

/// Provider errors about the gateway's own account or model name, or about the provider itself. No client may see
/// their texts.
fn faults() -> Vec<(u16, Value)> {
    let error = |message: &str, code: &str| json!({"error": {"message": message, "type": "invalid_request_error", "code": code}});
    vec![
        (400, error("Your credit balance is too low to access the Anthropic API.", "x")),
        (400, error("API key not valid. Please pass a valid API key.", "x")),
        (400, error("The model `theirs` does not exist", "x")),
        (
            413,
            error("Request too large for model `theirs` in organization `org_01hxyz`", "rate_limit_exceeded"),
        ),
        (424, error("Request failed during generation: Server error: CUDA out of memory", "x")),
        (200, error("Your credit balance is too low", "x")),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_of_the_account_with_a_client_status_is_answered_by_another_offer() {
    for (status, body) in faults() {
        let (first, second) = (Provider::start().await, Provider::start().await);
        first.always(json_answer(status, &body));
        let running = Bench::new().provider("a", &first).provider("b", &second).start().await;
        for stream in [false, true] {
            let mut ask = running.ask();
            ask["stream"] = json!(stream);
            // Offers of equal scores are chosen at random, and a conversation stays at its offer.
            for number in 0..12 {
                ask["messages"][0]["content"] = json!(format!("x{number}"));
                let answer = running.client.post("/v1/chat/completions", &ask).await;
                assert_eq!(answer.status, 200, "{status} {body}: {}", answer.text());
            }
        }
        assert!(first.calls() > 0 && second.calls() > 0, "{body}");
        // Without another offer the client gets a neutral reason.
        let only = Provider::start().await;
        only.always(json_answer(status, &body));
        let running = Bench::new().provider("a", &only).start().await;
        let answer = running.chat().await;
        assert_eq!(answer.status, 503, "{body}: {}", answer.text());
        for word in ["credit", "API key", "theirs", "org_01", "CUDA"] {
            assert!(!answer.text().contains(word), "{}", answer.text());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_in_a_stream_about_the_account_is_answered_by_another_offer() {
    let (first, second) = (Provider::start().await, Provider::start().await);
    let error = json!({"error": {"message": "moderation service unavailable", "code": 500}});
    first.always(vec![sse(), event(&error), ScriptStep::End]);
    let running = Bench::new().provider("a", &first).provider("b", &second).start().await;
    let mut ask = running.ask();
    ask["stream"] = json!(true);
    // Offers of equal scores are chosen at random.
    for _ in 0..30 {
        let answer = running.client.post("/v1/chat/completions", &ask).await;
        assert!(answer.status == 200 && !answer.text().contains("error"), "{}", answer.text());
    }
    assert!(first.calls() > 0, "the first offer was asked");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_that_the_history_may_have_caused_is_answered_by_another_offer() {
    let (first, second) = (Provider::start().await, Provider::start().await);
    first.always(json_answer(500, &json!({"error": {"message": "CUDA out of memory"}})));
    let running = Bench::new().provider("a", &first).provider("b", &second).start().await;
    // Each conversation has a different beginning, because all requests of one conversation go to the same offer.
    let call = |arguments: &str, number: usize| {
        json!({"model": "m", "messages": [{"role": "user", "content": format!("x{number}")},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function",
            "function": {"name": "f", "arguments": arguments}}]},
        {"role": "tool", "tool_call_id": "c", "content": "r"}]})
    };
    for arguments in ["{\"a\":", "[1]", "null"] {
        for number in 0..10 {
            let answer = running.client.post("/v1/chat/completions", &call(arguments, number)).await;
            assert_eq!(answer.status, 200, "{arguments}: {}", answer.text());
        }
    }
    assert!(first.calls() > 0, "the first offer was asked");
    // An error text about the tool call's arguments shows that the request is at fault, so no other offer is tried.
    let (first, second) = (Provider::start().await, Provider::start().await);
    for provider in [&first, &second] {
        provider.always(json_answer(500, &json!({"error": {"message": "Expecting value: line 1 column 6"}})));
    }
    let running = Bench::new().provider("a", &first).provider("b", &second).start().await;
    let answer = running.client.post("/v1/chat/completions", &call("{\"a\":", 0)).await;
    assert_eq!((answer.status, first.calls() + second.calls()), (400, 1), "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_of_a_responses_client_is_named_by_its_item() {
    let provider = Provider::start().await;
    provider.always(json_answer(500, &json!({"error": {"message": "Internal Server Error"}})));
    let running = Bench::new().provider("a", &provider).start().await;
    let ask = json!({"model": "m", "input": [{"role": "user", "content": "x"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"a\":"},
        {"type": "function_call_output", "call_id": "c", "output": "7"}]});
    let answer = running.client.post("/v1/responses", &ask).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert!(answer.text().contains("input[1].arguments: the arguments"), "{}", answer.text());
    assert!(!answer.text().contains("messages["), "{}", answer.text());
}
