//! Providers and their offers at run time: connections and exchanges, health and latency, concurrency limits, prices,
//! and the pools that order the offers of a request.

pub mod cache_affinity;
pub mod concurrency_limit;
pub mod config_snapshot;
pub mod connect;
pub mod connection_pool;
pub mod content_encoding;
pub mod count_queue;
pub mod failure_log;
mod frames;
pub mod http1;
mod idle_pool;
pub mod learned;
pub mod offer;
pub mod pem_copy;
pub mod pools;
pub mod pricing;
pub mod provider_state;
pub mod request_head;
pub mod send;
pub mod sessions;
pub mod tariff_version;
pub mod tokenize;
pub mod upstream_exchange;
pub mod wire_format;
