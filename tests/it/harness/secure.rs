//! Certificates made for one test, and a client that trusts them.

use super::{Client, within};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A root of its own, and a server's certificate under it, as PEM files.
pub struct Certified {
    pub root: PathBuf,
    pub chain: PathBuf,
    pub key: PathBuf,
    folder: tempfile::TempDir,
}

impl Certified {
    /// For `localhost` and 127.0.0.1.
    pub fn make() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root_key = KeyPair::generate().unwrap();
        let root = params.self_signed(&root_key).unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(names).unwrap().signed_by(&key, &root, &root_key).unwrap();
        let written = |name: &str, text: String| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        Self {
            root: written("root.pem", root.pem()),
            chain: written("chain.pem", leaf.pem()),
            key: written("key.pem", key.serialize_pem()),
            folder,
        }
    }

    /// `https = …` of `[listen]`.
    pub fn https(&self) -> String {
        format!(
            "https = {{ address = \"127.0.0.1:0\", certificate = {:?}, key = {:?} }}",
            self.chain, self.key
        )
    }

    /// Both files, as a simulated provider takes them.
    pub fn files(&self) -> Option<(PathBuf, PathBuf)> {
        Some((self.chain.clone(), self.key.clone()))
    }
}

/// Connects with TLS and offers these protocols.
pub async fn connect(address: SocketAddr, root: &Path, protocols: &[&str]) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(root).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let socket = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connected = TlsConnector::from(Arc::new(config)).connect(name, socket);
    within("a TLS handshake", connected).await.unwrap()
}

/// The protocol that was agreed on.
pub fn agreed(stream: &TlsStream<TcpStream>) -> String {
    String::from_utf8(stream.get_ref().1.alpn_protocol().unwrap_or_default().to_vec()).unwrap()
}

/// The same client at another address.
pub fn at(client: &Client, address: SocketAddr) -> Client {
    Client { address, key: client.key.clone() }
}
