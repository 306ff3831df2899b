//! Sockets: bound here, so that a taken port is one clear sentence, and handed
//! to Pingora as if they came from an upgrade.

use crate::config::settings::{Https, Settings};
use crate::front::Front;
use crate::house::House;
use parking_lot::Mutex;
use pingora_core::apps::ServerApp;
use pingora_core::listeners::ListenerConfig;
use pingora_core::listeners::tls::TlsSettings;
use pingora_core::protocols::l4::stream::L4BufferSettings;
use pingora_core::server::{Fds, ListenFds};
use pingora_core::services::Service as _;
use pingora_core::services::listening::Service;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::IntoRawFd;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Buffers of a client's connection: a head and a small body leave in one write,
/// and an idle connection costs little.
const READ_BUFFER: usize = 16 * 1024;
const WRITE_BUFFER: usize = 4 * 1024;

/// A socket that listens.
pub struct Bound {
    /// The address it has, port included.
    pub address: SocketAddr,
    listener: TcpListener,
}

/// Binds an address; port 0 takes any that is free.
///
/// # Errors
/// One sentence that names the address and its key in the configuration.
pub fn bind(key: &str, address: SocketAddr) -> Result<Bound, String> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!("listen.{key}: {address} is already in use by another process.")
        }
        std::io::ErrorKind::PermissionDenied => {
            format!("listen.{key}: this user may not listen on {address}; ports below 1024 need privileges.")
        }
        _ => format!("listen.{key}: {address} cannot be listened on: {error}."),
    };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok(Bound { address, listener })
}

/// The sockets of the public side.
pub struct Public {
    plain: Vec<Bound>,
    tls: Option<(Bound, Https)>,
}

impl Public {
    /// Binds what the configuration names.
    ///
    /// # Errors
    /// The first address that cannot be had.
    pub fn bind(settings: &Settings) -> Result<Self, String> {
        let plain =
            settings.listen.http.iter().map(|address| bind("http", *address)).collect::<Result<_, _>>()?;
        let tls = match &settings.listen.https {
            Some(https) => Some((bind("https", https.address)?, https.clone())),
            None => None,
        };
        Ok(Self { plain, tls })
    }

    /// Addresses of the plain listeners.
    pub fn http(&self) -> Vec<SocketAddr> {
        self.plain.iter().map(|bound| bound.address).collect()
    }

    /// Address of the TLS listener.
    pub fn https(&self) -> Option<SocketAddr> {
        self.tls.as_ref().map(|(bound, _)| bound.address)
    }

    /// Serves until `stop` turns true; then no new connection is taken, and open
    /// ones end with their exchange.
    ///
    /// # Errors
    /// A certificate that cannot be used.
    pub fn serve(self, house: &Arc<House>, stop: watch::Receiver<bool>) -> Result<JoinHandle<()>, String> {
        let mut service = Service::new("public".to_owned(), Front::new(house.clone()));
        let mut fds = Fds::new();
        let buffers = L4BufferSettings::new(READ_BUFFER, WRITE_BUFFER);
        for bound in self.plain {
            let address = bound.address.to_string();
            service.add_listener(ListenerConfig::tcp(&address).l4_buffer(buffers));
            fds.add(address, bound.listener.into_raw_fd());
        }
        if let Some((bound, https)) = self.tls {
            let address = bound.address.to_string();
            let listener = ListenerConfig::tcp(&address).l4_buffer(buffers).tls(tls(&https)?);
            service.add_listener(listener);
            fds.add(address, bound.listener.into_raw_fd());
        }
        let fds: ListenFds = Arc::new(Mutex::new(fds));
        Ok(tokio::spawn(async move { service.start_service(Some(fds), stop, 1).await }))
    }
}

fn tls(https: &Https) -> Result<TlsSettings, String> {
    let (certificate, key) = (https.certificate.to_string_lossy(), https.key.to_string_lossy());
    let mut settings = TlsSettings::intermediate(&certificate, &key)
        .map_err(|_| "listen.https: the certificate or its key cannot be used.".to_owned())?;
    settings.enable_h2();
    Ok(settings)
}

/// Serves another application on one plain socket until `stop`.
pub fn serve<A>(bound: Bound, name: &str, app: A, stop: watch::Receiver<bool>) -> JoinHandle<()>
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
