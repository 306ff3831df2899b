//! Copies and exports: a snapshot of one instant, a round trip, and the rejection of damaged exports.

use crate::{each_engine, engines};
use penstock_storage::{StoreError, StoreTable, Transaction, export, import, open_in_memory};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

#[test]
fn a_copy_made_while_others_write_is_the_store_at_one_instant() {
    each_engine(|store| {
        // Every transaction moves one unit between two of many rows, so the sum is the same at every instant.
        let at = StoreTable::Accounts;
        for account in 0..40_u8 {
            store.apply(Transaction::new().put(at, [account], 100_i64.to_be_bytes())).unwrap();
        }
        let read = |account: u8| {
            let row = store.get(at, &[account]).unwrap().unwrap();
            (i64::from_be_bytes(row.as_slice().try_into().unwrap()), row)
        };
        let moved = AtomicU32::new(0);
        thread::scope(|scope| {
            let mover = scope.spawn(|| {
                let mut random = StdRng::seed_from_u64(3);
                while moved.fetch_add(1, Ordering::Relaxed) < 600 {
                    let (from, to) = (random.random_range(0..20), random.random_range(20..40));
                    let ((a, was_a), (b, was_b)) = (read(from), read(to));
                    let batch = Transaction::new()
                        .require_value(at, [from], was_a)
                        .require_value(at, [to], was_b)
                        .put(at, [from], (a - 1).to_be_bytes())
                        .put(at, [to], (b + 1).to_be_bytes());
                    store.apply(batch).unwrap();
                }
            });
            while !mover.is_finished() {
                let mut copy = BTreeMap::new();
                store
                    .copy_rows(&mut |row| {
                        let value = i64::from_be_bytes(row.value.unwrap().try_into().unwrap());
                        copy.insert(row.key.to_vec(), value);
                        Ok(())
                    })
                    .unwrap();
                assert_eq!(copy.len(), 40);
                assert_eq!(copy.values().sum::<i64>(), 4_000);
            }
        });
    });
}

#[test]
fn an_export_read_back_is_the_same_store() {
    each_engine(|store| {
        for n in 0..150_u8 {
            let space = StoreTable::ALL[usize::from(n) % StoreTable::ALL.len()];
            store.apply(Transaction::new().put(space, [n, 0, 255], vec![n; usize::from(n) * 40])).unwrap();
        }
        let mut text = Vec::new();
        assert_eq!(export(&**store, &mut text).unwrap(), 150);
        for (name, (_dir, other)) in engines() {
            assert_eq!(import(&*other, &mut text.as_slice()).unwrap(), 150, "{name}");
            let mut again = Vec::new();
            export(&*other, &mut again).unwrap();
            assert!(again == text, "{name}");
            assert!(matches!(import(&*other, &mut text.as_slice()), Err(StoreError::InvalidArgument { .. })));
        }
    });
}

#[test]
fn a_damaged_or_cut_export_is_refused() {
    let store = open_in_memory();
    for n in 0..3_u8 {
        store.apply(Transaction::new().put(StoreTable::Keys, [n], [n, n])).unwrap();
    }
    let mut text = Vec::new();
    export(&*store, &mut text).unwrap();
    for cut in 0..text.len() - 1 {
        assert!(import(&*open_in_memory(), &mut &text[..cut]).is_err(), "cut at {cut}");
    }
    for index in 0..text.len() - 1 {
        let mut damaged = text.clone();
        // Replaces a character by a digit: if it was a digit, the line remains valid JSON.
        damaged[index] = if damaged[index] == b'1' { b'2' } else { b'1' };
        assert!(import(&*open_in_memory(), &mut damaged.as_slice()).is_err(), "changed at {index}");
    }
    let lines: Vec<_> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let swapped = [lines[0], lines[2], lines[1], lines[3], lines[4]].concat();
    assert!(import(&*open_in_memory(), &mut swapped.as_slice()).is_err(), "two lines swapped");
}

#[test]
fn a_failing_sink_ends_a_copy_with_its_error_and_the_store_goes_on() {
    each_engine(|store| {
        store
            .apply(Transaction::new().put(StoreTable::Keys, b"a", b"").put(StoreTable::Keys, b"b", b""))
            .unwrap();
        assert_eq!(store.copy_rows(&mut |_| Err(StoreError::Full)), Err(StoreError::Full));
        store.apply(Transaction::new().put(StoreTable::Keys, b"c", b"")).unwrap();
        assert_eq!(export(&**store, &mut Vec::new()).unwrap(), 3);
    });
}
