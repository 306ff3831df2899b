//! Tests of the translators with the responses dialect: golden cases, the streams of all other pairs, property tests
//! and rescues. Requests are validated as those of clients.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod golden;
mod property;
mod refusals;
mod replay;
mod rescue;
mod streams;

use crate::{conformance, find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;
use penstock_request_validation::{RequestLimits, ResponsesPurpose, validate_responses_request};
use serde_json::Value;

/// Validates a request as the gateway does.
fn admitted_request(body: &Value) -> InferenceRequest {
    let body = Bytes::from(body.to_string());
    validate_responses_request(body, &RequestLimits::default(), ResponsesPurpose::Generate).unwrap()
}

/// Streams a provider's answer through the translator at every split, checks its grammar, and returns the events.
fn stream_events(ask: &InferenceRequest, provider: Dialect, stream: &[u8]) -> Vec<Value> {
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(provider, &abilities);
    let pair = find_translator(Dialect::Responses, provider).unwrap();
    let run = test_support::run_all_splits(&|| pair.translate_stream(ask, &target), stream);
    let text = String::from_utf8(run.out).unwrap();
    assert_eq!(conformance::check_responses_stream(text.as_bytes()), Ok(()), "{text}");
    events(&text)
}

fn events(stream: &str) -> Vec<Value> {
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// Returns the types of the events; consecutive equal types are listed once.
fn event_types(events: &[Value]) -> Vec<&str> {
    let mut types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    types.dedup();
    types
}
