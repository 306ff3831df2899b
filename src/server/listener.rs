//! Listening sockets of the gateway. They are bound here, so that a port in use is reported in one clear sentence.
//! Connections of the public listeners are accepted here and distributed to the threads that serve them.

use crate::config::settings::Settings;
use crate::http::tls::TlsConfig;
use crate::net::TCP_KEEP_ALIVE;
use crate::net::buffered_stream::BufferedSocket;
use crate::net::executor::WorkerThreads;
use crate::proxy::GatewayProxy;
use crate::server::PublicServer;
use crate::server::connection_limit::ConnectionPermit;
use crate::server::silent_connections::EvictingConnectionLimit;
use crate::state::AppState;
use crate::telemetry::throttle::ThrottledLog;
use crate::upgrade::new_process::InheritedState;
use parking_lot::Mutex;
use pingora_core::apps::ServerApp;
use pingora_core::listeners::ListenerConfig;
use pingora_core::protocols::Stream;
use pingora_core::protocols::l4::ext::{TcpKeepalive, set_tcp_keepalive};
use pingora_core::server::{Fds, ListenFds};
use pingora_core::services::Service as _;
use pingora_core::services::listening::Service;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::IntoRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Pause after a failed accept.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Backlog of connections that wait to be accepted; the operating system limits it too.
const BACKLOG: i32 = 4096;

/// Returns the TCP keep-alive for a client. `patience` is the maximum time for which sent data may stay
/// unacknowledged (`TCP_USER_TIMEOUT`). The system closes the connection at the first probe that is due after this
/// time, regardless of the number of probes. So the first probe is due at two thirds of this time, and the second at
/// its end.
fn client_keepalive(patience: Duration) -> TcpKeepalive {
    let least = Duration::from_secs(1);
    TcpKeepalive {
        idle: (patience * 2 / 3).clamp(least, TCP_KEEP_ALIVE.idle),
        interval: (patience / 3).clamp(least, TCP_KEEP_ALIVE.interval),
        user_timeout: patience,
        ..TCP_KEEP_ALIVE
    }
}

/// Listening TCP socket with its bound address.
pub struct BoundListener {
    /// Bound address, with the actual port.
    pub address: SocketAddr,
    listener: TcpListener,
}

/// Binds an address; port 0 selects any free port.
///
/// # Errors
/// Returns one sentence that names the address and its configuration key.
pub fn bind(key: &str, address: SocketAddr) -> Result<BoundListener, String> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!("{key}: {address} is already in use by another process.")
        }
        std::io::ErrorKind::PermissionDenied => {
            format!("{key}: this user may not listen on {address}; ports below 1024 need privileges.")
        }
        _ => format!("{key}: {address} cannot be listened on: {error}."),
    };
    let listener = TcpListener::bind(address).map_err(failed)?;
    // Connections that are not accepted yet wait in the backlog. The standard library would allow only 128 of them.
    rustix::net::listen(&listener, BACKLOG).map_err(|error| failed(error.into()))?;
    BoundListener::from_std(listener).map_err(failed)
}

/// Returns the listener of an address. It uses the socket that the previous process has handed over, or else a new
/// socket.
///
/// # Errors
/// Same as for [`bind`].
pub fn bind_or_inherit(
    key: &str,
    address: SocketAddr,
    arrival: &mut Option<InheritedState>,
) -> Result<BoundListener, String> {
    match arrival.as_mut().and_then(|arrival| arrival.take_socket(address)) {
        Some(listener) => BoundListener::from_std(listener)
            .map_err(|error| format!("{key}: {address} cannot be taken over: {error}.")),
        None => bind(key, address),
    }
}

/// Sockets of the public listeners.
pub struct PublicListeners {
    plain: Vec<BoundListener>,
    tls: Option<BoundListener>,
}

impl BoundListener {
    fn from_std(listener: TcpListener) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { address: listener.local_addr()?, listener })
    }

    /// Duplicates the socket, so that another server can use it later.
    ///
    /// # Errors
    /// Returns one sentence if the process has no file descriptor left.
    pub fn try_clone_socket(&self) -> Result<TcpListener, String> {
        self.listener.try_clone().map_err(|error| format!("{} cannot be duplicated: {error}.", self.address))
    }

    /// Creates a listener from a duplicate of this socket.
    ///
    /// # Errors
    /// Returns one sentence if the process has no file descriptor left.
    pub fn from_socket(listener: &TcpListener) -> Result<Self, String> {
        let again = listener.try_clone().and_then(Self::from_std);
        again.map_err(|error| format!("A socket cannot be served again: {error}."))
    }

    /// Converts into a tokio listener that is registered with the runtime of this thread.
    fn into_tokio(self) -> Result<tokio::net::TcpListener, String> {
        tokio::net::TcpListener::from_std(self.listener)
            .map_err(|error| format!("{} cannot be listened on: {error}.", self.address))
    }
}

impl PublicListeners {
    /// Binds the configured addresses, or takes over the sockets that the previous process has handed over for them.
    ///
    /// # Errors
    /// Returns one sentence on the first address that cannot be bound.
    pub fn bind(settings: &Settings, arrival: &mut Option<InheritedState>) -> Result<Self, String> {
        let addresses = settings.listen.http.iter();
        let plain = addresses
            .map(|address| bind_or_inherit("listen.http", *address, arrival))
            .collect::<Result<_, _>>()?;
        let tls = match &settings.listen.https {
            Some(https) => Some(bind_or_inherit("listen.https", https.address, arrival)?),
            None => None,
        };
        Ok(Self { plain, tls })
    }

    /// Returns the addresses of the plain listeners.
    pub fn http_addresses(&self) -> Vec<SocketAddr> {
        self.plain.iter().map(|bound| bound.address).collect()
    }

    /// Returns the address of the TLS listener; `None` without a TLS listener.
    pub fn https_address(&self) -> Option<SocketAddr> {
        self.tls.as_ref().map(|bound| bound.address)
    }

    /// Duplicates the sockets, for the next process.
    ///
    /// # Errors
    /// Returns one sentence if the process has no file descriptor left.
    pub fn clone_sockets(&self) -> Result<Vec<TcpListener>, String> {
        self.plain.iter().chain(&self.tls).map(BoundListener::try_clone_socket).collect()
    }

    /// Serves until `stop` becomes true. After that, no new connection is accepted, and each open connection ends with
    /// its current exchange. Returns the tasks that accept connections and the threads that serve them. When the tasks
    /// are aborted and the threads dropped, the remaining connections are cut.
    ///
    /// # Errors
    /// Returns one sentence if a certificate is unusable, or if a socket or a thread cannot be created.
    pub fn serve(
        self,
        app: &Arc<AppState>,
        proxy: &GatewayProxy,
        stop: &watch::Receiver<bool>,
    ) -> Result<(Vec<JoinHandle<()>>, Arc<WorkerThreads>), String> {
        let threads = WorkerThreads::start(app.config_snapshot().settings.threads)
            .map_err(|error| format!("The threads for requests cannot be started: {error}."))?;
        let (threads, server) = (Arc::new(threads), Arc::new(PublicServer::new(app.clone(), proxy.clone())));
        let mut listeners = Vec::new();
        for bound in self.plain {
            listeners.push((bound.into_tokio()?, false));
        }
        if let Some(bound) = self.tls {
            listeners.push((bound.into_tokio()?, true));
        }
        let open = |(listener, tls)| {
            let accept_loop =
                AcceptLoop { state: app.clone(), server: server.clone(), tls, stop: stop.clone() };
            tokio::spawn(accept_loop.accept(listener, threads.clone()))
        };
        Ok((listeners.into_iter().map(open).collect(), threads.clone()))
    }
}

/// Accept loop of one listener.
#[derive(Clone)]
struct AcceptLoop {
    state: Arc<AppState>,
    server: Arc<PublicServer>,
    tls: bool,
    stop: watch::Receiver<bool>,
}

impl AcceptLoop {
    /// Accepts connections until it is stopped, and keeps the worker threads alive until it is aborted.
    async fn accept(mut self, listener: tokio::net::TcpListener, threads: Arc<WorkerThreads>) {
        loop {
            let accepted = tokio::select! {
                biased;
                _ = self.stop.wait_for(|stop| *stop) => break,
                accepted = listener.accept() => accepted,
            };
            // The socket is registered with the thread that will serve it, and not with this thread.
            let probed = accepted.and_then(|(socket, client)| {
                // A client that gets no connection permit gets no response: its socket is closed here.
                let Some(permit) = self.server.admit_connection(client.ip()) else { return Ok(None) };
                let patience = self.server.client_limits().client_write;
                // The generation of an image may take a minute in which nothing is sent, so TCP probes keep the
                // connection open. If a client does not acknowledge sent data within `patience`, it counts as
                // disconnected.
                set_tcp_keepalive(&socket, &client_keepalive(patience)).ok();
                Ok(Some((socket.into_std()?, permit, patience)))
            });
            match probed {
                Ok(None) => {}
                Ok(Some((socket, permit, patience))) => {
                    let connection = self.clone().serve_connection(socket, patience, permit);
                    // A TLS connection stays on its thread, because it cannot migrate.
                    if self.tls {
                        threads.spawn_pinned(connection)
                    } else {
                        threads.spawn_migratable(connection)
                    }
                }
                Err(error) => {
                    static ACCEPT_LOG: ThrottledLog = ThrottledLog::new();
                    ACCEPT_LOG.log(Instant::now(), |times| {
                        tracing::error!(name: "accept_failed", reason = %error, times);
                    });
                    // If the process has no free file descriptor, the next accept would fail immediately, so it is
                    // delayed.
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                }
            }
        }
        drop(listener);
        std::future::pending::<()>().await;
    }

    /// Serves one connection until it closes.
    async fn serve_connection(
        self,
        socket: std::net::TcpStream,
        patience: Duration,
        _permit: ConnectionPermit,
    ) {
        let Ok(socket) = BufferedSocket::new(socket, self.tls, patience) else { return };
        let stream: Stream = if self.tls {
            // The handshake gets the same time as a request head.
            let (within, Some(tls)) = (self.server.client_limits().request_head, self.state.public_tls())
            else {
                return;
            };
            let Ok(Ok(stream)) = timeout(within, Box::pin(tls.acceptor.tls_handshake(socket))).await else {
                return;
            };
            Box::new(stream)
        } else {
            Box::new(socket)
        };
        self.server.serve_connection(stream, self.stop).await;
    }
}

/// Serves an application of Pingora, such as the admin API, on one socket in clear text until `stop` becomes true.
/// `name` is the name of the service in Pingora's log.
pub fn serve_app<A>(bound: BoundListener, name: &str, app: A, stop: watch::Receiver<bool>) -> JoinHandle<()>
where
    A: ServerApp + Send + Sync + 'static,
{
    let mut service = Service::new(name.to_owned(), app);
    let address = bound.address.to_string();
    service.add_listener(ListenerConfig::tcp(&address));
    let mut fds = Fds::new();
    fds.add(address, bound.listener.into_raw_fd());
    let fds: ListenFds = Arc::new(Mutex::new(fds));
    tokio::spawn(async move { service.start_service(Some(fds), stop, 1).await })
}

/// Maximum number of TLS handshakes of one socket at the same time. A further connection closes the oldest one in its
/// handshake. The application limits the connections after their handshakes.
const MAX_TLS_HANDSHAKES: usize = 256;
/// Timeout of a TLS handshake, and longest time for which a client may accept no bytes.
const TLS_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves an application of Pingora on one TLS socket until `stop` becomes true. `tls` returns the TLS configuration in
/// use, so that the next connection gets a renewed certificate; without one, connections are closed.
///
/// # Errors
/// Returns one sentence if the socket cannot be served.
pub fn serve_tls_app<A, F>(
    bound: BoundListener,
    app: A,
    tls: F,
    mut stop: watch::Receiver<bool>,
) -> Result<JoinHandle<()>, String>
where
    A: ServerApp + Send + Sync + 'static,
    F: Fn() -> Option<Arc<TlsConfig>> + Send + Sync + 'static,
{
    let (listener, app) = (bound.into_tokio()?, Arc::new(app));
    let handshakes = EvictingConnectionLimit::new(MAX_TLS_HANDSHAKES);
    Ok(tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => break,
                accepted = listener.accept() => accepted,
            };
            let Ok((socket, _)) = accepted else {
                // Without a free file descriptor, the next accept would fail immediately, so it is delayed.
                tokio::time::sleep(ACCEPT_BACKOFF).await;
                continue;
            };
            let Some(tls) = tls() else { continue };
            let (app, stop, handshakes) = (app.clone(), stop.clone(), handshakes.clone());
            tokio::spawn(async move {
                let Some(connection) = handshakes.admit().await else { return };
                set_tcp_keepalive(&socket, &client_keepalive(TLS_TIMEOUT)).ok();
                let Ok(socket) = socket.into_std() else { return };
                let Ok(socket) = BufferedSocket::new(socket, true, TLS_TIMEOUT) else { return };
                let handshake = Box::pin(tls.acceptor.tls_handshake(socket));
                let Some((Ok(Ok(stream)), permit)) =
                    connection.wait_for(timeout(TLS_TIMEOUT, handshake)).await
                else {
                    return;
                };
                drop(permit);
                app.process_new(Box::new(stream), &stop).await;
            });
        }
    }))
}
