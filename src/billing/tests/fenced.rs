//! Tests of outcomes with conditions: they are recorded completely, or their charges become voids and no row is
//! written.

use super::*;
use penstock_storage::batches::{BatchClaim, ClaimState};
use penstock_storage::ledger::CounterDelta;
use penstock_storage::{counter_row, parse_counter};

const COUNTER: &[u8] = b"counter";

fn claim(incarnation: u32, number: u64) -> BatchClaim {
    BatchClaim { incarnation, number, commits: 0, state: ClaimState::Held }
}

/// Writes a claim, like a member that takes the claim.
fn set_claim(store: &Flaky, claim: BatchClaim) {
    let row = claim.row_write("b");
    let written = Transaction::new().put(row.table, row.key, row.value.unwrap());
    store.apply(written.put(StoreTable::Meta, COUNTER, counter_row(0))).unwrap();
}

/// Returns the rows and conditions of a commit that requires the claim `held` and increases a counter.
fn fenced(held: BatchClaim, value: &[u8]) -> (Vec<RowWrite>, CommitConditions) {
    let done = RowWrite { table: StoreTable::Batches, key: b"done".to_vec(), value: Some(value.to_vec()) };
    let counter = CounterDelta { table: StoreTable::Meta, key: COUNTER.to_vec(), delta: 5 };
    let with = CommitConditions { fences: vec![held.fence("b")], counters: vec![counter] };
    (vec![done, held.after_commit().row_write("b")], with)
}

fn record(ledger: &Ledger, ends: Vec<HoldEnd>, held: BatchClaim, value: &[u8]) -> FencedResult {
    let (rows, with) = fenced(held, value);
    let pending = ledger.record_fenced_outcomes(ends, rows, with).map_err(|_| "too large").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(ledger.wait_fenced_commit(pending))
}

fn done(store: &Flaky) -> (Option<Vec<u8>>, i64) {
    let counter = store.get(StoreTable::Meta, COUNTER).unwrap();
    (store.get(StoreTable::Batches, b"done").unwrap(), parse_counter(counter.as_deref()).unwrap())
}

#[test]
fn the_charges_of_a_lost_claim_are_voids_and_its_rows_are_not_written() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    grant(&ledger, "g1", 1_000).unwrap();
    set_claim(&store, claim(1, 1));
    let end = |name: &str| reserve(&ledger, name, 100).unwrap().into_settled_end(charge(10));
    assert_eq!(record(&ledger, vec![end("r1"), end("r2")], claim(1, 1), b"1"), FencedResult::Recorded);
    assert_eq!(done(&store), (Some(b"1".to_vec()), 5));
    let next = claim(1, 1).after_commit();
    set_claim(&store, claim(2, 2));
    // Other requests are charged before, with and after the batch lines.
    reserve(&ledger, "before", 100).unwrap().settle(charge(7));
    assert_eq!(record(&ledger, vec![end("r3"), end("r4")], next, b"2"), FencedResult::FenceLost);
    reserve(&ledger, "after", 100).unwrap().settle(charge(7));
    assert_eq!(record(&ledger, vec![], next, b"3"), FencedResult::FenceLost, "rows alone");
    let proof = settled(&ledger);
    assert_eq!(proof.open_reservations, 0);
    assert_eq!(ledger.balance("acme").credits, penstock_ledger::WalletBalance { amount: 966, held: 0 });
    assert_eq!(ledger.store.balance("acme").unwrap().unwrap().credits, 966);
    assert_eq!(ledger.durability_snapshot().exposed_eur_units, 0);
    assert_eq!(done(&store), (Some(b"1".to_vec()), 0));
}

#[test]
fn a_commit_whose_outcome_is_unknown_counts_once() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    grant(&ledger, "g1", 1_000).unwrap();
    set_claim(&store, claim(1, 1));
    let (mut held, mut sum) = (claim(1, 1), 0);
    for charges in [0, 1, 2] {
        let ends = (0..charges).map(|n| {
            let name = format!("r{charges}-{n}");
            reserve(&ledger, &name, 100).unwrap().into_settled_end(charge(10))
        });
        let ends: Vec<HoldEnd> = ends.collect();
        until("the reserves to be written", || ledger.durability_snapshot().waiting == 0);
        store.lies.store(3, Ordering::Release);
        assert_eq!(record(&ledger, ends, held, b"x"), FencedResult::Recorded, "{charges}");
        store.lies.store(0, Ordering::Release);
        held = held.after_commit();
        sum += 5;
        assert_eq!(done(&store).1, sum, "{charges}");
    }
    assert_eq!(settled(&ledger).open_reservations, 0);
    assert_eq!(ledger.balance("acme").credits.amount, 970);
}

#[test]
fn rollups_count_the_void_instead_of_the_charge() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    grant(&ledger, "g1", 1_000).unwrap();
    set_claim(&store, claim(2, 2));
    reserve(&ledger, "before", 100).unwrap().settle(charge(7));
    let end = reserve(&ledger, "r1", 100).unwrap().into_settled_end(charge(10));
    assert_eq!(record(&ledger, vec![end], claim(1, 1), b"1"), FencedResult::FenceLost);
    reserve(&ledger, "after", 100).unwrap().settle(charge(7));
    settled(&ledger);
    let differing = crate::billing::rollups::rebuild::verify(&ledger.store).unwrap();
    assert!(differing.is_intact(), "{differing:?}");
}

/// Returns the rows of the names that a ledger with one charge uses.
fn names_of_a_charge() -> Transaction {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    ledger.reserve("acme", &"key".into(), "r", need(1), false).unwrap().settle(charge(1));
    settled(&ledger);
    let rows = store.scan(StoreTable::Idempotency, b"", None, 10).unwrap().rows;
    assert_eq!(rows.len(), 1, "the terms");
    rows.into_iter()
        .fold(Transaction::new(), |batch, row| batch.put(StoreTable::Idempotency, row.key, row.value))
}

#[test]
fn a_second_draft_because_of_used_names_needs_the_claim_too() {
    let (inner, names) = (open_in_memory(), names_of_a_charge());
    let store = Flaky::over(inner.clone());
    let ledger = open(&store, QUICK);
    grant(&ledger, "g1", 1_000).unwrap();
    set_claim(&store, claim(1, 1));
    let end = reserve(&ledger, "r1", 100).unwrap().into_settled_end(charge(10));
    until("the reserve to be written", || ledger.durability_snapshot().waiting == 0);
    store.stalls.store(true, Ordering::Release);
    let begun = store.begun.load(Ordering::Acquire);
    let (rows, with) = fenced(claim(1, 1), b"1");
    let pending = ledger.record_fenced_outcomes(vec![end], rows, with).map_err(|_| "too large").unwrap();
    until("the commit to begin", || store.begun.load(Ordering::Acquire) > begun);
    // Another gateway records the same terms and takes the batch over.
    let taken = claim(2, 2).row_write("b");
    inner.apply(names.put(taken.table, taken.key, taken.value.unwrap())).unwrap();
    store.stalls.store(false, Ordering::Release);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert_eq!(runtime.block_on(ledger.wait_fenced_commit(pending)), FencedResult::FenceLost);
    assert_eq!(settled(&ledger).open_reservations, 0);
    assert_eq!((done(&store), ledger.balance("acme").credits.amount), ((None, 0), 1_000));
}
