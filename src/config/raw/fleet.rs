//! `[fleet]` as written in a configuration.

use super::{DurationOrZero, NonZeroDuration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Several gateways that share a PostgreSQL database. The section itself, even an empty one, switches this on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct FleetConfig {
    /// Name of this gateway for operators; by default the host and the process.
    #[schemars(length(min = 1, max = 100))]
    pub name: Option<String>,
    /// Time without a heartbeat after which other gateways take over the batches of this one.
    pub claim: NonZeroDuration,
    /// Time without a heartbeat after which other gateways evict this one: they take back the credits that it holds,
    /// and the database accepts no more writes from it. Without the database, prepaid accounts are served for three
    /// quarters of this time.
    pub lease: NonZeroDuration,
    /// Credits that a gateway holds in advance for each prepaid account, as the time for which they last at the present
    /// rate of spending.
    pub ahead: NonZeroDuration,
    /// Maximum time without the database for which known keys are accepted; 0s for no limit. Leases limit the spending
    /// of prepaid accounts in both cases.
    pub stale: DurationOrZero,
}

impl Default for FleetConfig {
    fn default() -> Self {
        Self {
            name: None,
            claim: NonZeroDuration::from_secs(15),
            lease: NonZeroDuration::from_secs(600),
            ahead: NonZeroDuration::from_secs(300),
            stale: DurationOrZero(std::time::Duration::from_secs(300)),
        }
    }
}
