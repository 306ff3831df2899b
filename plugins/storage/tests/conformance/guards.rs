//! Atomicity of a transaction: guards, size limits and concurrency.

use crate::{each_engine, keys};
use penstock_storage::{Batch, MAX_KEY, MAX_STEPS, MAX_VALUE, Space, StoreError};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

#[test]
fn a_guard_that_does_not_hold_keeps_the_whole_batch_out() {
    each_engine(|store| {
        let at = Space::Accounts;
        store.apply(Batch::new().put(at, b"x", b"1")).unwrap();
        let failing = [
            Batch::new().put(at, b"y", b"2").absent(at, b"x"),
            Batch::new().put(at, b"y", b"2").present(at, b"nobody"),
            Batch::new().put(at, b"y", b"2").is(at, b"x", b"2"),
            Batch::new().put(at, b"y", b"2").is(at, b"nobody", b""),
            Batch::new().delete(at, b"x").present(at, b"x"),
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
        let at = Space::Accounts;
        let batch = Batch::new()
            .absent(at, b"x")
            .put(at, b"x", b"1")
            .is(at, b"x", b"1")
            .put(at, b"x", b"2")
            .is(at, b"x", b"2")
            .present(at, b"x")
            .delete(at, b"x")
            .absent(at, b"x")
            .put(at, b"x", b"3");
        store.apply(batch).unwrap();
        assert_eq!(store.get(at, b"x").unwrap(), Some(b"3".to_vec()));
        store.apply(Batch::new().is(at, b"x", b"3")).unwrap();
        store.apply(Batch::new()).unwrap();
    });
}

#[test]
fn the_caps_hold_at_the_byte() {
    each_engine(|store| {
        let at = Space::Files;
        store.apply(Batch::new().put(at, vec![b'k'; MAX_KEY], vec![1; MAX_VALUE])).unwrap();
        assert_eq!(store.get(at, &[b'k'; MAX_KEY]).unwrap().map(|value| value.len()), Some(MAX_VALUE));
        let steps = |count: usize| (0..count).fold(Batch::new(), |batch, _| batch.absent(at, b"none"));
        store.apply(steps(MAX_STEPS)).unwrap();
        let over = [
            Batch::new().put(at, vec![b'k'; MAX_KEY + 1], b""),
            Batch::new().put(at, b"k", vec![1; MAX_VALUE + 1]),
            Batch::new().is(at, b"k", vec![1; MAX_VALUE + 1]),
            steps(MAX_STEPS + 1),
            (0..65_u8).fold(Batch::new(), |batch, n| batch.put(at, [n], vec![1; MAX_VALUE])),
        ];
        for batch in over {
            let refused = store.apply(batch.put(at, b"beside", b""));
            assert!(matches!(refused, Err(StoreError::TooLarge { .. })), "{refused:?}");
        }
        assert_eq!(store.get(at, b"beside").unwrap(), None);
    });
}

#[test]
fn of_many_who_claim_a_key_exactly_one_gets_it() {
    each_engine(|store| {
        for round in 0..20_u8 {
            let won = AtomicU32::new(0);
            thread::scope(|scope| {
                for claimant in 0..8_u8 {
                    let won = &won;
                    scope.spawn(move || {
                        let batch = Batch::new()
                            .absent(Space::Idempotency, [round])
                            .put(Space::Idempotency, [round], [claimant])
                            .put(Space::Ledger, [round, claimant], b"mine");
                        match store.apply(batch) {
                            Ok(()) => drop(won.fetch_add(1, Ordering::Relaxed)),
                            Err(StoreError::Guard { step: 0 }) => {}
                            Err(other) => panic!("{other}"),
                        }
                    });
                }
            });
            assert_eq!(won.load(Ordering::Relaxed), 1);
            let winner = store.get(Space::Idempotency, &[round]).unwrap().unwrap();
            assert_eq!(keys(&**store, Space::Ledger, &[round], None, 10), [[round, winner[0]]]);
        }
    });
}

#[test]
fn guarded_increments_of_many_threads_lose_none() {
    each_engine(|store| {
        store.apply(Batch::new().put(Space::Accounts, b"sum", 0_u64.to_be_bytes())).unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut left = 25;
                    while left > 0 {
                        let old = store.get(Space::Accounts, b"sum").unwrap().unwrap();
                        let sum = u64::from_be_bytes(old.as_slice().try_into().unwrap()) + 1;
                        let at = Space::Accounts;
                        let batch = Batch::new().is(at, b"sum", old).put(at, b"sum", sum.to_be_bytes());
                        match store.apply(batch) {
                            Ok(()) => left -= 1,
                            Err(StoreError::Guard { .. }) => {}
                            Err(other) => panic!("{other}"),
                        }
                    }
                });
            }
        });
        let sum = store.get(Space::Accounts, b"sum").unwrap().unwrap();
        assert_eq!(sum, 100_u64.to_be_bytes());
    });
}
