//! Provider errors about a request: the party at fault, and the text that the client gets.

use crate::harness::script::json_answer;
use crate::harness::{Bench, Provider};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_500_about_the_request_is_a_client_error() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    for (text, code) in [
        ("input (992 tokens) is too large to process. increase the physical batch size", "INFERENCE_3207"),
        ("prompt length (40000) exceeds max_input_len (32768)", "INFERENCE_3207"),
        ("max_tokens must be at least 1, got -63", "INFERENCE_3207"),
        ("Conversation roles must alternate user/assistant/user/assistant/...", "INFERENCE_3201"),
    ] {
        for _ in 0..8 {
            let body = json!({"error": {"message": text, "code": 500}});
            provider.then(json_answer(500, &body));
            let before = provider.calls();
            let answer = running.chat().await;
            assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (400, Some(code)), "{text}");
            assert_eq!(provider.calls(), before + 1, "no second attempt: {text}");
        }
    }
    // These failures do not count against the provider.
    assert_eq!(running.chat().await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_providers_own_sentence_reaches_the_client_without_the_request_or_an_address_in_it() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    let ask = json!({"model": "m", "max_tokens": 9,
        "messages": [{"role": "user", "content": "my secret plan for Tuesday"}]});
    let text =
        "temperature must be below 1 for 'secret plan' at https://engine.internal:8000/v1 with key sk-abc123";
    for path in ["/v1/chat/completions", "/v1/messages"] {
        for status in [400, 422] {
            provider.then(json_answer(status, &json!({"error": {"message": text, "param": "temperature"}})));
            let answer = running.client.post(path, &ask).await;
            let error = answer.json()["error"].clone();
            let message = error["message"].as_str().unwrap();
            assert_eq!(answer.status, 400, "{}", answer.text());
            assert!(message.ends_with("temperature must be below 1 for … at … with key"), "{message}");
            for leak in ["secret", "plan", "engine.internal", "sk-abc", "8000"] {
                assert!(!answer.text().contains(leak), "{leak}: {}", answer.text());
            }
        }
    }
    provider.then(json_answer(413, &json!({"error": {"message": "Payload too large for messages"}})));
    let answer = running.chat().await;
    assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (413, Some("RESOURCE_5004")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replayed_call_without_arguments_goes_out_with_an_empty_object() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    for function in
        [json!({"name": "f"}), json!({"name": "f", "arguments": ""}), json!({"name": "f", "arguments": null})]
    {
        let body = json!({"model": "m", "messages": [{"role": "user", "content": "x"},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "c", "content": "r"}]});
        assert_eq!(running.client.post("/v1/chat/completions", &body).await.status, 200);
        let sent: Value = provider.last().json();
        assert_eq!(sent["messages"][1]["tool_calls"][0]["function"], json!({"name": "f", "arguments": "{}"}));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_truncated_tool_call_in_the_history_is_no_provider_failure() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "x"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function",
            "function": {"name": "f", "arguments": "{\"a\": 1"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "r"}]});
    for _ in 0..12 {
        provider.then(json_answer(500, &json!({"error": {"message": "Internal Server Error"}})));
        let answer = running.client.post("/v1/chat/completions", &body).await;
        let error = answer.json()["error"].clone();
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert_eq!(error["param"], "messages[1].tool_calls[0].function.arguments");
    }
    assert_eq!(provider.calls(), 12, "no second attempts");
    assert_eq!(running.chat().await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_object_with_status_200_that_blames_the_request_is_a_client_error() {
    use crate::harness::script::{ScriptStep, event, role, sse};
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    let error = json!({"error": {"message": "temperature must be between 0 and 1",
        "type": "BadRequestError", "code": 400}});
    for _ in 0..8 {
        provider.then(json_answer(200, &error));
        let answer = running.chat().await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert!(answer.text().contains("temperature must be between 0 and 1"), "{}", answer.text());
        let mut ask = running.ask();
        ask["stream"] = json!(true);
        for script in
            [vec![sse(), event(&error), ScriptStep::End], vec![sse(), role(), event(&error), ScriptStep::End]]
        {
            provider.then(script);
            let answer = running.client.post("/v1/chat/completions", &ask).await;
            assert!(answer.text().contains("temperature must be between 0 and 1"), "{}", answer.text());
        }
    }
    assert_eq!(running.chat().await.status, 200, "the provider is not ejected");
    let overloaded = json!({"error": {"message": "overloaded", "code": 503}});
    provider.then(json_answer(200, &overloaded)).then(json_answer(200, &overloaded));
    assert_eq!(running.chat().await.status, 503);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_name_of_a_tool_is_charged_and_blames_no_provider() {
    use crate::harness::script::{ScriptStep, delta, done, event, finish, role, sse, text, usage};
    let (first, second) = (Provider::start().await, Provider::start().await);
    let call = json!({"tool_calls": [{"index": 0, "id": "c", "type": "function",
        "function": {"name": "", "arguments": "{}"}}]});
    let script = vec![
        sse(),
        role(),
        text("Some delivered text"),
        event(&delta(call, None)),
        finish("tool_calls"),
        usage(11, 5),
        done(),
        ScriptStep::End,
    ];
    first.always(script.clone());
    second.always(script);
    let running = Bench::new().provider("a", &first).provider("b", &second).start().await;
    let mut ask = running.ask();
    ask["stream"] = json!(true);
    ask["tools"] = json!([{"type": "function", "function": {"name": "f"}}]);
    for _ in 0..8 {
        let answer = running.client.post("/v1/chat/completions", &ask).await;
        assert!(answer.text().contains("Some delivered text"), "{}", answer.text());
    }
    assert_eq!(first.calls() + second.calls(), 8, "one provider is asked for each request");
    let is_charged = || async {
        let usage = running.admin().get("/admin/usage").await.json();
        usage["total"]["credits"].as_f64().unwrap_or_default() > 0.0
    };
    crate::harness::until_answered("the charges", is_charged).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_constraint_that_no_offer_takes_is_refused_by_name_while_one_is_down() {
    let (down, good) = (Provider::start().await, Provider::start().await);
    let listed = "supported_parameters = [\"temperature\", \"stream\", \"min_tokens\"]";
    let unlisted = "supported_parameters = [\"temperature\", \"stream\"]";
    for (lines, status) in [(unlisted, 400), (listed, 503)] {
        let running = Bench::new()
            .provider_with("a", &down, "", lines)
            .provider_with("b", &good, "", unlisted)
            .start()
            .await;
        // Sends enough failing requests to eject the offer.
        for _ in 0..20 {
            down.then(json_answer(500, &json!({"error": "broken"})));
            running.chat().await;
        }
        let before = good.calls();
        let mut ask = running.ask();
        ask["min_tokens"] = json!(2);
        down.always(json_answer(500, &json!({"error": "broken"})));
        let answer = running.client.post("/v1/chat/completions", &ask).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        if status == 400 {
            assert_eq!(answer.json()["error"]["param"], "min_tokens");
        }
        assert_eq!(good.calls(), before, "it cannot serve the constraint");
    }
}
