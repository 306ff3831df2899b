//! Limits on requests: rate limits and budgets of a key, admission control of the process, permits to count tokens.

pub mod admission_control;
pub mod rate_limit;
pub mod tokenizer_permits;
