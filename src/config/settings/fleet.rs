//! Settings of a fleet.

use std::time::Duration;

/// Settings of several gateways that share a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetSettings {
    /// Name of this gateway for operators; `None` for the host and the process.
    pub name: Option<String>,
    /// Time without a heartbeat after which other members take over the batches of a member.
    pub claim: Duration,
    /// Time without a heartbeat after which other members evict a member and take its leases back.
    pub lease: Duration,
    /// Spending that is leased in advance for a prepaid account, as a time at the present rate.
    pub advance: Duration,
    /// Maximum time without the database for which known keys are accepted; `None` for no limit.
    pub stale: Option<Duration>,
}
