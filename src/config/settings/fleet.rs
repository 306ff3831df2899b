//! Settings of a fleet.

use std::time::Duration;

/// Settings of several gateways that share a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetSettings {
    /// Name of this gateway for operators; if `None`, the host name and the process id are used.
    pub name: Option<String>,
    /// Time without a heartbeat after which other gateways take over the batches of a silent gateway.
    pub claim: Duration,
    /// Time without a heartbeat after which other gateways evict a silent gateway and return its leases to the pools.
    pub lease: Duration,
    /// Amount that a gateway leases in advance for a prepaid account, given as the time for which the amount lasts at
    /// the present rate of spending.
    pub advance: Duration,
    /// Maximum time for which known keys are accepted while the database cannot be reached; `None` for no limit.
    pub stale: Option<Duration>,
}
