//! `[process]` and `[log]` as users write them: how the process lives, and what it says of itself.

use super::Pause;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Process {
    /// Worker threads; 0 is one for each core.
    #[schemars(range(min = 0, max = 1024))]
    pub threads: u32,
    /// How long open requests may go on after SIGTERM or an upgrade; it ends sooner when none is left.
    pub drain: Pause,
    /// How often files of secrets and certificates are looked at for changes; 0 for never.
    pub watch: Pause,
    /// What is in memory, prompts and keys among it, may be written to disk when the process dies.
    pub core_dumps: bool,
}

/// Lines on standard error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Log {
    /// The least important line that is written. `info` is a line per request.
    pub level: LogLevel,
    /// `json` for machines, `text` for people.
    pub format: LogFormat,
}

/// Importance of a line, the highest first: it needs somebody (`error`), it may need somebody (`warn`), a line per
/// request and per change (`info`), a line per attempt (`debug`).
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

/// Shape of a line: one JSON object, or `key=value` for reading in a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum LogFormat {
    Json,
    Text,
}

impl Default for Process {
    fn default() -> Self {
        Self {
            threads: 0,
            drain: Pause(Duration::from_secs(600)),
            watch: Pause(Duration::from_secs(5)),
            core_dumps: false,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { level: LogLevel::Info, format: LogFormat::Json }
    }
}
