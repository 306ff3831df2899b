//! Listener of a simulated provider: plain or TLS, HTTP/1.1 or HTTP/2.

use super::provider::SimulatedProvider;
use super::{SimulatorOptions, h1, h2};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Start of an HTTP/2 connection preface, which no HTTP/1.1 request begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0";

/// Bound socket.
pub(super) struct SimulatorListener {
    /// Bound address, with the actual port.
    pub address: SocketAddr,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    h2: bool,
}

impl SimulatorListener {
    /// Binds the address of the options.
    pub(super) async fn bind(options: &SimulatorOptions) -> Result<Self, String> {
        let tls = match &options.tls {
            Some((certificate, key)) => Some(acceptor(certificate, key, options.h2)?),
            None => None,
        };
        let address = options.address;
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                format!(
                    "A simulated provider cannot listen on {address}: it is already in use by another process."
                )
            }
            _ => format!("A simulated provider cannot listen on {address}: {error}."),
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { address, listener, tls, h2: options.h2 })
    }

    /// Accepts connections until the task is aborted; this also ends its connections.
    pub(super) async fn run(self, provider: SimulatedProvider) {
        let provider = Arc::new(provider);
        let mut connections = JoinSet::new();
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                // Accepting fails if the process has no free file descriptor; another one is soon closed.
                sleep(Duration::from_millis(10)).await;
                continue;
            };
            provider.control.count_connection();
            stream.set_nodelay(true).ok();
            let (provider, tls, with_h2) = (provider.clone(), self.tls.clone(), self.h2);
            connections.spawn(async move { connection(stream, tls, with_h2, provider).await });
            while connections.try_join_next().is_some() {}
        }
    }
}

async fn connection(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    with_h2: bool,
    provider: Arc<SimulatedProvider>,
) {
    match tls {
        None if with_h2 && begins_as_h2(&stream).await => h2::serve(stream, provider).await,
        None => h1::serve(stream, &provider).await,
        Some(acceptor) => {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                h2::serve(stream, provider).await;
            } else {
                h1::serve(stream, &provider).await;
            }
        }
    }
}

/// Maximum number of looks, one each millisecond, at a connection that has sent only a part of the HTTP/2 preface.
const MAX_PREFACE_PEEKS: u32 = 10_000;

/// Returns true if the connection begins with the HTTP/2 preface; peeks at the first bytes without consuming them.
async fn begins_as_h2(stream: &TcpStream) -> bool {
    let mut bytes = [0; PREFACE.len()];
    for _ in 0..MAX_PREFACE_PEEKS {
        let Ok(length @ 1..) = stream.peek(&mut bytes).await else { return false };
        let seen = bytes.get(..length).unwrap_or_default();
        if seen == PREFACE {
            return true;
        }
        if !PREFACE.starts_with(seen) {
            return false;
        }
        sleep(Duration::from_millis(1)).await;
    }
    false
}

fn acceptor(certificate: &Path, key: &Path, with_h2: bool) -> Result<TlsAcceptor, String> {
    let unusable = |path: &Path| format!("{} cannot be used for TLS.", path.display());
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|_| unusable(certificate))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|_| unusable(key))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
        .map_err(|_| unusable(certificate))?;
    config.alpn_protocols = if with_h2 { vec![b"h2".to_vec()] } else { Vec::new() };
    config.alpn_protocols.push(b"http/1.1".to_vec());
    Ok(TlsAcceptor::from(Arc::new(config)))
}
