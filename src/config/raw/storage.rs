//! `[storage]` as users write it.

use super::{Pause, Reference, Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What it keeps, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Storage {
    /// Folder of the store, made at the first start; relative to this file.
    #[schemars(length(min = 1))]
    pub path: String,
    /// Room kept aside on the disk, freed when it is full so that running work can end in order.
    pub ballast: Size,
    /// Pepper of the key digests, 64 hexadecimal digits. Without it the gateway makes one in the folder.
    pub pepper: Option<Reference>,
    /// Archives of all of it, made while the gateway works.
    pub export: Export,
}

/// Archives of everything that lasts, made while the gateway works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Export {
    /// How often; 0s never.
    pub every: Pause,
    /// How many are kept; the oldest go first.
    #[schemars(range(min = 1, max = 1_000))]
    pub keep: u32,
    /// Folder of the archives, relative to this file; `exports` in the folder of the store when left out.
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
