//! Tests of streams whose finish reason comes before the end of the answer.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::stream_format_tests::sample_request;
use crate::{conformance, find_translator, test_support};
use bytes::Bytes;
use penstock_core::{Dialect, FinishReason, OfferCapabilities, OutputBuffer, StreamProgress};
use test_support::sample_target;

const ROLE: &str = r#"{"delta":{"role":"assistant"},"finish_reason":"stop"}"#;
const TEXT: &str = r#"{"delta":{"content":"One "},"finish_reason":null}"#;
const LAST_TEXT: &str = r#"{"delta":{"content":"two"},"finish_reason":"stop"}"#;
const FINISH: &str = r#"{"delta":{},"finish_reason":"stop"}"#;
const USAGE: &str = r#""usage":{"prompt_tokens":3,"completion_tokens":2}"#;

/// Returns the event of a chunk with these choices and further members.
fn chunk(choices: &str, more: &str) -> String {
    let more = if more.is_empty() { String::new() } else { format!(",{more}") };
    format!("data: {{\"choices\":[{choices}]{more}}}\n\n")
}

/// Splits these events at each byte. Returns the progress of the stream after them, and true if its finish reason is
/// unconfirmed; asserts that both are the same for each split.
fn progress_after(client: Dialect, events: &[String]) -> (StreamProgress, bool) {
    let ask = sample_request(client, true);
    let abilities = OfferCapabilities::default();
    let target = sample_target(Dialect::Chat, &abilities);
    let pair = find_translator(client, Dialect::Chat).unwrap();
    let stream = events.concat();
    let states: Vec<_> = (0..=stream.len())
        .map(|split| {
            let mut translation = pair.translate_stream(&ask, &target);
            let mut out = OutputBuffer::default();
            for part in [&stream[..split], &stream[split..]] {
                translation.push(Bytes::from(part.to_owned()), &mut out).unwrap();
            }
            assert!(out.is_empty() || translation.progress() > StreamProgress::Pending);
            (translation.progress(), translation.has_unconfirmed_finish())
        })
        .collect();
    assert!(states.iter().all(|state| *state == states[0]), "depends on the boundaries of chunks");
    states[0]
}

#[test]
fn a_finish_reason_is_confirmed_by_usage_after_the_last_output() {
    use StreamProgress::{Committed, Ended, Finished};
    let (text, last) = (chunk(TEXT, ""), chunk(LAST_TEXT, ""));
    let cases = [
        (vec![text.clone(), chunk(FINISH, "")], (Finished, true)),
        (vec![text.clone(), chunk(FINISH, USAGE)], (Finished, false)),
        (vec![text.clone(), chunk(FINISH, ""), chunk("", USAGE)], (Finished, false)),
        (vec![text.clone(), last.clone()], (Finished, true)),
        (vec![text.clone(), last.clone(), chunk("", USAGE)], (Finished, false)),
        (vec![text.clone(), chunk(LAST_TEXT, USAGE)], (Finished, true)),
        (vec![chunk(TEXT, USAGE), chunk(FINISH, "")], (Finished, true)),
        (vec![text.clone(), last.clone(), text.clone()], (Committed, false)),
        (vec![text.clone(), last.clone(), last.clone()], (Committed, false)),
        (vec![text.clone(), last.clone(), last.clone(), chunk("", USAGE)], (Finished, false)),
        (vec![text.clone(), last.clone(), text.clone(), chunk("", USAGE)], (Committed, false)),
        (vec![chunk(ROLE, ""), text.clone()], (Committed, false)),
        (vec![chunk(ROLE, ""), last.clone(), chunk("", USAGE)], (Finished, false)),
        (vec![text.clone(), last, "data: [DONE]\n\n".to_owned()], (Ended, false)),
    ];
    for client in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
        for (events, expected) in &cases {
            assert_eq!(progress_after(client, events), *expected, "{client:?}: {events:?}");
        }
    }
}

#[test]
fn a_finish_reason_before_the_output_does_not_commit_the_stream() {
    use StreamProgress::{Ended, Finished, Pending};
    let role = chunk(ROLE, "");
    let cases = [
        (vec![role.clone()], (Pending, false)),
        (vec![role.clone(), chunk("", USAGE)], (Finished, false)),
        (vec![role, "data: [DONE]\n\n".to_owned()], (Ended, false)),
    ];
    for client in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
        for (events, expected) in &cases {
            assert_eq!(progress_after(client, events), *expected, "{client:?}: {events:?}");
        }
    }
}

#[test]
fn output_after_a_finish_reason_is_passed_on() {
    let stream =
        [chunk(ROLE, ""), chunk(LAST_TEXT, USAGE), chunk(LAST_TEXT, USAGE), chunk("", USAGE)].concat();
    for client in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
        let ask = sample_request(client, true);
        let abilities = OfferCapabilities::default();
        let target = sample_target(Dialect::Chat, &abilities);
        let pair = find_translator(client, Dialect::Chat).unwrap();
        let run = test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), stream.as_bytes());
        assert_eq!(run.fault, None, "{client:?}");
        assert_eq!(conformance::check_stream(client, &run.out, false), Ok(()), "{client:?}");
        let text = String::from_utf8_lossy(&run.out);
        assert!(text.matches("two").count() >= 2, "{client:?}: {text}");
    }
}

#[test]
fn an_error_after_a_finish_reason_with_text_is_ignored_only_with_usage_behind_the_text() {
    let (text, last) = (chunk(TEXT, ""), chunk(LAST_TEXT, ""));
    let (text_with_usage, last_with_usage) = (chunk(TEXT, USAGE), chunk(LAST_TEXT, USAGE));
    let cases = [
        (vec![text.clone(), last.clone()], true),
        (vec![text.clone(), last_with_usage.clone()], true),
        (vec![text_with_usage.clone(), last.clone()], true),
        (vec![text_with_usage.clone(), last_with_usage.clone()], true),
        (vec![text_with_usage, last_with_usage, chunk("", USAGE)], false),
        (vec![text.clone(), last, chunk("", USAGE)], false),
        (vec![text, chunk(FINISH, "")], false),
    ];
    let error = "data: {\"error\":{\"message\":\"The engine has stopped.\",\"code\":500}}\n\n";
    for client in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
        for (events, is_reported) in &cases {
            let ask = sample_request(client, true);
            let abilities = OfferCapabilities::default();
            let target = sample_target(Dialect::Chat, &abilities);
            let pair = find_translator(client, Dialect::Chat).unwrap();
            let stream = events.concat() + error;
            let run =
                test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), stream.as_bytes());
            assert_eq!(run.fault.is_some(), *is_reported, "{client:?}: {events:?}");
        }
    }
}

#[test]
fn a_broken_stream_is_no_complete_plain_answer_because_of_an_estimate() {
    let abilities = OfferCapabilities::default();
    let target = sample_target(Dialect::Chat, &abilities);
    let texts =
        (0..20).map(|_| chunk(r#"{"index":0,"delta":{"role":"assistant","content":"One two three"}}"#, ""));
    let texts: String = texts.collect();
    let usage = r#""usage":{"prompt_tokens":3,"completion_tokens":2}"#;
    let error = "data: {\"error\":{\"message\":\"the engine failed\"}}\n\n";
    for (end, is_complete) in [
        (String::new(), false),
        (error.to_owned(), false),
        ("data: [DONE]\n\n".to_owned(), false),
        (chunk("", usage) + error, false),
        (chunk("", usage), true),
    ] {
        let pair = find_translator(Dialect::Chat, Dialect::Chat).unwrap();
        let body = Bytes::from(texts.clone() + &end);
        let answer = pair.translate_buffered(&capped(Dialect::Chat, false, 1), &target, body);
        assert_eq!(answer.is_ok(), is_complete, "{end}");
    }
}

/// Request with a cap of two tokens for each of `n` choices.
fn capped(client: Dialect, stream: bool, n: usize) -> penstock_core::InferenceRequest {
    let mut body = serde_json::json!({"model": "m", "stream": stream, "n": n, "max_tokens": 2,
        "messages": [{"role": "user", "content": "Hi"}], "input": "Hi"});
    let foreign: &[&str] = match client {
        Dialect::Responses => &["messages", "n"],
        Dialect::Messages => &["input", "n"],
        _ => &["input"],
    };
    foreign.iter().for_each(|name| drop(body.as_object_mut().unwrap().remove(*name)));
    test_support::sample_request(client, body.to_string().as_bytes())
}

#[test]
fn choices_without_a_finish_reason_end_with_length_at_their_cap() {
    let abilities = OfferCapabilities::default();
    let target = sample_target(Dialect::Chat, &abilities);
    for client in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
        let pair = find_translator(client, Dialect::Chat).unwrap();
        let counts: &[usize] = if client == Dialect::Chat { &[1, 3] } else { &[1] };
        for (n, is_full) in counts.iter().flat_map(|n| [(*n, true), (*n, false)]) {
            let tokens = if is_full { n * 2 } else { n * 2 - 1 };
            let usage = format!(r#""usage":{{"prompt_tokens":3,"completion_tokens":{tokens}}}"#);
            let choices = |member: &str| -> Vec<String> {
                let text = r#"{"role":"assistant","content":"One two"}"#;
                (0..n).map(|index| format!(r#"{{"index":{index},"{member}":{text}}}"#)).collect()
            };
            let body = format!(r#"{{"choices":[{}],{usage}}}"#, choices("message").join(","));
            let answer =
                pair.translate_buffered(&capped(client, false, n), &target, Bytes::from(body)).unwrap();
            let text = String::from_utf8(answer.body.concat()).unwrap();
            let (cut, whole) = match client {
                Dialect::Chat => (r#""finish_reason":"length""#, r#""finish_reason":"stop""#),
                Dialect::Messages => (r#""stop_reason":"max_tokens""#, r#""stop_reason":"end_turn""#),
                _ => (r#""status":"incomplete""#, r#""status":"completed""#),
            };
            assert!(text.contains(if is_full { cut } else { whole }), "{n} {is_full}: {text}");
            if client == Dialect::Chat {
                assert_eq!(text.matches(cut).count(), if is_full { n } else { 0 }, "{text}");
            }
            let texts: String = choices("delta").iter().map(|choice| chunk(choice, "")).collect();
            for end in ["data: [DONE]\n\n", ""] {
                let stream = texts.clone() + &chunk("", &usage) + end;
                let ask = capped(client, true, n);
                let run =
                    test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), stream.as_bytes());
                let fault = run.fault.map(|kind| kind.name());
                assert_eq!(fault, (!is_full).then_some("truncated"), "{client:?} {n} {end:?}");
                let text = String::from_utf8(run.out).unwrap();
                let cut = if client == Dialect::Responses { "event: response.incomplete" } else { cut };
                assert_eq!(text.contains(cut), is_full, "{client:?} {n} {end:?}: {text}");
            }
        }
    }
}

#[test]
fn an_empty_finish_reason_ends_an_answer_that_its_provider_ended() {
    let abilities = OfferCapabilities::default();
    let target = sample_target(Dialect::Chat, &abilities);
    let text =
        |index| chunk(&format!(r#"{{"index":{index},"delta":{{"content":"word"}},"finish_reason":""}}"#), "");
    let empty = |index| chunk(&format!(r#"{{"index":{index},"delta":{{}},"finish_reason":""}}"#), "");
    let stop = |index| chunk(&format!(r#"{{"index":{index},"delta":{{}},"finish_reason":"stop"}}"#), "");
    let (usage, done) = (chunk("", USAGE), "data: [DONE]\n\n".to_owned());
    let cases = [
        (1, [text(0), empty(0), usage.clone(), done.clone()].concat(), true),
        (1, [text(0), empty(0), usage.clone()].concat(), false),
        (1, [text(0), empty(0), done.clone()].concat(), false),
        (1, [text(0), usage.clone(), done.clone()].concat(), false),
        (1, [empty(0), text(0), usage.clone(), done.clone()].concat(), false),
        (1, [text(0), usage.clone(), done.clone(), empty(0), usage.clone(), done.clone()].concat(), false),
        (1, [text(0), usage.clone(), done.clone(), stop(0), usage.clone(), done.clone()].concat(), false),
        (1, [text(0), empty(0), usage.clone(), done.clone(), text(0)].concat(), true),
        (2, [text(0), text(1), empty(0), empty(1), usage.clone(), done.clone()].concat(), true),
        (2, [text(0), text(1), empty(0), usage.clone(), done.clone()].concat(), false),
        (2, [text(0), empty(0), usage.clone(), done].concat(), false),
    ];
    for client in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
        for (n, stream, is_complete) in cases.iter().filter(|(n, ..)| *n == 1 || client == Dialect::Chat) {
            let pair = find_translator(client, Dialect::Chat).unwrap();
            let ask = penstock_core::InferenceRequest { max_tokens: None, ..capped(client, true, *n) };
            let run =
                test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), stream.as_bytes());
            assert_eq!(run.fault.is_none(), *is_complete, "{client:?}: {stream}");
            let ask = penstock_core::InferenceRequest { max_tokens: None, ..capped(client, false, *n) };
            let plain = pair.translate_buffered(&ask, &target, Bytes::from(stream.clone()));
            assert_eq!(plain.is_ok(), *is_complete, "{client:?}: {stream}");
        }
        for (finish, tokens) in ["", r#","finish_reason":null"#, r#","finish_reason":"""#]
            .into_iter()
            .flat_map(|finish| [(finish, 1), (finish, 2)])
        {
            let body = format!(
                r#"{{"choices":[{{"index":0,"message":{{"content":"One two"}}{finish}}}],"usage":{{"prompt_tokens":3,"completion_tokens":{tokens}}}}}"#
            );
            let pair = find_translator(client, Dialect::Chat).unwrap();
            let plain =
                pair.translate_buffered(&capped(client, false, 1), &target, Bytes::from(body)).unwrap();
            let expected = if tokens == 2 { FinishReason::Length } else { FinishReason::Stop };
            assert_eq!(plain.finish_reason, expected, "{client:?} {finish}");
        }
    }
}
