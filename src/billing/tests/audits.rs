//! Tests of the audit entries of grants and corrections: each is written in the commit of its ledger entry, and none
//! keeps a charge from being written.

use super::*;
use penstock_ledger::LedgerEntry;
use penstock_storage::audit::{AuditEntry, AuditLog, ChangeDescription};
use serde_json::json;
use std::sync::atomic::AtomicUsize;

fn change(what: &str, target: &str) -> ChangeDescription {
    let change = json!({ "note": target });
    ChangeDescription {
        at: 1,
        who: "me".to_owned(),
        what: what.to_owned(),
        target: target.to_owned(),
        change,
    }
}

fn audited_grant(ledger: &Ledger, id: &str) -> Result<u64, AdjustmentError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (by, note) = ("me".into(), "".into());
    let act = EntryKind::Grant { id: id.into(), wallet: Wallet::Credits, amount: 5, note, by };
    runtime.block_on(ledger.record_grant("acme", act, Some(change("credits.grant", id))))
}

/// Checks the chain of the audit log and returns the entries of grants.
fn grants(store: &Arc<Flaky>) -> Vec<AuditEntry> {
    let log = AuditLog::new(store.clone());
    assert_eq!(log.verify().unwrap(), None);
    let entries = log.list(0, 1_000).unwrap().entries;
    entries.into_iter().filter(|entry| entry.description.what == "credits.grant").collect()
}

#[test]
fn a_grant_and_its_audit_entry_are_written_in_one_transaction() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    let number = audited_grant(&ledger, "g1").unwrap();
    let entries = grants(&store);
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].description.change, json!({ "note": "g1", "entry": number }));
    let committed = store.committed.lock();
    let tables = |batch: &Transaction| {
        let has = |table: StoreTable| format!("{batch:?}").contains(&format!("{table:?}"));
        (has(StoreTable::Ledger), has(StoreTable::Audit))
    };
    assert_eq!(committed.iter().map(tables).collect::<Vec<_>>(), [(true, true)]);
    drop(committed);
    assert_eq!(audited_grant(&ledger, "g1"), Err(AdjustmentError::Duplicate(number)));
    assert_eq!(grants(&store).len(), 1, "a repeated grant changes nothing");
}

#[test]
fn a_commit_that_is_reported_as_failed_has_one_audit_entry() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    store.lies.store(1, Ordering::Release);
    assert_eq!(audited_grant(&ledger, "g1"), Err(AdjustmentError::OutcomeUnknown));
    until("the grant to be written", || !ledger.is_failing());
    let written = audited_grant(&ledger, "g1").unwrap_err();
    assert!(matches!(written, AdjustmentError::Duplicate(_)), "{written:?}");
    assert_eq!((grants(&store).len(), settled(&ledger).entries), (1, 1));
}

#[test]
fn other_audit_entries_at_the_same_time_delay_no_grant() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    let (granted, mut results) = (AtomicUsize::new(0), Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let log = AuditLog::new(store.clone());
            // A grant is tried at most 32 times, so it must not meet as many other entries.
            for number in 0..40 * 8 {
                while number >= 8 * (granted.load(Ordering::Acquire) + 1) {
                    std::thread::yield_now();
                }
                log.apply_with_entry(&Transaction::new(), &change("key.revoke", "k")).ok();
            }
        });
        for number in 0..40 {
            results.push(audited_grant(&ledger, &format!("g{number}")));
            granted.fetch_add(1, Ordering::AcqRel);
        }
    });
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let entries = grants(&store);
    assert_eq!(entries.len(), 40);
    for entry in entries {
        let number = entry.description.change["entry"].as_u64().unwrap();
        let found: LedgerEntry = report::find_entry(&ledger.store, number).unwrap().unwrap();
        assert!(matches!(found.kind, EntryKind::Grant { id, .. } if *id == *entry.description.target));
    }
    assert_eq!(settled(&ledger).entries, 40);
}

#[test]
fn an_unreadable_audit_log_refuses_grants_and_no_charge() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    audited_grant(&ledger, "g1").unwrap();
    let damage = Transaction::new().put(StoreTable::Audit, b"head".to_vec(), b"damaged".to_vec());
    store.apply(damage).unwrap();
    assert_eq!(audited_grant(&ledger, "g2"), Err(AdjustmentError::StoreFailing));
    reserve(&ledger, "r1", 1).unwrap().settle(charge(1));
    assert_eq!(settled(&ledger).entries, 4, "grant, reserve, terms and charge");
}
