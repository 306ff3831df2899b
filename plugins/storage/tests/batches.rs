//! Batches in a store: stable pages, unfinished batches, and the bitmap of finished lines.
#![allow(missing_docs, clippy::unwrap_used)]

use penstock_storage::batches::{BatchRecord, BatchState, BatchStore, record_rows};
use penstock_storage::ledger::RowWrite;
use penstock_storage::{Store, StoreError, StoreTable, Transaction, open_in_memory};
use std::sync::Arc;

fn batches() -> (Arc<dyn Store>, BatchStore) {
    let store = open_in_memory();
    (store.clone(), BatchStore::new(store))
}

fn record(id: &str, account: &str, created_ms: u64) -> BatchRecord {
    BatchRecord { id: id.into(), account: account.into(), created_ms, ..BatchRecord::default() }
}

fn commit(store: &dyn Store, rows: Vec<RowWrite>) {
    let batch = rows.into_iter().fold(Transaction::new(), |batch, row| match row.value {
        Some(value) => batch.put(row.table, row.key, value),
        None => batch.delete(row.table, row.key),
    });
    store.apply(batch).unwrap();
}

#[test]
fn the_newest_come_first_and_pages_hold_still() {
    let (_, batches) = batches();
    for made in [5u64, 1, 4, 2, 3] {
        batches.insert(&record(&format!("batch_{made}"), "key", made), Transaction::new()).unwrap();
    }
    batches.insert(&record("batch_x", "key2", 9), Transaction::new()).unwrap();
    let ids = |page: &[BatchRecord]| page.iter().map(|batch| batch.id.clone()).collect::<Vec<_>>();
    let first = batches.list("key", None, 2).unwrap();
    assert_eq!((ids(&first.batches), first.more), (vec!["batch_5".into(), "batch_4".into()], true));
    batches.insert(&record("batch_6", "key", 6), Transaction::new()).unwrap();
    let second = batches.list("key", first.batches.last(), 10).unwrap();
    assert_eq!(ids(&second.batches), ["batch_3", "batch_2", "batch_1"]);
    assert!(!second.more);
}

#[test]
fn an_ended_batch_is_not_open_and_its_lines_are_forgotten() {
    let (store, batches) = batches();
    let mut one = record("batch_1", "key", 1);
    batches.insert(&one, Transaction::new()).unwrap();
    batches.insert(&record("batch_2", "key", 2), Transaction::new()).unwrap();
    one.state = BatchState::InProgress;
    commit(&*store, record_rows(&one, Some(&[5])).unwrap());
    assert_eq!(batches.finished_line_bitmap("batch_1").unwrap(), Some(vec![5]));
    assert_eq!(batches.get("batch_1").unwrap(), Some(one.clone()));
    assert_eq!(batches.list_unfinished().unwrap().len(), 2);
    one.state = BatchState::Completed;
    commit(&*store, record_rows(&one, Some(&[7])).unwrap());
    assert_eq!(batches.finished_line_bitmap("batch_1").unwrap(), None);
    let open = batches.list_unfinished().unwrap();
    assert_eq!(open.iter().map(|batch| batch.id.as_str()).collect::<Vec<_>>(), ["batch_2"]);
    let mut seen = 0;
    batches
        .for_each(|_| {
            seen += 1;
            Ok::<_, StoreError>(())
        })
        .unwrap();
    assert_eq!(seen, 2);
}

#[test]
fn a_batch_is_not_made_twice_nor_of_a_file_that_is_gone() {
    let (_, batches) = batches();
    batches.insert(&record("batch_1", "key", 1), Transaction::new()).unwrap();
    let again = batches.insert(&record("batch_1", "key", 1), Transaction::new());
    assert!(matches!(again, Err(StoreError::Guard { .. })));
    let gone = Transaction::new().require_present(StoreTable::Files, b"f/none".as_slice());
    assert!(matches!(batches.insert(&record("batch_2", "key", 1), gone), Err(StoreError::Guard { .. })));
    assert_eq!(batches.get("batch_2").unwrap(), None);
}

#[test]
fn batches_of_an_earlier_version_are_listed_once_they_are_indexed() {
    let (store, batches) = batches();
    // Rows of an earlier version, without the index by account; one account's name is a prefix of the other's.
    let insert = |store: &dyn Store, record: &BatchRecord| {
        commit(store, record_rows(record, None).unwrap());
        if !record.state.is_final() {
            store
                .apply(Transaction::new().put(StoreTable::Batches, format!("o/{}", record.id), Vec::new()))
                .unwrap();
        }
    };
    for number in 0..600u64 {
        let mut one = record(&format!("batch_{number}"), if number % 2 == 0 { "a" } else { "ab" }, number);
        one.state = BatchState::Completed;
        insert(&*store, &one);
    }
    assert!(batches.list("a", None, 10).unwrap().batches.is_empty());
    assert_eq!(batches.build_account_index().unwrap(), 600);
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = batches.list("a", after.as_ref(), 100).unwrap();
        seen.extend(page.batches.iter().map(|batch| batch.created_ms));
        after = page.batches.last().cloned();
        if !page.more {
            break;
        }
    }
    assert_eq!(seen, (0..600).rev().filter(|number| number % 2 == 0).collect::<Vec<_>>());
    assert_eq!(batches.build_account_index().unwrap(), 0, "all are over, and indexed");
    let late = record("batch_late", "a", 1_000);
    insert(&*store, &late);
    assert_eq!(batches.build_account_index().unwrap(), 1);
    assert_eq!(batches.list("a", None, 1).unwrap().batches, [late]);
}
