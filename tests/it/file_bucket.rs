//! Contents of files in a bucket of a real S3-compatible server: uploads, batches that outlive the folder of their
//! gateway, outages, and archives that move contents to the bucket and back.

use crate::files::{content, deleted, error, id, lines as file_lines, send, uploaded};
use crate::harness::batch_jobs::{assert_charged, batch, ended, line, lines, results, retrieve};
use crate::harness::process::{Home, Process, catalogue, complaint};
use crate::harness::{Client, Provider, within};
use crate::seaweedfs::{ACCESS_KEY, BUCKET, SeaweedServer};
use std::fs;
use std::process::Output;

/// A configuration folder, with this bucket.
fn home(provider: &Provider, server: Option<&SeaweedServer>) -> Home {
    let home = Home::new();
    write_access_key(&home);
    let store = server.map_or(String::new(), bucket_settings);
    let settings = format!("[batches]\nconcurrency = 8\n[files]\nkeep_free = \"0B\"\n{store}");
    home.write(&format!("{settings}{}", catalogue(provider, "")));
    home
}

/// Writes the files of the access key that [`bucket_settings`] names.
pub fn write_access_key(home: &Home) {
    fs::write(home.path().join("id"), ACCESS_KEY[0]).unwrap();
    fs::write(home.path().join("secret"), ACCESS_KEY[1]).unwrap();
}

/// Returns the section of the configuration for a bucket of this server.
pub fn bucket_settings(server: &SeaweedServer) -> String {
    format!(
        "[files.store]\nendpoint = \"http://127.0.0.1:{}\"\nbucket = \"{BUCKET}\"\nprefix = \"it\"\naccess_key_id = \
         {{ file = \"id\" }}\nsecret_access_key = {{ file = \"secret\" }}\n",
        server.port
    )
}

fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}", complaint(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

async fn stopped(mut process: Process) {
    process.signal("TERM");
    assert_eq!(process.until_ended().await.code(), Some(0), "{}", process.output());
}

async fn metric(home: &Home, line: &str) -> bool {
    home.admin().get("/metrics").await.text().lines().any(|found| found == line)
}

/// Uploads and downloads files; while the bucket's server is down, both fail with 503, and afterwards they succeed
/// again.
async fn files_work(home: &Home, client: &Client, server: &mut SeaweedServer) {
    let long = |number: usize| line(&format!("line-{number}"), &number.to_string().repeat(3_000)) + "\n";
    let contents = (1_000..2_000).map(long).collect::<String>().into_bytes();
    assert!(contents.len() > 8 << 20, "it is uploaded in parts: {}", contents.len());
    let large = id(&uploaded(client, &contents).await);
    let small = id(&uploaded(client, &file_lines(3)).await);
    assert!(content(client, &large, &[]).await.body == contents);
    let part = content(client, &large, &[("range", "bytes=9000000-9000099")]).await;
    assert_eq!((part.status, part.body.as_slice()), (206, &contents[9_000_000..9_000_100]));
    assert!(metric(home, "penstock_file_store_up 1").await);
    server.kill();
    for answer in [content(client, &large, &[]).await, send(client, &crate::files::batch(&contents)).await] {
        error(&answer, 503, "INFERENCE_3103");
        assert_eq!(answer.header("retry-after"), Some("5"));
    }
    assert!(metric(home, "penstock_file_store_up 0").await);
    assert_eq!(home.admin().get("/readyz").await.status, 200, "requests without files go on");
    assert_eq!(deleted(client, &small).await.status, 200);
    server.restart();
    let back = async { while content(client, &large, &[]).await.status != 200 {} };
    within("the bucket to be noticed", back).await;
    assert!(content(client, &large, &[]).await.body == contents);
    assert_eq!(content(client, &small, &[]).await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_in_a_bucket_outlives_its_machine_and_the_server() {
    let provider = Provider::start().await;
    let mut server = SeaweedServer::start();
    let home = home(&provider, Some(&server));
    succeeded(&home.command(&["check", "--reach"]));
    let (client, _) = home.key();
    let mut process = home.run().await;
    files_work(&home, &client, &mut server).await;

    let count = 300;
    let made = batch(&client, &lines(count)).await;
    let finished = async || retrieve(&client, &made).await["request_counts"]["completed"].as_u64().unwrap();
    for lost in 1..=2 {
        let least = lost * 60;
        within("some results", async { while finished().await < least {} }).await;
        process.kill().await;
        // Simulates the loss of the machine's temporary files; the contents are in the bucket.
        fs::remove_dir_all(home.storage().join("files")).unwrap();
        process = home.run().await;
    }
    server.kill();
    server.restart();
    let end = ended(&client, &made).await;
    assert_eq!(end["request_counts"]["completed"], count, "{end}");
    let found = results(&client, &end).await;
    assert_eq!(found.len(), count);
    stopped(process).await;
    assert!(provider.calls() <= count + 2 * 8, "{} calls", provider.calls());
    assert_charged(&home, found.values());
    succeeded(&home.command(&["store", "verify"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn archives_move_contents_to_the_bucket_and_back() {
    let provider = Provider::start().await;
    let server = SeaweedServer::start();
    let before = home(&provider, None);
    let (client, _) = before.key();
    let process = before.run().await;
    let contents = file_lines(2_000);
    let file = id(&uploaded(&client, &contents).await);
    stopped(process).await;
    let bucket = home(&provider, Some(&server));
    let back = home(&provider, None);
    for (from, to) in [(&before, &bucket), (&bucket, &back)] {
        let archive = from.path().join("archive");
        succeeded(&from.command(&["store", "export", archive.to_str().unwrap()]));
        succeeded(&to.command(&["store", "import", archive.to_str().unwrap()]));
        succeeded(&to.command(&["store", "verify"]));
        let process = to.run().await;
        let client = Client { address: to.http, key: client.key.clone() };
        assert!(content(&client, &file, &[]).await.body == contents);
        stopped(process).await;
    }
    assert!(!bucket.storage().join("files").join(&file).exists(), "it was moved");
    assert!(back.storage().join("files").join(&file).exists());
    // The bucket refuses another store.
    let other = home(&provider, Some(&server));
    let mut refused = other.spawn();
    assert!(!refused.until_ended().await.success());
    assert!(refused.output().contains("contents that the store does not know"), "{}", refused.output());
}
