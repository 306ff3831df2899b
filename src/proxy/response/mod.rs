//! Responses to clients: heads that contain only allowed fields, bodies with an exact length, and refusals in the
//! dialect of the client. No header field of a provider is passed on unless it is allowed.

pub mod cors;
pub mod head;

use crate::proxy::downstream::Downstream;
use crate::telemetry::request_id::RequestId;
use bytes::{Bytes, BytesMut};
use cors::CrossOrigin;
use head::{ResponseHead, ceil_seconds};
use http::header;
use penstock_core::{ApiError, Dialect, ErrorCode};
use penstock_limits::RateLimitStatus;
use std::io::Result;
use std::time::Duration;

/// Maximum size in bytes of a body that is copied and sent together with its head.
const MAX_COALESCED_BYTES: usize = 16 * 1024;
/// Size in bytes of the slices in which a long body is written. A client that reads too slowly is noticed between two
/// slices.
const SLICE_BYTES: usize = 64 * 1024;

impl ResponseHead {
    /// Sends a JSON body with its exact length.
    ///
    /// # Errors
    /// Returns an error if the client is gone.
    pub async fn send_json(self, caller: &mut Downstream<'_>, body: Vec<Bytes>) -> Result<()> {
        self.send_body(caller, "application/json", body).await
    }

    /// Sends a body of any type with its exact length.
    ///
    /// # Errors
    /// Returns an error if the client is gone.
    pub async fn send_body(self, caller: &mut Downstream<'_>, kind: &str, body: Vec<Bytes>) -> Result<()> {
        let length: usize = body.iter().map(Bytes::len).sum();
        let silent = *caller.method() == http::Method::HEAD;
        caller.write_response_header(self.with_body_headers(kind, length as u64)).await?;
        if length == 0 || silent {
            return caller.write_response_body(Bytes::new(), true).await;
        }
        write_pieces(caller, body).await
    }

    /// Sends the head of a body of this length. The caller has to send the bytes afterwards, except for a length of 0
    /// or a HEAD request: the response is then complete.
    ///
    /// # Errors
    /// Returns an error if the client is gone.
    pub async fn send_head(self, caller: &mut Downstream<'_>, kind: &str, length: u64) -> Result<()> {
        let silent = *caller.method() == http::Method::HEAD || length == 0;
        caller.write_response_header(self.with_body_headers(kind, length)).await?;
        if silent { caller.write_response_body(Bytes::new(), true).await } else { Ok(()) }
    }

    /// Starts a stream of server-sent events. Its head is stored, and is sent with the first event.
    ///
    /// # Errors
    /// Returns no error at present: the first write notices that the client is gone.
    pub async fn start_event_stream(self, caller: &mut Downstream<'_>) -> Result<()> {
        let head = self.with_event_stream_headers(caller.uses_chunked_encoding());
        caller.write_response_header(head).await
    }
}

impl ResponseHead {
    /// Starts a stream of bytes of this content type, whose end may have the trailer fields `trailers`. Its head is
    /// stored, and is sent with the first bytes.
    ///
    /// # Errors
    /// Returns no error at present: the first write notices that the client is gone.
    pub async fn start_byte_stream(
        self,
        caller: &mut Downstream<'_>,
        kind: &str,
        trailers: &str,
    ) -> Result<()> {
        let mut head =
            self.with_field(header::CONTENT_TYPE, kind).with_field(header::CACHE_CONTROL, "no-cache");
        if caller.supports_trailers() {
            head = head.with_field(header::TRAILER, trailers);
        }
        if caller.uses_chunked_encoding() {
            head = head.with_field(header::TRANSFER_ENCODING, "chunked");
        }
        caller.write_response_header(head).await
    }
}

/// Writes pieces as one body. Small pieces that follow each other are joined, and long pieces are split into slices. A
/// batch line, a background response or a single choice receives the pieces unchanged.
async fn write_pieces(caller: &mut Downstream<'_>, body: Vec<Bytes>) -> Result<()> {
    if caller.in_process_line().is_some() {
        for piece in body {
            caller.write_response_body(piece, false).await?;
        }
        return Ok(());
    }
    if body.iter().map(Bytes::len).sum::<usize>() <= MAX_COALESCED_BYTES {
        return caller.write_complete_response_body(&body).await;
    }
    let mut pending = BytesMut::new();
    let mut pieces = body.into_iter().peekable();
    while let Some(mut piece) = pieces.next() {
        let last = pieces.peek().is_none();
        if pending.len() + piece.len() <= SLICE_BYTES && !(last && pending.is_empty()) {
            pending.extend_from_slice(&piece);
            if last {
                return caller.write_response_body(pending.freeze(), true).await;
            }
            continue;
        }
        if !pending.is_empty() {
            caller.write_response_body(pending.split().freeze(), false).await?;
        }
        while piece.len() > SLICE_BYTES {
            caller.write_response_body(piece.split_to(SLICE_BYTES), false).await?;
        }
        caller.write_response_body(piece, last).await?;
    }
    Ok(())
}

/// Sends a refusal: status, error envelope of the path's dialect, `Retry-After`, status of the limits.
///
/// # Errors
/// Returns an error if the client is gone.
pub async fn send_refusal(
    caller: &mut Downstream<'_>,
    dialect: Dialect,
    id: &RequestId,
    refusal: &ApiError,
    limits: Option<(RateLimitStatus, Duration)>,
    origin: &CrossOrigin,
) -> Result<()> {
    let mut head = ResponseHead::new(refusal.spec().status, id);
    if let Some(seconds) = refusal.retry_after {
        head = head.with_numeric_field(header::RETRY_AFTER, seconds.into());
    }
    if refusal.code == ErrorCode::Conflict || refusal.is_final {
        // Client libraries retry a response with status 409 or 503 automatically. A retry would not help here: a
        // conflict would remain, and unusable output of a model would only be generated again.
        head = head.with_field("x-should-retry", "false");
    }
    let is_limit = refusal.code == ErrorCode::RateLimited;
    if let Some((limit_status, now)) = limits {
        let after = refusal.retry_after.filter(|_| is_limit);
        let reset = after.map(|seconds| ceil_seconds(now).saturating_add(u64::from(seconds)));
        head = head.with_rate_limits(dialect, &limit_status, now, reset);
        if is_limit {
            head = head.with_should_retry(refusal.retry_after);
        }
    }
    if refusal.spec().status == 401 {
        // Unlike other schemes, `Bearer` does not make browsers ask for a password.
        head = head.with_field(header::WWW_AUTHENTICATE, "Bearer");
    }
    if let Some(allow) = refusal.details.get("allow").and_then(|value| value.as_str()) {
        head = head.with_field(header::ALLOW, allow);
    }
    if refusal.code == ErrorCode::RangeNotSatisfiable
        && let Some(bytes) = refusal.details.get("bytes").and_then(serde_json::Value::as_u64)
    {
        head = head.with_field(header::CONTENT_RANGE, format!("bytes */{bytes}"));
    }
    let head = head.with_cors(origin);
    let body = penstock_http_wire::error::error_envelope(dialect, refusal, id.as_str());
    head.send_json(caller, vec![Bytes::from(body)]).await
}
