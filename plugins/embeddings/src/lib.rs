//! Embeddings and rerank: converts a client's request into one of the known provider shapes, and the answer into the
//! contract's types.
//!
//! Order, form and scale are corrected here, whatever the provider does; vectors that are already correct pass as the
//! provider's own bytes.
//!
//! To add a shape: a file that implements [`ProviderAdapter`], a line in [`SHAPES`], and golden cases in
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

use penstock_core::ProviderAdapter;

/// Every shape; the first of a kind is its default.
pub const SHAPES: &[&dyn ProviderAdapter] = &[
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
