//! Windows, compared with the encoding of the complete piece.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use crate::budget::CountBudget;
use crate::merge::{MergeRules, merge_pairs};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

/// A vocabulary of characters and of merges, the lowest rank first.
struct Merges(HashMap<(u32, u32), (u32, u32)>);

impl Merges {
    /// Each rule joins two tokens; the number of a character's token is its code point; merged tokens are numbered
    /// from `1 << 24` on.
    fn new(rules: &[(u32, u32)]) -> Self {
        let numbered = rules.iter().zip(0..).map(|(rule, rank)| (*rule, (rank, (1 << 24) + rank)));
        Self(numbered.collect())
    }
}

impl MergeRules for Merges {
    fn find_merge(&self, left: u32, right: u32, _: &[u8], _: u32, _: u32) -> Option<(u32, u32)> {
        self.0.get(&(left, right)).copied()
    }
}

impl PieceEncoder for Merges {
    fn encode(&self, piece: &[u8], symbols: &mut Vec<MergeSymbol>) {
        symbols.clear();
        for (at, letter) in std::str::from_utf8(piece).unwrap().char_indices() {
            symbols.push(MergeSymbol::new(letter as u32, at as u32, (at + letter.len_utf8()) as u32));
        }
        merge_pairs(self, piece, symbols);
    }
}

fn whole(merges: &Merges, text: &str) -> u64 {
    let mut symbols = Vec::new();
    merges.encode(text.as_bytes(), &mut symbols);
    symbols.len() as u64
}

fn windowed(merges: &Merges, text: &str) -> u64 {
    let mut meter = TokenMeter::new(0, CountBudget::unlimited());
    count_piece(merges, text.as_bytes(), &mut Vec::new(), &mut meter).unwrap();
    meter.tokens()
}

/// Returns pseudo-random merge rules over `a` and `b`, which build up to long tokens; `seed` determines them.
fn merges(seed: u64) -> Merges {
    let (mut seed, mut tokens, mut rules) = (seed | 1, vec![u32::from(b'a'), u32::from(b'b')], Vec::new());
    while rules.len() < 60 {
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            tokens[(seed >> 33) as usize % tokens.len()]
        };
        let rule = (next(), next());
        if !rules.contains(&rule) {
            rules.push(rule);
            tokens.push((1 << 24) + rules.len() as u32 - 1);
        }
    }
    Merges::new(&rules)
}

#[test]
fn a_piece_of_one_window_or_one_byte_more_counts_as_a_whole() {
    let merges = merges(7);
    for length in [
        0,
        1,
        WINDOW_BYTES - 1,
        WINDOW_BYTES,
        WINDOW_BYTES + 1,
        2 * WINDOW_BYTES - OVERLAP_BYTES,
        2 * WINDOW_BYTES,
        5 * WINDOW_BYTES + 3,
    ] {
        for run in ["a", "ab", "aab", "abbabaab"] {
            let text: String = run.chars().cycle().take(length).collect();
            assert_eq!(windowed(&merges, &text), whole(&merges, &text), "{run} {length}");
        }
    }
}

#[test]
fn characters_are_never_cut() {
    let merges = Merges::new(&[(u32::from('é'), u32::from('€')), (u32::from('🙂'), u32::from('é'))]);
    for before in 0..8 {
        let text = "a".repeat(before) + &"é€🙂é".repeat(WINDOW_BYTES / 4);
        assert_eq!(windowed(&merges, &text), whole(&merges, &text), "{before}");
    }
}

/// Tests merges with which the end of a text determines the tokens at its beginning, at any distance.
#[test]
fn windows_without_a_common_token_never_count_less() {
    let letters: Vec<u32> = (0..2_000).map(|at| 0x4E00 + at).collect();
    let rules: Vec<_> = letters.windows(2).rev().map(|pair| (pair[0], pair[1])).collect();
    let merges = Merges::new(&rules);
    let run: String = letters.iter().map(|letter| char::from_u32(*letter).unwrap()).collect();
    let text = run.repeat(30);
    let (ours, theirs) = (windowed(&merges, &text), whole(&merges, &text));
    let joins = (text.len() / (WINDOW_BYTES - OVERLAP_BYTES) + 1) as u64;
    assert!(ours >= theirs && ours <= theirs + joins * 2 * OVERLAP_BYTES as u64, "{ours} and {theirs}");
}

#[test]
fn a_count_ends_with_its_budget_and_with_its_signal() {
    let (merges, text) = (merges(3), "ab".repeat(WINDOW_BYTES * 4));
    let all = whole(&merges, &text);
    let stop = AtomicBool::new(false);
    let counted = |most: u64| {
        let mut meter = TokenMeter::new(0, CountBudget { max_tokens: most, stop: &stop });
        count_piece(&merges, text.as_bytes(), &mut Vec::new(), &mut meter)
    };
    assert_eq!(
        (counted(all), counted(all - 1), counted(1)),
        (Ok(()), Err(CountHalt::OverBudget), Err(CountHalt::OverBudget))
    );
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(counted(all), Err(CountHalt::Stopped));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_text_and_any_merges_count_as_a_whole(seed in any::<u64>(), text in "[ab]{40,90}", times in 300_usize..700) {
        let merges = merges(seed);
        let mut mixed = text.repeat(times);
        mixed.extend(text.chars().rev());
        prop_assert_eq!(windowed(&merges, &mixed), whole(&merges, &mixed));
    }
}
