//! Tests of the writer: its bounds, and arguments after the end of a call.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use crate::write::DialectWriter as _;
use crate::{conformance, test_support};
use penstock_core::{Dialect, OfferCapabilities};
use penstock_request_validation::{RequestLimits, ResponsesPurpose, validate_responses_request};
use serde_json::{Value, json};

/// Number of items that fit into one answer. With a search through all items for each event, the tests would take
/// minutes.
const MANY: u32 = 40_000;

fn writer() -> ResponsesStreamWriter {
    let abilities = OfferCapabilities::default();
    let ask = test_support::sample_request(Dialect::Chat, br#"{"model":"m","messages":[]}"#);
    ResponsesStreamWriter::new(&ask, &test_support::sample_target(Dialect::Chat, &abilities))
}

fn text() -> AnswerEvent {
    AnswerEvent::Text { choice: 0, text: EscapedText::new("t"), logprobs: None }
}

fn reasoning() -> AnswerEvent {
    AnswerEvent::Reasoning { choice: 0, text: EscapedText::new("r"), signature: None }
}

fn start(tool: u32) -> AnswerEvent {
    let id = EscapedText::new(&format!("c{tool}"));
    AnswerEvent::ToolCallStart { choice: 0, tool, id, name: EscapedText::new("f") }
}

fn arguments(tool: u32, fragment: &str) -> AnswerEvent {
    AnswerEvent::ToolCallArguments { choice: 0, tool, fragment: EscapedText::new(fragment) }
}

#[test]
fn open_items_are_found_at_once_among_many_closed_ones() {
    let (mut writer, mut out) = (writer(), EventBuffer::default());
    let mut write = |event: AnswerEvent| {
        out.clear_all();
        writer.write(&event, &mut out);
        writer.buffered_bytes()
    };
    write(start(0));
    write(arguments(0, "{\"a\":[0"));
    for _ in 0..MANY {
        write(reasoning());
        write(text());
        write(arguments(0, ",1"));
    }
    let bytes = write(arguments(0, "]}"));
    let items = 2 * MANY as usize + 1;
    assert!(bytes > items * size_of::<OutputItem>(), "{bytes} bytes of {items} items");
    assert_eq!(writer.items.iter().filter(|item| item.status == ItemStatus::Open).count(), 2);
    writer.write_end(&TokenUsage::default(), &[], &mut out);
    assert!(writer.items.iter().all(|item| item.status == ItemStatus::Completed));
    let buffered: usize = writer.items.iter().map(OutputItem::buffered_bytes).sum();
    assert_eq!(writer.buffered_bytes(), buffered);
}

#[test]
fn parts_are_counted_with_their_memory() {
    let (mut writer, mut out) = (writer(), EventBuffer::default());
    for _ in 0..MANY {
        writer.write(&text(), &mut out);
        writer.write(&AnswerEvent::Refusal { choice: 0, text: EscapedText::new("n") }, &mut out);
        out.clear_all();
        assert!(writer.buffered_bytes() > 0);
    }
    assert_eq!(writer.items.len(), 1);
    let parts = 2 * MANY as usize;
    assert_eq!(
        writer.buffered_bytes(),
        size_of::<OutputItem>() + parts * (size_of::<part::MessagePart>() + 1)
    );
}

/// Tests that the last events of a long answer share its text: the memory does not grow with their number.
#[test]
fn the_last_events_copy_no_long_text() {
    const FRAGMENTS: usize = 1_000;
    let instructions = "i".repeat(100_000);
    let body = json!({"model": "m", "input": "Hi", "instructions": instructions, "stream": true}).to_string();
    let limits = RequestLimits::default();
    let ask = validate_responses_request(body.into(), &limits, ResponsesPurpose::Generate).unwrap();
    let abilities = OfferCapabilities::default();
    let new = || ResponsesStreamWriter::new(&ask, &test_support::sample_target(Dialect::Chat, &abilities));
    let fragment = EscapedText::new(&"t".repeat(100));
    let content = [
        AnswerEvent::Reasoning { choice: 0, text: fragment.clone(), signature: None },
        AnswerEvent::Text { choice: 0, text: fragment.clone(), logprobs: None },
        AnswerEvent::Refusal { choice: 0, text: fragment },
        start(0),
        arguments(0, &"a".repeat(100)),
    ];
    let (mut writer, mut stream) = (new(), Vec::new());
    let write = |writer: &mut ResponsesStreamWriter, event: &AnswerEvent, stream: &mut Vec<u8>| {
        let mut out = EventBuffer::default();
        writer.write(event, &mut out);
        assert!(out.unshared_bytes() < 2_000, "{} bytes for an event", out.unshared_bytes());
        stream.extend(out.into_pieces().concat());
    };
    for event in &content {
        let count = if matches!(event, AnswerEvent::ToolCallStart { .. }) { 1 } else { FRAGMENTS };
        (0..count).for_each(|_| write(&mut writer, event, &mut stream));
    }
    let (estimate, mut out) = (writer.end_bytes(), EventBuffer::default());
    writer.write_end(&TokenUsage::default(), &[], &mut out);
    assert!(out.unshared_bytes() < 8_000, "{} bytes at the end", out.unshared_bytes());
    assert!(estimate < 8_000, "{estimate}");
    stream.extend(out.into_pieces().concat());
    assert_eq!(conformance::check_responses_stream(&stream), Ok(()));
}

/// Tests that the copies of short texts are estimated before they are made.
#[test]
fn the_copies_of_short_texts_are_estimated() {
    let (mut writer, mut out) = (writer(), EventBuffer::default());
    for _ in 0..1_000 {
        writer.write(
            &AnswerEvent::Reasoning { choice: 0, text: EscapedText::new("why"), signature: None },
            &mut out,
        );
        writer.write(
            &AnswerEvent::Text { choice: 0, text: EscapedText::new(&"t".repeat(900)), logprobs: None },
            &mut out,
        );
    }
    out.clear_all();
    let estimate = writer.end_bytes();
    writer.write_end(&TokenUsage::default(), &[], &mut out);
    let copied = out.unshared_bytes();
    assert!(copied > 900_000 && (copied * 3 / 4..copied * 2).contains(&estimate), "{estimate} for {copied}");
}

/// Writes these events and the end of the answer; returns the data of the last event, and true if the output is invalid.
fn last_event(events: &[AnswerEvent], tools: Value) -> (Value, bool) {
    let body = json!({"model": "m", "input": "Hi", "stream": true, "tools": tools}).to_string();
    let limits = RequestLimits::default();
    let ask = validate_responses_request(body.into(), &limits, ResponsesPurpose::Generate).unwrap();
    let abilities = OfferCapabilities::default();
    let mut writer =
        ResponsesStreamWriter::new(&ask, &test_support::sample_target(Dialect::Chat, &abilities));
    let mut out = EventBuffer::default();
    events.iter().for_each(|event| writer.write(event, &mut out));
    let is_invalid = writer.has_invalid_output();
    writer.write_end(&TokenUsage::default(), test_support::SAMPLE_PENSTOCK_OBJECTS, &mut out);
    let text = String::from_utf8(out.into_pieces().concat()).unwrap();
    assert_eq!(conformance::check_responses_stream(text.as_bytes()), Ok(()), "{text}");
    let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
    (serde_json::from_str(data.unwrap()).unwrap(), is_invalid)
}

#[test]
fn text_after_the_arguments_of_a_closed_call_is_an_error_and_never_dropped() {
    for (rest, is_error) in [(" x", true), ("}", true), ("{}", true), (" \n", false), ("", false)] {
        for at in (0..=rest.len()).filter(|at| rest.is_char_boundary(*at)) {
            let (first, second) = rest.split_at(at);
            for other in [text(), reasoning(), start(1)] {
                let events = [
                    start(0),
                    arguments(0, "{\"a\":1}"),
                    other,
                    arguments(0, first),
                    arguments(0, second),
                    AnswerEvent::Finish { choice: 0, reason: FinishReason::ToolCalls, stop_sequence: None },
                ];
                let (last, is_invalid) = last_event(&events, json!([]));
                assert_eq!(is_invalid, is_error, "{rest:?}");
                let kind = if is_error { "response.failed" } else { "response.completed" };
                assert_eq!(last["type"], kind, "{rest:?}");
                assert_eq!(last["response"]["error"].is_null(), !is_error);
                assert_eq!(last["response"]["output"][0]["arguments"], "{\"a\":1}");
                assert!(last["response"]["billing_cost"]["credits"].is_number(), "{last}");
            }
        }
    }
    // If no other item follows, the call is still open, and the client gets the arguments as the model wrote them.
    let events = [start(0), arguments(0, "{\"a\":1}"), arguments(0, " x")];
    let (last, is_invalid) = last_event(&events, json!([]));
    assert_eq!((&last["response"]["output"][0]["arguments"], is_invalid), (&json!("{\"a\":1} x"), false));
}

#[test]
fn the_end_of_a_custom_tools_arguments_may_follow_its_closed_call() {
    let tools = json!([{"type": "custom", "name": "f"}]);
    let events = [start(0), arguments(0, "{\"input\":\"abc\""), text(), arguments(0, "}")];
    let (last, is_invalid) = last_event(&events, tools);
    assert_eq!((&last["type"], is_invalid), (&json!("response.completed"), false));
    assert_eq!(last["response"]["output"][0]["input"], "abc");
}
