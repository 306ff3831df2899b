//! Members that would move state to the server: refused by name, and what the provider receives is the whole history.

use crate::harness::{Bench, Provider};
use serde_json::{Value, json};

/// Turns as the current client libraries send them: the thread's first request, and the same without the thread.
fn turn(thread: Option<Value>) -> Value {
    let mut body = json!({"model": "m", "max_tokens": 100, "system": "Be brief.",
        "tools": [{"name": "look", "input_schema": {"type": "object"}}],
        "messages": [{"role": "user", "content": "Look."},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "Rain."}]}]});
    if let Some(thread) = thread {
        body["thread"] = thread;
    }
    body
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_is_refused_and_the_whole_history_reaches_the_provider() {
    let provider = Provider::start().await;
    let running =
        Bench::new().model(r#"supported_parameters = ["tools"]"#).provider("a", &provider).start().await;
    for path in ["/v1/messages?beta=true", "/v1/messages/count_tokens"] {
        for thread in [json!({"type": "create"}), json!({"type": "continue", "previous_message_id": "msg_1"})]
        {
            let answer = running.client.post(path, &turn(Some(thread))).await;
            let error = answer.json()["error"].clone();
            assert_eq!(answer.status, 400, "{}", answer.text());
            assert_eq!(error["type"], "invalid_request_error");
            assert_eq!(error["details"]["error_code"], "thread_unsupported_request");
            assert_eq!(error["details"]["unsupported"], json!(["thread"]));
            assert_eq!(error["details"]["code"], "INFERENCE_3202");
            assert_eq!(error["code"], "INFERENCE_3202");
        }
    }
    assert_eq!(provider.calls(), 0);
    for thread in [None, Some(Value::Null)] {
        let answer = running.client.post("/v1/messages", &turn(thread)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let sent = provider.last().json();
        assert_eq!(sent.get("thread"), None);
        let roles: Vec<_> = sent["messages"].as_array().unwrap().iter().map(|turn| &turn["role"]).collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool"]);
        assert_eq!(sent["tools"][0]["function"]["name"], "look");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_state_of_a_server_is_refused_by_name_and_reaches_no_provider() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    for (path, member, value) in [
        ("/v1/chat/completions", "previous_response_id", json!("resp_1")),
        ("/v1/chat/completions", "conversation", json!("conv_1")),
        ("/v1/chat/completions", "prompt", json!({"id": "pmpt_1"})),
        ("/v1/chat/completions", "background", json!(true)),
        ("/v1/chat/completions", "web_search_options", json!({})),
        ("/v1/messages", "container", json!("c")),
        ("/v1/messages", "compaction", json!({"type": "summarize"})),
        ("/v1/messages", "mcp_servers", json!([{"type": "url", "url": "https://a", "name": "a"}])),
        ("/v1/messages", "context_management", json!({"edits": [{"type": "compact_20260112"}]})),
    ] {
        let mut body =
            json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]});
        body[member] = value;
        let answer = running.client.post(path, &body).await;
        let error = answer.json()["error"].clone();
        let param = error["param"].as_str().or(error["details"]["param"].as_str());
        assert_eq!((answer.status, error["code"].as_str()), (400, Some("INFERENCE_3202")), "{member}");
        assert!(param.is_some_and(|param| param.starts_with(member)), "{error}");
    }
    assert_eq!(provider.calls(), 0);
}
