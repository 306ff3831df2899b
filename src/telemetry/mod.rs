//! Logs and metrics: each kind of event has a log line and a metric.

mod access_record;
#[cfg(test)]
mod alert_rules;
pub mod batches;
pub mod blocking_tasks;
mod connection_metrics;
pub mod durability_metrics;
pub mod fd_limit;
pub mod file_store;
pub mod first_token_history;
pub mod fleet_metrics;
pub mod log;
pub mod metrics;
pub mod offers;
pub mod outcome_history;
pub mod overload;
pub mod panics;
mod process;
mod readiness;
pub mod recent_requests;
pub mod request_history;
pub mod request_id;
mod requests;
mod series_cache;
pub mod throttle;
mod trace;

pub use access_record::{
    AccessRecord, AttemptRecord, ExchangeKind, ExchangeOutcome, HEALTH_ENDPOINT_NAME, SessionAffinityOutcome,
};
pub use trace::TraceContext;
