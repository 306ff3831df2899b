//! Wire formats: HTTP/1.1 request and response heads, HTTP/2 frame heads, server-sent events, multipart forms, JSON
//! without parsing into a tree, and error envelopes.
//!
//! The parsers work on received bytes and copy as little as possible. This crate knows the error format of the two
//! dialects and the members in which providers report tokens and energy, and no other parts of the dialects.

pub mod answer;
pub mod error;
pub mod form;
pub mod host;
pub mod http1_request;
pub mod http2_frames;
pub mod sse;
pub mod usage;
