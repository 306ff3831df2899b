//! Batches over the client API: upload, creation, polling and results.

use super::process::{Home, complaint};
use super::{Answer, Client, within};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::Notify;

pub const CHAT: &str = "/v1/chat/completions";

/// A chat line.
pub fn line(id: &str, content: &str) -> String {
    line_with(id, json!({"model": "m", "messages": [{"role": "user", "content": content}]}))
}

/// A chat line with this body.
pub fn line_with(id: &str, body: Value) -> String {
    json!({"custom_id": id, "method": "POST", "url": CHAT, "body": body}).to_string()
}

/// Returns this number of chat lines.
pub fn lines(count: usize) -> String {
    (0..count).map(|number| line(&format!("line-{number}"), &format!("ask {number}")) + "\n").collect()
}

/// Uploads a file of lines.
pub async fn upload(client: &Client, text: &str) -> Answer {
    let body = format!(
        "--cut\r\ncontent-disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n\
         --cut\r\ncontent-disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\
         content-type: application/octet-stream\r\n\r\n{text}\r\n--cut--\r\n"
    );
    let kind = ("content-type", "multipart/form-data; boundary=cut");
    client.send("POST", "/v1/files", &[kind], body.as_bytes()).await
}

/// Uploads a valid file; returns its id.
pub async fn uploaded(client: &Client, text: &str) -> String {
    let answer = upload(client, text).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["id"].as_str().unwrap().to_owned()
}

/// Creates a batch of a file.
pub async fn create(client: &Client, file: &str) -> Answer {
    client
        .post("/v1/batches", &json!({"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"}))
        .await
}

/// A batch of these lines.
pub async fn batch(client: &Client, text: &str) -> Value {
    let file = uploaded(client, text).await;
    let answer = create(client, &file).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Returns the current state of a batch.
pub async fn retrieve(client: &Client, batch: &Value) -> Value {
    let answer = client.get(&format!("/v1/batches/{}", batch["id"].as_str().unwrap())).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Returns the batch once `is` returns true.
pub async fn when(client: &Client, batch: &Value, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    within(what, async {
        loop {
            let now = retrieve(client, batch).await;
            if is(&now) {
                return now;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

/// Returns the batch once it has ended; asserts that its counts add up.
pub async fn ended(client: &Client, batch: &Value) -> Value {
    let over = |now: &Value| !["validating", "in_progress"].contains(&now["status"].as_str().unwrap());
    let end = when(client, batch, "the end of a batch", over).await;
    let count = |name: &str| end["request_counts"][name].as_u64().unwrap();
    let sum = count("completed") + count("failed") + count("cancelled") + count("expired");
    assert_eq!(sum, count("total"), "{end}");
    end
}

pub async fn cancel(client: &Client, batch: &Value) -> Answer {
    let path = format!("/v1/batches/{}/cancel", batch["id"].as_str().unwrap());
    client.send("POST", &path, &[], b"").await
}

/// The contents of a file.
pub async fn content(client: &Client, file: &Value) -> String {
    let answer = client.get(&format!("/v1/files/{}/content", file.as_str().unwrap())).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text()
}

/// Returns the results of a batch by `custom_id`; asserts that each is present once.
pub async fn results(client: &Client, batch: &Value) -> BTreeMap<String, Value> {
    if batch["output_file_id"].is_null() {
        return BTreeMap::new();
    }
    let text = content(client, &batch["output_file_id"]).await;
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        let id = value["custom_id"].as_str().unwrap().to_owned();
        assert!(found.insert(id, value).is_none(), "twice: {line}");
    }
    found
}

/// Asserts that each of these results is charged once and that there are no other charges, for a stopped gateway.
pub fn assert_charged<'a>(home: &Home, results: impl Iterator<Item = &'a Value>) {
    // A command that writes to the ledger voids the reserves that a kill left open; verifying changes nothing.
    assert!(home.command(&["credits", "balance"]).status.success());
    let proof = home.command(&["credits", "verify"]);
    assert!(proof.status.success(), "{}", complaint(&proof));
    let proof = String::from_utf8(proof.stdout).unwrap();
    assert!(proof.contains(", 0 open reserves"), "{proof}");
    let entries = String::from_utf8(home.command(&["credits", "export"]).stdout).unwrap();
    let entries = entries.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let settled: Vec<String> = entries
        .filter(|entry| entry["act"] == "settle")
        .map(|entry| format!("batch_{}", entry["request"].as_str().unwrap()))
        .collect();
    let once: BTreeSet<String> = settled.iter().cloned().collect();
    assert_eq!(once.len(), settled.len(), "something was charged twice");
    let results: BTreeSet<String> = results.map(|result| result["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(once, results);
}

/// Notifies all scripts that wait for `go`, again and again, until `work` is done.
pub async fn let_go<T>(go: &Notify, work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(Duration::from_millis(5)) => go.notify_waiters(),
        }
    }
}
