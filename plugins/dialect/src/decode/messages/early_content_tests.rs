//! Tests of content in the start events of a message and of its blocks, for clients of every dialect.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use crate::stream_format_tests::sample_request;
use crate::{conformance, find_translator, test_support};
use penstock_core::{Dialect, FinishReason, OfferCapabilities, UpstreamErrorKind};
use serde_json::{Value, json};

/// Returns a stream whose `message_start` event has this content. `events` follow before the end of the stream.
fn stream(content: &Value, events: &[Value], stop_reason: &str) -> String {
    let event = |data: &Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "x", "content": content,
        "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 3, "output_tokens": 1,
            "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}});
    let end = json!({"type": "message_delta", "delta": {"stop_reason": stop_reason, "stop_sequence": null},
        "usage": {"output_tokens": 3}});
    let start = event(&json!({"type": "message_start", "message": message}));
    let middle: String = events.iter().map(event).collect();
    start + &middle + &event(&end) + &event(&json!({"type": "message_stop"}))
}

/// Translates a stream for a client; asserts that the output is the same wherever the stream is split.
fn translate(client: Dialect, stream: &str) -> test_support::StreamRun {
    let (ask, abilities) = (sample_request(client, true), OfferCapabilities::default());
    let target = test_support::sample_target(Dialect::Messages, &abilities);
    let pair = find_translator(client, Dialect::Messages).unwrap();
    test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), stream.as_bytes())
}

fn block(index: usize, text: &str, delta: &str) -> Vec<Value> {
    vec![
        json!({"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": text}}),
        json!({"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": delta}}),
        json!({"type": "content_block_stop", "index": index}),
    ]
}

#[test]
fn content_of_start_events_reaches_clients_of_every_dialect() {
    let early = json!([{"type": "text", "text": "Early"}]);
    let call = json!([{"type": "text", "text": "Early"}, {"type": "tool_use", "id": "t", "name": "f", "input": {"x": 1}}]);
    for client in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
        for (content, events) in [
            (early.clone(), Vec::new()),
            (early.clone(), block(0, "", "Later")),
            (early.clone(), block(1, "", "Later")),
            (json!([]), block(0, "Early", "Later")),
        ] {
            let run = translate(client, &stream(&content, &events, "end_turn"));
            let out = String::from_utf8(run.out).unwrap();
            assert_eq!((run.fault, run.finish_reason), (None, Some(FinishReason::Stop)), "{out}");
            assert_eq!(conformance::check_stream(client, out.as_bytes(), false), Ok(()), "{client:?}: {out}");
            let has_later = !events.is_empty();
            assert_eq!(
                (out.contains("Early"), out.contains("Later")),
                (true, has_later),
                "{client:?}: {out}"
            );
        }
        let run = translate(client, &stream(&call, &[], "tool_use"));
        let out = String::from_utf8(run.out).unwrap();
        assert_eq!((run.fault, run.finish_reason), (None, Some(FinishReason::ToolCalls)), "{out}");
        assert!(out.contains("Early") && out.contains("\\\"x\\\":1"), "{client:?}: {out}");
    }
}

#[test]
fn an_empty_stop_reason_is_no_end_of_a_message() {
    for client in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
        let run = translate(client, &stream(&json!([]), &block(0, "", "Text"), ""));
        assert_eq!(run.fault, Some(UpstreamErrorKind::Truncated), "{client:?}");
    }
}
