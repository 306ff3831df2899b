//! `[overload]` as users write it.

use super::{Size, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much the gateway takes on at the same time. Beyond it requests wait a moment, accounts in turn, and are then
/// refused with 503 and a time to come back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Overload {
    /// Most requests at the same time, streams included. The last eighth is for accounts with less than an eighth.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub requests: u32,
    /// Request bodies and unstreamed answers in memory, all together; at least twice `limits.json_body`.
    pub bytes: Size,
    /// Most requests that wait, for the gateway, to have a long prompt counted, and for each provider that is full.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub queue: u32,
    /// How long they wait.
    pub wait: Span,
    /// Most long prompts that are counted at the same time, at most one of each account. Each may keep a processor
    /// busy, and takes memory of a few times `limits.json_body`.
    #[schemars(range(min = 1, max = 1_024))]
    pub counting: u32,
}

impl Default for Overload {
    fn default() -> Self {
        Self { requests: 10_000, bytes: Size(512 << 20), queue: 1_000, wait: Span::seconds(2), counting: 2 }
    }
}
