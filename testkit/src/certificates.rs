//! Certificates that are generated for one test, and TLS clients and servers that use them.

use crate::script::completion;
use crate::{Client, within};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::TLS12;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Root certificate, and a server certificate signed by it, as PEM files.
pub struct TestCertificate {
    pub root: PathBuf,
    pub chain: PathBuf,
    pub key: PathBuf,
    folder: tempfile::TempDir,
    above: (rcgen::Certificate, KeyPair),
}

impl TestCertificate {
    /// Generates the root certificate, and the server certificate for `localhost` and 127.0.0.1.
    pub fn make() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root_key = KeyPair::generate().unwrap();
        let root = params.self_signed(&root_key).unwrap();
        let (chain, key) = leaf(&root, &root_key);
        let written = |name: &str, text: String| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        Self {
            root: written("root.pem", root.pem()),
            chain: written("chain.pem", chain),
            key: written("key.pem", key),
            folder,
            above: (root, root_key),
        }
    }

    /// Replaces the contents of the key file and of the certificate file by a new key and certificate under the same
    /// root. Each file is replaced as a whole, the key first.
    pub fn renew(&self) {
        let (chain, key) = leaf(&self.above.0, &self.above.1);
        let temporary = self.folder.path().join("aside");
        for (path, text) in [(&self.key, key), (&self.chain, chain)] {
            std::fs::write(&temporary, text).unwrap();
            std::fs::rename(&temporary, path).unwrap();
        }
    }

    /// Replaces the certificate by one that expired on 1 January 2021.
    pub fn expired(self) -> Self {
        self.valid_in_years(2020..2021)
    }

    /// Replaces the certificate by one that is valid from the first day of a year to the first day of another.
    pub fn valid_in_years(self, years: std::ops::Range<i32>) -> Self {
        let key = KeyPair::from_pem(&std::fs::read_to_string(&self.key).unwrap()).unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(years.start, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.end, 1, 1);
        let over = params.signed_by(&key, &self.above.0, &self.above.1).unwrap();
        std::fs::write(&self.chain, over.pem()).unwrap();
        self
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_file_iter(&self.chain).unwrap().map(Result::unwrap).collect()
    }

    fn private(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_file(&self.key).unwrap()
    }

    /// Returns the line `https = …` for the section `[listen]`.
    pub fn https(&self) -> String {
        self.https_at(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// Same as [`TestCertificate::https`], with a given address.
    pub fn https_at(&self, address: SocketAddr) -> String {
        let (chain, key) = (&self.chain, &self.key);
        format!("https = {{ address = \"{address}\", certificate = {chain:?}, key = {key:?} }}")
    }

    /// Returns the acceptor of a server with this certificate.
    pub fn acceptor(&self) -> TlsAcceptor {
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth();
        TlsAcceptor::from(Arc::new(config.with_single_cert(self.chain(), self.private()).unwrap()))
    }

    /// Returns the paths of certificate and key, for the options of a simulated provider.
    pub fn files(&self) -> Option<(PathBuf, PathBuf)> {
        Some((self.chain.clone(), self.key.clone()))
    }
}

fn leaf(root: &rcgen::Certificate, root_key: &KeyPair) -> (String, String) {
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(names).unwrap().signed_by(&key, root, root_key).unwrap();
    (leaf.pem(), key.serialize_pem())
}

fn roots(path: &Path) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(path).unwrap()).unwrap();
    roots
}

/// Connects with TLS and offers these protocols with ALPN.
pub async fn connect(address: SocketAddr, root: &Path, protocols: &[&str]) -> TlsStream<TcpStream> {
    try_connect(address, root, protocols, None).await.unwrap()
}

/// Same as [`connect`], optionally with a client certificate; returns the error if it fails.
pub async fn try_connect(
    address: SocketAddr,
    root: &Path,
    protocols: &[&str],
    own: Option<&TestCertificate>,
) -> std::io::Result<TlsStream<TcpStream>> {
    over(address, trusting(root, protocols, own)).await
}

/// Returns a TLS client that resumes its sessions when it connects again, as browsers and libraries do.
pub fn connector(root: &Path, protocols: &[&str]) -> TlsConnector {
    TlsConnector::from(Arc::new(trusting(root, protocols, None)))
}

/// Connects with a client of [`connector`]; returns the error if it fails.
pub async fn dial(address: SocketAddr, connector: &TlsConnector) -> std::io::Result<TlsStream<TcpStream>> {
    handshake_over(TcpStream::connect(address).await?, connector).await
}

/// Same as [`dial`], over a socket that is already connected.
pub async fn handshake_over(
    socket: TcpStream,
    connector: &TlsConnector,
) -> std::io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from("localhost").unwrap();
    within("a TLS handshake", connector.connect(name, socket)).await
}

fn trusting(root: &Path, protocols: &[&str], own: Option<&TestCertificate>) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots(root));
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => builder.with_client_auth_cert(own.chain(), own.private()).unwrap(),
    };
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

/// Returns true if the peer accepts TLS 1.2.
pub async fn accepts_tls12(address: SocketAddr, root: &Path) -> bool {
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS12])
        .unwrap()
        .with_root_certificates(roots(root))
        .with_no_client_auth();
    over(address, config).await.is_ok()
}

async fn over(address: SocketAddr, config: ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
    let socket = TcpStream::connect(address).await.unwrap();
    handshake_over(socket, &TlsConnector::from(Arc::new(config))).await
}

/// Provider over HTTP/1.1 that always returns the same answer, and has requirements on TLS.
pub struct StrictTlsProvider {
    pub address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl StrictTlsProvider {
    /// Starts a provider that requires a client certificate under the root of `clients`.
    pub async fn start(own: &TestCertificate, clients: &TestCertificate) -> Self {
        let provider = Arc::new(default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots(&clients.root)), provider.clone());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap());
        Self::serve(config.with_single_cert(own.chain(), own.private()).unwrap()).await
    }

    /// Starts a provider that supports TLS 1.2 at most.
    pub async fn old(own: &TestCertificate) -> Self {
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS12])
            .unwrap()
            .with_no_client_auth();
        Self::serve(config.with_single_cert(own.chain(), own.private()).unwrap()).await
    }

    async fn serve(config: ServerConfig) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, acceptor) = (listener.local_addr().unwrap(), TlsAcceptor::from(Arc::new(config)));
        let asked = Arc::<AtomicUsize>::default();
        let counted = asked.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, asked) = (acceptor.clone(), counted.clone());
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(socket).await else { return };
                    let mut piece = [0; 64 * 1024];
                    if !matches!(stream.read(&mut piece).await, Ok(1..)) {
                        return;
                    }
                    asked.fetch_add(1, Ordering::SeqCst);
                    let body = completion("Hello").to_string();
                    let head = format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\
                         content-length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    stream.write_all(head.as_bytes()).await.ok();
                    stream.shutdown().await.ok();
                });
            }
        });
        Self { address, asked }
    }

    /// Returns the number of requests that were received.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// Returns the protocol that was negotiated with ALPN.
pub fn negotiated_protocol(stream: &TlsStream<TcpStream>) -> String {
    String::from_utf8(stream.get_ref().1.alpn_protocol().unwrap_or_default().to_vec()).unwrap()
}

/// Returns the same client with another address.
pub fn at(client: &Client, address: SocketAddr) -> Client {
    Client { address, key: client.key.clone() }
}
