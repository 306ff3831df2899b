//! `[overload]` as written in a configuration.

use super::{ByteSize, NonZeroDuration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Overload protection: limits on concurrent work. Requests beyond a limit wait in a queue that is fair between
/// accounts, and are refused with 503 and `retry-after` after `wait` or if the queue is full.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct OverloadConfig {
    /// Maximum number of requests in flight, including streams. The last eighth is reserved for accounts with less than
    /// an eighth of them.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub requests: u32,
    /// Maximum memory for request bodies and unstreamed answers, all together; at least twice `limits.json_body`.
    pub bytes: ByteSize,
    /// Maximum number of requests in each queue: for the gateway, for the token count of a long prompt, and for each
    /// provider that is full.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub queue: u32,
    /// Maximum time in a queue.
    pub wait: NonZeroDuration,
    /// Maximum number of long prompts whose tokens are counted at the same time, at most one per account. Each may use
    /// one CPU core, and memory of several times `limits.json_body`.
    #[schemars(range(min = 1, max = 1_024))]
    pub counting: u32,
}

impl Default for OverloadConfig {
    fn default() -> Self {
        Self {
            requests: 10_000,
            bytes: ByteSize(512 << 20),
            queue: 1_000,
            wait: NonZeroDuration::from_secs(2),
            counting: 2,
        }
    }
}
