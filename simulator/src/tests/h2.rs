//! Tests of HTTP/2 without TLS and over TLS.

use super::super::{SimulatorControl, SimulatorOptions};
use super::{CHAT, SimulatedFault, SimulatedServer, ask, once, server, streamed};
use bytes::Bytes;
use h2::client::{SendRequest, handshake};
use http::{Request, Version};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/testdata").join(name)
}

async fn open<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S) -> SendRequest<Bytes> {
    let (client, connection) = handshake(stream).await.unwrap();
    tokio::spawn(connection);
    client.ready().await.unwrap()
}

async fn call(client: &mut SendRequest<Bytes>, body: &Value) -> Result<(u16, Vec<u8>), h2::Error> {
    let request = Request::post(format!("http://localhost{CHAT}")).version(Version::HTTP_2).body(()).unwrap();
    let (response, mut sending) = client.send_request(request, false)?;
    sending.send_data(body.to_string().into(), true)?;
    let (head, mut incoming) = response.await?.into_parts();
    let mut all = Vec::new();
    while let Some(part) = incoming.data().await {
        let part = part?;
        incoming.flow_control().release_capacity(part.len())?;
        all.extend_from_slice(&part);
    }
    Ok((head.status.as_u16(), all))
}

async fn clear(server: &SimulatedServer) -> (SendRequest<Bytes>, SimulatorControl) {
    (open(TcpStream::connect(server.address).await.unwrap()).await, server.control())
}

async fn secure(server: &SimulatedServer, protocol: &[u8]) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(testdata("localhost.pem")).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = TcpStream::connect(server.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

#[tokio::test]
async fn many_requests_share_a_clear_text_connection() {
    let server = server().await;
    let (client, control) = clear(&server).await;
    let calls: Vec<_> = (0..8)
        .map(|_| {
            let mut client = client.clone();
            tokio::spawn(
                async move { call(&mut client, &streamed(&json!({ "model": "m#tokens=3000" }))).await },
            )
        })
        .collect();
    for task in calls {
        let (status, body) = task.await.unwrap().unwrap();
        assert!(status == 200 && body.ends_with(b"data: [DONE]\n\n"));
    }
    let counts = control.until(|counts| counts.finished == 8).await;
    assert_eq!(counts.connections, 1);
    assert!(control.last_call().unwrap().h2);
}

#[tokio::test]
async fn a_cut_resets_its_stream_and_leaves_the_connection() {
    let server = server().await;
    let (mut client, control) = clear(&server).await;
    for fault in
        [SimulatedFault::CutBeforeHead {}, SimulatedFault::CutAfterHead {}, SimulatedFault::Cut { after: 3 }]
    {
        once(&control, fault);
        assert!(call(&mut client, &streamed(&json!({}))).await.unwrap_err().is_reset());
    }
    assert_eq!(call(&mut client, &ask(&json!({}))).await.unwrap().0, 200);
    assert_eq!(control.counts().cut, 3);
}

#[tokio::test]
async fn a_reset_by_the_client_is_counted_as_leaving() {
    let server = server().await;
    let (mut client, control) = clear(&server).await;
    control.add_rule(SimulatedFault::Stall { after: 1 });
    let task = tokio::spawn(async move { call(&mut client, &streamed(&json!({}))).await });
    control.until(|counts| counts.held == 1).await;
    task.abort();
    control.until(|counts| counts.cancelled == 1).await;
}

#[tokio::test]
async fn tls_speaks_the_version_that_is_agreed_on() {
    let files = Some((testdata("localhost.pem"), testdata("localhost.key.pem")));
    let server =
        SimulatedServer::start(SimulatorOptions { tls: files, ..SimulatorOptions::default() }).await.unwrap();
    let mut client = open(secure(&server, b"h2").await).await;
    assert_eq!(call(&mut client, &ask(&json!({}))).await.unwrap().0, 200);
    let mut plain = secure(&server, b"http/1.1").await;
    plain.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut all = String::new();
    plain.read_to_string(&mut all).await.unwrap();
    assert!(all.starts_with("HTTP/1.1 200 OK\r\n"));
}

#[tokio::test]
async fn files_that_are_no_certificate_are_one_clear_sentence() {
    let tls = Some((testdata("localhost.key.pem"), testdata("localhost.key.pem")));
    let error =
        SimulatedServer::start(SimulatorOptions { tls, ..SimulatorOptions::default() }).await.unwrap_err();
    assert!(error.ends_with("cannot be used for TLS."), "{error}");
}
