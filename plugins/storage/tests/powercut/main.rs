//! Simulated power cuts: a child uses a store while a preloaded shim records its system calls; then the test builds
//! disk contents that are possible after a cut at some moment, and opens each with the real store. Every transaction
//! that was acknowledged before the cut must be complete, and no other transaction may be partial.
//!
//! The long form is `PENSTOCK_POWERCUT_ROUNDS=20 cargo test -p penstock-storage --release --test powercut`.
#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod disk;
mod faults;
mod folders;
mod ledger;
mod trace;
mod workload;

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use penstock_storage::ledger::LedgerStore;
use penstock_storage::{Store, StoreOptions, open};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

use self::disk::{POLICIES, Policy, image};
use self::trace::{ACKS, Event};
use self::workload::{Acknowledged, check, work};

const WORKERS: u8 = 3;
/// Number of cuts per round; each is tested under every policy.
const CUTS: usize = 30;

fn options() -> StoreOptions {
    StoreOptions { ballast_bytes: 10_000, ..StoreOptions::default() }
}

/// Recorded run of a child.
struct Recorded {
    dir: TempDir,
    events: Vec<Event>,
}

/// Compiles the shim with the C compiler.
fn shim(into: &Path) -> PathBuf {
    let library = into.join("shim.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/powercut/shim.c");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .arg("-lpthread")
        .status()
        .expect("the power-cut test needs a C compiler named cc");
    assert!(compiled.success());
    library
}

/// Returns a command that runs only the test `entry` of this binary, under the shim.
fn child(dir: &Path, entry: &str) -> Command {
    let root = dir.join("root");
    fs::create_dir_all(&root).unwrap();
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", entry, "--ignored", "--nocapture", "--test-threads=1"])
        .env("LD_PRELOAD", shim(dir))
        .env("SHIM_ROOT", &root)
        .env("SHIM_LOG", dir.join("log"))
        .env("PENSTOCK_CHILD", &root);
    command
}

fn finish(mut command: Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Creates the directory for disk images: in memory if possible, since the checks sync often.
fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))).unwrap()
}

fn record(entry: &str) -> Recorded {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let root = dir.path().join("root");
    finish(child(dir.path(), entry));
    let events = trace::read(&dir.path().join("log"), &root);
    Recorded { dir, events }
}

/// Returns the directory of a child; `None` if the test does not run as a child.
fn as_child() -> Option<PathBuf> {
    env::var_os("PENSTOCK_CHILD").map(PathBuf::from)
}

/// Writer of acknowledgements that the shim records.
struct Acks(Mutex<File>);

impl Acks {
    fn open(root: &Path) -> Acks {
        Acks(Mutex::new(OpenOptions::new().create(true).append(true).open(root.join(ACKS)).unwrap()))
    }

    fn write(&self, worker: u8, n: u32) {
        self.0.lock().unwrap().write_all(format!("{worker} {n}\n").as_bytes()).unwrap();
    }
}

fn all_work(store: &Arc<dyn Store>, acks: &Acks, count: u32) {
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            scope.spawn(move || work(&**store, worker, count, |n| acks.write(worker, n)).unwrap());
        }
    });
}

#[test]
#[ignore = "run by other tests as a child process"]
fn child_that_creates_works_reopens_and_compacts() {
    let Some(root) = as_child() else { return };
    let acks = Acks::open(&root);
    let path = root.join("store");
    for count in [90, 60, 40] {
        let store = open(&path, options()).unwrap();
        all_work(&store, &acks, count);
    }
    penstock_storage::compact(&path, options()).unwrap();
    all_work(&open(&path, options()).unwrap(), &acks, 20);
}

#[test]
#[ignore = "run by other tests as a child process"]
fn child_that_trusts_the_flush_of_sled() {
    let Some(root) = as_child() else { return };
    let acks = Acks::open(&root);
    let db = sled::open(root.join("store")).unwrap();
    // Syncs all earlier changes, as the wrapper of sled does on opening, so that only the effect of the flushes is
    // tested.
    File::open(root.join("store/db")).unwrap().sync_all().unwrap();
    File::open(root.join("store/conf")).unwrap().sync_all().unwrap();
    for n in 1..=100_u32 {
        db.insert(n.to_be_bytes(), &[7; 100][..]).unwrap();
        db.flush().unwrap();
        acks.write(0, n);
    }
}

fn acknowledged(events: &[Event]) -> Acknowledged {
    let mut last = BTreeMap::new();
    for event in events {
        if let Event::Acknowledged { worker, n } = event {
            last.insert(*worker, *n);
        }
    }
    last
}

/// Opens the store of a disk image, checks it, and checks that it accepts writes.
fn judge(folder: &Path, acknowledged: &Acknowledged) -> Result<(), String> {
    let store = open(&folder.join("store"), options()).map_err(|error| format!("does not open: {error}"))?;
    check(&*store, WORKERS, acknowledged)?;
    let before = workload::head(&*store, 0).map_err(|error| error.to_string())?;
    work(&*store, 0, 1, |_| {}).map_err(|error| format!("does not work on: {error}"))?;
    let mut after: Acknowledged =
        (0..WORKERS).map(|worker| (worker, workload::head(&*store, worker).unwrap())).collect();
    after.insert(0, before + 1);
    drop(store);
    let again = open(&folder.join("store"), options()).map_err(|error| format!("reopens not: {error}"))?;
    check(&*again, WORKERS, &after)
}

/// Chooses moments of power cuts: a quarter before the first acknowledgement, a quarter after an acknowledgement, a
/// quarter at a change of names (such changes are rare and critical), and a quarter anywhere.
fn cuts(events: &[Event], count: usize, random: &mut StdRng) -> Vec<usize> {
    let positions = |of: fn(&Event) -> bool| -> Vec<usize> {
        (0..events.len()).filter(|at| of(&events[*at])).map(|at| at + 1).collect()
    };
    let acks = positions(|event| matches!(event, Event::Acknowledged { .. }));
    let named = positions(|event| {
        matches!(
            event,
            Event::Create(_)
                | Event::Folder(_)
                | Event::Rename { .. }
                | Event::Remove(_)
                | Event::Truncate { .. }
        )
    });
    (0..count)
        .map(|number| match number % 4 {
            0 => random.random_range(0..acks[0]),
            1 => acks[random.random_range(0..acks.len())],
            2 => named[random.random_range(0..named.len())],
            _ => random.random_range(0..=events.len()),
        })
        .collect()
}

fn assert_same_tree(made: &Path, real: &Path) {
    let list = |folder: &Path| {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.retain(|name| name != ACKS);
        names.sort();
        names
    };
    assert_eq!(list(made), list(real), "in {}", real.display());
    for name in list(real) {
        let (made, real) = (made.join(&name), real.join(&name));
        if real.is_dir() {
            assert_same_tree(&made, &real);
        } else {
            assert!(fs::read(&made).unwrap() == fs::read(&real).unwrap(), "{} differs", real.display());
        }
    }
}

#[test]
#[ignore = "run by other tests as a child process"]
fn child_that_keeps_a_ledger() {
    let Some(root) = as_child() else { return };
    let acks = Acks::open(&root);
    for count in [50, 30, 20] {
        let store = open(&root.join("store"), options()).unwrap();
        let book = LedgerStore::open(store, Some(&root.join("ledger"))).unwrap();
        ledger::work(&book, count, |n| acks.write(0, u32::try_from(n).unwrap())).unwrap();
    }
}

/// Opens the ledger of a disk image, checks it and its replica, and checks that it accepts commits.
fn judge_ledger(folder: &Path, acknowledged: &Acknowledged) -> Result<(), String> {
    let opened = || open(&folder.join("store"), options()).map_err(|error| format!("does not open: {error}"));
    let (copies, last) = (folder.join("ledger"), acknowledged.get(&0).copied().unwrap_or(0));
    let store = opened()?;
    let (book, head) = ledger::check(&store, &copies, u64::from(last))?;
    ledger::work(&book, 1, |_| {}).map_err(|error| format!("does not work on: {error}"))?;
    drop((book, store));
    ledger::check(&opened()?, &copies, head + 1)?;
    Ok(())
}

#[test]
fn no_power_cut_takes_an_acknowledged_batch_or_leaves_half_of_one() {
    let whole = (0..WORKERS).map(|worker| (worker, 210)).collect();
    try_cuts("child_that_creates_works_reopens_and_compacts", &whole, judge);
}

#[test]
fn no_power_cut_takes_an_acknowledged_entry_of_the_ledger_or_its_second_copy() {
    try_cuts("child_that_keeps_a_ledger", &Acknowledged::from([(0, 100)]), judge_ledger);
}

fn try_cuts(
    entry: &str,
    whole: &Acknowledged,
    judge: impl Fn(&Path, &Acknowledged) -> Result<(), String> + Sync,
) {
    let rounds = env::var("PENSTOCK_POWERCUT_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap());
    for round in 0..rounds {
        let Recorded { dir, events } = record(entry);
        // Checks that the recording is complete: replayed to the end, it must give the files that the child wrote.
        let all = dir.path().join("all");
        image(&events, events.len(), Policy::KeepAll, &mut StdRng::seed_from_u64(0), &all);
        assert_same_tree(&all, &dir.path().join("root"));
        assert_eq!(acknowledged(&events), *whole);

        let cuts = cuts(&events, CUTS, &mut StdRng::seed_from_u64(round));
        let images = scratch();
        let next = AtomicUsize::new(0);
        let failures = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let Some(cut) = cuts.get(number / POLICIES.len()) else { break };
                        let policy = POLICIES[number % POLICIES.len()];
                        let folder = images.path().join(number.to_string());
                        let mut random = StdRng::seed_from_u64(round << 32 | number as u64);
                        image(&events, *cut, policy, &mut random, &folder);
                        if let Err(why) = judge(&folder, &acknowledged(&events[..*cut])) {
                            failures.lock().unwrap().push(format!("cut {cut}, {policy:?}: {why}"));
                        }
                        fs::remove_dir_all(&folder).unwrap();
                    }
                });
            }
        });
        let failures = failures.into_inner().unwrap();
        assert!(failures.is_empty(), "round {round}: {} failed\n{}", failures.len(), failures.join("\n"));
    }
}

#[test]
fn the_same_power_cuts_lose_writes_that_sled_alone_acknowledged() {
    let Recorded { events, .. } = record("child_that_trusts_the_flush_of_sled");
    let images = scratch();
    let mut random = StdRng::seed_from_u64(1);
    let acks: Vec<_> =
        (0..events.len()).filter(|at| matches!(events[*at], Event::Acknowledged { .. })).collect();
    let lost = |policy: Policy, random: &mut StdRng| {
        let lost = (0..10).filter(|number| {
            let cut = acks[10 + number * 9] + 1;
            let folder = images.path().join(format!("{policy:?}{number}"));
            image(&events, cut, policy, random, &folder);
            let last = acknowledged(&events[..cut])[&0];
            let db = sled::open(folder.join("store")).unwrap();
            !(1..=last).all(|n| db.contains_key(n.to_be_bytes()).unwrap())
        });
        lost.count()
    };
    assert_eq!(lost(Policy::KeepAll, &mut random), 0, "a kill alone takes nothing");
    let cut = lost(Policy::LoseUnsynced, &mut random);
    assert!(cut >= 5, "only {cut} of 10 cuts took anything: the test has lost its teeth");
}

#[test]
fn the_check_tells_lost_half_and_foreign_batches() {
    use penstock_storage::{StoreTable, Transaction, open_in_memory};
    let store = open_in_memory();
    work(&*store, 0, 40, |_| {}).unwrap();
    let at = |n| Acknowledged::from([(0, n)]);
    check(&*store, 1, &at(40)).unwrap();
    check(&*store, 1, &at(39)).unwrap();
    assert!(check(&*store, 1, &at(41)).is_err(), "a lost batch");
    assert!(check(&*store, 1, &at(38)).is_err(), "a batch that nobody made yet");
    store.apply(Transaction::new().put(StoreTable::Ledger, b"half", b"")).unwrap();
    assert!(check(&*store, 1, &at(40)).is_err(), "a row that belongs to no batch");
    store.apply(Transaction::new().delete(StoreTable::Ledger, b"half")).unwrap();
    check(&*store, 1, &at(40)).unwrap();
    let row = store.scan(StoreTable::Ledger, b"", None, 1).unwrap().rows.remove(0);
    store.apply(Transaction::new().put(StoreTable::Ledger, row.key.clone(), b"other")).unwrap();
    assert!(check(&*store, 1, &at(40)).is_err(), "a row with other bytes");
    store.apply(Transaction::new().delete(StoreTable::Ledger, row.key)).unwrap();
    assert!(check(&*store, 1, &at(40)).is_err(), "a row that is gone");
}
