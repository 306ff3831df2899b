//! The tokenizer of gpt-oss: `o200k_harmony`, built in.
//!
//! Promises: the tokens of `tiktoken` for ordinary text (special tokens in the text are plain
//! text), from a vocabulary that costs 0.9 MB of the binary. Unpacked once, on first use.

use crate::merge::{Joins, Symbol, merge};
use crate::split::Pattern;
use crate::vocabulary::Vocabulary;
use std::sync::OnceLock;

/// See `assets/README.md`.
static PAIRS: &[u8] = include_bytes!("../assets/o200k.pairs");

/// How many tokens ordinary text can give.
const TOKENS: u32 = 199_998;
/// The bits of one half of a pair.
const HALF: u32 = 18;

/// The published pattern that cuts text into pieces.
const PATTERN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

/// The vocabulary and the pattern.
pub(crate) struct O200k {
    vocabulary: Vocabulary,
    pattern: Pattern,
    /// The token of each single byte.
    singles: [u32; 256],
}

impl O200k {
    /// The one of this process.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<O200k> = OnceLock::new();
        SHARED.get_or_init(Self::unpack)
    }

    /// Short of the packed file's end nothing can fail, and a test compares every token.
    fn unpack() -> Self {
        let mut vocabulary = Vocabulary::with_capacity(TOKENS as usize);
        let mut singles = [0; 256];
        let (bytes, pairs) = PAIRS.split_at_checked(256).unwrap_or_default();
        for byte in bytes {
            let token = vocabulary.add(&[*byte]);
            if let Some(single) = singles.get_mut(*byte as usize) {
                *single = token;
            }
        }
        let mut halves = halves(pairs);
        let mut joined = Vec::with_capacity(128);
        while let (Some(left), Some(right)) = (halves.next(), halves.next()) {
            if vocabulary.len() == TOKENS as usize {
                break;
            }
            joined.clear();
            joined.extend_from_slice(vocabulary.bytes(left));
            joined.extend_from_slice(vocabulary.bytes(right));
            vocabulary.add(&joined);
        }
        let pattern = Pattern::new(PATTERN).unwrap_or_default();
        Self { vocabulary, pattern, singles }
    }

    /// How many tokens a text has.
    pub(crate) fn count(&self, text: &str) -> u64 {
        let mut tokens = 0;
        self.pieces(text, |_, symbols| tokens += symbols.len() as u64);
        tokens
    }

    /// Each piece of a text with its tokens.
    pub(crate) fn pieces(&self, text: &str, mut each: impl FnMut(&str, &[Symbol])) {
        let mut symbols = Vec::with_capacity(64);
        self.pattern.each(text, |piece, _| {
            self.encode(piece.as_bytes(), &mut symbols);
            each(piece, &symbols);
        });
    }

    fn encode(&self, piece: &[u8], symbols: &mut Vec<Symbol>) {
        symbols.clear();
        if let Some(token) = self.vocabulary.find(piece) {
            symbols.push(Symbol::new(token, 0, piece.len() as u32));
            return;
        }
        symbols.extend(piece.iter().enumerate().map(|(at, byte)| {
            let token = self.singles.get(*byte as usize).copied().unwrap_or_default();
            Symbol::new(token, at as u32, at as u32 + 1)
        }));
        merge(self, piece, symbols);
    }
}

impl Joins for O200k {
    /// A token's number is its rank; any two neighbours whose bytes are a token join.
    #[inline]
    fn join(&self, _: u32, _: u32, piece: &[u8], at: u32, end: u32) -> Option<(u32, u32)> {
        let token = self.vocabulary.find(piece.get(at as usize..end as usize)?)?;
        Some((token, token))
    }
}

/// The ranks of a run of 18-bit numbers.
fn halves(packed: &[u8]) -> impl Iterator<Item = u32> {
    let mut packed = packed.iter();
    let (mut pending, mut width) = (0u64, 0u32);
    std::iter::from_fn(move || {
        while width < HALF {
            pending |= u64::from(*packed.next()?) << width;
            width += 8;
        }
        let rank = pending & ((1 << HALF) - 1);
        pending >>= HALF;
        width -= HALF;
        Some(rank as u32)
    })
}

#[cfg(test)]
mod tests;
