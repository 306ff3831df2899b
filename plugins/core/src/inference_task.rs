//! Task of a request: the parameters of its kind. Validation reads them once, as slices of the body.

use crate::media::{ImageTask, TranscriptionTask};
use crate::usage::WorkDone;
use bytes::Bytes;

/// Task of a request, by kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum InferenceTask {
    /// Chat answer; translators read the messages from the body.
    #[default]
    Chat,
    /// Text that continues prompts without roles; translators read the prompts from the task.
    Complete(CompletionTask),
    /// Computation of embedding vectors of texts.
    Embed(EmbeddingTask),
    /// Relevance scores of documents for a query.
    Rerank(RerankTask),
    /// Generation of images.
    GenerateImages(ImageTask),
    /// Transcription of speech.
    Transcribe(TranscriptionTask),
    /// Speech or moderation: the answer of the provider is passed on without a translation, and its work is metered.
    Passthrough(PassthroughTask),
}

/// Parameters of a speech or moderation request. The gateway forwards its members as they are, apart from the model
/// name and members that the provider does not accept, and passes the results on without a translation.
#[derive(Clone, Debug, PartialEq)]
pub struct PassthroughTask {
    /// Texts of the request, JSON strings with their quotes.
    pub texts: Vec<Bytes>,
    /// Maximum work of the request. The gateway reserves the price of this work before it sends the request, and
    /// never charges more for the answer.
    pub max_work: WorkDone,
    /// Content type of the answer, if it is not JSON. The objects `environment_impact` and `billing_cost` are then sent
    /// as headers.
    pub content_type: Option<&'static str>,
    /// Form in which the answer is sent to the client.
    pub delivery: PassthroughDelivery,
}

/// Form in which the answer of a passthrough task is sent to the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PassthroughDelivery {
    /// Complete answer, sent in one piece with its length.
    #[default]
    Complete,
    /// Bytes that pass as they arrive, with the content type of the task.
    Bytes,
    /// Server-sent events that carry the bytes as they arrive.
    Events,
}

/// Parameters of a text completion.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionTask {
    /// Prompts in order, each a JSON string with its quotes or an array of token ids; never empty.
    pub prompts: Vec<Bytes>,
    /// True if at least one prompt is an array of token ids.
    pub has_token_ids: bool,
    /// True if each text begins with its prompt.
    pub echo: bool,
    /// Number of choices of each prompt (`n`).
    pub choices_per_prompt: u32,
    /// Number of texts generated for each prompt (`best_of`), at least the number of its choices.
    pub generations_per_prompt: u32,
}

impl CompletionTask {
    /// Returns the number of texts that the request generates.
    #[must_use]
    pub fn generation_count(&self) -> u64 {
        (self.prompts.len() as u64).saturating_mul(u64::from(self.generations_per_prompt))
    }
}

/// Parameters of an embedding request.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddingTask {
    /// Inputs in order, one for each vector; never empty.
    pub inputs: EmbeddingInputs,
    /// True if the `input` of the client's body is equivalent to these inputs, so that it can be forwarded unchanged.
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
    /// Returns the inputs in order, each as a JSON value.
    #[must_use]
    pub fn values(&self) -> &[Bytes] {
        match self {
            Self::Texts(values) | Self::TokenIds(values) | Self::Mixed(values) => values,
        }
    }

    /// Returns the number of inputs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values().len()
    }

    /// Returns true if there are no inputs, which validation refuses.
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
