//! Unigram model: the most likely split of a word into tokens.
//!
//! Guarantees: memory is proportional to the length of the longest token and not of the word; work is proportional to
//! the length of the word.

use crate::budget::{CountHalt, TokenMeter};
use ahash::{HashMap, HashMapExt};
use std::collections::VecDeque;

/// Penalty of an unknown token: its score is this much lower than the score (logarithm of the probability) of the
/// least likely token.
const PENALTY: f64 = 10.0;

/// Parameters of a unigram model, as read from a tokenizer file.
pub(super) struct UnigramParams {
    /// Tokens with the logarithm of their probability.
    pub(super) tokens: Vec<(String, f64)>,
    pub(super) unknown: Option<usize>,
    pub(super) byte_fallback: bool,
}

/// Unigram model.
pub(super) struct UnigramModel {
    /// Children of the nodes of a prefix tree, by parent node and byte. Node 0 is the root.
    children: HashMap<u64, u32>,
    /// Token that ends at a node: number and score.
    ends: Vec<Option<(u32, f64)>>,
    unknown: Option<u32>,
    unknown_score: f64,
    /// Length of the longest token, in bytes.
    longest: usize,
    fallback: bool,
}

/// Best sequence of tokens up to an offset in the word.
#[derive(Clone, Copy)]
struct TokenPath {
    score: f64,
    /// Number of tokens on the path, without the run of unknown bytes at its end.
    tokens: u64,
    /// Number of bytes in the run of unknown bytes at the end of the path.
    unknown: u64,
}

/// Number of offsets in the word between two checks of the budget.
const CHECK_INTERVAL: usize = 4096;

impl UnigramModel {
    /// Creates a model from its parameters, or returns the reason why they are invalid.
    pub(super) fn new(parts: UnigramParams) -> Result<Self, String> {
        if parts.unknown.is_some_and(|unknown| unknown >= parts.tokens.len()) {
            return Err("unk_id of the model is beyond its vocabulary".to_owned());
        }
        let names: ahash::HashSet<_> = parts.tokens.iter().map(|(token, _)| token.as_str()).collect();
        let fallback =
            parts.byte_fallback && (0..=255u8).all(|byte| names.contains(format!("<0x{byte:02X}>").as_str()));
        let least = parts.tokens.iter().map(|(_, score)| *score).fold(f64::INFINITY, f64::min);
        let mut unigram = Self {
            children: HashMap::with_capacity(parts.tokens.len() * 4),
            ends: vec![None],
            unknown: parts.unknown.map(|unknown| unknown as u32),
            unknown_score: least - PENALTY,
            longest: parts.tokens.iter().map(|(token, _)| token.len()).max().unwrap_or(0),
            fallback,
        };
        for (number, (token, score)) in parts.tokens.iter().enumerate() {
            unigram.insert(token.as_bytes(), number as u32, *score);
        }
        Ok(unigram)
    }

    fn insert(&mut self, token: &[u8], number: u32, score: f64) {
        let mut node = 0;
        for byte in token {
            let next = self.ends.len() as u32;
            node = *self.children.entry(key(node, *byte)).or_insert(next);
            if node == next {
                self.ends.push(None);
            }
        }
        if let Some(end) = self.ends.get_mut(node as usize) {
            *end = Some((number, score));
        }
    }

    /// Adds the tokens of a word to a meter.
    pub(super) fn count_into(&self, word: &str, meter: &mut TokenMeter<'_>) -> Result<(), CountHalt> {
        // Best paths to the offsets after the current one, at most as many as the longest token has bytes.
        let mut paths: VecDeque<Option<TokenPath>> = VecDeque::new();
        let mut here = TokenPath { score: 0.0, tokens: 0, unknown: 0 };
        for (at, letter) in word.char_indices() {
            if at > 0 {
                here = self.take_path(&mut paths, here);
            }
            self.extend_paths(word.as_bytes().get(at..).unwrap_or_default(), letter, here, &mut paths);
            // Offsets inside a character are skipped, because no path ends there.
            for _ in 1..letter.len_utf8() {
                paths.pop_front();
            }
            if at % CHECK_INTERVAL < letter.len_utf8() {
                self.check_budget(&paths, here, meter)?;
            }
        }
        if !word.is_empty() {
            here = self.take_path(&mut paths, here);
        }
        meter.add(here.tokens + self.unknown_tokens(here.unknown))
    }

    /// Removes and returns the path to the next offset. Each offset has a path, at least by an unknown character.
    fn take_path(&self, paths: &mut VecDeque<Option<TokenPath>>, before: TokenPath) -> TokenPath {
        paths.pop_front().flatten().unwrap_or(before)
    }

    /// Ends the count if every open path already has too many tokens.
    fn check_budget(
        &self,
        paths: &VecDeque<Option<TokenPath>>,
        here: TokenPath,
        meter: &TokenMeter<'_>,
    ) -> Result<(), CountHalt> {
        let open = paths.iter().flatten().chain(std::iter::once(&here));
        let mut least = *meter;
        least.add(open.map(|path| path.tokens).min().unwrap_or(0))
    }

    /// Improves the paths to the offsets that one token reaches from the current offset. The front of `paths` belongs
    /// to the next offset.
    fn extend_paths(
        &self,
        rest: &[u8],
        letter: char,
        here: TokenPath,
        paths: &mut VecDeque<Option<TokenPath>>,
    ) {
        let (mut node, mut alone) = (0, false);
        for (length, byte) in rest.iter().enumerate() {
            let Some(next) = self.children.get(&key(node, *byte)) else { break };
            node = *next;
            if let Some((token, score)) = self.ends.get(node as usize).copied().flatten() {
                alone |= length + 1 == letter.len_utf8();
                improve_path(paths, length, self.extended_path(here, Some(token), score, length + 1));
            }
        }
        if !alone {
            let length = letter.len_utf8();
            improve_path(
                paths,
                length - 1,
                self.extended_path(here, self.unknown, self.unknown_score, length),
            );
        }
    }

    /// Returns a path extended by one token of `bytes` bytes.
    fn extended_path(&self, path: TokenPath, token: Option<u32>, score: f64, bytes: usize) -> TokenPath {
        let score = path.score + score;
        if token == self.unknown {
            return TokenPath { score, unknown: path.unknown + bytes as u64, ..path };
        }
        TokenPath { score, tokens: path.tokens + self.unknown_tokens(path.unknown) + 1, unknown: 0 }
    }

    /// Returns the number of tokens for a run of unknown bytes: one, or one for each byte.
    fn unknown_tokens(&self, bytes: u64) -> u64 {
        if self.fallback { bytes } else { u64::from(bytes > 0) }
    }

    /// Returns the length of the longest token in bytes; `None` if a run of unknown characters is one token.
    pub(super) fn max_text_bytes_per_token(&self) -> Option<usize> {
        self.fallback.then(|| self.longest.max(char::MAX.len_utf8()))
    }
}

/// Replaces the path to an offset if the new one has a better score.
fn improve_path(paths: &mut VecDeque<Option<TokenPath>>, index: usize, path: TokenPath) {
    if paths.len() <= index {
        paths.resize(index + 1, None);
    }
    if let Some(best) = paths.get_mut(index)
        && best.is_none_or(|best| path.score > best.score)
    {
        *best = Some(path);
    }
}

fn key(node: u32, byte: u8) -> u64 {
    u64::from(node) << 8 | u64::from(byte)
}
