//! GOAWAY when the gateway stops, and the streams that are still allowed after it.

use super::load_clients::{charges, log_text};
use super::open_streams::{ask, waits};
use super::transports::{CHAT, GatewayListeners};
use super::upgrade::two;
use crate::harness::batch_jobs::let_go;
use crate::harness::h2_client::is_unprocessed;
use crate::harness::process::{Home, Process};
use crate::harness::script::{plain, text};
use crate::harness::{Client, Provider, until, within};
use crate::hostile::raw_h2::{
    ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PREFACE, RST, Raw, SETTINGS, WINDOW, field,
    frame, get, pseudo, setting,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Last stream id of a GOAWAY that still accepts any stream.
const ANY: u32 = 0x7fff_ffff;
/// Bytes of an answer that exceed all buffers between two sockets.
const LONG: usize = 1 << 20;
/// Windows of a client that accept a whole answer.
const WIDE: u32 = 16 << 20;

/// Connection, and the frames received on it.
struct ObservedConnection {
    raw: Raw,
    /// Bodies of answers, by stream.
    bodies: BTreeMap<u32, String>,
    /// Streams that ended without a reset.
    ended: BTreeSet<u32>,
    /// Last stream ids of the received GOAWAY frames.
    farewells: Vec<u32>,
    /// Ping that is not answered yet.
    ping: Option<Vec<u8>>,
    closed: bool,
}

impl ObservedConnection {
    /// Opens a connection whose window is so large that no answer has to wait for it.
    async fn on(listeners: &GatewayListeners) -> Self {
        let mut raw = Raw::connect(listeners.https, &listeners.files.root).await;
        let (of_streams, of_all) = (setting(4, WIDE), WIDE.to_be_bytes());
        let opening = [PREFACE, &frame(SETTINGS, 0, 0, &of_streams), &frame(WINDOW, 0, 0, &of_all)];
        assert!(raw.send(&opening.concat()).await);
        let (bodies, ended, farewells) = Default::default();
        Self { raw, bodies, ended, farewells, ping: None, closed: false }
    }

    async fn ask(&mut self, stream: u32, model: &str, streamed: bool, client: &Client) {
        let key = field("authorization", &format!("Bearer {}", client.key));
        let fields = [pseudo("POST", CHAT), key, field("content-type", "application/json")].concat();
        let body = ask(model, streamed).to_string();
        let head = frame(HEADERS, END_HEADERS, stream, &fields);
        assert!(self.raw.send(&[head, frame(DATA, END_STREAM, stream, body.as_bytes())].concat()).await);
    }

    /// Answers the ping that was sent with the GOAWAY: after that, the gateway knows that no earlier request is still
    /// in transit.
    async fn answer(&mut self) {
        let ping = self.ping.take().expect("a ping");
        self.raw.send(&frame(PING, ACK, 0, &ping)).await;
    }

    async fn until(&mut self, is: impl Fn(&Self) -> bool) {
        while !is(self) {
            assert!(!self.closed, "closed: {:?} ended, {:?}", self.ended, self.bodies);
            self.hear().await;
        }
    }

    async fn hear(&mut self) {
        let Some(heard) = self.raw.hear().await else {
            self.closed = true;
            return;
        };
        match heard.kind {
            DATA => {
                let body = self.bodies.entry(heard.stream).or_default();
                body.push_str(std::str::from_utf8(&heard.payload).unwrap());
            }
            GOAWAY => {
                assert_eq!(heard.code(), 0, "no error");
                self.farewells.push(u32::from_be_bytes(heard.payload[..4].try_into().unwrap()) & ANY);
            }
            PING if heard.flags & ACK == 0 => self.ping = Some(heard.payload),
            RST => panic!("stream {} was reset: {}", heard.stream, heard.code()),
            _ => {}
        }
        if [DATA, HEADERS].contains(&heard.kind) && heard.flags & END_STREAM != 0 {
            self.ended.insert(heard.stream);
        }
    }

    fn has(&self, stream: u32, words: &str) -> bool {
        self.bodies.get(&stream).is_some_and(|body| body.contains(words))
    }
}

/// A gateway with a model `m` that answers at once and a model `s` whose streams wait.
struct TestGateway {
    home: Home,
    listeners: GatewayListeners,
    running: Process,
    client: Client,
    go: Arc<Notify>,
    _quick: Provider,
    slow: Provider,
}

impl TestGateway {
    async fn set() -> Self {
        Self::with("").await
    }

    /// Starts a gateway with these settings.
    async fn with(settings: &str) -> Self {
        let (quick, slow, go) = (Provider::start().await, Provider::start().await, Arc::default());
        quick.always(plain("Hello"));
        slow.always(waits(&go));
        let mut home = Home::new();
        let listeners = GatewayListeners::of(&mut home);
        home.write(&format!("{settings}\n{}", two(&quick, &slow)));
        let running = home.run().await;
        let (client, _) = home.key();
        Self { home, listeners, running, client, go, _quick: quick, slow }
    }

    /// Sends the stop signal, and waits until the stop has begun.
    async fn stop(&self) {
        self.running.signal("TERM");
        within("the drain", async { while self.home.admin().get("/readyz").await.status != 503 {} }).await;
    }

    /// Waits for the end of the connection; returns the time since the call.
    async fn ends(&mut self) -> Duration {
        let since = Instant::now();
        assert_eq!(self.running.until_ended().await.code(), Some(0));
        assert!(log_text(&self.home).contains("\"cut\":\"0\""), "{}", log_text(&self.home));
        since.elapsed()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_complete_after_goaway_and_requests_in_transit_are_accepted() {
    let mut stage = TestGateway::set().await;
    let mut heard = ObservedConnection::on(&stage.listeners).await;
    for stream in [1, 3] {
        heard.ask(stream, "s", true, &stage.client).await;
        heard.until(|heard| heard.has(stream, "One ")).await;
    }
    stage.stop().await;
    heard.until(|heard| heard.ping.is_some()).await;
    assert_eq!(heard.farewells, [ANY], "no stream is refused that the client may have begun already");
    // As far as the gateway can know, this request was sent before the client read the GOAWAY.
    heard.ask(5, "m", false, &stage.client).await;
    heard.answer().await;
    heard.until(|heard| heard.farewells.len() == 2 && heard.ended.contains(&5)).await;
    assert_eq!(heard.farewells, [ANY, 5], "now it is said which was the last");
    assert!(heard.has(5, "Hello"), "{:?}", heard.bodies);
    assert!(stage.running.ended().is_none(), "it waits for its streams");
    assert!(!heard.ended.contains(&1) && !heard.ended.contains(&3));
    let_go(&stage.go, heard.until(|heard| heard.closed)).await;
    assert_eq!(heard.ended, BTreeSet::from([1, 3, 5]));
    for stream in [1, 3] {
        assert!(heard.has(stream, "two") && heard.has(stream, "data: [DONE]\n\n"), "{:?}", heard.bodies);
    }
    drop(heard);
    let took = stage.ends().await;
    eprintln!("the process ended {took:?} after the last stream");
    assert!(took <= Duration::from_secs(1), "{took:?}");
    assert_eq!(charges(&stage.home), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_gets_goaway_at_once_and_delays_no_stop() {
    for answers in [true, false] {
        let mut stage = TestGateway::set().await;
        let mut idle = ObservedConnection::on(&stage.listeners).await;
        idle.raw.send(&get(1)).await;
        idle.until(|idle| idle.ended.contains(&1)).await;
        let begun = Instant::now();
        stage.running.signal("TERM");
        idle.until(|idle| idle.ping.is_some()).await;
        assert_eq!(idle.farewells, [ANY]);
        if answers {
            idle.answer().await;
            idle.until(|idle| idle.closed).await;
            assert_eq!(idle.farewells, [ANY, 1]);
            // The client closes its end of the connection, as clients do after the gateway has closed the other end.
            drop(idle);
        }
        stage.ends().await;
        let took = begun.elapsed();
        eprintln!("stopped after {took:?} with an idle connection that answers: {answers}");
        // If the client does not answer the ping, the gateway waits for the idle time that every connection has at a
        // stop.
        assert!(took <= Duration::from_secs(if answers { 1 } else { 3 }), "{took:?}");
    }
}

/// Tests that a new connection may make its first request: clients treat a GOAWAY directly after connecting as a
/// failure.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_connection_may_make_its_first_request() {
    let mut stage = TestGateway::set().await;
    // The gateway accepts connections in order. Once the handshake of the next connection is complete, it has
    // accepted this one too.
    let socket = TcpStream::connect(stage.listeners.https).await.unwrap();
    let h2 = stage.listeners.h2(&stage.client.key).await.unwrap();
    stage.stop().await;
    let body = ask("m", false).to_string().into_bytes();
    let first = h2.begin(CHAT, "application/json", body.clone()).await.unwrap().finish().await;
    assert_eq!((first.status, first.whole), (200, true), "{}", first.text());
    let late = stage.listeners.over(socket).await.unwrap();
    let answer = stage.client.open_over(late, "POST", CHAT, &[], &body).await.finish().await;
    assert_eq!((answer.status, answer.whole), (200, true), "{}", answer.text());
    // The client gets the GOAWAY before the first answer, so it refuses to start a second stream.
    let second = h2.begin(CHAT, "application/json", body).await;
    assert!(second.is_err_and(|why| is_unprocessed(&why)));
    stage.ends().await;
    assert_eq!(charges(&stage.home), 2);
}

/// Tests a client that reads more slowly than the gateway sends, and so sends window updates all the time. If the
/// gateway closed the connection with unread input, a reset would destroy the end of the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_long_answer_reaches_a_client_that_reads_it_late() {
    let mut stage = TestGateway::set().await;
    let mut script = waits(&stage.go);
    script.insert(4, text(&"word ".repeat(LONG / 5)));
    stage.slow.always(script);
    let mut heard = ObservedConnection::on(&stage.listeners).await;
    heard.ask(1, "s", true, &stage.client).await;
    heard.until(|heard| heard.has(1, "One ")).await;
    stage.stop().await;
    heard.until(|heard| heard.ping.is_some()).await;
    heard.answer().await;
    heard.until(|heard| heard.farewells == [ANY, 1]).await;
    let written =
        until("the answer to be written", || log_text(&stage.home).contains("\"event\":\"request\""));
    let_go(&stage.go, written).await;
    for _ in 0..10 {
        heard.raw.send(&frame(WINDOW, 0, 0, &1_u32.to_be_bytes())).await;
        heard.hear().await;
    }
    heard.until(|heard| heard.ended.contains(&1)).await;
    assert!(heard.bodies[&1].len() > LONG && heard.has(1, "data: [DONE]\n\n"));
    heard.until(|heard| heard.closed).await;
    drop(heard);
    stage.ends().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_gets_goaway_before_it_is_closed() {
    let mut stage = TestGateway::with("[limits]\nkeep_alive = \"300ms\"").await;
    let mut idle = ObservedConnection::on(&stage.listeners).await;
    idle.ask(1, "m", false, &stage.client).await;
    idle.until(|idle| idle.ping.is_some()).await;
    assert_eq!((&idle.farewells[..], idle.ended.contains(&1)), (&[ANY][..], true));
    idle.ask(3, "m", false, &stage.client).await;
    idle.answer().await;
    idle.until(|idle| idle.closed).await;
    assert_eq!((&idle.farewells[..], idle.has(3, "Hello")), (&[ANY, 3][..], true));
    drop(idle);
    stage.running.signal("TERM");
    stage.ends().await;
    assert_eq!(charges(&stage.home), 2);
}
