//! Ledger in a store with its replica: refused commits, repairs, and an export with import.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

#[path = "powercut/ledger.rs"]
mod workload;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use penstock_storage::ledger::{
    FoundReplica, LedgerCommit, LedgerStore, LedgerTip, MAX_BLOCK_BYTES, RowFence, RowWrite,
};
use penstock_storage::{
    MAX_VALUE_BYTES, Store, StoreError, StoreOptions, StoreTable, Transaction, export, import, open,
    open_in_memory,
};

use self::workload::{check, group, work};

fn options() -> StoreOptions {
    StoreOptions { ballast_bytes: 0, ..StoreOptions::default() }
}

/// Creates a ledger of 90 commits over three months, with a replica.
fn made(dir: &Path) -> Arc<dyn Store> {
    let store = open(&dir.join("store"), options()).unwrap();
    let ledger = LedgerStore::open(store.clone(), Some(&dir.join("ledger"))).unwrap();
    work(&ledger, 90, |_| {}).unwrap();
    store
}

fn check_whole(store: &Arc<dyn Store>, dir: &Path) {
    check(store, &dir.join("ledger"), 90).unwrap();
}

#[test]
fn a_commit_is_made_once_however_often_it_is_asked_for() {
    for store in [open_in_memory(), open(&tempfile::tempdir().unwrap().path().join("s"), options()).unwrap()]
    {
        let dir = tempfile::tempdir().unwrap();
        let ledger = LedgerStore::open(store.clone(), Some(dir.path())).unwrap();
        for n in 1..=50 {
            assert!(ledger.append(&group(n)).unwrap().replicated);
            // Simulates a lost reply: the same commit is retried.
            assert!(ledger.append(&group(n)).unwrap().replicated);
        }
        assert!(matches!(ledger.append(&group(40)), Err(StoreError::Guard { .. })), "an older one");
        assert!(matches!(ledger.append(&group(52)), Err(StoreError::Guard { .. })), "one that skips");
        check(&store, dir.path(), 50).unwrap();
    }
}

#[test]
fn sheets_over_their_cap_are_refused_and_nothing_is_written() {
    let ledger = LedgerStore::open_read_only(open_in_memory());
    let mut large = group(1);
    large.blocks[0].text = vec![b'x'; MAX_BLOCK_BYTES + 1];
    assert!(matches!(ledger.append(&large), Err(StoreError::TooLarge { .. })));
    let mut odd = group(1);
    odd.blocks[0].month = "2026-1".to_owned();
    assert!(matches!(ledger.append(&odd), Err(StoreError::InvalidArgument { .. })));
    assert_eq!((ledger.tip().unwrap(), ledger.months().unwrap()), (None, vec![]));
}

fn row(key: &str, value: Option<&[u8]>) -> RowWrite {
    RowWrite { table: StoreTable::Files, key: key.as_bytes().to_vec(), value: value.map(<[u8]>::to_vec) }
}

#[test]
fn rows_are_there_with_the_commit_or_not_at_all() {
    let store = open_in_memory();
    let ledger = LedgerStore::open_read_only(store.clone());
    let mut refused = group(2);
    refused.extra_rows.push(row("of two", Some(b"2")));
    assert!(matches!(ledger.append(&refused), Err(StoreError::Guard { .. })), "it skips the first");
    let mut large = group(1);
    large.extra_rows.push(row("large", Some(&vec![0; MAX_VALUE_BYTES + 1])));
    assert!(matches!(ledger.append(&large), Err(StoreError::TooLarge { .. })));
    assert_eq!(
        (ledger.tip().unwrap(), store.scan(StoreTable::Lines, b"", None, 9).unwrap().rows),
        (None, vec![])
    );
    assert!(store.get(StoreTable::Files, b"of two").unwrap().is_none());
    ledger.append(&group(1)).unwrap();
    ledger.append(&refused).unwrap();
    assert_eq!(store.get(StoreTable::Files, b"of two").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn rows_alone_leave_the_ledger_where_it_stands() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_in_memory();
    let ledger = LedgerStore::open(store.clone(), Some(dir.path())).unwrap();
    let alone = |before: Option<LedgerTip>, value: &[u8]| LedgerCommit {
        previous_tip: before,
        new_tip: before.unwrap_or_default(),
        extra_rows: vec![row("a", Some(value)), row("b", None)],
        ..LedgerCommit::default()
    };
    for _ in 0..2 {
        assert!(ledger.append(&alone(None, b"1")).unwrap().replicated);
        assert_eq!(ledger.tip().unwrap(), None);
    }
    ledger.append(&group(1)).unwrap();
    let tip = ledger.tip().unwrap();
    assert!(matches!(ledger.append(&alone(None, b"2")), Err(StoreError::Guard { .. })), "the ledger went on");
    for _ in 0..2 {
        ledger.append(&alone(tip, b"3")).unwrap();
        assert_eq!(
            (ledger.tip().unwrap(), store.get(StoreTable::Files, b"a").unwrap().unwrap()),
            (tip, b"3".to_vec())
        );
    }
    ledger.append(&group(2)).unwrap();
    check(&store, dir.path(), 2).unwrap();
}

#[test]
fn a_name_in_use_and_a_fence_that_fell_fail_the_whole_commit() {
    let store = open_in_memory();
    let ledger = LedgerStore::open(store.clone(), None).unwrap();
    ledger.append(&group(1)).unwrap();
    let fence = |value: Option<&[u8]>| RowFence {
        table: StoreTable::Files,
        key: b"owner".to_vec(),
        value: value.map(<[u8]>::to_vec),
    };
    let mut repeated = group(2);
    repeated.names = group(1).names;
    let mut fenced = group(2);
    fenced.fences = vec![fence(Some(b"7"))];
    for refused in [&repeated, &fenced] {
        assert!(matches!(ledger.append(refused), Err(StoreError::Guard { .. })));
        assert_eq!(ledger.tip().unwrap(), Some(group(1).new_tip));
        assert_eq!(ledger.entry_number_by_name("name 1").unwrap(), Some(1));
    }
    store.apply(Transaction::new().put(StoreTable::Files, b"owner", b"7")).unwrap();
    ledger.append(&fenced).unwrap();
    let mut taken = group(3);
    taken.fences = vec![fence(None)];
    assert!(matches!(ledger.append(&taken), Err(StoreError::Guard { .. })), "the row exists");
    taken.fences = vec![fence(Some(b"7"))];
    ledger.append(&taken).unwrap();
    ledger.append(&taken).unwrap();
    assert_eq!(ledger.tip().unwrap(), Some(group(3).new_tip));
}

#[test]
fn missing_rows_of_the_copy_are_restored_when_the_ledger_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let store = made(dir.path());
    let file = |month: &str| dir.path().join(format!("ledger/{month}.jsonl"));
    let whole = fs::read(file("2026-03")).unwrap();
    for cut in [0, 1, whole.len() / 2, whole.len() - 1] {
        fs::write(file("2026-03"), &whole[..cut]).unwrap();
        check_whole(&store, dir.path());
    }
    let mut torn = whole.clone();
    torn[whole.len() - 30..].fill(0);
    fs::write(file("2026-03"), torn).unwrap();
    check_whole(&store, dir.path());
    fs::remove_file(file("2026-01")).unwrap();
    check_whole(&store, dir.path());
    fs::remove_dir_all(dir.path().join("ledger")).unwrap();
    check_whole(&store, dir.path());
    assert_eq!(fs::read(file("2026-03")).unwrap(), whole);
}

#[test]
fn a_copy_that_has_more_than_the_store_is_proof_and_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let store = made(dir.path());
    let file = dir.path().join("ledger/2026-03.jsonl");
    let (whole, next) = (fs::read(&file).unwrap(), group(91).blocks[0].text.clone());
    let first_line = next.iter().position(|byte| *byte == b'\n').unwrap();
    let windows = String::from_utf8([&whole[..], &next].concat()).unwrap().replace('\n', "\r\n").into_bytes();
    for more in [[&whole[..], &next[..first_line]].concat(), windows] {
        fs::write(&file, &more).unwrap();
        let refused = LedgerStore::open(store.clone(), Some(&dir.path().join("ledger"))).unwrap_err();
        assert!(matches!(refused, StoreError::Corrupt { .. }), "{refused}");
    }
    let more = [whole, next].concat();
    fs::write(&file, &more).unwrap();
    let refused = LedgerStore::open(store, Some(&dir.path().join("ledger"))).unwrap_err();
    assert!(matches!(&refused, StoreError::Corrupt { what } if what.contains("2026-03")), "{refused}");
    // The store is lost completely.
    let refused = LedgerStore::open(open_in_memory(), Some(&dir.path().join("ledger"))).unwrap_err();
    assert!(matches!(refused, StoreError::Corrupt { .. }));
    assert_eq!(fs::read(&file).unwrap(), more);
}

#[test]
fn a_copy_with_bytes_that_are_no_further_entry_is_set_apart_and_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = made(dir.path());
    let file = dir.path().join("ledger/2026-03.jsonl");
    let whole = fs::read(&file).unwrap();
    let last_line = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    let next = group(91).blocks[0].text.clone();
    let inserted = [&whole[..20], b"0", &whole[20..]].concat();
    let windows = String::from_utf8(whole.clone()).unwrap().replace('\n', "\r\n").into_bytes();
    let odd = [
        [&whole[..], b"\n"].concat(),
        [&whole[..], b"{}\n"].concat(),
        [&whole[..], &whole[last_line..]].concat(),
        [&whole[..], &next[..next.len() / 3]].concat(),
        [&whole[..], &[0; 200_000]].concat(),
        inserted,
        windows,
    ];
    for (n, odd) in odd.iter().enumerate() {
        fs::write(&file, odd).unwrap();
        check_whole(&store, dir.path());
        assert_eq!(fs::read(&file).unwrap(), whole, "{n}");
        let apart = dir.path().join(format!("ledger/2026-03.jsonl.{n}.reverted"));
        assert_eq!(&fs::read(apart).unwrap(), odd, "{n}");
    }
}

#[test]
fn comparing_tells_the_month_and_the_byte() {
    let dir = tempfile::tempdir().unwrap();
    let store = made(dir.path());
    let ledger = LedgerStore::open(store, Some(&dir.path().join("ledger"))).unwrap();
    assert_eq!(ledger.compare_replica().unwrap(), Vec::<String>::new());
    let file = dir.path().join("ledger/2026-01.jsonl");
    let mut bytes = fs::read(&file).unwrap();
    bytes[700] ^= 1;
    fs::write(&file, bytes).unwrap();
    let findings = ledger.compare_replica().unwrap();
    assert!(findings.len() == 1 && findings[0].contains("2026-01"), "{findings:?}");
    fs::remove_file(&file).unwrap();
    assert_eq!(ledger.compare_replica().unwrap(), ["the file of 2026-01 is missing"]);
}

#[test]
fn a_copy_that_could_not_be_written_is_made_up_for_by_the_next_commit() {
    let dir = tempfile::tempdir().unwrap();
    let store = made(dir.path());
    let ledger = LedgerStore::open(store.clone(), Some(&dir.path().join("ledger"))).unwrap();
    let folder = dir.path().join("ledger");
    work(&ledger, 29, |_| {}).unwrap();
    // The directory is missing when a month begins: the store still accepts the commit.
    fs::rename(&folder, dir.path().join("elsewhere")).unwrap();
    assert!(!ledger.append(&group(120)).unwrap().replicated);
    fs::rename(dir.path().join("elsewhere"), &folder).unwrap();
    assert!(ledger.append(&group(121)).unwrap().replicated);
    drop(ledger);
    check(&store, &folder, 121).unwrap();
}

#[test]
fn an_incomplete_copy_is_told_from_a_different_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = made(dir.path());
    let folder = dir.path().join("ledger");
    let ledger = LedgerStore::open(store.clone(), Some(&folder)).unwrap();
    work(&ledger, 29, |_| {}).unwrap();
    drop(ledger);
    let last = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).max().unwrap();
    let whole = fs::read(&last).unwrap();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    let short = whole.len() - 7;
    for (bytes, found) in [
        (whole[..short].to_vec(), FoundReplica::Incomplete),
        (whole[..whole.len() / 2].to_vec(), FoundReplica::Incomplete),
        (flipped(short), FoundReplica::Different),
        (flipped(short - 1)[..short].to_vec(), FoundReplica::Different),
        (Vec::new(), FoundReplica::Different),
    ] {
        fs::write(&last, &bytes).unwrap();
        let ledger = LedgerStore::open(store.clone(), Some(&folder)).unwrap();
        let repairs: Vec<_> = ledger.take_replica_repairs().into_iter().map(|repair| repair.found).collect();
        assert_eq!(repairs, [found], "{} of {} bytes", bytes.len(), whole.len());
        assert_eq!(fs::read(&last).unwrap(), whole);
    }
}

#[test]
fn a_copy_that_is_behind_is_made_up_for_without_a_commit() {
    let dir = tempfile::tempdir().unwrap();
    let store = made(dir.path());
    let folder = dir.path().join("ledger");
    let ledger = LedgerStore::open(store.clone(), Some(&folder)).unwrap();
    work(&ledger, 29, |_| {}).unwrap();
    assert!(ledger.sync_replica() && ledger.time_until_replica_sync().is_none());
    fs::rename(&folder, dir.path().join("elsewhere")).unwrap();
    assert!(!ledger.append(&group(120)).unwrap().replicated);
    assert!(!ledger.sync_replica() && ledger.replica_error().is_some());
    assert!(ledger.time_until_replica_sync().is_some(), "the repair is due after a while");
    fs::rename(dir.path().join("elsewhere"), &folder).unwrap();
    assert!(ledger.sync_replica() && ledger.replica_error().is_none());
    assert!(ledger.time_until_replica_sync().is_none());
    drop(ledger);
    check(&store, &folder, 120).unwrap();
}

#[test]
fn an_export_carries_the_ledger_and_its_copy_is_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    let store = made(dir.path());
    let mut text = Vec::new();
    export(&*store, &mut text).unwrap();
    let other = open_in_memory();
    import(&*other, &mut text.as_slice()).unwrap();
    let elsewhere = dir.path().join("restored");
    check(&other, &elsewhere.join("ledger"), 90).unwrap();
    for month in ["2026-01", "2026-02", "2026-03"] {
        let of = |root: &Path| fs::read(root.join(format!("ledger/{month}.jsonl"))).unwrap();
        assert_eq!(of(dir.path()), of(&elsewhere));
    }
}

#[test]
fn a_cleared_ledger_is_empty_and_its_copy_stays() {
    let dir = tempfile::tempdir().unwrap();
    let store = made(dir.path());
    LedgerStore::clear(&*store).unwrap();
    let ledger = LedgerStore::open_read_only(store);
    assert_eq!((ledger.tip().unwrap(), ledger.months().unwrap()), (None, vec![]));
    assert_eq!((ledger.balances().unwrap(), ledger.entry_number_by_name("name 3").unwrap()), (vec![], None));
    assert_eq!(ledger.month_byte_len("2026-01").unwrap(), 0);
    assert!(dir.path().join("ledger/2026-01.jsonl").exists());
}
