//! Archives that a gateway makes of itself while it runs: complete, restorable, without deleted files, and no outage on
//! failure.

use crate::harness::batch_jobs::{content, create, ended, lines, results, retrieve, uploaded};
use crate::harness::process::{Home, Process, catalogue, complaint};
use crate::harness::script::{held, plain};
use crate::harness::{Client, Provider, until, within};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::Notify;

/// Returns settings to append to `[storage]`, followed by `more`.
fn every(seconds: u32, more: &str) -> String {
    format!(
        "[storage.export]\nevery = \"{seconds}s\"\n{more}\n[files]\nkeep_free = \"0B\"\n[batches]\nconcurrency = 4\n"
    )
}

/// Returns the finished archives of a gateway's home folder, the oldest first.
fn archives(home: &Home) -> Vec<PathBuf> {
    let Ok(all) = std::fs::read_dir(home.storage().join("exports")) else { return Vec::new() };
    let mut all: Vec<PathBuf> = all.map(|entry| entry.unwrap().path()).collect();
    // An archive in progress is in the folder `aside`.
    all.retain(|path| !path.ends_with("aside") && path.join("manifest.jsonl").exists());
    all.sort();
    all
}

/// Returns an archive that was started after this call.
async fn next(home: &Home) -> PathBuf {
    let last = archives(home).pop();
    let newer = || archives(home).pop().filter(|path| Some(path) > last.as_ref());
    // The first new archive may have been started before this call, so the function waits for the archive after it.
    until("an archive", || newer().is_some()).await;
    let first = newer();
    until("the archive after it", || archives(home).pop() > first).await;
    archives(home).pop().unwrap()
}

async fn chat(client: &Client) {
    let ask = json!({"model": "m", "max_tokens": 20, "messages": [{"role": "user", "content": "Hi"}]});
    assert_eq!(client.post("/v1/chat/completions", &ask).await.status, 200);
}

async fn stopped(mut process: Process) {
    process.signal("TERM");
    assert_eq!(process.until_ended().await.code(), Some(0), "{}", process.output());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_archives_itself_while_it_runs_and_continues_from_the_archive() {
    let (provider, go) = (Provider::start().await, Arc::new(Notify::new()));
    let home = Home::new();
    home.write(&format!("{}{}", every(1, "keep = 2"), catalogue(&provider, "")));
    let (client, _) = home.key();
    let process = home.run().await;
    for _ in 0..5 {
        chat(&client).await;
    }
    for _ in 0..10 {
        provider.then(plain("early"));
    }
    provider.always(held(&go, "late"));
    let (input, deleted) = (uploaded(&client, &lines(30)).await, uploaded(&client, &lines(7)).await);
    let made = create(&client, &input).await.json();
    provider.until_calls(5 + 10 + 4).await;
    within("ten results", async {
        while retrieve(&client, &made).await["request_counts"]["completed"] != 10 {}
    })
    .await;

    // Deleted files are in no archive, and existing files are not duplicated on the disk.
    let archive = next(&home).await;
    let files = home.storage().join("files");
    assert!(archive.join("files").join(&deleted).exists());
    use std::os::unix::fs::MetadataExt;
    let same = |path: PathBuf| std::fs::metadata(path).unwrap().ino();
    assert_eq!(same(archive.join("files").join(&input)), same(files.join(&input)));
    let gone = client.send("DELETE", &format!("/v1/files/{deleted}"), &[], b"").await;
    assert_eq!(gone.status, 200);
    assert!(archives(&home).iter().all(|path| !path.join("files").join(&deleted).exists()));

    let saved = next(&home).await;
    let retained = archives(&home).len();
    assert!(retained <= 3, "{retained} archives, one of which may be about to go");
    let metrics = home.admin().get("/metrics").await.text();
    assert!(metrics.contains("penstock_exports_total{result=\"ok\"}"), "{metrics}");
    let backup = &home.admin().get("/status").await.json()["backup"];
    assert_eq!((&backup["state"], &backup["interval_seconds"]), (&json!("good"), &json!(1)), "{backup}");
    assert!(backup["last"].as_str().is_some_and(|last| last.ends_with('Z')), "{backup}");
    let elsewhere = Home::new();
    elsewhere.write(&format!("{}{}", every(0, ""), catalogue(&provider, "")));
    // The test copies the archive first, because the gateway removes it when it is too old.
    let copy = elsewhere.path().join("copy");
    let copied = std::process::Command::new("cp").arg("-a").args([&saved, &copy]).status().unwrap();
    assert!(copied.success());
    provider.always(plain("late"));
    for _ in 0..4 {
        go.notify_waiters();
    }
    process.kill().await;

    // A gateway with another folder imports the archive and continues from it: the file, the key, the charges, the
    // batch and its results so far.
    let restored = elsewhere.command(&["store", "import", copy.to_str().unwrap()]);
    assert!(restored.status.success(), "{}", complaint(&restored));
    let calls = provider.calls();
    let process = elsewhere.run().await;
    let client = Client { address: elsewhere.http, ..client };
    assert_eq!(content(&client, &Value::from(input)).await, lines(30));
    let end = ended(&client, &made).await;
    assert_eq!(
        (end["status"].as_str(), &end["request_counts"]["completed"]),
        (Some("completed"), &json!(30))
    );
    let found = results(&client, &end).await;
    let early = found.values().filter(|one| one["response"]["choices"][0]["message"]["content"] == "early");
    assert_eq!((early.count(), provider.calls() - calls), (10, 20));
    stopped(process).await;
    let proof = elsewhere.command(&["credits", "verify"]);
    assert!(proof.status.success(), "{}", complaint(&proof));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_in_no_archive_after_its_deletion_although_a_reload_named_another_folder() {
    let provider = Provider::start().await;
    let home = Home::new();
    home.write(&format!("{}{}", every(1, "keep = 2"), catalogue(&provider, "")));
    let (client, _) = home.key();
    let process = home.run().await;
    let deleted = uploaded(&client, &lines(7)).await;
    let within = |archive: &PathBuf| archive.join("files").join(&deleted).exists();
    assert!(within(&next(&home).await));
    let other = home.path().join("other");
    let moved = format!("keep = 2\npath = \"{}\"", other.display());
    home.write(&format!("{}{}", every(1, &moved), catalogue(&provider, "")));
    let reloaded = home.command(&["reload"]);
    assert!(
        complaint(&reloaded).contains("storage.export.path takes effect at the next start"),
        "{}",
        complaint(&reloaded)
    );
    assert!(within(&next(&home).await), "archives are made where they were");
    assert_eq!(client.send("DELETE", &format!("/v1/files/{deleted}"), &[], b"").await.status, 200);
    assert!(!archives(&home).iter().any(within) && !other.exists());
    stopped(process).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_archive_is_reported_and_is_no_outage() {
    let provider = Provider::start().await;
    let home = Home::new();
    // A path at which not even root can create a folder.
    home.write(&format!("{}{}", every(1, "path = \"/proc/penstock-archives\""), catalogue(&provider, "")));
    let (client, _) = home.key();
    let process = home.run().await;
    process.wait_for_line("export_failed").await;
    chat(&client).await;
    assert_eq!(home.admin().get("/readyz").await.status, 200);
    let metrics = home.admin().get("/metrics").await.text();
    assert!(metrics.contains("penstock_exports_total{result=\"failed\"}"), "{metrics}");
    let backup = &home.admin().get("/status").await.json()["backup"];
    assert_eq!((&backup["state"], &backup["last"]), (&json!("failed"), &Value::Null), "{backup}");
    stopped(process).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_without_the_pepper_of_the_keys_replaces_no_good_one() {
    let provider = Provider::start().await;
    let home = Home::new();
    home.write(&format!("{}{}", every(1, "keep = 1"), catalogue(&provider, "")));
    home.key();
    let mut process = home.run().await;
    next(&home).await;
    let pepper = home.storage().join("pepper");
    let original = std::fs::read(&pepper).unwrap();
    std::fs::remove_file(&pepper).unwrap();
    process.wait_for_line("export_failed").await;
    let retained = archives(&home);
    assert!(!retained.is_empty());
    assert!(retained.iter().all(|archive| archive.join("pepper").exists()));
    assert_eq!(home.admin().get("/status").await.json()["backup"]["state"], "failed");
    process.signal("TERM");
    process.until_ended().await;
    let to = home.path().join("archive");
    for command in [&["store", "export", to.to_str().unwrap()][..], &["store", "verify"]] {
        let refused = home.command(command);
        assert_eq!(refused.status.code(), Some(1), "{command:?}");
        assert!(complaint(&refused).contains("is missing"), "{}", complaint(&refused));
    }
    std::fs::write(&pepper, original).unwrap();
    assert!(home.command(&["store", "verify"]).status.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_deleted_after_an_archive_are_not_restored() {
    let provider = Provider::start().await;
    let home = Home::new();
    home.write(&format!("{}{}", every(0, ""), catalogue(&provider, "")));
    let (client, _) = home.key();
    let process = home.run().await;
    let (retained, lost) = (uploaded(&client, &lines(3)).await, uploaded(&client, &lines(4)).await);
    stopped(process).await;
    let archive = home.path().join("archive");
    let saved = home.command(&["store", "export", archive.to_str().unwrap()]);
    assert!(saved.status.success(), "{}", complaint(&saved));
    std::fs::remove_file(archive.join("files").join(&lost)).unwrap();
    let elsewhere = Home::new();
    elsewhere.write(&format!("{}{}", every(0, ""), catalogue(&provider, "")));
    let restored = elsewhere.command(&["store", "import", archive.to_str().unwrap()]);
    assert!(restored.status.success(), "{}", complaint(&restored));
    assert!(String::from_utf8_lossy(&restored.stdout).contains("was made: 1 files"));
    let process = elsewhere.run().await;
    let client = Client { address: elsewhere.http, ..client };
    assert_eq!(content(&client, &Value::from(retained)).await, lines(3));
    assert_eq!(client.get(&format!("/v1/files/{lost}")).await.status, 404);
    stopped(process).await;
}
