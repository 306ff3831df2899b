//! Connections to providers that may serve again: one pool for all that trust and
//! show the same.

use super::connect::ResolvedPeer;
use super::frames::FrameCountingStream;
use super::idle_pool::{IdlePool, ThreadPoolIndex};
use crate::config::settings::{Provider, TlsVersion};
use pingora_core::connectors::http::v2::{Connector, H2HandshakeSettings, handshake};
use pingora_core::connectors::{ConnectorOptions, TransportConnector};
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::client::HttpSession;
use pingora_core::protocols::http::v2::client::Http2Session;
use pingora_error::{Error, ErrorType};
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Idle connections kept over all providers.
const MAX_IDLE: usize = 1024;
/// Maximum idle time of a connection.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// One pool of connections for providers that trust and show the same.
pub struct ConnectionPools {
    system: Arc<ConnectionPool>,
    own: parking_lot::Mutex<Vec<(TlsTrust, Arc<ConnectionPool>)>>,
}

/// Trust settings of a pool's connections: contents of the files, not only their paths.
#[derive(Clone, PartialEq, Eq, Default)]
struct TlsTrust {
    roots: Option<PathBuf>,
    client: Option<(PathBuf, PathBuf)>,
    least: TlsVersion,
    contents: [u8; 32],
}

impl TlsTrust {
    fn of(provider: &Provider) -> Self {
        let mut digest = Sha256::new();
        let client = provider.client.as_ref().map(|(certificate, key)| [certificate, key]);
        for path in provider.ca.iter().chain(client.into_iter().flatten()) {
            let bytes = std::fs::read(path).unwrap_or_default();
            digest.update((bytes.len() as u64).to_le_bytes());
            digest.update(bytes);
        }
        let (roots, client) = (provider.ca.clone(), provider.client.clone());
        Self { roots, client, least: provider.min_tls, contents: digest.finalize().into() }
    }
}

/// Connections with the same trust.
pub struct ConnectionPool {
    /// Connections on which HTTP/2 was agreed on.
    h2: Connector,
    /// New connections. Those that speak HTTP/1.1 are kept as bare streams, so that a request's head and body leave
    /// in one write: a session flushes between them.
    pub(super) streams: TransportConnector,
    idle: IdlePool,
}

impl ConnectionPool {
    fn new(trust: &TlsTrust) -> Arc<Self> {
        Arc::new(Self {
            h2: Connector::new(Some(options(trust))),
            streams: TransportConnector::new(Some(options(trust))),
            idle: IdlePool::new(MAX_IDLE, IDLE_TIMEOUT),
        })
    }

    /// An idle connection through this door, and the thread that watches it.
    pub(super) fn take(&self, peer: &ResolvedPeer) -> Option<(Stream, ThreadPoolIndex)> {
        self.idle.take(peer.key)
    }

    /// Keeps a connection on which nothing is under way.
    pub(super) fn put(&self, peer: &ResolvedPeer, stream: Stream, home: ThreadPoolIndex) {
        self.idle.put(peer.key, stream, home);
    }

    /// A stream on a connection that speaks HTTP/2 and has room for one.
    pub(super) async fn take_h2(&self, peer: &ResolvedPeer) -> pingora_error::Result<Option<Http2Session>> {
        self.h2.reused_http_session(&peer.peer).await
    }

    /// Opens HTTP/2 on a new connection, with its frames counted; its first stream.
    pub(super) async fn open_h2(
        &self,
        peer: &ResolvedPeer,
        stream: Stream,
    ) -> pingora_error::Result<Http2Session> {
        let options = &peer.peer.options;
        let mut settings = H2HandshakeSettings::new();
        settings.max_streams = options.max_h2_streams;
        settings.ping_interval = options.h2_ping_interval;
        settings.stream_window_size = options.h2_stream_window_size;
        settings.connection_window_size = options.h2_connection_window_size;
        let connection = handshake(Box::new(FrameCountingStream::new(stream)), settings).await?;
        let none = || Error::explain(ErrorType::H2Error, "a new connection has no room for a stream");
        let session = connection.spawn_stream().await?.ok_or_else(none)?;
        if connection.more_streams_allowed() {
            self.h2.in_use_pool().insert(peer.key, connection);
        }
        Ok(session)
    }

    /// Gives a stream back, and keeps its connection.
    pub(super) fn put_session(&self, peer: &ResolvedPeer, session: HttpSession) {
        if let HttpSession::H2(session) = session {
            self.h2.release_http_session(session, &peer.peer, Some(IDLE_TIMEOUT));
        }
    }
}

impl Default for ConnectionPools {
    fn default() -> Self {
        Self { system: ConnectionPool::new(&TlsTrust::default()), own: parking_lot::Mutex::default() }
    }
}

impl ConnectionPools {
    /// The pool for what this provider is trusted by and shown; the system's for nothing in particular. Its files
    /// have been proven.
    pub fn of(&self, provider: &Provider) -> Arc<ConnectionPool> {
        if provider.ca.is_none() && provider.client.is_none() && provider.min_tls == TlsVersion::default() {
            return self.system.clone();
        }
        let trust = TlsTrust::of(provider);
        let mut own = self.own.lock();
        // Nobody asks through what was replaced once its last request has ended.
        own.retain(|(known, pool)| *known == trust || Arc::strong_count(pool) > 1);
        if let Some((_, pool)) = own.iter().find(|(known, _)| *known == trust) {
            return pool.clone();
        }
        let pool = ConnectionPool::new(&trust);
        own.push((trust, pool.clone()));
        pool
    }

    /// Drops idle connections that are no longer good; see [`Idle::sweep`].
    pub fn sweep(&self) {
        let own: Vec<Arc<ConnectionPool>> = self.own.lock().iter().map(|(_, pool)| pool.clone()).collect();
        std::iter::once(&self.system).chain(&own).for_each(|pool| pool.idle.sweep());
    }
}

fn options(trust: &TlsTrust) -> ConnectorOptions {
    let mut options = ConnectorOptions::new(MAX_IDLE);
    let text = |path: &PathBuf| path.to_string_lossy().into_owned();
    options.ca_file = trust.roots.as_ref().map(text);
    options.cert_key_file = trust.client.as_ref().map(|(certificate, key)| (text(certificate), text(key)));
    options
}
