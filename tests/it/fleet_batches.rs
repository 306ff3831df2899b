//! Batches and files of two gateways on one PostgreSQL database and one folder: a batch is continued when its gateway
//! dies, and any gateway shows and cancels it.

use crate::harness::batch_jobs::{
    assert_charged, batch, cancel, ended, let_go, lines, results, retrieve, uploaded,
};
use crate::harness::process::{Home, Process, catalogue, complaint};
use crate::harness::script::held;
use crate::harness::{Client, Provider, is_long_run, until, until_answered, within};
use crate::postgres_server::PostgresServer;
use crate::seaweedfs::SeaweedServer;
use penstock_dialect::conformance::check_responses_stream;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Maximum number of lines in flight at one gateway.
const CONCURRENCY: usize = 16;
/// Time after the acknowledged cancellation from which the provider must receive no more calls for the batch.
const STILL: Duration = Duration::from_millis(1_500);
const PEPPER: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// Two gateways, and their shared database and folder or bucket.
pub struct Pair {
    pub provider: Provider,
    pub homes: [Home; 2],
    pub gateways: [Process; 2],
    key: String,
    _server: PostgresServer,
    files: tempfile::TempDir,
}

impl Pair {
    pub async fn start() -> Pair {
        Self::start_with(None, "").await
    }

    /// Starts both gateways with this bucket instead of a folder, and these lines at the end of the configuration.
    pub async fn start_with(bucket: Option<&SeaweedServer>, lines: &str) -> Pair {
        let (provider, server) = (Provider::start().await, PostgresServer::start());
        let files = tempfile::tempdir().unwrap();
        let homes = [Home::new(), Home::new()];
        let storage = match bucket {
            None => format!("path = {:?}\n", files.path()),
            Some(bucket) => crate::file_bucket::bucket_settings(bucket),
        };
        for home in &homes {
            write_settings(home, &server, &storage, &(catalogue(&provider, "") + lines));
        }
        let gateways = [homes[0].run().await, homes[1].run().await];
        let token = std::fs::read_to_string(homes[0].storage().join("admin.token")).unwrap();
        let admin = Client { address: homes[0].admin, key: token.trim().to_owned() };
        let made = admin.post("/admin/keys", &json!({"name": "n", "store_responses": true})).await;
        let key = made.json()["key"].as_str().unwrap_or_else(|| panic!("{}", made.text())).to_owned();
        let pair = Pair { provider, homes, gateways, key, _server: server, files };
        crate::harness::within("both gateways to know the key", async {
            for gateway in 0..2 {
                while pair.at(gateway).get("/v1/models").await.status != 200 {}
            }
        })
        .await;
        pair
    }

    /// Folder of the files, if they are not in a bucket.
    pub fn folder(&self) -> &Path {
        self.files.path()
    }

    pub fn at(&self, gateway: usize) -> Client {
        Client { address: self.homes[gateway].http, key: self.key.clone() }
    }

    /// Returns the gateway that runs a batch.
    async fn runner(&self) -> usize {
        let claims = |gateway: &Process| gateway.output().contains("batches_claimed");
        until("a gateway to claim the batch", || self.gateways.iter().any(claims)).await;
        usize::from(!claims(&self.gateways[0]))
    }

    pub async fn stop(&mut self) {
        self.gateways.iter().for_each(|gateway| gateway.signal("TERM"));
        for gateway in &mut self.gateways {
            assert!(gateway.until_ended().await.success(), "{}", gateway.output());
        }
    }
}

fn write_settings(home: &Home, server: &PostgresServer, files: &str, catalogue: &str) {
    std::fs::write(home.path().join("database"), server.options().url).unwrap();
    std::fs::write(home.path().join("pepper-given"), PEPPER).unwrap();
    crate::file_bucket::write_access_key(home);
    home.write(&format!(
        "engine = \"postgres\"\nurl = {{ file = \"database\" }}\npepper = {{ file = \"pepper-given\" }}\n\
         [fleet]\nclaim = \"5s\"\nlease = \"8s\"\n[batches]\nconcurrency = {CONCURRENCY}\n\
         [files]\nkeep_free = \"0B\"\n{files}{catalogue}",
    ));
}

fn posts(provider: &Provider) -> usize {
    provider.seen().iter().filter(|seen| seen.method == "POST").count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_continued_by_the_other_gateway_when_its_own_is_killed() {
    let count = if is_long_run() { 20_000 } else { 800 };
    let mut pair = Pair::start().await;
    let made = batch(&pair.at(0), &lines(count)).await;
    let runner = pair.runner().await;
    until("some results", || posts(&pair.provider) > count / 10).await;
    pair.gateways[runner].signal("KILL");
    let killed = Instant::now();
    pair.gateways[runner].until_ended().await;
    let other = pair.at(1 - runner);
    assert_eq!(retrieve(&other, &made).await["status"], "in_progress", "there was nothing left to continue");
    let end = ended(&other, &made).await;
    assert_eq!((&end["status"], &end["request_counts"]["completed"]), (&json!("completed"), &json!(count)));
    let found = results(&other, &end).await;
    assert_eq!(found.len(), count);
    let calls = posts(&pair.provider);
    assert!(calls <= count + CONCURRENCY, "{calls} calls for {count} lines");
    eprintln!("{count} lines, {calls} calls, over {:?} after the kill", killed.elapsed());
    pair.gateways[runner] = pair.homes[runner].run().await;
    let again = results(&pair.at(runner), &end).await;
    assert_eq!(again.len(), count, "the restarted gateway reads the same file");
    pair.stop().await;
    assert_charged(&pair.homes[0], found.values());
    let proof = pair.homes[0].command(&["store", "verify"]);
    assert!(proof.status.success(), "{}", complaint(&proof));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_cancelled_and_its_file_deleted_through_the_other_gateway() {
    let count = 3_000;
    let mut pair = Pair::start().await;
    let made = batch(&pair.at(0), &lines(count)).await;
    let other = 1 - pair.runner().await;
    until("some calls", || posts(&pair.provider) > count / 20).await;
    let answer = cancel(&pair.at(other), &made).await;
    let acknowledged = Instant::now();
    assert_eq!((answer.status, &answer.json()["status"]), (200, &json!("cancelled")), "{}", answer.text());
    let end: Value = answer.json();
    // The absence of calls can only be tested by waiting.
    tokio::time::sleep_until((acknowledged + STILL * 2).into()).await;
    let late = pair.provider.seen().into_iter();
    let late = late.filter(|seen| seen.method == "POST" && seen.at > acknowledged).count();
    assert_eq!(late, 0, "calls after the end was acknowledged");
    for gateway in 0..2 {
        assert_eq!(retrieve(&pair.at(gateway), &made).await, end, "both show the same");
    }
    assert!(results(&pair.at(1 - other), &end).await.len() < count);
    let file = uploaded(&pair.at(0), &lines(2)).await;
    let path = format!("/v1/files/{file}");
    assert_eq!(pair.at(1).get(&path).await.status, 200);
    assert_eq!(pair.at(1).send("DELETE", &path, &[], b"").await.status, 200);
    assert_eq!(pair.at(0).get(&path).await.status, 404, "at once");
    pair.stop().await;
}

/// Waits until a background response has this status, and returns it.
pub async fn background(client: &Client, response: &Value, status: &str) -> Value {
    let path = format!("/v1/responses/{}", response["id"].as_str().unwrap());
    crate::harness::within(status, async {
        loop {
            let now = client.get(&path).await.json();
            if now["status"] == status {
                return now;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_background_response_is_continued_by_the_other_gateway_and_charged_once() {
    let (mut pair, go) = (Pair::start().await, Arc::new(Notify::new()));
    pair.provider.always(held(&go, "Done"));
    let ask = json!({"model": "m", "input": "Hi", "background": true});
    let response = pair.at(0).post("/v1/responses", &ask).await.json();
    pair.provider.until_calls(1).await;
    // Each gateway shows the state of the response.
    for gateway in 0..2 {
        background(&pair.at(gateway), &response, "in_progress").await;
    }
    // The other gateway streams the response. The stream continues when that gateway takes the response over.
    let path = format!("/v1/responses/{}?stream=true", response["id"].as_str().unwrap());
    let mut stream = pair.at(1).open("GET", &path, &[], b"").await;
    within("the start", stream.until("event: response.in_progress\n")).await;
    pair.gateways[0].signal("KILL");
    pair.gateways[0].until_ended().await;
    pair.provider.until_calls(2).await;
    let end = async { (background(&pair.at(1), &response, "completed").await, stream.finish().await) };
    let (done, stream) = let_go(&go, within("the end", end)).await;
    assert_eq!(done["output"][0]["content"][0]["text"], "Done");
    assert_eq!(check_responses_stream(stream.text().as_bytes()), Ok(()), "{}", stream.text());
    pair.gateways[0] = pair.homes[0].run().await;
    assert_eq!(background(&pair.at(0), &response, "completed").await, done);
    // Waits until the other gateway has noticed that this one runs again. Otherwise it might take over the work of
    // this gateway.
    let admin = pair.homes[1].admin();
    let is_known = async || admin.get("/metrics").await.text().contains("penstock_fleet_members 2");
    until_answered("both gateways to be live", is_known).await;
    // A response that runs at one gateway is cancelled through the other one.
    let other = pair.at(0).post("/v1/responses", &ask).await.json();
    pair.provider.until_calls(3).await;
    let path = format!("/v1/responses/{}/cancel", other["id"].as_str().unwrap());
    let cancelled = pair.at(1).send("POST", &path, &[], b"").await;
    assert_eq!(cancelled.json()["status"], "cancelled", "{}", cancelled.text());
    pair.stop().await;
    assert_eq!(pair.provider.calls(), 3);
    let entries = String::from_utf8(pair.homes[0].command(&["credits", "export"]).stdout).unwrap();
    assert_eq!(entries.lines().filter(|line| line.contains("\"settle\"")).count(), 1, "{entries}");
}
