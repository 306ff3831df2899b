//! Tests of unusual forms of a provider's stream, for each pair of dialects and at every split.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use crate::test_support::{self, StreamRun};
use crate::{classify, conformance, find_translator, translators};
use bytes::Bytes;
use penstock_core::*;
use penstock_request_validation::{RequestLimits, ResponsesPurpose, validate_responses_request};
use serde_json::Value;
use std::path::Path;

const DIALECTS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];

pub(crate) fn sample_request(client: Dialect, stream: bool) -> InferenceRequest {
    let body = |input: &str| format!(r#"{{"model":"m",{input},"stream":{stream}}}"#);
    if client == Dialect::Responses {
        let body = Bytes::from(body(r#""input":"Hi""#));
        return validate_responses_request(body, &RequestLimits::default(), ResponsesPurpose::Generate)
            .unwrap();
    }
    let messages = r#""max_tokens":500,"messages":[{"role":"user","content":"Hi"}]"#;
    test_support::sample_request(client, body(messages).as_bytes())
}

/// Returns a stream of text of a provider's dialect.
fn text_stream(provider: Dialect) -> String {
    let case = match provider {
        Dialect::Chat => "chat_chat/text_include_usage",
        other => &format!("chat_{}/stream_text", other.name()),
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(case).join("got.sse");
    let text = std::fs::read_to_string(path).unwrap();
    if text.contains("data: ") {
        return text;
    }
    // A provider of JSON lines.
    text.lines().map(|line| format!("data: {line}\n\n")).collect()
}

/// Returns the data of the events of a stream, each in one line.
fn data_lines(stream: &str) -> Vec<&str> {
    stream.lines().filter_map(|line| line.strip_prefix("data: ")).collect()
}

/// Streams a provider's answer to a client at every split, and checks the grammar of the output.
fn run_stream(client: Dialect, provider: Dialect, stream: &str) -> StreamRun {
    let ask = sample_request(client, true);
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(provider, &abilities);
    let pair = find_translator(client, provider).unwrap();
    let run = test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), stream.as_bytes());
    let checked =
        if run.out.is_empty() { Ok(()) } else { conformance::check_stream(client, &run.out, false) };
    assert_eq!(checked, Ok(()), "{client:?} {provider:?}: {}", String::from_utf8_lossy(&run.out));
    run
}

/// Returns true if the output has an error in the client's dialect, and no end that looks like success.
fn is_failed_output(client: Dialect, out: &[u8]) -> bool {
    let text = String::from_utf8_lossy(out);
    match client {
        Dialect::Chat => text.contains("data: {\"error\":") && !text.contains("\"finish_reason\":\"stop\""),
        Dialect::Messages => text.contains("event: error\n") && !text.contains("message_stop"),
        _ => {
            (text.contains("event: error\n") || text.contains("response.failed"))
                && !text.contains("response.completed")
        }
    }
}

/// Forms in which engines of any dialect report an error in a stream.
const ERROR_FORMS: [&str; 11] = [
    "event: error\n\n",
    "event: error",
    "id: 7\r\nevent:error\r\nretry: 5\r\n\r\n",
    "event: error\ndata:\n\n",
    "error: {\"code\":500,\"message\":\"slot failed\",\"type\":\"server_error\"}\n\n",
    "error: {\"code\":500,\"message\":\"slot failed\",\"type\":\"server_error\"}",
    "error: slot failed\n\n",
    "event: error\ndata: {\"code\":500,\"message\":\"slot failed\",\"type\":\"server_error\"}\n\n",
    "event: error\ndata: {\"error\":{\"code\":500,\"message\":\"slot failed\"}}\n\n",
    "event: error\ndata: slot failed\n\n",
    "data: {\"error\":{\"code\":500,\"message\":\"slot failed\"}}\n\n",
];

#[test]
fn an_error_in_any_form_fails_the_attempt_before_the_first_token_and_the_stream_after_it() {
    for (provider, client) in DIALECTS.into_iter().flat_map(|one| DIALECTS.map(|other| (one, other))) {
        let text = text_stream(provider);
        let events: Vec<&str> = text.split_inclusive("\n\n").collect();
        let end = events.iter().position(|event| event.contains("you")).unwrap();
        for form in ERROR_FORMS {
            let name = format!("{provider:?} to {client:?}: {form}");
            for head in ["", events[0]] {
                let run = run_stream(client, provider, &format!("{head}{form}"));
                assert_eq!(run.fault, Some(UpstreamErrorKind::InBandError), "{name}");
                assert!(run.out.is_empty(), "{name}");
            }
            let run = run_stream(client, provider, &format!("{}{form}", events[..end].concat()));
            assert_eq!(run.fault, Some(UpstreamErrorKind::InBandError), "{name}");
            assert!(is_failed_output(client, &run.out), "{name}: {}", String::from_utf8_lossy(&run.out));
            let run = run_stream(client, provider, &format!("{text}{form}"));
            assert_eq!(run.fault, None, "{name}: an error after the end");
        }
    }
}

#[test]
fn an_answer_of_an_empty_part_is_empty_and_no_failure() {
    let part = r#"[{"type":"text","text":""}]"#;
    let choice = format!(r#"{{"index":0,"delta":{{"content":{part}}},"finish_reason":"stop"}}"#);
    let stream = format!("data: {{\"choices\":[{choice}]}}\n\ndata: [DONE]\n\n");
    for client in DIALECTS {
        let run = run_stream(client, Dialect::Chat, &stream);
        assert_eq!((run.fault, run.finish_reason), (None, Some(FinishReason::Stop)), "{client:?}");
    }
}

#[test]
fn an_error_after_a_finish_reason_that_came_with_text_is_an_error() {
    let chunk = |text: &str, finish: &str| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":{finish}}}]}}\n\n"
        )
    };
    let error = "data: {\"error\":{\"code\":500,\"message\":\"slot failed\"}}\n\n";
    let together = format!("{}{}", chunk("Hel", "null"), chunk("lo", "\"stop\""));
    let apart = format!("{}{}", chunk("Hello", "\"stop\""), chunk("", "\"stop\""));
    for client in DIALECTS {
        let fault = |stream: &str| run_stream(client, Dialect::Chat, stream).fault;
        assert_eq!(fault(&format!("{together}{error}")), Some(UpstreamErrorKind::InBandError), "{client:?}");
        assert_eq!(fault(&format!("{together}data: [DONE]\n\n{error}")), None, "{client:?}");
        assert_eq!(fault(&format!("{together}data: {{")), None, "{client:?}: cut, not failed");
        assert_eq!(fault(&format!("{apart}{error}")), None, "{client:?}: a late error");
        let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\n";
        assert_eq!(fault(&format!("{together}{usage}{error}")), None, "{client:?}: the usage ends an answer");
    }
}

#[test]
fn an_error_in_any_form_is_the_client_s_if_its_text_says_so() {
    let window = r#"{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":8192}"#;
    for provider in DIALECTS {
        for form in [format!("error: {window}\n\n"), format!("event: error\ndata: {window}\n\n")] {
            let run = run_stream(Dialect::Chat, provider, &form);
            assert_eq!(run.fault, Some(UpstreamErrorKind::Caller), "{provider:?}: {form}");
        }
        let stream = "error: {\"code\":400,\"message\":\"temperature must be less than 2\"}\n\n";
        let mut decoder = crate::decode::new_decoder(provider, "id");
        let error = decoder.push(Bytes::from(stream), &mut Vec::new()).unwrap_err();
        let error = classify::reclassify_in_band_error(error, 8192, br#"{"messages":[]}"#);
        assert_eq!(error.kind, UpstreamErrorKind::Caller, "{provider:?}");
        assert!(error.api_error.unwrap().message.contains("temperature must be less than 2"));
    }
}

#[test]
fn an_error_field_where_a_plain_answer_was_requested_is_an_error() {
    for pair in translators() {
        let ask = sample_request(pair.client_dialect(), false);
        let abilities = OfferCapabilities::default();
        let target = test_support::sample_target(pair.provider_dialect(), &abilities);
        for form in ERROR_FORMS {
            let error = pair.translate_buffered(&ask, &target, Bytes::from(form)).unwrap_err();
            assert_eq!(error.kind, UpstreamErrorKind::InBandError, "{form}");
        }
    }
}

/// Returns the text that a client reads from a stream.
fn delivered_text(client: Dialect, out: &[u8]) -> String {
    let text = std::str::from_utf8(out).unwrap();
    let member = |data: &str| {
        let event: Value = serde_json::from_str(data).unwrap_or_default();
        let text = match client {
            Dialect::Chat => &event["choices"][0]["delta"]["content"],
            Dialect::Messages => &event["delta"]["text"],
            _ => &event["delta"],
        };
        text.as_str().map(str::to_owned)
    };
    data_lines(text).into_iter().filter_map(member).collect()
}

#[test]
fn json_lines_with_and_without_line_ends_are_read_like_the_events_that_they_are() {
    for (provider, client) in DIALECTS.into_iter().flat_map(|one| DIALECTS.map(|other| (one, other))) {
        let text = text_stream(provider);
        let events = run_stream(client, provider, &text);
        let lines = data_lines(&text);
        let spaced = format!("\u{feff}\r\n {} \r\n\r\n{}", lines[0], lines[1..].join("\r\n"));
        let pairs: Vec<String> = lines.chunks(2).map(<[&str]>::concat).collect();
        let on_one_line = [lines.concat(), lines.concat() + "\n", lines.join(" "), pairs.join("\n")];
        let on_lines = [lines.join("\n"), lines.join("\n") + "\n", lines.join("\n\n"), spaced];
        for form in on_lines.into_iter().chain(on_one_line) {
            let run = run_stream(client, provider, &form);
            let name = format!("{provider:?} to {client:?}: {form}");
            assert_eq!((run.fault, run.usage), (None, events.usage), "{name}");
            assert_eq!((run.finish_reason, run.output_bytes), (events.finish_reason, events.output_bytes));
            let delivered = delivered_text(client, &run.out);
            assert!(delivered.starts_with("Hello "), "{name}: {delivered}");
            assert_eq!(delivered, delivered_text(client, &events.out), "{name}");
        }
    }
}

#[test]
fn the_text_of_json_lines_is_delivered_before_the_last_line() {
    for (provider, client) in DIALECTS.into_iter().flat_map(|one| DIALECTS.map(|other| (one, other))) {
        let text = text_stream(provider);
        let lines = data_lines(&text);
        let whole = lines.iter().position(|line| line.contains("Hel")).unwrap();
        let ask = sample_request(client, true);
        let abilities = OfferCapabilities::default();
        let target = test_support::sample_target(provider, &abilities);
        let mut reply = find_translator(client, provider).unwrap().translate_stream(&ask, &target);
        let mut out = OutputBuffer::default();
        reply.push(Bytes::from(lines[..=whole].join("\n") + "\n"), &mut out).unwrap();
        assert_eq!(reply.progress(), StreamProgress::Committed, "{provider:?} to {client:?}");
        assert_eq!(delivered_text(client, &out.0.concat()), "Hel", "{provider:?} to {client:?}");
        // Without line ends, the end of a value is detected only when the next value begins.
        let mut reply = find_translator(client, provider).unwrap().translate_stream(&ask, &target);
        let mut out = OutputBuffer::default();
        reply.push(Bytes::from(lines[..=whole].concat() + "{"), &mut out).unwrap();
        assert_eq!(delivered_text(client, &out.0.concat()), "Hel", "{provider:?} to {client:?}");
    }
}

#[test]
fn broken_json_lines_and_other_bodies_fail_with_their_reason() {
    for (provider, client) in DIALECTS.into_iter().flat_map(|one| DIALECTS.map(|other| (one, other))) {
        let text = text_stream(provider);
        let lines = data_lines(&text);
        let start = lines[..2].join("\n");
        let error = r#"{"error":{"code":500,"message":"slot failed"}}"#;
        for (form, fault) in [
            (format!("{start}\n{error}\n"), UpstreamErrorKind::InBandError),
            (format!("{start}\n{error}"), UpstreamErrorKind::InBandError),
            (start.clone(), UpstreamErrorKind::Truncated),
            (format!("{start}\n{{\"choices\":"), UpstreamErrorKind::Truncated),
            (format!("{start}\n{{\"choices\"\n"), UpstreamErrorKind::Malformed),
            (format!("{start}\n<html>\n"), UpstreamErrorKind::Malformed),
            (lines[..2].concat(), UpstreamErrorKind::Truncated),
            (format!("{}{error}", lines[..2].concat()), UpstreamErrorKind::InBandError),
            (format!("{}{{\"choices\":", lines[..2].concat()), UpstreamErrorKind::Truncated),
            (format!("{}5{}\n", lines[0], lines[1]), UpstreamErrorKind::Malformed),
            (format!("{start}{{\"choices\"}}{{}}\n"), UpstreamErrorKind::Malformed),
            (format!("{}\n5\n", lines[0]), UpstreamErrorKind::Malformed),
        ] {
            let run = run_stream(client, provider, &form);
            let delivered = !run.out.is_empty();
            assert_eq!(run.fault, Some(fault), "{provider:?} to {client:?}: {form}");
            assert!(!delivered || is_failed_output(client, &run.out), "{provider:?} to {client:?}: {form}");
        }
    }
}

#[test]
fn json_lines_where_a_plain_answer_was_requested_are_a_whole_answer() {
    for pair in translators() {
        let ask = sample_request(pair.client_dialect(), false);
        let abilities = OfferCapabilities::default();
        let target = test_support::sample_target(pair.provider_dialect(), &abilities);
        let text = text_stream(pair.provider_dialect());
        let lines = data_lines(&text);
        let whole = |body: String| pair.translate_buffered(&ask, &target, Bytes::from(body));
        let events = whole(text.clone()).unwrap();
        for between in ["\n", "", " "] {
            let form = whole(lines.join(between)).unwrap();
            assert_eq!(form.body.concat(), events.body.concat());
            assert_eq!(form.usage(), events.usage());
            let cut = whole(lines[..lines.len() - 3].join(between)).unwrap_err();
            assert_eq!(cut.kind, UpstreamErrorKind::Truncated);
        }
    }
}

/// Returns a chat stream with a finish reason, `[DONE]`, and the given text after it.
fn chat_stream(after_done: &str) -> String {
    let chunk = |delta: &str, finish: &str| {
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n")
    };
    let text = chunk(r#"{"content":"Hello"}"#, "null");
    format!("{text}{}data: [DONE]\n\n{after_done}", chunk("{}", "\"stop\""))
}

fn usage_chunk(output: u64) -> String {
    format!("data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":9,\"completion_tokens\":{output}}}}}\n\n")
}

#[test]
fn usage_after_the_end_of_a_chat_stream_counts_and_nothing_else_does() {
    let late_text = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" more\"}}]}\n\n";
    let reported = |output| Some((9, output, UsageSource::Provider));
    for (after, usage) in [
        (usage_chunk(2), reported(2)),
        (usage_chunk(2).trim_end().to_owned(), reported(2)),
        (format!(": ping\n\ndata: [DONE]\n\n{}data: [DONE]\n\n", usage_chunk(2)), reported(2)),
        (format!("{late_text}{}", usage_chunk(2)), reported(2)),
        (
            late_text.replace("]}", &format!("],{}", &usage_chunk(2)[19..].trim_start_matches(','))),
            reported(2),
        ),
        (format!("{}{}", usage_chunk(2), usage_chunk(1)), reported(2)),
        (format!("data: {{\"choices\":[{{\"index\":7}}]}}\n\n{}", usage_chunk(2)), reported(2)),
        (format!("data: {{\n\n{}", usage_chunk(2)), None),
        (format!("error: late\n\n{}", usage_chunk(2)), None),
        (late_text.to_owned(), None),
        (String::new(), None),
    ] {
        for client in DIALECTS {
            let run = run_stream(client, Dialect::Chat, &chat_stream(&after));
            let found = run.usage.map(|usage| (usage.input, usage.output, usage.source));
            assert_eq!((run.fault, found), (None, usage), "{client:?}: {after}");
            assert_eq!(delivered_text(client, &run.out), "Hello", "{client:?}: {after}");
            assert_eq!(run.output_bytes, 5, "{client:?}: {after}");
        }
    }
}

#[test]
fn usage_after_the_end_is_bounded_like_any_other() {
    let stream = chat_stream(&usage_chunk(4_000_000));
    let before = stream.replace("data: [DONE]\n\n", "") + "data: [DONE]\n\n";
    for client in DIALECTS {
        let (late, early) =
            (run_stream(client, Dialect::Chat, &stream), run_stream(client, Dialect::Chat, &before));
        assert_eq!(late.usage, early.usage, "{client:?}");
        assert_eq!(late.usage.unwrap().source, UsageSource::Overstated, "{client:?}");
    }
}

#[test]
fn only_an_end_without_usage_awaits_usage_until_the_provider_closes() {
    let ask = sample_request(Dialect::Chat, true);
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(Dialect::Chat, &abilities);
    let pair = find_translator(Dialect::Chat, Dialect::Chat).unwrap();
    let without = chat_stream("");
    let with = without.replace("data: [DONE]", &(usage_chunk(2) + "data: [DONE]"));
    let unfinished = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n";
    for (stream, progress, awaits_usage, fault) in [
        (&*with, StreamProgress::Ended, false, None),
        (&*without, StreamProgress::Ended, true, None),
        (unfinished, StreamProgress::Committed, false, Some(UpstreamErrorKind::Truncated)),
    ] {
        let mut reply = pair.translate_stream(&ask, &target);
        let pushed = reply.push(Bytes::from(stream.to_owned()), &mut OutputBuffer::default());
        assert_eq!(pushed.err().map(|error| error.kind), fault, "{stream}");
        assert_eq!((reply.progress(), reply.awaits_usage()), (progress, awaits_usage), "{stream}");
        assert!(fault.is_some() || reply.end(&mut OutputBuffer::default()).is_ok());
        assert!(!reply.awaits_usage());
    }
}
