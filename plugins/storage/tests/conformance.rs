//! What every engine promises, once for all of them. A new engine adds a line to `ENGINES`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use penstock_storage::{
    Batch, Health, MAX_KEY, MAX_PAGE, MAX_STEPS, MAX_VALUE, Options, Space, Store, StoreError, export,
    import, memory, open,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

type Make = fn() -> (Option<TempDir>, Arc<dyn Store>);
const ENGINES: [(&str, Make); 2] = [("memory", || (None, memory())), ("sled", sled)];

fn sled() -> (Option<TempDir>, Arc<dyn Store>) {
    // In memory if there is room made for it: what is tried here is not durability.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let store = open(dir.path(), Options { ballast_bytes: 0, ..Options::default() }).unwrap();
    (Some(dir), store)
}

fn each_engine(case: impl Fn(&Arc<dyn Store>)) {
    for (name, make) in ENGINES {
        let (_dir, store) = make();
        assert_eq!(store.health(), Health::Ready, "{name}");
        case(&store);
        let verified = store.verify().unwrap();
        assert!(verified.damaged == 0 && !verified.missing, "{name}: {verified:?}");
    }
}

fn keys(store: &dyn Store, space: Space, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Vec<Vec<u8>> {
    store.scan(space, prefix, after, limit).unwrap().rows.into_iter().map(|row| row.key).collect()
}

#[test]
fn what_is_put_is_got_and_what_is_deleted_is_gone() {
    each_engine(|store| {
        assert_eq!(store.get(Space::Keys, b"a").unwrap(), None);
        store.apply(Batch::new().put(Space::Keys, b"a", b"1").put(Space::Keys, b"empty", b"")).unwrap();
        assert_eq!(store.get(Space::Keys, b"a").unwrap(), Some(b"1".to_vec()));
        assert_eq!(store.get(Space::Keys, b"empty").unwrap(), Some(vec![]));
        store.apply(Batch::new().put(Space::Keys, b"a", b"2")).unwrap();
        assert_eq!(store.get(Space::Keys, b"a").unwrap(), Some(b"2".to_vec()));
        store.apply(Batch::new().delete(Space::Keys, b"a").delete(Space::Keys, b"never")).unwrap();
        assert_eq!(store.get(Space::Keys, b"a").unwrap(), None);
    });
}

#[test]
fn spaces_do_not_see_each_other() {
    each_engine(|store| {
        for space in Space::ALL {
            store.apply(Batch::new().put(space, b"same", [space.tag()])).unwrap();
        }
        for space in Space::ALL {
            assert_eq!(store.get(space, b"same").unwrap(), Some(vec![space.tag()]));
            assert_eq!(keys(&**store, space, b"", None, 10), [b"same"]);
        }
    });
}

#[test]
fn a_scan_gives_the_rows_of_a_prefix_in_order_after_a_key_up_to_a_limit() {
    each_engine(|store| {
        let mut batch = Batch::new();
        for key in ["b", "a/3", "a/1", "a/2", "a", "a0", "a/\u{ff}"] {
            batch = batch.put(Space::Files, key, key);
        }
        store.apply(batch.put(Space::Batches, b"a/9", b"")).unwrap();
        let scan = |prefix: &[u8], after: Option<&[u8]>, limit| {
            let page = store.scan(Space::Files, prefix, after, limit).unwrap();
            let keys: Vec<_> =
                page.rows.iter().map(|row| String::from_utf8(row.key.clone()).unwrap()).collect();
            (keys.join(" "), page.more)
        };
        assert_eq!(scan(b"a/", None, 10), ("a/1 a/2 a/3 a/\u{ff}".to_owned(), false));
        assert_eq!(scan(b"a/", None, 2), ("a/1 a/2".to_owned(), true));
        assert_eq!(scan(b"a/", Some(b"a/2"), 10), ("a/3 a/\u{ff}".to_owned(), false));
        assert_eq!(scan(b"a/", Some(b"a/25"), 1), ("a/3".to_owned(), true));
        assert_eq!(scan(b"a/", Some(b"Z"), 1), ("a/1".to_owned(), true), "after a key before the prefix");
        assert_eq!(scan(b"a/", Some(b"z"), 1), (String::new(), false), "after a key past the prefix");
        assert_eq!(scan(b"", None, 3), ("a a/1 a/2".to_owned(), true));
        assert_eq!(scan(b"c", None, 3), (String::new(), false));
        assert!(!scan(b"", None, 7).1, "a page that ends with the last row is the last");
    });
}

#[test]
fn a_scan_back_gives_the_same_rows_from_the_other_end() {
    each_engine(|store| {
        let mut batch = Batch::new();
        for key in [&b"b"[..], b"a/3", b"a/1", b"a/2", b"a", b"a0", b"a/\xff", b"\xff", b"\xff\xff1"] {
            batch = batch.put(Space::Files, key, key);
        }
        store.apply(batch.put(Space::Batches, b"a/9", b"").put(Space::Reserves, b"a/9", b"")).unwrap();
        let scan = |prefix: &[u8], before: Option<&[u8]>, limit| {
            let page = store.scan_back(Space::Files, prefix, before, limit).unwrap();
            let keys: Vec<_> = page.rows.iter().map(|row| row.key.escape_ascii().to_string()).collect();
            (keys.join(" "), page.more)
        };
        assert_eq!(scan(b"a/", None, 10), ("a/\\xff a/3 a/2 a/1".to_owned(), false));
        assert_eq!(scan(b"a/", None, 2), ("a/\\xff a/3".to_owned(), true));
        assert_eq!(scan(b"a/", Some(b"a/3"), 10), ("a/2 a/1".to_owned(), false));
        assert_eq!(scan(b"a/", Some(b"a/25"), 1), ("a/2".to_owned(), true));
        assert_eq!(scan(b"a/", Some(b"Z"), 1), (String::new(), false), "before a key before the prefix");
        assert_eq!(scan(b"a/", Some(b"z"), 1), ("a/\\xff".to_owned(), true), "before a key past the prefix");
        assert_eq!(scan(b"", None, 3), ("\\xff\\xff1 \\xff b".to_owned(), true));
        assert_eq!(scan(b"\xff", None, 3), ("\\xff\\xff1 \\xff".to_owned(), false));
        assert_eq!(scan(b"c", None, 3), (String::new(), false));
        assert!(!scan(b"", None, 9).1, "a page that ends with the first row is the last");
    });
}

#[test]
fn pages_are_capped_and_together_give_every_row_once() {
    each_engine(|store| {
        let total = MAX_PAGE + 200;
        for start in (0..total).step_by(MAX_STEPS) {
            let mut batch = Batch::new();
            for n in start..total.min(start + MAX_STEPS) {
                batch = batch.put(Space::Lines, u32::try_from(n).unwrap().to_be_bytes(), b"");
            }
            store.apply(batch).unwrap();
        }
        let first = store.scan(Space::Lines, b"", None, usize::MAX).unwrap();
        assert!(first.more && first.rows.len() == MAX_PAGE);
        let last = first.rows.last().map(|row| row.key.as_slice());
        let second = store.scan(Space::Lines, b"", last, usize::MAX).unwrap();
        assert!(!second.more && second.rows.len() == total - MAX_PAGE);
        for (n, row) in first.rows.iter().chain(&second.rows).enumerate() {
            assert_eq!(row.key, u32::try_from(n).unwrap().to_be_bytes());
        }
    });
}

#[test]
fn a_page_of_large_rows_ends_early_and_says_so() {
    each_engine(|store| {
        for n in 0..80_u8 {
            store.apply(Batch::new().put(Space::Files, [n], vec![n; MAX_VALUE])).unwrap();
        }
        let page = store.scan(Space::Files, b"", None, 80).unwrap();
        assert!(page.more && page.rows.len() < 80, "{} rows", page.rows.len());
    });
}

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

#[test]
fn random_batches_leave_what_a_plain_map_says() {
    each_engine(|store| {
        let mut random = StdRng::seed_from_u64(7);
        let mut model: BTreeMap<(Space, Vec<u8>), Vec<u8>> = BTreeMap::new();
        for _ in 0..400 {
            let mut batch = Batch::new();
            let mut after = model.clone();
            let mut holds = true;
            for _ in 0..random.random_range(1..8) {
                let space = Space::ALL[random.random_range(0..3)];
                let key = vec![random.random_range(0..12_u8)];
                let at = (space, key.clone());
                let value = vec![random.random_range(0..4_u8); random.random_range(0..300)];
                match random.random_range(0..10) {
                    0 => {
                        holds &= !after.contains_key(&at);
                        batch = batch.absent(space, key);
                    }
                    1 => {
                        holds &= after.contains_key(&at);
                        batch = batch.present(space, key);
                    }
                    2 => {
                        let value = after.get(&at).cloned().unwrap_or(value);
                        holds &= after.get(&at) == Some(&value);
                        batch = batch.is(space, key, value);
                    }
                    3 | 4 => {
                        after.remove(&at);
                        batch = batch.delete(space, key);
                    }
                    _ => {
                        after.insert(at, value.clone());
                        batch = batch.put(space, key, value);
                    }
                }
            }
            assert_eq!(store.apply(batch).is_ok(), holds);
            if holds {
                model = after;
            }
        }
        assert!(!model.is_empty());
        let mut rows = BTreeMap::new();
        store
            .copy(&mut |row| {
                rows.insert((row.space, row.key.to_vec()), row.value.unwrap().to_vec());
                Ok(())
            })
            .unwrap();
        assert_eq!(rows, model);
        assert_eq!(store.verify().unwrap().rows, model.len() as u64);
    });
}

#[test]
fn a_copy_made_while_others_write_is_the_store_at_one_instant() {
    each_engine(|store| {
        // Every batch moves one unit between two of many rows: any one instant has the same sum.
        let at = Space::Accounts;
        for account in 0..40_u8 {
            store.apply(Batch::new().put(at, [account], 100_i64.to_be_bytes())).unwrap();
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
                    let batch = Batch::new()
                        .is(at, [from], was_a)
                        .is(at, [to], was_b)
                        .put(at, [from], (a - 1).to_be_bytes())
                        .put(at, [to], (b + 1).to_be_bytes());
                    store.apply(batch).unwrap();
                }
            });
            while !mover.is_finished() {
                let mut copy = BTreeMap::new();
                store
                    .copy(&mut |row| {
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
            let space = Space::ALL[usize::from(n) % Space::ALL.len()];
            store.apply(Batch::new().put(space, [n, 0, 255], vec![n; usize::from(n) * 40])).unwrap();
        }
        let mut text = Vec::new();
        assert_eq!(export(&**store, &mut text).unwrap(), 150);
        for (name, make) in ENGINES {
            let (_dir, other) = make();
            assert_eq!(import(&*other, &mut text.as_slice()).unwrap(), 150, "{name}");
            let mut again = Vec::new();
            export(&*other, &mut again).unwrap();
            assert!(again == text, "{name}");
            assert!(matches!(import(&*other, &mut text.as_slice()), Err(StoreError::Format { .. })));
        }
    });
}

#[test]
fn a_damaged_or_cut_export_is_refused() {
    let store = memory();
    for n in 0..3_u8 {
        store.apply(Batch::new().put(Space::Keys, [n], [n, n])).unwrap();
    }
    let mut text = Vec::new();
    export(&*store, &mut text).unwrap();
    for cut in 0..text.len() - 1 {
        assert!(import(&*memory(), &mut &text[..cut]).is_err(), "cut at {cut}");
    }
    for place in 0..text.len() - 1 {
        let mut damaged = text.clone();
        // Another digit for a digit, so that the line often stays valid JSON.
        damaged[place] = if damaged[place] == b'1' { b'2' } else { b'1' };
        assert!(import(&*memory(), &mut damaged.as_slice()).is_err(), "changed at {place}");
    }
    let lines: Vec<_> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let swapped = [lines[0], lines[2], lines[1], lines[3], lines[4]].concat();
    assert!(import(&*memory(), &mut swapped.as_slice()).is_err(), "two lines swapped");
}

#[test]
fn a_failing_sink_ends_a_copy_with_its_error_and_the_store_goes_on() {
    each_engine(|store| {
        store.apply(Batch::new().put(Space::Keys, b"a", b"").put(Space::Keys, b"b", b"")).unwrap();
        assert_eq!(store.copy(&mut |_| Err(StoreError::Full)), Err(StoreError::Full));
        store.apply(Batch::new().put(Space::Keys, b"c", b"")).unwrap();
        assert_eq!(export(&**store, &mut Vec::new()).unwrap(), 3);
    });
}
