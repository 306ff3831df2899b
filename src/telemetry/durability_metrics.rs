//! Metrics of durability: writes of charges to the disk, and backups.

use super::metrics::{register, register_counter, register_gauge};
use prometheus::{Gauge, IntCounterVec, IntGauge, IntGaugeVec, Registry, Result};

/// State of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerSnapshot {
    /// True if the store rejects entries or is too slow, or if this process may not write any more.
    pub failing: bool,
    /// True if no further request is accepted: a limit of unwritten charges is reached, or this process may not write
    /// any more.
    pub exhausted: bool,
    /// True if the replica of the ledger has all entries of the store.
    pub is_replica_current: bool,
    /// Charged and reserved amounts that are not yet on the disk, in 1e-8 EUR.
    pub exposed_eur_units: i64,
    /// Number of bytes that wait to be written to the ledger.
    pub waiting: u64,
    /// Number of open reservations.
    pub open: u64,
    /// Number of ledger entries on the disk in the chain that this process writes.
    pub entries: u64,
}

/// Metrics of backups and of the ledger.
pub(super) struct DurabilityMetrics {
    exports: IntCounterVec,
    exported: IntGaugeVec,
    ledger: LedgerMetrics,
}

impl DurabilityMetrics {
    pub(super) fn new(r: &Registry) -> Result<Self> {
        let metrics = Self {
            exports: register_counter(
                r,
                "penstock_exports_total",
                "Archives of the durable state that the gateway made, by result.",
                &["result"],
            )?,
            exported: register_gauge(
                r,
                "penstock_export_last_timestamp_seconds",
                "Time of the last complete archive, Unix seconds; absent if there is none.",
                &[],
            )?,
            ledger: LedgerMetrics::new(r)?,
        };
        // All series exist from the start, because Prometheus does not count the first value of a new series as an
        // increase.
        for result in ["ok", "failed"] {
            metrics.exports.with_label_values(&[result]).inc_by(0);
        }
        Ok(metrics)
    }

    /// Counts a backup that succeeded (`good`) or failed.
    pub(super) fn count_backup(&self, good: bool) {
        self.exports.with_label_values(&[if good { "ok" } else { "failed" }]).inc();
    }

    /// Sets the gauges of the ledger and the time of the last backup, Unix seconds; 0 if there is none.
    pub(super) fn update_gauges(&self, ledger: &LedgerSnapshot, last_export: u64) {
        self.ledger.update_gauges(ledger);
        let last = i64::try_from(last_export).unwrap_or(i64::MAX);
        self.exported.reset();
        if last > 0 {
            self.exported.with_label_values::<&str>(&[]).set(last);
        }
    }
}

/// Metrics of the ledger.
struct LedgerMetrics {
    failing: IntGauge,
    copied: IntGauge,
    open: IntGauge,
    entries: IntGauge,
    waiting: IntGauge,
    exposed: Gauge,
}

impl LedgerMetrics {
    fn new(r: &Registry) -> Result<Self> {
        let gauge = |name: &str, help: &str| register(r, IntGauge::new(name, help)?);
        Ok(Self {
            failing: gauge("penstock_ledger_failing", "1 while the store does not accept charges.")?,
            copied: gauge(
                "penstock_ledger_copied",
                "1 if the ledger's second copy is up to date with the store, 0 if it is behind.",
            )?,
            open: gauge("penstock_ledger_open_reserves", "Reservations that have not ended yet.")?,
            entries: gauge("penstock_ledger_entries", "Entries of the ledger on the disk.")?,
            waiting: gauge("penstock_ledger_unwritten_bytes", "Bytes of entries that wait to be written.")?,
            exposed: register(
                r,
                Gauge::new(
                    "penstock_ledger_unwritten_eur",
                    "Reserved or charged, and not yet on the disk, EUR.",
                )?,
            )?,
        })
    }

    fn update_gauges(&self, state: &LedgerSnapshot) {
        let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.failing.set(i64::from(state.failing));
        self.copied.set(i64::from(state.is_replica_current));
        self.open.set(count(state.open));
        self.entries.set(count(state.entries));
        self.waiting.set(count(state.waiting));
        self.exposed.set(state.exposed_eur_units as f64 / 1e8);
    }
}
