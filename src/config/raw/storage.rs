//! `[storage]` as written in a configuration.

use super::{Pause, Reference, Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Storage of persistent data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Storage {
    /// Folder of the store, created at the first start; relative to this file.
    #[schemars(length(min = 1))]
    pub path: String,
    /// Disk space held in reserve. It is freed when the disk is full, so that running work can end in an orderly way.
    pub ballast: Size,
    /// Pepper of the key digests, 64 hexadecimal digits. Without it the gateway creates one in the folder.
    pub pepper: Option<Reference>,
    /// Periodic archives of the store, created while the gateway runs.
    pub export: Export,
}

/// Periodic archives of all persistent data, created while the gateway runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Export {
    /// Interval between archives; 0s for never.
    pub every: Pause,
    /// Number of archives to retain; the oldest are deleted first.
    #[schemars(range(min = 1, max = 1_000))]
    pub keep: u32,
    /// Folder of the archives, relative to this file; by default `exports` in the folder of the store.
    #[schemars(length(min = 1), example = &"/mnt/backup/penstock")]
    pub path: Option<String>,
}

impl Default for Storage {
    fn default() -> Self {
        let ballast = Size(64 << 20);
        Self { path: "data".into(), ballast, pepper: None, export: Export::default() }
    }
}

impl Default for Export {
    fn default() -> Self {
        Self { every: Pause(Duration::from_secs(86_400)), keep: 7, path: None }
    }
}
