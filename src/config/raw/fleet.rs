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
    /// Time without a heartbeat after which other gateways take back the credits that this gateway holds, and accept
    /// nothing more from it. Without the database, prepaid accounts are served for three quarters of this time.
    pub lease: NonZeroDuration,
    /// Credits that a gateway holds in advance for each prepaid account, as the time for which they last at the present
    /// rate of spending.
    pub ahead: NonZeroDuration,
    /// Time without the database for which known keys are accepted; 0s for as long as there are leases.
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
