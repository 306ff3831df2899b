//! Atomicity of a transaction: guards, size limits and concurrency.

use crate::{each_engine, keys};
use penstock_storage::ledger::{BalanceRecord, LedgerStore};
use penstock_storage::{
    MAX_KEY_BYTES, MAX_OPERATIONS, MAX_TRANSACTION_BYTES, MAX_VALUE_BYTES, RowAddition, Store, StoreError,
    StoreTable, Transaction, counter_row, parse_counter,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

#[test]
fn a_guard_that_does_not_hold_keeps_the_whole_batch_out() {
    each_engine(|store| {
        let at = StoreTable::Accounts;
        store.apply(Transaction::new().put(at, b"x", b"1")).unwrap();
        let failing = [
            Transaction::new().put(at, b"y", b"2").require_absent(at, b"x"),
            Transaction::new().put(at, b"y", b"2").require_present(at, b"nobody"),
            Transaction::new().put(at, b"y", b"2").require_value(at, b"x", b"2"),
            Transaction::new().put(at, b"y", b"2").require_value(at, b"nobody", b""),
            Transaction::new().delete(at, b"x").require_present(at, b"x"),
        ];
        for batch in failing {
            assert_eq!(store.apply(batch), Err(StoreError::Guard { step: 1 }));
        }
        assert_eq!(store.get(at, b"y").unwrap(), None);
        assert_eq!(store.get(at, b"x").unwrap(), Some(b"1".to_vec()));
    });
}

#[test]
fn guards_see_the_writes_before_them_in_the_batch() {
    each_engine(|store| {
        let at = StoreTable::Accounts;
        let batch = Transaction::new()
            .require_absent(at, b"x")
            .put(at, b"x", b"1")
            .require_value(at, b"x", b"1")
            .put(at, b"x", b"2")
            .require_value(at, b"x", b"2")
            .require_present(at, b"x")
            .delete(at, b"x")
            .require_absent(at, b"x")
            .put(at, b"x", b"3");
        store.apply(batch).unwrap();
        assert_eq!(store.get(at, b"x").unwrap(), Some(b"3".to_vec()));
        store.apply(Transaction::new().require_value(at, b"x", b"3")).unwrap();
        store.apply(Transaction::new()).unwrap();
    });
}

#[test]
fn the_caps_hold_at_the_byte() {
    each_engine(|store| {
        let at = StoreTable::Files;
        store.apply(Transaction::new().put(at, vec![b'k'; MAX_KEY_BYTES], vec![1; MAX_VALUE_BYTES])).unwrap();
        assert_eq!(
            store.get(at, &[b'k'; MAX_KEY_BYTES]).unwrap().map(|value| value.len()),
            Some(MAX_VALUE_BYTES)
        );
        let steps =
            |count: usize| (0..count).fold(Transaction::new(), |batch, _| batch.require_absent(at, b"none"));
        store.apply(steps(MAX_OPERATIONS)).unwrap();
        let over = [
            Transaction::new().put(at, vec![b'k'; MAX_KEY_BYTES + 1], b""),
            Transaction::new().put(at, b"k", vec![1; MAX_VALUE_BYTES + 1]),
            Transaction::new().require_value(at, b"k", vec![1; MAX_VALUE_BYTES + 1]),
            steps(MAX_OPERATIONS + 1),
            (0..=MAX_TRANSACTION_BYTES / MAX_VALUE_BYTES).fold(Transaction::new(), |batch, n| {
                batch.put(at, n.to_be_bytes(), vec![1; MAX_VALUE_BYTES])
            }),
        ];
        let measures = [
            "the length of a key in bytes is 513, ",
            "the length of a value in bytes is 65537, ",
            "the length of a value in bytes is 65537, ",
            "the number of operations of a transaction is ",
            "the size of a transaction in bytes is ",
        ];
        for (batch, measure) in over.into_iter().zip(measures) {
            let refused = store.apply(batch.put(at, b"beside", b"")).unwrap_err();
            assert!(matches!(refused, StoreError::TooLarge { .. }), "{refused:?}");
            let text = refused.to_string();
            assert!(text.starts_with(measure) && text.contains(", over the store's limit of "), "{text}");
        }
        assert_eq!(store.get(at, b"beside").unwrap(), None);
    });
}

#[test]
fn concurrent_claims_of_a_key_have_one_winner() {
    each_engine(|store| {
        for round in 0..20_u8 {
            let won = AtomicU32::new(0);
            thread::scope(|scope| {
                for claimant in 0..8_u8 {
                    let won = &won;
                    scope.spawn(move || {
                        let batch = Transaction::new()
                            .require_absent(StoreTable::Idempotency, [round])
                            .put(StoreTable::Idempotency, [round], [claimant])
                            .put(StoreTable::Ledger, [round, claimant], b"mine");
                        match store.apply(batch) {
                            Ok(()) => drop(won.fetch_add(1, Ordering::Relaxed)),
                            Err(StoreError::Guard { step: 0 }) => {}
                            Err(other) => panic!("{other}"),
                        }
                    });
                }
            });
            assert_eq!(won.load(Ordering::Relaxed), 1);
            let winner = store.get(StoreTable::Idempotency, &[round]).unwrap().unwrap();
            assert_eq!(keys(&**store, StoreTable::Ledger, &[round], None, 10), [[round, winner[0]]]);
        }
    });
}

#[test]
fn guarded_increments_of_many_threads_lose_none() {
    each_engine(|store| {
        store.apply(Transaction::new().put(StoreTable::Accounts, b"sum", 0_u64.to_be_bytes())).unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut left = 25;
                    while left > 0 {
                        let old = store.get(StoreTable::Accounts, b"sum").unwrap().unwrap();
                        let sum = u64::from_be_bytes(old.as_slice().try_into().unwrap()) + 1;
                        let at = StoreTable::Accounts;
                        let batch = Transaction::new().require_value(at, b"sum", old).put(
                            at,
                            b"sum",
                            sum.to_be_bytes(),
                        );
                        match store.apply(batch) {
                            Ok(()) => left -= 1,
                            Err(StoreError::Guard { .. }) => {}
                            Err(other) => panic!("{other}"),
                        }
                    }
                });
            }
        });
        let sum = store.get(StoreTable::Accounts, b"sum").unwrap().unwrap();
        assert_eq!(sum, 100_u64.to_be_bytes());
    });
}

#[test]
fn a_counter_adds_up_within_its_bounds_only() {
    each_engine(|store| {
        let at = StoreTable::Meta;
        let count = |store: &Arc<dyn Store>| parse_counter(store.get(at, b"n").unwrap().as_deref());
        assert_eq!(count(store), Ok(0));
        store
            .apply(Transaction::new().add_to_counter(at, b"n", 5, Some(5), Some(5)).put(at, b"beside", b"1"))
            .unwrap();
        store
            .apply(Transaction::new().add_to_counter(at, b"n", -8, None, None).add_to_counter(
                at,
                b"n",
                1,
                Some(-2),
                None,
            ))
            .unwrap();
        assert_eq!(count(store), Ok(-2));
        let refused = [
            Transaction::new().add_to_counter(at, b"n", -1, Some(-2), None),
            Transaction::new().add_to_counter(at, b"n", 3, None, Some(0)),
            Transaction::new().add_to_counter(at, b"n", i64::MIN, None, None),
            Transaction::new().add_to_counter(at, b"beside", 1, None, None),
        ];
        for batch in refused {
            let batch = Transaction::new().put(at, b"beside", b"2").append_operations(batch);
            assert_eq!(store.apply(batch), Err(StoreError::Guard { step: 1 }));
        }
        assert_eq!(store.get(at, b"beside").unwrap(), Some(b"1".to_vec()));
        store.apply(Transaction::new().put(at, b"n", counter_row(i64::MAX))).unwrap();
        let over = store.apply(Transaction::new().add_to_counter(at, b"n", 1, None, None));
        assert_eq!(over, Err(StoreError::Guard { step: 0 }));
        assert_eq!(count(store), Ok(i64::MAX));
    });
}

#[test]
fn counters_of_many_threads_lose_nothing_and_stay_in_bounds() {
    each_engine(|store| {
        let done = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..25 {
                        match store.apply(Transaction::new().add_to_counter(
                            StoreTable::Meta,
                            b"n",
                            3,
                            None,
                            Some(200),
                        )) {
                            Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
                            Err(StoreError::Guard { step: 0 }) => {}
                            Err(other) => panic!("{other}"),
                        }
                    }
                });
            }
        });
        assert_eq!(done.load(Ordering::Relaxed), 66);
        let row = store.get(StoreTable::Meta, b"n").unwrap();
        assert_eq!(parse_counter(row.as_deref()), Ok(198));
    });
}

#[test]
fn many_rows_are_read_in_the_order_of_their_keys() {
    each_engine(|store| {
        let at = StoreTable::Keys;
        store.apply(Transaction::new().put(at, b"a", b"1").put(at, b"b", b"")).unwrap();
        let rows = store.get_many(at, &[b"b", b"none", b"a", b"b"]).unwrap();
        assert_eq!(rows, [Some(vec![]), None, Some(b"1".to_vec()), Some(vec![])]);
        assert!(store.get_many(at, &[]).unwrap().is_empty());
    });
}

#[test]
fn sums_of_many_threads_lose_nothing_and_other_rows_are_refused() {
    each_engine(|store| {
        let at = StoreTable::Balances;
        let change = RowAddition::Balance(BalanceRecord { credits: 3, energy: -1 });
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..25 {
                        store.apply(Transaction::new().add_amounts(at, b"acme", change.clone())).unwrap();
                    }
                });
            }
        });
        let ledger = LedgerStore::open_read_only(store.clone());
        let balance = |account: &str| ledger.balance(account).unwrap();
        assert_eq!(balance("acme"), Some(BalanceRecord { credits: 300, energy: -100 }));
        let most = RowAddition::Balance(BalanceRecord { credits: i64::MAX, energy: i64::MIN });
        store
            .apply(Transaction::new().add_amounts(at, b"acme", most).add_amounts(at, b"acme", change.clone()))
            .unwrap();
        assert_eq!(balance("acme"), Some(BalanceRecord { credits: i64::MAX, energy: i64::MIN }));
        store.apply(Transaction::new().put(at, b"other", b"no balance")).unwrap();
        let refused =
            store.apply(Transaction::new().put(at, b"beside", b"1").add_amounts(at, b"other", change));
        assert!(matches!(refused, Err(StoreError::Corrupt { .. })), "{refused:?}");
        assert_eq!(store.get(at, b"beside").unwrap(), None);
    });
}

#[test]
fn sums_of_counters_never_fail_and_those_of_rollups_are_added() {
    each_engine(|store| {
        let (at, key) = (StoreTable::Meta, b"n");
        let add = |by: i64| store.apply(Transaction::new().add_amounts(at, key, RowAddition::Counter(by)));
        for by in [i64::MAX, 1, 7] {
            add(by).unwrap();
        }
        assert_eq!(store.get(at, key).unwrap(), Some(i64::MAX.to_le_bytes().to_vec()));
        add(i64::MIN).unwrap();
        assert_eq!(store.get(at, key).unwrap(), Some((-1_i64).to_le_bytes().to_vec()));
        let row =
            |requests: u64| format!(r#"{{"v":1,"outcome":"charged","requests":{requests}}}"#).into_bytes();
        let at = StoreTable::Usage;
        let count =
            |by: u64| store.apply(Transaction::new().add_amounts(at, key, RowAddition::Usage(row(by))));
        count(2).unwrap();
        count(40).unwrap();
        assert_eq!(store.get(at, key).unwrap(), Some(row(42)));
        store.apply(Transaction::new().put(at, key, b"damaged")).unwrap();
        assert!(matches!(count(1), Err(StoreError::Corrupt { .. })));
    });
}
