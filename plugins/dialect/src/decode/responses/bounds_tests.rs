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
    // If each item was compared with each known item, the largest output would take minutes.
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
