//! Tests of members of a messages provider that are null or absent: plain and streamed answers have the same content.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::stream_format_tests::sample_request;
use crate::{conformance, find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;
use serde_json::{Value, json};

fn message(content: &Value, stop_reason: &Value) -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "x", "content": content,
        "stop_reason": stop_reason, "stop_sequence": null, "usage": {"input_tokens": 3, "output_tokens": 3,
            "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}})
}

/// Returns a stream that starts a message with this content and then sends the block.
fn stream(content: &Value, block: &Value, stop_reason: &str) -> String {
    let event = |data: Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    let mut message = message(content, &Value::Null);
    if *content == "absent" {
        message.as_object_mut().unwrap().remove("content");
    }
    [
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": stop_reason, "stop_sequence": null},
            "usage": {"output_tokens": 3}}),
        json!({"type": "message_stop"}),
    ]
    .map(event)
    .concat()
}

fn request(client: Dialect, stream: bool) -> InferenceRequest {
    InferenceRequest { thinking: ThinkingDisplay::Shown, ..sample_request(client, stream) }
}

/// Translates a stream at every split and returns the output, which must be a successful stream of the dialect.
fn translate_stream(client: Dialect, stream: &str) -> String {
    let (ask, abilities) = (request(client, true), OfferCapabilities::default());
    let target = test_support::sample_target(Dialect::Messages, &abilities);
    let pair = find_translator(client, Dialect::Messages).unwrap();
    let run = test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), stream.as_bytes());
    let out = String::from_utf8(run.out).unwrap();
    assert_eq!(run.fault, None, "{client:?}: {stream}");
    assert_eq!(conformance::check_stream(client, out.as_bytes(), false), Ok(()), "{client:?}: {out}");
    out
}

fn translate_plain(client: Dialect, block: &Value, stop_reason: &str) -> Value {
    let (ask, abilities) = (request(client, false), OfferCapabilities::default());
    let target = test_support::sample_target(Dialect::Messages, &abilities);
    let pair = find_translator(client, Dialect::Messages).unwrap();
    let body = message(&json!([block]), &json!(stop_reason)).to_string();
    let answer = pair.translate_buffered(&ask, &target, Bytes::from(body)).unwrap();
    serde_json::from_slice(&answer.body.concat()).unwrap()
}

#[test]
fn missing_members_of_blocks_become_empty() {
    let call = json!({"type": "tool_use", "id": "call_1", "name": "f"});
    for (block, name, empty, reason) in [
        (json!({"type": "text"}), "text", json!(""), "end_turn"),
        (json!({"type": "thinking"}), "thinking", json!(""), "end_turn"),
        (json!({"type": "redacted_thinking"}), "data", json!(""), "end_turn"),
        (call, "input", json!({}), "tool_use"),
    ] {
        let mut with_null = block.clone();
        with_null[name] = Value::Null;
        for block in [block, with_null] {
            let answer = translate_plain(Dialect::Messages, &block, reason);
            assert_eq!(answer["content"][0][name], empty, "{answer}");
            let out = translate_stream(Dialect::Messages, &stream(&json!([]), &block, reason));
            let start = out.lines().find(|line| line.contains(r#""content_block":"#)).unwrap();
            let start: Value = serde_json::from_str(start.strip_prefix("data: ").unwrap()).unwrap();
            assert_eq!(start["content_block"][name], empty, "{out}");
            for client in [Dialect::Chat, Dialect::Responses] {
                translate_plain(client, &block, reason);
                translate_stream(client, &stream(&json!([]), &block, reason));
            }
        }
    }
}

#[test]
fn a_message_that_starts_without_content_starts_with_an_empty_list() {
    let block = json!({"type": "text", "text": "Hi"});
    for content in [Value::Null, json!("absent"), json!({})] {
        for client in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
            let out = translate_stream(client, &stream(&content, &block, "end_turn"));
            assert!(out.contains("Hi"), "{client:?}: {out}");
        }
    }
}

/// Returns the message without a member; without any member for the name `all`.
fn without(message: &Value, name: &str) -> Value {
    let mut message = message.clone();
    let members = message.as_object_mut().unwrap();
    members.remove(name);
    if name == "all" {
        members.clear();
    }
    message
}

#[test]
fn messages_have_all_members_that_clients_require() {
    let content = json!([{"type": "text", "text": "Hi"}]);
    let whole = message(&content, &json!("end_turn"));
    let first = message(&json!([]), &Value::Null);
    let required = ["id", "type", "role", "model", "stop_reason", "stop_sequence", "content", "usage"];
    let body = stream(&json!([]), &content[0], "end_turn");
    for name in required.into_iter().chain(["all"]) {
        for is_null in [false, true] {
            let change = |message: &Value| match is_null {
                true if name != "all" => {
                    let mut message = message.clone();
                    message[name] = Value::Null;
                    message
                }
                _ => without(message, name),
            };
            let stream = body.replace(&first.to_string(), &change(&first).to_string());
            assert_ne!((stream.len() == body.len(), is_null), (true, false), "{name}");
            for client in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
                let out = translate_stream(client, &stream);
                if client != Dialect::Messages {
                    continue;
                }
                let start = out.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
                let start: Value = serde_json::from_str(start).unwrap();
                let message = start["message"].as_object().unwrap();
                assert!(required.iter().all(|name| message.contains_key(*name)), "{name}: {out}");
                assert!(message["id"].is_string() && message["usage"].is_object(), "{name}: {out}");
                let head = json!([message["type"], message["role"], message["model"], message["content"]]);
                assert_eq!(head, json!(["message", "assistant", "org/model", []]), "{name}: {out}");
            }
            if ["content", "stop_reason", "all"].contains(&name) {
                continue;
            }
            for client in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
                let (ask, abilities) = (request(client, false), OfferCapabilities::default());
                let target = test_support::sample_target(Dialect::Messages, &abilities);
                let pair = find_translator(client, Dialect::Messages).unwrap();
                let plain = Bytes::from(change(&whole).to_string());
                let answer = pair.translate_buffered(&ask, &target, plain).unwrap();
                let message: Value = serde_json::from_slice(&answer.body.concat()).unwrap();
                if client == Dialect::Messages {
                    let message = message.as_object().unwrap();
                    assert!(required.iter().all(|name| message.contains_key(*name)), "{name}: {message:?}");
                    assert!(message["id"].is_string() && message["usage"].is_object(), "{name}: {message:?}");
                    let head = json!([message["type"], message["role"], message["model"]]);
                    assert_eq!(head, json!(["message", "assistant", "org/model"]), "{name}: {message:?}");
                }
            }
        }
    }
    let absent =
        body.replace(&format!(r#""message":{first},"#), "").replace(&format!(r#","message":{first}"#), "");
    assert_ne!(absent, body);
    for client in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
        translate_stream(client, &absent);
    }
}
