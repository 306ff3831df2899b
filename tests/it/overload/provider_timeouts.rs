//! Timeouts of a provider: each fires in time, cancels the provider's work, releases the reserve, and is reported in
//! the client's dialect.

use super::{CHAT, form, full, percentile, timed, until_empty};
use crate::harness::script::{Script, ScriptStep, role, sse, text};
use crate::harness::{Bench, Provider, until};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Tested timeout; all others are much longer.
const CLOCK: Duration = Duration::from_millis(400);
/// Allowed delay of the timeout.
const LATE: Duration = Duration::from_millis(250);
/// Allowed delay until the provider sees the cancellation.
const LEFT: Duration = Duration::from_secs(1);
/// First byte of a TLS handshake record.
const HANDSHAKE: u8 = 22;

/// Phase in which the provider is silent.
enum SilentPhase<'s> {
    /// The connection is not accepted.
    Nobody(SocketAddr),
    /// Accepts the connection and never answers the handshake; the text is for the provider's settings.
    SilentListener(&'s SilentListener, &'s str),
    /// Provider that executes this script for each request.
    Scripted(&'s Provider, Script),
}

impl SilentPhase<'_> {
    fn base(&self) -> String {
        match self {
            Self::Nobody(address) => format!("http://{address}/v1"),
            Self::SilentListener(deaf, _) => format!("https://{}/v1", deaf.address),
            Self::Scripted(provider, _) => format!("http://{}/v1", provider.address),
        }
    }

    fn lines(&self, clock: &str) -> String {
        let of = |name: &str| if name == clock { "400ms" } else { "30s" };
        let all: Vec<String> = ["connect", "first_byte", "plain", "first_token", "idle", "total"]
            .iter()
            .map(|name| format!("{name} = \"{}\"", of(name)))
            .collect();
        let own = if let Self::SilentListener(_, lines) = self { lines } else { "" };
        format!("{own}\ntimeouts = {{ {} }}", all.join(", "))
    }

    /// Number of cancelled requests or connections; `None` if no provider exists that could count them.
    fn left(&self) -> Option<usize> {
        match self {
            Self::Nobody(_) => None,
            Self::SilentListener(deaf, _) => Some(deaf.left.load(Ordering::SeqCst)),
            Self::Scripted(provider, _) => Some(provider.left()),
        }
    }
}

/// Listener that accepts connections and never writes.
struct SilentListener {
    address: SocketAddr,
    /// Number of connections that were closed after the start of a handshake.
    left: Arc<AtomicUsize>,
}

impl SilentListener {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, left) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
        let counted = left.clone();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let left = counted.clone();
                tokio::spawn(async move {
                    let mut received = Vec::new();
                    socket.read_to_end(&mut received).await.ok();
                    left.fetch_add(usize::from(received.first() == Some(&HANDSHAKE)), Ordering::SeqCst);
                });
            }
        });
        Self { address, left }
    }
}

/// Runs a request into a timeout; returns the end of the client's response.
async fn tried(clock: &str, silent: SilentPhase<'_>, ask: &Value, path: &str) -> String {
    let never = "[routing.breaker]\nconsecutive = 1000\nminimum = 100000";
    let bench = Bench::new().settings(never);
    let running = bench.provider_at("a", &silent.base(), &silent.lines(clock), "").start().await;
    let (mut late, mut leaving, mut body) = (Vec::new(), Vec::new(), String::new());
    // In the short form, the machine may have other load, so it is enough if one of several trials is in time.
    let is_late = |late: &[Duration]| !full() && late.iter().all(|late| *late > LATE);
    for trial in 1.. {
        if trial > form(3, 100) && (trial > 20 || !is_late(&late)) {
            break;
        }
        if let SilentPhase::Scripted(provider, script) = &silent {
            provider.then(script.clone());
        }
        let (answer, took) = timed(running.client.post(path, ask)).await;
        assert!(took >= CLOCK, "{clock} fired after {took:?}");
        late.push(took - CLOCK);
        body = answer.text();
        assert!(answer.status == 503 || body.contains("\"error\""), "{clock}: {body}");
        let good = ["\"finish_reason\":\"stop\"", "message_stop"];
        assert!(!good.iter().any(|end| body.contains(end)), "{clock}: {body}");
        if silent.left().is_some() {
            // Measures the time from the timeout until the provider noticed the cancellation. The client may get its
            // answer earlier or later.
            let left = until("the gateway to leave", || silent.left() >= Some(trial));
            leaving.push(took - CLOCK + timed(left).await.1);
        }
    }
    until_empty(&running).await;
    let (half, most) = (percentile(&mut late, 50), percentile(&mut late, 99));
    eprintln!("clock {clock}: late by p50 {half:?}, p99 {most:?} in {} trials", late.len());
    let least = percentile(&mut late, 1);
    assert!(form(least, most) <= LATE, "{clock}: {least:?} to {most:?} late");
    if !leaving.is_empty() {
        let (half, all) = (percentile(&mut leaving, 50), percentile(&mut leaving, 100));
        eprintln!("clock {clock}: the provider left after p50 {half:?}, always within {all:?}");
        assert!(all <= LEFT || !full(), "{clock}: the provider's work went on for {all:?}");
    }
    body
}

fn ask(stream: bool) -> Value {
    json!({"model": "m", "stream": stream, "max_tokens": 99, "messages": [{"role": "user", "content": "Hi"}]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connect_timeout_fires_when_no_connection_is_accepted() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    // The accept queue is full: the next connection's first packet is dropped.
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut held = Vec::new();
    while let Ok(Ok(one)) =
        tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(address)).await
    {
        held.push(one);
    }
    let body = tried("connect", SilentPhase::Nobody(address), &ask(false), CHAT).await;
    assert!(body.contains("INFERENCE_3103"), "{body}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_taken_and_a_handshake_that_is_not_answered() {
    // Both kinds of TLS connections: with negotiation of HTTP/2, and without.
    for lines in ["http = \"auto\"", "http = \"h1\""] {
        let deaf = SilentListener::start().await;
        let body = tried("connect", SilentPhase::SilentListener(&deaf, lines), &ask(true), CHAT).await;
        assert!(body.contains("INFERENCE_3103"), "{body}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_before_the_head_and_before_the_first_token() {
    let head = ("first_byte", vec![ScriptStep::Hang], ask(true));
    let plain = ("plain", vec![ScriptStep::Hang], ask(false));
    let token = ("first_token", vec![sse(), role(), ScriptStep::Hang], ask(true));
    for (clock, script, ask) in [head, plain, token] {
        let provider = Provider::start().await;
        let body = tried(clock, SilentPhase::Scripted(&provider, script), &ask, CHAT).await;
        assert!(body.contains("INFERENCE_3103"), "{body}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_and_the_end_of_the_whole_time_after_the_first_token() {
    let script = vec![sse(), role(), text("One "), ScriptStep::Hang];
    for clock in ["idle", "total"] {
        let provider = Provider::start().await;
        let body = tried(clock, SilentPhase::Scripted(&provider, script.clone()), &ask(true), CHAT).await;
        assert!(body.contains("One ") && body.contains("INFERENCE_3103"), "{body}");
        let provider = Provider::start().await;
        let silent = SilentPhase::Scripted(&provider, script.clone());
        let body = tried(clock, silent, &ask(true), "/v1/messages").await;
        assert!(body.contains("event: error") && body.contains("overloaded_error"), "{body}");
    }
}
