//! Tests of the comparison of the rollups with a ledger that is written to meanwhile.

use super::rollups::{Operations, START};
use super::*;
use crate::billing::rollups::rebuild;
use penstock_usage::HourNumber;

/// Pushes this many requests to a ledger of the store.
fn push(store: &Arc<Flaky>, operations: &mut Operations, requests: usize) {
    let ledger = open(store, QUICK);
    (0..requests).for_each(|_| operations.push_request(&ledger));
    ledger.close();
}

#[test]
fn a_check_during_writes_names_the_hours_that_it_left_out() {
    let store = Flaky::over(open_in_memory());
    let mut operations = Operations::new(3);
    let book = LedgerStore::open_read_only(store.clone());
    // All requests are in one hour, in which entries are written after the check has read the tips.
    operations.step = 2;
    push(&store, &mut operations, 50);
    let tips = book.chains().unwrap();
    push(&store, &mut operations, 50);
    let check = rebuild::verify_up_to(&book, &tips).unwrap();
    let first = HourNumber::from_unix(START);
    assert!(check.is_intact() && check.entries >= 100, "{check:?}");
    assert_eq!((check.rollups, check.left_out_from), (0, Some(first)));
    assert_eq!(check.to_json()["left_out_from"], "2026-10-31T20:00:00Z");
    // Later hours: those that have ended are compared.
    operations.step = 2_400;
    push(&store, &mut operations, 50);
    let tips = book.chains().unwrap();
    push(&store, &mut operations, 1);
    let check = rebuild::verify_up_to(&book, &tips).unwrap();
    assert!(check.is_intact() && check.rollups > 0, "{check:?}");
    assert_eq!(check.left_out_from, Some(HourNumber::from_unix(tips[0].1.at)));
    // A ledger at rest is compared completely.
    let all = rebuild::verify(&book).unwrap();
    assert!(all.is_intact() && all.rollups > check.rollups, "{all:?}");
    assert_eq!((all.left_out_from, &all.to_json()["left_out_from"]), (None, &serde_json::Value::Null));
}
