//! The front door: takes a connection to its end. What comes before an exchange
//! is here, and all of it is bounded by a setting: how many connections there
//! are, how long and how large a head may be, how many streams a connection has
//! and how often it may think better of them.

mod bad_request;
pub mod connection_limit;
mod h2_flood_guard;
mod header_budget;
mod http1;
pub mod http2;
pub mod listener;

use crate::config::settings::LimitSettings;
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

/// Bytes that are read of a refused body, so that its client receives the reason …
const MAX_LINGER_BYTES: usize = 64 << 20;
/// … how long that may take …
const LINGER_TIMEOUT: Duration = Duration::from_secs(10);
/// … and how long nothing may come meanwhile; for a client that was refused for being slow, all of it.
const LINGER_IDLE: Duration = Duration::from_secs(2);
/// Time in which an idle connection may still begin a request after the drain began.
pub const DRAIN_IDLE: Duration = Duration::from_secs(1);
/// Bytes of it that are read at once.
const LINGER_BUFFER: usize = 16 << 10;

/// HTTP server: takes connections to their end.
pub struct PublicServer {
    app: Arc<AppState>,
    proxy: GatewayProxy,
    places: Arc<ConnectionLimit>,
    heads: Arc<HeaderBudget>,
}

impl PublicServer {
    /// A front door of this gateway.
    #[must_use]
    pub fn new(app: Arc<AppState>, proxy: GatewayProxy) -> Self {
        let places = ConnectionLimit::new(app.metrics.connections());
        Self { app, proxy, places, heads: Arc::default() }
    }

    /// A place for a connection from this address, if there is one.
    #[must_use]
    pub fn admit_connection(&self, client: IpAddr) -> Option<ConnectionPermit> {
        let live = self.app.live();
        let limits = &live.settings.limits;
        match self.places.try_acquire(client, limits.connections, limits.connections_per_client) {
            Ok(place) => Some(place),
            Err(full) => {
                self.app.metrics.connection_refused(full.name());
                None
            }
        }
    }

    /// Returns the limits of clients.
    #[must_use]
    pub fn limits(&self) -> LimitSettings {
        self.app.live().settings.limits.clone()
    }

    /// One connection to its end.
    pub async fn serve(self: Arc<Self>, stream: Stream, stop: ShutdownWatch) {
        if matches!(stream.selected_alpn_proto(), Some(ALPN::H2)) {
            Box::pin(http2::serve(&self, stream, stop)).await;
        } else {
            http1::serve(&self, stream, stop).await;
        }
    }
}

/// Ends a connection whose client may still be sending what nobody wants. A connection that is closed over unread
/// bytes is reset, and a reset takes the answer with it before the client has read it: so the answer is ended
/// first, and what comes is read and thrown away for a while. Who has had its time already gets little more: it
/// holds the place of another.
async fn linger_close(mut stream: Stream, late: bool) {
    let unwanted = async {
        if !matches!(timeout(LINGER_IDLE, AsyncWriteExt::shutdown(&mut stream)).await, Ok(Ok(()))) {
            return;
        }
        let mut piece = vec![0; LINGER_BUFFER];
        let mut left = MAX_LINGER_BYTES;
        while left > 0
            && let Ok(Ok(read @ 1..)) = timeout(LINGER_IDLE, stream.read(&mut piece)).await
        {
            left = left.saturating_sub(read);
        }
    };
    timeout(if late { LINGER_IDLE } else { LINGER_TIMEOUT }, unwanted).await.ok();
}

/// Ends a moment after the gateway starts to drain: a request that its client was just sending is still answered,
/// and told that it is the last of its connection.
async fn drain_grace(stop: &mut ShutdownWatch) {
    drain_started(stop).await;
    tokio::time::sleep(DRAIN_IDLE).await;
}

/// Ends when the gateway starts to drain.
async fn drain_started(stop: &mut ShutdownWatch) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}
