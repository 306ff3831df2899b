//! The clocks of a provider: each fires in time, the provider's work is cancelled,
//! the reserve is given back, and the client hears of it in its own dialect.

use super::{CHAT, form, percentile, timed, until_empty};
use crate::harness::script::{Act, Script, role, sse, text};
use crate::harness::{Bench, Provider};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};

/// The clock that is tried; all others are far away.
const CLOCK: Duration = Duration::from_millis(400);
/// How much later it may fire.
const LATE: Duration = Duration::from_millis(250);

fn timeouts(clock: &str) -> String {
    let of = |name: &str| if name == clock { "400ms" } else { "30s" };
    let all: Vec<String> = ["connect", "first_byte", "plain", "first_token", "idle", "total"]
        .iter()
        .map(|name| format!("{name} = \"{}\"", of(name)))
        .collect();
    format!("timeouts = {{ {} }}", all.join(", "))
}

/// Tries a clock with an ask that must meet it; what the client was told last.
async fn tried(
    clock: &str,
    provider: Option<(&Provider, Script)>,
    address: SocketAddr,
    ask: &Value,
    path: &str,
) -> String {
    let base = format!("http://{address}/v1");
    let never = "[routing.breaker]\nconsecutive = 1000\nminimum = 100000";
    let running = Bench::new().settings(never).provider_at("a", &base, &timeouts(clock), "").start().await;
    let (mut late, mut told) = (Vec::new(), String::new());
    for trial in 0..form(3, 100) {
        if let Some((provider, script)) = &provider {
            provider.then(script.clone());
        }
        let (answer, took) = timed(running.client.post(path, ask)).await;
        assert!(took >= CLOCK, "{clock} fired after {took:?}");
        late.push(took - CLOCK);
        told = answer.text();
        assert!(answer.status == 503 || told.contains("\"error\""), "{clock}: {told}");
        let good = ["\"finish_reason\":\"stop\"", "message_stop"];
        assert!(!good.iter().any(|end| told.contains(end)), "{clock}: {told}");
        if let Some((provider, _)) = &provider {
            provider.until_left(trial + 1).await;
        }
    }
    until_empty(&running).await;
    let (half, most) = (percentile(&mut late, 50), percentile(&mut late, 99));
    eprintln!("clock {clock}: late by p50 {half:?}, p99 {most:?} in {} trials", late.len());
    // In the gate the machine does other things meanwhile.
    let least = percentile(&mut late, 1);
    assert!(form(least, most) <= LATE, "{clock}: {least:?} to {most:?} late");
    told
}

fn ask(stream: bool) -> Value {
    json!({"model": "m", "stream": stream, "max_tokens": 99, "messages": [{"role": "user", "content": "Hi"}]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_who_takes_the_connection() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    // What waits to be accepted is full: the next one's first packet is dropped.
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut held = Vec::new();
    while let Ok(Ok(one)) =
        tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(address)).await
    {
        held.push(one);
    }
    let told = tried("connect", None, address, &ask(false), CHAT).await;
    assert!(told.contains("INFERENCE_3103"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_before_the_head_and_before_the_first_token() {
    let provider = Provider::start().await;
    let head = ("first_byte", vec![Act::Hang], ask(true));
    let plain = ("plain", vec![Act::Hang], ask(false));
    let token = ("first_token", vec![sse(), role(), Act::Hang], ask(true));
    for (clock, script, ask) in [head, plain, token] {
        let provider_now = Provider::start().await;
        let told = tried(clock, Some((&provider_now, script)), provider_now.address, &ask, CHAT).await;
        assert!(told.contains("INFERENCE_3103"), "{told}");
    }
    drop(provider);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_and_the_end_of_the_whole_time_after_the_first_token() {
    let script = vec![sse(), role(), text("One "), Act::Hang];
    for clock in ["idle", "total"] {
        let provider = Provider::start().await;
        let told = tried(clock, Some((&provider, script.clone())), provider.address, &ask(true), CHAT).await;
        assert!(told.contains("One ") && told.contains("INFERENCE_3103"), "{told}");
        let provider = Provider::start().await;
        let script = Some((&provider, script.clone()));
        let told = tried(clock, script, provider.address, &ask(true), "/v1/messages").await;
        assert!(told.contains("event: error") && told.contains("overloaded_error"), "{told}");
    }
}
