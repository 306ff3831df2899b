//! Tests of answers in the other form than the client requested: a stream for a plain request, and a whole message for
//! a request of a stream. Blocks and members that only messages have must survive.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::TRANSLATOR;
use super::collected_message::collect_message;
use crate::test_support;
use bytes::Bytes;
use penstock_core::*;
use serde_json::{Value, json};

fn request(thinking: ThinkingDisplay) -> InferenceRequest {
    let body = json!({"model": "m", "max_tokens": 900, "messages": [{"role": "user", "content": "Hi"}]});
    InferenceRequest {
        thinking,
        ..test_support::sample_request(Dialect::Messages, body.to_string().as_bytes())
    }
}

/// Returns the blocks of an answer, each with the start and the deltas that it has in a stream.
fn blocks() -> Vec<(Value, Value, Vec<Value>)> {
    let citations = [json!({"type": "char_location", "cited_text": "a"}), json!({"type": "web", "url": "b"})];
    let input = json!({"query": "r\u{e9}\"\n"});
    let fragments = ["{\"query\": \"r\\u00e9", "\\\"\\n\"}"];
    let input_delta = |text: &str| json!({"type": "input_json_delta", "partial_json": text});
    let redacted = json!({"type": "redacted_thinking", "data": "sealed=="});
    let found = json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [
        {"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": "e"}]});
    let call = |kind: &str, id: &str, input: Value| json!({"type": kind, "id": id, "name": "web_search", "input": input});
    vec![
        (
            json!({"type": "thinking", "thinking": "I think.", "signature": "seal"}),
            json!({"type": "thinking", "thinking": "", "signature": ""}),
            vec![
                json!({"type": "thinking_delta", "thinking": "I th"}),
                json!({"type": "thinking_delta", "thinking": "ink."}),
                json!({"type": "signature_delta", "signature": "seal"}),
            ],
        ),
        (redacted.clone(), redacted, Vec::new()),
        (
            call("server_tool_use", "srvtoolu_1", input.clone()),
            call("server_tool_use", "srvtoolu_1", json!({})),
            fragments.map(input_delta).to_vec(),
        ),
        (found.clone(), found, Vec::new()),
        (
            json!({"type": "text", "text": "It\u{1F600} is.", "citations": citations}),
            json!({"type": "text", "text": "", "citations": []}),
            vec![
                json!({"type": "text_delta", "text": "It\u{1F600}"}),
                json!({"type": "citations_delta", "citation": citations[0]}),
                json!({"type": "text_delta", "text": " is."}),
                json!({"type": "citations_delta", "citation": citations[1]}),
            ],
        ),
        (
            call("tool_use", "toolu_1", input),
            call("tool_use", "toolu_1", json!({})),
            fragments.map(input_delta).to_vec(),
        ),
    ]
}

fn usage(output: u64) -> Value {
    json!({"input_tokens": 9, "output_tokens": output, "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0, "server_tool_use": {"web_search_requests": 1}})
}

fn message(content: &Value, stop_reason: &Value, output: u64) -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "engine/model", "content": content,
        "stop_reason": stop_reason, "stop_sequence": null, "container": {"id": "c"}, "usage": usage(output)})
}

/// Returns the answer as a whole message, and as a stream. A turn that pauses has no call for the client.
fn answer(stop_reason: &str) -> (Value, String) {
    let has_call = stop_reason != "pause_turn";
    let blocks = || blocks().into_iter().filter(move |(whole, _, _)| has_call || whole["type"] != "tool_use");
    let whole: Vec<Value> = blocks().map(|(whole, _, _)| whole).collect();
    let mut events = vec![json!({"type": "message_start", "message": message(&json!([]), &Value::Null, 1)})];
    for (index, (_, start, deltas)) in blocks().enumerate() {
        events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        events.extend(
            deltas
                .into_iter()
                .map(|delta| json!({"type": "content_block_delta", "index": index, "delta": delta})),
        );
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events.push(json!({"type": "message_delta", "usage": usage(90),
        "delta": {"stop_reason": stop_reason, "stop_sequence": null}}));
    events.push(json!({"type": "message_stop"}));
    let event = |data: &Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    (message(&json!(whole), &json!(stop_reason), 90), events.iter().map(event).collect())
}

/// Returns the message with the identity that the gateway gives it.
fn expected(mut message: Value) -> Value {
    message["model"] = json!("org/model");
    message
}

#[test]
fn a_stream_for_a_plain_request_becomes_its_message() {
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(Dialect::Messages, &abilities);
    for reason in ["pause_turn", "tool_use", "max_tokens"] {
        let (whole, stream) = answer(reason);
        let plain = |body: String| {
            let ask = request(ThinkingDisplay::Shown);
            TRANSLATOR.translate_buffered(&ask, &target, Bytes::from(body)).unwrap()
        };
        let (from_stream, from_message) = (plain(stream), plain(whole.to_string()));
        let body: Value = serde_json::from_slice(&from_stream.body.concat()).unwrap();
        assert_eq!(body["content"], whole["content"], "{reason}");
        let other: Value = serde_json::from_slice(&from_message.body.concat()).unwrap();
        assert_eq!(body, other, "{reason}");
        assert_eq!(body["stop_reason"], reason);
        assert_eq!(
            (from_stream.work, from_stream.finish_reason),
            (from_message.work, from_message.finish_reason)
        );
    }
}

#[test]
fn a_message_for_a_streaming_request_becomes_its_events() {
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(Dialect::Messages, &abilities);
    for reason in ["pause_turn", "tool_use", "max_tokens"] {
        let (whole, stream) = answer(reason);
        let run = |body: &str| {
            let ask = request(ThinkingDisplay::Shown);
            let run =
                test_support::run_all_splits(&|| TRANSLATOR.translate_stream(&ask, &target), body.as_bytes());
            assert_eq!(run.fault, None, "{reason}");
            let collected = collect_message(&Bytes::from(run.out), "4b8e").unwrap();
            let mut collected: Value = serde_json::from_slice(&collected).unwrap();
            // The objects of the gateway follow the usage of the last event.
            collected.as_object_mut().unwrap().remove("environment_impact");
            (collected, run.usage, run.finish_reason)
        };
        let (from_message, from_stream) = (run(&whole.to_string()), run(&stream));
        assert_eq!(from_message.0["content"], expected(whole.clone())["content"], "{reason}");
        assert_eq!(from_message.0["stop_reason"], reason);
        assert_eq!(from_message, from_stream, "{reason}");
    }
}

#[test]
fn thinking_that_was_not_requested_stays_hidden_in_both_forms() {
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(Dialect::Messages, &abilities);
    let (whole, stream) = answer("end_turn");
    let ask = request(ThinkingDisplay::Off);
    let body = TRANSLATOR.translate_buffered(&ask, &target, Bytes::from(stream)).unwrap().body.concat();
    let run = test_support::run_all_splits(
        &|| TRANSLATOR.translate_stream(&ask, &target),
        whole.to_string().as_bytes(),
    );
    for text in [body, run.out] {
        let text = String::from_utf8(text).unwrap();
        assert!(!text.contains("thinking") && text.contains("server_tool_use"), "{text}");
    }
}

#[test]
fn an_error_object_and_a_cut_message_fail_a_streaming_request() {
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(Dialect::Messages, &abilities);
    let (whole, _) = answer("end_turn");
    let whole = whole.to_string();
    let ask = request(ThinkingDisplay::Shown);
    for (body, fault) in [
        (r#"{"type":"error","error":{"type":"api_error","message":"x"}}"#, UpstreamErrorKind::InBandError),
        (&whole[..whole.len() / 2], UpstreamErrorKind::Truncated),
        (r#"{"a":1}"#, UpstreamErrorKind::Malformed),
    ] {
        let run =
            test_support::run_all_splits(&|| TRANSLATOR.translate_stream(&ask, &target), body.as_bytes());
        assert_eq!((run.fault, run.out.len()), (Some(fault), 0), "{body}");
    }
}

#[test]
fn a_cut_tool_input_is_closed_as_before() {
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(Dialect::Messages, &abilities);
    let (_, stream) = answer("max_tokens");
    let cut = stream.replace(r#""partial_json":"\\\"\\n\"}""#, r#""partial_json":"""#);
    assert_ne!(cut, stream);
    let ask = request(ThinkingDisplay::Shown);
    let body = TRANSLATOR.translate_buffered(&ask, &target, Bytes::from(cut)).unwrap().body.concat();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let call = body["content"].as_array().unwrap().iter().find(|block| block["type"] == "tool_use").unwrap();
    assert!(call["input"].is_object(), "{body}");
}
