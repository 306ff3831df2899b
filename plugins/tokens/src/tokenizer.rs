//! Tokenizers from `tokenizer.json` files, for counting only.
//!
//! Promises: the same number of tokens as the `tokenizers` library for the same file and text; a file with an unknown
//! part is refused with a sentence that names the part.

mod added;
mod alphabet;
mod bpe;
mod file;
mod normalize;
mod pretokenize;
mod unigram;

#[cfg(test)]
mod tests;

use crate::budget::{Halt, Meter};
use added::Added;
use bpe::Bpe;
use normalize::Normalizer;
use pretokenize::Cut;
use std::borrow::Cow;
use unigram::Unigram;

/// Error of unusable tokenizer files: one sentence that names the file and the location.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TokenizerError(pub(crate) String);

/// Tokenizer read from a file.
pub(crate) struct Tokenizer {
    added: Added,
    normalizer: Normalizer,
    cuts: Vec<Cut>,
    model: Model,
    /// Number of tokens added around a text that is no chat.
    around: u64,
}

enum Model {
    Bpe(Box<Bpe>),
    Unigram(Box<Unigram>),
}

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    pub(crate) fn from_json(json: &[u8]) -> Result<Self, TokenizerError> {
        file::read(json).map_err(|why| TokenizerError(format!("tokenizer.json: {why}")))
    }

    /// Counts the tokens of a rendered prompt, without a limit.
    pub(crate) fn count(&self, text: &str) -> u64 {
        let mut meter = Meter::new(0, crate::Budget::unlimited());
        self.add(text, &mut meter).unwrap_or_default();
        meter.tokens()
    }

    /// Adds the tokens of a rendered prompt.
    pub(crate) fn add(&self, text: &str, meter: &mut Meter<'_>) -> Result<(), Halt> {
        meter.check_bytes(text.len(), self.longest())?;
        self.added.split_raw(text, |segment, at_start| match segment {
            None => meter.add(1),
            Some(segment) => self.add_segment(segment, at_start, meter),
        })
    }

    /// Returns the number of tokens added around a text that is no chat.
    pub(crate) const fn around(&self) -> u64 {
        self.around
    }

    /// Returns the maximum number of bytes of one token; `None` if there is no limit, because the tokenizer drops or
    /// joins some text of any length.
    pub(crate) fn longest(&self) -> Option<usize> {
        if self.cuts.iter().any(Cut::drops) {
            return None;
        }
        let model = match &self.model {
            Model::Bpe(bpe) => bpe.longest()?,
            Model::Unigram(unigram) => unigram.longest()?,
        };
        model.max(self.added.longest()?).checked_mul(self.normalizer.shrinks()?)
    }

    fn add_segment(&self, segment: &str, at_start: bool, meter: &mut Meter<'_>) -> Result<(), Halt> {
        let normalized: Cow<'_, str> = self.normalizer.apply(segment);
        let mut scratch = Vec::new();
        self.added.split_normalized(&normalized, |piece, first| match piece {
            None => meter.add(1),
            Some(piece) => {
                let mut word = |word: &str, _: bool| match &self.model {
                    Model::Bpe(bpe) => bpe.count(word, &mut scratch, meter),
                    Model::Unigram(unigram) => unigram.count(word, meter),
                };
                pretokenize::run(&self.cuts, piece, at_start && first, &mut word)
            }
        })
    }
}
