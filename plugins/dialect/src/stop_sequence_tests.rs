//! Tests of stop sequences that the gateway enforces: plain answers and streams stop at the same sequence, however the
//! text is divided.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::{find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;
use serde_json::{Value, json};

/// Stop sequences, a text, the delivered part of the text, and the matched sequence.
const CASES: &[(&[&str], &str, &str, Option<&str>)] = &[
    (&["bcd", "bc"], "abcd", "a", Some("bc")),
    (&["bc", "bcd"], "abcd", "a", Some("bc")),
    (&["cd", "bcd"], "abcd", "a", Some("bcd")),
    (&["bcd", "cd"], "abcd", "a", Some("bcd")),
    (&["abcde", "c"], "abcd", "ab", Some("c")),
    (&["abcd", "bc"], "xabcd", "xa", Some("bc")),
    (&["bcd", "d"], "abcbd bcd", "abcb", Some("d")),
    (&["aab"], "aaab", "a", Some("aab")),
    (&["\u{20ac}u", "\u{20ac}"], "a\u{20ac}u", "a", Some("\u{20ac}")),
    (&["bcx", "cd"], "abcd", "ab", Some("cd")),
    (&["bcx", "dx"], "abcd", "abcd", None),
];

fn sample_request(stop: &[&str]) -> InferenceRequest {
    let body = json!({"model": "m", "max_tokens": 100, "stream": true, "stop_sequences": stop,
        "messages": [{"role": "user", "content": "Hi"}]});
    let mut ask = test_support::sample_request(Dialect::Messages, body.to_string().as_bytes());
    ask.stop = stop.iter().map(|&stop| stop.to_owned()).collect();
    ask
}

/// Returns the text and the matched stop sequence of a message.
fn message_result(message: &Value) -> (String, Option<String>) {
    let blocks = message["content"].as_array().unwrap();
    let text = blocks.iter().map(|block| block["text"].as_str().unwrap()).collect();
    (text, message["stop_sequence"].as_str().map(str::to_owned))
}

fn stream_result(out: &[u8]) -> (String, Option<String>) {
    let (mut text, mut stop) = (String::new(), None);
    for data in String::from_utf8_lossy(out).lines().filter_map(|line| line.strip_prefix("data: ")) {
        let event: Value = serde_json::from_str(data).unwrap();
        text += event["delta"]["text"].as_str().unwrap_or_default();
        stop = stop.or_else(|| event["delta"]["stop_sequence"].as_str().map(str::to_owned));
    }
    (text, stop)
}

fn provider_stream(pieces: &[&str]) -> String {
    let chunk = |delta: Value, finish: Value| {
        format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}))
    };
    let texts: String = pieces.iter().map(|piece| chunk(json!({"content": piece}), Value::Null)).collect();
    texts + &chunk(json!({}), json!("stop")) + "data: [DONE]\n\n"
}

#[test]
fn the_sequence_that_ends_first_stops_plain_answers_and_streams() {
    let abilities = OfferCapabilities { max_stop: Some(0), ..OfferCapabilities::default() };
    let target = test_support::sample_target(Dialect::Chat, &abilities);
    let pair = find_translator(Dialect::Messages, Dialect::Chat).unwrap();
    for (stop, text, expected, met) in CASES {
        let ask = sample_request(stop);
        let expected = ((*expected).to_owned(), met.map(str::to_owned));
        let body = json!({"object": "chat.completion", "choices": [{"index": 0, "finish_reason": "stop",
            "message": {"role": "assistant", "content": text}}]});
        let plain = pair.translate_buffered(&ask, &target, Bytes::from(body.to_string())).unwrap();
        let message: Value = serde_json::from_slice(&plain.body.concat()).unwrap();
        assert_eq!(message_result(&message), expected, "{stop:?} {text}");
        let cuts: Vec<usize> = (0..=text.len()).filter(|at| text.is_char_boundary(*at)).collect();
        for first in &cuts {
            for second in cuts.iter().filter(|at| *at >= first) {
                let pieces = [&text[..*first], &text[*first..*second], &text[*second..]];
                let stream = provider_stream(&pieces);
                let new = || pair.translate_stream(&ask, &target);
                let run = test_support::run_stream(&mut *new(), [stream.as_bytes()]);
                assert_eq!(stream_result(&run.out), expected, "{stop:?} {pieces:?}");
            }
        }
        let letters: Vec<String> = text.chars().map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        let stream = provider_stream(&letters);
        let run = test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), stream.as_bytes());
        assert_eq!(stream_result(&run.out), expected, "{stop:?} {text}");
    }
}

#[test]
fn an_answer_that_is_cut_after_a_call_ends_with_the_call() {
    let abilities = OfferCapabilities { max_stop: Some(0), ..OfferCapabilities::default() };
    let target = test_support::sample_target(Dialect::Chat, &abilities);
    let call = json!([{"index": 0, "id": "a", "type": "function",
        "function": {"name": "f", "arguments": "{}"}}]);
    let chunk = |delta: Value, finish: Value| {
        format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}))
    };
    let stream = chunk(json!({"tool_calls": call}), Value::Null)
        + &chunk(json!({"content": "Hi END x"}), Value::Null)
        + &chunk(json!({}), json!("stop"))
        + "data: [DONE]\n\n";
    let plain = json!({"object": "chat.completion", "choices": [{"index": 0, "finish_reason": "stop",
        "message": {"role": "assistant", "content": "Hi END x", "tool_calls": call}}]});
    for (client, reason) in [
        (Dialect::Chat, r#""finish_reason":"tool_calls""#),
        (Dialect::Messages, r#""stop_reason":"tool_use""#),
    ] {
        let ask = InferenceRequest {
            stop: vec!["END".to_owned()],
            ..crate::stream_format_tests::sample_request(client, true)
        };
        let pair = find_translator(client, Dialect::Chat).unwrap();
        let run = test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), stream.as_bytes());
        let run = String::from_utf8(run.out).unwrap();
        assert!(run.contains(reason) && !run.contains(r#""stop""#), "{client:?}: {run}");
        // The text of a plain answer comes before its calls.
        for (body, reason) in [(stream.clone(), reason), (plain.to_string(), "")] {
            let answer = pair.translate_buffered(&ask, &target, Bytes::from(body)).unwrap();
            let text = String::from_utf8(answer.body.concat()).unwrap();
            assert!(text.contains(reason), "{client:?}: {text}");
        }
    }
}
