//! Rescue tests: a second provider continues the answer after the first stream breaks.

use super::super::TRANSLATOR;
use crate::test_support;
use bytes::Bytes;
use penstock_core::*;
use serde_json::{Value, json};

fn chunk(delta: Value) -> String {
    format!("data: {}\n\n", json!({"id":"x","choices":[{"index":0,"delta":delta,"finish_reason":null}]}))
}

fn text_chunk(text: &str) -> String {
    chunk(json!({ "content": text }))
}

fn call_chunk(index: u32, id: &str, name: &str, arguments: &str) -> String {
    let function = json!({"name": name, "arguments": arguments});
    chunk(json!({"tool_calls":[{"index":index,"id":id,"type":"function","function":function}]}))
}

fn finish_chunk(reason: &str) -> String {
    format!("data: {}\n\n", json!({"choices":[{"index":0,"delta":{},"finish_reason":reason}]}))
}

/// Runs a rescue: the first provider's stream breaks, the second provider's complete stream follows.
fn run_rescue(body: &str, first: &str, how: RescueMode, second: &str) -> (test_support::StreamRun, Vec<u8>) {
    let ask = test_support::sample_request(Dialect::Chat, body.as_bytes());
    let abilities = OfferCapabilities { parameters: vec!["logprobs".into()], ..OfferCapabilities::default() };
    let target = test_support::sample_target(Dialect::Chat, &abilities);
    let mut reply = TRANSLATOR.translate_stream(&ask, &target);
    let mut out = OutputBuffer::default();
    reply.push(Bytes::from(first.to_owned()), &mut out).unwrap();
    assert_eq!(reply.end(&mut out).unwrap_err().kind, UpstreamErrorKind::Truncated);
    assert!(reply.start_rescue(&target, how), "a rescue must be possible here");
    let before = out.0.concat();
    let run = test_support::run_stream(&mut *reply, second.as_bytes().chunks(5));
    let all = [before, run.out.clone()].concat();
    if run.fault.is_none() || !all.is_empty() {
        assert_eq!(
            crate::conformance::check_chat_stream(&all, false),
            Ok(()),
            "{}",
            String::from_utf8_lossy(&all)
        );
    }
    (run, all)
}

const ASK: &str = r#"{"model":"m","messages":[],"stream":true}"#;

fn delivered_text(out: &[u8]) -> String {
    let text = String::from_utf8(out.to_vec()).unwrap();
    let chunks = text.split("\n\n").filter_map(|event| event.strip_prefix("data: {"));
    chunks
        .map(|chunk| serde_json::from_str::<Value>(&format!("{{{chunk}")).unwrap())
        .map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn usage_of_each_attempt_covers_its_own_output() {
    let ask = test_support::sample_request(Dialect::Chat, ASK.as_bytes());
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(Dialect::Chat, &abilities);
    for how in [RescueMode::StartOver, RescueMode::Continue] {
        let mut reply = TRANSLATOR.translate_stream(&ask, &target);
        let mut out = OutputBuffer::default();
        reply.push(Bytes::from(text_chunk(&"x".repeat(400))), &mut out).unwrap();
        assert_eq!(reply.attempt_usage().output, 100);
        assert!(reply.start_rescue(&target, how));
        assert_eq!(reply.attempt_usage().output, 0, "it has not answered yet");
        reply.push(Bytes::from(text_chunk(&"x".repeat(40))), &mut out).unwrap();
        assert_eq!(reply.attempt_usage().output, 10);
        assert!(reply.delivered_text_bytes() >= 400);
    }
}

#[test]
fn usage_of_an_attempt_covers_its_output_beyond_the_reported_usage() {
    let ask = test_support::sample_request(Dialect::Chat, ASK.as_bytes());
    let abilities = OfferCapabilities::default();
    let mut reply =
        TRANSLATOR.translate_stream(&ask, &test_support::sample_target(Dialect::Chat, &abilities));
    let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}\n\n";
    let mut say =
        |data: &str| reply.push(Bytes::from(data.to_owned()), &mut OutputBuffer::default()).unwrap();
    say(&(usage.to_owned() + &text_chunk(&"x".repeat(400))));
    assert_eq!((reply.attempt_usage().input, reply.attempt_usage().output), (9, 100));
    let mut say =
        |data: &str| reply.push(Bytes::from(data.to_owned()), &mut OutputBuffer::default()).unwrap();
    say(&(finish_chunk("stop") + &usage.replace("\":1}", "\":90}")));
    assert_eq!(reply.attempt_usage().output, 90, "at its end it knows better");
}

#[test]
fn a_rescue_with_the_same_text_continues_after_the_delivered_prefix() {
    let first = text_chunk("Hello, ") + &text_chunk("wor");
    let second =
        text_chunk("Hel") + &text_chunk("lo, world. And ") + &text_chunk("more.") + &finish_chunk("stop");
    let (run, all) = run_rescue(ASK, &first, RescueMode::StartOver, &second);
    assert_eq!(run.fault, None);
    assert_eq!(delivered_text(&all), "Hello, world. And more.");
    assert_eq!(run.output_bytes, "Hello, world. And more.".len());
}

#[test]
fn escape_spelling_is_not_a_divergence() {
    let first =
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\\u0048\\u00e9 \\ud83d\\ude00\"}}]}\n\n";
    let (run, all) =
        run_rescue(ASK, first, RescueMode::StartOver, &(text_chunk("Hé 😀!") + &finish_chunk("stop")));
    assert_eq!(run.fault, None);
    assert_eq!(delivered_text(&all), "Hé 😀!");
}

#[test]
fn a_rescue_with_another_text_ends_in_an_error() {
    let second = text_chunk("Hello, there") + &finish_chunk("stop");
    let (run, all) = run_rescue(ASK, &text_chunk("Hello, wor"), RescueMode::StartOver, &second);
    assert_eq!(run.fault, Some(UpstreamErrorKind::Diverged));
    assert_eq!(delivered_text(&all), "Hello, wor");
    assert!(!String::from_utf8(all).unwrap().contains("\"finish_reason\":\""));
}

#[test]
fn an_earlier_end_is_a_divergence() {
    let (run, _) = run_rescue(
        ASK,
        &text_chunk("Hello, wor"),
        RescueMode::StartOver,
        &(text_chunk("Hello") + &finish_chunk("stop")),
    );
    assert_eq!(run.fault, Some(UpstreamErrorKind::Diverged));
}

#[test]
fn reasoning_after_delivered_text_has_diverged() {
    let first = chunk(json!({"reasoning":"Hm."})) + &text_chunk("A");
    let second = chunk(json!({"reasoning_content":"Hm. Well."})) + &text_chunk("A") + &finish_chunk("stop");
    let (run, _) = run_rescue(ASK, &first, RescueMode::StartOver, &second);
    assert_eq!(run.fault, Some(UpstreamErrorKind::Diverged));
    let second = chunk(json!({"reasoning_content":"Hm."})) + &text_chunk("AB") + &finish_chunk("stop");
    let (run, all) = run_rescue(ASK, &first, RescueMode::StartOver, &second);
    assert_eq!((run.fault, delivered_text(&all).as_str()), (None, "AB"));
}

#[test]
fn tool_calls_are_compared_by_name_and_arguments_and_retain_the_first_id() {
    let first = call_chunk(0, "call_a", "f", r#"{"a":1}"#) + &call_chunk(1, "call_b", "g", r#"{"b"#);
    let second = call_chunk(0, "call_x", "f", r#"{"a":1}"#)
        + &call_chunk(1, "call_y", "g", r#"{"b":2}"#)
        + &call_chunk(2, "call_z", "h", "{}")
        + &finish_chunk("tool_calls");
    let (run, all) = run_rescue(ASK, &first, RescueMode::StartOver, &second);
    assert_eq!(run.fault, None);
    let all = String::from_utf8(all).unwrap();
    assert!(
        all.contains("call_b")
            && !all.contains("call_x")
            && !all.contains("call_y")
            && all.contains("call_z")
    );
    let other = call_chunk(0, "call_x", "f", r#"{"a":2}"#) + &finish_chunk("tool_calls");
    assert_eq!(
        run_rescue(ASK, &first, RescueMode::StartOver, &other).0.fault,
        Some(UpstreamErrorKind::Diverged)
    );
}

#[test]
fn each_candidate_is_compared_by_itself() {
    let of = |choice: u32, text: &str| {
        format!("data: {}\n\n", json!({"choices":[{"index":choice,"delta":{"content":text}}]}))
    };
    let finish = |choice: u32| {
        format!("data: {}\n\n", json!({"choices":[{"index":choice,"delta":{},"finish_reason":"stop"}]}))
    };
    let ask = r#"{"model":"m","messages":[],"stream":true,"n":2}"#;
    let first = of(0, "one") + &of(1, "tw") + &finish(0);
    let second = of(1, "two") + &of(0, "one") + &finish(0) + &finish(1);
    let (run, all) = run_rescue(ask, &first, RescueMode::StartOver, &second);
    assert_eq!(run.fault, None);
    assert_eq!(delivered_text(&all), "onetwo");
    let truncated = of(1, "two") + &of(0, "o") + &finish(0) + &finish(1);
    assert_eq!(
        run_rescue(ask, &first, RescueMode::StartOver, &truncated).0.fault,
        Some(UpstreamErrorKind::Diverged)
    );
}

#[test]
fn a_continuation_is_forwarded_from_its_first_token_without_total_usage() {
    let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2}}\n\n";
    let second = text_chunk("ld.") + &finish_chunk("stop") + usage;
    let (run, all) = run_rescue(ASK, &text_chunk("Hello, wor"), RescueMode::Continue, &second);
    assert_eq!((run.fault, delivered_text(&all).as_str(), run.usage), (None, "Hello, world.", None));
}

#[test]
fn a_continuation_that_starts_over_is_delivered_without_the_repeated_text() {
    for (first, second, expected) in [
        ("Hello, small wor", "Hello, small world.", "Hello, small world."),
        ("Hello, small wor", "Hello, small wor", "Hello, small wor"),
        ("Hello, small wor", "Hello, small Wor", "Hello, small worHello, small Wor"),
        ("Hello, small wor", "ld.", "Hello, small world."),
        ("10", "1010", "101010"),
    ] {
        for at in 0..=second.len() {
            let (one, other) = second.split_at(at);
            let second = text_chunk(one) + &text_chunk(other) + &finish_chunk("stop");
            let (run, all) = run_rescue(ASK, &text_chunk(first), RescueMode::Continue, &second);
            assert_eq!((run.fault, delivered_text(&all).as_str()), (None, expected), "{at}");
            assert_eq!(run.output_bytes, expected.len());
        }
    }
}

#[test]
fn delivered_text_is_returned_only_if_it_can_be_continued() {
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(Dialect::Chat, &abilities);
    let delivered = |body: &str, stream: &str| {
        let mut reply = TRANSLATOR
            .translate_stream(&test_support::sample_request(Dialect::Chat, body.as_bytes()), &target);
        reply.push(Bytes::from(stream.to_owned()), &mut OutputBuffer::default()).unwrap();
        let delivered_text = reply.delivered_text();
        assert_eq!(reply.start_rescue(&target, RescueMode::Continue), delivered_text.is_some());
        delivered_text
    };
    assert_eq!(delivered(ASK, &(text_chunk("a\n\"") + &text_chunk("é"))), Some("a\n\"é".to_owned()));
    assert_eq!(delivered(ASK, &call_chunk(0, "c", "f", "")), None);
    assert_eq!(delivered(ASK, &(chunk(json!({"reasoning":"r"})) + &text_chunk("a"))), None);
    assert_eq!(delivered(r#"{"model":"m","messages":[],"stream":true,"n":2}"#, &text_chunk("a")), None);
    assert_eq!(delivered(ASK, &text_chunk(&"long ".repeat(60_000))), None);
}

#[test]
fn an_answer_that_cannot_be_compared_is_not_restarted() {
    let abilities = OfferCapabilities { parameters: vec!["logprobs".into()], ..OfferCapabilities::default() };
    let target = test_support::sample_target(Dialect::Chat, &abilities);
    let can = |body: &str, stream: &str| {
        let mut reply = TRANSLATOR
            .translate_stream(&test_support::sample_request(Dialect::Chat, body.as_bytes()), &target);
        reply.push(Bytes::from(stream.to_owned()), &mut OutputBuffer::default()).unwrap();
        reply.start_rescue(&target, RescueMode::StartOver)
    };
    assert!(can(ASK, &text_chunk("a")));
    assert!(!can(r#"{"model":"m","messages":[],"stream":true,"logprobs":true}"#, &text_chunk("a")));
    for carries_none in [r#""logit_bias":{"1":2}"#, r#""logprobs":false"#, r#""top_logprobs":2"#] {
        assert!(
            can(&format!("{}{carries_none}}}", ASK.replace('}', ",")), &text_chunk("a")),
            "{carries_none}"
        );
    }
    assert!(!can(ASK, &text_chunk(&"long ".repeat(60_000))), "more than is kept");
    assert!(!can(ASK, &(text_chunk("a") + &finish_chunk("stop"))), "nothing is left to rescue");
}
