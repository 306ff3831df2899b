//! Tests of blocks that are interleaved or have no end, for clients of every dialect.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::stream_format_tests::sample_request;
use crate::{conformance, find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;
use serde_json::{Value, json};

const CLIENTS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];

fn named_event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())
}

fn start(index: usize, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn text(index: usize) -> Value {
    start(index, json!({"type": "text", "text": ""}))
}

fn thinking(index: usize) -> Value {
    start(index, json!({"type": "thinking", "thinking": "", "signature": ""}))
}

fn call(index: usize, name: &str, input: Value) -> Value {
    start(index, json!({"type": "tool_use", "id": format!("call_{name}"), "name": name, "input": input}))
}

fn delta(index: usize, kind: &str, name: &str, text: &str) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": {"type": kind, name: text}})
}

fn words(index: usize, text: &str) -> Value {
    delta(index, "text_delta", "text", text)
}

fn thought(index: usize, text: &str) -> Value {
    delta(index, "thinking_delta", "thinking", text)
}

fn input(index: usize, text: &str) -> Value {
    delta(index, "input_json_delta", "partial_json", text)
}

fn stop(index: usize) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

/// Returns a complete stream with these events of blocks.
fn stream(events: &[Value], stop_reason: &str) -> String {
    let start = json!({"type": "message_start", "message": {"id": "msg_1", "type": "message",
        "role": "assistant", "model": "x", "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": 3, "output_tokens": 1, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0}}});
    let end = json!({"type": "message_delta", "usage": {"output_tokens": 9},
        "delta": {"stop_reason": stop_reason, "stop_sequence": null}});
    let all = [&start].into_iter().chain(events).chain([&end]);
    all.map(named_event).collect::<String>() + &named_event(&json!({"type": "message_stop"}))
}

/// Translates a stream at every split and returns the output, which must be a successful stream of the dialect.
fn translate(client: Dialect, stream: &str) -> String {
    let ask = InferenceRequest { thinking: ThinkingDisplay::Shown, ..sample_request(client, true) };
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(Dialect::Messages, &abilities);
    let pair = find_translator(client, Dialect::Messages).unwrap();
    let run = test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), stream.as_bytes());
    let out = String::from_utf8(run.out).unwrap();
    assert_eq!(run.fault, None, "{client:?}: {stream}");
    assert_eq!(conformance::check_stream(client, out.as_bytes(), false), Ok(()), "{client:?}: {out}");
    out
}

/// Returns the blocks of a messages stream: for each its type, or the name of its tool, and its text.
fn blocks(out: &str) -> Vec<(String, String)> {
    let mut blocks: Vec<(String, String)> = Vec::new();
    for data in out.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let event: Value = serde_json::from_str(data).unwrap();
        let block = &event["content_block"];
        if let Some(name) = block["name"].as_str().or(block["type"].as_str()) {
            blocks.push((name.to_owned(), String::new()));
        }
        for name in ["text", "thinking", "partial_json"] {
            if let Some(text) = event["delta"][name].as_str() {
                blocks.last_mut().unwrap().1.push_str(text);
            }
        }
    }
    blocks
}

/// Returns all texts of a stream in their order.
fn texts(client: Dialect, out: &str) -> String {
    let data = out.lines().filter_map(|line| line.strip_prefix("data: {"));
    let events = data.map(|data| serde_json::from_str::<Value>(&format!("{{{data}")).unwrap());
    let parts = events.flat_map(|event| {
        let delta = match client {
            Dialect::Chat => &event["choices"][0]["delta"],
            _ => &event["delta"],
        };
        let call = &delta["tool_calls"][0]["function"]["arguments"];
        let names = ["content", "reasoning_content", "text", "thinking", "partial_json"];
        let values = names.iter().map(|name| &delta[name]).chain([call, delta]);
        values.filter_map(|value| value.as_str().map(str::to_owned)).collect::<Vec<_>>()
    });
    parts.collect()
}

/// Asserts the blocks that a messages client receives, and that clients of the other dialects receive all texts too.
fn assert_blocks(events: &[Value], stop_reason: &str, expected: &[(&str, &str)]) {
    let stream = stream(events, stop_reason);
    let out = translate(Dialect::Messages, &stream);
    let found = blocks(&out);
    let found: Vec<(&str, &str)> = found.iter().map(|(name, text)| (&**name, &**text)).collect();
    assert_eq!(found, expected, "{out}");
    for client in CLIENTS {
        let out = translate(client, &stream);
        let letters = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>();
        let (sent, expected) = (texts(client, &out), expected.iter().map(|(_, text)| *text));
        assert_eq!(letters(&sent), letters(&expected.collect::<String>()), "{client:?}: {out}");
    }
}

#[test]
fn blocks_without_an_end_are_ended() {
    let none = || json!({});
    assert_blocks(&[text(0), words(0, "hello")], "end_turn", &[("text", "hello")]);
    assert_blocks(&[call(0, "f", none()), input(0, "{\"a\":1}")], "tool_use", &[("f", "{\"a\":1}")]);
    assert_blocks(&[call(0, "f", json!({"a": 1}))], "tool_use", &[("f", "{\"a\":1}")]);
    let calls = [call(0, "f", none()), input(0, "{\"a\":1}"), call(1, "g", none()), input(1, "{\"b\":2}")];
    assert_blocks(&calls, "tool_use", &[("f", "{\"a\":1}"), ("g", "{\"b\":2}")]);
    let mixed = [thinking(0), thought(0, "hm"), text(1), words(1, "hello"), call(2, "f", none())];
    assert_blocks(&mixed, "tool_use", &[("thinking", "hm"), ("text", "hello"), ("f", "")]);
    // An engine that gives every block index 0.
    let zeros = [thinking(0), thought(0, "hm"), text(0), words(0, "hello"), call(0, "f", none()), stop(0)];
    assert_blocks(&zeros, "tool_use", &[("thinking", "hm"), ("text", "hello"), ("f", "")]);
    let sealed = [start(0, json!({"type": "redacted_thinking", "data": "x"})), text(1), words(1, "hello")];
    assert_blocks(&sealed, "end_turn", &[("redacted_thinking", ""), ("text", "hello")]);
}

#[test]
fn an_end_after_the_start_of_the_next_block_is_accepted() {
    let sealed = start(0, json!({"type": "redacted_thinking", "data": "x"}));
    let late = [sealed, text(1), words(1, "hello"), stop(0), stop(1)];
    assert_blocks(&late, "end_turn", &[("redacted_thinking", ""), ("text", "hello")]);
}

#[test]
fn members_of_other_types_of_deltas_are_ignored() {
    let odd = json!({"type": "content_block_delta", "index": 0,
        "delta": {"type": "text_delta", "text": "hello", "thinking": "", "partial_json": null}});
    assert!(translate(Dialect::Chat, &stream(&[text(0), odd, stop(0)], "end_turn")).contains("hello"));
}

#[test]
fn text_after_a_block_without_an_end_is_not_delayed() {
    let events = [thinking(0), thought(0, "hm"), text(1), words(1, "hello")];
    let stream = stream(&events, "end_turn");
    let first = &stream[..stream.find("event: message_delta").unwrap()];
    for client in CLIENTS {
        let ask = sample_request(client, true);
        let abilities = OfferCapabilities::default();
        let target = test_support::sample_target(Dialect::Messages, &abilities);
        let pair = find_translator(client, Dialect::Messages).unwrap();
        let (mut reply, mut out) = (pair.translate_stream(&ask, &target), OutputBuffer::default());
        reply.push(Bytes::copy_from_slice(first.as_bytes()), &mut out).unwrap();
        assert!(String::from_utf8(out.0.concat()).unwrap().contains("hello"), "{client:?}");
    }
}

#[test]
fn interleaved_blocks_are_sent_one_after_another() {
    let calls = || vec![call(0, "f", json!({})), call(1, "g", json!({}))];
    let inputs = [input(0, "{\"a\""), input(1, "{\"b\""), input(0, ":1}"), input(1, ":2}")];
    let expected = [("f", "{\"a\":1}"), ("g", "{\"b\":2}")];
    for ends in [vec![stop(0), stop(1)], vec![stop(1), stop(0)], vec![stop(0)], vec![stop(1)], vec![]] {
        assert_blocks(&[&calls()[..], &inputs, &ends].concat(), "tool_use", &expected);
    }
    let three = [
        &[text(0), call(1, "f", json!({"a": 1})), thinking(2), thought(2, "h"), words(0, "he")][..],
        &[thought(2, "m"), words(0, "llo"), stop(1), stop(0), stop(2)],
    ]
    .concat();
    let expected = [("text", "hello"), ("f", "{\"a\":1}"), ("thinking", "hm")];
    assert_blocks(&three, "tool_use", &expected);
}

#[test]
fn text_that_follows_another_block_gets_a_block_of_its_own() {
    let events = [
        text(0),
        words(0, "one"),
        thinking(1),
        words(0, ""),
        thought(1, "hm"),
        words(0, "two"),
        call(2, "f", json!({})),
        input(2, "{"),
        words(0, "three"),
        delta(1, "signature_delta", "signature", "late"),
        thought(1, "so"),
        input(2, "}"),
        stop(0),
        stop(1),
        stop(2),
    ];
    let expected = [
        ("text", "one"),
        ("thinking", "hm"),
        ("text", "two"),
        ("f", "{}"),
        ("text", "three"),
        ("thinking", "so"),
    ];
    assert_blocks(&events, "tool_use", &expected);
}

#[test]
fn deltas_of_other_types_stay_in_their_block() {
    let citation = |index: usize| {
        json!({"type": "content_block_delta", "index": index,
            "delta": {"type": "citations_delta", "citation": {"cited_text": "half \u{1}"}}})
    };
    let events =
        [call(0, "f", json!({})), text(1), words(1, "a"), citation(1), words(1, "b"), stop(1), stop(0)];
    let stream = stream(&events, "tool_use").replace("\\u0001", "\\ud83d");
    let out = translate_unchecked(&stream);
    assert_eq!(blocks(&out), [("f".to_owned(), String::new()), ("text".to_owned(), "ab".to_owned())]);
    assert!(out.contains(r#""cited_text":"half \ufffd""#) && out.contains(r#""index":1"#), "{out}");
}

/// Translates a stream to a messages client without a check of the output, which may have citations.
fn translate_unchecked(stream: &str) -> String {
    let (ask, abilities) = (sample_request(Dialect::Messages, true), OfferCapabilities::default());
    let target = test_support::sample_target(Dialect::Messages, &abilities);
    let pair = find_translator(Dialect::Messages, Dialect::Messages).unwrap();
    let run = test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), stream.as_bytes());
    assert_eq!(run.fault, None);
    String::from_utf8(run.out).unwrap()
}

#[test]
fn deltas_of_unknown_types_are_dropped() {
    let unknown = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "foo_delta", "x": 1}});
    let events = [text(0), unknown.clone(), words(0, "he"), unknown, words(0, "llo"), stop(0)];
    assert_blocks(&events, "end_turn", &[("text", "hello")]);
}

#[test]
fn stored_events_are_limited_and_counted() {
    let large = "x".repeat(1 << 20);
    for client in CLIENTS {
        let ask = sample_request(client, true);
        let abilities = OfferCapabilities::default();
        let target = test_support::sample_target(Dialect::Messages, &abilities);
        let pair = find_translator(client, Dialect::Messages).unwrap();
        let (mut reply, mut out) = (pair.translate_stream(&ask, &target), OutputBuffer::default());
        let begin = stream(&[call(0, "f", json!({})), text(1)], "tool_use");
        let begin = &begin[..begin.find("event: message_delta").unwrap()];
        reply.push(Bytes::copy_from_slice(begin.as_bytes()), &mut out).unwrap();
        let mut count = 0;
        let error = loop {
            let event = Bytes::from(named_event(&words(1, &large)));
            if let Err(error) = reply.push(event, &mut out) {
                break error;
            }
            count += 1;
            assert!(reply.buffered_bytes() >= count << 20, "{client:?}");
        };
        assert_eq!((error.kind, count), (UpstreamErrorKind::ModelOutput, 15), "{client:?}");
    }
}

#[test]
fn a_block_is_ended_if_the_stream_ends_at_the_token_limit() {
    let ask = InferenceRequest { max_tokens: Some(9), ..sample_request(Dialect::Messages, true) };
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(Dialect::Messages, &abilities);
    let pair = find_translator(Dialect::Messages, Dialect::Messages).unwrap();
    for block in [text(0), thinking(0)] {
        let kind = block["content_block"]["type"].as_str().unwrap();
        let events = [block.clone(), delta(0, &format!("{kind}_delta"), kind, "hello")];
        let whole = stream(&events, "");
        let part = &whole[..whole.find("event: message_stop").unwrap()];
        let run = test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), part.as_bytes());
        let out = String::from_utf8(run.out).unwrap();
        assert_eq!((run.fault, run.finish_reason), (None, Some(FinishReason::Length)), "{out}");
        assert_eq!(conformance::check_messages_stream(out.as_bytes()), Ok(()), "{out}");
    }
}
