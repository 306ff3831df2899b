//! Helpers shared by the tests of all dialects.
#![allow(dead_code, clippy::unwrap_used, clippy::indexing_slicing)]

use bytes::Bytes;
use penstock_core::{ApiError, InferenceRequest};
use penstock_request_validation::{
    MessagesPurpose, RequestLimits, ResponsesPurpose, validate_chat_request, validate_messages_request,
    validate_responses_request,
};

/// Nesting depth that exceeds `max_depth` and would overflow the stack of a recursive parser.
pub const DEEP: usize = 10_000;

pub fn ask_chat(body: &str) -> Result<InferenceRequest, ApiError> {
    validate_chat_request(Bytes::from(body.to_owned()), &RequestLimits::default())
}

pub fn ask_messages(body: &str) -> Result<InferenceRequest, ApiError> {
    validate_messages_request(
        Bytes::from(body.to_owned()),
        &RequestLimits::default(),
        MessagesPurpose::Generate,
    )
}

pub fn ask_responses(body: &str) -> Result<InferenceRequest, ApiError> {
    validate_responses_request(
        Bytes::from(body.to_owned()),
        &RequestLimits::default(),
        ResponsesPurpose::Generate,
    )
}

/// Body after its edits.
pub fn edited(ask: &InferenceRequest) -> serde_json::Value {
    let mut out = Vec::new();
    let mut at = 0;
    for edit in &ask.edits {
        assert!(
            edit.range.start >= at && edit.range.end >= edit.range.start,
            "edits are in order: {:?}",
            ask.edits
        );
        out.extend_from_slice(&ask.body[at..edit.range.start]);
        out.extend_from_slice(&edit.replacement);
        at = edit.range.end;
    }
    out.extend_from_slice(&ask.body[at..]);
    serde_json::from_slice(&out).unwrap()
}

/// Asserts that the request is refused with an error that names this field and whose message starts with the field.
pub fn assert_refused(result: Result<InferenceRequest, ApiError>, field: &str, says: &str, body: &str) {
    let refusal = match result {
        Ok(_) => unreachable_body(body),
        Err(refusal) => refusal,
    };
    assert_eq!(refusal.param.as_deref().unwrap_or(""), field, "{body}: {}", refusal.message);
    let expected = if field.is_empty() { says.to_owned() } else { format!("{field}: {says}") };
    assert_eq!(refusal.message, expected, "{body}");
}

fn unreachable_body(body: &str) -> ! {
    std::panic::panic_any(format!("it should have been refused: {body}"))
}
