//! Size limits of a request.

/// Limits of a request. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Maximum bytes of the body; at most `u32::MAX`.
    pub max_body: usize,
    /// Maximum nesting depth of objects and arrays.
    pub max_depth: usize,
    /// Maximum number of top-level members.
    pub max_fields: usize,
    /// Maximum number of keys and values that the gateway reads (a JSON schema or tool arguments count as one). This
    /// limits the memory that a request needs besides its body: 16 bytes per key or value.
    pub max_values: usize,
    /// Maximum number of stop sequences.
    pub max_stop: usize,
    /// Maximum bytes of one stop sequence.
    pub max_stop_bytes: usize,
    /// Maximum number of tools.
    pub max_tools: usize,
    /// Maximum number of inputs of an embedding or moderation request.
    pub max_inputs: usize,
    /// Maximum number of documents of a rerank request.
    pub max_documents: usize,
}

impl Default for RequestLimits {
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
