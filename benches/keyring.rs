//! Benchmark of many keys, and of the limits of a request: `cargo bench --bench keyring`.
//!
//! 100,000 keys with limits and model lists are created in a store and loaded as at a start of the gateway. The load
//! must take less than one second and less than 100 MiB. Then the limit checks of one request are measured:
//! reservation, settlement, and the headers of a response.
#![allow(missing_docs, reason = "the macros of the harness make items without docs")]
#![allow(clippy::unwrap_used, reason = "what is made up here is well-formed")]
#![allow(clippy::print_stdout, reason = "figures are for whoever runs this")]

use criterion::{Criterion, criterion_group, criterion_main};
use penstock::auth::key_cache::KeyCache;
use penstock::config::settings::{StorageEngine, StorageSettings};
use penstock::limits::rate_limit;
use penstock::proxy::response::head::ResponseHead;
use penstock::storage::stores::OpenStorage;
use penstock::telemetry::request_id::RequestId;
use penstock::time::clock::ProcessClock;
use penstock_core::{Dialect, MicroCredits};
use penstock_limits::{ActualCost, CostEstimate, WorkClass};
use penstock_storage::audit::ChangeDescription;
use penstock_storage::keys::{KeyDigest, KeyLimits, KeyRecord};
use penstock_storage::{StoreTable, Transaction};
use std::hint::black_box;
use std::time::{Duration, Instant};

const KEYS: u32 = 100_000;
const ACCOUNTS: u32 = 500;
/// Maximum load time, and maximum memory in bytes.
const WITHIN: Duration = Duration::from_secs(1);
const BYTES: u64 = 100 << 20;

fn key(number: u32) -> KeyRecord {
    KeyRecord {
        id: format!("{number:016}"),
        digest: KeyDigest([7; 32]),
        name: format!("the key of project {number}"),
        account: format!("account-{}", number % ACCOUNTS),
        scopes: vec!["inference.chat".to_owned(), "inference.models".to_owned()],
        models: Some(vec!["llama-3.1-8b-instruct".to_owned(), "mistral-small-3.2".to_owned()]),
        limits: KeyLimits {
            requests_per_minute: Some(600),
            tokens_per_minute: Some(1_000_000),
            concurrent: Some(32),
            budget_per_day: Some(1 << 40),
            budget_per_month: Some(1 << 44),
        },
        expires: Some(4_000_000_000),
        store_responses: false,
        created: 1_763_800_000,
        previous: None,
        rotated: None,
        last_used: Some(1_763_812_800),
        revoked: None,
    }
}

/// Creates the keys and their accounts: the first key with the usual function, the others as copies of its row, 900
/// per transaction.
fn fill(stores: &OpenStorage) {
    let entry = ChangeDescription {
        at: 1,
        who: "bench".to_owned(),
        what: "key.create".to_owned(),
        target: String::new(),
        change: serde_json::Value::Null,
    };
    stores.keys.insert(&key(0), &entry).unwrap();
    let row = stores.store.get(StoreTable::Keys, key(0).id.as_bytes()).unwrap().unwrap();
    let row = String::from_utf8(row).unwrap();
    let numbers: Vec<u32> = (1..KEYS).collect();
    for some in numbers.chunks(900) {
        let mut batch = Transaction::new();
        for number in some {
            let row = row
                .replace(&key(0).id, &key(*number).id)
                .replace("account-0", &key(*number).account)
                .replace("project 0", &format!("project {number}"));
            batch = batch.put(StoreTable::Keys, key(*number).id, row);
        }
        stores.store.apply(batch).unwrap();
    }
    let mut accounts = Transaction::new();
    for number in 0..ACCOUNTS {
        let id = format!("account-{number}");
        let row = format!("{{\"v\":1,\"id\":\"{id}\",\"name\":\"Account {number}\",\"created\":5}}");
        accounts = accounts.put(StoreTable::Accounts, format!("a/{id}"), row);
    }
    stores.store.apply(accounts).unwrap();
}

/// Returns the resident memory of this process, bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Returns the processor time of this thread: on a busy machine wall-clock time is meaningless.
fn cpu() -> Duration {
    let figures = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(figures.split(' ').next().unwrap().parse().unwrap())
}

/// Measures by [`cpu`] instead of wall-clock time.
fn bench(c: &mut Criterion, name: &str, mut work: impl FnMut()) {
    c.bench_function(name, |b| {
        b.iter_custom(|times| {
            let began = cpu();
            for _ in 0..times {
                work();
            }
            // The scheduler's counter may lag by a few milliseconds, which is negligible over many samples.
            cpu().saturating_sub(began).max(Duration::from_nanos(1))
        });
    });
}

fn measure(c: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let engine = StorageEngine::EMBEDDED_FOLDER;
    let storage = StorageSettings {
        path: folder.path().to_owned(),
        ballast_bytes: 0,
        engine,
        pepper: None,
        fleet: None,
    };
    let stores = OpenStorage::open(&storage).unwrap();
    fill(&stores);
    // Reads all keys before the measurement. Otherwise the store's own cache would be counted as memory of the key
    // cache.
    let mut after = None;
    loop {
        let page = stores.keys.list(None, after.as_deref(), 1_000).unwrap();
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let (before, began, began_cpu) = (resident(), Instant::now(), cpu());
    let ring = KeyCache::load(&stores, ProcessClock::start()).unwrap();
    let (wall, took) = (began.elapsed(), cpu().saturating_sub(began_cpu));
    let bytes = resident().saturating_sub(before);
    assert_eq!(ring.key_count(), usize::try_from(KEYS).unwrap());
    println!(
        "{KEYS} keys load in {} ms of processor time, {} ms by the wall, and hold {} KiB",
        took.as_millis(),
        wall.as_millis(),
        bytes / 1024
    );
    assert!(took < WITHIN && bytes < BYTES, "{took:?}, {bytes} bytes");

    let (clock, grant) = (ProcessClock::start(), ring.find_principal(&key(4).id).unwrap());
    let cost = CostEstimate { input: 90, output: 51, money: MicroCredits(42_000) };
    let used = ActualCost { input: 88, output: 31, money: MicroCredits(31_000) };
    bench(c, "limits of a request: enter, pass, settle", || {
        let entered =
            black_box(rate_limit::acquire_provisional_limits_permit(&grant, WorkClass::Request, clock));
        let reserved = entered.map(|(mut entry, _)| rate_limit::reserve_limits(&mut entry, black_box(&cost)));
        if let Ok(Ok(mut pass)) = reserved {
            pass.settle(black_box(&used));
        }
    });
    bench(c, "the clock alone, three times", || {
        black_box((clock.steady_now(), clock.steady_now(), clock.steady_now()));
    });
    let id = RequestId::random();
    let now = clock.steady_now();
    bench(c, "a head without limits", || {
        black_box(ResponseHead::new(200, &id));
    });
    for dialect in [Dialect::Chat, Dialect::Messages] {
        bench(c, &format!("a head with limits, {}", dialect.name()), || {
            let status = rate_limit::limit_status(&grant, now);
            black_box(ResponseHead::new(200, &id).with_rate_limits(dialect, &status, now, None));
        });
    }
}

criterion_group!(benches, measure);
criterion_main!(benches);
