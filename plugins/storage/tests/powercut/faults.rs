//! Full and failing disks, simulated by the shim: the store acknowledges no lost write, retains what it acknowledged,
//! and resumes by itself where possible.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread::park_timeout;
use std::time::{Duration, Instant};

use penstock_storage::{Store, StoreError, StoreHealth, StoreOptions, StoreTable, Transaction, open, repair};

use crate::workload::{Acknowledged, check, head, work};
use crate::{as_child, child, finish};

const QUOTA: u64 = 30_000_000;
/// Free bytes for a compaction: fewer than the rows of [`grown`] take.
const QUOTA_HEADROOM: u64 = 2_000_000;

fn options() -> StoreOptions {
    StoreOptions { ballast_bytes: 10_000_000, ..StoreOptions::default() }
}

/// Returns the path, from an environment variable, of a file whose existence switches a fault of the shim on or off.
fn marker(variable: &str) -> PathBuf {
    env::var_os(variable).unwrap().into()
}

/// Waits until the store works again. The store guarantees ten seconds; the test allows more, for a loaded machine.
fn until_it_works(store: &dyn Store, mut refused: impl FnMut(StoreError)) {
    let patience = Instant::now();
    while let Err(error) = work(store, 0, 1, |_| {}) {
        refused(error);
        assert!(patience.elapsed() < Duration::from_secs(60), "it does not go on");
        park_timeout(Duration::from_millis(20));
    }
}

fn failed<T>(answer: Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Io { .. }))
}

#[test]
#[ignore = "run by other tests as a child process"]
fn child_on_a_disk_that_fails_to_write_for_a_while() {
    let Some(root) = as_child() else { return };
    let path = root.join("store");
    let store = open(&path, options()).unwrap();
    let mut acknowledged = Acknowledged::new();
    for round in 0..3 {
        work(&*store, 0, 20, |n| {
            acknowledged.insert(0, n);
        })
        .unwrap();
        fs::write(marker("SHIM_EIO_WRITE"), b"").unwrap();
        assert!(failed(work(&*store, 0, 1, |_| {})));
        assert!(failed(work(&*store, 0, 1, |_| {})));
        assert_eq!(store.health(), StoreHealth::Failed);
        fs::remove_file(marker("SHIM_EIO_WRITE")).unwrap();
        if round == 1 {
            // Calls only reads, which suffice to make the store recover.
            let patience = Instant::now();
            while failed(store.get(StoreTable::Meta, &[0])) {
                assert!(patience.elapsed() < Duration::from_secs(60), "it does not go on");
                park_timeout(Duration::from_millis(20));
            }
            check(&*store, 1, &acknowledged).unwrap();
        }
        until_it_works(&*store, |refused| assert!(matches!(refused, StoreError::Io { .. }), "{refused}"));
        assert_eq!(store.health(), StoreHealth::Ready);
        // The refused transaction may have been stored; in both cases the store is complete.
        acknowledged.insert(0, head(&*store, 0).unwrap());
        check(&*store, 1, &acknowledged).unwrap();
    }
    drop(store);
    check(&*open(&path, options()).unwrap(), 1, &acknowledged).unwrap();
}

#[test]
fn a_disk_that_fails_to_write_for_a_while_takes_nothing() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut command = child(dir.path(), "faults::child_on_a_disk_that_fails_to_write_for_a_while");
    command.env("SHIM_EIO_WRITE", dir.path().join("eio"));
    finish(command);
}

#[test]
#[ignore = "run by other tests as a child process"]
fn child_on_a_disk_that_fails_to_sync_once() {
    let Some(root) = as_child() else { return };
    let path = root.join("store");
    let store = open(&path, options()).unwrap();
    work(&*store, 0, 20, |_| {}).unwrap();
    fs::write(marker("SHIM_EIO_SYNC"), b"").unwrap();
    assert!(failed(work(&*store, 0, 1, |_| {})));
    fs::remove_file(marker("SHIM_EIO_SYNC")).unwrap();
    // The disk syncs again. But the store must refuse writes: the next sync would also acknowledge the data that the
    // failed sync has lost.
    let refused = work(&*store, 1, 1, |_| {});
    let why = StoreError::Io { what: "write after a failed sync", kind: ErrorKind::Other };
    assert_eq!(refused, Err(why));
    assert_eq!(store.health(), StoreHealth::Failed);
    assert!(head(&*store, 0).unwrap() >= 20, "it still reads");
    drop(store);
    let store = open(&path, options()).unwrap();
    assert_eq!(store.health(), StoreHealth::Ready);
    check(&*store, 1, &Acknowledged::from([(0, head(&*store, 0).unwrap())])).unwrap();
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_until_a_restart() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut command = child(dir.path(), "faults::child_on_a_disk_that_fails_to_sync_once");
    command.env("SHIM_EIO_SYNC", dir.path().join("eio"));
    finish(command);
}

#[test]
#[ignore = "run by other tests as a child process"]
fn child_on_a_disk_that_fills_up() {
    let Some(root) = as_child() else { return };
    let path = root.join("store");
    let store = open(&path, options()).unwrap();
    let mut acknowledged = Acknowledged::new();
    let refused = work(&*store, 0, u32::MAX, |n| {
        acknowledged.insert(0, n);
    });
    assert_eq!(refused, Err(StoreError::Full));
    assert_eq!(store.health(), StoreHealth::Full);
    assert!(!path.join("ballast").exists(), "the ballast was not given up");
    check(&*store, 1, &acknowledged).unwrap();
    assert_eq!(work(&*store, 0, 1, |_| {}), Err(StoreError::Full));
    drop(store);

    // The disk is still full: the store opens, reads, and refuses writes.
    let store = open(&path, options()).unwrap();
    assert_eq!(store.health(), StoreHealth::Full);
    check(&*store, 1, &acknowledged).unwrap();
    assert_eq!(work(&*store, 0, 1, |_| {}), Err(StoreError::Full));

    // The disk has free space again: the store resumes by itself within the guaranteed ten seconds.
    fs::write(marker("SHIM_LIFT"), b"").unwrap();
    until_it_works(&*store, |refused| assert_eq!(refused, StoreError::Full));
    assert_eq!(store.health(), StoreHealth::Ready);
    assert!(path.join("ballast").exists(), "the ballast was not secured again");
    work(&*store, 0, 50, |_| {}).unwrap();
    let last = Acknowledged::from([(0, head(&*store, 0).unwrap())]);
    drop(store);
    check(&*open(&path, options()).unwrap(), 1, &last).unwrap();
}

#[test]
fn a_full_disk_takes_nothing_and_ends_by_itself() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut command = child(dir.path(), "faults::child_on_a_disk_that_fills_up");
    command.env("SHIM_QUOTA", QUOTA.to_string()).env("SHIM_LIFT", dir.path().join("lift"));
    finish(command);
}

/// Creates a store whose rows were written `rounds` times, so that its log is about as many times their size; returns
/// its rows.
fn grown(path: &Path, rounds: u8) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let never = StoreOptions { compact_over_bytes: u64::MAX, ..options() };
    let store = open(path, never).unwrap();
    let mut rows = BTreeMap::new();
    for round in 0..rounds {
        for number in 0..96_u8 {
            let value = vec![number ^ round; 32_768];
            store.apply(Transaction::new().put(StoreTable::Files, [number], value.clone())).unwrap();
            rows.insert(vec![number], value);
        }
    }
    rows
}

#[test]
#[ignore = "run by other tests as a child process"]
fn child_process_without_disk_space_to_compact() {
    let Some(root) = as_child() else { return };
    let path = root.join("store");
    let store = open(&path, StoreOptions { compact_over_bytes: 1, ..options() }).unwrap();
    assert!(!path.join("sled.new").exists(), "the copy was left behind");
    assert_eq!(store.health(), StoreHealth::Ready);
    store.apply(Transaction::new().put(StoreTable::Files, b"later", vec![1; 10_000])).unwrap();
}

#[test]
fn a_compaction_on_a_full_disk_leaves_the_store_unchanged() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("root/store");
    let rows = grown(&path, 8);
    // The quota has space for only a part of the compacted copy.
    let quota = size(&dir.path().join("root")) + QUOTA_HEADROOM;
    let mut command = child(dir.path(), "faults::child_process_without_disk_space_to_compact");
    command.env("SHIM_QUOTA", quota.to_string());
    finish(command);
    let store = open(&path, options()).unwrap();
    for (key, value) in rows {
        assert_eq!(store.get(StoreTable::Files, &key).unwrap(), Some(value));
    }
    assert!(store.get(StoreTable::Files, b"later").unwrap().is_some());
}

#[test]
#[ignore = "run by other tests as a child process"]
fn child_that_repairs_a_store() {
    let Some(root) = as_child() else { return };
    let damaged = root.with_file_name("damaged");
    let repaired = repair(&damaged, &root.join("repaired"), options());
    let expected = env::var("EXPECTED").unwrap();
    match repaired {
        Err(StoreError::Full) => assert_eq!(expected, "full"),
        Err(StoreError::Io { .. }) => assert_eq!(expected, "io"),
        other => panic!("{other:?} instead of {expected}"),
    }
    let names = fs::read_dir(root.join("repaired")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["lock"], "the incomplete copies take disk space");
}

#[test]
fn a_repair_that_the_disk_refuses_does_not_report_damage() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // One round, because sled would remove outdated rows from the copy of the log, which frees space for the new log.
    let rows = grown(&dir.path().join("damaged"), 1);
    // Quotas with space for no copy, for only a part of the copy of the old log, for that copy, and for that copy and
    // a part of the new log.
    let log = size(&dir.path().join("damaged/sled"));
    for quota in [100_000, log / 2, log + 250_000, log + 1_000_000] {
        let mut command = child(dir.path(), "faults::child_that_repairs_a_store");
        command.env("SHIM_QUOTA", quota.to_string()).env("EXPECTED", "full");
        finish(command);
        fs::remove_dir_all(dir.path().join("root")).unwrap();
    }
    fs::write(dir.path().join("eio"), b"").unwrap();
    let mut command = child(dir.path(), "faults::child_that_repairs_a_store");
    command.env("SHIM_EIO_WRITE", dir.path().join("eio")).env("EXPECTED", "io");
    finish(command);
    let to = dir.path().join("repaired");
    assert!(repair(&dir.path().join("damaged"), &to, options()).unwrap().complete);
    let store = open(&to, options()).unwrap();
    for (key, value) in rows {
        assert_eq!(store.get(StoreTable::Files, &key).unwrap(), Some(value));
    }
}

/// Returns the bytes of all files below a directory.
fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { size(&path) } else { path.metadata().unwrap().len() }).sum()
}
