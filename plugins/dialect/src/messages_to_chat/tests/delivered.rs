//! Tests of the part of an answer that a messages client has received, at every split of the stream.

use super::admitted_request;
use crate::{find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;
use serde_json::{Value, json};

/// Number of escaped quotes in the tool arguments of these tests. The arguments are incomplete.
const QUOTES: usize = 150;

fn arguments() -> String {
    format!("{{\"a\":\"{}{}", "\\\"".repeat(QUOTES), "x".repeat(700))
}

/// Returns the usage of the delivered part of a provider's stream, and the output; asserts that both are the same at
/// every split.
fn delivered_usage(provider: Dialect, stream: &str) -> (DeliveredUsage, String) {
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(provider, &abilities);
    let ask = admitted_request(
        Dialect::Messages,
        br#"{"model":"m","max_tokens":9000,"messages":[],"stream":true}"#,
    );
    let pair = find_translator(Dialect::Messages, provider).unwrap();
    let run = |cut: usize| {
        let mut reply = pair.translate_stream(&ask, &target);
        let (bytes, mut out) = (Bytes::from(stream.to_owned()), OutputBuffer::default());
        reply.push(bytes.slice(..cut), &mut out).unwrap();
        reply.push(bytes.slice(cut..), &mut out).unwrap();
        (reply.delivered_usage(), String::from_utf8(out.0.concat()).unwrap())
    };
    let whole = run(stream.len());
    for cut in 0..stream.len() {
        assert_eq!(run(cut), whole, "cut at {cut}");
    }
    whole
}

#[test]
fn arguments_that_wait_do_not_hide_the_text_before_them() {
    let chunk = |delta: Value| format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta}]}));
    let call = |index: u32, arguments: &str| {
        let function = json!({"name": format!("f{index}"), "arguments": arguments});
        chunk(json!({"tool_calls": [{"index": index, "id": format!("c{index}"), "function": function}]}))
    };
    let stream = chunk(json!({"content": "Sure."})) + &call(0, "{\"b\":") + &call(1, &arguments());
    let (part, out) = delivered_usage(Dialect::Chat, &stream);
    assert!(out.contains("Sure.") && !out.contains("xxx"), "the second call waits: {out}");
    // The names of both calls count as delivered.
    let delivered = "Sure.".len() + "f0".len() + "{\"b\":".len() + "f1".len();
    assert_eq!((part.is_empty, part.bytes), (false, delivered));
}

#[test]
fn a_forwarded_block_that_waits_is_not_delivered() {
    let event = |data: Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    let start = |index: u32, block: Value| {
        event(json!({"type": "content_block_start", "index": index, "content_block": block}))
    };
    let delta = |index: u32, delta: Value| {
        event(json!({"type": "content_block_delta", "index": index, "delta": delta}))
    };
    let call = |index: u32| {
        let id = format!("toolu_{index}");
        start(index, json!({"type": "tool_use", "id": id, "name": format!("f{index}"), "input": {}}))
    };
    let fragment =
        |index: u32, json: &str| delta(index, json!({"type": "input_json_delta", "partial_json": json}));
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
        "usage": {"input_tokens": 1, "output_tokens": 1}});
    let stream = event(json!({"type": "message_start", "message": message}))
        + &call(0)
        + &fragment(0, "{\"b\":")
        + &call(1)
        + &fragment(1, &arguments());
    let (part, out) = delivered_usage(Dialect::Messages, &stream);
    assert!(!out.contains("f1") && !out.contains("xxx"), "the second call waits: {out}");
    let delivered = "f0".len() + "{\"b\":".len();
    assert_eq!((part.is_empty, part.bytes), (false, delivered));
}
