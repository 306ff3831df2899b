//! Disks that fill up during a batch: new work is rejected, the batch waits and completes once there is space, each
//! line sent once and charged once.

use crate::full_disk::{fill, inside, mount};
use crate::harness::batch_jobs::{
    CHAT, assert_charged, create, ended, lines, results, retrieve, upload, uploaded,
};
use crate::harness::process::{Home, catalogue, complaint};
use crate::harness::script::{held, plain};
use crate::harness::{Client, Provider, within};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

const LINES: usize = 400;
const AT_ONCE: usize = 4;
/// Bytes of a result, longer than a block of the disk, so that the disk fills up within a result.
const LONG: usize = 6_000;

/// Batch with a long record, so that the store soon needs space for it.
fn large_batch(file: &str) -> Value {
    let pairs = (0..16).map(|number| (format!("pair-{number}"), Value::from("x".repeat(500))));
    let metadata: serde_json::Map<String, Value> = pairs.collect();
    json!({"input_file_id": file, "endpoint": CHAT, "metadata": metadata})
}

/// Repeats a request until the disk is full; returns the objects that were created before that.
async fn refused(client: &Client, filler: &Path, file: Option<&str>) -> Vec<Value> {
    let mut made = Vec::new();
    within("a refusal", async {
        loop {
            fill(filler);
            let answer = match file {
                Some(file) => client.post("/v1/batches", &large_batch(file)).await,
                None => upload(client, &lines(20)).await,
            };
            match answer.status {
                507 => {
                    assert!(answer.text().contains("RESOURCE_5006"), "{}", answer.text());
                    return;
                }
                // While the store still finds free blocks, it may accept a row, which must then persist.
                200 => made.push(answer.json()),
                // The write of the ledger has failed, but the store has not noticed the full disk yet.
                503 => {}
                status => panic!("{status} {:?}", String::from_utf8_lossy(&answer.body)),
            }
        }
    })
    .await;
    made
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_full_disk_a_batch_waits_and_loses_nothing() {
    if !inside("full_disk_batch::on_a_full_disk_a_batch_waits_and_loses_nothing") {
        return;
    }
    let (provider, go) = (Provider::start().await, Arc::new(Notify::new()));
    let text = "x".repeat(LONG);
    for _ in 0..10 {
        provider.then(plain(&text));
    }
    provider.always(held(&go, &text));
    let home = Home::new();
    let settings = format!("[batches]\nconcurrency = {AT_ONCE}\nopen = 10000\n[files]\nkeep_free = \"0B\"\n");
    home.write(&format!("{settings}{}", catalogue(&provider, "")));
    let written = std::fs::read_to_string(home.config()).unwrap();
    std::fs::write(home.config(), written.replace("ballast = \"0B\"", "ballast = \"2MiB\"")).unwrap();
    mount(&home.storage(), 64);
    let mut process = home.run().await;
    let (client, _) = home.key();
    let small = uploaded(&client, &lines(3)).await;
    let large = uploaded(&client, &lines(LINES)).await;
    let batch = create(&client, &large).await.json();
    provider.until_calls(10 + AT_ONCE).await;

    // Fills the disk, so that the gateway soon runs out of space in the middle of a result.
    let filler = home.storage().join("filler");
    fill(&filler);
    let output = |now: &Value| now["output_file_id"].as_str().map(str::to_owned);
    within("half a result", async {
        loop {
            fill(&filler);
            go.notify_waiters();
            if let Some(id) = output(&retrieve(&client, &batch).await) {
                let counts = client.get(&format!("/v1/files/{id}")).await.json()["bytes"].as_u64().unwrap();
                let there = std::fs::metadata(home.storage().join("files").join(&id)).unwrap().len();
                let given = client.get(&format!("/v1/files/{id}/content")).await;
                assert!(given.status == 200 && given.body.ends_with(b"}\n"), "whole results alone are given");
                if there > counts && process.output().contains("batch_not_written") {
                    return;
                }
            }
        }
    })
    .await;
    refused(&client, &filler, None).await;

    // The batch waits: no provider is called for results that cannot be stored.
    let calls = provider.calls();
    for _ in 0..100 {
        fill(&filler);
        go.notify_waiters();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(provider.calls() <= calls + AT_ONCE, "{calls} calls, then {}", provider.calls());
    assert!(calls < LINES && process.ended().is_none());
    assert_eq!(retrieve(&client, &batch).await["status"], "in_progress");
    let mut batches = refused(&client, &filler, Some(&small)).await;

    // With free space it continues by itself.
    provider.always(plain(&text));
    std::fs::remove_file(&filler).unwrap();
    batches.push(batch);
    let mut found = Vec::new();
    for batch in &batches {
        let working = async {
            loop {
                go.notify_waiters();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let end = tokio::select! {
            end = ended(&client, batch) => end,
            () = working => unreachable!(),
        };
        assert_eq!(end["status"], "completed", "{end}");
        let of = results(&client, &end).await;
        assert_eq!(Some(of.len() as u64), end["request_counts"]["completed"].as_u64(), "{end}");
        assert!(of.values().all(|result| result["status_code"] == 200));
        found.extend(of.into_values());
    }
    assert!(found.len() >= LINES);
    process.signal("TERM");
    assert_eq!(process.until_ended().await.code(), Some(0), "{}", process.output());
    assert_charged(&home, found.iter());
    let proof = home.command(&["store", "verify"]);
    assert!(proof.status.success(), "{}", complaint(&proof));
}
