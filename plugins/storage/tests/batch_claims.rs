//! Claims of batches: taken by one member, required by each commit, and removed with the batch.
#![allow(missing_docs, clippy::unwrap_used)]

use penstock_storage::batches::{
    BatchClaim, BatchCoordination, BatchInsertOutcome, BatchRecord, BatchState, BatchStore, ClaimState,
    EndRequest, batch_row_writes,
};
use penstock_storage::ledger::{CommitConflict, CounterDelta, LedgerCommit, LedgerStore, RowFence};
use penstock_storage::{Store, StoreError, StoreTable, Transaction, open_in_memory, parse_counter};
use std::sync::Arc;

fn record(id: &str) -> BatchRecord {
    BatchRecord { id: id.into(), account: "acme".into(), ..BatchRecord::default() }
}

fn batches(ids: &[&str]) -> (Arc<dyn Store>, BatchStore) {
    let store = open_in_memory();
    let batches = BatchStore::new(store.clone());
    for id in ids {
        batches.insert(&record(id), Transaction::new()).unwrap();
    }
    (store, batches)
}

fn alive(incarnation: u8) -> RowFence {
    RowFence { table: StoreTable::Meta, key: vec![incarnation], value: Some(b"name".to_vec()) }
}

fn claim_of(batches: &BatchStore, id: &str) -> Option<BatchClaim> {
    batches.coordination(&[id.to_owned()]).unwrap().pop().unwrap().claim
}

/// Returns the commit of a batch under a claim.
fn commit(record: &BatchRecord, claim: BatchClaim) -> LedgerCommit {
    let mut rows = batch_row_writes(record, Some(&[1])).unwrap();
    if !record.state.is_final() {
        rows.push(claim.after_commit().row_write(&record.id));
    }
    let counter = CounterDelta { table: StoreTable::Meta, key: b"counter".to_vec(), delta: 5 };
    LedgerCommit {
        extra_rows: rows,
        fences: vec![claim.fence(&record.id)],
        counters: vec![counter],
        ..LedgerCommit::default()
    }
}

#[test]
fn a_claim_is_taken_by_one_member_while_it_is_alive_and_the_batch_is_unfinished() {
    let (store, batches) = batches(&["b"]);
    let take = |seen: Option<&BatchClaim>, incarnation: u8| {
        batches.take_claim("b", seen, u32::from(incarnation), Some(&alive(incarnation))).unwrap()
    };
    assert_eq!(take(None, 1), None, "it was evicted");
    for incarnation in [1_u8, 2] {
        store.apply(Transaction::new().put(StoreTable::Meta, vec![incarnation], *b"name")).unwrap();
    }
    let first = take(None, 1).unwrap();
    assert_eq!((first.incarnation, first.number, first.state), (1, 1, ClaimState::Held));
    assert_eq!(take(None, 2), None, "both have seen no claim");
    let second = take(Some(&first), 2).unwrap();
    assert_eq!((second.incarnation, second.number), (2, 2));
    assert_eq!(take(Some(&first), 1), None);
    batches.release_claim("b", &first).unwrap();
    assert_eq!(claim_of(&batches, "b"), Some(second), "another one's claim is not released");
    batches.release_claim("b", &second).unwrap();
    assert_eq!(claim_of(&batches, "b").map(|claim| claim.state), Some(ClaimState::Released));
    assert!(second.is_continued_by(&second.after_commit()) && !first.is_continued_by(&second));
    assert_eq!(batches.take_claim("unknown", None, 1, None).unwrap(), None);
}

#[test]
fn a_commit_counts_once_and_needs_the_claim_as_it_left_it() {
    let (store, batches) = batches(&["b"]);
    let ledger = LedgerStore::open(store.clone(), None).unwrap();
    let counter = || parse_counter(store.get(StoreTable::Meta, b"counter").unwrap().as_deref()).unwrap();
    let mut record = record("b");
    record.state = BatchState::InProgress;
    let first = batches.take_claim("b", None, 1, None).unwrap().unwrap();
    for _ in 0..3 {
        ledger.append(&commit(&record, first)).unwrap();
        assert_eq!(counter(), 5, "a repetition changes nothing");
    }
    let second = batches.take_claim("b", claim_of(&batches, "b").as_ref(), 2, None).unwrap().unwrap();
    let late = BatchRecord { model: Some("late".to_owned()), ..record.clone() };
    let refused = ledger.append(&commit(&late, first.after_commit()));
    assert!(matches!(refused, Err(StoreError::Guard { .. })), "{refused:?}");
    let conflict = ledger.commit_conflict(&commit(&late, first.after_commit())).unwrap();
    assert_eq!(conflict, CommitConflict::FencesViolated(vec![0]));
    assert_eq!((batches.get("b").unwrap().unwrap().model, counter()), (None, 5));
    record.state = BatchState::Completed;
    for _ in 0..2 {
        ledger.append(&commit(&record, second)).unwrap();
    }
    assert_eq!((claim_of(&batches, "b"), counter()), (None, 10));
    let other_end = BatchRecord { state: BatchState::Cancelled, ..record.clone() };
    let refused = ledger.append(&commit(&other_end, second));
    assert!(matches!(refused, Err(StoreError::Guard { .. })), "another process has ended it: {refused:?}");
    assert_eq!((batches.get("b").unwrap().unwrap().state, counter()), (BatchState::Completed, 10));
    let counters_alone = LedgerCommit { fences: Vec::new(), ..commit(&record, second) };
    assert!(ledger.append(&counters_alone).is_err(), "a repetition would count again");
}

#[test]
fn an_end_is_requested_once_and_forgotten_with_the_batch() {
    let (store, batches) = batches(&["a", "b"]);
    batches.request_end("b", EndRequest::InputDeleted).unwrap();
    batches.request_end("b", EndRequest::Cancelled).unwrap();
    batches.request_end("unknown", EndRequest::Cancelled).unwrap();
    let ids = ["a".to_owned(), "b".to_owned(), "unknown".to_owned()];
    let ends = || batches.coordination(&ids).unwrap().iter().map(|row| row.end).collect::<Vec<_>>();
    assert_eq!(ends(), [None, Some(EndRequest::InputDeleted), None]);
    let ended = BatchRecord { state: BatchState::Failed, ..record("b") };
    let rows = batch_row_writes(&ended, None).unwrap();
    let delete = rows.into_iter().fold(Transaction::new(), |batch, row| match row.value {
        Some(value) => batch.put(row.table, row.key, value),
        None => batch.delete(row.table, row.key),
    });
    store.apply(delete).unwrap();
    assert_eq!(ends(), [None; 3]);
    batches.request_end("b", EndRequest::Cancelled).unwrap();
    assert_eq!(batches.coordination(&ids[1..2]).unwrap(), [BatchCoordination::default()]);
}

#[test]
fn the_number_of_open_batches_holds_for_insertions_at_the_same_time() {
    let (store, batches) = batches(&[]);
    let results: Vec<BatchInsertOutcome> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..12)
            .map(|n| {
                let batches = batches.clone();
                scope.spawn(move || {
                    let none = Transaction::new();
                    // The insertion fails while concurrent insertions of other members commit first, possibly several
                    // times.
                    loop {
                        match batches.insert_within_limit(&record(&format!("b{n:02}")), &none, 5) {
                            Err(StoreError::Guard { .. }) => {}
                            inserted => return inserted.unwrap(),
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(results.iter().filter(|result| **result == BatchInsertOutcome::Inserted).count(), 5);
    assert_eq!(batches.unfinished_ids().unwrap().len(), 5);
    let missing = Transaction::new().require_present(StoreTable::Files, *b"input");
    let refused = batches.insert_within_limit(&record("c"), &missing, 99).unwrap();
    assert_eq!(refused, BatchInsertOutcome::Refused);
    assert_eq!(store.get(StoreTable::Batches, b"b/c").unwrap(), None);
}
