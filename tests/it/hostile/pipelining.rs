//! Pipelined requests are answered in order at every split, a half-closed connection gets its response, and a client
//! that keeps sending receives its rejection.

use super::{CHAT, ask, rest, say, statuses};
use crate::harness::script::{ScriptStep, plain};
use crate::harness::{Bench, Provider, until, within};
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

fn request(key: &str, fields: &str, body: &str) -> String {
    format!("POST {CHAT} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n{fields}\r\n{body}")
}

fn with_length(key: &str, text: &str) -> String {
    let body = ask(text);
    request(key, &format!("Content-Length: {}\r\n", body.len()), &body)
}

async fn settled(bench: Bench, provider: &Provider) -> crate::harness::gateway::Running {
    bench.settings("[limits]\nkeep_alive = \"300ms\"").provider("a", provider).start().await
}

/// Sends two parts, the second while the first is being processed.
async fn in_halves(address: std::net::SocketAddr, bytes: &[u8], cut: usize) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.set_nodelay(true).unwrap();
    socket.write_all(&bytes[..cut]).await.unwrap();
    tokio::task::yield_now().await;
    socket.write_all(&bytes[cut..]).await.unwrap();
    within("the connection to close", rest(&mut socket)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_requests_are_answered_in_order_wherever_they_are_cut() {
    let provider = Provider::start().await;
    provider.always(plain("Hello"));
    let running = settled(Bench::new(), &provider).await;
    let key = &running.client.key;
    let models = format!("GET /v1/models HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n\r\n");
    let missing = "GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n";
    let all =
        Arc::new([with_length(key, "one"), models, with_length(key, "two"), missing.to_owned()].concat());
    let (address, mut work) = (running.client.address, JoinSet::new());
    for cut in 0..=all.len() {
        let all = all.clone();
        work.spawn(async move { (cut, in_halves(address, all.as_bytes(), cut).await) });
        if work.len() >= 32
            && let Some(ended) = work.join_next().await
        {
            check(ended.unwrap());
        }
    }
    while let Some(ended) = work.join_next().await {
        check(ended.unwrap());
    }
    assert_eq!(provider.seen().len(), 2 * (all.len() + 1), "each was asked once");

    fn check((cut, heard): (usize, Vec<u8>)) {
        assert_eq!(statuses(&heard), [200, 200, 200, 404], "{cut}: {}", String::from_utf8_lossy(&heard));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_lines_before_a_request_line_are_ignored_wherever_they_are_cut() {
    let provider = Provider::start().await;
    provider.always(plain("Hello"));
    let running = settled(Bench::new(), &provider).await;
    let key = &running.client.key;
    let missing = "GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n";
    let all = format!("\r\n{}\r\n\r\n{missing}\r\n{missing}\r\n\r\n", with_length(key, "one"));
    for cut in 0..=all.len() {
        let heard = in_halves(running.client.address, all.as_bytes(), cut).await;
        assert_eq!(statuses(&heard), [200, 404, 404], "{cut}: {}", String::from_utf8_lossy(&heard));
    }
    assert_eq!(provider.seen().len(), all.len() + 1);
    // More than one empty line before a request is refused, and so are bytes that resemble an empty line.
    for prefix in ["\r\n\r\n\r\n", "\n", "\r", " \r\n", "\r\n\n", "\0\r\n"] {
        let head = format!("{prefix}{missing}");
        for cut in 0..=prefix.len() + 1 {
            let heard = in_halves(running.client.address, head.as_bytes(), cut).await;
            assert_eq!(statuses(&heard), [400], "{prefix:?} {cut}: {}", String::from_utf8_lossy(&heard));
        }
        let pipelined = format!("{missing}{head}");
        let heard = say(running.client.address, pipelined.as_bytes()).await;
        assert_eq!(statuses(&heard), [404, 400], "{prefix:?}: {}", String::from_utf8_lossy(&heard));
    }
}

/// Returns the head and chunked body of a chat request: two chunks, an extension and a trailer.
fn with_chunks(key: &str, fields: &str, body: &str) -> String {
    let (first, second) = body.split_at(7);
    let chunks = format!("7;a=b\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\nX-Sum: 1\r\n\r\n", second.len());
    request(key, &format!("Transfer-Encoding: chunked\r\n{fields}"), &chunks)
}

/// Returns the values of the field `Connection` in the responses, without those of interim responses.
fn connections(heard: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(heard).to_ascii_lowercase();
    let values = text.lines().filter_map(|line| line.strip_prefix("connection: "));
    values.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_after_a_chunked_body_is_answered_wherever_the_bytes_are_cut() {
    let provider = Provider::start().await;
    provider.always(plain("Hello"));
    let running = settled(Bench::new(), &provider).await;
    let key = &running.client.key;
    let all = [
        with_length(key, "one"),
        with_chunks(key, "", &ask("two")),
        with_chunks(key, "Expect: 100-continue\r\n", &ask("three")),
        "GET /nothing HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_owned(),
    ]
    .concat();
    for cut in 0..=all.len() {
        let heard = in_halves(running.client.address, all.as_bytes(), cut).await;
        let text = String::from_utf8_lossy(&heard);
        let statuses: Vec<_> = statuses(&heard).into_iter().filter(|status| *status != 100).collect();
        assert_eq!(statuses, [200, 200, 200, 404], "{cut}: {text}");
        assert_eq!(connections(&heard), ["keep-alive", "keep-alive", "keep-alive", "close"], "{cut}: {text}");
    }
    let asked = provider.seen();
    assert_eq!(asked.len(), 3 * (all.len() + 1), "each was asked once");
    for (at, seen) in asked.iter().enumerate() {
        let expected = ["one", "two", "three"][at % 3];
        assert_eq!(seen.json()["messages"][0]["content"], expected);
    }
}

/// A response with `Connection: keep-alive` is followed by the response to the next request, and after a response with
/// `Connection: close` the connection is closed: also for refusals, for endpoints that read no body, and for streams.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_is_kept_exactly_if_its_response_says_so() {
    let provider = Provider::start().await;
    let running = settled(Bench::new(), &provider).await;
    let key = &running.client.key;
    let missing = "GET /nothing HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let chunked = with_chunks(key, "", &ask("one"));
    let expecting = with_chunks(key, "Expect: 100-continue\r\n", &ask("one"));
    let streamed = with_chunks(key, "", &ask("one").replacen('{', "{\"stream\":true,", 1));
    for (first, status, value) in [
        (chunked.clone(), 200, "keep-alive"),
        (expecting, 200, "keep-alive"),
        (streamed, 200, "keep-alive"),
        (chunked.replace("messages", "massages"), 400, "keep-alive"),
        (chunked.replacen(key.as_str(), "psk_wrong", 1), 401, "close"),
        (chunked.replacen(CHAT, "/v1/nothing", 1), 404, "close"),
        (chunked.replacen("POST", "GET", 1), 405, "close"),
        (chunked.replacen(&format!("POST {CHAT}"), "GET /v1/models", 1), 200, "close"),
        (chunked.replacen("0\r\nX-Sum", "0x\r\nX-Sum", 1), 400, "close"),
        (with_length(key, "one").replacen(key.as_str(), "psk_wrong", 1), 401, "keep-alive"),
    ] {
        let heard = say(running.client.address, format!("{first}{missing}").as_bytes()).await;
        let text = String::from_utf8_lossy(&heard);
        let statuses: Vec<_> = statuses(&heard).into_iter().filter(|status| *status != 100).collect();
        let expected: &[u16] = if value == "close" { &[status] } else { &[status, 404] };
        assert_eq!(statuses, expected, "{first}: {text}");
        assert_eq!(connections(&heard)[0], value, "{first}: {text}");
    }
}

/// Tests heads that the gateway's guard accepts but Pingora's parser refuses: the client still gets an error in the
/// gateway's format.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_only_pingora_refuses_is_refused_in_the_callers_dialect() {
    let provider = Provider::start().await;
    let running = settled(Bench::new(), &provider).await;
    let (chat, messages) = ("\"code\"", "\"type\":\"error\"");
    for (target, envelope) in [
        ("/v1/chat/completions?a=<b>", chat),
        ("/v1/chat/<completions>", chat),
        ("/v1/models?a=\"b\"", chat),
        ("/v1/`models`", chat),
        ("/v1/messages?a=<b>", messages),
    ] {
        let head = format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        let heard = say(running.client.address, head.as_bytes()).await;
        let text = String::from_utf8_lossy(&heard).into_owned();
        assert_eq!(statuses(&heard), [400], "{target}: {text}");
        assert!(text.contains("INFERENCE_3201") && text.contains(envelope), "{target}: {text}");
        assert!(text.contains("x-request-id: req_"), "{target}: {text}");
        assert!(!text.to_ascii_lowercase().contains("server:"), "{target}: {text}");
    }
    assert_eq!(provider.seen().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_closed_connection_gets_its_response() {
    let provider = Provider::start().await;
    provider.always(plain("Hello"));
    let running = settled(Bench::new(), &provider).await;
    let key = &running.client.key;
    for (bytes, expected) in [
        (with_length(key, "one"), &[200][..]),
        (with_length(key, "one").replacen("HTTP/1.1", "HTTP/1.0", 1), &[200]),
        (format!("{}{}", with_length(key, "one"), with_length(key, "two")), &[200, 200]),
    ] {
        let mut socket = TcpStream::connect(running.client.address).await.unwrap();
        socket.write_all(bytes.as_bytes()).await.unwrap();
        socket.shutdown().await.unwrap();
        let heard = within("the response", rest(&mut socket)).await;
        let statuses: Vec<_> = statuses(&heard).into_iter().filter(|status| *status != 100).collect();
        assert_eq!(statuses, expected, "{}", String::from_utf8_lossy(&heard));
    }
}

/// The gateway notices a closed connection, unlike a half-closed one, while it waits for the provider.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_closes_is_gone() {
    let provider = Provider::start().await;
    provider.always(vec![ScriptStep::Hang]);
    let running = settled(Bench::new(), &provider).await;
    for times in 1..=20 {
        let mut socket = TcpStream::connect(running.client.address).await.unwrap();
        socket.write_all(with_length(&running.client.key, "one").as_bytes()).await.unwrap();
        if times % 2 == 0 {
            socket.shutdown().await.unwrap();
        }
        until("the provider to be asked", || provider.seen().len() >= times).await;
        drop(socket);
        provider.until_left(times).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_heard_by_a_client_that_sends_all_of_its_body() {
    const BODY: usize = 60 << 20;
    let provider = Provider::start().await;
    let running = settled(Bench::new(), &provider).await;
    for (key, expected) in [("psk_wrong", 401), (&*running.client.key, 413)] {
        let head = request(key, &format!("Content-Length: {BODY}\r\n"), "");
        let heard = say(running.client.address, &[head.into_bytes(), vec![b' '; BODY]].concat()).await;
        assert_eq!(statuses(&heard), [expected]);
    }
    assert_eq!(provider.seen().len(), 0);
}
