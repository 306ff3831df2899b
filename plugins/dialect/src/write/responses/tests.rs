//! Tests of the writer's bounds.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use crate::test_support;
use crate::write::DialectWriter as _;
use penstock_core::{Dialect, OfferCapabilities};

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
    let (mut writer, mut out) = (writer(), Vec::new());
    let mut write = |event: AnswerEvent| {
        out.clear();
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
    let (mut writer, mut out) = (writer(), Vec::new());
    for _ in 0..MANY {
        writer.write(&text(), &mut out);
        writer.write(&AnswerEvent::Refusal { choice: 0, text: EscapedText::new("n") }, &mut out);
        out.clear();
        assert!(writer.buffered_bytes() > 0);
    }
    assert_eq!(writer.items.len(), 1);
    let parts = 2 * MANY as usize;
    assert_eq!(
        writer.buffered_bytes(),
        size_of::<OutputItem>() + parts * (size_of::<part::MessagePart>() + 1)
    );
}
