//! Public HTTP server, which serves a connection from its acceptance to its close. It enforces the limits that apply
//! before an exchange exists. These have settings: the number of connections, the time and the size of request heads,
//! the number of streams per connection, the number of streams that a client resets, and the number of frames without
//! request data.

mod bad_request;
pub mod connection_limit;
mod h2_flood_guard;
mod header_budget;
mod http1;
pub mod http2;
pub mod listener;
pub mod silent_connections;

use crate::config::settings::LimitSettings;
use crate::http::{LINGER_IDLE, LINGER_TIMEOUT, MAX_LINGER_BYTES};
use crate::proxy::GatewayProxy;
use crate::state::AppState;
use connection_limit::{ConnectionLimit, ConnectionPermit};
use header_budget::HeaderBudget;
use pingora_core::protocols::{ALPN, Stream};
use pingora_core::server::ShutdownWatch;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// Time for which an idle connection may still start a request after the gateway began to drain.
pub const DRAIN_IDLE_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of bytes per read of a discarded body.
const LINGER_BUFFER: usize = 16 << 10;

/// HTTP server of the public listeners.
pub struct PublicServer {
    app: Arc<AppState>,
    proxy: GatewayProxy,
    connection_limit: Arc<ConnectionLimit>,
    header_budget: Arc<HeaderBudget>,
}

impl PublicServer {
    /// Creates the server of a gateway.
    #[must_use]
    pub fn new(app: Arc<AppState>, proxy: GatewayProxy) -> Self {
        let connection_limit = ConnectionLimit::new(app.metrics.open_connections_gauge());
        Self { app, proxy, connection_limit, header_budget: Arc::default() }
    }

    /// Returns a permit for a connection from this address; `None`, and counts a refusal, if the limits allow none.
    #[must_use]
    pub fn admit_connection(&self, client: IpAddr) -> Option<ConnectionPermit> {
        let live = self.app.config_snapshot();
        let limits = &live.settings.limits;
        match self.connection_limit.try_acquire(client, limits.connections, limits.connections_per_client) {
            Ok(permit) => Some(permit),
            Err(full) => {
                self.app.metrics.count_refused_connection(full.name());
                None
            }
        }
    }

    /// Returns the configured limits on clients, connections and requests.
    #[must_use]
    pub fn client_limits(&self) -> LimitSettings {
        self.app.config_snapshot().settings.limits.clone()
    }

    /// Serves one connection until it closes.
    pub async fn serve_connection(self: Arc<Self>, stream: Stream, stop: ShutdownWatch) {
        if matches!(stream.selected_alpn_proto(), Some(ALPN::H2)) {
            Box::pin(http2::serve_connection(&self, stream, stop)).await;
        } else {
            http1::serve_connection(&self, stream, stop).await;
        }
    }
}

/// Closes a connection whose client may still be sending a refused body. A socket that is closed with unread bytes is
/// reset, and the client may then lose the response. So the write side is closed first, and further input is read and
/// discarded for a limited time. With `late`, this time is short: the client has already exceeded a timeout, and the
/// connection still holds a permit.
async fn linger_close(mut stream: Stream, late: bool) {
    let discard = async {
        if !matches!(timeout(LINGER_IDLE, AsyncWriteExt::shutdown(&mut stream)).await, Ok(Ok(()))) {
            return;
        }
        let mut buffer = vec![0; LINGER_BUFFER];
        let mut remaining = MAX_LINGER_BYTES;
        while remaining > 0
            && let Ok(Ok(read @ 1..)) = timeout(LINGER_IDLE, stream.read(&mut buffer)).await
        {
            remaining = remaining.saturating_sub(read);
        }
    };
    timeout(if late { LINGER_IDLE } else { LINGER_TIMEOUT }, discard).await.ok();
}

/// Waits until the gateway starts to drain, and then for [`DRAIN_IDLE_TIMEOUT`]. A request that a client sends in
/// this time is still answered, and its response says that the connection will be closed.
async fn drain_grace(stop: &mut ShutdownWatch) {
    drain_started(stop).await;
    tokio::time::sleep(DRAIN_IDLE_TIMEOUT).await;
}

/// Waits until the gateway starts to drain.
async fn drain_started(stop: &mut ShutdownWatch) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}
