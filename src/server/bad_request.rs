//! Response to a request whose head was refused, before an exchange exists.

use super::{PublicServer, linger_close};
use crate::proxy::endpoint::{self, MessagesDialectHint};
use crate::telemetry::request_id::RequestId;
use crate::telemetry::{AccessRecord, ExchangeOutcome};
use penstock_core::{ApiError, Dialect, ErrorCode};
use penstock_http_wire::http1_request::{HeadError, request_target_for_log};
use pingora_core::protocols::Stream;
use std::time::Instant;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

/// Writes and records the refusal of an invalid head, and closes the connection. If `error` is `None`, the head did not
/// arrive in time, and the status is 408.
pub(super) async fn refuse_head(
    server: &PublicServer,
    mut stream: Stream,
    dialect: Dialect,
    error: Option<HeadError>,
) {
    let (started, id) = (Instant::now(), RequestId::random());
    let limits = server.client_limits();
    let late = error.is_none();
    let refusal =
        error.map_or_else(|| ApiError::new(ErrorCode::RequestTimeout), |error| head_refusal(error, &limits));
    let row = refusal.spec();
    let body = penstock_http_wire::error::error_envelope(dialect, &refusal, id.as_str());
    let (status, length, id_text) = (row.status, body.len(), id.as_str());
    let reason = http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    let mut answer = format!(
        "HTTP/1.1 {status} {}\r\nx-request-id: {id_text}\r\nrequest-id: {id_text}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n",
        reason.unwrap_or_default()
    )
    .into_bytes();
    answer.extend_from_slice(&body);
    let written = timeout(limits.client_write, async {
        stream.write_all(&answer).await?;
        stream.flush().await
    });
    let disconnected = !matches!(written.await, Ok(Ok(())));
    let mut record = AccessRecord::new(id, dialect);
    record.record_refusal(&refusal);
    let interruption = disconnected.then_some(ExchangeOutcome::Disconnected);
    record.record_end(interruption, if disconnected { 0 } else { body.len() });
    server.app.record_exchange(&record, started);
    if !disconnected {
        linger_close(stream, late).await;
    }
}

/// Records an HTTP/2 request that the h2 library rejected as malformed; its head is unknown.
pub(super) fn record_malformed_request(server: &PublicServer) {
    let mut record = AccessRecord::new(RequestId::random(), Dialect::Chat);
    let message = "The request's head is not valid HTTP/2.";
    record.record_refusal(&ApiError::with_message(ErrorCode::InvalidRequest, message));
    record.record_end(None, 0);
    server.app.record_exchange(&record, Instant::now());
}

/// Returns the dialect of the error response, from the path of the request target.
pub(super) fn error_dialect_of_head(head: &[u8]) -> Dialect {
    endpoint::error_dialect(
        request_target_for_log(head).split('?').next().unwrap_or_default(),
        MessagesDialectHint::Absent,
    )
}

/// Returns the refusal of an invalid head.
pub(super) fn head_refusal(error: HeadError, limits: &crate::config::settings::LimitSettings) -> ApiError {
    match error {
        HeadError::Malformed(message) => ApiError::with_message(
            ErrorCode::InvalidRequest,
            format!("The request's head is not valid HTTP: {message}."),
        ),
        HeadError::TargetTooLong => {
            limit_exceeded(ErrorCode::TargetTooLong, "target", limits.target, "bytes")
        }
        HeadError::TooLarge => limit_exceeded(ErrorCode::HeadTooLarge, "head", limits.head, "bytes"),
        HeadError::TooManyFields => {
            limit_exceeded(ErrorCode::HeadTooLarge, "head", limits.head_fields, "fields")
        }
    }
}

fn limit_exceeded(code: ErrorCode, part: &str, limit: usize, unit: &str) -> ApiError {
    ApiError::with_message(code, format!("The request's {part} has more than {limit} {unit}."))
        .with_details_member("limit", limit)
}
