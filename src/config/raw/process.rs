//! `[process]` and `[log]` as written in a configuration.

use super::DurationOrZero;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Settings of the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct ProcessConfig {
    /// Number of worker threads; 0 for one per core.
    #[schemars(range(min = 0, max = 1024))]
    pub threads: u32,
    /// Time for which open requests may continue after SIGTERM or an upgrade; the process ends earlier if none is left.
    pub drain: DurationOrZero,
    /// Interval at which files of secrets and certificates are checked for changes; 0 for never.
    pub watch: DurationOrZero,
    /// Allow core dumps: the memory of a crashed process, including prompts and keys, may be written to disk.
    pub core_dumps: bool,
}

/// Log lines on standard error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct LogConfig {
    /// Minimum level of the lines that are written. `info` writes one line per request.
    pub level: LogLevel,
    /// Format: `json` for programs, `text` for people.
    pub format: LogFormat,
}

/// Log level, the highest first: action required (`error`), action possibly required (`warn`), one line per request and
/// per change (`info`), one line per attempt (`debug`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

/// Format of a log line: one JSON object, or `key=value` for reading in a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum LogFormat {
    Json,
    Text,
}

impl Default for ProcessConfig {
    fn default() -> Self {
        Self {
            threads: 0,
            drain: DurationOrZero(Duration::from_secs(600)),
            watch: DurationOrZero(Duration::from_secs(5)),
            core_dumps: false,
        }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: LogLevel::Info, format: LogFormat::Json }
    }
}
