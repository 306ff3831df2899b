//! Lines on standard error, one for each event, without a prompt, a completion
//! or a key. Lines are gathered in one place and written by a thread of their
//! own, so that a slow terminal never slows a request; when it cannot keep up,
//! lines are dropped and their number is told.

mod exchange;
mod line;
mod writer;

pub use exchange::exchange;
pub use writer::flush;

use crate::config::settings::{LogLevel, LogSettings};
use line::Line;
use std::sync::atomic::{AtomicU8, Ordering};

/// Bytes that buffers keep once they are empty.
const KEPT: usize = 64 * 1024;

static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Info as u8);

/// Sets level and shape.
pub fn set(log: LogSettings) {
    LEVEL.store(log.level as u8, Ordering::Relaxed);
    line::shape(log.format);
}

/// The level of ordinary lines.
#[must_use]
pub const fn info() -> LogLevel {
    LogLevel::Info
}

/// The level of lines that somebody may want to know of.
#[must_use]
pub const fn warn() -> LogLevel {
    LogLevel::Warn
}

/// The level of lines that need somebody.
#[must_use]
pub const fn error() -> LogLevel {
    LogLevel::Error
}

/// Whether a line of this level is written.
pub(super) fn wanted(level: LogLevel) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// A line about the house itself.
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
