//! Request members that the gateway added and unrequested response forms: if a provider rejects them, the client gets
//! no error.

mod body_formats;
mod other_kinds;
mod translated;
mod values;

use crate::harness::gateway::{PATIENT, Running};
use crate::harness::provider::RecordedRequest;
use crate::harness::script::{
    Script, ScriptStep, completion, done, finish, json_answer, plain, role, sse, stream, text,
};
use crate::harness::{Answer, Bench, Provider};
use crate::sounds;
use crate::transcriptions::{self, form, hears};
use parking_lot::Mutex;
use penstock_dialect::conformance;
use serde_json::{Value, json};
use std::sync::Arc;

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";

/// Requests to a provider, in order.
type RecordedRequests = Arc<Mutex<Vec<String>>>;

/// Starts a provider that refuses requests whose body contains the text `member`, with this status and error body.
async fn refusing(
    member: &'static str,
    code: u16,
    body: Value,
    good: Script,
) -> (Provider, RecordedRequests) {
    refusing_if(move |asked| asked.contains(member), code, body, good).await
}

async fn refusing_if(
    is_refused: impl Fn(&str) -> bool + Send + Sync + 'static,
    code: u16,
    body: Value,
    good: Script,
) -> (Provider, RecordedRequests) {
    let asked = RecordedRequests::default();
    let recorded = asked.clone();
    let pick = move |seen: &RecordedRequest| {
        let text = String::from_utf8_lossy(&seen.body).into_owned();
        let refused = is_refused(&text);
        recorded.lock().push(text);
        if refused { json_answer(code, &body) } else { good.clone() }
    };
    (Provider::with_selector(Box::new(pick)).await, asked)
}

/// Number of requests since the last call.
fn calls(asked: &RecordedRequests) -> usize {
    std::mem::take(&mut *asked.lock()).len()
}

/// Error responses with which engines reject a member, in different wordings.
fn wordings(member: &str) -> Vec<(u16, Value)> {
    vec![
        (
            422,
            json!({"detail": [{"type": "extra_forbidden", "loc": ["body", member], "msg": "Extra inputs are not permitted", "input": {}}]}),
        ),
        (
            400,
            json!({"object": "error", "message": format!("[{{'type': 'extra_forbidden', 'loc': ('body', '{member}'), 'msg': 'Extra inputs are not permitted'}}]"), "type": "BadRequestError", "code": 400}),
        ),
        (
            400,
            json!({"error": {"message": format!("Unknown parameter: '{member}'."), "type": "invalid_request_error", "param": member, "code": "unknown_parameter"}}),
        ),
        (
            400,
            json!({"error": {"code": 400, "message": format!("Unsupported param: {member}"), "type": "invalid_request_error"}}),
        ),
        (
            422,
            json!({"error": format!("Failed to deserialize the JSON body into the target type: unknown field `{member}`"), "error_type": "validation"}),
        ),
        (422, json!({"message": format!("{member}: unexpected keyword")})),
        (
            422,
            json!({"object": "error", "type": "invalid_request_error", "message": {"detail": [{"type": "extra_forbidden", "loc": ["body", member], "msg": "Extra inputs are not permitted"}]}}),
        ),
    ]
}

/// A stream without usage.
fn bare() -> Script {
    vec![sse(), role(), text("Hel"), text("lo"), finish("stop"), done(), ScriptStep::End]
}

async fn chat(running: &Running, ask: &Value) -> Answer {
    running.client.post(CHAT, ask).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_refuses_stream_options_streams_and_is_counted() {
    for (code, body) in wordings("stream_options") {
        let (provider, asked) = refusing("stream_options", code, body.clone(), bare()).await;
        let bench = || Bench::new().provider("a", &provider);
        let running = bench().start().await;
        let mut ask = running.ask_stream();
        for (path, count) in [(CHAT, 2), (CHAT, 1), (MESSAGES, 1)] {
            ask["max_tokens"] = json!(50);
            let answer = running.client.post(path, &ask).await;
            assert_eq!(answer.status, 200, "{body}: {}", answer.text());
            match path {
                MESSAGES => conformance::check_messages_stream(&answer.body).unwrap(),
                _ => conformance::check_chat_stream(&answer.body, false).unwrap(),
            }
            assert!(answer.text().contains("gateway"), "the count is marked: {}", answer.text());
            assert_eq!(calls(&asked), count, "{body}");
        }
        ask["stream_options"] = json!({"include_usage": true});
        let answer = chat(&running, &ask).await;
        conformance::check_chat_stream(&answer.body, true).unwrap();
        assert_eq!(calls(&asked), 1);
        running.reload(bench().load(running.storage())).await;
        assert_eq!(running.client.post(MESSAGES, &ask).await.status, 200);
        assert_eq!(calls(&asked), 2, "a reload forgets");
        let providers = running.admin().get("/admin/providers").await.text();
        assert!(!providers.contains("ejected"), "{providers}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_without_a_name_is_tried_once_without_the_added_members() {
    for (code, body) in [
        (422, json!({"detail": "Extra inputs are not permitted"})),
        (400, json!({"error": {"message": "Request contains unknown fields"}})),
    ] {
        let (provider, asked) = refusing("stream_options", code, body.clone(), bare()).await;
        let running = Bench::new().provider("a", &provider).start().await;
        for count in [2, 1] {
            let answer = chat(&running, &running.ask_stream()).await;
            assert_eq!(answer.status, 200, "{body}: {}", answer.text());
            assert_eq!(calls(&asked), count, "{body}");
        }
        // If the provider also refuses the request without the added members, the client gets the refusal, and the
        // gateway records no refused member.
        let (provider, asked) = refusing("model", code, body.clone(), bare()).await;
        let running = Bench::new().provider("a", &provider).start().await;
        for _ in 0..2 {
            assert_eq!(chat(&running, &running.ask_stream()).await.status, 400, "{body}");
            assert_eq!(calls(&asked), 2, "{body}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_without_a_name_teaches_only_the_member_whose_omission_helped() {
    let nameless = json!({"detail": "Extra inputs are not permitted"});
    // The thinking switch and `strict` change the answer, so the gateway does not leave them out.
    let (provider, asked) = refusing("stream_options", 422, nameless.clone(), bare()).await;
    let running = Bench::new()
        .model("supported_parameters = [\"response_format\", \"reasoning_effort\", \"stream\"]")
        .provider_with("a", &provider, PATIENT, "thinking_switch = true")
        .start()
        .await;
    let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let mut ask = running.ask_stream();
    ask["max_tokens"] = json!(50);
    ask["thinking"] = json!({"type": "disabled"});
    ask["output_config"] = json!({"format": {"type": "json_schema", "schema": schema}});
    for count in [2, 1] {
        let answer = running.client.post(MESSAGES, &ask).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let sent = asked.lock().last().unwrap().clone();
        assert!(sent.contains(r#""enable_thinking":false"#) && sent.contains("\"strict\":"), "{sent}");
        assert!(!sent.contains("stream_options"), "{sent}");
        assert_eq!(calls(&asked), count);
    }
    // Members whose omission did not help are sent again in later requests.
    let (provider, asked) = refusing("\"seed\"", 422, nameless, bare()).await;
    let presets = "presets = { reasoning = { seed = 7 } }";
    let running = Bench::new().model(presets).provider("a", &provider).start().await;
    let mut ask = running.ask_stream();
    ask["preset"] = json!("reasoning");
    for count in [3, 1] {
        let answer = chat(&running, &ask).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(asked.lock().last().unwrap().contains("stream_options"), count == 1);
        assert_eq!(calls(&asked), count);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_of_a_member_that_the_gateway_never_adds_is_not_repeated() {
    for body in [
        json!({"detail": [{"type": "extra_forbidden", "loc": ["body", "chat_template"], "msg": "Extra inputs are not permitted"}]}),
        json!({"error": {"message": "Unknown parameter: 'foo'"}}),
    ] {
        let (provider, asked) = refusing("model", 400, body.clone(), bare()).await;
        let running = Bench::new().provider("a", &provider).start().await;
        assert_eq!(chat(&running, &running.ask_stream()).await.status, 400, "{body}");
        assert_eq!(calls(&asked), 1, "{body}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameters_that_the_client_sent_are_its_own_fault() {
    let error_body = json!({"error": {"message": "temperature must be below 1", "param": "temperature"}});
    let (provider, asked) = refusing("temperature", 400, error_body, plain("Hello")).await;
    let presets = "presets = { reasoning = { temperature = 1.5 } }";
    let running = Bench::new().model(presets).provider("a", &provider).start().await;
    let mut ask = running.ask();
    ask["temperature"] = json!(1.5);
    let answer = chat(&running, &ask).await;
    assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!("temperature")));
    assert_eq!(calls(&asked), 1);
    // A member from a preset was added by the operator, not by the client, so it may be left out.
    let mut ask = running.ask();
    ask["preset"] = json!("reasoning");
    for count in [2, 1] {
        assert_eq!(chat(&running, &ask).await.status, 200);
        assert_eq!(calls(&asked), count);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentence_that_only_echoes_a_name_teaches_nothing() {
    let echo = json!({"error": {"message": "messages[0]: 'stream_options' is no good question", "param": "messages"}});
    let (provider, asked) = refusing("no good", 400, echo, bare()).await;
    let running = Bench::new().provider("a", &provider).start().await;
    let mut ask = running.ask_stream();
    ask["messages"][0]["content"] = json!("stream_options is no good");
    let answer = chat(&running, &ask).await;
    assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!("messages")));
    assert_eq!(calls(&asked), 1);
    assert_eq!(chat(&running, &running.ask_stream()).await.status, 200);
    assert!(asked.lock().last().unwrap().contains("stream_options"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_cap_has_the_name_that_the_engine_accepts() {
    let error_body = json!({"error": {"message": "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "type": "invalid_request_error", "param": "max_tokens", "code": "unsupported_parameter"}});
    let (provider, asked) = refusing("\"max_tokens\"", 400, error_body, plain("Hello")).await;
    let running = Bench::new().provider("a", &provider).start().await;
    let mut ask = running.ask();
    ask["max_tokens"] = json!(77);
    for count in [2, 1] {
        assert_eq!(chat(&running, &ask).await.status, 200);
        assert!(asked.lock().last().unwrap().contains("\"max_completion_tokens\":77"));
        assert_eq!(calls(&asked), count);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_made_of_a_messages_request_are_the_gateways() {
    let thinking = json!({"type": "enabled", "budget_tokens": 1024});
    let tool = json!({"name": "weather", "input_schema": {"type": "object"}});
    let parameters =
        "supported_parameters = [\"tools\", \"reasoning_effort\", \"parallel_tool_calls\", \"stream\"]";
    for (member, offer, more) in [
        ("tool_choice", "", json!({"tools": [tool]})),
        (
            "parallel_tool_calls",
            "",
            json!({"tools": [tool], "tool_choice": {"type": "auto", "disable_parallel_tool_use": true}}),
        ),
        ("reasoning_effort", "", json!({"thinking": thinking})),
        ("chat_template_kwargs", "thinking_switch = true", json!({"thinking": thinking})),
        ("stop", "", json!({"stop_sequences": ["END"]})),
    ] {
        for (code, body) in wordings(member) {
            let mark = format!("\"{member}\":");
            let (provider, asked) =
                refusing_if(move |asked| asked.contains(&mark), code, body.clone(), plain("One END two"))
                    .await;
            let running =
                Bench::new().model(parameters).provider_with("a", &provider, PATIENT, offer).start().await;
            let mut ask =
                json!({"model": "m", "max_tokens": 2048, "messages": [{"role": "user", "content": "Hi"}]});
            ask.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            for count in [2, 1] {
                let answer = running.client.post(MESSAGES, &ask).await;
                assert_eq!(answer.status, 200, "{member} {body}: {}", answer.text());
                assert_eq!(calls(&asked), count, "{member} {body}");
                if member == "stop" {
                    assert_eq!(answer.json()["content"][0]["text"], "One ", "the gateway enforces it");
                }
            }
        }
    }
}

/// Messages request whose history contains thinking blocks.
fn thoughtful() -> Value {
    json!({"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm", "signature": "s"}, {"type": "text", "text": "Ho"}]},
        {"role": "user", "content": "And?"}]})
}

/// Returns the member names under which the last request contained the reasoning.
fn names(asked: &RecordedRequests) -> Vec<&'static str> {
    let sent: Value = serde_json::from_str(asked.lock().last().unwrap()).unwrap();
    let message = &sent["messages"][1];
    ["reasoning_content", "reasoning"].into_iter().filter(|name| message[*name] == "Hm").collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replayed_reasoning_has_one_name_the_offers_own() {
    let mut thought = completion("Hello");
    thought["choices"][0]["message"]["reasoning"] = json!("Hm");
    let streamed = [
        vec![
            sse(),
            role(),
            ScriptStep::Chunk(
                b"data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning\":\"Hm\"}}]}\n\n".to_vec(),
            ),
        ],
        stream(&["Hello"]).split_off(2),
    ];
    for good in [json_answer(200, &thought), streamed.concat()] {
        let (provider, asked) = refusing("nothing at all", 400, json!({}), good).await;
        let running =
            Bench::new().provider_with("a", &provider, PATIENT, "replay_reasoning = true").start().await;
        for name in ["reasoning_content", "reasoning"] {
            assert_eq!(running.client.post(MESSAGES, &thoughtful()).await.status, 200);
            assert_eq!(names(&asked), [name], "as in its answers");
        }
        let history = json!([{"role": "user", "content": "Hi"},
            {"role": "assistant", "reasoning": "Hm", "reasoning_content": "Hm", "content": "Ho"},
            {"role": "user", "content": "And?"}]);
        assert_eq!(chat(&running, &json!({"model": "m", "messages": history})).await.status, 200);
        assert_eq!(names(&asked), ["reasoning"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reasoning_that_is_refused_by_name_goes_by_the_other_or_not_at_all() {
    for (refused, calls_then, sent) in [
        (&["reasoning_content"][..], [2, 1], &["reasoning"][..]),
        (&["reasoning_content", "reasoning"][..], [3, 1], &[]),
    ] {
        for (code, body) in wordings("reasoning_content") {
            let is_refused =
                move |asked: &str| refused.iter().any(|name| asked.contains(&format!("\"{name}\":")));
            let (provider, asked) = refusing_if(is_refused, code, body, plain("Hello")).await;
            let running =
                Bench::new().provider_with("a", &provider, PATIENT, "replay_reasoning = true").start().await;
            for count in calls_then {
                let answer = running.client.post(MESSAGES, &thoughtful()).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
                assert_eq!(names(&asked), sent);
                assert_eq!(calls(&asked), count);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_name_of_reasoning_can_be_configured() {
    for name in ["reasoning", "reasoning_content"] {
        let mut thought = completion("Hello");
        let other = if name == "reasoning" { "reasoning_content" } else { "reasoning" };
        thought["choices"][0]["message"][other] = json!("Hm");
        let (provider, asked) = refusing("nothing at all", 400, json!({}), json_answer(200, &thought)).await;
        let offer = format!("replay_reasoning = true\nreasoning_name = \"{name}\"");
        let running = Bench::new().provider_with("a", &provider, PATIENT, &offer).start().await;
        for _ in 0..2 {
            assert_eq!(running.client.post(MESSAGES, &thoughtful()).await.status, 200);
            assert_eq!(names(&asked), [name]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transcription_that_no_times_are_needed_for_is_asked_for_without() {
    let error_body = json!({"object": "error", "message": "Currently do not support verbose_json for mistralai/Voxtral-Mini-3B-2507", "type": "BadRequestError", "code": 400});
    let good = json_answer(200, &json!({"text": "Guten Tag."}));
    let (provider, asked) = refusing("verbose_json", 400, error_body, good).await;
    let running = hears(&[("a", &provider, "")]).start().await;
    let wav = sounds::wav(2000);
    let send = async |format: &str| {
        let parts: [transcriptions::Part<'_>; 3] =
            [("file", true, &wav), ("model", false, b"w"), ("response_format", false, format.as_bytes())];
        running.client.send("POST", transcriptions::PATH, &[transcriptions::TYPE], &form(&parts)).await
    };
    for (format, count) in [("json", 2), ("json", 1), ("text", 1)] {
        let answer = send(format).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(answer.text().contains("Guten Tag."));
        assert!(!asked.lock().last().unwrap().contains("timestamp_granularities"));
        assert_eq!(calls(&asked), count, "{format}");
    }
    let answer = send("srt").await;
    assert_eq!((answer.status, answer.text().matches(" --> ").count()), (200, 1), "{}", answer.text());
    transcriptions::nothing_is_left(&running).await;
}
