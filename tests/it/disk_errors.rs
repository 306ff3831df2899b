//! Write and sync errors of the disk under load: acknowledged state persists, results never precede their file,
//! synchronous requests continue, and the batch completes after recovery. A preloaded library, which the tests of
//! power cuts use too, injects the faults.
//!
//! `PENSTOCK_FULL=1` injects forty faults of each kind instead of two.

use crate::harness::batch_jobs::{create, ended, line, lines, results, retrieve, upload, uploaded};
use crate::harness::process::{Home, Process, catalogue, complaint};
use crate::harness::{Client, Provider, is_long_run, within};
use crate::power_cut::shim;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// Gateway whose disk fails while a switch file exists.
struct Failing {
    home: Home,
    library: PathBuf,
    /// Part of the storage folder on the failing disk.
    under: PathBuf,
    /// Environment variable with the path of the switch file.
    fault: &'static str,
}

impl Failing {
    fn new(provider: &Provider, under: &str, fault: &'static str) -> Self {
        let home = Home::new();
        let settings = "[batches]\nconcurrency = 4\nopen = 10000\n[ledger]\nslow = \"25s\"\n[files]\nkeep_free = \"0B\"\n";
        home.write(&format!("{settings}{}", catalogue(provider, "")));
        let (library, under) = (shim(home.path()), home.storage().join(under));
        Self { home, library, under, fault }
    }

    fn switch(&self) -> PathBuf {
        self.home.path().join("fails")
    }

    fn fail(&self) {
        std::fs::write(self.switch(), b"").unwrap();
    }

    fn recover(&self) {
        std::fs::remove_file(self.switch()).unwrap();
    }

    async fn run(&self) -> Process {
        let process = self.home.run_with(|command| {
            let log = self.home.path().join("log");
            command.env("LD_PRELOAD", &self.library).env("SHIM_ROOT", &self.under).env("SHIM_LOG", log);
            command.env(self.fault, self.switch());
        });
        process.await
    }
}

/// Acknowledgements before and during the failure.
#[derive(Default)]
struct AcknowledgedState {
    files: Vec<(String, String)>,
    batches: Vec<Value>,
    refused: usize,
}

impl AcknowledgedState {
    /// Uploads files and creates batches until `few` more were refused.
    async fn refusals(&mut self, client: &Client, input: &str, few: usize) {
        let goal = self.refused + few;
        within("refusals", async {
            while self.refused < goal {
                let text = line(&format!("late-{}", self.files.len()), "late") + "\n";
                let answer = upload(client, &text).await;
                match answer.status {
                    200 => self.files.push((answer.json()["id"].as_str().unwrap().to_owned(), text)),
                    500.. => self.refused += 1,
                    status => panic!("{status} {}", answer.text()),
                }
                let answer = create(client, input).await;
                match answer.status {
                    200 => self.batches.push(answer.json()),
                    500.. => self.refused += 1,
                    status => panic!("{status} {}", answer.text()),
                }
            }
        })
        .await;
    }

    /// Checks that all acknowledged state is present.
    async fn check(&self, client: &Client) -> Vec<Value> {
        for (id, text) in &self.files {
            let given = client.get(&format!("/v1/files/{id}/content")).await;
            assert_eq!((given.status, given.text()), (200, text.clone()), "{id} was acknowledged");
        }
        let mut found = Vec::new();
        for batch in &self.batches {
            let end = ended(client, batch).await;
            assert_eq!(end["status"], "completed", "{end}");
            let of = results(client, &end).await;
            assert_eq!(end["request_counts"]["completed"], of.len(), "{end}");
            found.extend(of.into_values());
        }
        found
    }
}

fn completed(batch: &Value) -> u64 {
    batch["request_counts"]["completed"].as_u64().unwrap()
}

/// Asserts that the output file has at least as many results as the gateway acknowledged, each complete; returns
/// their number. While the store fails, the gateway may report an error instead.
async fn assert_acknowledged(client: &Client, batch: &Value, fails: bool) -> u64 {
    let now = retrieve(client, batch).await;
    let done = completed(&now);
    let Some(output) = now["output_file_id"].as_str() else { return done };
    let given = client.get(&format!("/v1/files/{output}/content")).await;
    if fails && given.status == 503 {
        assert_eq!(given.header("retry-after"), Some("5"));
        return done;
    }
    assert_eq!(given.status, 200, "{}", given.text());
    let there: Vec<Value> = given.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let there = there.len() as u64;
    assert!(there >= done, "{there} results and {done} were told: {now}");
    done
}

async fn chat(client: &Client) {
    let ask = json!({"model": "m", "max_tokens": 20, "messages": [{"role": "user", "content": "at once"}]});
    let answer = client.post("/v1/chat/completions", &ask).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// Injects the fault repeatedly while a batch runs. `lasts` is true if the failure persists until a restart.
async fn plays(under: &str, fault: &'static str, lasts: bool) {
    let provider = Provider::start().await;
    let rounds = if is_long_run() { 40 } else { 2 };
    let failing = Failing::new(&provider, under, fault);
    let mut process = failing.run().await;
    let (client, _) = failing.home.key();
    let mut acknowledged = AcknowledgedState::default();
    let input = uploaded(&client, &lines(120)).await;
    for _ in 0..rounds {
        let batch = create(&client, &input).await.json();
        acknowledged.batches.push(batch.clone());
        within("some results", async { while assert_acknowledged(&client, &batch, false).await < 10 {} })
            .await;
        failing.fail();
        acknowledged.refusals(&client, &input, 3).await;
        chat(&client).await;
        assert_acknowledged(&client, &batch, true).await;
        assert!(process.ended().is_none(), "{}", process.output());
        failing.recover();
        if lasts {
            // The gateway reports the failure and accepts no changes: the next sync would acknowledge lost data.
            let ready = failing.home.admin().get("/readyz").await;
            assert_eq!(ready.status, 503, "{}", ready.text());
            acknowledged.refusals(&client, &input, 1).await;
            process.kill().await;
            process = failing.run().await;
        }
        within("the disk to be taken for well", async {
            while upload(&client, &lines(1)).await.status != 200 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        acknowledged.check(&client).await;
    }
    let found = acknowledged.check(&client).await;
    assert!(acknowledged.refused >= 3 * rounds && found.len() >= 120 * rounds);
    assert!(!process.output().contains("panic"), "{}", process.output());
    assert!(lasts || process.output().contains("file_not_stored"), "{}", process.output());
    process.signal("TERM");
    assert_eq!(process.until_ended().await.code(), Some(0), "{}", process.output());
    proven(&failing.home, &found);
    eprintln!("{under} {fault}: {} refused, {} results", acknowledged.refused, found.len());
}

/// Checks that every batch result is charged exactly once. Direct requests are charged at most once: a charge may be
/// missing if it was never acknowledged.
fn proven(home: &Home, found: &[Value]) {
    let proof = home.command(&["store", "verify"]);
    assert!(proof.status.success(), "{}", complaint(&proof));
    let entries = String::from_utf8(home.command(&["credits", "export"]).stdout).unwrap();
    let entries = entries.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut charged = std::collections::BTreeMap::<String, usize>::new();
    for entry in entries.filter(|entry| entry["act"] == "settle") {
        *charged.entry(format!("batch_{}", entry["request"].as_str().unwrap())).or_default() += 1;
    }
    assert!(charged.values().all(|times| *times == 1), "something was charged twice");
    for result in found {
        assert!(charged.contains_key(result["id"].as_str().unwrap()), "given and not charged: {result}");
    }
    assert!(charged.len() <= found.len() + 100, "{} charges, {} results", charged.len(), found.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_cannot_be_written_are_refused_and_results_wait() {
    plays("files", "SHIM_EIO_WRITE", false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_cannot_be_synced_are_refused_and_results_wait() {
    plays("files", "SHIM_EIO_SYNC", false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_cannot_write_acknowledges_nothing_and_recovers_by_itself() {
    plays("store", "SHIM_EIO_WRITE", false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_after_a_failed_sync_acknowledges_nothing_until_it_is_restarted() {
    plays("store", "SHIM_EIO_SYNC", true).await;
}
