//! Members of the response object other than its output, and the start of events.

use crate::write::{EventBuffer, ResponseIdentity};
use bytes::Bytes;
use penstock_core::{ApiError, AttemptTarget, ErrorCode, InferenceRequest, TokenUsage};
use penstock_json_scan::json;
use std::io::Write as _;

/// Status of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseStatus<'a> {
    /// Background response whose execution has not started.
    Queued,
    /// Response that has not ended.
    InProgress,
    /// Response that ended with a complete answer.
    Completed,
    /// Response that ended early, with the reason (`incomplete_details`).
    Incomplete(&'static str),
    /// Response that was interrupted by an error, with its code and message.
    Failed(&'static str, &'a str),
}

impl ResponseStatus<'_> {
    /// Returns the name of the status.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete(_) => "incomplete",
            Self::Failed(..) => "failed",
        }
    }
}

/// Members of the response object that do not depend on the answer.
#[derive(Clone, Debug)]
pub(super) struct ResponseMembers {
    /// Unique part of the response id, also part of the ids of its items.
    pub(super) id: String,
    model: String,
    created: u64,
    repeated_members: Bytes,
    is_stored: bool,
}

impl ResponseMembers {
    /// Returns the members for the response to an attempt at this target.
    pub(super) fn new(ask: &InferenceRequest, target: &AttemptTarget<'_>) -> Self {
        Self::with_identity(ask, ResponseIdentity::from_target(target))
    }

    /// Returns the members for a response with this identity.
    pub(super) fn with_identity(ask: &InferenceRequest, identity: ResponseIdentity) -> Self {
        let ResponseIdentity { id, model, created } = identity;
        let details = ask.responses.as_ref();
        let repeated_members = details.map(|details| details.repeated_members.clone()).unwrap_or_default();
        let is_stored = details.is_some_and(|details| details.stored_input.is_some());
        Self { id, model, created, repeated_members, is_stored }
    }

    /// Writes the response object up to and including `"output":`.
    pub(super) fn write_object_head(&self, status: ResponseStatus<'_>, out: &mut EventBuffer) {
        out.extend_from_slice(br#"{"id":"resp_"#);
        out.extend_from_slice(self.id.as_bytes());
        // Writing to a Vec cannot fail.
        let _ = write!(
            out,
            r#"","object":"response","created_at":{},"status":"{}","error":"#,
            self.created,
            status.name()
        );
        match status {
            ResponseStatus::Failed(code, message) => {
                let _ = write!(out, r#"{{"code":"{code}","message":"#);
                json::write_str(out, message);
                out.push(b'}');
            }
            _ => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(br#","incomplete_details":"#);
        match status {
            ResponseStatus::Incomplete(reason) => {
                let _ = write!(out, r#"{{"reason":"{reason}"}}"#);
            }
            _ => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(br#","model":"#);
        json::write_str(out, &self.model);
        if !self.repeated_members.is_empty() {
            out.push(b',');
            self.write_repeated(matches!(status, ResponseStatus::Failed(..)), out);
        }
        out.extend_from_slice(br#","output":"#);
    }

    /// Writes the members of the request that the response repeats. A failed response is not stored, so its `store`
    /// becomes false. The first match of `"store":true` is the member itself, because members with text of the client
    /// come after it.
    fn write_repeated(&self, failed: bool, out: &mut EventBuffer) {
        const STORED: &[u8] = br#""store":true"#;
        let members = &self.repeated_members;
        let stored = if failed && self.is_stored { memchr::memmem::find(members, STORED) } else { None };
        let Some(at) = stored else { return out.push_shared(members) };
        out.push_shared(&members.slice(..at));
        out.extend_from_slice(br#""store":false"#);
        out.push_shared(&members.slice(at + STORED.len()..));
    }
}

/// Returns the error code for a failed response. Clients of this dialect act on these codes: they wait, shorten the
/// conversation, or retry. A client error for which a retry is useless gets `invalid_prompt`.
pub(crate) const fn failure_code(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::RateLimited | ErrorCode::Overloaded => "rate_limit_exceeded",
        ErrorCode::ContextLength => "context_length_exceeded",
        ErrorCode::InsufficientCredits | ErrorCode::BudgetExceeded => "insufficient_quota",
        ErrorCode::RequestTimeout | ErrorCode::Conflict => "server_error",
        _ => match code.spec().status {
            400..=499 => "invalid_prompt",
            _ => "server_error",
        },
    }
}

/// Writes the event `error` with a refusal.
pub(super) fn write_error_event(events: &mut EventSequence, refusal: &ApiError, out: &mut Vec<u8>) {
    events.write_event_start("error", out);
    out.extend_from_slice(br#","code":""#);
    out.extend_from_slice(failure_code(refusal.code).as_bytes());
    out.extend_from_slice(br#"","message":"#);
    json::write_str(out, &refusal.message);
    out.extend_from_slice(br#","param":null"#);
    out.extend_from_slice(EVENT_END);
}

/// Writes the usage object; its input includes cached tokens.
pub(super) fn write_usage(usage: &TokenUsage, out: &mut Vec<u8>) {
    let _ = write!(
        out,
        r#"{{"input_tokens":{},"input_tokens_details":{{"cached_tokens":{},"cache_write_tokens":0}},"output_tokens":{},"output_tokens_details":{{"reasoning_tokens":{}}},"total_tokens":{}}}"#,
        usage.input,
        usage.cached,
        usage.output,
        usage.reasoning,
        usage.input.saturating_add(usage.output),
    );
}

/// Writer of the start of events, which numbers the events of a stream.
#[derive(Debug, Default)]
pub(super) struct EventSequence {
    next: u64,
}

impl EventSequence {
    /// Creates a sequence whose next event has the given sequence number.
    pub(super) const fn with_next(number: u64) -> Self {
        Self { next: number }
    }

    /// Returns the sequence number of the next event; the sequence does not advance.
    pub(super) const fn peek_next_number(&self) -> u64 {
        self.next
    }

    /// Skips the sequence number of an event that is not written, because the client already has it.
    pub(super) const fn skip_event(&mut self) {
        self.next = self.next.saturating_add(1);
    }

    /// Writes the start of an event: its type and its number.
    pub(super) fn write_event_start(&mut self, kind: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\ndata: {\"type\":\"");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\",\"sequence_number\":");
        out.extend_from_slice(itoa::Buffer::new().format(self.next).as_bytes());
        self.next = self.next.saturating_add(1);
    }
}

/// Last bytes of a server-sent event: the closing brace of its data and a blank line.
pub(super) const EVENT_END: &[u8] = b"}\n\n";
