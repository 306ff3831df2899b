//! Batches in a store: stable pages, unfinished batches, and the bitmap of finished lines.
#![allow(missing_docs, clippy::unwrap_used)]

use penstock_storage::batches::{
    BackgroundRun, BatchPage, BatchRecord, BatchState, BatchStore, batch_row_writes,
};
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

const fn all(_: &BatchRecord) -> bool {
    true
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
    let first = batches.list("key", None, 2, all).unwrap();
    assert_eq!(
        (ids(&first.batches), first.next.as_deref()),
        (vec!["batch_5".into(), "batch_4".into()], Some("batch_4"))
    );
    batches.insert(&record("batch_6", "key", 6), Transaction::new()).unwrap();
    let second = batches.list("key", first.batches.last(), 10, all).unwrap();
    assert_eq!(ids(&second.batches), ["batch_3", "batch_2", "batch_1"]);
    assert_eq!(second.next, None);
}

#[test]
fn an_ended_batch_is_not_open_and_its_lines_are_forgotten() {
    let (store, batches) = batches();
    let mut one = record("batch_1", "key", 1);
    batches.insert(&one, Transaction::new()).unwrap();
    batches.insert(&record("batch_2", "key", 2), Transaction::new()).unwrap();
    one.state = BatchState::InProgress;
    commit(&*store, batch_row_writes(&one, Some(&[5])).unwrap());
    assert_eq!(batches.finished_line_bitmap("batch_1").unwrap(), Some(vec![5]));
    assert_eq!(batches.get("batch_1").unwrap(), Some(one.clone()));
    assert_eq!(batches.list_unfinished().unwrap().len(), 2);
    one.state = BatchState::Completed;
    commit(&*store, batch_row_writes(&one, Some(&[7])).unwrap());
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
    // Rows as an earlier version writes them, without the index by account. The name of one account is a prefix of
    // the name of the other.
    let insert = |store: &dyn Store, record: &BatchRecord| {
        commit(store, batch_row_writes(record, None).unwrap());
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
    assert!(batches.list("a", None, 10, all).unwrap().batches.is_empty());
    assert_eq!(batches.build_account_index().unwrap(), 600);
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = batches.list("a", after.as_ref(), 100, all).unwrap();
        seen.extend(page.batches.iter().map(|batch| batch.created_ms));
        after = page.batches.last().cloned();
        if page.next.is_none() {
            break;
        }
    }
    assert_eq!(seen, (0..600).rev().filter(|number| number % 2 == 0).collect::<Vec<_>>());
    assert_eq!(batches.build_account_index().unwrap(), 0, "all are over, and indexed");
    let late = record("batch_late", "a", 1_000);
    insert(&*store, &late);
    assert_eq!(batches.build_account_index().unwrap(), 1);
    assert_eq!(batches.list("a", None, 1, all).unwrap().batches, [late]);
}

/// Reads all pages; checks that each page is full and that each `next` leads to a page with batches.
fn read_pages(limit: usize, mut read: impl FnMut(Option<&str>) -> BatchPage) -> Vec<String> {
    let (mut ids, mut after) = (Vec::new(), None::<String>);
    loop {
        let page = read(after.as_deref());
        assert!(page.batches.len() <= limit);
        assert!(page.next.is_none() || page.batches.len() == limit, "a page with a successor is full");
        assert!(after.is_none() || !page.batches.is_empty(), "a page that was announced is not empty");
        ids.extend(page.batches.into_iter().map(|batch| batch.id));
        match page.next {
            Some(next) => after = Some(next),
            None => return ids,
        }
    }
}

#[test]
fn pages_are_full_whatever_background_responses_and_states_lie_between() {
    let (store, batches) = batches();
    for number in 0..20 {
        let mut one = record(&format!("batch_{number:02}"), "key", number);
        batches.insert(&one, Transaction::new()).unwrap();
        if number % 7 == 3 {
            one.state = BatchState::Completed;
            commit(&*store, batch_row_writes(&one, None).unwrap());
        }
    }
    for number in 0..1_100 {
        let background = Some(BackgroundRun::default());
        let run = BatchRecord { background, ..record(&format!("resp_{number:04}"), "key", number) };
        batches.insert(&run, Transaction::new()).unwrap();
    }
    let is_completed = |record: &BatchRecord| record.state == BatchState::Completed;
    let completed: Vec<&str> = vec!["batch_17", "batch_10", "batch_03"];
    for limit in [1, 2, 3, 7, 10, 19, 20, 1_000] {
        let found = read_pages(limit, |after| batches.list_all(after, limit, all).unwrap());
        let newest_first = (0..20).rev().map(|number| format!("batch_{number:02}"));
        assert_eq!(found, newest_first.collect::<Vec<_>>(), "{limit}");
        let found = read_pages(limit, |after| batches.list_all(after, limit, is_completed).unwrap());
        assert_eq!(found, completed, "{limit}");
        let found = read_pages(limit, |after| {
            let after = after.map(|id| batches.get(id).unwrap().unwrap());
            batches.list("key", after.as_ref(), limit, is_completed).unwrap()
        });
        assert_eq!(found, completed, "{limit}");
    }
}

#[test]
fn rows_of_the_account_index_without_a_batch_take_no_part_of_a_page() {
    let (store, batches) = batches();
    for number in 0..30 {
        batches.insert(&record(&format!("batch_{number:02}"), "key", number), Transaction::new()).unwrap();
    }
    for number in (5..28).filter(|number| number % 5 != 0) {
        store.apply(Transaction::new().delete(StoreTable::Batches, format!("b/batch_{number:02}"))).unwrap();
    }
    let found = read_pages(4, |after| {
        let after = after.map(|id| batches.get(id).unwrap().unwrap());
        batches.list("key", after.as_ref(), 4, all).unwrap()
    });
    let expected: Vec<String> = (0..30)
        .rev()
        .filter(|number| *number < 5 || *number >= 28 || number % 5 == 0)
        .map(|number| format!("batch_{number:02}"))
        .collect();
    assert_eq!(found, expected);
}
