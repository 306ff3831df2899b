//! `[spool]`, `[files]` and `[images]` as users write them: what clients send or are sent, and how long and how
//! much of it is kept.

use super::{Pause, Size, Span, mib};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Uploads and images while they are needed. On disk they have no name, so that nothing is left of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Spool {
    /// Folder of the files, relative to this file; `spool` in the folder of the store when left out.
    #[schemars(length(min = 1), example = &"/var/tmp/penstock")]
    pub path: Option<String>,
    /// What stays in memory; larger uploads go to a file.
    pub memory: Size,
    /// All files together; what does not fit is refused with 507.
    pub disk: Size,
}

/// Files that clients upload, and results of batches: kept until they are deleted or over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Files {
    /// Folder of their contents, relative to this file; `files` in the folder of the store when left out.
    #[schemars(length(min = 1), example = &"/var/lib/penstock/files")]
    pub path: Option<String>,
    /// Largest file; more is refused with 413.
    pub upload: Size,
    /// All files together; what does not fit is refused with 507.
    pub disk: Size,
    /// All files of one API key; what does not fit is refused with 507.
    pub per_key: Size,
    /// Room on the disk that uploads leave free, for the store and for what runs.
    pub keep_free: Size,
    /// How long files are kept; 0s until they are deleted.
    pub retention: Pause,
}

/// Images that clients fetch by their address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Images {
    /// How long an image can be fetched.
    pub lifetime: Span,
    /// All images together, at most 512 of them; beyond that the oldest of the account that has most go first.
    pub keep: Size,
}

impl Default for Spool {
    fn default() -> Self {
        Self { path: None, memory: Size(256 << 10), disk: mib(4096) }
    }
}

impl Default for Files {
    fn default() -> Self {
        Self {
            path: None,
            upload: mib(512),
            disk: mib(64 << 10),
            per_key: mib(16 << 10),
            keep_free: mib(256),
            retention: Pause(Duration::from_secs(30 * 86_400)),
        }
    }
}

impl Default for Images {
    fn default() -> Self {
        Self { lifetime: Span::seconds(3600), keep: mib(256) }
    }
}
