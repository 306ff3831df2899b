//! Clients of the soak test at a steady rate: clients that read complete answers, clients that disconnect, invalid
//! requests, and a client that runs one batch after the other. Each records its responses.

use crate::harness::Client;
use crate::harness::batch_jobs::{CHAT, cancel, create, ended, lines, upload};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Responses seen by clients.
#[derive(Default)]
pub struct Seen {
    /// Requests of whole, good answers.
    pub good: Mutex<BTreeSet<String>>,
    /// Ids of requests with a partial answer: the client disconnected, or the stream broke.
    pub partial: Mutex<BTreeSet<String>>,
    /// Request ids of batch results with status 200.
    pub lines: Mutex<BTreeSet<String>>,
    /// Good requests that failed because their providers did.
    pub failed: AtomicU64,
    /// Number of these failures for which no provider was tried.
    pub untried: AtomicU64,
    /// Invalid requests that were refused, as expected.
    pub refused: AtomicU64,
    /// Responses that are neither complete nor a proper rejection.
    pub odd: Mutex<Vec<String>>,
    pub batches: AtomicU64,
    pub asked: AtomicU64,
}

impl Seen {
    pub fn count(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    fn odd(&self, what: String) {
        let mut odd = self.odd.lock();
        if odd.len() < 20 {
            odd.push(what);
        }
    }
}

fn ask(stream: bool) -> Value {
    let mut ask = json!({"model": "m", "max_tokens": 20, "messages": [{"role": "user", "content": "Hi"}]});
    if stream {
        ask["stream"] = json!(true);
    }
    ask
}

/// Sends one request, of the kind that its number selects.
pub async fn one(client: Client, seen: Arc<Seen>, number: u64) {
    seen.asked.fetch_add(1, Ordering::Relaxed);
    match number % 20 {
        0..=10 => whole(&client, &seen, CHAT, &ask(false)).await,
        11..=14 => whole(&client, &seen, CHAT, &ask(true)).await,
        15 => whole(&client, &seen, "/v1/messages", &ask(false)).await,
        16 => leaves(&client, &seen).await,
        17 => refused(&client, &seen, CHAT, &json!({"model": "m", "messages": []}), 400).await,
        18 => refused(&Client { key: "sk-svc-nobody".into(), ..client }, &seen, CHAT, &ask(false), 401).await,
        _ => {
            let listed = client.get("/v1/models").await;
            if listed.status != 200 {
                seen.odd(format!("models: {}", listed.status));
            }
        }
    }
}

async fn whole(client: &Client, seen: &Seen, path: &str, ask: &Value) {
    let answer = client.post(path, ask).await;
    let id = answer.header("x-request-id").unwrap_or_default().to_owned();
    let streamed = ask["stream"] == json!(true);
    let text = String::from_utf8_lossy(&answer.body);
    let all = answer.whole && (!streamed || text.contains("data: [DONE]")) && !text.contains("\"error\":{");
    match answer.status {
        200 if all => drop(seen.good.lock().insert(id)),
        200 => {
            seen.partial.lock().insert(id);
            seen.failed.fetch_add(1, Ordering::Relaxed);
        }
        // Every provider failed, or the retry budget was used up.
        503 if text.contains("INFERENCE_3103") => {
            seen.failed.fetch_add(1, Ordering::Relaxed);
            if !tried(&text) {
                seen.untried.fetch_add(1, Ordering::Relaxed);
            }
        }
        status => seen.odd(format!("{path}: {status} {text}")),
    }
}

/// Returns true if a rejection lists at least one attempt at a provider.
fn tried(refusal: &str) -> bool {
    let refusal: Value = serde_json::from_str(refusal).unwrap_or_default();
    refusal["error"]["details"]["attempts"].as_array().is_some_and(|attempts| !attempts.is_empty())
}

/// Disconnects after the first piece.
async fn leaves(client: &Client, seen: &Seen) {
    let mut open = client.open("POST", CHAT, &[], ask(true).to_string().as_bytes()).await;
    let first = tokio::time::timeout(Duration::from_secs(30), open.any("piece 0")).await;
    let head = String::from_utf8_lossy(&open.bytes).to_ascii_lowercase();
    let id = head.split("x-request-id: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    match (first, id) {
        (Ok(true), Some(id)) => drop(seen.partial.lock().insert(id.to_owned())),
        _ => drop(seen.failed.fetch_add(1, Ordering::Relaxed)),
    }
}

async fn refused(client: &Client, seen: &Seen, path: &str, ask: &Value, status: u16) {
    let answer = client.post(path, ask).await;
    if answer.status == status {
        seen.refused.fetch_add(1, Ordering::Relaxed);
    } else {
        seen.odd(format!("{path}: {} instead of {status}", answer.status));
    }
}

/// Creates batches until stopped; every third is cancelled.
pub async fn batches(client: Client, seen: Arc<Seen>, over: Arc<AtomicBool>) {
    while !over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let file = upload(&client, &lines(60)).await;
        let made = match file.status {
            200 => create(&client, file.json()["id"].as_str().unwrap()).await,
            _ => file,
        };
        if made.status != 200 {
            seen.odd(format!("a batch: {} {}", made.status, made.text()));
            continue;
        }
        let (made, number) = (made.json(), seen.batches.fetch_add(1, Ordering::Relaxed));
        if number % 3 == 2 {
            let called_off = cancel(&client, &made).await;
            if ![200, 409].contains(&called_off.status) {
                seen.odd(format!("a cancel: {}", called_off.status));
            }
        }
        let end = ended(&client, &made).await;
        note(&client, &seen, &end).await;
        tokio::time::sleep(Duration::from_secs(1).saturating_sub(begun.elapsed())).await;
    }
}

/// Reads the results, and deletes both files.
async fn note(client: &Client, seen: &Seen, end: &Value) {
    if let Some(output) = end["output_file_id"].as_str() {
        let given = client.get(&format!("/v1/files/{output}/content")).await;
        for result in given.text().lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            if result["status_code"] == 200 {
                let id = result["id"].as_str().unwrap().trim_start_matches("batch_");
                seen.lines.lock().insert(id.to_owned());
            }
        }
    }
    for file in [&end["output_file_id"], &end["input_file_id"]].into_iter().filter_map(Value::as_str) {
        let gone = client.send("DELETE", &format!("/v1/files/{file}"), &[], b"").await;
        if gone.status != 200 {
            seen.odd(format!("a deletion: {}", gone.status));
        }
    }
}
