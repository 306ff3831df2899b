//! Log on standard error: one line per event, without prompts, completions or keys. Events are those of `tracing`: a
//! filter of `tracing-subscriber` passes the events of this workspace up to the configured level, and a layer formats
//! them. Events of other crates are not written, since they may contain header fields and addresses.
//!
//! Lines are queued and written by the thread of `tracing-appender`, so that a slow terminal never slows a request. If
//! it cannot keep up, lines are dropped and counted.

mod exchange;
mod layer;
mod line;
mod writer;

pub use exchange::log_exchange;
pub use writer::{flush_log, request_flush};

use crate::config::settings::{LogLevel, LogSettings};
use layer::LineLayer;
use std::sync::OnceLock;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Registry, reload};

/// Maximum capacity that an empty buffer keeps, in bytes.
const MAX_RETAINED_BYTES: usize = 64 * 1024;

/// Prefix of the targets whose events are written: the module paths of this workspace.
const OWN_TARGETS: &str = "penstock";

/// Handle that changes the level filter of the installed subscriber.
static FILTER: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Emits an event of `tracing` at a level that is known at run time.
macro_rules! event_at {
    ($level:expr, $($event:tt)+) => {
        match $level {
            $crate::config::settings::LogLevel::Error => tracing::error!($($event)+),
            $crate::config::settings::LogLevel::Warn => tracing::warn!($($event)+),
            $crate::config::settings::LogLevel::Info => tracing::info!($($event)+),
            $crate::config::settings::LogLevel::Debug => tracing::debug!($($event)+),
        }
    };
}
pub(crate) use event_at;

/// Installs the subscriber of the process, with the level `info`, unless there is one. Earlier events are not written.
pub fn install_subscriber() {
    filter();
}

/// Sets the level and the format of the log.
pub fn apply_log_settings(log: LogSettings) {
    line::set_format(log.format);
    filter().reload(targets(log.level)).ok();
}

fn filter() -> &'static reload::Handle<Targets, Registry> {
    FILTER.get_or_init(|| {
        let (filter, handle) = reload::Layer::new(targets(LogLevel::Info));
        tracing::subscriber::set_global_default(Registry::default().with(filter).with(LineLayer)).ok();
        handle
    })
}

/// Returns a filter that passes the events of this workspace up to a level.
fn targets(level: LogLevel) -> Targets {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    };
    Targets::new().with_target(OWN_TARGETS, level)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn events_of_other_crates_and_above_the_level_are_not_written() {
        for (level, passed) in [
            (LogLevel::Error, [true, false, false, false]),
            (LogLevel::Warn, [true, true, false, false]),
            (LogLevel::Info, [true, true, true, false]),
            (LogLevel::Debug, [true; 4]),
        ] {
            let filter = targets(level);
            let passes = |target| {
                [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG]
                    .map(|level| filter.would_enable(target, &level))
            };
            assert_eq!(passes("penstock::billing::writer"), passed, "{level:?}");
            assert_eq!(passes("penstock_storage::sled"), passed, "{level:?}");
            for other in ["h2::codec::framed_read", "hyper_util::client", "object_store::aws"] {
                assert_eq!(passes(other), [false; 4], "{level:?} {other}");
            }
        }
    }
}
