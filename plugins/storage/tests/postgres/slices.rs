//! Slices of batches that two processes claim and remove at the same moment.

use crate::{elsewhere, server::PostgresServer};
use penstock_storage::batches::{
    BatchRecord, BatchSlice, BatchState, BatchStore, batch_row_writes, slicing_rows,
};
use penstock_storage::{StoreSharing, StoreTable, Transaction, open_postgres};
use std::sync::Barrier;

/// Slices of the batch, each of which both processes want.
const SLICES: u32 = 60;

#[test]
fn a_slice_is_either_claimed_or_removed() {
    let server = PostgresServer::start();
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut options = server.options();
    options.sharing = StoreSharing::Shared;
    let stores = folders.each_ref().map(|folder| open_postgres(&elsewhere(&options, folder)).unwrap());
    let [ending, claiming] = stores.each_ref().map(|store| BatchStore::new(store.clone()));
    let slices: Vec<BatchSlice> =
        (0..SLICES).map(|number| BatchSlice { number, lines: 1, ..BatchSlice::default() }).collect();
    for round in 0..8 {
        let id = format!("batch{round}");
        let mut record = BatchRecord { id: id.clone(), account: "acme".into(), ..BatchRecord::default() };
        ending.insert(&record, Transaction::new()).unwrap();
        let claim = ending.take_claim(&id, None, 1, None).unwrap().unwrap();
        (record.state, record.slices) = (BatchState::InProgress, Some(SLICES));
        let rows =
            batch_row_writes(&record, Some(&[0; 8])).unwrap().into_iter().chain(slicing_rows(&id, &slices));
        let division = rows.fold(Transaction::new(), |division, row| match row.value {
            Some(value) => division.put(row.table, row.key, value),
            None => division.delete(row.table, row.key),
        });
        stores[0].apply(division).unwrap();

        let start = Barrier::new(2);
        let claimed: Vec<u32> = std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                ending.remove_unclaimed_slices(&id, &slices, &claim, (1, None)).unwrap();
            });
            start.wait();
            let claim = |slice: &&BatchSlice| {
                claiming.take_slice_claim(&id, slice, None, (2, None)).unwrap().is_some()
            };
            slices.iter().filter(claim).map(|slice| slice.number).collect()
        });
        let left: Vec<u32> =
            ending.pending_slice_merge(&id, 1).unwrap().slices.iter().map(|slice| slice.number).collect();
        assert_eq!(claimed, left, "a claimed slice is still there, and any other has gone");
        let claims = stores[0].scan(StoreTable::Batches, format!("c/{id}/").as_bytes(), None, 100).unwrap();
        assert_eq!(claims.rows.len(), claimed.len());
    }
}
