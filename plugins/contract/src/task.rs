//! What is asked for, beyond the members that every kind of work has: read out
//! once by admission, in slices of the body.

use crate::media::{Draw, Transcribe};
use bytes::Bytes;

/// The task of an ask, by kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Task {
    /// An answer to messages; translators read them from the body.
    #[default]
    Talk,
    /// Vectors of texts.
    Embed(Embed),
    /// Scores of documents against a query.
    Rerank(Rerank),
    /// Images.
    Draw(Draw),
    /// Speech written down.
    Transcribe(Transcribe),
}

/// What becomes vectors.
#[derive(Clone, Debug, PartialEq)]
pub struct Embed {
    /// One for each vector, in order; never empty.
    pub inputs: Inputs,
    /// The body's own `input` says the same, so it may be sent as it came.
    pub verbatim: bool,
    /// The client wants base64 of little-endian `f32` instead of arrays of numbers.
    pub base64: bool,
    /// Length of the vectors, where the client wants another than the model's own.
    pub dimensions: Option<u32>,
}

/// The inputs of an [`Embed`], each as a JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Inputs {
    /// JSON strings, quotes included.
    Texts(Vec<Bytes>),
    /// JSON arrays of token ids.
    Ids(Vec<Bytes>),
    /// JSON strings and arrays of token ids in one list.
    Mixed(Vec<Bytes>),
}

impl Inputs {
    /// The JSON values.
    #[must_use]
    pub fn values(&self) -> &[Bytes] {
        match self {
            Self::Texts(values) | Self::Ids(values) | Self::Mixed(values) => values,
        }
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values().len()
    }

    /// None; admission lets that not pass.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values().is_empty()
    }
}

/// What is scored against what.
#[derive(Clone, Debug, PartialEq)]
pub struct Rerank {
    /// The query, a JSON string with its quotes.
    pub query: Bytes,
    /// The text of each document, JSON strings with their quotes; never empty.
    pub documents: Vec<Bytes>,
    /// Results to return, at least 1; all when left out.
    pub top_n: Option<usize>,
    /// Each result repeats its document's text.
    pub return_documents: bool,
}
