//! Tests of the writer that need more than a provider's stream.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::write::EventBuffer;
use crate::write::{DialectWriter as _, ResponseIdentity};

/// Number of blocks that fit into one answer. With a linear search for each call, the test would take minutes.
const MANY: usize = 40_000;

fn new_writer() -> MessagesStreamWriter {
    MessagesStreamWriter::new(WriterOptions {
        identity: ResponseIdentity { id: "1".to_owned(), model: "m".to_owned(), created: 0 },
        thinking: ThinkingDisplay::Shown,
        prompt_tokens: 0,
    })
}

#[test]
fn a_call_is_found_at_once_among_many_blocks_that_wait() {
    let mut writer = new_writer();
    let mut out = EventBuffer::default();
    let (choice, text) = (0, EscapedText::new("t"));
    let start = |tool: u32| AnswerEvent::ToolCallStart {
        choice,
        tool,
        id: EscapedText::new(&format!("c{tool}")),
        name: EscapedText::new("f"),
    };
    let more = |tool, fragment: &str| AnswerEvent::ToolCallArguments {
        choice,
        tool,
        fragment: EscapedText::new(fragment),
    };
    writer.write(&start(0), &mut out);
    writer.write(&more(0, "{"), &mut out);
    for _ in 0..MANY {
        writer.write(&AnswerEvent::Reasoning { choice, text: text.clone(), signature: None }, &mut out);
        writer.write(&AnswerEvent::Text { choice, text: text.clone(), logprobs: None }, &mut out);
    }
    writer.write(&start(1), &mut out);
    writer.write(&start(2), &mut out);
    writer.write(&more(2, "{\"b\":[0"), &mut out);
    writer.write(&more(1, "{\"a\":[0"), &mut out);
    for _ in 0..MANY {
        writer.write(&more(1, ",1"), &mut out);
        writer.write(&more(2, ",2"), &mut out);
    }
    writer.write(&more(0, "}"), &mut out);
    writer.write(&more(2, "]}"), &mut out);
    writer.write(&more(1, "]}"), &mut out);
    assert_eq!(writer.buffered_bytes(), 0, "nothing waits any more");
    writer.write(
        &AnswerEvent::Finish { choice, reason: FinishReason::ToolCalls, stop_sequence: None },
        &mut out,
    );
    assert!(!writer.has_invalid_output());
    writer.write_end(&TokenUsage::default(), &[], &mut out);
    let written = String::from_utf8(out.into_pieces().concat()).unwrap();
    assert_eq!(written.matches("content_block_start\ndata").count(), 2 * MANY + 3);
    let (first, second) = written.split_once("\"id\":\"c2\"").unwrap();
    assert_eq!((first.matches("\",1\"").count(), second.matches("\",2\"").count()), (MANY, MANY));
}

#[test]
fn small_fragments_that_wait_are_counted_with_their_memory() {
    let (mut writer, mut out) = (new_writer(), EventBuffer::default());
    for tool in 0..2 {
        let id = EscapedText::new(&format!("c{tool}"));
        let name = EscapedText::new("f");
        writer.write(&AnswerEvent::ToolCallStart { choice: 0, tool, id, name }, &mut out);
    }
    let fragment = |tool, text: &str| AnswerEvent::ToolCallArguments {
        choice: 0,
        tool,
        fragment: EscapedText::new(text),
    };
    writer.write(&fragment(1, "{\"a\":\""), &mut out);
    for _ in 0..MANY {
        writer.write(&fragment(1, "x"), &mut out);
    }
    assert!(writer.buffered_bytes() > MANY * size_of::<EscapedText>(), "{}", writer.buffered_bytes());
    assert_eq!(writer.undelivered_bytes(), MANY + "{\"a\":\"".len());
    writer.write(&fragment(0, "{}"), &mut out);
    assert_eq!(writer.buffered_bytes(), 0);
}

#[test]
fn texts_that_wait_keep_no_memory_of_the_network() {
    let (mut writer, mut out) = (new_writer(), EventBuffer::default());
    let piece = bytes::Bytes::from("a piece of the network with a long padding".to_owned());
    let (choice, part) = (0, || EscapedText::from_json(piece.slice(2..7)).unwrap());
    for tool in 0..2 {
        writer.write(&AnswerEvent::ToolCallStart { choice, tool, id: part(), name: part() }, &mut out);
    }
    let before = writer.buffered_bytes();
    writer.write(&AnswerEvent::Reasoning { choice, text: part(), signature: Some(part()) }, &mut out);
    writer.write(&AnswerEvent::Text { choice, text: part(), logprobs: None }, &mut out);
    assert!(before > 2 * 5 && writer.buffered_bytes() > before + 3 * 5);
    assert!(piece.is_unique());
    let end = EscapedText::new("{}");
    for tool in 0..2 {
        writer.write(&AnswerEvent::ToolCallArguments { choice, tool, fragment: end.clone() }, &mut out);
    }
    assert_eq!(writer.buffered_bytes(), 0);
}
