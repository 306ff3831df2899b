//! Tests of the limits of an answer after a rescue: those of the first provider no longer apply.
#![allow(clippy::unwrap_used)]

use crate::{find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;
use serde_json::json;

const CLIENTS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];

fn chunk(text: &str) -> String {
    format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": text}}]}))
}

/// Returns the last events of a stream: the usage, and before it a finish reason if `has_finish`.
fn end(tokens: u64, has_finish: bool) -> String {
    let finish = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": tokens}});
    let finish = if has_finish { format!("data: {finish}\n\n") } else { String::new() };
    format!("{finish}data: {usage}\n\ndata: [DONE]\n\n")
}

/// Token caps of the request, and of the two providers for which the gateway reduces it.
struct Caps {
    request: Option<u64>,
    first: Option<u64>,
    second: Option<u64>,
}

/// Outcome of a rescued stream.
#[derive(Debug, PartialEq)]
struct Outcome {
    fault: Option<UpstreamErrorKind>,
    finish_reason: Option<FinishReason>,
    usage: Option<(u64, UsageSource)>,
    text_bytes: usize,
    exceeds_output_limit: bool,
}

/// Starts an answer with `first`, then lets a second provider start over with `second`, in pieces of several sizes.
fn rescue(client: Dialect, caps: &Caps, first: &str, second: &str) -> Outcome {
    let body = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "Hi there"}]});
    let mut ask = test_support::sample_request(client, body.to_string().as_bytes());
    ask.max_tokens = caps.request;
    let abilities = OfferCapabilities::default();
    let target =
        |max_tokens| AttemptTarget { max_tokens, ..test_support::sample_target(Dialect::Chat, &abilities) };
    let run = |size: usize| {
        let pair = find_translator(client, Dialect::Chat).unwrap();
        let mut reply = pair.translate_stream(&ask, &target(caps.first));
        reply.push(Bytes::copy_from_slice(first.as_bytes()), &mut OutputBuffer::default()).unwrap();
        assert!(reply.start_rescue(&target(caps.second), RescueMode::StartOver));
        let run = test_support::run_stream(&mut *reply, second.as_bytes().chunks(size));
        Outcome {
            fault: run.fault,
            finish_reason: run.finish_reason,
            usage: run.usage.map(|usage| (usage.output, usage.source)),
            text_bytes: run.output_bytes,
            exceeds_output_limit: reply.offer_observation().exceeds_output_limit,
        }
    };
    let outcomes = [1, 7, 333, second.len()].map(run);
    assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]), "{client:?}: {outcomes:?}");
    let [outcome, ..] = outcomes;
    outcome
}

#[test]
fn an_answer_is_at_its_cap_only_if_it_has_reached_that_of_the_present_provider() {
    let first = chunk("One ");
    for client in CLIENTS {
        for (caps, tokens, is_at_cap) in [
            (Caps { request: Some(8), first: Some(4), second: None }, 4, false),
            (Caps { request: Some(8), first: Some(4), second: None }, 8, true),
            (Caps { request: Some(8), first: Some(4), second: Some(6) }, 6, true),
            (Caps { request: Some(8), first: None, second: Some(4) }, 4, true),
            (Caps { request: None, first: Some(4), second: None }, 4, false),
            (Caps { request: None, first: None, second: Some(4) }, 4, true),
        ] {
            let second = chunk("One two three four five six") + &end(tokens, false);
            let outcome = rescue(client, &caps, &first, &second);
            let expected = match is_at_cap {
                true => (None, Some(FinishReason::Length)),
                false => (Some(UpstreamErrorKind::Truncated), None),
            };
            assert_eq!((outcome.fault, outcome.finish_reason), expected, "{client:?} {tokens}");
        }
    }
}

#[test]
fn usage_up_to_the_cap_of_the_present_provider_is_plausible() {
    let second = chunk("One two three four five six") + &end(7, true);
    for client in CLIENTS {
        for caps in [
            Caps { request: Some(8), first: Some(4), second: None },
            Caps { request: Some(20), first: Some(4), second: Some(8) },
            Caps { request: None, first: Some(4), second: None },
        ] {
            let outcome = rescue(client, &caps, &chunk("One "), &second);
            assert_eq!(outcome.fault, None, "{client:?}");
            assert_eq!(outcome.usage, Some((7, UsageSource::Provider)), "{client:?}");
        }
    }
}

#[test]
fn an_answer_is_cut_at_the_limit_of_the_present_provider() {
    let text = "word ".repeat(5_000);
    let second = chunk(&text) + &end(5_000, true);
    for client in CLIENTS {
        let caps = Caps { request: Some(5_000), first: Some(4), second: None };
        let outcome = rescue(client, &caps, &chunk("word "), &second);
        assert_eq!(
            (outcome.exceeds_output_limit, outcome.text_bytes, outcome.finish_reason),
            (false, text.len(), Some(FinishReason::Stop)),
            "{client:?}"
        );
        let caps = Caps { request: Some(5_000), first: None, second: Some(4) };
        let outcome = rescue(client, &caps, &chunk("word "), &second);
        assert_eq!(
            (outcome.exceeds_output_limit, outcome.finish_reason),
            (true, Some(FinishReason::Length)),
            "{client:?}"
        );
    }
}
