//! Files through a full disk, damage and kills; and a large file in bounded memory.

use crate::files::{
    TYPE, batch, content, deleted, error, id, line, lines, nothing_is_left, on_disk, send, uploaded,
};
use crate::harness::process::{Home, Process, catalogue};
use crate::harness::{Bench, Client, Provider, within};
use serde_json::json;

/// Allowed growth of the process, in KiB.
const GROWTH: u64 = 48 << 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_over_the_quota_gets_507_until_files_are_deleted() {
    let running = Bench::new().settings("[files]\nper_key = \"200KiB\"\ndisk = \"384KiB\"").start().await;
    let client = &running.client;
    let contents = lines(1_000);
    assert!((100_000..200_000).contains(&contents.len()), "{}", contents.len());
    let first = id(&uploaded(client, &contents).await);
    let refused = error(&send(client, &batch(&contents)).await, 507, "RESOURCE_5006");
    assert_eq!(refused["details"]["limit_bytes"], 200 << 10);
    let other = running.key(&json!({})).await;
    uploaded(&other, &contents).await;
    let third = running.key(&json!({})).await;
    error(&send(&third, &batch(&contents)).await, 507, "RESOURCE_5006");
    assert_eq!(on_disk(&running).len(), 2);
    deleted(client, &first).await;
    uploaded(&third, &contents).await;

    let full = Bench::new().settings("[files]\nkeep_free = \"1000000GiB\"").start().await;
    error(&send(&full.client, &batch(&contents)).await, 507, "RESOURCE_5006");
    nothing_is_left(&full);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_bytes_are_never_served() {
    let running = Bench::new().start().await;
    let client = &running.client;
    let contents = lines(3_000);
    let id = id(&uploaded(client, &contents).await);
    let path = running.storage().join("files").join(&id);
    let sound = std::fs::read(&path).unwrap();
    let mut bytes = sound.clone();
    bytes[300_000] ^= 4;
    std::fs::write(&path, &bytes).unwrap();
    let part = content(client, &id, &[("range", "bytes=0-9999")]).await;
    assert_eq!((part.status, part.body.as_slice()), (206, &contents[..10_000]));
    let whole = content(client, &id, &[]).await;
    assert!(!whole.whole, "it is cut short, and its client notices");
    assert!(contents.starts_with(&whole.body));
    bytes = sound;
    bytes[3] ^= 4;
    std::fs::write(&path, &bytes).unwrap();
    let refused = error(&content(client, &id, &[]).await, 500, "SERVER_9001");
    assert!(refused["message"].as_str().unwrap().contains("damaged"));
    std::fs::remove_file(&path).unwrap();
    error(&content(client, &id, &[]).await, 500, "SERVER_9001");
    assert_eq!(deleted(client, &id).await.status, 200, "and it can be deleted");
}

/// Starts a gateway process and creates a key. The configuration has a provider, because the gateway is not ready
/// without one.
async fn started(home: &Home) -> (Process, Client) {
    home.write(&catalogue(&Provider::start().await, ""));
    let process = home.run().await;
    let (client, _) = home.key();
    (process, client)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_was_acknowledged_survives_a_kill() {
    let home = Home::new();
    let (process, client) = started(&home).await;
    let contents = lines(1_000);
    let uploaded_file = uploaded(&client, &contents).await;
    // The kill happens during another upload, when half of it is on the disk.
    let half = batch(&lines(20_000));
    let length = (half.len() * 2).to_string();
    let open =
        client.open("POST", "/v1/files", &[TYPE, ("content-length", &length)], &half[..half.len() / 2]).await;
    let upload_folder = home.storage().join("files").join("aside");
    crate::harness::until("bytes on the disk", || {
        std::fs::read_dir(&upload_folder)
            .unwrap()
            .any(|entry| entry.unwrap().metadata().unwrap().len() > 500_000)
    })
    .await;
    process.kill().await;
    drop(open);
    assert_eq!(std::fs::read_dir(&upload_folder).unwrap().count(), 1, "left by the kill");
    let process = home.run().await;
    assert_eq!(std::fs::read_dir(&upload_folder).unwrap().count(), 0, "swept by the start");
    assert_eq!(client.get(&format!("/v1/files/{}", id(&uploaded_file))).await.json(), uploaded_file);
    assert!(content(&client, &id(&uploaded_file), &[]).await.body == contents);
    assert_eq!(client.get("/v1/files").await.json()["data"], json!([uploaded_file]));
    drop(process);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_upload_passes_through_a_process_that_stays_small() {
    let home = Home::new();
    let (process, client) = started(&home).await;
    uploaded(&client, &lines(100)).await;
    let idle = process.memory("VmRSS");
    let filler = "Ein Schleusenwärter. ".repeat(200);
    let contents: Vec<u8> = (0..45_000)
        .map(|i| line(&i.to_string()).replace("Grüß", &filler) + "\n")
        .collect::<String>()
        .into_bytes();
    assert!(contents.len() > 180 << 20, "{}", contents.len());
    let body = batch(&contents);
    let answer = within("the file", send(&client, &body)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    drop(body);
    let given = content(&client, &id(&answer.json()), &[]).await;
    assert!(given.whole && given.body == contents);
    let grown = process.memory("VmHWM").saturating_sub(idle);
    eprintln!("idle {idle} KiB, grown by at most {grown} KiB");
    assert!(grown < GROWTH, "grown by {grown} KiB from {idle} KiB");
}
