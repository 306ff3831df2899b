//! Metrics of a fleet: members, heartbeats, leases, differing configurations, the journal, and the feed of API key
//! changes. A gateway without a fleet exports none of these series.

use super::metrics::register;
use prometheus::{Gauge, IntCounter, IntGauge, Opts, Registry, Result};
use std::time::Duration;

/// State of a fleet as seen by this member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetStatus {
    /// Number of live members, this one included.
    pub members: usize,
    /// True if this member may spend its leases.
    pub may_spend_leases: bool,
    /// Number of members that this one evicted.
    pub evictions: u64,
    /// Number of times that a request waited while a lease drew credits from the database.
    pub blocking_draws: u64,
    /// Number of live members whose configuration differs.
    pub differing: usize,
    /// Time that the last heartbeat took.
    pub beat_duration: Duration,
    /// Time since the changes of keys were last read.
    pub feed_age: Duration,
    /// Bytes of the ledger's journal.
    pub journal_bytes: u64,
    /// True if the last write of the journal failed.
    pub journal_failing: bool,
    /// Number of charges that this process has replayed from the journal.
    pub journal_replayed: u64,
}

/// Metrics of a fleet.
pub(super) struct FleetMetrics {
    registry: Registry,
    series: std::sync::OnceLock<Option<FleetSeries>>,
}

struct FleetSeries {
    members: IntGauge,
    current: IntGauge,
    differing: IntGauge,
    evictions: IntCounter,
    blocking_draws: IntCounter,
    beat: Gauge,
    feed_age: Gauge,
    journal_bytes: IntGauge,
    journal_failing: IntGauge,
    journal_replayed: IntCounter,
}

impl FleetSeries {
    fn new(r: &Registry) -> Result<Self> {
        let one = |name: &str, help: &str| register(r, IntGauge::new(name, help)?);
        let count = |name: &str, help: &str| register(r, IntCounter::with_opts(Opts::new(name, help))?);
        let seconds = |name: &str, help: &str| register(r, Gauge::new(name, help)?);
        Ok(Self {
            members: one("penstock_fleet_members", "Live members of the fleet, as seen by this one.")?,
            current: one(
                "penstock_fleet_member_current",
                "1 while this member may spend its leases; 0 after three quarters of `fleet.lease` without the database.",
            )?,
            differing: one(
                "penstock_fleet_config_differs",
                "Live members whose configuration differs from that of this one.",
            )?,
            evictions: count(
                "penstock_fleet_evictions_total",
                "Dead members whose leases this one returned.",
            )?,
            blocking_draws: count(
                "penstock_fleet_blocking_draws_total",
                "Draws from the database that requests waited for, because a lease did not cover them.",
            )?,
            beat: seconds("penstock_fleet_heartbeat_seconds", "Duration of the last heartbeat.")?,
            feed_age: seconds(
                "penstock_fleet_key_changes_age_seconds",
                "Time since the changes of API keys were last read.",
            )?,
            journal_bytes: one(
                "penstock_fleet_journal_bytes",
                "Bytes of the journal of charges in the folder of this member, those in the database included.",
            )?,
            journal_failing: one(
                "penstock_fleet_journal_failing",
                "1 while the journal cannot be written: a crash would lose charges that the database does not have yet.",
            )?,
            journal_replayed: count(
                "penstock_fleet_journal_replayed_total",
                "Charges that the last process of the folder left in its journal, and this one has written.",
            )?,
        })
    }
}

impl FleetMetrics {
    pub(super) fn new(r: &Registry) -> Self {
        // In tests, the series are registered even without a fleet, because the tests of the alert rules need their
        // names.
        #[cfg(test)]
        FleetSeries::new(&Registry::new()).ok();
        Self { registry: r.clone(), series: std::sync::OnceLock::new() }
    }

    /// Sets the gauges; does nothing without a fleet.
    pub(super) fn update_gauges(&self, status: Option<&FleetStatus>) {
        let Some(status) = status else { return };
        let series = self.series.get_or_init(|| FleetSeries::new(&self.registry).ok());
        let Some(series) = series else { return };
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        series.members.set(count(status.members));
        series.current.set(i64::from(status.may_spend_leases));
        series.differing.set(count(status.differing));
        series.evictions.inc_by(status.evictions.saturating_sub(series.evictions.get()));
        series.blocking_draws.inc_by(status.blocking_draws.saturating_sub(series.blocking_draws.get()));
        series.beat.set(status.beat_duration.as_secs_f64());
        series.feed_age.set(status.feed_age.as_secs_f64());
        series.journal_bytes.set(i64::try_from(status.journal_bytes).unwrap_or(i64::MAX));
        series.journal_failing.set(i64::from(status.journal_failing));
        series.journal_replayed.inc_by(status.journal_replayed.saturating_sub(series.journal_replayed.get()));
    }
}
