//! Members that a translation to another dialect adds.

use super::{CHAT, MESSAGES, calls, refusing, refusing_if, wordings};
use crate::harness::Bench;
use crate::harness::gateway::PATIENT;
use crate::harness::script::{Script, json_answer, plain};
use crate::sounds;
use crate::transcriptions::{self, form, hears};
use serde_json::{Value, json};

const RESPONSES: &str = "/v1/responses";
const PARAMETERS: &str = "supported_parameters = [\"tools\", \"reasoning_effort\", \"stream\"]";

fn answered() -> Script {
    let part = json!({"type": "output_text", "text": "Hello", "annotations": []});
    let message = json!({"type": "message", "id": "msg_1", "role": "assistant", "content": [part]});
    json_answer(
        200,
        &json!({"id": "resp_1", "object": "response", "status": "completed", "output": [message],
            "usage": {"input_tokens": 3, "output_tokens": 1}}),
    )
}

/// A request to this endpoint with these members.
fn ask(path: &str, more: &Value) -> Value {
    let mut body = match path {
        RESPONSES => json!({"model": "m", "input": "Hi"}),
        _ => json!({"model": "m", "max_tokens": 2048, "messages": [{"role": "user", "content": "Hi"}]}),
    };
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_responses_provider_is_asked_without_what_no_client_sent() {
    let thinking = json!({"thinking": {"type": "enabled", "budget_tokens": 1024}});
    let function = json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}});
    let tool = json!({"name": "f", "input_schema": {"type": "object"}});
    for (refused, mark, path, more) in [
        ("store", r#""store":"#, CHAT, json!({})),
        ("store", r#""store":"#, MESSAGES, json!({})),
        ("store", r#""store":"#, RESPONSES, json!({})),
        ("reasoning.summary", r#""summary":"#, MESSAGES, thinking.clone()),
        ("reasoning", r#""reasoning":"#, MESSAGES, thinking),
        ("reasoning.effort", r#""effort":"xhigh""#, CHAT, json!({"reasoning_effort": "xhigh"})),
        ("tools.0.strict", r#""strict":"#, CHAT, json!({"tools": [function]})),
        ("tools[0].strict", r#""strict":"#, MESSAGES, json!({"tools": [tool]})),
        ("instructions", r#""instructions":"#, MESSAGES, json!({"system": "Be brief."})),
    ] {
        for (code, body) in wordings(refused) {
            let (provider, asked) =
                refusing_if(move |asked| asked.contains(mark), code, body.clone(), answered()).await;
            let lines = format!("dialects = [\"responses\"]\n{PATIENT}");
            let running =
                Bench::new().model(PARAMETERS).provider_with("a", &provider, &lines, "").start().await;
            for count in [2, 1] {
                let answer = running.client.post(path, &ask(path, &more)).await;
                assert_eq!(answer.status, 200, "{refused} {body}: {}", answer.text());
                assert_eq!(calls(&asked), count, "{refused} {path} {body}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_effort_that_was_given_in_another_form_is_left_out() {
    let derived = json!({"thinking": {"type": "enabled", "budget_tokens": 1024}});
    let own = json!({"reasoning_effort": "high"});
    for (code, body) in wordings("reasoning_effort") {
        let (provider, asked) = refusing("reasoning_effort", code, body.clone(), plain("Hello")).await;
        let running = Bench::new().model(PARAMETERS).provider("a", &provider).start().await;
        for count in [2, 1] {
            let answer = running.client.post(CHAT, &ask(CHAT, &derived)).await;
            assert_eq!(answer.status, 200, "{body}: {}", answer.text());
            assert_eq!(calls(&asked), count, "{body}");
        }
        assert_eq!(running.client.post(CHAT, &ask(CHAT, &own)).await.status, 400, "the client's own");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transcription_format_that_no_client_asked_for_is_left_out() {
    let refusal =
        json!({"error": {"message": "Unsupported response format", "type": "invalid_request_error"}});
    for mark in ["verbose_json", "response_format"] {
        let good = json_answer(200, &json!({"text": "Guten Tag."}));
        let (provider, asked) = refusing(mark, 400, refusal.clone(), good).await;
        let running = hears(&[("a", &provider, "")]).start().await;
        let wav = sounds::wav(2000);
        let parts: [transcriptions::Part<'_>; 2] = [("file", true, &wav), ("model", false, b"w")];
        for count in [2, 1] {
            let form = form(&parts);
            let answer =
                running.client.send("POST", transcriptions::PATH, &[transcriptions::TYPE], &form).await;
            assert_eq!(answer.status, 200, "{mark}: {}", answer.text());
            assert!(answer.text().contains("Guten Tag."), "{mark}");
            assert_eq!(calls(&asked), count, "{mark}");
        }
    }
}
