//! Endless responses and uploads: every timeout fires, disconnects are noticed, the process ends, other requests are
//! answered.

use super::{CHAT, ask, honest};
use crate::harness::endless_provider::{EndlessProvider, Flood};
use crate::harness::script::{ScriptStep, delta, plain};
use crate::harness::{Bench, Client, Provider, until, within};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const SSE: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const JSON: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";

/// Short timeouts of a provider, after which the gateway ends the exchange.
const TIGHT_TIMEOUTS: &str = r#"timeouts = { connect = "20s", first_byte = "1s", plain = "1s", first_token = "1s", idle = "1s", total = "3s" }"#;
/// Timeouts that no test reaches.
const LONG: &str = r#"timeouts = { connect = "20s", first_byte = "10m", plain = "10m", first_token = "10m", idle = "10m", total = "10m" }"#;

fn chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}

fn event(value: &Value) -> String {
    chunk(&format!("data: {value}\n\n"))
}

fn flood(first: &[&str], again: &str) -> Flood {
    Flood { first: first.concat().into_bytes(), again: again.as_bytes().to_vec() }
}

/// Expected end of a client's request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ExpectedEnd {
    /// Error status, before any output.
    Refused,
    /// Ends with an error event, after some text.
    Broken,
    /// With a complete answer.
    Whole,
}

/// Returns floods for a streamed request in the chat dialect.
fn streams() -> Vec<(&'static str, Flood, ExpectedEnd)> {
    use ExpectedEnd::{Broken, Refused, Whole};
    let (text, empty) =
        (event(&delta(json!({"content": "One "}), None)), event(&delta(json!({"content": ""}), None)));
    let finish = event(&delta(json!({}), Some("stop")));
    let comments = chunk(&": keep-alive\n\n".repeat(100));
    let early = "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n";
    vec![
        ("comments", flood(&[SSE], &comments), Refused),
        ("comments in chunks of a byte", flood(&[SSE], "1\r\n:\r\n1\r\n\n\r\n"), Refused),
        ("blank lines", flood(&[SSE], &chunk("\n\n\n\n")), Refused),
        ("fields that nobody knows", flood(&[SSE], &chunk("id: 1\nretry: 5\n\n")), Refused),
        ("empty deltas", flood(&[SSE], &empty), Refused),
        ("an event without an end", flood(&[SSE, &chunk("data: ")], &chunk("xxxxxxxx")), Refused),
        ("extensions of chunks", flood(&[SSE], &format!("1;{}\r\n:\r\n", "x".repeat(4_000))), Refused),
        ("informational heads", flood(&[], early), Refused),
        ("a head without an end", flood(&["HTTP/1.1 200 OK\r\n"], "x: y\r\n"), Refused),
        ("comments after the first token", flood(&[SSE, &text], &comments), Broken),
        ("empty deltas after the first token", flood(&[SSE, &text], &empty), Broken),
        ("text", flood(&[SSE], &event(&delta(json!({"content": "x".repeat(2_000)}), None))), Whole),
        ("comments after the end", flood(&[SSE, &text, &finish], &comments), Whole),
        ("empty deltas after the end", flood(&[SSE, &text, &finish], &empty), Whole),
    ]
}

/// Returns floods for a request that is not streamed.
fn plains() -> Vec<(&'static str, Flood)> {
    let error = "HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\n";
    vec![
        ("informational heads", flood(&[], "HTTP/1.1 102 Processing\r\n\r\n")),
        ("white space", flood(&[JSON], &chunk(" \n\t "))),
        ("a body in chunks of a byte", flood(&[JSON, &chunk("[")], &chunk("1"))),
        ("a body that ends with its connection", flood(&["HTTP/1.1 200 OK\r\n\r\n["], "1,")),
        ("trailers", flood(&[JSON, &chunk("{}"), "0\r\n"], "a: b\r\n")),
        ("an error without an end", flood(&[error], &chunk("x"))),
    ]
}

/// Starts a gateway with the model `m` at the flooding provider, and the model `good` at another provider.
async fn start(endless: &EndlessProvider, good: &Provider, lines: &str) -> crate::harness::gateway::Running {
    let block = format!(
        "[[models]]\nid = \"good\"\nname = \"G\"\nkind = \"chat\"\ncreated = 1\ncontext_length = 1000\n\
         supported_parameters = [\"stream\"]\nprice = {{ input = 1.0, output = 1.0 }}\n\
         energy = {{ active_params_b = 8.0, total_params_b = 8.0, joules_per_output_token = 0.1 }}\n\n\
         [[providers]]\nid = \"good\"\noperator = \"G\"\ncountry = \"FR\"\ncity = \"Paris\"\n\
         base_url = \"http://{}/v1\"\n\n[[providers.offers]]\nmodel = \"good\"\nname = \"theirs\"\n",
        good.address
    );
    let bench = Bench::new()
        .settings("[routing]\nattempts = 1\n\n[routing.breaker]\nminimum = 1000\nconsecutive = 1000");
    bench.provider_at("a", &endless.base(), lines, "").more(&block).start().await
}

/// Sends requests for the model `good` until `over` is true, at least three; returns the number of answers.
async fn beside(client: &Client, over: &AtomicBool) -> usize {
    let body = json!({"model": "good", "messages": [{"role": "user", "content": "Hi"}]});
    let mut answered = 0;
    while answered < 3 || !over.load(Ordering::SeqCst) {
        assert_eq!(client.post(CHAT, &body).await.status, 200);
        answered += 1;
    }
    answered
}

/// Sends a request to the flooding provider, and requests to the other provider in parallel; returns the answer of
/// the flooding provider's request.
async fn answer(flood: Flood, path: &str, body: &Value, lines: &str) -> crate::harness::Answer {
    let (endless, good) = (EndlessProvider::start(flood).await, Provider::start().await);
    let running = start(&endless, &good, lines).await;
    let over = AtomicBool::new(false);
    let asked = async {
        let answer = running.client.post(path, body).await;
        over.store(true, Ordering::SeqCst);
        answer
    };
    let (answer, others) = tokio::join!(asked, beside(&running.client, &over));
    eprintln!("{others} others were answered meanwhile");
    within("the provider to be left", endless.until_left(1)).await;
    until("the exchange to end", || running.gateway.app.in_flight_exchanges() == 0).await;
    running.stop().await;
    answer
}

fn holds(name: &str, answer: &crate::harness::Answer, end: ExpectedEnd) {
    let text = answer.text();
    // The error event of a charged stream contains `environment_impact` too, so it alone does not show success.
    let success = text.contains("environment_impact") && !text.contains("\"error\"");
    match end {
        ExpectedEnd::Refused => assert_eq!(answer.status, 503, "{name}: {text}"),
        ExpectedEnd::Broken => {
            assert!(answer.status == 200 && text.contains("error"), "{name}: {}", text.len());
            assert!(!success && answer.whole, "{name}");
        }
        ExpectedEnd::Whole => assert!(answer.status == 200 && success && answer.whole, "{name}: {text}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_never_runs_dry_meets_every_clock() {
    for (name, flood, end) in streams() {
        let body = json!({"model": "m", "stream": true, "max_tokens": 100,
            "messages": [{"role": "user", "content": "Hi"}]});
        let answer = answer(flood, CHAT, &body, TIGHT_TIMEOUTS).await;
        holds(name, &answer, end);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_answer_that_never_runs_dry_meets_every_clock() {
    for (name, flood) in plains() {
        let body: Value = serde_json::from_str(&ask("Hi")).unwrap();
        let answer = answer(flood, CHAT, &body, TIGHT_TIMEOUTS).await;
        holds(name, &answer, ExpectedEnd::Refused);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_the_messages_dialect_does_too() {
    let named = |name: &str, value: Value| chunk(&format!("event: {name}\ndata: {value}\n\n"));
    let begin = [
        named(
            "message_start",
            json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
            "model": "theirs", "content": [], "stop_reason": null, "stop_sequence": null,
            "usage": {"input_tokens": 3, "output_tokens": 1}}}),
        ),
        named(
            "content_block_start",
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        ),
    ]
    .concat();
    let says = |text: &str| {
        named(
            "content_block_delta",
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
        )
    };
    let ping = named("ping", json!({"type": "ping"}));
    for (name, flood, end) in [
        ("pings", flood(&[SSE, &begin], &ping), ExpectedEnd::Refused),
        ("empty deltas", flood(&[SSE, &begin], &says("")), ExpectedEnd::Refused),
        ("pings after the first token", flood(&[SSE, &begin, &says("One ")], &ping), ExpectedEnd::Broken),
        ("text", flood(&[SSE, &begin], &says(&"x".repeat(2_000))), ExpectedEnd::Whole),
    ] {
        let body = json!({"model": "m", "stream": true, "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]});
        let lines = format!("dialects = [\"messages\"]\n{TIGHT_TIMEOUTS}");
        holds(name, &answer(flood, "/v1/messages", &body, &lines).await, end);
    }
}

/// Returns floods that the gateway neither refuses nor ends for a long time.
fn lasting() -> Vec<(&'static str, Flood, bool)> {
    vec![
        ("an event in chunks of a byte", flood(&[SSE, &chunk("data: ")], &chunk("x")), true),
        ("text", flood(&[SSE], &event(&delta(json!({"content": "x"}), None))), true),
        ("a body in chunks of a byte", flood(&[JSON, &chunk("[")], &chunk("1")), false),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_is_noticed_behind_a_flood() {
    for (name, flood, streamed) in lasting() {
        let (endless, good) = (EndlessProvider::start(flood).await, Provider::start().await);
        let running = start(&endless, &good, LONG).await;
        let body = if streamed { running.ask_stream() } else { running.ask() }.to_string();
        let open = running.client.open("POST", CHAT, &[], body.as_bytes()).await;
        endless.until_asked(1).await;
        drop(open);
        within(name, endless.until_left(1)).await;
        until("the exchange to end", || running.gateway.app.in_flight_exchanges() == 0).await;
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_ends_while_providers_flood() {
    for (name, flood, streamed) in lasting() {
        let (endless, good) = (EndlessProvider::start(flood).await, Provider::start().await);
        let running = start(&endless, &good, LONG).await;
        let body = if streamed { running.ask_stream() } else { running.ask() }.to_string();
        let mut open = running.client.open("POST", CHAT, &[], body.as_bytes()).await;
        endless.until_asked(1).await;
        let reading = tokio::spawn(async move { while open.more().await {} });
        let cut = within(name, running.gateway.stop(Duration::from_millis(200))).await;
        assert_eq!(cut, 1, "{name}");
        within(name, endless.until_left(1)).await;
        within(name, reading).await.unwrap();
    }
}

/// Runs a client that sends chunks of one byte as fast as the gateway reads them, until it gets an answer; returns
/// the first line of the answer.
async fn upload(client: &Client, path: &str, kind: &str, first: &str) -> String {
    let mut socket = TcpStream::connect(client.address).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\ncontent-type: {kind}\r\n\
         transfer-encoding: chunked\r\n\r\n{}",
        client.key,
        chunk(first)
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let (mut read, mut write) = socket.split();
    let pouring = async {
        let block = chunk("x").repeat(10_000);
        while write.write_all(block.as_bytes()).await.is_ok() {}
        std::future::pending::<()>().await;
    };
    let mut heard = Vec::new();
    let hearing = async {
        while !heard.windows(2).any(|two| two == b"\r\n")
            && read.read_buf(&mut heard).await.is_ok_and(|read| read > 0)
        {}
    };
    tokio::select! {
        () = pouring => {}
        () = hearing => {}
    }
    String::from_utf8_lossy(&heard).lines().next().unwrap_or_default().to_owned()
}

/// Tests that endless uploads end by the total timeout of the upload.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_in_chunks_of_a_byte_meets_its_clock_and_others_do_not_notice() {
    let provider = Provider::start().await;
    provider.always(plain("Hello"));
    let running = Bench::new()
        .settings("[limits]\nbody = \"1s\"\nupload = \"1s\"")
        .provider("a", &provider)
        .start()
        .await;
    let form = "multipart/form-data; boundary=b";
    let file = "--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n";
    for (path, kind, first) in [
        (CHAT, "application/json", "{\"model\":\""),
        ("/v1/messages", "application/json", "{\"model\":\""),
        ("/v1/embeddings", "application/json", "{\"model\":\""),
        ("/v1/audio/transcriptions", form, file),
        ("/v1/files", form, file),
    ] {
        let over = Arc::new(AtomicBool::new(false));
        let ended = over.clone();
        let flooding = async {
            let line = within(path, upload(&running.client, path, kind, first)).await;
            ended.store(true, Ordering::SeqCst);
            line
        };
        let (line, took) = tokio::join!(flooding, honest(&running.client, 3, || over.load(Ordering::SeqCst)));
        assert!(line.starts_with("HTTP/1.1 408"), "{path}: {line}");
        eprintln!(
            "{path}: {} others answered meanwhile, the slowest in {:.1?}",
            took.len(),
            took.last().unwrap()
        );
        until("the exchange to end", || running.gateway.app.in_flight_exchanges() == 0).await;
    }
}

/// Tests that requests of the gateway itself have timeouts too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_and_counts_of_an_endless_provider_end() {
    let endless = EndlessProvider::start(flood(&[JSON, &chunk("[")], &chunk(&"1,".repeat(8_000)))).await;
    let lines = format!(
        "{TIGHT_TIMEOUTS}\ntokenize = \"vllm\"\nhealth = {{ interval = \"100ms\", timeout = \"1s\" }}"
    );
    let good = Provider::start().await;
    let running = start(&endless, &good, &lines).await;
    // A health check needs only the status; it passes although the body is too large to be read completely.
    assert_eq!(checked(&running).await["check"], "good");
    let count = running.client.post("/v1/messages/count_tokens", &running.ask()).await;
    assert_eq!(
        (count.status, count.header("x-token-count-method")),
        (200, Some("estimate")),
        "{}",
        count.text()
    );
    running.stop().await;
}

/// Returns the status of the first provider, once a health check has ended.
async fn checked(running: &crate::harness::gateway::Running) -> Value {
    let ended = async {
        loop {
            let provider = running.admin().get("/status").await.json()["providers"][0].clone();
            if !provider["check"].is_null() {
                return provider;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within("a check to end", ended).await
}

/// Tests that a health check fails if its body neither ends before the timeout nor reaches the size limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_whose_body_does_not_end_in_time_is_bad() {
    let provider = Provider::start().await;
    let head = ScriptStep::Head(
        200,
        vec![("content-type", "application/json".into()), ("transfer-encoding", "chunked".into())],
    );
    provider.gets(vec![head, ScriptStep::Chunk(b"[".to_vec()), ScriptStep::Hang]);
    let lines = format!("{TIGHT_TIMEOUTS}\nhealth = {{ interval = \"100ms\", timeout = \"1s\" }}");
    let running = Bench::new().provider_with("a", &provider, &lines, "").start().await;
    let found = checked(&running).await;
    assert_eq!(found["check"], "bad", "{found}");
    assert!(found.to_string().contains("deadline"), "{found}");
    within("the provider to be left", async {
        while provider.left() == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    running.stop().await;
}
