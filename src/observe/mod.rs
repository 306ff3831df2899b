//! Telemetry of the gateway: logs each event once and counts it in its metric.

pub mod batches;
mod doors;
mod kept;
pub mod log;
pub mod metrics;
mod offers;
mod overload;
pub mod panics;
mod process;
mod record;
mod requests;
#[cfg(test)]
mod rules;
pub mod seldom;
mod series;
mod trace;

pub use record::{AttemptNote, HEALTH, Outcome, Record};
pub use trace::Trace;
