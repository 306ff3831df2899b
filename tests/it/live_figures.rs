//! Live figures of the operators' overview over real sockets: events, access rights, and the end of a stream.

use crate::harness::browser::{Browser, signed_in};
use crate::harness::client::OpenResponse;
use crate::harness::gateway::Running;
use crate::harness::{Bench, Provider, within};
use serde_json::Value;

const PATH: &str = "/console/events";

async fn bench() -> (Provider, Running) {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    (provider, running)
}

async fn open(browser: &Browser) -> OpenResponse {
    let headers = [("cookie", browser.cookie.as_str()), ("accept", "text/event-stream")];
    browser.site.open("GET", PATH, &headers, b"").await
}

/// Returns the figures of the last complete event that has arrived.
fn last(stream: &OpenResponse) -> Value {
    let text = String::from_utf8_lossy(&stream.bytes);
    let event = text.rsplit("event: figures\ndata: ").find(|event| event.contains("\n\n")).unwrap();
    serde_json::from_str(event.split('\n').next().unwrap()).unwrap()
}

async fn next(stream: &mut OpenResponse) -> Value {
    stream.bytes.clear();
    within("an event", stream.until("event: figures\n")).await;
    within("its end", stream.until("\n\n")).await;
    last(stream)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_open_page_gets_the_figures_of_the_gateway() {
    let (_provider, running) = bench().await;
    let browser = signed_in(&running, "ada", "admin").await;
    let viewer = signed_in(&running, "vic", "viewer").await;
    let page = browser.get("/console/").await.text();
    assert!(page.contains("data-events=\"/console/events\""), "{page}");
    let (mut one, mut other) = (open(&browser).await, open(&viewer).await);
    within("a head", one.until("\r\n\r\n")).await;
    let head = String::from_utf8_lossy(&one.bytes).to_lowercase();
    for expected in
        ["http/1.1 200", "content-type: text/event-stream", "content-security-policy: default-src 'none'"]
    {
        assert!(head.contains(expected), "{expected} in {head}");
    }
    let first = next(&mut one).await;
    let tiles = page.matches("<div class=\"tile ").count();
    assert_eq!(first["tiles"].as_array().unwrap().len(), tiles, "{first}");
    assert!(first.to_string().contains("EUR") && !next(&mut other).await.to_string().contains("EUR"));
    let requests = |figures: &Value| figures["tiles"][8][0].as_str().unwrap().to_owned();
    assert_eq!(requests(&first), "0");
    assert_eq!(running.chat().await.status, 200);
    for stream in [&mut one, &mut other] {
        while requests(&next(stream).await) != "1" {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_needs_a_session_and_ends_with_it() {
    let (_provider, running) = bench().await;
    let nobody = Browser::new(&running);
    assert_eq!(nobody.get(PATH).await.header("location"), Some("/console/sign-in"));
    let mut browser = signed_in(&running, "ada", "operator").await;
    let mut stream = open(&browser).await;
    next(&mut stream).await;
    let token = browser.token("/console/").await;
    assert_eq!(browser.post("/console/sign-out", &[("form_token", &token)]).await.status, 303);
    within("the end of the session", stream.until("event: end\n")).await;
    within("the end of the stream", async { while stream.more().await {} }).await;
    assert!(stream.bytes.ends_with(b"0\r\n\r\n"), "{}", String::from_utf8_lossy(&stream.bytes));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_end_when_the_gateway_stops() {
    let (_provider, running) = bench().await;
    let browser = signed_in(&running, "ada", "viewer").await;
    let mut streams = Vec::new();
    for _ in 0..5 {
        let mut stream = open(&browser).await;
        next(&mut stream).await;
        streams.push(stream);
    }
    within("the gateway to stop", running.stop()).await;
    for mut stream in streams {
        // The response ends correctly, with the last chunk.
        within("the end", async { while stream.more().await {} }).await;
        assert!(stream.bytes.ends_with(b"0\r\n\r\n"), "{}", String::from_utf8_lossy(&stream.bytes));
    }
}
