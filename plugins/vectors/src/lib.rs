//! Embeddings and rerank: what a client asked becomes what a provider of one of
//! the known shapes understands, and its answer becomes the contract's.
//!
//! Order, form and scale are made right here, whatever the provider does;
//! vectors that are right already pass as the provider's own bytes.
//!
//! To add a shape: a file that implements [`Shape`], a line in [`SHAPES`], and
//! golden cases in `testdata/<kind>_<name>/`.

mod cursor;
mod embeddings;
mod floats;
mod rerank;
mod said;
#[cfg(test)]
mod tests;
mod text;

use penstock_contract::Shape;

/// Every shape; a kind's first is its default.
pub const SHAPES: &[&dyn Shape] = &[
    &embeddings::openai::OpenAi,
    &embeddings::tei::Tei,
    &rerank::listed::VLLM,
    &rerank::listed::JINA,
    &rerank::listed::COHERE_V1,
    &rerank::listed::COHERE_V2,
    &rerank::listed::INFINITY,
    &rerank::tei::Tei,
];
