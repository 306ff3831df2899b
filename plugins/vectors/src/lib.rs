//! Embeddings and rerank: what a client asked becomes what a provider of one of
//! the known shapes understands, and its answer becomes the contract's.
//!
//! To add a shape: a file that implements [`Shape`], and a line in [`SHAPES`].

use penstock_contract::Shape;

/// Every shape; a kind's first is its default.
pub const SHAPES: &[&dyn Shape] = &[];
