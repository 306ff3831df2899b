//! Authentication of clients: API keys, their accounts and scopes, cached in memory.

pub mod account_json;
pub mod change_feed;
pub mod key_cache;
pub mod limit_sync;
pub mod limited_owner;
pub mod password;
pub mod principal;
pub mod usage_limiter;
