//! Tests of guarantees that only the durable engine gives, with access to its internals.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::fs;

use super::*;

fn small() -> StoreOptions {
    StoreOptions { ballast_bytes: 0, ..StoreOptions::default() }
}

fn fill(store: &dyn Store, rows: u32) {
    for n in 0..rows {
        store.apply(Transaction::new().put(StoreTable::Meta, n.to_be_bytes(), vec![n as u8; 500])).unwrap();
    }
}

#[test]
fn a_second_opener_gets_an_error_that_the_store_is_locked() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), small()).unwrap();
    let path = dir.path().canonicalize().unwrap();
    assert_eq!(open(dir.path(), small()).err(), Some(StoreError::Locked { path: path.clone() }));
    assert_eq!(compact(dir.path(), small()).err(), Some(StoreError::Locked { path }));
    drop(store);
    open(dir.path(), small()).unwrap();
}

#[test]
fn rows_are_there_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..4_u8 {
        let store = open(dir.path(), small()).unwrap();
        for earlier in 0..round {
            assert_eq!(store.get(StoreTable::Keys, &[earlier]).unwrap(), Some(vec![earlier]));
        }
        store.apply(Transaction::new().put(StoreTable::Keys, [round], [round])).unwrap();
    }
}

#[test]
fn a_left_over_of_a_snapshot_does_not_keep_the_store_from_opening() {
    let dir = tempfile::tempdir().unwrap();
    fill(&*open(dir.path(), small()).unwrap(), 10);
    fs::write(dir.path().join("sled/snap.00000000000FFFFF.generating"), b"half").unwrap();
    let store = open(dir.path(), small()).unwrap();
    assert_eq!(store.verify().unwrap().rows, 10);
}

#[test]
fn unfinished_copies_are_removed_and_a_finished_one_takes_over() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fill(&*open(dir.path(), small()).unwrap(), 3);
    // Crash after the new log was complete, before the old log was moved away.
    fs::rename(at("sled"), at("sled.next")).unwrap();
    fill(&*open(&at("other"), small()).unwrap(), 7);
    fs::rename(at("other/sled"), at("sled")).unwrap();
    fs::create_dir(at("sled.new")).unwrap();
    assert_eq!(open(dir.path(), small()).unwrap().verify().unwrap().rows, 3);
    // Crash after the old log was moved away.
    fs::rename(at("sled"), at("sled.next")).unwrap();
    fs::create_dir(at("sled.old")).unwrap();
    assert_eq!(open(dir.path(), small()).unwrap().verify().unwrap().rows, 3);
    for gone in ["sled.new", "sled.next", "sled.old"] {
        assert!(!at(gone).exists(), "{gone} is still there");
    }
}

#[test]
fn compaction_retains_every_row_and_frees_disk_space() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), small()).unwrap();
    fill(&*store, 40);
    for round in 0..250_u8 {
        store.apply(Transaction::new().put(StoreTable::Files, b"churn", vec![round; 65_000])).unwrap();
    }
    let rows = |store: &dyn Store| {
        let mut rows = Vec::new();
        store
            .copy_rows(&mut |row| {
                rows.push((row.table, row.key.to_vec(), row.value.map(<[u8]>::to_vec)));
                Ok(())
            })
            .unwrap();
        rows
    };
    let before = rows(&*store);
    drop(store);
    let compacted = compact(dir.path(), small()).unwrap();
    assert!(compacted.bytes_after < compacted.bytes_before, "{compacted:?}");
    assert_eq!(rows(&*open(dir.path(), small()).unwrap()), before);
}

#[test]
fn opening_compacts_a_log_that_is_far_larger_than_its_rows() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), small()).unwrap();
    for round in 0..250_u8 {
        store.apply(Transaction::new().put(StoreTable::Files, b"churn", vec![round; 65_000])).unwrap();
    }
    drop(store);
    let size = || fs::metadata(dir.path().join("sled/db")).unwrap().len();
    let before = size();
    let store = open(dir.path(), StoreOptions { compact_over_bytes: 100_000, ..small() }).unwrap();
    assert!(size() < before, "{} is not under {before}", size());
    assert_eq!(store.get(StoreTable::Files, b"churn").unwrap(), Some(vec![249; 65_000]));
}

#[test]
fn opening_compacts_nothing_where_a_second_log_would_not_fit() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), small()).unwrap();
    for round in 0..250_u8 {
        store.apply(Transaction::new().put(StoreTable::Files, b"churn", vec![round; 65_000])).unwrap();
    }
    drop(store);
    let size = || fs::metadata(dir.path().join("sled/db")).unwrap().len();
    let before = size();
    // No file system has enough space for this reserve file next to the copy.
    let options = StoreOptions { compact_over_bytes: 100_000, ballast_bytes: 1 << 60, ..small() };
    let store = open(dir.path(), options).unwrap();
    assert!(size() >= before, "{} is under {before}", size());
    assert_eq!(store.get(StoreTable::Files, b"churn").unwrap(), Some(vec![249; 65_000]));
}

#[test]
fn a_ballast_larger_than_the_disk_leaves_the_disk_alone() {
    let dir = tempfile::tempdir().unwrap();
    // More bytes than any disk has: writing them would fill the disk long before the end of the file.
    let options = StoreOptions { ballast_bytes: 1 << 60, ..small() };
    let store = open(dir.path(), options).unwrap();
    assert_eq!(store.health(), StoreHealth::Full);
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with("ballast")), "{left:?}");
}

#[test]
fn the_ballast_is_made_once_and_has_its_size_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions { ballast_bytes: 3_000_000, ..small() };
    drop(open(dir.path(), options).unwrap());
    let ballast = fs::metadata(dir.path().join("ballast")).unwrap();
    assert_eq!(ballast.len(), 3_000_000);
    drop(open(dir.path(), options).unwrap());
    let again = fs::metadata(dir.path().join("ballast")).unwrap();
    assert_eq!(ballast.modified().unwrap(), again.modified().unwrap());
}

#[test]
fn a_writer_that_is_held_up_shows_in_the_health() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), StoreOptions { stuck_after: Duration::ZERO, ..small() }).unwrap();
    fill(&*store, 3);
    // A copy pauses writes in its last step. This test makes that step wait until the health reports the writer as
    // stuck.
    let mut seen = false;
    std::thread::scope(|scope| {
        let (go, wait) = sync_channel(1);
        scope.spawn({
            let store = &store;
            move || {
                wait.recv().unwrap();
                store.apply(Transaction::new().put(StoreTable::Meta, b"late", b"")).unwrap();
            }
        });
        let (mut rows, mut early) = (0, 0);
        store
            .copy_rows(&mut |row| {
                rows += 1;
                if rows == 3 {
                    // This row is written before the scan reaches it, so the scan reads it. It is copied again while
                    // writes are paused.
                    store.apply(Transaction::new().put(StoreTable::Meta, b"early", b"")).unwrap();
                }
                early += u32::from(row.key == b"early");
                if row.key == b"early" && early == 2 {
                    let _ = go.try_send(());
                    while !seen {
                        seen = matches!(store.health(), StoreHealth::Stuck { .. });
                        std::thread::yield_now();
                    }
                }
                Ok(())
            })
            .unwrap();
        // Sent in any case, so that the test also ends after a failure.
        let _ = go.try_send(());
    });
    assert!(seen);
    assert_eq!(store.get(StoreTable::Meta, b"late").unwrap(), Some(vec![]));
    assert_eq!(store.health(), StoreHealth::Ready);
}

#[test]
fn repair_saves_the_rows_of_a_store_that_does_not_open() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fill(&*open(&from, small()).unwrap(), 50);
    // Reopening writes a snapshot, which is then damaged.
    drop(open(&from, small()).unwrap());
    let snapshot = fs::read_dir(from.join("sled"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.file_name().unwrap().to_str().unwrap().starts_with("snap"))
        .unwrap();
    let mut bytes = fs::read(&snapshot).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&snapshot, bytes).unwrap();
    assert!(matches!(open(&from, small()), Err(StoreError::Corrupt { .. })));
    let repaired = repair(&from, &to, small()).unwrap();
    assert_eq!(repaired, RepairOutcome { saved: 50, damaged: 0, complete: true, loss: None });
    let store = open(&to, small()).unwrap();
    assert_eq!(store.get(StoreTable::Meta, &49_u32.to_be_bytes()).unwrap(), Some(vec![49; 500]));
    assert!(matches!(repair(&from, &dir.path().join("to"), small()), Err(StoreError::Locked { .. })));
}

#[test]
fn repair_reads_the_commits_behind_damage_and_reports_what_it_lost() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    fill(&*open(&from, small()).unwrap(), 300);
    let log = from.join("sled/db");
    let whole = fs::read(&log).unwrap();
    let used = whole.iter().rposition(|byte| *byte != 0).unwrap();
    let mut behind = 0;
    for (round, at) in (1..12).map(|part| used * part / 12).enumerate() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&log, bytes).unwrap();
        let to = dir.path().join(round.to_string());
        let repaired = repair(&from, &to, small()).unwrap();
        let store = open(&to, small()).unwrap();
        let right = (0..300_u32)
            .filter(|n| store.get(StoreTable::Meta, &n.to_be_bytes()).unwrap() == Some(vec![*n as u8; 500]))
            .count();
        assert_eq!(repaired.loss.is_none(), right == 300, "at {at}: {repaired:?}, {right} rows");
        assert!(repaired.loss.is_none_or(|loss| loss.committed_rows == Some(300)), "at {at}: {repaired:?}");
        behind += u32::from(right > 250 && repaired.loss.is_none_or(|loss| loss.commits == 0));
    }
    assert!(behind >= 9, "the rows behind the damage were saved in {behind} of 11 repairs");
    // The last commits are gone.
    fs::write(&log, &whole[..used * 9 / 10]).unwrap();
    let repaired = repair(&from, &dir.path().join("short"), small()).unwrap();
    assert!(repaired.loss.is_some_and(|loss| (20..60).contains(&loss.commits)), "{repaired:?}");
}

#[test]
fn verify_and_get_find_a_damaged_row_and_repair_leaves_it_out() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fill(&*open(&from, small()).unwrap(), 5);
    let folder = StoreDir::acquire(&from).unwrap();
    let live = SledHandle::open(&folder.database_path(), &small()).unwrap();
    live.flip_bit(&row::disk_key(StoreTable::Meta, &2_u32.to_be_bytes()));
    drop((live, folder));
    let store = open(&from, small()).unwrap();
    let verified = store.verify().unwrap();
    assert_eq!((verified.rows, verified.damaged, verified.findings.len()), (4, 1, 1));
    assert!(matches!(store.get(StoreTable::Meta, &2_u32.to_be_bytes()), Err(StoreError::Corrupt { .. })));
    assert!(matches!(store.scan(StoreTable::Meta, b"", None, 10), Err(StoreError::Corrupt { .. })));
    assert!(matches!(crate::export(&*store, &mut Vec::new()), Err(StoreError::Corrupt { .. })));
    drop(store);
    let loss = Some(RepairLoss { committed_rows: Some(5), commits: 0 });
    assert_eq!(
        repair(&from, &to, small()).unwrap(),
        RepairOutcome { saved: 4, damaged: 1, complete: true, loss }
    );
}

#[test]
fn values_of_the_largest_size_stay_in_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), small()).unwrap();
    let blobs = || fs::read_dir(dir.path().join("sled/blobs")).unwrap().count();
    let mut most = 0;
    for round in 0..3_u8 {
        for n in 0..40_u8 {
            let mut batch = Transaction::new();
            for part in 0..4_u8 {
                batch = batch.put(StoreTable::Files, [n, part], vec![round; crate::MAX_VALUE_BYTES]);
            }
            store.apply(batch).unwrap();
            most = most.max(blobs());
        }
    }
    assert_eq!(most, 0, "sled keeps pages of rows in files that it never syncs");
}

#[test]
fn a_failed_read_of_a_commit_does_not_change_the_counts_of_a_verification() {
    let dir = tempfile::tempdir().unwrap();
    fill(&*open(dir.path(), small()).unwrap(), 10);
    let engine = SledEngine::open(StoreDir::acquire(dir.path()).unwrap(), small()).unwrap();
    let key = |n: u32| row::disk_key(StoreTable::Meta, &n.to_be_bytes());
    let counted = *engine.content_digest.lock();
    *engine.verify_pass.lock() = Some(engine::VerifyProgress { cursor: Some(key(u32::MAX)), counted });
    let unreadable = |key| {
        *engine.sled.read().as_ref().unwrap().unreadable_key.lock() = key;
    };
    let write = || {
        let writes = (3..8).map(|n| (key(n), (n % 2 == 0).then(|| vec![9])));
        engine.commit(writes.chain([(key(100), Some(vec![1]))]).collect())
    };
    let counts = || engine.verify_pass.lock().as_ref().map(|pass| (pass.counted.rows, pass.counted.sum));
    unreadable(Some(key(6)));
    assert!(write().is_err());
    assert_eq!(counts(), Some((counted.rows, counted.sum)));
    unreadable(None);
    write().unwrap();
    let marker = *engine.content_digest.lock();
    assert_eq!((counts(), marker.rows), (Some((marker.rows, marker.sum)), 8));
}
