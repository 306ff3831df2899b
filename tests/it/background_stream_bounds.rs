//! Bounds of streams of background responses: maximum number and memory, expiry of the key, and failures of the
//! store.

use crate::background_streams::{
    RESPONSES, ask, create_stream, events, id_of, open, storing, until_event, whole,
};
use crate::harness::batch_jobs::let_go;
use crate::harness::client::OpenResponse;
use crate::harness::gateway::Running;
use crate::harness::process::{Home, catalogue};
use crate::harness::script::{held, plain, silent};
use crate::harness::{Bench, Client, Provider, is_long_run, until, until_answered, within};
use penstock_dialect::conformance::check_responses_stream;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::Notify;

/// Asserts that a stream of responses is counted as broken.
async fn assert_broken(running: &Running) {
    let start = "penstock_requests_total{endpoint=\"responses\"";
    let is_broken = |line: &str| line.starts_with(start) && line.contains("outcome=\"broken\"");
    until_answered("a broken stream in the metrics", async || {
        running.admin().get("/metrics").await.text().lines().any(is_broken)
    })
    .await;
}

/// Files of all stored responses.
fn response_files(running: &Running) -> Vec<PathBuf> {
    let entries = |folder: PathBuf| {
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    entries(running.storage().join("responses")).into_iter().flat_map(entries).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_has_a_bounded_number_of_open_streams() {
    const MOST: usize = 128;
    let provider = Provider::start().await;
    provider.always(silent());
    let running = Bench::new().provider("a", &provider).start().await;
    let (client, other) = (storing(&running).await, storing(&running).await);
    let mut created = create_stream(&client).await;
    until_event(&mut created, "response.in_progress").await;
    provider.until_calls(1).await;
    let path = format!("{RESPONSES}/{}?stream=true", id_of(&created));
    let mut streams = Vec::new();
    for _ in 1..MOST {
        let mut stream = open(&client, &path).await;
        within("a head", stream.until("HTTP/1.1 200")).await;
        streams.push(stream);
    }
    // A refused stream creates nothing: neither a response nor a background run.
    for refused in [client.get(&path).await, other.post(RESPONSES, &ask(true)).await] {
        assert_eq!(
            (refused.status, refused.header("retry-after").is_some()),
            (429, true),
            "{}",
            refused.text()
        );
        let error = refused.json()["error"].clone();
        assert_eq!(error["param"], "stream", "{error}");
        assert_eq!(error["details"]["limit"], "response_streams", "{error}");
        assert_eq!(error["details"]["value"], MOST, "{error}");
    }
    assert_eq!(response_files(&running).len(), 1);
    assert_eq!(provider.calls(), 1);
    let without = other.post(RESPONSES, &ask(false)).await;
    assert_eq!(without.status, 200, "{}", without.text());
    let account = running.admin().post("/admin/accounts", &json!({"id": "acme"})).await;
    assert_eq!(account.status, 201, "{}", account.text());
    let theirs = json!({"name": "theirs", "account": "acme", "store_responses": true});
    let mut theirs = create_stream(&running.key(&theirs).await).await;
    until_event(&mut theirs, "response.created").await;
    // The disconnect of a client releases the permit of its stream.
    drop(streams.pop());
    until_answered("a free permit", async || open(&client, &path).await.any("HTTP/1.1 200").await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_breaks_off_when_its_key_expires() {
    let provider = Provider::start().await;
    provider.always(silent());
    let running = Bench::new().provider("a", &provider).start().await;
    let client = storing(&running).await;
    let mut stream = create_stream(&client).await;
    until_event(&mut stream, "response.in_progress").await;
    // The key had no expiry when the stream began.
    let path = format!("/admin/keys/{}", &client.key["sk-svc-".len()..][..16]);
    let change = json!({"expires": running.gateway.app.clock.unix_seconds() + 2}).to_string();
    let changed = running.admin().send("PATCH", &path, &[], change.as_bytes()).await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    let end = within("the end", stream.finish()).await;
    // The expired key ends the background run too, but the stream ends without an event that shows the failure.
    assert!(!end.whole && !end.text().contains("response.failed"), "{}", end.text());
    assert_broken(&running).await;
}

/// Response whose file cannot be read, and its stream.
struct UnreadableResponse {
    stream: OpenResponse,
    id: String,
    file: PathBuf,
    backup: PathBuf,
}

impl UnreadableResponse {
    /// Creates two responses that run one after the other, makes the second unreadable, and ends the first.
    async fn create(running: &Running, client: &Client, go: &Notify) -> Self {
        let mut first = create_stream(client).await;
        until_event(&mut first, "response.in_progress").await;
        let mut stream = create_stream(client).await;
        until_event(&mut stream, "response.queued").await;
        let id = id_of(&stream);
        let file = response_files(running).into_iter().find(|file| file.ends_with(&id)).unwrap();
        let backup = running.storage().join("aside");
        std::fs::rename(&file, &backup).unwrap();
        // A folder in place of the file makes every read fail.
        std::fs::create_dir(&file).unwrap();
        let end = let_go(go, within("the first end", first.finish())).await;
        assert!(end.whole, "{}", end.text());
        Self { stream, id, file, backup }
    }

    /// Makes the response readable again.
    fn restore(&self) {
        std::fs::remove_dir(&self.file).unwrap();
        std::fs::rename(&self.backup, &self.file).unwrap();
    }
}

/// Settings with one run at a time, and a heartbeat each second.
const ONE_RUN: &str = "[limits]\nheartbeat = \"1s\"\n[responses.background]\nconcurrency = 1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_outlasts_a_time_in_which_its_response_cannot_be_read() {
    let (provider, go) = (Provider::start().await, Arc::new(Notify::new()));
    provider.always(held(&go, "Done"));
    let running = Bench::new().settings(ONE_RUN).provider("a", &provider).start().await;
    let client = storing(&running).await;
    let mut response = UnreadableResponse::create(&running, &client, &go).await;
    let heartbeats =
        |stream: &OpenResponse| String::from_utf8_lossy(&stream.bytes).matches(": keep-alive").count();
    let wanted = heartbeats(&response.stream) + 3;
    while heartbeats(&response.stream) < wanted {
        assert!(within("a heartbeat", response.stream.more()).await, "the stream has ended");
    }
    response.restore();
    let end = let_go(&go, within("the end", response.stream.finish())).await;
    assert_eq!(check_responses_stream(end.text().as_bytes()), Ok(()), "{}", end.text());
}

/// Runs only in the long form, because it takes half a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_ends_with_an_error_when_its_response_cannot_be_read_for_long() {
    if !is_long_run() {
        return;
    }
    let (provider, go) = (Provider::start().await, Arc::new(Notify::new()));
    provider.always(held(&go, "Done"));
    let running = Bench::new().settings(ONE_RUN).provider("a", &provider).start().await;
    let client = storing(&running).await;
    let mut response = UnreadableResponse::create(&running, &client, &go).await;
    let end = within("the end", response.stream.finish()).await;
    assert!(end.whole, "{}", end.text());
    let mut shown = events(&end.text());
    let error = shown.pop().unwrap();
    assert_eq!((&error["type"], &error["sequence_number"]), (&json!("error"), &json!(1)), "{error}");
    assert_broken(&running).await;
    response.restore();
    let rest = let_go(&go, whole(&client, &response.id, "&starting_after=1")).await;
    shown.extend(events(&rest));
    let numbers: Vec<u64> = shown.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..shown.len() as u64).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_stream_does_not_hold_its_conversation() {
    const STREAMS: u64 = 32;
    const TEXT_KIB: u64 = 2 << 10;
    let provider = Provider::start().await;
    provider.always(plain("Noted."));
    let home = Home::new();
    let settings = "[log]\nlevel = \"error\"\n[responses.background]\nconcurrency = 1\n";
    home.write(&format!("{settings}{}", catalogue(&provider, "").replace("131072", "16777216")));
    let made = home.command(&["keys", "create", "--store-responses"]);
    let key = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let client = Client { address: home.http, key };
    let process = home.run().await;
    let text = "word ".repeat((TEXT_KIB << 10) as usize / 5);
    let stored = client.post(RESPONSES, &json!({"model": "m", "store": true, "input": text})).await;
    assert_eq!(stored.status, 200, "{}", stored.text());
    provider.always(silent());
    let body = json!({"model": "m", "background": true, "stream": true, "input": "More",
        "previous_response_id": stored.json()["id"]});
    // The first response runs, and the others wait for it.
    let mut streams = vec![client.stream_until(RESPONSES, &body, "event: response.in_progress\n").await];
    provider.until_calls(2).await;
    let before = process.memory("VmRSS");
    for _ in 0..STREAMS {
        streams.push(client.stream_until(RESPONSES, &body, "event: response.queued\n").await);
    }
    let most = before + STREAMS * TEXT_KIB / 2;
    until("the conversations to be freed", || process.memory("VmRSS") < most).await;
}
