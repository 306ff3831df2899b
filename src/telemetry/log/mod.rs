//! Log on standard error: one line per event, without prompts, completions or keys. Lines are collected in a buffer and
//! written by a thread, so that a slow terminal never slows a request. If it cannot keep up, lines are dropped and
//! counted.

mod exchange;
mod line;
mod writer;

pub use exchange::log_exchange;
pub use writer::flush;

use crate::config::settings::{LogLevel, LogSettings};
use line::LogLine;
use std::sync::atomic::{AtomicU8, Ordering};

/// Capacity that empty buffers keep.
const MAX_RETAINED_BYTES: usize = 64 * 1024;

static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Info as u8);

/// Sets level and format.
pub fn configure(log: LogSettings) {
    LEVEL.store(log.level as u8, Ordering::Relaxed);
    line::set_format(log.format);
}

/// Level of ordinary events.
#[must_use]
pub const fn info() -> LogLevel {
    LogLevel::Info
}

/// Level of events that may need attention.
#[must_use]
pub const fn warn() -> LogLevel {
    LogLevel::Warn
}

/// Level of events that need attention.
#[must_use]
pub const fn error() -> LogLevel {
    LogLevel::Error
}

/// Returns true if lines of this level are written.
pub(super) fn is_enabled(level: LogLevel) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// Writes a line about an event of the process.
pub fn event(level: LogLevel, name: &str, members: &[(&str, &str)]) {
    if !is_enabled(level) {
        return;
    }
    let mut line = LogLine::new(level, name);
    for (key, value) in members {
        line.text(key, value);
    }
    line.send();
}
