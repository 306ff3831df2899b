//! Bytes on the wire: heads of requests and answers, server-sent events, forms, JSON handled in place, error envelopes.
//!
//! Everything here works on bytes as they come and copies as little as it can.
//! It knows the shapes of the two dialects' errors, the places where providers
//! state tokens and joules, and nothing else of them.

pub mod answer;
pub mod error;
pub mod figures;
pub mod form;
pub mod frames;
pub mod head;
pub mod host;
pub mod json;
pub mod sse;
