//! Tests of the verification: it reports manual changes, and accepts corrections.

use super::*;
use crate::billing::checkpoint::LedgerCheckpoint;

#[test]
fn a_charge_is_corrected_once_and_verification_finds_manual_changes() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    grant(&ledger, "g1", 1_000).unwrap();
    reserve(&ledger, "r1", 100).unwrap().settle(charge(90));
    settled(&ledger);
    let correct = |id: &str| EntryKind::Correct {
        id: id.into(),
        of: 4,
        what: penstock_ledger::CorrectedKind::Settle,
        key: Some("key".into()),
        wallet: Wallet::Credits,
        previous_amount: 90,
        new_amount: 30,
        eur: Decimal::new(60, 8),
        note: "counted wrong".into(),
        by: "me".into(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let made = runtime.block_on(ledger.record_correction("acme", correct("c1"), None)).unwrap();
    assert_eq!(
        runtime.block_on(ledger.record_correction("acme", correct("c2"), None)),
        Err(AdjustmentError::Duplicate(made))
    );
    assert_eq!(ledger.balance("acme").credits.amount, 970);
    settled(&ledger);
    ledger.close();
    // Changes one digit of one amount in one block.
    let row = store.scan(StoreTable::Ledger, b"", None, 1).unwrap().rows.remove(0);
    let month = ledger.store.months().unwrap().remove(0);
    let block = ledger.store.month_blocks(&month, 0).unwrap().0.next().unwrap().unwrap();
    let text = String::from_utf8(block.text).unwrap().replacen("\"amount\":1000", "\"amount\":9000", 1);
    store.apply(Transaction::new().put(StoreTable::Ledger, row.key, text.into_bytes())).unwrap();
    let proof = report::verify(&ledger.store).unwrap();
    assert!(
        !proof.is_intact() && proof.invalid_entry.as_ref().is_some_and(|(entry, _)| *entry == 1),
        "{proof:?}"
    );
}

#[test]
fn a_manually_changed_balance_is_reported() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    grant(&ledger, "g1", 1_000).unwrap();
    ledger.close();
    let row = store.get(StoreTable::Balances, b"acme").unwrap().unwrap();
    let text = String::from_utf8(row).unwrap().replace("1000", "9000");
    store.apply(Transaction::new().put(StoreTable::Balances, *b"acme", text.into_bytes())).unwrap();
    let proof = report::verify(&ledger.store).unwrap();
    assert!(
        proof.balance_differences.len() == 1 && proof.balance_differences[0].contains("acme"),
        "{proof:?}"
    );
}

#[test]
fn a_checkpoint_proves_that_earlier_entries_are_unchanged() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    grant(&ledger, "g1", 1_000).unwrap();
    settled(&ledger);
    let checkpoint = report::verify(&ledger.store).unwrap().checkpoint;
    grant(&ledger, "g2", 1_000).unwrap();
    settled(&ledger);
    let verify = |checkpoint: &LedgerCheckpoint| {
        report::verify_with_checkpoint(&ledger.store, checkpoint, &mut |_| {}).unwrap()
    };
    let proof = verify(&checkpoint);
    assert!(proof.is_intact() && proof.checkpoint != checkpoint, "{proof:?}");
    // Another ledger with other entries, whose hash chain is valid.
    let other = open(&Flaky::over(open_in_memory()), QUICK);
    grant(&other, "g1", 999).unwrap();
    settled(&other);
    let rewritten =
        report::verify_with_checkpoint(&other.store, &checkpoint, &mut |_| {}).unwrap().invalid_entry;
    assert!(
        rewritten.as_ref().is_some_and(|(entry, why)| *entry == 1 && why.contains("checkpoint")),
        "{rewritten:?}"
    );
    let removed =
        report::verify_with_checkpoint(&other.store, &proof.checkpoint, &mut |_| {}).unwrap().invalid_entry;
    assert!(
        removed.as_ref().is_some_and(|(entry, why)| *entry == 2 && why.contains("does not exist")),
        "{removed:?}"
    );
}
