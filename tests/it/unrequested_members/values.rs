//! Values and combinations of members that a provider refuses: the refusal of one request says nothing about others.

use super::{CHAT, calls, chat, refusing_if};
use crate::harness::Bench;
use crate::harness::gateway::PATIENT;
use crate::harness::script::{json_answer, plain};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_value_of_the_cap_does_not_change_its_name() {
    for message in
        ["max_tokens参数非法。请检查文档。", "max_tokens is out of range", "'max_tokens' is too big"]
    {
        let body = json!({"error": {"code": "1214", "message": message}});
        let (provider, asked) =
            refusing_if(|asked| asked.contains("\"max_tokens\":20000"), 400, body, plain("Hello")).await;
        let running = Bench::new().provider("a", &provider).start().await;
        let mut ask = running.ask();
        for (cap, status) in [(20_000, 400), (5, 200)] {
            ask["max_tokens"] = json!(cap);
            assert_eq!(chat(&running, &ask).await.status, status, "{message}");
            let sent = asked.lock().clone();
            assert!(sent.iter().all(|body| !body.contains("max_completion_tokens")), "{message}: {sent:?}");
            assert!(calls(&asked) >= 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_combination_leaves_the_member_in_other_requests() {
    let message = "Thinking may not be enabled when tool_choice forces tool use.";
    let body = json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
    let good = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [{"type": "text", "text": "Hello"}], "stop_reason": "end_turn", "stop_sequence": null,
        "usage": {"input_tokens": 3, "output_tokens": 1}});
    let is_refused = |asked: &str| asked.contains("\"thinking\"") && asked.contains("\"any\"");
    let (provider, asked) = refusing_if(is_refused, 400, body, json_answer(200, &good)).await;
    let lines = format!("dialects = [\"messages\"]\n{PATIENT}");
    let parameters = "supported_parameters = [\"tools\", \"tool_choice\", \"reasoning_effort\", \"stream\"]";
    let running = Bench::new().model(parameters).provider_with("a", &provider, &lines, "").start().await;
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}});
    let effort = json!({"model": "m", "max_tokens": 50, "reasoning_effort": "high",
        "messages": [{"role": "user", "content": "Hi"}]});
    let mut forced = effort.clone();
    forced["tools"] = json!([tool]);
    forced["tool_choice"] = json!("required");
    for (ask, thinks, count) in [(&forced, false, 2), (&effort, true, 1), (&forced, false, 2)] {
        let answer = running.client.post(CHAT, ask).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let last: Value = serde_json::from_str(asked.lock().last().unwrap()).unwrap();
        assert_eq!(last.get("thinking").is_some(), thinks, "{last}");
        assert_eq!(calls(&asked), count);
    }
}
