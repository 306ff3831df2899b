//! Tokenizers from `tokenizer.json` files, for counting only.
//!
//! Guarantees: the same number of tokens as the `tokenizers` library for the same file and text. A file with an unknown
//! part is refused, and the error names that part.

mod added_tokens;
mod alphabet;
mod bpe;
mod file;
mod normalize;
mod pretokenize;
mod unigram;

#[cfg(test)]
mod tests;

use crate::budget::{CountHalt, TokenMeter};
use added_tokens::AddedTokens;
use bpe::BpeModel;
use normalize::TextNormalizer;
use pretokenize::PretokenizerStep;
use std::borrow::Cow;
use unigram::UnigramModel;

/// Error of a tokenizer, configuration or template file that cannot be used: one sentence that names the file and the
/// reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TokenizerError(pub(crate) String);

/// Tokenizer read from a file.
pub(crate) struct FileTokenizer {
    added: AddedTokens,
    normalizer: TextNormalizer,
    cuts: Vec<PretokenizerStep>,
    model: TokenizerModel,
    /// Number of special tokens that are added around a text that is not a chat.
    special_token_count: u64,
}

enum TokenizerModel {
    Bpe(Box<BpeModel>),
    Unigram(Box<UnigramModel>),
}

impl FileTokenizer {
    /// Reads a `tokenizer.json`.
    pub(crate) fn from_json(json: &[u8]) -> Result<Self, TokenizerError> {
        file::parse_tokenizer_json(json).map_err(|why| TokenizerError(format!("tokenizer.json: {why}")))
    }

    /// Counts the tokens of a rendered prompt, without a limit.
    pub(crate) fn count(&self, text: &str) -> u64 {
        let mut meter = TokenMeter::new(0, crate::CountBudget::unlimited());
        self.count_into(text, &mut meter).unwrap_or_default();
        meter.tokens()
    }

    /// Adds the tokens of a rendered prompt to a meter.
    pub(crate) fn count_into(&self, text: &str, meter: &mut TokenMeter<'_>) -> Result<(), CountHalt> {
        meter.check_bytes(text.len(), self.max_text_bytes_per_token())?;
        self.added.split_raw(text, |segment, at_start| match segment {
            None => meter.add(1),
            Some(segment) => self.add_segment(segment, at_start, meter),
        })
    }

    /// Returns the number of special tokens that are added around a text that is not a chat.
    pub(crate) const fn special_token_count(&self) -> u64 {
        self.special_token_count
    }

    /// Returns the maximum number of bytes of text for one token; `None` if there is no maximum, because the tokenizer
    /// drops some text, or makes one token of a run of any length.
    pub(crate) fn max_text_bytes_per_token(&self) -> Option<usize> {
        if self.cuts.iter().any(PretokenizerStep::removes_text) {
            return None;
        }
        let model = match &self.model {
            TokenizerModel::Bpe(bpe) => bpe.max_text_bytes_per_token()?,
            TokenizerModel::Unigram(unigram) => unigram.max_text_bytes_per_token()?,
        };
        model.max(self.added.max_text_bytes_per_token()?).checked_mul(self.normalizer.max_shrink_factor()?)
    }

    fn add_segment(
        &self,
        segment: &str,
        at_start: bool,
        meter: &mut TokenMeter<'_>,
    ) -> Result<(), CountHalt> {
        let normalized: Cow<'_, str> = self.normalizer.normalize(segment);
        let mut scratch = Vec::new();
        self.added.split_normalized(&normalized, |piece, first| match piece {
            None => meter.add(1),
            Some(piece) => {
                let mut word = |word: &str, _: bool| match &self.model {
                    TokenizerModel::Bpe(bpe) => bpe.count_into(word, &mut scratch, meter),
                    TokenizerModel::Unigram(unigram) => unigram.count_into(word, meter),
                };
                pretokenize::apply_steps(&self.cuts, piece, at_start && first, &mut word)
            }
        })
    }
}
