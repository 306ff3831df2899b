//! Gateways that are killed during uploads, deletions, and the assembly of batch outputs in a bucket. Afterwards each
//! file record has its object, acknowledged uploads exist, acknowledged deletions are complete, and the sweep has
//! removed all other objects.

pub mod stored;

use super::gateways::Fleet;
use crate::files::{batch as upload_form, content};
use crate::harness::batch_jobs::{CHAT, ended, line, results};
use crate::harness::script::plain;
use crate::harness::{Client, is_long_run, until_answered, within};
use crate::seaweedfs::SeaweedServer;
use penstock_object_storage::Bucket;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use stored::{Stored, records};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const GATEWAYS: usize = 3;
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest time until a deletion is seen by another gateway.
const SEEN_WITHIN: Duration = Duration::from_secs(if cfg!(debug_assertions) { 3 } else { 1 });
/// Lines of a batch.
const LINES: usize = 40;
/// Uploads are numbered. An upload with this number or a higher one is so large that it needs more than two parts.
const LARGE: usize = 1 << 40;
/// Number of kills between two uploads in parts, and between two periods with long results.
const LARGE_EACH: [usize; 2] = if cfg!(debug_assertions) { [2, 50] } else { [4, 40] };

/// Files and batches of the clients.
#[derive(Default)]
struct Known {
    /// Acknowledged uploads: the number that determines the contents, by file id.
    uploads: BTreeMap<String, usize>,
    /// Files whose deletion was sent.
    deletions: BTreeSet<String>,
    /// Acknowledged deletions.
    deleted: usize,
    slowest_deletion: Duration,
    batches: Vec<Value>,
    lost: usize,
}

struct Load {
    clients: Vec<Client>,
    known: Mutex<Known>,
    /// For each gateway, true if its next upload has to be a large one.
    large_due: [AtomicBool; GATEWAYS],
    stop: AtomicBool,
}

/// Sends a request; `None` if it has no complete answer.
async fn try_send(
    client: &Client,
    method: &str,
    path: &str,
    kind: &str,
    body: &[u8],
) -> Option<(u16, Value)> {
    let mut socket = TcpStream::connect(client.address).await.ok()?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\nauthorization: Bearer {}\r\n\
         content-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        client.key,
        body.len()
    );
    let mut bytes = Vec::new();
    let exchange = async {
        socket.write_all(head.as_bytes()).await?;
        socket.write_all(body).await?;
        socket.read_to_end(&mut bytes).await
    };
    tokio::time::timeout(PATIENCE, exchange).await.ok();
    let text = std::str::from_utf8(&bytes).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let body = serde_json::from_str(body.get(body.find('{')?..=body.rfind('}')?)?).ok()?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body))
}

/// Contents of an upload: some lines, or more than two parts.
fn contents(number: usize) -> Vec<u8> {
    let (count, length) = if number >= LARGE { (3_000, 3_000) } else { (1 + number % 50, 20) };
    let text = "x".repeat(length);
    (0..count).map(|at| line(&format!("{number}-{at}"), &text) + "\n").collect::<String>().into_bytes()
}

/// Waits between two requests of a client: a fast gateway would fill the bucket.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(if is_long_run() { 100 } else { 2 })).await;
}

fn text_of(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_else(|| panic!("{value}")).to_owned()
}

impl Load {
    async fn upload(&self, gateway: usize, contents: &[u8]) -> Option<String> {
        let form = upload_form(contents);
        let kind = "multipart/form-data; boundary=b0und";
        match try_send(&self.clients[gateway], "POST", "/v1/files", kind, &form).await {
            Some((200, file)) => Some(text_of(&file, "id")),
            Some((status, error)) => {
                assert_eq!(status, 503, "{error}");
                None
            }
            None => {
                self.known.lock().unwrap().lost += 1;
                None
            }
        }
    }

    /// Uploads files at a gateway, and deletes half of them at the next one.
    async fn upload_files(&self, gateway: usize) {
        for number in (gateway..).step_by(GATEWAYS) {
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            pause().await;
            let is_large = self.large_due[gateway].swap(false, Ordering::SeqCst);
            let number = if is_large { LARGE + number } else { number };
            let Some(id) = self.upload(gateway, &contents(number)).await else { continue };
            self.known.lock().unwrap().uploads.insert(id.clone(), number);
            if number % 2 == 1 {
                self.delete(&id, (gateway + 1) % GATEWAYS, (gateway + 2) % GATEWAYS).await;
            }
        }
    }

    /// Deletes a file at a gateway, and waits until another gateway no longer shows it, if neither was killed
    /// meanwhile.
    async fn delete(&self, id: &str, at: usize, seen_at: usize) {
        self.known.lock().unwrap().deletions.insert(id.to_owned());
        let path = format!("/v1/files/{id}");
        let answer = try_send(&self.clients[at], "DELETE", &path, "application/json", b"").await;
        let Some((200, _)) = answer else { return };
        let begun = Instant::now();
        loop {
            match try_send(&self.clients[seen_at], "GET", &path, "application/json", b"").await {
                Some((404, _)) => break,
                Some((200, _)) => assert!(begun.elapsed() < PATIENCE, "{id} is still there"),
                _ => return,
            }
        }
        let mut known = self.known.lock().unwrap();
        known.deleted += 1;
        known.slowest_deletion = known.slowest_deletion.max(begun.elapsed());
    }

    /// Runs one batch after the other.
    async fn run_batches(&self) {
        for number in 0.. {
            pause().await;
            let Some(batch) = self.create_batch(number).await else {
                if self.stop.load(Ordering::SeqCst) {
                    return;
                }
                continue;
            };
            self.known.lock().unwrap().batches.push(batch.clone());
            let path = format!("/v1/batches/{}", text_of(&batch, "id"));
            for gateway in (0..GATEWAYS).cycle() {
                let answer = try_send(&self.clients[gateway], "GET", &path, "application/json", b"").await;
                let has_ended = answer.is_some_and(|(_, batch)| batch["status"] == "completed");
                if has_ended || self.stop.load(Ordering::SeqCst) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    async fn create_batch(&self, number: usize) -> Option<Value> {
        if self.stop.load(Ordering::SeqCst) {
            return None;
        }
        let gateway = number % GATEWAYS;
        let lines: String = (0..LINES).map(|at| line(&format!("line-{at}"), "Hi") + "\n").collect();
        let file = self.upload(gateway, lines.as_bytes()).await?;
        let ask = json!({"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"}).to_string();
        let client = &self.clients[gateway];
        match try_send(client, "POST", "/v1/batches", "application/json", ask.as_bytes()).await {
            Some((200, batch)) => Some(batch),
            _ => None,
        }
    }
}

/// Number of requests of a gateway to the bucket.
async fn bucket_requests(fleet: &Fleet, gateway: usize) -> u64 {
    let metrics = fleet.admin(gateway).get("/metrics").await.text();
    let counts = metrics.lines().filter(|line| line.starts_with("penstock_file_store_requests_total{"));
    counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

async fn kill_gateways(fleet: &mut Fleet, load: &Load, rng: &mut StdRng, kills: usize) {
    for kill in 0..kills {
        let gateway = rng.random_range(0..GATEWAYS);
        load.large_due[gateway].store(kill % LARGE_EACH[0] == 0, Ordering::SeqCst);
        // For some kills, the answers are so long that batch outputs are uploaded in parts.
        let words = if kill % LARGE_EACH[1] == 10 { 50_000 } else { 5 };
        fleet.provider.always(plain(&"word ".repeat(words)));
        let last = bucket_requests(fleet, gateway).await + rng.random_range(1..8);
        let is_reached = || async { bucket_requests(fleet, gateway).await >= last };
        until_answered("requests to the bucket", is_reached).await;
        fleet.gateways[gateway].signal("KILL");
        fleet.gateways[gateway].until_ended().await;
        fleet.gateways[gateway] = fleet.homes[gateway].run_again().await;
    }
}

/// Starts all gateways again with a minimum age for the sweep that all leftover objects have reached.
pub async fn restart_and_sweep(mut fleet: Fleet) -> Fleet {
    fleet = fleet.stop().await;
    for (gateway, home) in fleet.homes.iter().enumerate() {
        let settings = std::fs::read_to_string(home.config()).unwrap();
        let settings = settings.replace("keep_free = \"0B\"\n", "keep_free = \"0B\"\nleftovers = \"1s\"\n");
        std::fs::write(home.config(), settings).unwrap();
        fleet.gateways[gateway] = home.run().await;
    }
    fleet
}

/// Waits until the contents of deleted files are gone; returns the time.
async fn until_deleted(
    fleet: &Fleet,
    bucket: &Bucket,
    deletions: &BTreeSet<String>,
    client: &Client,
) -> Duration {
    let begun = Instant::now();
    let records = records(client).await;
    let gone: BTreeSet<&String> = deletions.iter().filter(|id| !records.contains(*id)).collect();
    let is_deleted = || async {
        let stored = Stored::read(fleet, bucket);
        !stored.objects.iter().chain(&stored.segments).any(|id| gone.contains(id))
    };
    until_answered("the contents of deleted files to be gone", is_deleted).await;
    begun.elapsed()
}

/// Runs the load while gateways are killed; returns the uploads, deletions and batches that the clients know.
async fn killed(fleet: &mut Fleet, key: &str, kills: usize, seed: u64) -> Known {
    let load = Arc::new(Load {
        clients: (0..GATEWAYS).map(|gateway| fleet.at(gateway, key)).collect(),
        known: Mutex::default(),
        large_due: Default::default(),
        stop: AtomicBool::new(false),
    });
    let mut tasks = JoinSet::new();
    for gateway in 0..GATEWAYS {
        let load = load.clone();
        tasks.spawn(async move { load.upload_files(gateway).await });
    }
    let batches = load.clone();
    tasks.spawn(async move { batches.run_batches().await });
    kill_gateways(fleet, &load, &mut StdRng::seed_from_u64(seed), kills).await;
    load.stop.store(true, Ordering::SeqCst);
    within("the end of the load", tasks.join_all()).await;
    // Waits for all batches in the list: some were created although the client got no answer.
    let are_ended = || async {
        let batches = load.clients[0].get("/v1/batches?limit=100").await.json();
        batches["data"].as_array().unwrap().iter().all(|batch| batch["status"] == "completed")
    };
    until_answered("the end of all batches", are_ended).await;
    std::mem::take(&mut *load.known.lock().unwrap())
}

/// Checks that what was acknowledged is there: uploads that nobody deleted, and results of batches.
async fn check_contents(fleet: &Fleet, key: &str, known: &Known) {
    for (id, number) in known.uploads.iter().filter(|(id, _)| !known.deletions.contains(*id)) {
        let found = content(&fleet.at(number % GATEWAYS, key), id, &[]).await;
        assert!(found.status == 200 && found.body == contents(*number), "{id}: {}", found.status);
    }
    for (batch, gateway) in known.batches.iter().zip((0..GATEWAYS).cycle()) {
        let client = fleet.at(gateway, key);
        let batch = ended(&client, batch).await;
        assert_eq!(results(&client, &batch).await.len(), LINES, "{batch}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_killed_during_uploads_leave_no_record_without_object_and_no_orphan() {
    let number = |name: &str, otherwise: u64| std::env::var(name).map_or(otherwise, |n| n.parse().unwrap());
    let kills = number("PENSTOCK_KILLS", if is_long_run() { 200 } else { 6 }) as usize;
    let server = SeaweedServer::start();
    let bucket = Bucket::new(&server.options("it")).unwrap();
    let mut fleet = Fleet::start_with_bucket(&server, GATEWAYS, "claim = \"5s\"\nlease = \"30s\"").await;
    let (key, _) = fleet.key(0, json!({})).await;
    fleet.until_everywhere(&key, 200).await;
    fleet.grant(0, "100000").await;
    let known = killed(&mut fleet, &key, kills, number("PENSTOCK_SEED", 20_261_127)).await;
    let client = fleet.at(0, &key);
    let deleted_within = until_deleted(&fleet, &bucket, &known.deletions, &client).await;
    let (before, all) = (Stored::read(&fleet, &bucket), records(&client).await);
    eprintln!(
        "{kills} kills: {} uploads, {} deletions (seen within {:?}, the last contents gone within {deleted_within:?}), \
         {} batches, {} requests lost; left behind: {} objects, {} uploads in parts, {} temporary files",
        known.uploads.len(),
        known.deleted,
        known.slowest_deletion,
        known.batches.len(),
        known.lost,
        before.orphans(&all),
        before.incomplete,
        before.temporary
    );
    let fleet = restart_and_sweep(fleet).await;
    let begun = Instant::now();
    while let Err(finding) = Stored::read(&fleet, &bucket).check(&all) {
        assert!(begun.elapsed() < PATIENCE * 2, "after the sweep: {finding}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(records(&client).await, all, "the sweep deletes no record");
    check_contents(&fleet, &key, &known).await;
    assert!(before.temporary + before.incomplete + before.orphans(&all) > 0, "no kill left anything behind");
    assert!(known.deleted > 0 && known.slowest_deletion <= SEEN_WITHIN, "{:?}", known.slowest_deletion);
    fleet.verify().await;
}
