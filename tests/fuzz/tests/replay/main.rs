//! Runs every target with its seeds and with deterministic mutations of them, so that CI never fails at random.
//! `tests/fuzz/run` uses libFuzzer instead, which is guided by coverage.
//!
//! `PENSTOCK_FUZZ_ROUNDS` sets the number of mutations. An input that causes a panic is written to a file, whose name
//! is in the message of the test. `PENSTOCK_FUZZ_INPUT=FILE` and the name of the test run this input alone.
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod mutation;
mod seeds;

use mutation::Mutator;
use penstock_fuzz::targets::ALL;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Number of mutations of a target's seeds; fewer if the total size reaches [`MOST_BYTES`] first.
const ROUNDS: usize = 20_000;
/// Maximum bytes of all mutations of a target's seeds, because the run time grows with the bytes.
const MOST_BYTES: usize = 8 << 20;

fn replay(name: &str) {
    let (_, check) = ALL.into_iter().find(|(known, _)| *known == name).expect("a target");
    if let Some(file) = std::env::var_os("PENSTOCK_FUZZ_INPUT") {
        return check(&std::fs::read(file).expect("a file"));
    }
    let seeds = seeds::of(name);
    assert!(!seeds.is_empty(), "{name} has no seeds");
    for seed in &seeds {
        run(name, check, seed);
    }
    let rounds =
        std::env::var("PENSTOCK_FUZZ_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().expect("a number"));
    let mut left = MOST_BYTES * rounds / ROUNDS;
    let mut mutator = Mutator::new(name, &seeds);
    for _ in 0..rounds {
        let input = mutator.next();
        run(name, check, &input);
        left = left.saturating_sub(input.len());
        if left == 0 {
            break;
        }
    }
}

fn run(name: &str, check: fn(&[u8]), input: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| check(input))).is_err() {
        let file =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{:016x}", mutation::hash(input)));
        std::fs::write(&file, input).expect("a file");
        panic!("found by {name}: {}", file.display());
    }
}

macro_rules! replayed {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            replay(stringify!($name));
        })*

        const REPLAYED: &[&str] = &[$(stringify!($name)),*];
    };
}

replayed! {
    answer answer_head batch chat_request chat_stream configuration form head json jsonl key ledger messages_request
    messages_stream plain_answer plain_request provider_error query range rescue responses_request responses_stream sound splice sse store table tokens
    translate upload
}

#[test]
fn every_target_is_replayed_and_has_a_program() {
    let all: BTreeSet<String> = ALL.iter().map(|(name, _)| (*name).to_owned()).collect();
    let replayed = REPLAYED.iter().map(|name| (*name).to_owned()).collect();
    let programs = seeds::names(&seeds::here().join("libfuzzer/src/bin"), ".rs");
    assert_eq!((&all, &all), (&replayed, &programs));
    assert_eq!(all, seeds::listed());
    assert!(all.is_superset(&seeds::names(&seeds::here().join("seeds"), "")), "seeds of no target");
}
