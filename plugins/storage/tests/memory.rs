//! Memory of a store after a scan of all rows: little more than its cache limit, for any size of the store. A separate
//! binary, since only the memory of a whole process can be measured.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, missing_docs)]

use penstock_storage::{StoreOptions, StoreTable, Transaction, open};
use std::fs;

const ROWS: u32 = 40_000;
const ROW: usize = 2_000;

/// Returns the resident memory of this process in bytes.
fn resident() -> usize {
    let pages: usize =
        fs::read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn a_walk_over_everything_leaves_little_behind() {
    let folder = tempfile::tempdir().unwrap();
    let options = || StoreOptions { ballast_bytes: 0, ..StoreOptions::default() };
    let store = open(folder.path(), options()).unwrap();
    for rows in (0..ROWS).collect::<Vec<_>>().chunks(500) {
        let put = |batch: Transaction, row: &u32| {
            batch.put(StoreTable::Files, row.to_be_bytes(), vec![*row as u8; ROW])
        };
        store.apply(rows.iter().fold(Transaction::new(), put)).unwrap();
    }
    drop(store);
    // The log exceeds `compact_over_bytes`, so opening scans every row to decide about a compaction.
    let before = resident();
    let store = open(folder.path(), options()).unwrap();
    let opened = resident().saturating_sub(before);
    let verified = store.verify().unwrap();
    assert_eq!((verified.rows, verified.damaged, verified.missing), (u64::from(ROWS), 0, false));
    let walked = resident().saturating_sub(before);
    println!(
        "rows of {} MiB; {} MiB more when opened, {} when verified",
        (ROWS as usize * ROW) >> 20,
        opened >> 20,
        walked >> 20
    );
    assert!(opened < 40 << 20 && walked < 40 << 20, "{opened} {walked}");
}
