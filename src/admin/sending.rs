//! Limits of the connections, requests and responses of the admin listener and of the dashboard.

use super::request_head::gzip;
use crate::config::settings::LimitSettings;
use crate::console::max_send_time;
use crate::proxy::downstream::Downstream;
use crate::proxy::response::head::ResponseHead;
use crate::server::silent_connections::EvictingConnectionLimit;
use crate::telemetry::request_id::RequestId;
use bytes::Bytes;
use penstock_core::{ApiError, Dialect, ErrorCode};
use pingora_core::ErrorType;
use pingora_core::protocols::http::ServerSession;
use pingora_http::{RequestHeader, ResponseHeader};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Maximum number of connections of a listener, without downloads and event streams. A further connection closes the
/// oldest one whose request has not arrived; if there is none, it is closed itself.
pub(super) const MAX_CONNECTIONS: usize = 256;
/// Maximum number of requests of a listener in flight, not counting downloads, event streams and probes. A further
/// request gets 503.
pub(super) const MAX_IN_FLIGHT_REQUESTS: usize = 128;
/// Number of changes of keys and accounts that are served beyond [`MAX_IN_FLIGHT_REQUESTS`], so that reads do not
/// prevent the revocation of a key.
const RESERVED_CHANGES: usize = 8;
/// Timeout for reading a request head, for reading a request body, and for closing a connection.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of bytes of the separators of a header field: a colon with a space, and the end of the line.
const FIELD_SEPARATORS: usize = 4;
/// Minimum body size for compression, in bytes.
const MIN_COMPRESSIBLE_BYTES: usize = 1024;

/// Permits of the connections and requests of a listener.
pub(super) struct ListenerPermits {
    /// Limit of the connections, whether their request has arrived or not.
    connections: Arc<EvictingConnectionLimit>,
    requests: Semaphore,
    changes: Semaphore,
}

impl Default for ListenerPermits {
    fn default() -> Self {
        Self {
            connections: EvictingConnectionLimit::new(MAX_CONNECTIONS),
            requests: Semaphore::new(MAX_IN_FLIGHT_REQUESTS),
            changes: Semaphore::new(RESERVED_CHANGES),
        }
    }
}

impl ListenerPermits {
    /// Admits a connection and reads its first request head. While the listener is full, a further connection closes
    /// the oldest one whose head has not arrived. Returns the permit of the connection; `None` if no head arrives in
    /// time, if the head is malformed, which is answered with 400, or if the connection is closed.
    pub(super) async fn read_request_head(
        &self,
        session: &mut ServerSession,
    ) -> Option<OwnedSemaphorePermit> {
        let connection = self.connections.admit().await?;
        let head = timeout(READ_TIMEOUT, session.read_request());
        let (read, permit) = connection.wait_for(head).await?;
        match read.ok()? {
            Ok(has_arrived) => has_arrived.then_some(permit),
            Err(error) => {
                if error.etype() == &ErrorType::InvalidHTTPHeader {
                    refuse_malformed_head(session).await;
                }
                None
            }
        }
    }

    /// Returns the number of connections that can be admitted without closing another one.
    #[cfg(test)]
    pub(super) fn free_connections(&self) -> usize {
        self.connections.free()
    }

    /// Returns the permit of a request that has arrived; `None` if too many are in flight. `is_change` is true for a
    /// change of keys or accounts by an authorised caller.
    pub(super) fn admit_request(&self, is_change: bool) -> Option<SemaphorePermit<'_>> {
        let admitted = self.requests.try_acquire();
        admitted.or_else(|error| if is_change { self.changes.try_acquire() } else { Err(error) }).ok()
    }
}

/// Answers a head that is no valid HTTP with 400.
async fn refuse_malformed_head(session: &mut ServerSession) {
    let id = RequestId::random();
    let refusal = ApiError::with_message(ErrorCode::InvalidRequest, "The request's head is not valid HTTP.");
    let body = penstock_http_wire::error::error_envelope(Dialect::Chat, &refusal, id.as_str());
    let head = || -> pingora_core::Result<ResponseHeader> {
        let mut head = ResponseHeader::build(refusal.spec().status, None)?;
        head.insert_header("content-type", "application/json")?;
        head.insert_header("x-request-id", id.as_str())?;
        head.insert_header("content-length", body.len())?;
        Ok(head)
    };
    let Ok(head) = head() else { return };
    timeout(READ_TIMEOUT, session.write_error_response(head, Bytes::from(body))).await.ok();
}

/// Checks the target and the size of a request head against the limits of the public listeners.
///
/// # Errors
/// Returns 414 or 431 with the limit that is exceeded.
pub(super) fn check_head_limits(limits: &LimitSettings, head: &RequestHeader) -> Result<(), ApiError> {
    let target = head.raw_path().len();
    let fields =
        head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_SEPARATORS);
    let bytes = target + fields.sum::<usize>();
    let exceeded = |code, what: &str, limit: usize, unit: &str| {
        let message = format!("The request's {what} has more than {limit} {unit}.");
        Err(ApiError::with_message(code, message).with_details_member("limit", limit))
    };
    if target > limits.target {
        return exceeded(ErrorCode::TargetTooLong, "target", limits.target, "bytes");
    }
    if head.headers.len() > limits.head_fields {
        return exceeded(ErrorCode::HeadTooLarge, "head", limits.head_fields, "fields");
    }
    if bytes > limits.head {
        return exceeded(ErrorCode::HeadTooLarge, "head", limits.head, "bytes");
    }
    Ok(())
}

/// Sends a response, compressed if the client takes it. Closes the connection before the end of the response if the
/// client reads too slowly.
pub(super) async fn send_response(
    session: &mut ServerSession,
    head: ResponseHead,
    kind: &str,
    body: Vec<u8>,
    accepts_gzip: bool,
) {
    let head = head.with_field("vary", "accept-encoding");
    let (head, body) =
        match (accepts_gzip && body.len() >= MIN_COMPRESSIBLE_BYTES).then(|| gzip(&body)).flatten() {
            Some(compressed) => (head.with_field("content-encoding", "gzip"), compressed),
            None => (head, body),
        };
    let within = max_send_time(body.len() as u64);
    let mut caller = Downstream::new(session, None);
    timeout(within, head.send_body(&mut caller, kind, vec![Bytes::from(body)])).await.ok();
}

/// Closes a connection after its response was sent.
pub(super) async fn close_connection(session: ServerSession) {
    timeout(READ_TIMEOUT, session.finish()).await.ok();
}
