//! Limits on requests: rate limits and budgets of a key, admission control of the process, permits to count tokens and
//! of open streams.

pub mod admission_control;
pub mod background_stream_permits;
pub mod rate_limit;
pub mod tokenizer_permits;
