//! Tests of rescues and cuts after blocks that the passthrough forwards and the shadow translator counts in another
//! way. Either the answer continues with correct indices, or the rescue is refused.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::TRANSLATOR;
use crate::test_support;
use bytes::Bytes;
use penstock_core::*;
use serde_json::{Value, json};

const ASK: &[u8] = br#"{"model":"m","max_tokens":9,"messages":[],"stream":true}"#;

fn named_event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())
}

/// Content block of a provider's stream: its start, and its deltas.
type Block = (Value, Vec<Value>);

fn thinking(text: &str, signatures: &[&str]) -> Block {
    let text = json!({"type": "thinking_delta", "thinking": text});
    let signatures = signatures.iter().map(|seal| json!({"type": "signature_delta", "signature": seal}));
    (
        json!({"type": "thinking", "thinking": "", "signature": ""}),
        [text].into_iter().chain(signatures).collect(),
    )
}

fn text(text: &str) -> Block {
    (json!({"type": "text", "text": ""}), vec![json!({"type": "text_delta", "text": text})])
}

fn call(name: &str, input: &[&str]) -> Block {
    let deltas = input.iter().map(|input| json!({"type": "input_json_delta", "partial_json": input}));
    (json!({"type": "tool_use", "id": format!("toolu_{name}"), "name": name, "input": {}}), deltas.collect())
}

/// Returns the block with a delta of an unknown type before its other deltas.
fn with_unknown_delta((start, mut deltas): Block) -> Block {
    deltas.insert(0, json!({"type": "citations_delta", "citation": {"url": "a"}}));
    (start, deltas)
}

/// Returns a block with a delta that its type does not have.
fn signed_text() -> Block {
    let (start, mut deltas) = text("Hi.");
    deltas.insert(0, json!({"type": "signature_delta", "signature": "seal"}));
    (start, deltas)
}

fn message_start() -> String {
    let usage = json!({"input_tokens": 3, "output_tokens": 0, "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0});
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "x", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": usage});
    named_event(&json!({"type": "message_start", "message": message}))
}

fn start_event(index: usize, block: &Value) -> String {
    named_event(&json!({"type": "content_block_start", "index": index, "content_block": block}))
}

fn delta_event(index: usize, delta: &Value) -> String {
    named_event(&json!({"type": "content_block_delta", "index": index, "delta": delta}))
}

fn stop_event(index: usize) -> String {
    named_event(&json!({"type": "content_block_stop", "index": index}))
}

/// Returns the events of a complete stream with these blocks.
fn events(blocks: &[Block]) -> Vec<String> {
    let mut events = vec![message_start()];
    for (index, (block, deltas)) in blocks.iter().enumerate() {
        events.push(start_event(index, block));
        events.extend(deltas.iter().map(|delta| delta_event(index, delta)));
        events.push(stop_event(index));
    }
    events.push(end_event());
    events.push(named_event(&json!({"type": "message_stop"})));
    events
}

fn end_event() -> String {
    named_event(&json!({"type": "message_delta", "usage": {"output_tokens": 9},
        "delta": {"stop_reason": "max_tokens", "stop_sequence": null}}))
}

fn request() -> InferenceRequest {
    InferenceRequest {
        thinking: ThinkingDisplay::Shown,
        ..test_support::sample_request(Dialect::Messages, ASK)
    }
}

/// Asserts that blocks are numbered from 0 without gaps, that one is open at a time, and that deltas belong to the open
/// block and match its type.
fn assert_blocks_in_order(out: &str) {
    let (mut count, mut open) = (0, None);
    for event in out.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let event: Value = serde_json::from_str(event).unwrap();
        let index = event["index"].as_u64();
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                assert_eq!((index, &open), (Some(count), &None), "{out}");
                open = Some((count, event["content_block"]["type"].as_str().unwrap().to_owned()));
                count += 1;
            }
            "content_block_delta" => {
                let (at, kind) = open.as_ref().unwrap();
                assert_eq!(index, Some(*at), "{out}");
                let expected = match event["delta"]["type"].as_str().unwrap() {
                    "text_delta" => "text",
                    "thinking_delta" => "thinking",
                    "input_json_delta" => "tool_use",
                    _ => kind,
                };
                assert_eq!(kind, expected, "{out}");
            }
            "content_block_stop" => assert_eq!(open.take().map(|(at, _)| at), index, "{out}"),
            _ => {}
        }
    }
}

/// Returns answers with blocks that are forwarded. The shadow translator counts the blocks of all but the last
/// three in another way.
fn odd_answers() -> Vec<Vec<Block>> {
    vec![
        vec![thinking("Hm.", &[]), thinking("So.", &[]), text("Hi.")],
        vec![thinking("Hm.", &["one", "two"]), text("Hi.")],
        vec![thinking("Hm.", &["one", "two"]), with_unknown_delta(text("Hi.")), text("Ho.")],
        vec![with_unknown_delta(text("Hi.")), text("Ho.")],
        vec![text("Hi."), with_unknown_delta(thinking("Hm.", &["one"])), call("f", &["{}"])],
        vec![with_unknown_delta(call("f", &["{}"])), signed_text()],
        vec![text("Hi."), text("Ho."), thinking("Hm.", &["one", "two"]), text("He.")],
        // A call without input, and one with incomplete input.
        vec![call("f", &[]), call("g", &["{\"a\"", ":1}"]), text("Hi.")],
        vec![call("f", &["{\"a\""]), text("Hi."), call("g", &["{}"])],
        vec![(json!({"type": "redacted_thinking", "data": "x"}), vec![]), text("Hi."), text("Ho.")],
        vec![
            (json!({"type": "server_tool_use", "id": "s", "name": "web", "input": {}}), vec![]),
            text("Hi."),
        ],
        vec![(json!({"type": "text", "text": ""}), vec![]), call("f", &["{}"]), text("Hi.")],
        vec![thinking("Hm.", &["one"]), text("Hi."), call("f", &["{\"a\"", ":1}"]), call("g", &["{}"])],
        vec![thinking("Hm.", &["one"]), thinking("So.", &["two"]), text("Hi.")],
        vec![signed_text(), call("f", &["{\"a\"", ":1}"])],
    ]
}

/// Lets a second provider repeat the answer after the first stream broke. Returns true if the rescue was accepted;
/// asserts that its output has correct indices.
fn rescue(first: &str, second: &str, size: usize) -> bool {
    let (ask, abilities) = (request(), OfferCapabilities::default());
    let target = test_support::sample_target(Dialect::Messages, &abilities);
    let mut reply = TRANSLATOR.translate_stream(&ask, &target);
    let mut out = OutputBuffer::default();
    for piece in first.as_bytes().chunks(size) {
        reply.push(Bytes::copy_from_slice(piece), &mut out).unwrap();
    }
    if reply.progress() != StreamProgress::Committed || !reply.start_rescue(&target, RescueMode::StartOver) {
        return false;
    }
    let run = test_support::run_stream(&mut *reply, second.as_bytes().chunks(size));
    let out = String::from_utf8([out.0.concat(), run.out].concat()).unwrap();
    assert_blocks_in_order(&out);
    true
}

#[test]
fn a_rescue_after_odd_blocks_has_correct_indices_wherever_the_stream_broke() {
    for (number, blocks) in odd_answers().iter().enumerate() {
        let events = events(blocks);
        let stream = events.concat();
        for cut in 0..stream.len() {
            rescue(&stream[..cut], &stream, stream.len());
        }
        let accepted: Vec<bool> = (0..events.len())
            .map(|cut| {
                let first = events[..cut].concat();
                let accepted = rescue(&first, &stream, stream.len());
                assert_eq!(rescue(&first, &stream, 1), accepted, "{number} {cut}");
                accepted
            })
            .collect();
        assert!(!accepted[events.len() - 1], "the answer has ended");
        let is_regular = number >= odd_answers().len() - 3;
        assert_eq!(accepted[events.len() - 2], is_regular, "{number} {accepted:?}");
    }
}

#[test]
fn a_block_that_waits_for_the_end_of_another_allows_a_rescue() {
    let (f, g) = (call("f", &["{\"a\"", ":1}"]), text("Hi."));
    let first = message_start()
        + &start_event(0, &f.0)
        + &delta_event(0, &f.1[0])
        + &start_event(1, &g.0)
        + &delta_event(1, &g.1[0])
        + &delta_event(0, &f.1[1]);
    let second = events(&[f, g]).concat();
    for size in [1, first.len()] {
        assert!(rescue(&first, &second, size));
        assert!(rescue(&(first.clone() + &stop_event(0)), &second, size));
    }
}

#[test]
fn a_cut_after_odd_blocks_has_correct_indices() {
    for blocks in odd_answers() {
        let mut events = events(&blocks);
        events.truncate(events.len() - 2);
        let index = blocks.len();
        events.push(start_event(index, &json!({"type": "text", "text": ""})));
        events.extend(
            (0..30).map(|_| delta_event(index, &json!({"type": "text_delta", "text": "x".repeat(1000)}))),
        );
        let stream = events.concat();
        for size in [1, 7, stream.len()] {
            let (ask, abilities) = (request(), OfferCapabilities::default());
            let target = test_support::sample_target(Dialect::Messages, &abilities);
            let mut reply = TRANSLATOR.translate_stream(&ask, &target);
            let run = test_support::run_stream(&mut *reply, stream.as_bytes().chunks(size));
            assert!(reply.offer_observation().exceeds_output_limit);
            assert!(matches!(run.fault, None | Some(UpstreamErrorKind::ModelOutput)), "{:?}", run.fault);
            assert_blocks_in_order(&String::from_utf8(run.out).unwrap());
        }
    }
}
