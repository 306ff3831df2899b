//! Pools of reusable connections to providers, one for each set of TLS trust settings (root certificates, client
//! certificate, minimum version).

use super::connect::ResolvedPeer;
use super::frames::FrameCountingStream;
use super::idle_pool::{IdlePool, LocalPoolId};
use super::pem_copy::PemCopy;
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

/// Maximum number of idle connections of a pool, for all its providers together.
const MAX_IDLE_CONNECTIONS: usize = 1024;
/// Maximum idle time of a connection.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Pools of connections to providers, one for each set of TLS trust settings.
pub struct ConnectionPools {
    system: Arc<ConnectionPool>,
    own: parking_lot::Mutex<Vec<(TlsTrust, Arc<ConnectionPool>)>>,
}

/// TLS trust settings of a pool's connections: paths of the files, a digest of their contents, and the minimum version.
#[derive(Clone, PartialEq, Eq, Default)]
struct TlsTrust {
    roots: Option<PathBuf>,
    client: Option<(PathBuf, PathBuf)>,
    min_tls: TlsVersion,
    contents: [u8; 32],
}

/// Copies of the files of TLS trust settings.
#[derive(Default)]
struct TlsFiles {
    roots: Option<PemCopy>,
    client: Option<(PemCopy, PemCopy)>,
}

impl TlsFiles {
    fn of(provider: &Provider) -> Result<Self, String> {
        let client = provider.client.as_ref();
        Ok(Self {
            roots: provider.ca.as_deref().map(PemCopy::of_root_certificates).transpose()?,
            client: client.map(|(certificate, key)| PemCopy::of_key_pair(certificate, key)).transpose()?,
        })
    }
}

impl TlsTrust {
    fn of(provider: &Provider, files: &TlsFiles) -> Self {
        let mut digest = Sha256::new();
        let client = files.client.as_ref().map(|(certificate, key)| [certificate, key]);
        for copy in files.roots.iter().chain(client.into_iter().flatten()) {
            digest.update((copy.bytes().len() as u64).to_le_bytes());
            digest.update(copy.bytes());
        }
        let (roots, client) = (provider.ca.clone(), provider.client.clone());
        Self { roots, client, min_tls: provider.min_tls, contents: digest.finalize().into() }
    }
}

/// Pool of connections with the same trust settings.
pub struct ConnectionPool {
    /// Connector with the pool of HTTP/2 connections.
    h2: Connector,
    /// Connector for new connections. HTTP/1.1 connections are pooled as plain streams and not as Pingora sessions.
    /// So the head and the body of a request are sent in one write; a Pingora session would flush between them.
    pub(super) connector: TransportConnector,
    idle: IdlePool,
}

impl ConnectionPool {
    fn new(files: &TlsFiles) -> Arc<Self> {
        Arc::new(Self {
            h2: Connector::new(Some(options(files))),
            connector: TransportConnector::new(Some(options(files))),
            idle: IdlePool::new(MAX_IDLE_CONNECTIONS, IDLE_TIMEOUT),
        })
    }

    /// Takes an idle HTTP/1.1 connection to this peer from the pool; `None` if there is none, or if this thread is to
    /// open its own connection, because it has taken several from other threads. Also returns the id of the local
    /// pool to which the connection has to be returned.
    pub(super) fn take_idle(&self, peer: &ResolvedPeer) -> Option<(Stream, LocalPoolId)> {
        self.idle.take(peer.key)
    }

    /// Returns an idle HTTP/1.1 connection to the pool.
    pub(super) fn put_idle(&self, peer: &ResolvedPeer, stream: Stream, owner: LocalPoolId) {
        self.idle.put(peer.key, stream, owner);
    }

    /// Opens a stream on an HTTP/2 connection in the pool that can take another stream; `None` if there is none.
    pub(super) async fn take_h2(&self, peer: &ResolvedPeer) -> pingora_error::Result<Option<Http2Session>> {
        self.h2.reused_http_session(&peer.peer).await
    }

    /// Performs the HTTP/2 handshake on a new connection whose frames are counted, and returns its first stream.
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
        let none = || Error::explain(ErrorType::H2Error, "a new connection allows no stream");
        let session = connection.spawn_stream().await?.ok_or_else(none)?;
        if connection.more_streams_allowed() {
            self.h2.in_use_pool().insert(peer.key, connection);
        }
        Ok(session)
    }

    /// Releases a stream; its HTTP/2 connection stays in the pool.
    pub(super) fn release_h2(&self, peer: &ResolvedPeer, session: HttpSession) {
        if let HttpSession::H2(session) = session {
            self.h2.release_http_session(session, &peer.peer, Some(IDLE_TIMEOUT));
        }
    }
}

impl Default for ConnectionPools {
    fn default() -> Self {
        Self { system: ConnectionPool::new(&TlsFiles::default()), own: parking_lot::Mutex::default() }
    }
}

impl ConnectionPools {
    /// Returns the pool for the trust settings of this provider, and creates it if it does not exist. For a provider
    /// without such settings, this is the pool with the system's root certificates.
    ///
    /// # Errors
    /// Returns a sentence if a file of the settings cannot be used.
    pub fn pool_for(&self, provider: &Provider) -> Result<Arc<ConnectionPool>, String> {
        if provider.ca.is_none() && provider.client.is_none() && provider.min_tls == TlsVersion::default() {
            return Ok(self.system.clone());
        }
        let files = TlsFiles::of(provider)?;
        let trust = TlsTrust::of(provider, &files);
        let mut own = self.own.lock();
        // A replaced pool is dropped once its last request has ended.
        own.retain(|(known, pool)| *known == trust || Arc::strong_count(pool) > 1);
        if let Some((_, pool)) = own.iter().find(|(known, _)| *known == trust) {
            return Ok(pool.clone());
        }
        let pool = ConnectionPool::new(&files);
        own.push((trust, pool.clone()));
        Ok(pool)
    }

    /// Drops idle HTTP/1.1 connections that are expired or closed; see `IdlePool::sweep`.
    pub fn prune_idle_connections(&self) {
        let own: Vec<Arc<ConnectionPool>> = self.own.lock().iter().map(|(_, pool)| pool.clone()).collect();
        std::iter::once(&self.system).chain(&own).for_each(|pool| pool.idle.sweep());
    }
}

fn options(files: &TlsFiles) -> ConnectorOptions {
    let mut options = ConnectorOptions::new(MAX_IDLE_CONNECTIONS);
    options.ca_file = files.roots.as_ref().map(PemCopy::path);
    options.cert_key_file = files.client.as_ref().map(|(certificate, key)| (certificate.path(), key.path()));
    options
}
