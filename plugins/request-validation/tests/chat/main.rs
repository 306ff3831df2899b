//! Tests of the chat dialect: accepted, edited and refused requests.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod changed;
mod refused;
#[path = "../support/mod.rs"]
mod support;

use changed::canonical;
use penstock_core::{Dialect, HistoryFeatures, InferenceRequest, ModelKind};
use serde_json::json;
use support::ask_chat;

/// Request with these members in addition to the required ones.
fn with(members: &str) -> String {
    format!(r#"{{"model":"m","messages":[{{"role":"user","content":"hi"}}],{members}}}"#)
}

fn conversation(messages: &str) -> String {
    format!(r#"{{"model":"m","messages":[{messages}]}}"#)
}

fn taken(body: &str) -> InferenceRequest {
    ask_chat(body).unwrap_or_else(|refusal| panic!("{body}: {}", refusal.message))
}

const CALL: &str = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]}"#;

#[test]
fn every_member_that_the_gateway_needs_is_read() {
    let body = with(
        r#""max_tokens":5,"max_completion_tokens":7,"temperature":0.5,"top_p":1,"top_k":-1,"seed":-3,"n":2,"stream":true,
        "stream_options":{"include_usage":true,"include_obfuscation":false},"stop":["a\n","b"],"preset":"reasoning",
        "parallel_tool_calls":false,"logit_bias":{"5":-100},"response_format":{"type":"json_object"},"foo":[1]"#,
    );
    let ask = taken(&body);
    assert_eq!((ask.dialect, ask.kind, &*ask.model, ask.n), (Dialect::Chat, ModelKind::Chat, "m", 2));
    assert_eq!(
        (ask.max_tokens, ask.stream, ask.include_usage, ask.parallel_tools),
        (Some(7), true, true, false)
    );
    assert_eq!(ask.stop, ["a\n", "b"]);
    assert_eq!(ask.preset.as_deref(), Some("reasoning"));
    assert!(
        ask.required.multiple_choices
            && ask.required.logit_bias
            && !ask.required.logprobs
            && ask.required.json_object
    );
    assert!(!ask.required.tools && !ask.required.json_schema && !ask.required.prefill);
    assert_eq!(ask.member_value("foo"), Some(b"[1]".as_slice()));
    assert_eq!(&ask.body, &body);
    let seed = ask.members.get("seed").unwrap();
    assert_eq!(&ask.body[seed.member_range.clone()], b"\"seed\":-3");
    assert!(ask.edits.is_empty());
}

#[test]
fn null_is_absent_for_every_optional_field() {
    let names = [
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "top_k",
        "stream",
        "stop",
        "seed",
        "n",
        "tools",
        "tool_choice",
        "response_format",
        "reasoning_effort",
        "preset",
        "stream_options",
        "parallel_tool_calls",
        "audio",
        "modalities",
        "web_search_options",
        "logprobs",
        "top_logprobs",
        "logit_bias",
        "frequency_penalty",
        "presence_penalty",
        "min_p",
        "repetition_penalty",
        "functions",
        "function_call",
        "user",
        "metadata",
    ];
    let nulls: Vec<String> = names.iter().map(|name| format!("\"{name}\":null")).collect();
    let ask = taken(&with(&nulls.join(",")));
    assert_eq!((ask.max_tokens, ask.n, ask.stream, ask.parallel_tools), (None, 1, false, true));
    assert_eq!(ask.required, penstock_core::RequiredCapabilities::default());
}

#[test]
fn parameters_that_some_providers_reject_are_detected() {
    let history = |messages: &str| taken(&conversation(messages)).history;
    let user = r#"{"role":"user","content":"\"reasoning\" \"tool_call_id\" \"system\""}"#;
    let system = r#"{"role":"system","content":"s"}"#;
    assert_eq!(history(&format!("{system},{user}")), HistoryFeatures::default());
    for role in ["system", "developer", r"s\u0079stem"] {
        let later = system.replace("system", role);
        assert_eq!(
            history(&format!("{user},{later}")),
            HistoryFeatures { late_system_messages: true, ..HistoryFeatures::default() }
        );
    }
    let result = r#"{"role":"tool","tool_call_id":"c1","content":"r"}"#;
    let called = HistoryFeatures { calls: true, ..HistoryFeatures::default() };
    assert_eq!(history(&format!("{user},{CALL},{result}")), HistoryFeatures { results: true, ..called });
    for name in ["reasoning", "reasoning_content"] {
        let thought = format!(r#"{user},{{"role":"assistant","content":"a","{name}":"t"}},{user}"#);
        assert_eq!(history(&thought), HistoryFeatures { reasoning: true, ..HistoryFeatures::default() });
    }
}

#[test]
fn a_prefill_has_to_be_marked_as_one() {
    let last = r#"{"role":"user","content":"a"},{"role":"assistant","content":"b"}"#;
    assert!(!taken(&conversation(last)).required.prefill);
    let marked = last.replace(r#""b""#, r#""b","prefix":true"#);
    assert!(taken(&conversation(&marked)).required.prefill);
    assert_eq!(canonical(&marked)[1], json!({"role": "assistant", "content": "b"}));
    let continued = format!(r#"{{"model":"m","continue_final_message":true,"messages":[{last}]}}"#);
    assert!(taken(&continued).required.prefill);
}

#[test]
fn inline_media_is_no_prompt_text() {
    let media = "A".repeat(40_000);
    let body = conversation(&format!(
        r#"{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"data:image/webp;base64,{media}"}}}},
        {{"type":"input_audio","input_audio":{{"data":"{media}","format":"wav"}}}},
        {{"type":"file","file":{{"filename":"a.pdf","file_data":"data:application/pdf;base64,{media}"}}}},{{"type":"text","text":"{}"}}]}}"#,
        "x".repeat(1000)
    ));
    let ask = taken(&body);
    assert!(ask.prompt_bytes > 1000 && ask.prompt_bytes < 1500, "{}", ask.prompt_bytes);
    assert!(ask.required.images && ask.required.audio && ask.required.files && !ask.required.image_urls);
    assert_eq!(ask.image_count, 1);
}
