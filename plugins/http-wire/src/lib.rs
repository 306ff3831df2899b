//! Wire formats: HTTP/1.1 request and response heads, HTTP/2 frame headers, server-sent events, multipart forms, usage
//! objects and error envelopes.
//!
//! The parsers work on received bytes and copy as little as possible. Of the dialects, this crate knows the form of
//! errors and the members in which providers report tokens and energy, and nothing else.

pub mod answer;
pub mod error;
pub mod form;
pub mod host;
pub mod http1_request;
pub mod http2_frames;
pub mod sse;
pub mod usage;
