//! Damage to files at rest: flipped bits and truncation. In all cases the store never returns a value that was not
//! written, never lacks a row without an error, and never crashes the process. `PENSTOCK_DAMAGE_ROUNDS` sets the number
//! of attempts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use std::env;
use std::fs;
use std::path::Path;

use penstock_storage::{Store, StoreError, StoreOptions, StoreTable, Transaction, open, repair};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const ROWS: u32 = 200;

fn options() -> StoreOptions {
    StoreOptions { ballast_bytes: 0, ..StoreOptions::default() }
}

fn value(n: u32) -> Vec<u8> {
    vec![u8::try_from(n % 251).unwrap(); 400 + (n as usize * 37) % 600]
}

/// Creates a store with the rows 0 to `ROWS`, written in two halves with a reopening in between, and closes it.
fn make(path: &Path) {
    for half in 0..2 {
        let store = open(path, options()).unwrap();
        for n in (0..ROWS).filter(|n| n % 2 == half) {
            store.apply(Transaction::new().put(StoreTable::Files, n.to_be_bytes(), value(n))).unwrap();
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to)
        } else {
            drop(fs::copy(entry.path(), to))
        }
    }
}

/// Returns the number of rows that can be read; asserts that each of their values is correct.
fn right(store: &dyn Store, what: &str) -> u32 {
    let mut there = 0;
    for n in 0..ROWS {
        if let Ok(Some(row)) = store.get(StoreTable::Files, &n.to_be_bytes()) {
            assert!(row == value(n), "{what}: row {n} has a value nobody put");
            there += 1;
        }
    }
    there
}

#[derive(Debug, Default)]
struct Tally {
    unharmed: u32,
    refused: u32,
    found: u32,
    unnoticed: u32,
    rows_saved: u32,
    repairs: u32,
}

#[test]
fn damaged_files_give_neither_a_false_value_nor_a_silent_gap() {
    let rounds = env::var("PENSTOCK_DAMAGE_ROUNDS").map_or(16, |rounds| rounds.parse().unwrap());
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let original = dir.path().join("original");
    make(&original);
    let files: Vec<_> = fs::read_dir(original.join("sled"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| entry.file_name())
        .collect();
    let mut tally = Tally::default();
    for round in 0..rounds {
        let mut random = StdRng::seed_from_u64(round);
        let path = dir.path().join(round.to_string());
        copy(&original, &path);
        // Mostly damages the log, because it contains the rows.
        let name = if random.random_bool(0.8) {
            "db".into()
        } else {
            files[random.random_range(0..files.len())].clone()
        };
        let file = path.join("sled").join(&name);
        let mut bytes = fs::read(&file).unwrap();
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        let at = random.random_range(0..used);
        if random.random_bool(0.8) {
            bytes[at] ^= 1 << random.random_range(0..8);
        } else {
            bytes.truncate(at);
        }
        fs::write(&file, bytes).unwrap();
        let what = format!("round {round}, {} at {at}", name.display());

        let harmed = match open(&path, options()) {
            Err(error) => {
                assert!(!matches!(error, StoreError::Locked { .. }), "{what}: {error}");
                tally.refused += 1;
                true
            }
            Ok(store) => {
                let there = right(&*store, &what);
                let noticed =
                    store.verify().map_or(true, |verified| verified.damaged > 0 || verified.missing);
                match (there, noticed) {
                    (ROWS, false) => tally.unharmed += 1,
                    (_, true) => tally.found += 1,
                    (_, false) => tally.unnoticed += 1,
                }
                there < ROWS || noticed
            }
        };
        if harmed {
            let to = dir.path().join(format!("{round}.repaired"));
            if let Ok(repaired) = repair(&path, &to, options()) {
                tally.repairs += 1;
                let saved = right(&*open(&to, options()).unwrap(), &what);
                tally.rows_saved += saved;
                assert_eq!(repaired.loss.is_none(), saved == ROWS, "{what}: {repaired:?}, {saved} rows");
            }
        }
        let _ = fs::remove_dir_all(&path);
    }
    assert_eq!(tally.unnoticed, 0, "rows were lost in silence: {tally:?}");
    assert!(tally.refused + tally.found > 0, "no round did any harm: {tally:?}");
    assert!(tally.rows_saved > 0 && tally.repairs > 0, "nothing was ever saved: {tally:?}");
}
