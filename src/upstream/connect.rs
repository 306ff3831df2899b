//! Connections to a provider: DNS resolution without blocking calls, failover between addresses, protocol negotiation,
//! and a timeout for every step.

#[cfg(test)]
mod tests;

use super::connection_pool::{ConnectionPool, ConnectionPools, IDLE_TIMEOUT};
use super::idle_pool::LocalPoolId;
use super::upstream_exchange::UpstreamExchange;
use crate::config::settings::{BaseUrl, HttpVersion, Provider, TlsVersion};
use crate::net::buffered_stream::BufferedSocket;
use crate::telemetry::fd_limit;
use crate::time::clock;
use penstock_core::{UpstreamError, UpstreamErrorKind};
use pingora_core::protocols::http::client::HttpSession;
use pingora_core::protocols::l4::ext::set_tcp_keepalive;
use pingora_core::protocols::tls::SslDigest;
use pingora_core::protocols::{ALPN, Stream};
use pingora_core::upstreams::peer::{HttpPeer, Peer};
use pingora_error::{Error, ErrorType};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Maximum number of concurrent streams on one HTTP/2 connection; for more, another connection is opened.
const MAX_H2_STREAMS: u32 = 100;
/// Receive window of a stream on an HTTP/2 connection to a provider: bytes that the provider may send before a slow
/// client reads them. At a round-trip time of 40 ms, the window allows 6 MiB/s.
pub const PROVIDER_STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// Receive window of an HTTP/2 connection: the sum of the windows of all its streams. So streams that the gateway
/// does not read do not block the others.
const H2_CONNECTION_WINDOW: u32 = MAX_H2_STREAMS * PROVIDER_STREAM_WINDOW_BYTES;
/// Interval of HTTP/2 pings on a connection.
const H2_PING_INTERVAL: Duration = Duration::from_secs(30);

/// Timeout of a DNS lookup.
const DNS_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of addresses of one name.
const MAX_ADDRESSES: usize = 32;

/// Route to a host of a provider, with its resolved addresses and its connection pool.
pub struct UpstreamRoute {
    base: BaseUrl,
    pool: Arc<ConnectionPool>,
    peers: parking_lot::RwLock<Vec<Arc<ResolvedPeer>>>,
    /// Index of the peer to which connections are opened, modulo the number of peers. It advances when a connection
    /// fails.
    peer_index: AtomicUsize,
}

/// One resolved address of a provider.
pub(super) struct ResolvedPeer {
    pub(super) peer: HttpPeer,
    /// Key of this peer's connections in the pool.
    pub(super) key: u64,
    address: SocketAddr,
    /// Minimum TLS version.
    min_tls: TlsVersion,
    /// Timeout of a connection attempt.
    connect: Duration,
    /// Write timeout: longest time for which the provider may accept no bytes.
    write_timeout: Duration,
}

impl ResolvedPeer {
    /// Checks the TLS version of a connection before any request is sent on it, because the connector accepts TLS 1.2
    /// even if a higher version is required.
    fn check_tls_version(&self, digest: Option<&SslDigest>) -> Result<(), UpstreamErrorKind> {
        match digest {
            Some(digest) if self.min_tls == TlsVersion::Tls13 && !digest.version.ends_with('3') => {
                Err(UpstreamErrorKind::Tls)
            }
            _ => Ok(()),
        }
    }

    fn is_http1_only(&self) -> bool {
        self.peer.options.alpn.get_max_http_version() == 1
    }

    /// Opens a new HTTP/1.1 connection.
    async fn connect(&self, pool: &ConnectionPool) -> Result<Stream, UpstreamErrorKind> {
        if self.peer.is_tls() {
            let opened = pool.connector.new_stream(&self.peer).await;
            let stream = opened.map_err(|error| connect_error_kind(&error))?;
            self.check_tls_version(stream.get_ssl_digest().as_deref())?;
            return Ok(stream);
        }
        // The socket is opened without Pingora, which would allocate buffers of 64 KiB per direction even for streams
        // that send and receive no data.
        let connected = timeout(self.connect, TcpStream::connect(self.address)).await;
        let socket =
            connected.map_err(|_| UpstreamErrorKind::Connect)?.map_err(|error| io_error_kind(&error))?;
        set_tcp_keepalive(&socket, &crate::net::TCP_KEEP_ALIVE).map_err(|_| UpstreamErrorKind::Connect)?;
        Ok(Box::new(
            BufferedSocket::for_provider(socket, self.write_timeout)
                .map_err(|_| UpstreamErrorKind::Connect)?,
        ))
    }
}

impl UpstreamRoute {
    /// Creates a route to a provider. Before the first lookup, it has an address only if its host is an IP address.
    ///
    /// # Errors
    /// Returns a sentence if a certificate file of the provider cannot be used.
    pub fn new(provider: &Provider, pools: &ConnectionPools) -> Result<Self, String> {
        Self::with_base_url(&provider.base_url, provider, pools)
    }

    /// Creates a route to another host of the same provider. Before the first lookup, it has an address only if its
    /// host is an IP address.
    ///
    /// # Errors
    /// Returns a sentence if a certificate file of the provider cannot be used.
    pub fn with_base_url(
        base: &BaseUrl,
        provider: &Provider,
        pools: &ConnectionPools,
    ) -> Result<Self, String> {
        let pool = pools.pool_for(provider)?;
        let route = Self {
            base: base.clone(),
            pool,
            peers: parking_lot::RwLock::default(),
            peer_index: AtomicUsize::new(0),
        };
        if let Ok(ip) = base.host.parse() {
            route.set_addresses(provider, &[SocketAddr::new(ip, base.port)]);
        }
        Ok(route)
    }

    /// Returns the base URL.
    #[must_use]
    pub const fn base_url(&self) -> &BaseUrl {
        &self.base
    }

    /// Looks up the addresses of the host name. If the lookup fails or times out, the old addresses remain in use.
    pub async fn refresh_addresses(&self, provider: &Provider) {
        if self.base.host.parse::<std::net::IpAddr>().is_ok() {
            return;
        }
        let found = timeout(DNS_TIMEOUT, tokio::net::lookup_host((&*self.base.host, self.base.port))).await;
        let addresses: Vec<SocketAddr> = found.into_iter().flatten().flatten().take(MAX_ADDRESSES).collect();
        if !addresses.is_empty() {
            self.set_addresses(provider, &addresses);
        }
    }

    /// Copies the addresses of `old`, a route of the previous configuration, if it has the same host and port.
    pub fn inherit_addresses(&self, provider: &Provider, old: &Self) {
        if (&old.base.host, old.base.port) == (&self.base.host, self.base.port) {
            let known: Vec<SocketAddr> = old.peers.read().iter().map(|peer| peer.address).collect();
            if !known.is_empty() {
                self.set_addresses(provider, &known);
            }
        }
    }

    /// Returns true if an address is known.
    #[must_use]
    pub fn is_resolved(&self) -> bool {
        !self.peers.read().is_empty()
    }

    /// Returns the first address; `None` if the host name is not resolved yet.
    #[must_use]
    pub fn first_address(&self) -> Option<SocketAddr> {
        self.peers.read().first().map(|peer| peer.address)
    }

    /// Replaces the resolved addresses, unless they differ only in their order.
    pub(super) fn set_addresses(&self, provider: &Provider, addresses: &[SocketAddr]) {
        // The same addresses in another order change nothing, so that the index still points to the peer that works.
        let known = |peers: &[Arc<ResolvedPeer>]| {
            peers.len() == addresses.len()
                && peers.iter().all(|peer| addresses.contains(&peer.address))
                && addresses.iter().all(|address| peers.iter().any(|peer| peer.address == *address))
        };
        if known(&self.peers.read()) {
            return;
        }
        let peer = |address: &SocketAddr| {
            let peer = http_peer(&self.base, provider, *address);
            Arc::new(ResolvedPeer {
                key: peer.reuse_hash(),
                peer,
                address: *address,
                min_tls: provider.min_tls,
                connect: provider.timeouts.connect,
                write_timeout: provider.timeouts.idle,
            })
        };
        let fresh = addresses.iter().map(peer).collect();
        *self.peers.write() = fresh;
    }

    /// Takes a connection from the pool, or opens a new one. If an address cannot be connected to, the next address of
    /// the host is tried. A failure is returned only if no address tried accepts a connection.
    ///
    /// # Errors
    /// Returns `Connect` or `Tls`, the error of the last address that was tried within twice the connect timeout; or
    /// `NoDescriptors`.
    pub async fn connect(&self) -> Result<UpstreamExchange, UpstreamError> {
        self.connect_with(IdleConnections::Use).await
    }

    /// Connects like [`Self::connect`], with or without the idle connections of the pool.
    ///
    /// # Errors
    /// Returns the errors of [`Self::connect`].
    pub async fn connect_with(&self, idle: IdleConnections) -> Result<UpstreamExchange, UpstreamError> {
        let (mut peer_index, mut kind) =
            (self.peer_index.load(Ordering::Relaxed), UpstreamErrorKind::Connect);
        let (began, peers) = (clock::cached_now(), self.peers.read().len());
        for _ in 0..peers {
            let Some(peer) = self.peer(peer_index) else { break };
            let connect_timeout = peer.connect;
            match self.connect_peer(peer, idle).await {
                Ok(exchange) => return Ok(exchange),
                // Without a file descriptor no other address can be reached either.
                Err(UpstreamErrorKind::NoDescriptors) => {
                    return Err(UpstreamError::new(UpstreamErrorKind::NoDescriptors));
                }
                Err(failed) => kind = failed,
            }
            // Only the first task that failed at this address advances the shared index. For later tasks, the
            // compare-and-swap fails, so that they do not move the index back to an address that does not work.
            let next = peer_index.wrapping_add(1);
            self.peer_index.compare_exchange(peer_index, next, Ordering::Relaxed, Ordering::Relaxed).ok();
            peer_index = next;
            if clock::cached_now().saturating_duration_since(began) >= connect_timeout * 2 {
                break;
            }
        }
        Err(UpstreamError::new(kind))
    }

    fn peer(&self, peer_index: usize) -> Option<Arc<ResolvedPeer>> {
        let peers = self.peers.read();
        peers.get(peer_index % peers.len().max(1)).cloned()
    }

    async fn connect_peer(
        &self,
        peer: Arc<ResolvedPeer>,
        idle: IdleConnections,
    ) -> Result<UpstreamExchange, UpstreamErrorKind> {
        let pool = self.pool.clone();
        if !peer.is_http1_only() {
            return Box::pin(connect_with_alpn(peer, pool, idle)).await;
        }
        if let Some((stream, owner)) = idle.take(&pool, &peer) {
            return Ok(UpstreamExchange::from_http1_stream(stream, true, owner, peer, pool));
        }
        // The future is boxed, as in the other branch: new connections are rare, and the state of this future would
        // enlarge the future of every request.
        let stream = Box::pin(peer.connect(&pool)).await?;
        Ok(UpstreamExchange::from_http1_stream(stream, false, LocalPoolId::of_current_thread(), peer, pool))
    }
}

/// Use of the idle HTTP/1.1 connections of the pool.
#[derive(Clone, Copy)]
pub enum IdleConnections {
    /// An idle connection is taken if there is one.
    Use,
    /// A new connection is opened, or a stream of an HTTP/2 connection.
    Skip,
}

impl IdleConnections {
    /// Takes an idle connection of the pool, with the pool of its thread; `None` if there is none, or if none is wanted.
    fn take(self, pool: &ConnectionPool, peer: &ResolvedPeer) -> Option<(Stream, LocalPoolId)> {
        match self {
            Self::Use => pool.take_idle(peer),
            Self::Skip => None,
        }
    }
}

/// Connects to a peer that may support HTTP/2. The version is selected by ALPN in the TLS handshake, or in clear text
/// by the configuration.
async fn connect_with_alpn(
    peer: Arc<ResolvedPeer>,
    pool: Arc<ConnectionPool>,
    idle: IdleConnections,
) -> Result<UpstreamExchange, UpstreamErrorKind> {
    let failed = |error: Box<Error>| connect_error_kind(&error);
    if let Some(session) = pool.take_h2(&peer).await.map_err(failed)? {
        return Ok(UpstreamExchange::from_http2_session(HttpSession::H2(session), true, peer, pool));
    }
    let only_h2 = peer.peer.options.alpn.get_min_http_version() == 2;
    if !only_h2 && let Some((stream, owner)) = idle.take(&pool, &peer) {
        return Ok(UpstreamExchange::from_http1_stream(stream, true, owner, peer, pool));
    }
    let stream = pool.connector.new_stream(&peer.peer).await.map_err(failed)?;
    peer.check_tls_version(stream.get_ssl_digest().as_deref())?;
    match stream.selected_alpn_proto() {
        Some(ALPN::H2) => {}
        None if only_h2 && !peer.peer.is_tls() => {}
        _ => {
            return Ok(UpstreamExchange::from_http1_stream(
                stream,
                false,
                LocalPoolId::of_current_thread(),
                peer,
                pool,
            ));
        }
    }
    // The HTTP/2 handshake writes only a few bytes; it gets the same timeout as the whole connection setup.
    let opened = timeout(peer.connect * 2, pool.open_h2(&peer, stream)).await;
    let session = opened.map_err(|_| UpstreamErrorKind::Connect)?.map_err(failed)?;
    Ok(UpstreamExchange::from_http2_session(HttpSession::H2(session), false, peer, pool))
}

/// Classifies the I/O error of a failed connection.
fn io_error_kind(error: &io::Error) -> UpstreamErrorKind {
    if fd_limit::log_if_fd_exhaustion(error) {
        UpstreamErrorKind::NoDescriptors
    } else {
        UpstreamErrorKind::Connect
    }
}

fn connect_error_kind(error: &Error) -> UpstreamErrorKind {
    match error.etype() {
        _ if fd_limit::log_if_pingora_fd_exhaustion(error) => UpstreamErrorKind::NoDescriptors,
        ErrorType::TLSHandshakeFailure
        | ErrorType::TLSHandshakeTimedout
        | ErrorType::InvalidCert
        | ErrorType::HandshakeError
        | ErrorType::TLSWantX509Lookup => UpstreamErrorKind::Tls,
        _ => UpstreamErrorKind::Connect,
    }
}

fn http_peer(base: &BaseUrl, provider: &Provider, address: SocketAddr) -> HttpPeer {
    // The server name (SNI) is never empty, because an empty name disables certificate checks.
    let mut peer = HttpPeer::new(address, base.tls, base.host.to_string());
    let connect = provider.timeouts.connect;
    let options = &mut peer.options;
    options.connection_timeout = Some(connect);
    options.total_connection_timeout = Some(connect * 2);
    options.read_timeout = Some(provider.timeouts.first_byte);
    options.write_timeout = Some(provider.timeouts.idle);
    options.idle_timeout = Some(IDLE_TIMEOUT);
    options.tcp_keepalive = Some(crate::net::TCP_KEEP_ALIVE);
    options.max_h2_streams = MAX_H2_STREAMS as usize;
    options.h2_ping_interval = Some(H2_PING_INTERVAL);
    options.h2_stream_window_size = Some(PROVIDER_STREAM_WINDOW_BYTES);
    options.h2_connection_window_size = Some(H2_CONNECTION_WINDOW);
    match (provider.http, base.tls) {
        (HttpVersion::H2, _) => options.set_http_version(2, 2),
        (HttpVersion::Auto, true) => options.set_http_version(2, 1),
        _ => options.set_http_version(1, 1),
    }
    peer
}
