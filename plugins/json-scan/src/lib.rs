//! JSON on bytes, without a tree.
//!
//! - [`json`] looks for members, elements and texts lazily, in JSON that need not be complete;
//! - [`tape`] validates a whole document in one pass and records where its values are.
//!
//! Both accept the grammar of RFC 8259. Strings stay in the document until they are read.

mod block;
pub mod json;
pub mod tape;
