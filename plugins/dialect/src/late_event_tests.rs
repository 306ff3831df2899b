//! Tests of events after the first finish reason: nothing that the provider sent before its end is lost while the
//! answer looks complete, and plain answers agree with streams.

#![allow(clippy::unwrap_used)]

use crate::stream_format_tests::sample_request;
use crate::{find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;
use serde_json::{Value, json};

const CLIENTS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];
const DONE: &str = "data: [DONE]\n\n";
const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}\n\n";
const ERROR: &str = "data: {\"error\":{\"message\":\"CUDA error\",\"code\":500}}\n\n";
const FINISH: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const ABORT: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"abort\"}]}\n\n";

/// Returns the event of a chunk of the choice 0.
fn chunk(delta: &Value, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    format!("data: {}\n\n", json!({"choices": [choice]}))
}

fn text(text: &str, finish: Option<&str>) -> String {
    chunk(&json!({"content": text}), finish)
}

/// Translates a body to each client, as a stream at every split and as the answer to a plain request. Asserts that both
/// fail if `words` is `None`, and otherwise that both are equal and have these words, without the word `late`.
fn assert_answer(provider: Dialect, body: &str, words: Option<&[&str]>) {
    for client in CLIENTS {
        let abilities = OfferCapabilities::default();
        let target = test_support::sample_target(provider, &abilities);
        let pair = find_translator(client, provider).unwrap();
        let ask = sample_request(client, true);
        let run = test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), body.as_bytes());
        assert_eq!(run.fault.is_none(), words.is_some(), "{client:?} {:?}: {body}", run.fault);
        let ask = sample_request(client, false);
        let plain = pair.translate_buffered(&ask, &target, Bytes::from(body.to_owned()));
        let fault = plain.as_ref().err().map(|fault| fault.kind);
        assert_eq!(plain.is_ok(), words.is_some(), "plain {client:?} {fault:?}: {body}");
        let Ok(plain) = plain else { continue };
        assert_eq!(plain.finish_reason, run.finish_reason.unwrap(), "{client:?}: {body}");
        assert_eq!(plain.output_bytes, run.output_bytes, "{client:?}: {body}");
        if run.usage.is_some() {
            assert_eq!(plain.work.unwrap().usage(), run.usage.as_ref(), "{client:?}: {body}");
        }
        for out in [run.out, plain.body.concat()] {
            let out = String::from_utf8(out).unwrap();
            for word in words.unwrap_or_default() {
                assert!(out.contains(word), "{client:?} {word}: {out}");
            }
            assert!(!out.contains("late"), "{client:?}: {out}");
        }
    }
}

#[test]
fn an_error_after_a_finish_reason_with_text_fails_plain_answers_and_streams() {
    let each = [text("Hel", Some("stop")), text("lo", Some("stop")), text(" wor", Some("stop"))].concat();
    let call = chunk(
        &json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]}),
        Some("tool_calls"),
    );
    let malformed = chunk(&json!({"content": 5}), None);
    for start in [&each, &text("Hel", Some("stop")), &call] {
        for late in [ERROR, ABORT, &malformed, "data: {\"choices\":[\n\n"] {
            assert_answer(Dialect::Chat, &[start, late].concat(), None);
            assert_answer(Dialect::Chat, &[start, late, USAGE, DONE].concat(), None);
        }
        assert_answer(Dialect::Chat, start, Some(&[]));
        assert_answer(Dialect::Chat, &[start, DONE, ERROR].concat(), Some(&[]));
    }
    for late in [ERROR, "data: {\"choices\":[\n\n"] {
        let body = [text("Hel", None), text("lo", Some("stop")), USAGE.to_owned(), late.to_owned()].concat();
        assert_answer(Dialect::Chat, &body, Some(&["lo"]));
    }
}

#[test]
fn nothing_is_lost_behind_a_malformed_event() {
    let nameless = chunk(&json!({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}), None);
    let malformed = chunk(&json!({"content": 5}), None);
    for late in [&malformed, "data: {\"choices\":[\n\n", "data: x\n\n"] {
        for finish in [text("Hel", Some("stop")), text("Hel", None) + FINISH] {
            let body = [&*finish, late, &text("lo", Some("stop")), USAGE, DONE].concat();
            assert_answer(Dialect::Chat, &body, None);
        }
        let body = [&*text("Hel", None), FINISH, late, USAGE, DONE].concat();
        assert_answer(Dialect::Chat, &body, Some(&["Hel"]));
    }
    for finish in [text("Hel", Some("stop")), text("Hel", None) + FINISH] {
        assert_answer(Dialect::Chat, &[&*finish, &nameless, USAGE, DONE].concat(), None);
        assert_answer(Dialect::Chat, &[&*finish, ABORT, USAGE, DONE].concat(), None);
    }
}

fn message_event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())
}

/// Returns the event before block 0; nothing before another block.
fn message_start(index: usize) -> String {
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "x", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 9, "output_tokens": 1}});
    let start = message_event(&json!({"type": "message_start", "message": message}));
    if index == 0 { start } else { String::new() }
}

fn text_block(index: usize, text: &str) -> String {
    message_start(index)
        + &message_event(&json!({"type": "content_block_start", "index": index,
            "content_block": {"type": "text", "text": ""}}))
        + &delta(index, text)
        + &message_event(&json!({"type": "content_block_stop", "index": index}))
}

fn delta(index: usize, text: &str) -> String {
    message_event(&json!({"type": "content_block_delta", "index": index,
        "delta": {"type": "text_delta", "text": text}}))
}

fn message_finish(reason: &str) -> String {
    message_event(&json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null},
        "usage": {"output_tokens": 4}}))
}

#[test]
fn a_message_goes_on_after_its_stop_reason() {
    let (first, finish) = (text_block(0, "Hel"), message_finish("end_turn"));
    let stop = message_event(&json!({"type": "message_stop"}));
    let error = message_event(&json!({"type": "error", "error": {"type": "api_error", "message": "x"}}));
    let begun = [&*first, &finish, &text_block(1, "lo")].concat();
    assert_answer(Dialect::Messages, &[&*begun, &error].concat(), None);
    assert_answer(Dialect::Messages, &[&*begun, &message_finish("abort"), &stop].concat(), None);
    assert_answer(Dialect::Messages, &[&*begun, &finish, &stop].concat(), Some(&["Hel", "lo"]));
    for late in [delta(7, "late"), "data: {\"type\":\"content_block_delta\",\n\n".to_owned()] {
        let body = [&*first, &finish, &late, &text_block(1, "lo"), &finish, &stop].concat();
        assert_answer(Dialect::Messages, &body, None);
        assert_answer(Dialect::Messages, &[&*first, &finish, &late, &stop].concat(), Some(&["Hel"]));
    }
}

#[test]
fn nothing_after_the_end_event_is_a_part_of_the_answer() {
    let late = text("late", Some("stop"));
    for end in [DONE.to_owned(), USAGE.to_owned() + DONE] {
        let body = [&*text("Hel", None), FINISH, &end, &late, USAGE, DONE].concat();
        assert_answer(Dialect::Chat, &body, Some(&["Hel"]));
    }
    let stop = message_event(&json!({"type": "message_stop"}));
    let end = message_finish("end_turn") + &stop;
    let body = [&*text_block(0, "Hel"), &end, &text_block(1, "late"), &end].concat();
    assert_answer(Dialect::Messages, &body, Some(&["Hel"]));
}

#[test]
fn a_choice_that_was_not_requested_is_an_error_even_after_the_finish_reason() {
    let call = json!([{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]);
    let first =
        json!({"index": 0, "message": {"role": "assistant", "content": "A"}, "finish_reason": "stop"});
    for index in [0, 1] {
        let second = json!({"index": index, "finish_reason": "tool_calls",
            "message": {"role": "assistant", "content": null, "tool_calls": call}});
        let body = json!({"object": "chat.completion", "choices": [first, second]});
        assert_answer(Dialect::Chat, &body.to_string(), None);
    }
    let second = json!({"choices": [{"index": 1, "delta": {"content": "B"}, "finish_reason": "stop"}]});
    let second = format!("data: {second}\n\n");
    for finish in [text("A", Some("stop")), text("A", None) + FINISH] {
        assert_answer(Dialect::Chat, &[&*finish, &second, DONE].concat(), None);
        assert_answer(Dialect::Chat, &[&*finish, DONE, &second].concat(), Some(&["A"]));
    }
}
