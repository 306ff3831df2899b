//! The way to a provider: addresses resolved here and not by a blocking call,
//! every timeout set.

#[cfg(test)]
mod tests;

use super::connection_pool::{ConnectionPool, ConnectionPools, IDLE_TIMEOUT};
use super::idle_pool::ThreadPoolIndex;
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

/// Streams on one HTTP/2 connection before another is opened.
const MAX_H2_STREAMS: u32 = 100;
/// Window of a stream on an HTTP/2 connection to a provider: what it may send ahead of a slow client, and at 40 ms from
/// here 6 MiB a second.
pub const H2_WINDOW: u32 = 256 << 10;
/// Window of all streams of the connection together: as many as there may be can be full, and none stops another.
const H2_CONNECTION_WINDOW: u32 = MAX_H2_STREAMS * H2_WINDOW;
/// Interval of HTTP/2 pings on a connection.
const H2_PING_INTERVAL: Duration = Duration::from_secs(30);

/// Longest time to look a name up.
const DNS_TIMEOUT: Duration = Duration::from_secs(5);
/// Most addresses of one name.
const MAX_ADDRESSES: usize = 32;

/// One provider's addresses and how it is connected to.
pub struct UpstreamRoute {
    base: BaseUrl,
    pool: Arc<ConnectionPool>,
    peers: parking_lot::RwLock<Vec<Arc<ResolvedPeer>>>,
    /// Which of them is asked: it moves on when that one cannot be connected to.
    turn: AtomicUsize,
}

/// One address of a provider.
pub(super) struct ResolvedPeer {
    pub(super) peer: HttpPeer,
    /// Key of the connections of this route in the pool.
    pub(super) key: u64,
    address: SocketAddr,
    /// The oldest version of TLS that is good enough.
    least: TlsVersion,
    /// Longest time to connect.
    connect: Duration,
    /// Longest time that the provider may take nothing of what is written.
    patience: Duration,
}

impl ResolvedPeer {
    /// The connector takes TLS 1.2 too: a connection that is older than it may be is left before anything is
    /// said on it.
    fn check_tls_version(&self, digest: Option<&SslDigest>) -> Result<(), UpstreamErrorKind> {
        match digest {
            Some(digest) if self.least == TlsVersion::Tls13 && !digest.version.ends_with('3') => {
                Err(UpstreamErrorKind::Tls)
            }
            _ => Ok(()),
        }
    }

    fn is_http1_only(&self) -> bool {
        self.peer.options.alpn.get_max_http_version() == 1
    }

    /// A new connection that speaks HTTP/1.1.
    async fn connect(&self, pool: &ConnectionPool) -> Result<Stream, UpstreamErrorKind> {
        if self.peer.is_tls() {
            let opened = pool.streams.new_stream(&self.peer).await;
            let stream = opened.map_err(|error| connect_error_kind(&error))?;
            self.check_tls_version(stream.get_ssl_digest().as_deref())?;
            return Ok(stream);
        }
        // Without Pingora's buffers of 64 KiB each way, which a silent stream would hold for nothing.
        let connected = timeout(self.connect, TcpStream::connect(self.address)).await;
        let socket =
            connected.map_err(|_| UpstreamErrorKind::Connect)?.map_err(|error| io_error_kind(&error))?;
        set_tcp_keepalive(&socket, &crate::net::KEEP_ALIVE).map_err(|_| UpstreamErrorKind::Connect)?;
        Ok(Box::new(
            BufferedSocket::to_provider(socket, self.patience).map_err(|_| UpstreamErrorKind::Connect)?,
        ))
    }
}

impl UpstreamRoute {
    /// A route to a provider without addresses yet, but for those written as numbers.
    #[must_use]
    pub fn new(provider: &Provider, pools: &ConnectionPools) -> Self {
        Self::with_base_url(&provider.base_url, provider, pools)
    }

    /// A route to another host of the same provider's.
    #[must_use]
    pub fn with_base_url(base: &BaseUrl, provider: &Provider, pools: &ConnectionPools) -> Self {
        let pool = pools.of(provider);
        let route = Self {
            base: base.clone(),
            pool,
            peers: parking_lot::RwLock::default(),
            turn: AtomicUsize::new(0),
        };
        if let Ok(ip) = base.host.parse() {
            route.set_addresses(provider, &[SocketAddr::new(ip, base.port)]);
        }
        route
    }

    /// Returns the base URL.
    #[must_use]
    pub const fn base(&self) -> &BaseUrl {
        &self.base
    }

    /// Looks the name up again; the old addresses stay when nothing is found, or not soon.
    pub async fn resolve(&self, provider: &Provider) {
        if self.base.host.parse::<std::net::IpAddr>().is_ok() {
            return;
        }
        let found = timeout(DNS_TIMEOUT, tokio::net::lookup_host((&*self.base.host, self.base.port))).await;
        let addresses: Vec<SocketAddr> = found.into_iter().flatten().flatten().take(MAX_ADDRESSES).collect();
        if !addresses.is_empty() {
            self.set_addresses(provider, &addresses);
        }
    }

    /// Takes the addresses that a route of the configuration before has found for the same name, if it has any.
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

    /// The first of its addresses.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.peers.read().first().map(|peer| peer.address)
    }

    pub(super) fn set_addresses(&self, provider: &Provider, addresses: &[SocketAddr]) {
        // The same ones in another order are no news: whose turn it is was learnt.
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
                least: provider.min_tls,
                connect: provider.timeouts.connect,
                patience: provider.timeouts.idle,
            })
        };
        let fresh = addresses.iter().map(peer).collect();
        *self.peers.write() = fresh;
    }

    /// Connects, or takes a connection from the pool. An address that cannot be connected to is left for the next of
    /// the same name, and nobody is told: nothing was sent.
    ///
    /// # Errors
    /// `Connect` or `Tls`, of the last address that there was time for, or `Descriptors`.
    pub async fn connect(&self) -> Result<UpstreamExchange, UpstreamError> {
        let (mut turn, mut kind) = (self.turn.load(Ordering::Relaxed), UpstreamErrorKind::Connect);
        let (began, peers) = (clock::cached_now(), self.peers.read().len());
        for _ in 0..peers {
            let Some(peer) = self.peer(turn) else { break };
            let patience = peer.connect;
            match self.connect_peer(peer).await {
                Ok(way) => return Ok(way),
                // No other address is easier to reach without one.
                Err(UpstreamErrorKind::NoDescriptors) => {
                    return Err(UpstreamError::new(UpstreamErrorKind::NoDescriptors));
                }
                Err(failed) => kind = failed,
            }
            // Whoever failed where others have left already leads nobody back there.
            let next = turn.wrapping_add(1);
            self.turn.compare_exchange(turn, next, Ordering::Relaxed, Ordering::Relaxed).ok();
            turn = next;
            if clock::cached_now().saturating_duration_since(began) >= patience * 2 {
                break;
            }
        }
        Err(UpstreamError::new(kind))
    }

    fn peer(&self, turn: usize) -> Option<Arc<ResolvedPeer>> {
        let peers = self.peers.read();
        peers.get(turn % peers.len().max(1)).cloned()
    }

    async fn connect_peer(&self, peer: Arc<ResolvedPeer>) -> Result<UpstreamExchange, UpstreamErrorKind> {
        let pool = self.pool.clone();
        if !peer.is_http1_only() {
            return Box::pin(connect_with_alpn(peer, pool)).await;
        }
        if let Some((stream, home)) = pool.take(&peer) {
            return Ok(UpstreamExchange::http1(stream, true, home, peer, pool));
        }
        // Boxed, as is the other: a new connection is rare, and its state would be a part of every request's.
        let stream = Box::pin(peer.connect(&pool)).await?;
        Ok(UpstreamExchange::http1(stream, false, ThreadPoolIndex::current(), peer, pool))
    }
}

/// A way through a door behind which HTTP/2 may be spoken. Which it is is agreed on in the TLS handshake; in clear text
/// it is what the configuration says.
async fn connect_with_alpn(
    peer: Arc<ResolvedPeer>,
    pool: Arc<ConnectionPool>,
) -> Result<UpstreamExchange, UpstreamErrorKind> {
    let failed = |error: Box<Error>| connect_error_kind(&error);
    if let Some(session) = pool.take_h2(&peer).await.map_err(failed)? {
        return Ok(UpstreamExchange::with_session(HttpSession::H2(session), true, peer, pool));
    }
    let only_h2 = peer.peer.options.alpn.get_min_http_version() == 2;
    if !only_h2 && let Some((stream, home)) = pool.take(&peer) {
        return Ok(UpstreamExchange::http1(stream, true, home, peer, pool));
    }
    let stream = pool.streams.new_stream(&peer.peer).await.map_err(failed)?;
    peer.check_tls_version(stream.get_ssl_digest().as_deref())?;
    match stream.selected_alpn_proto() {
        Some(ALPN::H2) => {}
        None if only_h2 && !peer.peer.is_tls() => {}
        _ => return Ok(UpstreamExchange::http1(stream, false, ThreadPoolIndex::current(), peer, pool)),
    }
    // A new connection has to take a few bytes; it is given as long as it had to be there.
    let opened = timeout(peer.connect * 2, pool.open_h2(&peer, stream)).await;
    let session = opened.map_err(|_| UpstreamErrorKind::Connect)?.map_err(failed)?;
    Ok(UpstreamExchange::with_session(HttpSession::H2(session), false, peer, pool))
}

/// Classifies a failed connection.
fn io_error_kind(error: &io::Error) -> UpstreamErrorKind {
    if fd_limit::is_fd_exhaustion(error) {
        UpstreamErrorKind::NoDescriptors
    } else {
        UpstreamErrorKind::Connect
    }
}

fn connect_error_kind(error: &Error) -> UpstreamErrorKind {
    match error.etype() {
        _ if fd_limit::is_pingora_fd_exhaustion(error) => UpstreamErrorKind::NoDescriptors,
        ErrorType::TLSHandshakeFailure
        | ErrorType::TLSHandshakeTimedout
        | ErrorType::InvalidCert
        | ErrorType::HandshakeError
        | ErrorType::TLSWantX509Lookup => UpstreamErrorKind::Tls,
        _ => UpstreamErrorKind::Connect,
    }
}

fn http_peer(base: &BaseUrl, provider: &Provider, address: SocketAddr) -> HttpPeer {
    // The SNI is never empty: an empty one turns certificate checks off.
    let mut peer = HttpPeer::new(address, base.tls, base.host.to_string());
    let connect = provider.timeouts.connect;
    let options = &mut peer.options;
    options.connection_timeout = Some(connect);
    options.total_connection_timeout = Some(connect * 2);
    options.read_timeout = Some(provider.timeouts.first_byte);
    options.write_timeout = Some(provider.timeouts.idle);
    options.idle_timeout = Some(IDLE_TIMEOUT);
    options.tcp_keepalive = Some(crate::net::KEEP_ALIVE);
    options.max_h2_streams = MAX_H2_STREAMS as usize;
    options.h2_ping_interval = Some(H2_PING_INTERVAL);
    options.h2_stream_window_size = Some(H2_WINDOW);
    options.h2_connection_window_size = Some(H2_CONNECTION_WINDOW);
    match (provider.http, base.tls) {
        (HttpVersion::H2, _) => options.set_http_version(2, 2),
        (HttpVersion::Auto, true) => options.set_http_version(2, 1),
        _ => options.set_http_version(1, 1),
    }
    peer
}
