//! Embeddings and rerank: converts a client's request into one of the known provider shapes, and the answer into the
//! contract's types.
//!
//! Order, form and scale are corrected here, whatever the provider does; vectors that are already correct pass as the
//! provider's own bytes.
//!
//! To add a shape: a file that implements [`Shape`], a line in [`SHAPES`], and golden cases in
//! `testdata/<kind>_<name>/`.

mod cursor;
mod embeddings;
mod floats;
mod rerank;
mod said;
#[cfg(test)]
mod tests;
mod text;

use penstock_contract::Shape;

/// Every shape; the first of a kind is its default.
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
