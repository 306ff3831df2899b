//! Tests of providers that begin an answer with the prefill again: clients get only the continuation.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::{find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;
use serde_json::{Value, json};

const PREFILL: &str = "Die Größe ist";
/// Texts of the provider, with the text for the client.
const CASES: &[(&str, &str)] = &[
    ("Die Größe ist 42", " 42"),
    (" 42", " 42"),
    ("Die Größe ist", ""),
    ("Die Größe war 42", "Die Größe war 42"),
    ("Die Größe", "Die Größe"),
    ("Die Größe istDie Größe ist", "Die Größe ist"),
    ("D", "D"),
];

fn sample_request(client: Dialect, n: u32) -> InferenceRequest {
    let body = json!({"model": "m", "max_tokens": 100, "stream": true, "n": n, "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "text", "text": "Die "}, {"type": "text", "text": "Größe ist"}]}]});
    let mut ask = test_support::sample_request(client, body.to_string().as_bytes());
    ask.required.prefill = true;
    ask
}

fn abilities(prefill: PrefillMethod) -> OfferCapabilities {
    let continuation = Some(ContinuationMethod::Prefill);
    OfferCapabilities { prefill, continuation, ..OfferCapabilities::default() }
}

fn chunk(choice: u32, delta: &Value, finish: &Value) -> String {
    format!("data: {}\n\n", json!({"choices": [{"index": choice, "delta": delta, "finish_reason": finish}]}))
}

fn stream(pieces: &[&str]) -> String {
    let texts: String =
        pieces.iter().map(|piece| chunk(0, &json!({"content": piece}), &Value::Null)).collect();
    texts + &chunk(0, &json!({}), &json!("stop")) + "data: [DONE]\n\n"
}

/// Returns the text of one choice in a stream of the client's dialect.
fn streamed_text(out: &[u8], choice: u64) -> String {
    let mut text = String::new();
    for data in String::from_utf8_lossy(out).lines().filter_map(|line| line.strip_prefix("data: ")) {
        let Ok(event) = serde_json::from_str::<Value>(data) else { continue };
        text += event["delta"]["text"].as_str().unwrap_or_default();
        for delta in
            event["choices"].as_array().into_iter().flatten().filter(|delta| delta["index"] == choice)
        {
            text += delta["delta"]["content"].as_str().unwrap_or_default();
        }
    }
    text
}

fn buffered_text(body: &Value) -> String {
    let text = body["content"][0]["text"].as_str().or(body["choices"][0]["message"]["content"].as_str());
    text.unwrap_or_default().to_owned()
}

#[test]
fn the_repeated_prefill_is_removed_however_the_text_is_divided() {
    let abilities = abilities(PrefillMethod::Prefix);
    let target = test_support::sample_target(Dialect::Chat, &abilities);
    for client in [Dialect::Chat, Dialect::Messages] {
        let ask = sample_request(client, 1);
        let pair = find_translator(client, Dialect::Chat).unwrap();
        for (text, expected) in CASES {
            let body = json!({"object": "chat.completion", "choices": [{"index": 0, "finish_reason": "stop",
                "message": {"role": "assistant", "content": text}}]});
            let plain = pair.translate_buffered(&ask, &target, Bytes::from(body.to_string())).unwrap();
            let answer: Value = serde_json::from_slice(&plain.body.concat()).unwrap();
            assert_eq!(buffered_text(&answer), *expected, "{client:?} {text}");
            for at in (0..=text.len()).filter(|at| text.is_char_boundary(*at)) {
                let stream = stream(&[&text[..at], &text[at..]]);
                let mut reply = pair.translate_stream(&ask, &target);
                let run = test_support::run_stream(&mut *reply, [stream.as_bytes()]);
                assert_eq!(streamed_text(&run.out, 0), *expected, "{client:?} {text} {at}");
            }
            let letters: Vec<String> = text.chars().map(String::from).collect();
            let stream = stream(&letters.iter().map(String::as_str).collect::<Vec<_>>());
            let new = || pair.translate_stream(&ask, &target);
            let run = test_support::run_all_splits(&new, stream.as_bytes());
            assert_eq!(
                (streamed_text(&run.out, 0).as_str(), run.fault),
                (*expected, None),
                "{client:?} {text}"
            );
        }
    }
}

#[test]
fn each_choice_is_compared_and_reasoning_passes() {
    let abilities = abilities(PrefillMethod::Prefix);
    let target = test_support::sample_target(Dialect::Chat, &abilities);
    let (ask, pair) =
        (sample_request(Dialect::Chat, 2), find_translator(Dialect::Chat, Dialect::Chat).unwrap());
    let stream = [
        chunk(0, &json!({"reasoning_content": "Hm."}), &Value::Null),
        chunk(0, &json!({"content": "Die Gr"}), &Value::Null),
        chunk(1, &json!({"content": PREFILL}), &Value::Null),
        chunk(0, &json!({"content": "öße ist 42"}), &json!("stop")),
        chunk(1, &json!({"content": " 43"}), &json!("stop")),
        "data: [DONE]\n\n".to_owned(),
    ]
    .concat();
    let run = test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), stream.as_bytes());
    assert_eq!((streamed_text(&run.out, 0), streamed_text(&run.out, 1)), (" 42".into(), " 43".into()));
    assert!(String::from_utf8_lossy(&run.out).contains("Hm."));
}

#[test]
fn text_is_kept_without_the_mark_and_without_a_prefill() {
    let pair = find_translator(Dialect::Messages, Dialect::Chat).unwrap();
    for (prefill, is_prefilled) in [
        (PrefillMethod::Automatic, true),
        (PrefillMethod::ContinueFinalMessage, true),
        (PrefillMethod::Prefix, false),
    ] {
        let abilities = abilities(prefill);
        let target = test_support::sample_target(Dialect::Chat, &abilities);
        let mut ask = sample_request(Dialect::Messages, 1);
        ask.required.prefill = is_prefilled;
        let stream = stream(&["Die Größe ist 42"]);
        let run = test_support::run_stream(&mut *pair.translate_stream(&ask, &target), [stream.as_bytes()]);
        assert_eq!(streamed_text(&run.out, 0), "Die Größe ist 42", "{prefill:?}");
    }
}

#[test]
fn a_second_provider_that_repeats_prefill_and_delivered_text_continues_without_both() {
    let abilities = abilities(PrefillMethod::Prefix);
    let target = test_support::sample_target(Dialect::Chat, &abilities);
    for client in [Dialect::Chat, Dialect::Messages] {
        let ask = sample_request(client, 1);
        let pair = find_translator(client, Dialect::Chat).unwrap();
        for (mode, second) in [
            (RescueMode::Continue, "Die Größe ist 42 m."),
            (RescueMode::Continue, " m."),
            (RescueMode::StartOver, "Die Größe ist 42 m."),
            (RescueMode::StartOver, " 42 m."),
        ] {
            let mut reply = pair.translate_stream(&ask, &target);
            let mut out = OutputBuffer::default();
            let first = chunk(0, &json!({"content": "Die Größe ist 42"}), &Value::Null);
            reply.push(Bytes::from(first), &mut out).unwrap();
            assert!(reply.start_rescue(&target, mode), "{client:?} {mode:?}");
            reply.push(Bytes::from(stream(&[&second[..2], &second[2..]])), &mut out).unwrap();
            assert_eq!(streamed_text(&out.0.concat(), 0), " 42 m.", "{client:?} {mode:?} {second}");
        }
    }
}
