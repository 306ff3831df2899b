//! Slow clients: each is disconnected after its configured timeout and delays no other.

use crate::harness::certificates::{TestCertificate, connect};
use crate::harness::gateway::Running;
use crate::harness::h2_client::H2Client;
use crate::harness::{Bench, Client, Provider, until, within};
use crate::hostile::{CHAT, ask, full, honest, rest, stalled_readers, statuses, unharmed};
use crate::transcriptions;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Allowed delay of a timeout on a busy machine.
const LATE: Duration = Duration::from_secs(8);

pub(super) async fn start(settings: &str) -> (Provider, TestCertificate, Running) {
    let (provider, certified) = (Provider::start().await, TestCertificate::make());
    let bench = Bench::new().settings(settings).listen(&certified.https());
    let running = bench.provider("a", &provider).start().await;
    (provider, certified, running)
}

/// Writes `drip` byte by byte until the gateway closes the connection; returns the time until then, and the response.
async fn until_closed(mut socket: TcpStream, drip: &'static [u8], pause: Duration) -> (Duration, Vec<u8>) {
    let began = Instant::now();
    let (mut read, mut write) = socket.split();
    let dripping = async {
        for byte in drip.iter().cycle() {
            tokio::time::sleep(pause).await;
            if write.write_all(&[*byte]).await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    let heard = within("the connection to be closed", async {
        tokio::select! {
            heard = rest(&mut read) => heard,
            () = dripping => unreachable!(),
        }
    })
    .await;
    (began.elapsed(), heard)
}

/// Returns settings with these short timeouts. All other timeouts are much longer than the test's bounds, so only
/// these can end a connection.
fn clocks(tight: &[(&str, &str)]) -> String {
    let all = ["request_head", "body_idle", "body", "upload", "keep_alive", "client_write"].map(|clock| {
        let span = tight.iter().find(|(known, _)| *known == clock).map_or("50s", |(_, span)| *span);
        format!("{clock} = \"{span}\"\n")
    });
    format!("[limits]\n{}", all.concat())
}

/// Paths whose body is a form.
const FORMS: [&str; 2] = [transcriptions::PATH, "/v1/files"];
/// First bytes of a connection.
const FORM: &[u8] = b"--b0und\r\nContent-Disposition: form-data; name=\"";

pub(super) fn begun(key: &str, length: usize) -> String {
    format!(
        "POST {CHAT} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\nContent-Length: {length}\r\n\r\n"
    )
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Silent,
    Head,
    Body,
    /// Body that is sent byte by byte with short pauses, and never ends.
    Drip,
    /// A form for this path that stops.
    Form(&'static str),
    Idle,
}

/// Runs one slow connection to its end.
async fn slow(client: Client, kind: Kind, pause: Duration) -> (Duration, Vec<u16>) {
    let mut socket = TcpStream::connect(client.address).await.unwrap();
    let drip: &'static [u8] = match kind {
        Kind::Head => {
            socket.write_all(b"POST / HTTP/1.1\r\nHost: a\r\n").await.unwrap();
            b"x: y\r\n"
        }
        Kind::Body | Kind::Drip => {
            socket.write_all(begun(&client.key, 1 << 20).as_bytes()).await.unwrap();
            if matches!(kind, Kind::Drip) { b" " } else { b"" }
        }
        Kind::Idle => {
            socket
                .write_all(format!("{}{}", begun(&client.key, ask("Hi").len()), ask("Hi")).as_bytes())
                .await
                .unwrap();
            b""
        }
        Kind::Form(path) => {
            let ((field, kind), key) = (transcriptions::TYPE, &client.key);
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n{field}: {kind}\r\n\
                 Content-Length: {}\r\n\r\n",
                1 << 20
            );
            socket.write_all(&[head.as_bytes(), FORM].concat()).await.unwrap();
            b""
        }
        Kind::Silent => b"",
    };
    let (took, heard) = until_closed(socket, drip, pause).await;
    (took, statuses(&heard))
}

/// Tests each setting in its own gateway, where no other setting could end the connection in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_slow_connection_ends_by_its_own_setting() {
    let mut work = JoinSet::new();
    for (kind, clock, expected, calls) in [
        (Kind::Silent, "request_head", vec![], 0),
        (Kind::Head, "request_head", vec![408], 0),
        (Kind::Body, "body_idle", vec![408], 0),
        (Kind::Form(FORMS[0]), "body_idle", vec![408], 0),
        (Kind::Form(FORMS[1]), "body_idle", vec![408], 0),
        (Kind::Drip, "body", vec![408], 0),
        (Kind::Idle, "keep_alive", vec![200], 1),
    ] {
        let app = start(&clocks(&[(clock, "500ms")])).await;
        work.spawn(async move {
            // The whole tuple is moved into the task, because the gateway stops when it is dropped.
            let (provider, _certified, running) = app;
            let (took, heard) = slow(running.client.clone(), kind, Duration::from_millis(20)).await;
            assert_eq!(heard, expected, "{kind:?}");
            let after = Duration::from_millis(500);
            assert!(took >= after - Duration::from_millis(20) && took < after + LATE, "{kind:?}: {took:?}");
            assert_eq!(provider.calls(), calls, "{kind:?}");
        });
    }
    work.join_all().await;
}

/// Tests that a head after an idle time has the timeout of a head, not that of an idle connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_head_that_drips_has_no_more_time_than_a_first() {
    let (_provider, _certified, running) = start(&clocks(&[("request_head", "300ms")])).await;
    let mut socket = TcpStream::connect(running.client.address).await.unwrap();
    let first = format!("{}{}GET /v1", begun(&running.client.key, ask("Hi").len()), ask("Hi"));
    let (first, second) = first.split_at(first.len() - 7);
    socket.write_all(first.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    tokio::io::AsyncReadExt::read_exact(&mut socket, &mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    until("the exchange to end", || running.gateway.app.in_flight_exchanges() == 0).await;
    socket.write_all(second.as_bytes()).await.unwrap();
    let (took, heard) = until_closed(socket, b"x", Duration::from_millis(10)).await;
    assert!(took < LATE, "{took:?}");
    assert_eq!(statuses(&heard), [408]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_tls_and_http2_silence_ends_too() {
    let (provider, certified, running) = start(&clocks(&[("request_head", "400ms")])).await;
    let address = running.gateway.https_address.unwrap();
    // Connections without a TLS handshake, with a slow one, and with a complete one after which the client sends
    // nothing.
    for drip in [&b""[..], b"\x16"] {
        let socket = TcpStream::connect(address).await.unwrap();
        let (took, _) = until_closed(socket, drip, Duration::from_millis(50)).await;
        assert!(took < LATE, "{took:?}");
    }
    for protocol in ["h2", "http/1.1"] {
        let began = Instant::now();
        let mut secure = connect(address, &certified.root, &[protocol]).await;
        within("a silent connection to end", rest(&mut secure)).await;
        assert!(began.elapsed() < LATE, "{protocol}: {:?}", began.elapsed());
    }
    // Other clients are served.
    let secure = connect(address, &certified.root, &["h2"]).await;
    let honest = H2Client::over(secure, &running.client.key).await;
    assert_eq!(honest.post(CHAT, &running.ask()).await.status, 200);
    assert_eq!(provider.calls(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_of_http2_without_a_stream_ends_by_keep_alive() {
    let (_provider, certified, running) = start(&clocks(&[("keep_alive", "500ms")])).await;
    let secure = connect(running.gateway.https_address.unwrap(), &certified.root, &["h2"]).await;
    let (_send, connection) = h2::client::handshake(secure).await.unwrap();
    let began = Instant::now();
    within("an idle connection to end", connection).await.ok();
    assert!(began.elapsed() < LATE, "{:?}", began.elapsed());
}

/// Tests that `body_idle` refuses a stalled body of a stream, and that its connection then ends as an idle one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_over_http2_that_stops_ends_by_body_idle() {
    let (provider, certified, running) =
        start(&clocks(&[("body_idle", "500ms"), ("keep_alive", "700ms")])).await;
    let address = running.gateway.https_address.unwrap();
    for path in [CHAT, FORMS[0], FORMS[1]] {
        let secure = connect(address, &certified.root, &["h2"]).await;
        let (mut send, connection) = h2::client::handshake(secure).await.unwrap();
        let driver = tokio::spawn(connection);
        let request = http::Request::post(format!("https://localhost{path}"))
            .header("authorization", format!("Bearer {}", running.client.key));
        let (request, begin) = match path {
            CHAT => (request, &b"{"[..]),
            _ => (request.header(transcriptions::TYPE.0, transcriptions::TYPE.1), FORM),
        };
        let began = Instant::now();
        let (answer, mut body) = send.send_request(request.body(()).unwrap(), false).unwrap();
        body.send_data(Bytes::from_static(begin), false).unwrap();
        let answer = within("the refusal of a body that stops", answer).await.unwrap();
        assert_eq!(answer.status(), 408, "{path}");
        assert!(began.elapsed() < LATE, "{path}: {:?}", began.elapsed());
        drop((body, answer));
        // The gateway ends the connection, since the client leaves it open.
        within("the connection to end", driver).await.unwrap().ok();
        assert!(send.ready().await.is_err() && began.elapsed() < LATE * 2, "{path}: {:?}", began.elapsed());
    }
    assert_eq!(provider.calls(), 0);
}

/// Number of readers in the long form that start a stream and stop reading.
const READERS: usize = 50;

/// Tests many slow connections of all kinds, with honest requests in parallel. The long form has the default
/// settings, 2,000 connections, and clients that stop reading.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_slow_connections_is_not_noticed_by_others() {
    let tight = "[limits]\nrequest_head = \"1s\"\nbody_idle = \"1500ms\"\nbody = \"2s\"\nkeep_alive = \"1s\"";
    let (settings, many, most, pause) = match full() {
        // With the default settings, only idle connections and slowly read answers may last longer than 15 seconds;
        // both are harmless.
        true => (
            "[limits]\nbody = \"15s\"\nclient_write = \"6s\"",
            2000,
            Duration::from_secs(15),
            Duration::from_millis(500),
        ),
        false => (tight, 200, Duration::from_secs(2), Duration::from_millis(50)),
    };
    let (provider, _certified, running) = start(settings).await;
    let before = honest(&running.client, if full() { 2000 } else { 100 }, || true).await;
    let (over, mut work) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
    for number in 0..many {
        let kind = [Kind::Silent, Kind::Head, Kind::Body, Kind::Drip][number % 4];
        let client = running.client.clone();
        work.spawn(async move { slow(client, kind, pause).await.0 });
    }
    if full() {
        // Plain answers are not affected: honest requests ask for no stream.
        provider.streams(stalled_readers::long(1 << 10));
        for _ in 0..READERS {
            let (client, body) = (running.client.clone(), running.ask_stream().to_string());
            work.spawn(async move { stalled_readers::stopped(&client, &body, pause).await });
        }
    }
    let ended = over.clone();
    let crowd = async {
        let took = work.join_all().await;
        ended.store(true, Ordering::SeqCst);
        took
    };
    let (took, during) = tokio::join!(crowd, honest(&running.client, 50, || over.load(Ordering::SeqCst)));
    let longest = *took.iter().max().unwrap();
    eprintln!("{many} slow connections: the last was closed after {longest:.1?}");
    assert!(longest < most + if full() { Duration::from_secs(1) } else { LATE }, "{longest:?}");
    unharmed("slow connections", &before, &during);
}
