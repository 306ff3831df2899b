//! Tests of the bounds on the decoder's work and memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::*;
use crate::decode::DialectDecoder;
use serde_json::{Value, json};

const MANY: usize = 600_000;

fn data(event: &Value) -> String {
    format!("data: {event}\n\n")
}

fn created() -> String {
    data(&json!({"type": "response.created", "response": {"status": "in_progress"}}))
}

fn message(index: usize) -> String {
    let item = json!({"type": "message", "content": []});
    data(&json!({"type": "response.output_item.added", "output_index": index, "item": item}))
}

/// Returns the last event, with an output of `count` copies of this item.
fn completed(item: &str, count: usize) -> String {
    let output = vec![item; count].join(",");
    format!(
        r#"data: {{"type":"response.completed","response":{{"status":"completed","output":[{output}]}}}}{}"#,
        "\n\n"
    )
}

/// Decodes a stream in chunks of this size; returns the events before the first error, and that error.
fn decode(stream: &str, chunk: usize) -> (Vec<AnswerEvent>, Option<UpstreamErrorKind>) {
    let (mut decoder, mut events) = (ResponsesDecoder::new(), Vec::new());
    let mut chunks = stream.as_bytes().chunks(chunk);
    let result = chunks.try_for_each(|chunk| decoder.push(Bytes::copy_from_slice(chunk), &mut events));
    let result = result.and_then(|()| decoder.end(&mut events));
    (events, result.err().map(|error| error.kind))
}

#[test]
fn a_final_output_with_too_many_items_is_output_of_the_model() {
    let open: String = (0..MAX_ITEMS).map(message).collect();
    let text = r#"{"type":"message","content":[{"type":"output_text","text":"a"}]}"#;
    // If the decoder compared each item with each known item, the largest output would take minutes.
    for (open, item, count, chunk) in [
        ("", text, MAX_ITEMS + 1, 1),
        ("", r#"{"type":"x"}"#, MAX_ITEMS + 1, 1),
        (&open, r#"{"type":"x"}"#, MANY, 1 << 20),
        (&open, "5", MANY, 1 << 20),
    ] {
        let (events, error) = decode(&(created() + open + &completed(item, count)), chunk);
        assert_eq!(error, Some(UpstreamErrorKind::ModelOutput), "{count} of {item}");
        assert_eq!(events, [AnswerEvent::Start], "{count} of {item}");
    }
    let (events, error) = decode(&(created() + &open + &completed(text, MAX_ITEMS)), 1 << 20);
    let is_text = |event: &&AnswerEvent| matches!(event, AnswerEvent::Text { .. });
    assert_eq!((events.iter().filter(is_text).count(), error), (MAX_ITEMS, None));
}

#[test]
fn empty_initial_texts_are_not_compared_with_the_others() {
    let part = |text: &str| format!(r#"{{"type":"output_text","text":"{text}"}}"#);
    let content = [vec![part("a"); MAX_ITEMS], vec![part(""); MANY / 4]].concat().join(",");
    let item = format!(r#"{{"type":"message","content":[{content}]}}"#);
    let added =
        format!("data: {{\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{item}}}\n\n");
    let (events, error) = decode(&(created() + &added + &completed("", 0)), 1 << 20);
    let is_text = |event: &&AnswerEvent| matches!(event, AnswerEvent::Text { .. });
    assert_eq!((events.iter().filter(is_text).count(), error), (MAX_ITEMS, None));
}

/// Returns the memory of a decoder after each of these events.
fn memory(events: &[Value]) -> Vec<usize> {
    let mut decoder = ResponsesDecoder::new();
    decoder.push(Bytes::from(created()), &mut Vec::new()).unwrap();
    let after = |event: &Value| {
        decoder.push(Bytes::from(data(event)), &mut Vec::new()).unwrap();
        decoder.buffered_bytes()
    };
    events.iter().map(after).collect()
}

#[test]
fn texts_that_are_no_longer_stored_are_not_counted() {
    const TEXT: usize = 100_000;
    let event = |name: &str, member: &str, text: &str| json!({"type": format!("response.{name}"), "output_index": 0, member: text});
    let item = |stage: &str, item: &Value| json!({"type": format!("response.output_item.{stage}"), "output_index": 0, "item": item});
    let text = "a".repeat(TEXT);
    let message = json!({"type": "message", "content": [{"type": "output_text", "text": text}]});
    let added = item("added", &message);
    for end in [
        event("output_text.delta", "delta", "b"),
        event("output_text.done", "text", &text),
        item("done", &message),
        json!({"type": "response.completed", "response": {"status": "completed", "output": []}}),
    ] {
        let memory = memory(&[added.clone(), end.clone()]);
        assert!(memory[0] > TEXT && memory[1] < 1000, "{memory:?} {}", end["type"]);
    }
    // Arguments are stored up to 1 MiB, for the comparison with the complete ones.
    let call = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": ""});
    let mut events = vec![item("added", &call)];
    events.extend(vec![event("function_call_arguments.delta", "delta", &text); 11]);
    let memory = memory(&events);
    assert!(memory[10] > 10 * TEXT && memory[11] < 1000, "{memory:?}");
}

#[test]
fn many_small_texts_and_parts_are_counted_with_their_memory() {
    let part = json!({"type": "output_text", "text": "a"});
    let item = json!({"type": "message", "content": vec![part; MAX_ITEMS]});
    let added = json!({"type": "response.output_item.added", "output_index": 0, "item": item});
    let done = json!({"type": "response.output_item.done", "output_index": 0, "item": item});
    let memory = memory(&[added, done]);
    assert!(memory.iter().all(|bytes| *bytes > MAX_ITEMS * 32), "{memory:?}");
}

#[test]
fn initial_texts_are_emitted_in_order_after_one_of_them_was_continued() {
    let part = |text: &str| json!({"type": "output_text", "text": text});
    let item = json!({"type": "message", "content": [part("a"), part("b"), part("c"), part("d")]});
    let added = data(&json!({"type": "response.output_item.added", "output_index": 0, "item": item}));
    let delta = |index: u32, text: &str| {
        data(
            &json!({"type": "response.output_text.delta", "output_index": 0, "content_index": index, "delta": text}),
        )
    };
    let stream = created() + &added + &delta(0, "x") + &delta(1, "y") + &completed("", 0);
    for chunk in 1..stream.len() {
        let (events, error) = decode(&stream, chunk);
        let text = |event: &AnswerEvent| match event {
            AnswerEvent::Text { text, .. } => text.decoded().into_owned(),
            _ => String::new(),
        };
        let texts: String = events.iter().map(text).collect();
        assert_eq!((texts.as_str(), error), ("axbycd", None), "in pieces of {chunk}");
    }
}
