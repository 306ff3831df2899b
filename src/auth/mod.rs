//! Authentication of clients: API keys, their accounts and scopes, cached in memory.

pub mod key_cache;
pub mod principal;
