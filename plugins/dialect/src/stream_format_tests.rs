//! Tests of unusual forms of a provider's stream, for each pair of dialects and at every split.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use crate::test_support::{self, StreamRun};
use crate::{TRANSLATORS, classify, conformance, find_translator};
use bytes::Bytes;
use penstock_core::*;
use penstock_request_validation::{RequestLimits, ResponsesPurpose, validate_responses_request};
use std::path::Path;

const DIALECTS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];

fn sample_request(client: Dialect, stream: bool) -> InferenceRequest {
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
        Dialect::Messages => "chat_messages/stream_text",
        Dialect::Responses => "chat_responses/stream_text",
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(case).join("got.sse");
    std::fs::read_to_string(path).unwrap()
}

/// Streams a provider's answer to a client at every split, and checks the grammar of the output.
fn run_stream(client: Dialect, provider: Dialect, stream: &str) -> StreamRun {
    let ask = sample_request(client, true);
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(provider, &abilities);
    let pair = find_translator(client, provider).unwrap();
    let run = test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), stream.as_bytes());
    let checked = match client {
        _ if run.out.is_empty() => Ok(()),
        Dialect::Chat => conformance::chat(&run.out, false),
        Dialect::Messages => conformance::check_messages_stream(&run.out),
        Dialect::Responses => conformance::check_responses_stream(&run.out),
    };
    assert_eq!(checked, Ok(()), "{client:?} {provider:?}: {}", String::from_utf8_lossy(&run.out));
    run
}

/// Returns true if the output has an error in the client's dialect, and no end that looks like success.
fn is_failed_output(client: Dialect, out: &[u8]) -> bool {
    let text = String::from_utf8_lossy(out);
    match client {
        Dialect::Chat => text.contains("data: {\"error\":") && !text.contains("\"finish_reason\":\"stop\""),
        Dialect::Messages => text.contains("event: error\n") && !text.contains("message_stop"),
        Dialect::Responses => {
            (text.contains("event: error\n") || text.contains("response.failed"))
                && !text.contains("response.completed")
        }
    }
}

/// Forms in which engines report an error in a stream, other than as an object of the dialect.
const ERROR_FORMS: [&str; 6] = [
    "error: {\"code\":500,\"message\":\"slot failed\",\"type\":\"server_error\"}\n\n",
    "error: {\"code\":500,\"message\":\"slot failed\",\"type\":\"server_error\"}",
    "error: slot failed\n\n",
    "event: error\ndata: {\"code\":500,\"message\":\"slot failed\",\"type\":\"server_error\"}\n\n",
    "event: error\ndata: {\"error\":{\"code\":500,\"message\":\"slot failed\"}}\n\n",
    "event: error\ndata: slot failed\n\n",
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
        let error = classify::classify_in_band_error(error, 8192, br#"{"messages":[]}"#);
        assert_eq!(error.kind, UpstreamErrorKind::Caller, "{provider:?}");
        assert!(error.api_error.unwrap().message.contains("temperature must be less than 2"));
    }
}

#[test]
fn an_error_field_where_a_plain_answer_was_requested_is_an_error() {
    for pair in TRANSLATORS {
        let ask = sample_request(pair.client(), false);
        let abilities = OfferCapabilities::default();
        let target = test_support::sample_target(pair.provider(), &abilities);
        for form in ERROR_FORMS {
            let error = pair.translate_buffered(&ask, &target, Bytes::from(form)).unwrap_err();
            assert_eq!(error.kind, UpstreamErrorKind::InBandError, "{form}");
        }
    }
}
