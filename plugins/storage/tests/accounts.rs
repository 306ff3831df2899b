//! Accounts, their spends, and the audit log in every engine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "support/flaky.rs"]
mod flaky;

use std::sync::{Arc, Mutex};

use flaky::{Failure, FlakyStore};
use penstock_core::calendar::BudgetPeriod;
use penstock_storage::accounts::{AccountRecord, AccountState, AccountStore};
use penstock_storage::audit::{AuditLog, ChangeDescription};
use penstock_storage::fleet::{BudgetDraw, BudgetPoolId, BudgetRequest, Fleet, SharedFleet};
use penstock_storage::keys::KeyLimits;
use penstock_storage::spend::{SpendAddition, SpendOwner, SpendRecord, SpendStore};
use penstock_storage::{Store, StoreError, StoreOptions, StoreTable, Transaction, open, open_in_memory};
use serde_json::json;

fn each_engine(case: impl Fn(Arc<dyn Store>)) {
    case(open_in_memory());
    let dir = tempfile::tempdir().unwrap();
    case(open(dir.path(), StoreOptions { ballast_bytes: 0, ..StoreOptions::default() }).unwrap());
}

fn account(id: &str) -> AccountRecord {
    let limits = KeyLimits { tokens_per_minute: Some(1_000), concurrent: Some(3), ..KeyLimits::default() };
    AccountRecord {
        id: id.to_owned(),
        name: "A name".to_owned(),
        created: 7,
        state: AccountState::Active,
        limits,
    }
}

fn audited(what: &str, target: &str) -> ChangeDescription {
    let change = json!({ "name": "A name" });
    ChangeDescription {
        at: 5,
        who: "test".to_owned(),
        what: what.to_owned(),
        target: target.to_owned(),
        change,
    }
}

#[test]
fn an_account_comes_back_as_it_was_and_is_made_once() {
    each_engine(|store| {
        let accounts = AccountStore::new(store);
        accounts.insert(&account("acme"), &audited("account.create", "acme")).unwrap();
        assert_eq!(accounts.get("acme").unwrap(), Some(account("acme")));
        assert_eq!(accounts.get("acm").unwrap(), None);
        let again = accounts.insert(&account("acme"), &audited("account.create", "acme"));
        assert_eq!(again, Err(StoreError::Guard { step: 0 }));
        for id in ["", "a\0b", &"x".repeat(201)] {
            let made = accounts.insert(&account(id), &audited("account.create", id));
            let refused = made.unwrap_err();
            assert!(matches!(refused, StoreError::InvalidArgument { .. }));
            assert!(!refused.to_string().contains("version"), "{refused}");
        }
    });
}

#[test]
fn accounts_are_listed_in_pages_and_rows_of_others_are_not_among_them() {
    each_engine(|store| {
        store.apply(Transaction::new().put(StoreTable::Accounts, *b"balance/acme", *b"not ours")).unwrap();
        let accounts = AccountStore::new(store);
        for id in ["c", "a", "b"] {
            accounts.insert(&account(id), &audited("account.create", id)).unwrap();
        }
        let first = accounts.list(None, 2).unwrap();
        assert_eq!((first.accounts.len(), first.next.as_deref()), (2, Some("b")));
        let second = accounts.list(Some("b"), 2).unwrap();
        assert_eq!((second.accounts[0].id.as_str(), second.next), ("c", None));
    });
}

#[test]
fn a_row_with_fields_of_later_versions_and_without_ours_is_read() {
    each_engine(|store| {
        let row = br#"{"v":1,"id":"old","created":3,"colour":"blue"}"#;
        store.apply(Transaction::new().put(StoreTable::Accounts, *b"a/old", *row)).unwrap();
        let found = AccountStore::new(store.clone()).get("old").unwrap().unwrap();
        assert_eq!(
            (found.created, found.state, found.limits),
            (3, AccountState::Active, KeyLimits::default())
        );
        store.apply(Transaction::new().put(StoreTable::Accounts, *b"a/new", *br#"{"v":2}"#)).unwrap();
        assert!(matches!(AccountStore::new(store).get("new"), Err(StoreError::Format { .. })));
    });
}

#[test]
fn every_change_is_in_the_log_and_none_that_did_not_happen() {
    each_engine(|store| {
        let (accounts, log) = (AccountStore::new(store.clone()), AuditLog::new(store));
        accounts.insert(&account("acme"), &audited("account.create", "acme")).unwrap();
        accounts.insert(&account("acme"), &audited("account.create", "acme")).unwrap_err();
        let rename = |name: &'static str| {
            accounts.change("acme", move |account| {
                let other = account.name != name;
                account.name = name.to_owned();
                other.then(|| audited("account.change", "acme"))
            })
        };
        assert_eq!(rename("Acme").unwrap().unwrap().name, "Acme");
        assert_eq!(rename("Acme").unwrap().unwrap().name, "Acme");
        assert_eq!(accounts.change("nobody", |_| Some(audited("account.change", "nobody"))).unwrap(), None);
        let page = log.list(0, 10).unwrap();
        let listed: Vec<_> =
            page.entries.iter().map(|entry| (entry.number, entry.description.what.as_str())).collect();
        assert_eq!(listed, [(1, "account.create"), (2, "account.change")]);
        assert_eq!(log.list(1, 1).unwrap().entries[0].number, 2);
        assert_eq!((log.last_entry_number().unwrap(), log.verify().unwrap()), (2, None));
    });
}

#[test]
fn concurrent_writes_are_acknowledged_in_one_chain() {
    each_engine(|store| {
        let (accounts, log) = (AccountStore::new(store.clone()), AuditLog::new(store));
        std::thread::scope(|scope| {
            for writer in 0..6 {
                let accounts = &accounts;
                scope.spawn(move || {
                    for n in 0..4 {
                        let id = format!("{writer}-{n}");
                        accounts.insert(&account(&id), &audited("account.create", &id)).unwrap();
                    }
                });
            }
        });
        assert_eq!((log.last_entry_number().unwrap(), log.verify().unwrap()), (24, None));
        let mut targets: Vec<_> =
            log.list(0, 100).unwrap().entries.into_iter().map(|entry| entry.description.target).collect();
        targets.sort_unstable();
        targets.dedup();
        assert_eq!(targets.len(), 24);
    });
}

#[test]
fn a_changed_a_missing_and_a_last_entry_are_found_out() {
    each_engine(|store| {
        let (accounts, log) = (AccountStore::new(store.clone()), AuditLog::new(store.clone()));
        for id in ["a", "b", "c"] {
            accounts.insert(&account(id), &audited("account.create", id)).unwrap();
        }
        let row = |number: u64| [b"e".as_slice(), &number.to_be_bytes()].concat();
        let stored = |number: u64| store.get(StoreTable::Audit, &row(number)).unwrap().unwrap();
        let (second, third) = (stored(2), stored(3));
        let forged = String::from_utf8(second.clone()).unwrap().replace("\"test\"", "\"nobody\"");
        store.apply(Transaction::new().put(StoreTable::Audit, row(2), forged)).unwrap();
        assert_eq!(log.verify().unwrap(), Some(3), "the one after it names another");
        store.apply(Transaction::new().delete(StoreTable::Audit, row(2))).unwrap();
        assert_eq!(log.verify().unwrap(), Some(2));
        store
            .apply(
                Transaction::new().put(StoreTable::Audit, row(2), second).delete(StoreTable::Audit, row(3)),
            )
            .unwrap();
        assert_eq!(log.verify().unwrap(), Some(3));
        store.apply(Transaction::new().put(StoreTable::Audit, row(3), third)).unwrap();
        assert_eq!(log.verify().unwrap(), None);
    });
}

/// Seconds of a day.
const DAY: u64 = 86_400;

#[test]
fn spends_add_up_within_their_day_and_month() {
    each_engine(|store| {
        let (one, other) = (SpendStore::new(store.clone()), SpendStore::new(store));
        let of = |n: u64, at: u64| SpendRecord { day: n, month: 2 * n, at };
        let many: Vec<_> = (0..5_500).map(|n| (SpendOwner::Key(format!("{n:016}")), of(n, 9))).collect();
        let add = |to: &SpendStore, spends: &[(SpendOwner, SpendRecord)]| {
            let additions: Vec<_> = spends.iter().cloned().map(SpendAddition::from).collect();
            to.add(&additions).unwrap();
        };
        add(&one, &many);
        let acme = SpendOwner::Account("acme".to_owned());
        add(&other, &[(acme.clone(), of(1, 9)), (many[3].0.clone(), of(77, 10))]);
        add(&one, &[(acme.clone(), of(5, DAY)), (many[4].0.clone(), of(6, 40 * DAY))]);
        // The clock of this writer is slow, so its spending is of the previous day: it counts for the month, but not
        // for the new day.
        add(&other, &[(acme.clone(), of(7, DAY - 1)), (many[4].0.clone(), of(9, 9))]);
        // The two stores write in turns, so the number that each of them has cached is outdated at every write.
        for n in 1..=6 {
            let writer = if n % 2 == 0 { &one } else { &other };
            add(writer, &[(many[7].0.clone(), of(n, 9))]);
            writer.flush().unwrap();
        }
        let mut found = std::collections::BTreeMap::new();
        one.for_each(|spender, spend| assert_eq!(found.insert(spender, spend), None)).unwrap();
        assert_eq!((found.len(), found[&many[3].0], found[&many[9].0]), (5_501, of(80, 10), of(9, 9)));
        assert_eq!(found[&acme], SpendRecord { day: 5, month: 26, at: DAY });
        assert_eq!(found[&many[4].0], of(6, 40 * DAY));
        assert_eq!(found[&many[7].0], of(7 + 21, 9));
    });
}

#[test]
fn a_spend_whose_outcome_is_unknown_is_added_once() {
    each_engine(|store| {
        for failures in [vec![Failure::Before], vec![Failure::After], vec![Failure::After, Failure::Before]] {
            let owner = SpendOwner::Key(format!("{failures:?}"));
            let failures = Mutex::new(failures);
            let next_failure = move || failures.lock().unwrap().pop().unwrap_or(Failure::None);
            let flaky = FlakyStore { store: store.clone(), next_failure: Box::new(next_failure) };
            let spends = SpendStore::new(Arc::new(flaky));
            let added = SpendAddition::from((owner.clone(), SpendRecord { day: 3, month: 4, at: 5 }));
            spends.add(std::slice::from_ref(&added)).unwrap();
            while spends.flush().is_err() {}
            spends.add(std::slice::from_ref(&added)).unwrap();
            let mut found = None;
            spends.for_each(|spender, spend| found = (spender == owner).then_some(spend).or(found)).unwrap();
            assert_eq!(found, Some(SpendRecord { day: 6, month: 8, at: 5 }), "{owner:?}");
        }
    });
}

#[test]
fn a_draw_that_another_one_overtakes_stays_within_the_budget() {
    each_engine(|store| {
        let fleet = SharedFleet::new(store.clone());
        let [one, other] = ["one", "other"].map(|name| fleet.join(name).unwrap());
        let pool = BudgetPoolId { owner: SpendOwner::Key("raced".to_owned()), period: BudgetPeriod::Day };
        let request = BudgetRequest { pool, limit: 10, wanted: 7, least: 7, returned: 0, at: DAY };
        let (rival, overtaking, has_rival) = (fleet.clone(), request.clone(), Mutex::new(true));
        let next_failure = move || {
            if std::mem::take(&mut *has_rival.lock().unwrap()) {
                assert_eq!(rival.draw_from_budget(other, &overtaking).unwrap().drawn, 7);
            }
            Failure::None
        };
        let overtaken =
            SharedFleet::new(Arc::new(FlakyStore { store, next_failure: Box::new(next_failure) }));
        assert_eq!(
            overtaken.draw_from_budget(one, &request),
            Ok(BudgetDraw { drawn: 3, unspent: 10, rest: 0 })
        );
    });
}

#[test]
fn the_entries_of_a_target_come_in_full_pages() {
    let store = open_in_memory();
    let log = AuditLog::new(store);
    for number in 0..1_250 {
        let target = if number % 100 == 40 { "rare" } else { "usual" };
        log.apply_with_entry(&Transaction::new(), &audited("account.change", target)).unwrap();
    }
    let expected: Vec<u64> =
        (0..13).map(|number| number * 100 + 41).filter(|number| *number <= 1_250).collect();
    for limit in [1, 5, 12, 13, 1_000] {
        let (mut found, mut after) = (Vec::new(), 0);
        loop {
            let page = log.list_filtered(after, limit, |entry| entry.description.target == "rare").unwrap();
            assert!(page.entries.len() == limit || page.next.is_none(), "{limit}");
            assert!(page.entries.len() <= limit && !page.entries.is_empty(), "{limit}");
            found.extend(page.entries.iter().map(|entry| entry.number));
            match page.next {
                Some(next) => after = next,
                None => break,
            }
        }
        assert_eq!(found, expected, "{limit}");
    }
}
