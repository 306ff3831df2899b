//! Log on standard error, one line per event, without prompts, completions or keys. Lines are collected in a buffer and
//! written by a thread of their own, so that a slow terminal never slows a request; if the thread cannot keep up, lines
//! are dropped and their number is logged.

mod exchange;
mod line;
mod writer;

pub use exchange::exchange;
pub use writer::flush;

use crate::config::settings::{Log, LogLevel};
use line::Line;
use std::sync::atomic::{AtomicU8, Ordering};

/// Capacity that empty buffers retain, in bytes.
const KEPT: usize = 64 * 1024;

static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Info as u8);

/// Sets level and format.
pub fn set(log: Log) {
    LEVEL.store(log.level as u8, Ordering::Relaxed);
    line::shape(log.format);
}

/// Returns the level of ordinary lines.
#[must_use]
pub const fn info() -> LogLevel {
    LogLevel::Info
}

/// Returns the level of warnings.
#[must_use]
pub const fn warn() -> LogLevel {
    LogLevel::Warn
}

/// Returns the level of errors that need an operator.
#[must_use]
pub const fn error() -> LogLevel {
    LogLevel::Error
}

/// Returns true if lines of this level are written.
pub(super) fn wanted(level: LogLevel) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// Writes a line about the gateway itself.
pub fn event(level: LogLevel, name: &str, members: &[(&str, &str)]) {
    if !wanted(level) {
        return;
    }
    let mut line = Line::new(level, name);
    for (key, value) in members {
        line.text(key, value);
    }
    line.send();
}
