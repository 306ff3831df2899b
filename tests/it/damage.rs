//! Damaged storage folders: damage is detected and reported, no false value is returned, and the rest is recovered.

use crate::harness::batch_jobs::{
    assert_charged, content, create, ended, line, lines, results, uploaded, when,
};
use crate::harness::process::{Home, Process, catalogue, complaint};
use crate::harness::script::{ScriptStep, plain};
use crate::harness::{Client, Provider};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Flips one bit of a file.
fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// Storage of a gateway that was killed during a batch, when the batch had some results.
struct KilledGateway {
    home: Home,
    provider: Provider,
    client: Client,
    batch: Value,
}

impl KilledGateway {
    async fn with(text: &str, done: u64) -> Self {
        let provider = Provider::start().await;
        for _ in 0..done {
            provider.then(plain("before"));
        }
        provider.always(vec![ScriptStep::Hang]);
        let home = Home::new();
        home.write(&format!("[batches]\nconcurrency = 4\n{}", catalogue(&provider, "")));
        let process = home.run().await;
        let (client, _) = home.key();
        let file = uploaded(&client, text).await;
        let made = create(&client, &file).await.json();
        let is = |now: &Value| now["request_counts"]["completed"] == done;
        let batch = when(&client, &made, "some results", is).await;
        process.kill().await;
        provider.always(plain("after"));
        Self { home, provider, client, batch }
    }

    fn id(&self, name: &str) -> &str {
        self.batch[name].as_str().unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.storage().join("files").join(self.id(name))
    }

    /// Asserts that a read is refused, or cut before the first wrong byte.
    async fn is_not_given(&self, name: &str) {
        let given = self.client.get(&format!("/v1/files/{}/content", self.id(name))).await;
        assert!(!given.whole || given.status == 500, "{} bytes were given", given.body.len());
        if given.status == 500 {
            assert!(given.text().contains("damaged"), "{}", given.text());
        }
    }

    async fn failed(&self, code: &str) -> Value {
        let end = ended(&self.client, &self.batch).await;
        assert_eq!(
            (end["status"].as_str(), end["errors"]["data"][0]["code"].as_str()),
            (Some("failed"), Some(code))
        );
        end
    }

    async fn stop(&self, mut process: Process) {
        process.signal("TERM");
        assert_eq!(process.until_ended().await.code(), Some(0), "{}", process.output());
    }

    fn proof_names(&self, id: &str) {
        let proof = self.home.command(&["store", "verify"]);
        let output = complaint(&proof) + &String::from_utf8(proof.stdout).unwrap();
        assert_eq!(proof.status.code(), Some(1), "{output}");
        assert!(output.contains(id) && output.contains("damaged"), "{output}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_input_fails_its_batch_and_retains_its_results() {
    // The file is so long that the gateway reads the damaged end only after the first lines have run.
    let text: String =
        (0..400).map(|number| line(&format!("line-{number}"), &"x".repeat(2_000)) + "\n").collect();
    let left = KilledGateway::with(&text, 5).await;
    flip(&left.path("input_file_id"), text.len() - 3_000);
    let process = left.home.run().await;
    let end = left.failed("invalid_input_file").await;
    let found = results(&left.client, &end).await;
    assert_eq!(Some(found.len() as u64), end["request_counts"]["completed"].as_u64());
    assert!((5..400).contains(&found.len()), "{}", found.len());
    left.is_not_given("input_file_id").await;
    left.stop(process).await;
    assert_charged(&left.home, found.values());
    left.proof_names(left.id("input_file_id"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_results_are_not_given_and_their_batch_fails() {
    let left = KilledGateway::with(&lines(30), 12).await;
    let path = left.path("output_file_id");
    let sound = fs::read_to_string(&path).unwrap();
    flip(&path, sound.len() / 2);
    let calls = left.provider.calls();
    let process = left.home.run().await;
    let end = left.failed("output_file_damaged").await;
    assert_eq!((&end["request_counts"]["completed"], left.provider.calls()), (&12.into(), calls));
    left.is_not_given("output_file_id").await;
    let endpoint = format!("/v1/files/{}", left.id("output_file_id"));
    let file = left.client.get(&endpoint).await.json();
    assert_eq!(file["status"], "error", "{file}");
    assert!(file["status_details"].as_str().unwrap().contains("damaged"), "{file}");
    assert_eq!(content(&left.client, &left.batch["input_file_id"]).await, lines(30), "the others are given");
    left.stop(process).await;
    let charged: Vec<Value> = sound.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_charged(&left.home, charged.iter());
    left.proof_names(left.id("output_file_id"));
    // The batch can be deleted; afterwards all rows are as they were written.
    let process = left.home.run().await;
    let deleted = left.client.send("DELETE", &endpoint, &[], b"").await;
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    left.stop(process).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_that_are_damaged_while_they_grow_or_when_they_are_whole_are_not_given() {
    let left = KilledGateway::with(&lines(30), 12).await;
    left.provider.always(vec![ScriptStep::Hang]);
    let calls = left.provider.calls();
    let process = left.home.run().await;
    // Once the batch sends another request, the gateway has opened the result file.
    left.provider.until_calls(calls + 1).await;
    let path = left.path("output_file_id");
    flip(&path, 100);
    left.is_not_given("output_file_id").await;
    flip(&path, 100);
    process.kill().await;
    left.provider.always(plain("after"));
    let process = left.home.run().await;
    let end = ended(&left.client, &left.batch).await;
    assert_eq!(end["status"], "completed", "{end}");
    assert_eq!(results(&left.client, &end).await.len(), 30);
    flip(&path, 100);
    left.is_not_given("output_file_id").await;
    left.stop(process).await;
    left.proof_names(left.id("output_file_id"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_store_is_not_opened_and_its_readable_rows_are_recovered() {
    let left = KilledGateway::with(&lines(30), 12).await;
    let db = left.home.storage().join("store/sled/db");
    let sound = fs::read(&db).unwrap();
    // Finds the position of store rows in the file, by a record of the batch.
    let id = left.id("id").as_bytes();
    let at = sound.windows(id.len()).position(|window| window == id).unwrap();
    flip(&db, at + 3);
    let mut process = left.home.spawn();
    let ended_with = process.until_ended().await;
    assert!(!ended_with.success(), "it started");
    let log = process.output();
    assert!(log.contains("penstock store repair"), "it does not say what to do: {log}");
    let folder = left.home.path().join("saved");
    let saved = left.home.command(&["store", "repair", "--to", folder.to_str().unwrap()]);
    let output = complaint(&saved) + &String::from_utf8(saved.stdout).unwrap();
    assert!(folder.join("store").exists(), "{output}");
    let written = fs::read_to_string(left.home.config()).unwrap();
    fs::write(left.home.config(), written.replace("path = \"data\"", "path = \"saved\"")).unwrap();
    let proof = left.home.command(&["credits", "verify"]);
    assert!(proof.status.success(), "{output}{}", complaint(&proof));
    let again = left.home.run().await;
    assert_eq!(content(&left.client, &left.batch["input_file_id"]).await, lines(30), "{output}");
    again.kill().await;
}
