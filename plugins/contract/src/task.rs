//! Task of a request: the parameters of one kind of work, read once by admission as slices of the body.

use crate::media::{Draw, Transcribe};
use bytes::Bytes;

/// Task of a request, by kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Task {
    /// Chat answer; translators read the messages from the body.
    #[default]
    Talk,
    /// Embedding vectors of texts.
    Embed(Embed),
    /// Relevance scores of documents for a query.
    Rerank(Rerank),
    /// Generated images.
    Draw(Draw),
    /// Transcribed speech.
    Transcribe(Transcribe),
}

/// Parameters of an embedding request.
#[derive(Clone, Debug, PartialEq)]
pub struct Embed {
    /// Inputs in order, one for each vector; never empty.
    pub inputs: Inputs,
    /// True if the body's own `input` is equivalent and can be forwarded unchanged.
    pub verbatim: bool,
    /// True if the client wants base64 of little-endian `f32` instead of arrays of numbers.
    pub base64: bool,
    /// Vector length; `None` for the model's default.
    pub dimensions: Option<u32>,
}

/// Inputs of an [`Embed`], each as a JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Inputs {
    /// JSON strings with their quotes.
    Texts(Vec<Bytes>),
    /// JSON arrays of token ids.
    Ids(Vec<Bytes>),
    /// JSON strings and arrays of token ids in one list.
    Mixed(Vec<Bytes>),
}

impl Inputs {
    /// JSON values in order.
    #[must_use]
    pub fn values(&self) -> &[Bytes] {
        match self {
            Self::Texts(values) | Self::Ids(values) | Self::Mixed(values) => values,
        }
    }

    /// Number of inputs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values().len()
    }

    /// True if there are no inputs, which admission refuses.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values().is_empty()
    }
}

/// Parameters of a rerank request.
#[derive(Clone, Debug, PartialEq)]
pub struct Rerank {
    /// Query, a JSON string with its quotes.
    pub query: Bytes,
    /// Texts of the documents, JSON strings with their quotes; never empty.
    pub documents: Vec<Bytes>,
    /// Maximum number of results, at least 1; `None` for all.
    pub top_n: Option<usize>,
    /// True if each result repeats its document's text.
    pub return_documents: bool,
}
