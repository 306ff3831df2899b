//! Limits of the connections, requests and responses of the admin listener and of the dashboard.

use super::request_head::gzip;
use crate::console::max_send_time;
use crate::proxy::downstream::Downstream;
use crate::proxy::response::head::ResponseHead;
use crate::server::silent_connections::EvictingConnectionLimit;
use bytes::Bytes;
use pingora_core::protocols::http::ServerSession;
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
    /// the oldest one whose head has not arrived. Returns the permit of the connection; `None` if no valid head arrives
    /// in time, or if the connection is closed.
    pub(super) async fn read_request_head(
        &self,
        session: &mut ServerSession,
    ) -> Option<OwnedSemaphorePermit> {
        let connection = self.connections.admit().await?;
        let head = timeout(READ_TIMEOUT, session.read_request());
        let (read, permit) = connection.wait_for(head).await?;
        read.ok()?.ok()?.then_some(permit)
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
