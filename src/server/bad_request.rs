//! Response to a request whose head was refused, before an exchange exists.

use super::{PublicServer, linger_close};
use crate::proxy::endpoint::{self, MessagesDialectHint};
use crate::proxy::filters::ResponseFields;
use crate::proxy::response::cors::CrossOrigin;
use crate::proxy::response::head::ResponseHead;
use crate::telemetry::request_id::RequestId;
use crate::telemetry::{AccessRecord, ExchangeOutcome};
use http::header;
use penstock_core::{ApiError, Dialect, ErrorCode};
use penstock_http_wire::http1_request::{
    HeadError, HeadParser, field_of_invalid_head, request_target_for_log,
};
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::date::get_cached_date;
use std::time::Instant;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

/// Number of leading bytes of a head that are stored.
const START_LEN: usize = 64;

/// Writes and records the refusal of an invalid head, and closes the connection. If `error` is `None`, the head did not
/// arrive in time, and the status is 408.
pub(super) async fn refuse_head(
    server: &PublicServer,
    mut stream: Stream,
    form: &RefusalForm,
    error: Option<HeadError>,
) {
    let (started, id) = (Instant::now(), RequestId::random());
    let live = server.app.config_snapshot();
    let (limits, dialect) = (live.settings.limits.clone(), form.dialect());
    let late = error.is_none();
    let refusal =
        error.map_or_else(|| ApiError::new(ErrorCode::RequestTimeout), |error| head_refusal(error, &limits));
    let row = refusal.spec();
    let body = penstock_http_wire::error::error_envelope(dialect, &refusal, id.as_str());
    let origin = CrossOrigin::from_request(form.origin.as_deref(), &live.settings.listen.cors);
    let head = ResponseHead::new(row.status, &id)
        .with_field(header::DATE, get_cached_date())
        .with_body_headers("application/json", body.len() as u64)
        .with_field(header::CONNECTION, "close")
        .with_cors(&origin);
    let answer = [head_bytes(&head), body.clone()].concat();
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

/// Returns the bytes of a response head.
fn head_bytes(head: &ResponseHead) -> Vec<u8> {
    let status = head.status();
    let mut bytes =
        format!("HTTP/1.1 {} {}\r\n", status.as_u16(), status.canonical_reason().unwrap_or_default())
            .into_bytes();
    for (name, value) in head.fields() {
        bytes.extend_from_slice(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}

/// Parts of a request head that determine the form of its refusal: the dialect, and the fields for web pages.
pub(super) struct RefusalForm {
    /// First bytes of the head, padded with zeros. They suffice to determine the dialect of its path.
    start: [u8; START_LEN],
    hint: MessagesDialectHint,
    /// Value of `Origin`.
    origin: Option<Box<[u8]>>,
}

impl RefusalForm {
    /// Reads the parts of a valid head.
    pub(super) fn from_parser(head: &[u8], parser: &HeadParser) -> Self {
        Self::new(head, |name| parser.field(head, name))
    }

    /// Reads the parts of a head that is invalid or incomplete, as far as it has arrived.
    pub(super) fn from_invalid_head(head: &[u8]) -> Self {
        Self::new(head, |name| field_of_invalid_head(head, name))
    }

    fn new<'h>(head: &[u8], field: impl Fn(&str) -> Option<&'h [u8]>) -> Self {
        let mut start = [0; START_LEN];
        start.iter_mut().zip(head).for_each(|(to, from)| *to = *from);
        let hint = MessagesDialectHint::from_request(|name| field(name).is_some());
        Self { start, hint, origin: field("origin").map(Box::from) }
    }

    /// Returns the dialect of the error response.
    fn dialect(&self) -> Dialect {
        let target = request_target_for_log(&self.start);
        endpoint::error_dialect(target.split('?').next().unwrap_or_default(), self.hint)
    }
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
