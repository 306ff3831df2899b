//! Composition of the process: startup, listeners, background tasks, reload triggers, service notification.

pub mod background;
pub mod demo_providers;
pub mod file_watcher;
pub mod gateway;
pub mod listener;
pub mod sd_notify;
pub mod startup;
