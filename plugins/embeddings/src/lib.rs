//! Embeddings, rerank and moderation: converts a client's request into one of the known provider APIs (shapes), and the
//! answer into the types of the gateway's API.
//!
//! Order, form and scale are corrected here, whatever the provider does; vectors that are already correct pass as the
//! provider's own bytes.
//!
//! To add a shape: a file that implements [`ProviderAdapter`], a line in [`ADAPTERS`], and golden cases in
//! `testdata/<kind>_<name>/`.

mod answer_usage;
mod cursor;
mod embeddings;
mod floats;
mod json_text;
mod moderation;
mod rerank;
#[cfg(test)]
mod tests;

pub use embeddings::fixed_length_error;
use penstock_core::ProviderAdapter;

/// Adapters of all provider APIs; the first adapter of each kind of model is the default.
pub const ADAPTERS: &[&dyn ProviderAdapter] = &[
    &embeddings::openai::OpenAiEmbeddings,
    &embeddings::tei::TeiEmbeddings,
    &rerank::standard::VLLM,
    &rerank::standard::JINA,
    &rerank::standard::COHERE_V1,
    &rerank::standard::COHERE_V2,
    &rerank::standard::INFINITY,
    &rerank::tei::TeiRerank,
    &moderation::OpenAiModeration,
];
