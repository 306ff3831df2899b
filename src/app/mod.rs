//! Composition of the process: startup, listeners, background tasks, reload triggers, service notification.

pub mod background;
mod backups;
pub mod demo_history;
pub mod demo_providers;
pub mod file_watcher;
pub mod gateway;
mod predecessor;
pub mod sd_notify;
pub mod startup;
mod usage_days;
