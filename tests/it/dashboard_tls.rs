//! TLS of the dashboard's listener, with a real TLS client.

use crate::harness::browser::PASSWORD;
use crate::harness::certificates::{
    TestCertificate, accepts_tls12, connect, negotiated_protocol, try_connect,
};
use crate::harness::gateway::Running;
use crate::harness::{Answer, Bench, Client, Provider, within};
use penstock_core::percent;
use serde_json::json;
use std::net::SocketAddr;
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

fn settings(certified: &TestCertificate, more: &str) -> String {
    let (chain, key) = (&certified.chain, &certified.key);
    format!("[console]\nlisten = \"127.0.0.1:0\"\ntls = {{ certificate = {chain:?}, key = {key:?}{more} }}\n")
}

async fn bench(certified: &TestCertificate, more: &str) -> (Provider, Running, SocketAddr) {
    let provider = Provider::start().await;
    let running = Bench::new().settings(&settings(certified, more)).provider("a", &provider).start().await;
    let address = running.gateway.dashboard_addresses[0];
    (provider, running, address)
}

async fn send(
    socket: TlsStream<TcpStream>,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    form: &[(&str, &str)],
) -> Answer {
    let address = socket.get_ref().0.peer_addr().unwrap();
    let client = Client { address, key: String::new() };
    let encode = |text: &str| percent::encode(text, percent::PATH_SEGMENT);
    let form: Vec<String> = form.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
    let mut open = client.open_over(socket, method, path, headers, form.join("&").as_bytes()).await;
    within("an answer", open.finish()).await
}

const FORM: [(&str, &str); 2] =
    [("sec-fetch-site", "same-origin"), ("content-type", "application/x-www-form-urlencoded")];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_signs_in_over_tls_and_the_cookie_stays_there() {
    let certified = TestCertificate::make();
    let (_provider, running, address) = bench(&certified, "").await;
    running.admin().post("/admin/accounts", &json!({"id": "acme"})).await;
    let user = json!({"name": "eve", "role": "account", "account": "acme", "password": PASSWORD});
    assert_eq!(running.admin().post("/admin/users", &user).await.status, 201);
    let socket = connect(address, &certified.root, &["h2", "http/1.1"]).await;
    assert_eq!(negotiated_protocol(&socket), "http/1.1");
    assert_eq!(send(socket, "GET", "/dashboard/sign-in", &[], &[]).await.status, 200);
    let socket = connect(address, &certified.root, &[]).await;
    let form = [("name", "eve"), ("password", PASSWORD)];
    let signed_in = send(socket, "POST", "/dashboard/sign-in", &FORM, &form).await;
    assert_eq!(signed_in.status, 303, "{}", signed_in.text());
    let cookie = signed_in.header("set-cookie").unwrap();
    assert!(cookie.ends_with("; Secure") && cookie.contains("HttpOnly"), "{cookie}");
    let pair = cookie.split(';').next().unwrap();
    let socket = connect(address, &certified.root, &[]).await;
    let page = send(socket, "GET", "/dashboard/", &[("cookie", pair)], &[]).await;
    assert!(page.status == 200 && page.text().contains("eve (account)"), "{}", page.text());
    // Plain HTTP is not answered at this address.
    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(b"GET /dashboard/sign-in HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    within("the end of the connection", plain.read_to_end(&mut answer)).await.ok();
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP/1.1"));
    // A connection without any bytes does not delay others.
    let _silent = TcpStream::connect(address).await.unwrap();
    connect(address, &certified.root, &[]).await;
}

fn certificate(socket: &TlsStream<TcpStream>) -> Vec<u8> {
    socket.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewed_certificate_serves_the_next_connection() {
    let certified = TestCertificate::make();
    let (_provider, running, address) = bench(&certified, "").await;
    let first = certificate(&connect(address, &certified.root, &[]).await);
    certified.renew();
    let folder = tempfile::tempdir().unwrap();
    let fresh =
        Bench::new().settings(&settings(&certified, "")).provider("a", &_provider).load(folder.path());
    running.reload(fresh).await;
    let second = certificate(&connect(address, &certified.root, &[]).await);
    assert_ne!(first, second);
}

async fn is_served(address: SocketAddr, root: &Path, own: Option<&TestCertificate>) -> bool {
    let Ok(mut socket) = try_connect(address, root, &[], own).await else { return false };
    // In TLS 1.3 a client learns of a refused certificate only when it reads.
    socket.write_all(b"GET /dashboard/sign-in HTTP/1.1\r\nhost: localhost\r\n\r\n").await.ok();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.ok();
    String::from_utf8_lossy(&answer).starts_with("HTTP/1.1 200")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_certificates_and_the_minimum_version_apply() {
    let (certified, people) = (TestCertificate::make(), TestCertificate::make());
    let more = format!(", client_ca = {:?}, min_tls = \"1.3\"", people.root);
    let (_provider, _running, address) = bench(&certified, &more).await;
    assert!(is_served(address, &certified.root, Some(&people)).await);
    assert!(!is_served(address, &certified.root, None).await);
    assert!(!is_served(address, &certified.root, Some(&certified)).await);
    assert!(!accepts_tls12(address, &certified.root).await);
}
