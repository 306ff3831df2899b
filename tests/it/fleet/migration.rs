//! Moves of a store from the embedded engine to PostgreSQL and back, by export and import: rows, contents of files,
//! and the data that the gateways show are the same, and the ledger's hash chains are valid.

use super::gateways::succeeded;
use crate::files::content;
use crate::harness::batch_jobs::{batch, cancel, ended, lines, uploaded};
use crate::harness::process::{Home, catalogue, optimised};
use crate::harness::{Client, Provider, is_long_run, until_answered};
use crate::postgres_server::PostgresServer;
use penstock::config::ConfigSource;
use penstock::storage::stores::OpenStorage;
use penstock_core::hex;
use penstock_storage::{StoreTable, Transaction};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PEPPER: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
/// Longest export or import of a million rows.
const MILLION_WITHIN: Duration = Duration::from_secs(60);
/// Rows of one transaction.
const ROWS: usize = 2_000;

/// Folder of a gateway with the embedded store, or with this database as a fleet.
fn home(provider: &Provider, database: Option<&PostgresServer>) -> Home {
    let home = Home::new();
    std::fs::write(home.path().join("pepper-given"), PEPPER).unwrap();
    let engine = database.map_or(String::new(), |server| {
        std::fs::write(home.path().join("database"), server.options().url).unwrap();
        "engine = \"postgres\"\nurl = { file = \"database\" }\n".to_owned()
    });
    let fleet = if database.is_some() { "[fleet]\n" } else { "" };
    home.write(&format!(
        "{engine}pepper = {{ file = \"pepper-given\" }}\n{fleet}[files]\nkeep_free = \"0B\"\n[billing]\ncredit = \
         \"prepaid\"\n{}",
        catalogue(provider, "")
    ));
    home
}

/// Exports the store of a home; returns the archive and the duration.
fn exported(home: &Home, name: &str) -> (PathBuf, Duration) {
    let (archive, begun) = (home.path().join(name), Instant::now());
    succeeded(&home.command(&["store", "export", archive.to_str().unwrap()]));
    (archive, begun.elapsed())
}

fn imported(home: &Home, archive: &Path) -> Duration {
    let begun = Instant::now();
    succeeded(&home.command(&["store", "import", archive.to_str().unwrap()]));
    begun.elapsed()
}

/// Rows of an archive by table and key, and the digests of the contents of files.
type Rows = BTreeMap<(String, String), Value>;

fn rows(archive: &Path) -> Rows {
    let text = std::fs::read_to_string(archive.join("store.jsonl")).unwrap();
    let mut rows = Rows::new();
    for row in text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        let Some(table) = row["space"].as_str() else { continue };
        let key = (table.to_owned(), row["key"].as_str().unwrap().to_owned());
        if row["value"].is_null() {
            rows.remove(&key)
        } else {
            rows.insert(key, row["value"].clone())
        };
    }
    for entry in std::fs::read_dir(archive.join("files")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let digest = hex::encode(&Sha256::digest(std::fs::read(path).unwrap()));
        rows.insert(("file".to_owned(), name), json!(digest));
    }
    rows
}

/// Returns the keys of the rows that differ or are missing.
fn differences(before: &Rows, after: &Rows) -> Vec<(String, String)> {
    let keys = before.keys().chain(after.keys());
    let mut differing: Vec<_> = keys.filter(|key| before.get(*key) != after.get(*key)).cloned().collect();
    differing.sort_unstable();
    differing.dedup();
    differing
}

/// Compares two archives; returns the number of their rows.
fn assert_same_rows(before: &Path, after: &Path) -> usize {
    let (before, after) = (rows(before), rows(after));
    let differing = differences(&before, &after);
    let first: Vec<_> = differing.iter().take(5).collect();
    assert!(differing.is_empty(), "{} rows differ, such as {first:?}", differing.len());
    before.len()
}

#[test]
fn a_row_that_is_lost_added_or_changed_is_a_difference() {
    let row = |table: &str, key: &str, value: &str| ((table.to_owned(), key.to_owned()), json!(value));
    let before = Rows::from([row("keys", "01", "aa"), row("ledger", "01", "bb"), row("file", "f", "cc")]);
    assert_eq!(differences(&before, &before.clone()).len(), 0);
    for (key, value) in &before {
        let mut lost = before.clone();
        lost.remove(key);
        let mut changed = before.clone();
        changed.insert(key.clone(), json!(format!("{value}0")));
        for other in [lost, changed] {
            assert_eq!(differences(&before, &other), std::slice::from_ref(key));
            assert_eq!(differences(&other, &before), std::slice::from_ref(key));
        }
    }
}

/// Returns the entries of the ledger, after a check of its hash chains.
fn ledger(home: &Home) -> Vec<String> {
    for command in [["credits", "verify"], ["usage", "verify"], ["store", "verify"]] {
        succeeded(&home.command(&command));
    }
    let entries = home.command(&["credits", "export"]);
    succeeded(&entries);
    String::from_utf8(entries.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn client(home: &Home, key: &str) -> Client {
    Client { address: home.http, key: key.to_owned() }
}

fn admin(home: &Home) -> Client {
    let token = std::fs::read_to_string(home.storage().join("admin.token")).unwrap();
    Client { address: home.admin, key: token.trim().to_owned() }
}

/// Returns the data that a gateway shows: keys, balances, files with their hashes, and batches.
async fn view(home: &Home, key: &str) -> Value {
    let (client, admin) = (client(home, key), admin(home));
    let files = client.get("/v1/files?limit=100").await.json();
    let mut hashes = BTreeMap::new();
    for file in files["data"].as_array().unwrap() {
        let id = file["id"].as_str().unwrap();
        let found = content(&client, id, &[]).await;
        assert_eq!(found.status, 200, "{id}: {}", found.text());
        hashes.insert(id.to_owned(), hex::encode(&Sha256::digest(&found.body)));
    }
    let mut keys = admin.get("/admin/keys").await.json();
    for key in keys["data"].as_array_mut().unwrap() {
        // The last use of a key is written with a delay, so it is not compared.
        key.as_object_mut().unwrap().retain(|name, _| !name.starts_with("last_use") && name != "usage");
    }
    json!({
        "files": files,
        "hashes": hashes,
        "batches": client.get("/v1/batches?limit=100").await.json(),
        "credits": admin.get("/admin/credits").await.json(),
        "keys": keys,
    })
}

/// Starts a gateway, uses it, and stops it; returns what it showed before the use and at the end.
async fn used(home: &Home, key: &str, uses: impl AsyncFnOnce(&Client)) -> [Value; 2] {
    let mut process = home.run().await;
    let before = view(home, key).await;
    uses(&client(home, key)).await;
    let is_written =
        || async { admin(home).get("/status").await.json()["ledger"]["unwritten_bytes"] == json!(0) };
    until_answered("the charges to be written", is_written).await;
    let after = view(home, key).await;
    process.signal("TERM");
    assert!(process.until_ended().await.success(), "{}", process.output());
    [before, after]
}

/// Requests, files and batches of a client.
async fn work(client: &Client) {
    let ask = json!({"model": "m", "max_tokens": 20, "messages": [{"role": "user", "content": "Hi"}]});
    for _ in 0..5 {
        let answer = client.post("/v1/chat/completions", &ask).await;
        assert!([200, 402, 503].contains(&answer.status), "{}", answer.text());
    }
    uploaded(client, &lines(200)).await;
    let finished = batch(client, &lines(30)).await;
    assert_eq!(ended(client, &finished).await["request_counts"]["completed"], 30);
    let cancelled = batch(client, &lines(500)).await;
    assert_eq!(cancel(client, &cancelled).await.status, 200);
    ended(client, &cancelled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_is_the_same_after_a_move_to_postgres_and_back() {
    let (provider, server) = (Provider::start().await, PostgresServer::start());
    let (before, between, after) =
        (home(&provider, None), home(&provider, Some(&server)), home(&provider, None));
    let (first, _) = before.key();
    succeeded(&before.command(&["accounts", "create", "other"]));
    succeeded(&before.command(&["keys", "create", "--account", "other"]));
    for account in ["default", "other"] {
        succeeded(&before.command(&["credits", "grant", account, "--credits", "1000"]));
    }
    let [_, shown] = used(&before, &first.key, work).await;
    let entries = ledger(&before);
    let (archive, _) = exported(&before, "archive");
    imported(&between, &archive);
    let count = assert_same_rows(&archive, &exported(&between, "again").0);
    assert_eq!(ledger(&between), entries);
    let [moved, shown_between] = used(&between, &first.key, work).await;
    assert_eq!(moved, shown);

    let entries_between = ledger(&between);
    assert!(entries_between.len() > entries.len() && entries_between.starts_with(&entries));
    let (archive, _) = exported(&between, "archive");
    imported(&after, &archive);
    assert_same_rows(&archive, &exported(&after, "again").0);
    assert_eq!(ledger(&after), entries_between);
    let [moved, _] = used(&after, &first.key, work).await;
    assert_eq!(moved, shown_between);
    assert!(ledger(&after).len() > entries_between.len());
    eprintln!("{count} rows and files, {} entries, the same after each move", entries_between.len());
}

/// Adds rows of keys and of their spending to the store of a home.
fn fill(home: &Home, count: usize) {
    let target = ConfigSource::File(home.config()).gateway_access().unwrap();
    let store = OpenStorage::open(&target.storage.unwrap()).unwrap().store;
    let key = store.scan(StoreTable::Keys, b"", None, 1).unwrap().rows.remove(0);
    let mut added = 0;
    while added < count {
        let mut rows = Transaction::new();
        for number in added..(added + ROWS).min(count) {
            let name = format!("{number:016x}").into_bytes();
            rows = match number % 4 {
                0 => rows.put(StoreTable::Keys, name, key.value.clone()),
                1 => rows.put(StoreTable::AccountKeys, [&b"default\0"[..], &name].concat(), []),
                2 => rows.put(StoreTable::Idempotency, name, [7; 40]),
                _ => rows.put(StoreTable::Measurements, name, [8; 120]),
            };
        }
        store.apply(rows).unwrap();
        added = (added + ROWS).min(count);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_million_rows_are_moved_within_a_minute() {
    let (provider, server) = (Provider::start().await, PostgresServer::start());
    let (before, between, after) =
        (home(&provider, None), home(&provider, Some(&server)), home(&provider, None));
    before.key();
    fill(&before, if is_long_run() { 1_000_000 } else { 5_000 });
    let (archive, saved) = exported(&before, "archive");
    let moved = imported(&between, &archive);
    let (again, saved_again) = exported(&between, "archive");
    let moved_back = imported(&after, &again);
    let count = assert_same_rows(&archive, &exported(&after, "again").0);
    let times =
        [("export", saved), ("import", moved), ("export back", saved_again), ("import back", moved_back)];
    eprintln!("{count} rows: {times:?}");
    if is_long_run() && optimised() {
        for (what, took) in times {
            assert!(took <= MILLION_WITHIN, "{what}: {took:?}");
        }
    }
}
