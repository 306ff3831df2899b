//! Built-in tokenizer of gpt-oss: `o200k_harmony`.
//!
//! Guarantees: the same tokens as `tiktoken` for ordinary text (special tokens in the text count as plain text). The
//! packed vocabulary takes 0.9 MB of the binary and is unpacked once, on first use.

use crate::budget::{CountHalt, TokenMeter};
use crate::merge::{MergeRules, MergeSymbol, merge_pairs};
use crate::packed_vocabulary;
use crate::pretokenizer_regex::SplitPattern;
use crate::vocabulary::Vocabulary;
use crate::windows::{self, PieceEncoder, WINDOW_BYTES, floor_char_boundary};
use std::sync::OnceLock;

/// Packed vocabulary of `o200k_base`; `assets/README.md` describes the format.
static PACKED_VOCABULARY: &[u8] = include_bytes!("../assets/o200k.pairs");

/// Number of tokens in the vocabulary; special tokens are excluded.
const TOKENS: u32 = 199_998;

/// Published pattern that splits text into pieces.
const PATTERN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

/// Vocabulary and pattern of the tokenizer.
pub(crate) struct O200kTokenizer {
    vocabulary: Vocabulary,
    pattern: SplitPattern,
    /// Token of each single byte.
    singles: [u32; 256],
}

impl O200kTokenizer {
    /// Returns the shared instance of this process.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<O200kTokenizer> = OnceLock::new();
        SHARED.get_or_init(Self::unpack)
    }

    fn unpack() -> Self {
        let vocabulary = packed_vocabulary::unpack(PACKED_VOCABULARY, TOKENS as usize);
        let mut singles = [0; 256];
        for (byte, single) in (0..=u8::MAX).zip(&mut singles) {
            *single = vocabulary.find(&[byte]).unwrap_or_default();
        }
        let pattern = SplitPattern::new(PATTERN).unwrap_or_default();
        Self { vocabulary, pattern, singles }
    }

    /// Returns the vocabulary.
    pub(crate) fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// Counts the tokens of a text.
    #[cfg(test)]
    pub(crate) fn count(&self, text: &str) -> u64 {
        let mut meter = TokenMeter::new(0, crate::budget::CountBudget::unlimited());
        self.count_into(text, &mut meter).unwrap_or_default();
        meter.tokens()
    }

    /// Adds the tokens of a text to a meter.
    pub(crate) fn count_into(&self, text: &str, meter: &mut TokenMeter<'_>) -> Result<(), CountHalt> {
        meter.check_bytes(text.len(), Some(self.vocabulary.max_text_bytes_per_token()))?;
        let mut symbols = Vec::with_capacity(64);
        self.pattern.for_each_piece(text, |piece, _| {
            windows::count_piece(self, piece.as_bytes(), &mut symbols, meter)
        })
    }

    /// Calls `each` with every piece of a text and the tokens of that piece. A piece longer than a window is cut, and
    /// the tokens at the cuts may differ from those of the uncut piece: use this only for estimates.
    pub(crate) fn for_each_piece(
        &self,
        text: &str,
        mut each: impl FnMut(&str, &[MergeSymbol]) -> Result<(), CountHalt>,
    ) -> Result<(), CountHalt> {
        let mut symbols = Vec::with_capacity(64);
        self.pattern.for_each_piece(text, |mut piece, _| {
            loop {
                let (head, rest) = piece
                    .split_at_checked(floor_char_boundary(piece.as_bytes(), WINDOW_BYTES))
                    .unwrap_or((piece, ""));
                self.encode(head.as_bytes(), &mut symbols);
                each(head, &symbols)?;
                if rest.is_empty() {
                    return Ok(());
                }
                piece = rest;
            }
        })
    }
}

impl PieceEncoder for O200kTokenizer {
    fn encode(&self, piece: &[u8], symbols: &mut Vec<MergeSymbol>) {
        symbols.clear();
        if let Some(token) = self.vocabulary.find(piece) {
            symbols.push(MergeSymbol::new(token, 0, piece.len() as u32));
            return;
        }
        symbols.extend(piece.iter().enumerate().map(|(at, byte)| {
            let token = self.singles.get(*byte as usize).copied().unwrap_or_default();
            MergeSymbol::new(token, at as u32, at as u32 + 1)
        }));
        merge_pairs(self, piece, symbols);
    }
}

impl MergeRules for O200kTokenizer {
    /// Returns the token that the bytes of both neighbours form, which is also the rank of the merge; `None` if they
    /// form no token.
    #[inline]
    fn find_merge(&self, _: u32, _: u32, piece: &[u8], start: u32, end: u32) -> Option<(u32, u32)> {
        let token = self.vocabulary.find(piece.get(start as usize..end as usize)?)?;
        Some((token, token))
    }
}

#[cfg(test)]
mod tests;
