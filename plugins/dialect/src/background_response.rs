//! Stored documents and response objects of background responses. Until the response ends, its document also has the
//! request body:
//!
//! ```text
//! {"input": [items of the conversation], "response": {the response object}, "request": {the client's body}}
//! ```

use crate::json_cursor::{is_object, member_value, members, parse_string};
use crate::stored_response::{STORED_STATUSES, StoredResponse, build_document};
use crate::write::responses::failure_code;
use penstock_core::{ErrorCode, StoredInput};
use std::borrow::Cow;
use std::io::Write as _;

pub use crate::write::responses::{LAST_PENDING_EVENT, ReplayPieces, ResponseReplay, queued_response};

/// State of a background response without an answer: the answer is pending, or the response ended without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackgroundResponseState<'a> {
    /// Response whose execution has not started.
    Queued,
    /// Response that is being generated.
    InProgress,
    /// Response that the client cancelled.
    Cancelled,
    /// Response that ended without an answer.
    Failed(ResponseFailure<'a>),
}

/// Error of a failed response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseFailure<'a> {
    /// Error code of the responses dialect.
    pub code: &'static str,
    /// Sentence for the client.
    pub message: Cow<'a, str>,
}

impl ResponseFailure<'_> {
    /// Returns a failure for an internal error of the gateway.
    #[must_use]
    pub const fn server_error(message: &'static str) -> ResponseFailure<'static> {
        ResponseFailure { code: "server_error", message: Cow::Borrowed(message) }
    }
}

impl BackgroundResponseState<'_> {
    const fn name(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::InProgress => "in_progress",
            Self::Cancelled => "cancelled",
            Self::Failed(_) => "failed",
        }
    }
}

/// Builds the document of a response that has not ended. `response` is its object, `unique` the unique part of its id,
/// and `request` the client's body, which must be valid JSON.
#[must_use]
pub fn build_pending_document(input: &StoredInput, response: &[u8], unique: &str, request: &[u8]) -> Vec<u8> {
    let mut out = build_document(input, response, unique);
    out.pop();
    out.extend_from_slice(b",\"request\":");
    out.extend_from_slice(request);
    out.push(b'}');
    out
}

/// Returns a client's body without `stream` and `stream_options`: a background response is executed without a stream,
/// and its answer is stored whole.
#[must_use]
pub fn request_without_stream(request: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(request.len());
    out.push(b'{');
    for (name, value) in members(request) {
        if matches!(&*name, "stream" | "stream_options") {
            continue;
        }
        if out.len() > 1 {
            out.push(b',');
        }
        penstock_json_scan::json::write_str(&mut out, &name);
        out.push(b':');
        out.extend_from_slice(value);
    }
    out.push(b'}');
    out
}

/// Returns the client's body in the document of a response that has not ended; `None` if the response has ended.
#[must_use]
pub fn pending_request_body(document: &[u8]) -> Option<&[u8]> {
    member_value(document, "request").filter(|request| is_object(request))
}

/// Returns the document of a response that has ended; `response` is its final object. `None` if `document` is invalid.
#[must_use]
pub fn build_ended_document(document: &[u8], response: &[u8]) -> Option<Vec<u8>> {
    let stored = StoredResponse::parse(document)?;
    let parts = [b"{\"input\":", stored.input_items, b",\"response\":", response, b"}"];
    Some(parts.concat())
}

/// Returns true if a response was created with `background: true`.
#[must_use]
pub fn is_background(response: &[u8]) -> bool {
    member_value(response, "background") == Some(b"true")
}

/// Returns true if the status of a response object is `completed` or `incomplete`: it has an answer, and a later
/// request can continue it.
#[must_use]
pub fn has_answer(response: &[u8]) -> bool {
    let status = member_value(response, "status").and_then(parse_string);
    status.is_some_and(|status| STORED_STATUSES.contains(&&*status))
}

/// Returns true if the status of a response object is `queued`.
#[must_use]
pub fn is_queued(response: &[u8]) -> bool {
    member_value(response, "status").and_then(parse_string).is_some_and(|status| status == "queued")
}

/// Returns true if the status of a response object is `queued` or `in_progress`.
#[must_use]
pub fn is_pending(response: &[u8]) -> bool {
    let status = member_value(response, "status").and_then(parse_string);
    status.is_some_and(|status| status == "queued" || status == "in_progress")
}

/// Returns a copy of a response object with this state. The copy has no output, usage or incomplete details, and
/// neither `environment_impact` nor `billing_cost`.
#[must_use]
pub fn with_background_state(response: &[u8], state: &BackgroundResponseState<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(response.len() + 128);
    out.push(b'{');
    for (name, value) in members(response) {
        if matches!(&*name, "environment_impact" | "billing_cost") {
            continue;
        }
        if out.len() > 1 {
            out.push(b',');
        }
        penstock_json_scan::json::write_str(&mut out, &name);
        out.push(b':');
        match &*name {
            // Writing to a Vec cannot fail.
            "status" => drop(write!(out, "\"{}\"", state.name())),
            "error" => write_error(state, &mut out),
            "incomplete_details" | "usage" => out.extend_from_slice(b"null"),
            "output" => out.extend_from_slice(b"[]"),
            _ => out.extend_from_slice(value),
        }
    }
    out.push(b'}');
    out
}

fn write_error(state: &BackgroundResponseState<'_>, out: &mut Vec<u8>) {
    let BackgroundResponseState::Failed(failure) = state else { return out.extend_from_slice(b"null") };
    let _ = write!(out, "{{\"code\":\"{}\",\"message\":", failure.code);
    penstock_json_scan::json::write_str(out, &failure.message);
    out.push(b'}');
}

/// Returns the failure of a background response whose request was answered with this HTTP status and this error body.
/// The code follows from the code in the body, as in a stream, or else from the status. The message is that of the
/// body, or a general sentence if the body has none.
#[must_use]
pub fn failure_from_envelope(status: u16, envelope: &[u8]) -> ResponseFailure<'static> {
    const UNKNOWN: &str = "The request could not be answered.";
    let member = |name| {
        let value = member_value(member_value(envelope, "error")?, name)?;
        parse_string(value)
    };
    let stated = member("code");
    let stated = ErrorCode::ALL.into_iter().find(|code| stated.as_deref() == Some(code.spec().code));
    let message = member("message").map_or(Cow::Borrowed(UNKNOWN), |text| text.into_owned().into());
    ResponseFailure { code: stated.map_or_else(|| code_of_status(status), failure_code), message }
}

/// Returns the error code for an error body without a code of the gateway.
const fn code_of_status(status: u16) -> &'static str {
    match status {
        429 => "rate_limit_exceeded",
        402 => "insufficient_quota",
        400..=499 => "invalid_prompt",
        _ => "server_error",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use bytes::Bytes;
    use penstock_core::ApiError;
    use penstock_http_wire::error::chat_envelope;
    use serde_json::{Value, json};

    const ANSWERED: &str = r#"{"id":"resp_1","status":"completed","error":null,"incomplete_details":null,
        "background":true,"metadata":{"status":"mine"},"output":[{"id":"msg_1"}],"usage":{"input_tokens":1},
        "environment_impact":{"energy_kwh":1},"billing_cost":{"credits":1}}"#;

    fn value(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn a_pending_document_has_the_request_and_its_end_has_not() {
        let input = StoredInput { previous_items: Bytes::new(), input: Bytes::from_static(b"\"Hi\"") };
        let request = br#"{"model":"m","input":"Hi"}"#;
        let pending = build_pending_document(&input, br#"{"status":"queued"}"#, "1", request);
        assert_eq!(pending_request_body(&pending), Some(&request[..]));
        let ended = build_ended_document(&pending, ANSWERED.as_bytes()).unwrap();
        assert_eq!(value(&ended)["response"]["id"], "resp_1");
        assert_eq!(value(&ended)["input"], value(&pending)["input"]);
        assert_eq!(pending_request_body(&ended), None);
        assert_eq!(build_ended_document(b"{}", ANSWERED.as_bytes()), None);
    }

    #[test]
    fn a_run_is_not_asked_for_a_stream() {
        let body = br#"{"stream":true,"input":[{"stream":true}], "stream_options":{"include_obfuscation":false},"model":"m \u00e9"}"#;
        let run = request_without_stream(body);
        assert_eq!(value(&run), json!({"input": [{"stream": true}], "model": "m \u{e9}"}));
        assert_eq!(request_without_stream(br#"{"stream":true}"#), b"{}");
    }

    #[test]
    fn a_state_without_an_answer_shows_nothing_of_one() {
        assert!(has_answer(ANSWERED.as_bytes()) && is_background(ANSWERED.as_bytes()));
        let failure = ResponseFailure { code: "server_error", message: "It \"broke\".".into() };
        for (state, status, error) in [
            (BackgroundResponseState::Queued, "queued", Value::Null),
            (BackgroundResponseState::InProgress, "in_progress", Value::Null),
            (BackgroundResponseState::Cancelled, "cancelled", Value::Null),
            (
                BackgroundResponseState::Failed(failure),
                "failed",
                json!({"code": "server_error", "message": "It \"broke\"."}),
            ),
        ] {
            let shown = with_background_state(ANSWERED.as_bytes(), &state);
            let expected = json!({"id": "resp_1", "status": status, "error": error, "incomplete_details": null,
                "background": true, "metadata": {"status": "mine"}, "output": [], "usage": null});
            assert_eq!(value(&shown), expected);
            assert!(!has_answer(&shown));
            assert_eq!(is_pending(&shown), matches!(status, "queued" | "in_progress"));
        }
    }

    #[test]
    fn a_refusal_becomes_the_error_of_the_response() {
        let envelope = br#"{"error":{"message":"No \u0022room\u0022.","type":"x"}}"#;
        for (status, code) in [
            (429, "rate_limit_exceeded"),
            (402, "insufficient_quota"),
            (400, "invalid_prompt"),
            (503, "server_error"),
        ] {
            let failure = failure_from_envelope(status, envelope);
            assert_eq!((failure.code, &*failure.message), (code, "No \"room\"."));
        }
        for odd in ["null", "5", "\"\"", "\"UNKNOWN_1\"", "{}"] {
            let envelope = format!(r#"{{"error":{{"code":{odd},"message":"No."}}}}"#);
            assert_eq!(failure_from_envelope(429, envelope.as_bytes()).code, "rate_limit_exceeded", "{odd}");
        }
        assert_eq!(failure_from_envelope(500, b"<html>").message, "The request could not be answered.");
    }

    #[test]
    fn a_failure_has_the_code_that_a_stream_has_for_the_same_error() {
        for code in ErrorCode::ALL {
            let refusal = ApiError::new(code);
            let envelope = chat_envelope(&refusal, "req_1");
            let failure = failure_from_envelope(refusal.spec().status, &envelope);
            assert_eq!(failure.code, failure_code(code), "{code:?}");
            let status = refusal.spec().status;
            let is_lasting = (400..500).contains(&status) && !matches!(status, 402 | 408 | 409 | 429);
            assert_eq!(
                failure.code.contains("server") || failure.code.contains("rate"),
                !is_lasting && status != 402
            );
        }
        for (code, expected) in [
            (ErrorCode::ContextLength, "context_length_exceeded"),
            (ErrorCode::Overloaded, "rate_limit_exceeded"),
            (ErrorCode::Unavailable, "server_error"),
            (ErrorCode::ModelNotFound, "invalid_prompt"),
            (ErrorCode::BudgetExceeded, "insufficient_quota"),
        ] {
            let envelope = chat_envelope(&ApiError::new(code), "req_1");
            assert_eq!(failure_from_envelope(code.spec().status, &envelope).code, expected);
        }
    }
}
