//! How much a request may hold.

/// Caps on a request. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the body; never more than `u32::MAX`.
    pub max_body: usize,
    /// Objects and arrays inside each other.
    pub max_depth: usize,
    /// Top-level members.
    pub max_fields: usize,
    /// Keys and values that the gateway reads (JSON schemas and tool arguments
    /// count as one). Bounds the memory that a body costs besides itself, at
    /// 16 bytes each.
    pub max_values: usize,
    /// Stop sequences.
    pub max_stop: usize,
    /// Bytes of one stop sequence.
    pub max_stop_bytes: usize,
    /// Tools.
    pub max_tools: usize,
    /// Inputs of one request for embeddings.
    pub max_inputs: usize,
    /// Documents of one request for rerank.
    pub max_documents: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_body: 32 << 20,
            max_depth: 128,
            max_fields: 256,
            max_values: 1 << 20,
            max_stop: 16,
            max_stop_bytes: 1 << 10,
            max_tools: 1024,
            max_inputs: 2048,
            max_documents: 10_000,
        }
    }
}
