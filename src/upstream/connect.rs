//! The way to a provider: addresses resolved here and not by a blocking call,
//! one pool for all providers that share their roots, every timeout set.

use super::idle::{Home, Idle};
use crate::config::settings::{BaseUrl, HttpVersion, Provider, TlsVersion};
use crate::spool::Spooled;
use bytes::Bytes;
use penstock_contract::{Call, Fault, FaultKind};
use pingora_core::connectors::http::Connector;
use pingora_core::connectors::{ConnectorOptions, TransportConnector};
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::client::HttpSession;
use pingora_core::protocols::http::v1::client::HttpSession as Http1Session;
use pingora_core::protocols::tls::SslDigest;
use pingora_core::upstreams::peer::{HttpPeer, Peer};
use pingora_error::ErrorType;
use sha2::{Digest, Sha256};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// Idle connections kept over all providers.
const POOL: usize = 1024;
/// How long one of them may idle.
const IDLE: Duration = Duration::from_secs(60);
/// Streams on one HTTP/2 connection before another is opened.
const H2_STREAMS: usize = 100;
/// Window of an HTTP/2 connection to a provider. It also bounds what a provider
/// may send ahead of a slow client.
const H2_WINDOW: u32 = 1 << 20;
/// Bytes of a body that leave together with the head.
const FIRST: usize = 64 * 1024;
/// How often an HTTP/2 connection is asked whether it is still there.
const H2_PING: Duration = Duration::from_secs(30);

/// One pool of connections for providers that trust and show the same.
pub struct Pools {
    system: Arc<Pool>,
    own: parking_lot::Mutex<Vec<(Trust, Arc<Pool>)>>,
}

/// What connections of a pool are made with: what was in the files, not only where they are.
#[derive(Clone, PartialEq, Eq, Default)]
struct Trust {
    roots: Option<PathBuf>,
    client: Option<(PathBuf, PathBuf)>,
    least: TlsVersion,
    contents: [u8; 32],
}

impl Trust {
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
pub struct Pool {
    /// To providers that may agree on HTTP/2.
    http: Connector,
    /// To providers that are asked in HTTP/1.1. Kept as bare streams, so that a
    /// request's head and body leave in one write: a session flushes between them.
    streams: TransportConnector,
    idle: Idle,
}

impl Pool {
    fn new(trust: &Trust) -> Arc<Self> {
        Arc::new(Self {
            http: Connector::new(Some(options(trust))),
            streams: TransportConnector::new(Some(options(trust))),
            idle: Idle::new(POOL, IDLE),
        })
    }
}

impl Default for Pools {
    fn default() -> Self {
        Self { system: Pool::new(&Trust::default()), own: parking_lot::Mutex::default() }
    }
}

impl Pools {
    /// The pool for what this provider is trusted by and shown; the system's for nothing in particular. Its files
    /// have been proven.
    pub fn of(&self, provider: &Provider) -> Arc<Pool> {
        if provider.ca.is_none() && provider.client.is_none() && provider.min_tls == TlsVersion::default() {
            return self.system.clone();
        }
        let trust = Trust::of(provider);
        let mut own = self.own.lock();
        // Nobody asks through what was replaced once its last request has ended.
        own.retain(|(known, pool)| *known == trust || Arc::strong_count(pool) > 1);
        if let Some((_, pool)) = own.iter().find(|(known, _)| *known == trust) {
            return pool.clone();
        }
        let pool = Pool::new(&trust);
        own.push((trust, pool.clone()));
        pool
    }

    /// Drops idle connections that are no longer good; see [`Idle::sweep`].
    pub fn sweep(&self) {
        let own: Vec<Arc<Pool>> = self.own.lock().iter().map(|(_, pool)| pool.clone()).collect();
        std::iter::once(&self.system).chain(&own).for_each(|pool| pool.idle.sweep());
    }
}

fn options(trust: &Trust) -> ConnectorOptions {
    let mut options = ConnectorOptions::new(POOL);
    let text = |path: &PathBuf| path.to_string_lossy().into_owned();
    options.ca_file = trust.roots.as_ref().map(text);
    options.cert_key_file = trust.client.as_ref().map(|(certificate, key)| (text(certificate), text(key)));
    options
}

/// One provider's addresses and how it is connected to.
pub struct Route {
    base: BaseUrl,
    pool: Arc<Pool>,
    doors: parking_lot::RwLock<Vec<Arc<Door>>>,
    turn: AtomicUsize,
}

/// One address of a provider.
struct Door {
    peer: HttpPeer,
    /// What connections through it are kept under.
    key: u64,
    /// The oldest version of TLS that is good enough.
    least: TlsVersion,
}

/// An open exchange with a provider.
pub struct Way {
    /// The session to write to and read from.
    pub session: HttpSession,
    /// It came from the pool: the provider may have closed it meanwhile.
    pub reused: bool,
    /// Where its socket is watched.
    home: Home,
    /// All of the request went out. What follows half a request would be read as the rest of it.
    pub whole: bool,
    door: Arc<Door>,
    pool: Arc<Pool>,
}

/// A connection on which nothing has been asked yet.
pub enum Link {
    /// A stream for HTTP/1.1.
    Stream(Line),
    /// A session whose protocol was agreed on.
    Session(Box<Way>),
}

/// A stream for HTTP/1.1.
pub struct Line {
    stream: Stream,
    reused: bool,
    home: Home,
    door: Arc<Door>,
    pool: Arc<Pool>,
}

impl Link {
    /// It came from the pool.
    pub const fn reused(&self) -> bool {
        match self {
            Self::Stream(line) => line.reused,
            Self::Session(way) => way.reused,
        }
    }
}

impl Line {
    /// Writes a request: head, body, and nothing in between. Also tells whether
    /// all of it went out; a provider may answer early and stop reading.
    pub async fn ask(
        mut self,
        head: &[u8],
        call: &Call,
        upload: Option<&Spooled>,
    ) -> (Way, Result<(), Unsent>) {
        let written = write(&mut self.stream, head, call, upload).await;
        (self.session(), written)
    }

    fn session(self) -> Way {
        let session = HttpSession::H1(Http1Session::new_with_options(self.stream, &self.door.peer));
        Way { session, reused: self.reused, home: self.home, whole: true, door: self.door, pool: self.pool }
    }
}

/// Why a request did not go out whole.
pub enum Unsent {
    /// The provider does not take it.
    Stopped,
    /// The upload cannot be read back: no provider's doing.
    Unread(std::io::Error),
}

impl From<std::io::Error> for Unsent {
    fn from(_: std::io::Error) -> Self {
        Self::Stopped
    }
}

impl From<Box<pingora_error::Error>> for Unsent {
    fn from(_: Box<pingora_error::Error>) -> Self {
        Self::Stopped
    }
}

/// Bytes of a call's body, the upload's included.
pub fn length(call: &Call, upload: Option<&Spooled>) -> u64 {
    let pieces: usize = call.body.iter().map(Bytes::len).sum();
    pieces as u64 + upload.filter(|_| call.upload.is_some()).map_or(0, Spooled::len)
}

/// The head with the length of the body, as much of the body as makes one good
/// write, then the rest as it is.
async fn write(
    stream: &mut Stream,
    head: &[u8],
    call: &Call,
    upload: Option<&Spooled>,
) -> Result<(), Unsent> {
    let length = length(call, upload);
    let kind = call.content_type.as_bytes();
    let ahead = usize::try_from(length).unwrap_or(FIRST).min(FIRST);
    let mut first = Vec::with_capacity(head.len() + kind.len() + 60 + ahead);
    first.extend_from_slice(head);
    first.extend_from_slice(b"content-type: ");
    first.extend_from_slice(kind);
    first.extend_from_slice(b"\r\ncontent-length: ");
    first.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    first.extend_from_slice(b"\r\n\r\n");
    let mut pieces = call.body.iter().take(call.upload.unwrap_or(usize::MAX));
    let mut rest: &[u8] = &[];
    let room = first.len() + FIRST;
    for piece in pieces.by_ref() {
        let (joined, left) = piece.split_at(piece.len().min(room.saturating_sub(first.len())));
        first.extend_from_slice(joined);
        if !left.is_empty() {
            rest = left;
            break;
        }
    }
    stream.write_all(&first).await?;
    stream.write_all(rest).await?;
    for piece in pieces {
        stream.write_all(piece).await?;
    }
    if let (Some(before), Some(upload)) = (call.upload, upload) {
        let mut at = 0;
        loop {
            let piece = upload.read(at).await.map_err(Unsent::Unread)?;
            if piece.is_empty() {
                break;
            }
            at += piece.len() as u64;
            stream.write_all(&piece).await?;
        }
        for piece in call.body.iter().skip(before) {
            stream.write_all(piece).await?;
        }
    }
    Ok(stream.flush().await?)
}

impl Door {
    /// The connector takes TLS 1.2 too: a connection that is older than it may be is left before anything is
    /// said on it.
    fn is_new_enough(&self, digest: Option<&SslDigest>) -> Result<(), Fault> {
        match digest {
            Some(digest) if self.least == TlsVersion::Tls13 && !digest.version.ends_with('3') => {
                Err(Fault::new(FaultKind::Tls))
            }
            _ => Ok(()),
        }
    }

    fn only_http1(&self) -> bool {
        self.peer.options.alpn.get_max_http_version() == 1
    }
}

impl Route {
    /// A route to a provider without addresses yet, but for those written as numbers.
    #[must_use]
    pub fn new(provider: &Provider, pools: &Pools) -> Self {
        Self::to(&provider.base, provider, pools)
    }

    /// A route to another host of the same provider's.
    #[must_use]
    pub fn to(base: &BaseUrl, provider: &Provider, pools: &Pools) -> Self {
        let pool = pools.of(provider);
        let route = Self {
            base: base.clone(),
            pool,
            doors: parking_lot::RwLock::default(),
            turn: AtomicUsize::new(0),
        };
        if let Ok(ip) = base.host.parse() {
            route.set(provider, &[SocketAddr::new(ip, base.port)]);
        }
        route
    }

    /// Where it leads.
    #[must_use]
    pub const fn base(&self) -> &BaseUrl {
        &self.base
    }

    /// Looks the name up again; the old addresses stay when nothing is found.
    pub async fn resolve(&self, provider: &Provider) {
        if self.base.host.parse::<std::net::IpAddr>().is_ok() {
            return;
        }
        let found = tokio::net::lookup_host((&*self.base.host, self.base.port)).await;
        let addresses: Vec<SocketAddr> = found.into_iter().flatten().collect();
        if !addresses.is_empty() {
            self.set(provider, &addresses);
        }
    }

    fn set(&self, provider: &Provider, addresses: &[SocketAddr]) {
        let door = |address: &SocketAddr| {
            let peer = peer(&self.base, provider, *address);
            Arc::new(Door { key: peer.reuse_hash(), peer, least: provider.min_tls })
        };
        let fresh = addresses.iter().map(door).collect();
        *self.doors.write() = fresh;
    }

    /// Connects, or takes a connection from the pool.
    ///
    /// # Errors
    /// `Connect` or `Tls`.
    pub async fn open(&self) -> Result<Link, Fault> {
        let turn = self.turn.load(Ordering::Relaxed);
        let door = {
            let doors = self.doors.read();
            doors.get(turn % doors.len().max(1)).cloned()
        };
        let Some(door) = door else { return Err(Fault::new(FaultKind::Connect)) };
        let pool = self.pool.clone();
        let opened = if door.only_http1() {
            if let Some((stream, home)) = pool.idle.take(door.key) {
                return Ok(Link::Stream(Line { stream, reused: true, home, door, pool }));
            }
            // Boxed, as is the other: a new connection is rare, and its state would be a part of every request's.
            let opened = Box::pin(pool.streams.new_stream(&door.peer)).await;
            if let Ok(stream) = &opened {
                door.is_new_enough(stream.get_ssl_digest().as_deref())?;
            }
            let home = Home::here();
            opened.map(|stream| Link::Stream(Line { stream, reused: false, home, door, pool }))
        } else {
            let opened = Box::pin(pool.http.get_http_session(&door.peer)).await;
            if let Ok((session, _)) = &opened {
                door.is_new_enough(session.digest().and_then(|digest| digest.ssl_digest.as_deref()))?;
            }
            opened.map(|(session, reused)| {
                Link::Session(Box::new(Way { session, reused, home: Home::here(), whole: true, door, pool }))
            })
        };
        opened.map_err(|error| {
            // The next attempt asks the next address of the same name.
            self.turn.fetch_add(1, Ordering::Relaxed);
            Fault::new(connect_fault(error.etype()))
        })
    }

    /// The same as a session, for requests that are not in a hurry.
    ///
    /// # Errors
    /// `Connect` or `Tls`.
    pub async fn session(&self) -> Result<Way, Fault> {
        Ok(match self.open().await? {
            Link::Stream(line) => line.session(),
            Link::Session(way) => *way,
        })
    }
}

impl Way {
    /// Hands the connection back after a whole answer.
    pub async fn release(self) {
        if !self.whole {
            return;
        }
        match self.session {
            HttpSession::H1(mut session) if self.door.only_http1() => {
                session.respect_keepalive();
                if let Some(stream) = session.reuse().await {
                    self.pool.idle.put(self.door.key, stream, self.home);
                }
            }
            session => self.pool.http.release_http_session(session, &self.door.peer, Some(IDLE)).await,
        }
    }

    /// Reads what is left of an answer that the client already has, so that the
    /// connection can serve again.
    pub fn release_soon(mut self) {
        tokio::spawn(async move {
            self.session.set_read_timeout(Some(Duration::from_secs(1)));
            for _ in 0..16 {
                if self.session.response_done() {
                    return self.release().await;
                }
                match self.session.read_response_body().await {
                    Ok(Some(_)) => {}
                    Ok(None) => return self.release().await,
                    Err(_) => return,
                }
            }
        });
    }
}

fn connect_fault(error: &ErrorType) -> FaultKind {
    match error {
        ErrorType::TLSHandshakeFailure
        | ErrorType::TLSHandshakeTimedout
        | ErrorType::InvalidCert
        | ErrorType::HandshakeError
        | ErrorType::TLSWantX509Lookup => FaultKind::Tls,
        _ => FaultKind::Connect,
    }
}

fn peer(base: &BaseUrl, provider: &Provider, address: SocketAddr) -> HttpPeer {
    // The SNI is never empty: an empty one turns certificate checks off.
    let mut peer = HttpPeer::new(address, base.tls, base.host.to_string());
    let connect = provider.timeouts.connect;
    let options = &mut peer.options;
    options.connection_timeout = Some(connect);
    options.total_connection_timeout = Some(connect * 2);
    options.read_timeout = Some(provider.timeouts.first_byte);
    options.write_timeout = Some(provider.timeouts.idle);
    options.idle_timeout = Some(IDLE);
    options.tcp_keepalive = Some(crate::server::KEEP_ALIVE);
    options.max_h2_streams = H2_STREAMS;
    options.h2_ping_interval = Some(H2_PING);
    options.h2_stream_window_size = Some(H2_WINDOW);
    options.h2_connection_window_size = Some(H2_WINDOW * 16);
    match (provider.http, base.tls) {
        (HttpVersion::H2, _) => options.set_http_version(2, 2),
        (HttpVersion::Auto, true) => options.set_http_version(2, 1),
        _ => options.set_http_version(1, 1),
    }
    peer
}
