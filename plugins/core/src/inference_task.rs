//! Task of a request: the parameters of one kind of work, read once by admission as slices of the body.

use crate::media::{ImageRequest, TranscriptionRequest};
use bytes::Bytes;

/// Task of a request, by kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum InferenceTask {
    /// Chat answer; translators read the messages from the body.
    #[default]
    Chat,
    /// Embedding vectors of texts.
    Embed(EmbeddingTask),
    /// Relevance scores of documents for a query.
    Rerank(RerankTask),
    /// Generated images.
    GenerateImages(ImageRequest),
    /// Transcribed speech.
    Transcribe(TranscriptionRequest),
}

/// Parameters of an embedding request.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddingTask {
    /// Inputs in order, one for each vector; never empty.
    pub inputs: EmbeddingInputs,
    /// True if the body's own `input` is equivalent and can be forwarded unchanged.
    pub is_verbatim: bool,
    /// True if the client wants base64 of little-endian `f32` instead of arrays of numbers.
    pub as_base64: bool,
    /// Vector length; `None` for the model's default.
    pub dimensions: Option<u32>,
}

/// Inputs of an [`EmbeddingTask`], each as a JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum EmbeddingInputs {
    /// JSON strings with their quotes.
    Texts(Vec<Bytes>),
    /// JSON arrays of token ids.
    TokenIds(Vec<Bytes>),
    /// JSON strings and arrays of token ids in one list.
    Mixed(Vec<Bytes>),
}

impl EmbeddingInputs {
    /// JSON values in order.
    #[must_use]
    pub fn values(&self) -> &[Bytes] {
        match self {
            Self::Texts(values) | Self::TokenIds(values) | Self::Mixed(values) => values,
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
pub struct RerankTask {
    /// Query, a JSON string with its quotes.
    pub query: Bytes,
    /// Texts of the documents, JSON strings with their quotes; never empty.
    pub documents: Vec<Bytes>,
    /// Maximum number of results, at least 1; `None` for all.
    pub top_n: Option<usize>,
    /// True if each result repeats its document's text.
    pub return_documents: bool,
}
