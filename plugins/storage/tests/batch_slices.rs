//! Slices of batches: their rows, claims and segments.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

use penstock_storage::batches::{
    BatchClaim, BatchRecord, BatchSlice, BatchState, BatchStore, EndRequest, MAX_SLICES, ResultSegment,
    SliceEndReason, UnfinishedEntry, batch_row_writes, slicing_rows,
};
use penstock_storage::ledger::RowWrite;
use penstock_storage::{RowPage, Store, StoreTable, Transaction, open_in_memory};
use std::sync::Arc;

fn slice(number: u32) -> BatchSlice {
    BatchSlice { number, first_line: number * 10, lines: 10, offset: u64::from(number) * 1_000, end: None }
}

fn apply(store: &Arc<dyn Store>, rows: Vec<RowWrite>) {
    let batch = rows.into_iter().fold(Transaction::new(), |batch, row| match row.value {
        Some(value) => batch.put(row.table, row.key, value),
        None => batch.delete(row.table, row.key),
    });
    store.apply(batch).unwrap();
}

/// Returns a batch in three slices, and the claim of its holder.
fn divided() -> (Arc<dyn Store>, BatchStore, BatchRecord, BatchClaim) {
    let store = open_in_memory();
    let batches = BatchStore::new(store.clone());
    let mut record = BatchRecord { id: "b".into(), account: "acme".into(), ..BatchRecord::default() };
    batches.insert(&record, Transaction::new()).unwrap();
    let claim = batches.take_claim("b", None, 1, None).unwrap().unwrap();
    (record.state, record.slices) = (BatchState::InProgress, Some(3));
    apply(&store, batch_row_writes(&record, Some(&[0; 4])).unwrap());
    apply(&store, slicing_rows("b", &[slice(0), slice(1), slice(2)]));
    (store, batches, record, claim)
}

fn of_slice(record: &BatchRecord, slice: BatchSlice, state: BatchState) -> BatchRecord {
    BatchRecord { id: slice.id("b"), slices: None, slice: Some(slice), state, ..record.clone() }
}

#[test]
fn a_batch_in_slices_is_not_among_those_that_earlier_versions_run() {
    let (store, batches, ..) = divided();
    let scan = |prefix: &[u8]| store.scan(StoreTable::Batches, prefix, None, 100).unwrap();
    assert!(scan(b"o/").rows.is_empty());
    assert_eq!(batches.unfinished_ids().unwrap(), ["b"]);
    assert_eq!(batches.unfinished_slices().unwrap().by_batch["b"], [slice(0), slice(1), slice(2)]);
    let page: RowPage = scan(b"p/");
    let entries: Vec<UnfinishedEntry> = BatchStore::parse_unfinished_page(&page).collect();
    assert_eq!(
        entries.iter().map(UnfinishedEntry::id).collect::<Vec<_>>(),
        ["b", "b/0000", "b/0001", "b/0002"]
    );
    let read = batches.get("b").unwrap().unwrap();
    assert_eq!((read.slices, read.slice), (Some(3), None));
}

#[test]
fn a_damaged_slice_is_reported_and_the_others_are_listed() {
    let (store, batches, ..) = divided();
    let row = |value: &[u8]| Transaction::new().put(StoreTable::Batches, b"p/b/0001", value);
    for damaged in [&b""[..], b"short", &[0; 16], &[7; 17], &[0; 18]] {
        store.apply(row(damaged)).unwrap();
        let found = batches.unfinished_slices().unwrap();
        assert_eq!(
            (&found.by_batch["b"], found.damaged),
            (&vec![slice(0), slice(2)], vec!["b/0001".to_owned()])
        );
        assert_eq!(batches.unfinished_ids().unwrap(), ["b"]);
    }
}

#[test]
fn a_slice_is_claimed_by_one_member_while_it_is_open() {
    let (store, batches, record, _) = divided();
    let take = |seen: Option<&BatchClaim>, incarnation| {
        batches.take_slice_claim("b", &slice(1), seen, (incarnation, None)).unwrap()
    };
    let first = take(None, 1).unwrap();
    assert_eq!(take(None, 2), None);
    let second = take(Some(&first), 2).unwrap();
    assert_eq!((second.incarnation, second.number), (2, 2));
    let done = of_slice(&record, slice(1), BatchState::InProgress);
    apply(&store, batch_row_writes(&done, Some(&[1, 0])).unwrap());
    assert_eq!(batches.finished_line_bitmap("b/0001").unwrap(), Some(vec![1, 0]));
    let ended = BatchSlice { end: Some(SliceEndReason::Expired), ..slice(1) };
    apply(&store, batch_row_writes(&of_slice(&record, ended, BatchState::Failed), None).unwrap());
    assert_eq!(take(None, 3), None, "it has ended early");
    apply(&store, batch_row_writes(&of_slice(&record, slice(0), BatchState::Completed), None).unwrap());
    assert_eq!(batches.take_slice_claim("b", &slice(0), None, (3, None)).unwrap(), None);
    assert_eq!(batches.unfinished_slices().unwrap().by_batch["b"], [slice(2)]);
    assert_eq!(batches.pending_slice_merge("b", 9).unwrap().slices, [ended, slice(2)]);
    assert_eq!(batches.finished_line_bitmap("b/0001").unwrap(), None);
}

#[test]
fn only_the_holder_of_the_batch_ends_slices_and_removes_those_that_nobody_has_claimed() {
    let (_, batches, _, claim) = divided();
    batches.take_slice_claim("b", &slice(0), None, (2, None)).unwrap().unwrap();
    let all = [slice(0), slice(1), slice(2)];
    let lost = claim.after_commit();
    assert!(!batches.request_end_of_slices("b", EndRequest::OutputDamaged, Some(&lost)).unwrap());
    batches.remove_unclaimed_slices("b", &all, &lost, (1, None)).unwrap();
    assert_eq!(batches.pending_slice_merge("b", 9).unwrap().slices, all);
    assert!(batches.request_end_of_slices("b", EndRequest::OutputDamaged, Some(&claim)).unwrap());
    assert!(!batches.request_end_of_slices("b", EndRequest::Cancelled, Some(&claim)).unwrap());
    batches.remove_unclaimed_slices("b", &all, &claim, (1, None)).unwrap();
    assert_eq!(batches.pending_slice_merge("b", 9).unwrap().slices, [slice(0)]);
    let rows = batches.coordination(&["b".to_owned(), "b/0000".to_owned()]).unwrap();
    assert!(rows.iter().all(|row| row.end == Some(EndRequest::OutputDamaged)));
}

#[test]
fn a_client_ends_a_batch_in_slices_like_any_other() {
    let (_, batches, ..) = divided();
    batches.request_end("b", EndRequest::Cancelled).unwrap();
    let rows = batches.coordination(&["b".to_owned()]).unwrap();
    assert_eq!(rows[0].end, Some(EndRequest::Cancelled));
}

#[test]
fn the_last_commit_removes_all_rows_of_slices_and_fits_into_one_commit() {
    let (store, batches, mut record, _) = divided();
    let segment =
        ResultSegment { file: "file-1".into(), lines: vec![(3, true), (4, false)], ..Default::default() };
    apply(&store, vec![segment.row_write("b").unwrap()]);
    let progress = batches.pending_slice_merge("b", 1).unwrap();
    assert_eq!((progress.segments, progress.more), (vec![segment.clone()], false));
    assert!(batches.has_segment_file([&record], "file-1").unwrap());
    assert!(!batches.has_segment_file([&record], "file-2").unwrap());
    apply(&store, vec![segment.row_removal("b")]);
    record.state = BatchState::Completed;
    apply(&store, batch_row_writes(&record, None).unwrap());
    assert_eq!(batches.pending_slice_merge("b", 1).unwrap(), Default::default());
    assert!(batches.unfinished_ids().unwrap().is_empty());
    assert_eq!(batches.unfinished_slices().unwrap(), Default::default());
    record.slices = Some(MAX_SLICES);
    assert!(batch_row_writes(&record, None).unwrap().len() <= 72);
}
