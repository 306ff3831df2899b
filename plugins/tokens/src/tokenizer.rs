//! Tokenizers from `tokenizer.json` files, for counting only.
//!
//! Promises: the number of tokens that the `tokenizers` library gives for the same file and text;
//! a file with a part that is not known is refused with a sentence that names the part.

mod added;
mod alphabet;
mod bpe;
mod file;
mod normalize;
mod pretokenize;
mod unigram;

#[cfg(test)]
mod tests;

use added::Added;
use bpe::Bpe;
use normalize::Normalizer;
use pretokenize::Cut;
use std::borrow::Cow;
use unigram::Unigram;

/// Why a tokenizer's files cannot be used: one sentence that names the file and the place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TokenizerError(pub(crate) String);

/// A tokenizer.
pub(crate) struct Tokenizer {
    added: Added,
    normalizer: Normalizer,
    cuts: Vec<Cut>,
    model: Model,
    /// Tokens added around a text that is no chat.
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

    /// The tokens of a rendered prompt.
    pub(crate) fn count(&self, text: &str) -> u64 {
        let mut tokens = 0;
        self.added.split_raw(text, |segment, at_start| match segment {
            None => tokens += 1,
            Some(segment) => tokens += self.count_segment(segment, at_start),
        });
        tokens
    }

    /// The tokens of a text that is no chat: with what the tokenizer puts around it.
    pub(crate) fn count_document(&self, text: &str) -> u64 {
        self.count(text) + self.around
    }

    fn count_segment(&self, segment: &str, at_start: bool) -> u64 {
        let normalized: Cow<'_, str> = self.normalizer.apply(segment);
        let mut tokens = 0;
        let mut scratch = Vec::new();
        self.added.split_normalized(&normalized, |piece, first| match piece {
            None => tokens += 1,
            Some(piece) => pretokenize::run(&self.cuts, piece, at_start && first, &mut |word, _| {
                tokens += match &self.model {
                    Model::Bpe(bpe) => bpe.count(word, &mut scratch),
                    Model::Unigram(unigram) => unigram.count(word),
                };
            }),
        });
        tokens
    }
}
