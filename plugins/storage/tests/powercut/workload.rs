//! Store workload whose every state can be verified.
//!
//! Each worker `w` applies transactions `n = 1, 2, ...`, each after the previous one is acknowledged. Transaction `n`
//! writes three rows of its own, removes the three of transaction `n - KEEP`, and moves the worker's head from `n - 1`
//! to `n` under a guard. So after any crash the head is the last acknowledged transaction or the next one, and the rows
//! are exactly those of the `KEEP` transactions up to the head: a lost, partial or reordered transaction is detected.

use std::collections::BTreeMap;

use penstock_storage::{Store, StoreError, StoreTable, Transaction};

/// Number of transactions whose rows exist at a time.
const KEEP: u32 = 30;
const PARTS: u8 = 3;

/// Last acknowledged transaction of each worker.
pub type Acknowledged = BTreeMap<u8, u32>;

/// Returns the head of a worker; 0 before its first transaction.
pub fn head(store: &dyn Store, worker: u8) -> Result<u32, StoreError> {
    let row = store.get(StoreTable::Meta, &[worker])?;
    Ok(row.map_or(0, |row| u32::from_be_bytes(row.try_into().unwrap())))
}

/// Returns transaction `n` of a worker, which requires the head `n - 1`.
pub fn batch(worker: u8, n: u32) -> Transaction {
    let before = n - 1;
    let mut batch = match before {
        0 => Transaction::new().require_absent(StoreTable::Meta, [worker]),
        _ => Transaction::new().require_value(StoreTable::Meta, [worker], before.to_be_bytes()),
    };
    for part in 0..PARTS {
        batch = batch.put(StoreTable::Ledger, key(worker, n, part), value(worker, n, part));
        if n > KEEP {
            batch = batch.delete(StoreTable::Ledger, key(worker, n - KEEP, part));
        }
    }
    batch.put(StoreTable::Meta, [worker], n.to_be_bytes())
}

/// Applies `count` further transactions and calls `acknowledge` for each.
pub fn work(
    store: &dyn Store,
    worker: u8,
    count: u32,
    mut acknowledge: impl FnMut(u32),
) -> Result<(), StoreError> {
    let first = head(store, worker)? + 1;
    for n in first..first.saturating_add(count) {
        store.apply(batch(worker, n))?;
        acknowledge(n);
    }
    Ok(())
}

/// Checks the store after the transactions of `acknowledged`.
pub fn check(store: &dyn Store, workers: u8, acknowledged: &Acknowledged) -> Result<(), String> {
    let verified = store.verify().map_err(|error| error.to_string())?;
    if verified.damaged > 0 || verified.missing {
        return Err(format!("damaged or missing rows: {verified:?}"));
    }
    let mut rows = 0;
    for worker in 0..workers {
        let head = head(store, worker).map_err(|error| error.to_string())?;
        let acked = acknowledged.get(&worker).copied().unwrap_or(0);
        if head < acked {
            return Err(format!("worker {worker}: batch {acked} was acknowledged, the store is at {head}"));
        }
        if head > acked + 1 {
            return Err(format!("worker {worker}: the store is at {head}, only {acked} was acknowledged"));
        }
        for n in head.saturating_sub(KEEP) + 1..=head {
            for part in 0..PARTS {
                let row = store
                    .get(StoreTable::Ledger, &key(worker, n, part))
                    .map_err(|error| error.to_string())?;
                if row.as_ref() != Some(&value(worker, n, part)) {
                    return Err(format!("worker {worker}: batch {n} of {head} lacks part {part}"));
                }
                rows += 1;
            }
        }
        rows += u64::from(head > 0);
    }
    if verified.rows != rows {
        return Err(format!("{} rows where {rows} belong: half a batch is there", verified.rows));
    }
    Ok(())
}

fn key(worker: u8, n: u32, part: u8) -> Vec<u8> {
    [&[worker][..], &n.to_be_bytes(), &[part]].concat()
}

/// Returns the value of a part, unique for each part. Most values are short; some have nearly the maximum length.
fn value(worker: u8, n: u32, part: u8) -> Vec<u8> {
    let seed = n.wrapping_mul(2_654_435_761) ^ (u32::from(worker) << 8 | u32::from(part));
    // The long values have consecutive keys, so they are in the same page of sled.
    let length = if worker == 0 && n % 50 >= 47 { 65_000 } else { seed % 900 };
    let mut state = seed;
    let mut bytes = vec![worker, part];
    bytes.extend(n.to_be_bytes());
    bytes.extend((0..length).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    }));
    bytes
}
