//! Prometheus metrics. Their names follow OpenTelemetry's GenAI conventions where these define a name; all others start
//! with `penstock_`. No label has an unlimited number of values: models, providers, flavors and endpoints come from the
//! configuration and from this program.

use super::AccessRecord;
use super::batches::{BatchMetrics, BatchTotals as BatchState};
use super::connection_metrics::ConnectionMetrics;
use super::durability_metrics::DurabilityMetrics;
use super::durability_metrics::LedgerSnapshot as LedgerState;
use super::file_store::{BucketMetrics, BucketSnapshot};
use super::fleet_metrics::{FleetMetrics, FleetStatus};
use super::offers::{OfferMetrics, OfferStatus};
use super::overload::{AdmissionMetrics, AdmissionSnapshot};
use super::process::ProcessMetrics;
use super::readiness::ReadinessMetrics;
use super::requests::RequestMetrics;
use super::series_cache::{MetricSeries, SeriesCache};
use parking_lot::Mutex;
use prometheus::core::Collector;
use prometheus::{
    Encoder, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    Result, TextEncoder,
};
use std::path::Path;
use std::time::Duration;

/// Label value for an absent value.
pub(super) const NO_VALUE: &str = "none";

/// Registry of all metrics.
pub struct MetricsRegistry {
    registry: Registry,
    /// Lock of a scrape, which resets some gauges before it sets them: another scrape must not read them in between.
    scrape: Mutex<()>,
    requests: RequestMetrics,
    connections: ConnectionMetrics,
    durability: DurabilityMetrics,
    checks: IntCounterVec,
    offers: OfferMetrics,
    in_flight: IntGaugeVec,
    readiness: ReadinessMetrics,
    open: IntGauge,
    retries_left: IntGauge,
    reloads: IntCounterVec,
    overstated_usage: IntCounterVec,
    understated_usage: IntCounterVec,
    images_dropped: IntCounter,
    clock_lead_seconds: IntGauge,
    fleet: FleetMetrics,
    file_store: BucketMetrics,
    overload: AdmissionMetrics,
    process: ProcessMetrics,
    /// Metrics of batches and their lines.
    pub batches: BatchMetrics,
    series_cache: SeriesCache,
}

/// State of the process at a scrape.
pub struct MetricsSnapshot<'a, O> {
    /// Offers with their circuit breakers.
    pub offers: O,
    /// Providers by id, each with its number of requests in flight.
    pub providers: Vec<(&'a str, u32)>,
    /// True if `/readyz` answers with 200.
    pub is_ready: bool,
    /// True while the process waits for its last requests before it ends.
    pub is_draining: bool,
    /// Number of exchanges in flight.
    pub exchanges: usize,
    /// Number of retries that the retry budget allows at the moment.
    pub retries_left: u64,
    /// Expiry of the certificate of the TLS listener, Unix seconds; `None` without such a listener.
    pub certificate_expires: Option<i64>,
    /// State of the ledger.
    pub ledger: LedgerState,
    /// Time of the last complete archive, Unix seconds; 0 if there is none.
    pub last_export: u64,
    /// State of admission control.
    pub admission: AdmissionSnapshot,
    /// Requests that wait for a permit of a provider.
    pub waiting_at_providers: u32,
    /// Refused requests by reason, since the start.
    pub refusals: Vec<(&'static str, u64)>,
    /// Statistics of unfinished batches and background responses.
    pub batches: BatchState,
    /// Seconds by which the calendar clock is fast, compared with the system clock.
    pub clock_lead_seconds: u64,
    /// State of the fleet; `None` without a fleet.
    pub fleet: Option<FleetStatus>,
    /// State of the bucket of file contents; `None` without a bucket.
    pub file_store: Option<BucketSnapshot>,
}

impl MetricsRegistry {
    /// Creates all metrics at zero.
    ///
    /// # Errors
    /// Returns an error if a name is registered twice.
    pub fn new() -> Result<Self> {
        let r = Registry::new();
        let one = |name: &str, help: &str| register(&r, IntGauge::new(name, help)?);
        let metrics = Self {
            requests: RequestMetrics::new(&r)?,
            connections: ConnectionMetrics::new(&r)?,
            durability: DurabilityMetrics::new(&r)?,
            checks: register_counter(
                &r,
                "penstock_health_checks_total",
                "Active checks by provider and result.",
                &["provider", "result"],
            )?,
            offers: OfferMetrics::new(&r)?,
            in_flight: register_gauge(
                &r,
                "penstock_provider_requests_in_flight",
                "Requests in flight at a provider (its queue depth).",
                &["provider"],
            )?,
            readiness: ReadinessMetrics::new(&r)?,
            open: one("penstock_requests_open", "Requests begun and not ended, streams included.")?,
            retries_left: one("penstock_retry_budget_left", "Retries that the retry budget allows now.")?,
            reloads: register_counter(
                &r,
                "penstock_config_reloads_total",
                "Reloads of the configuration by result.",
                &["result"],
            )?,
            overstated_usage: register_overstated_usage(&r)?,
            understated_usage: register_understated_usage(&r)?,
            images_dropped: register(
                &r,
                IntCounter::new(
                    "penstock_images_dropped_total",
                    "Images dropped before their expiry, because too many were stored.",
                )?,
            )?,
            clock_lead_seconds: one(
                "penstock_clock_ahead_seconds",
                "Seconds by which the gateway's dates are ahead of the system's clock, which was set back; 0 if the difference is small.",
            )?,
            fleet: FleetMetrics::new(&r),
            file_store: BucketMetrics::new(&r)?,
            overload: AdmissionMetrics::new(&r)?,
            process: ProcessMetrics::new(&r)?,
            batches: BatchMetrics::new(&r)?,
            series_cache: SeriesCache::new(&r)?,
            registry: r,
            scrape: Mutex::new(()),
        };
        // All series exist from the start, because Prometheus does not count the first value of a new series as an
        // increase.
        for result in ["ok", "refused"] {
            metrics.reloads.with_label_values(&[result]).inc_by(0);
        }
        Ok(metrics)
    }

    /// Returns the gauge of open client connections.
    pub fn open_connections_gauge(&self) -> IntGauge {
        self.connections.connections.clone()
    }

    /// Counts a refused client connection.
    pub fn count_refused_connection(&self, reason: &str) {
        self.connections.record_refused(reason);
    }

    /// Counts an ended exchange.
    pub fn record_exchange(&self, record: &AccessRecord, took: Duration) {
        let series: std::sync::Arc<MetricSeries> = self.series_cache.series_for(record);
        self.requests.count_ended_exchange(record, took, &series.common);
        series.observe(&self.series_cache, record, took);
    }

    /// Counts an active health check.
    pub fn count_health_check(&self, provider: &str, good: bool) {
        self.checks.with_label_values(&[provider, if good { "good" } else { "bad" }]).inc();
    }

    /// Counts a reload of the configuration; `good` is false if it was refused.
    pub fn count_reload(&self, good: bool) {
        self.reloads.with_label_values(&[if good { "ok" } else { "refused" }]).inc();
    }

    /// Counts a request that a limit or a budget refused. `limit` is the name of the limit; `owner` is `key` or
    /// `account`.
    pub fn count_limit_refusal(&self, limit: &str, owner: &str) {
        self.requests.count_limit_refusal(limit, owner);
    }

    /// Records the time for which a request waited for a permit in a queue.
    pub fn record_wait(&self, queue: &str, waited: Duration) {
        self.overload.record_wait(queue, waited);
    }

    /// Counts a request that ended in a panic.
    pub fn count_panic(&self) {
        self.overload.record_panic();
    }

    /// Counts an answer whose provider reported impossible tokens or energy.
    pub fn count_overstated_usage(&self, provider: &str, model: &str, figure: &str) {
        self.overstated_usage.with_label_values(&[provider, model, figure]).inc();
    }

    /// Counts an answer whose provider reported fewer tokens than its text has.
    pub fn count_understated_usage(&self, provider: &str, model: &str) {
        self.understated_usage.with_label_values(&[provider, model]).inc();
    }

    /// Counts images that were evicted from the cache before they expired.
    pub fn record_evicted_images(&self, images: usize) {
        self.images_dropped.inc_by(u64::try_from(images).unwrap_or(u64::MAX));
    }

    /// Counts a backup that succeeded or failed.
    pub fn count_backup(&self, good: bool) {
        self.durability.count_backup(good);
    }

    /// Measures the sizes of stored data; blocks. See [`ProcessMetrics::measure_disk_usage`].
    pub fn measure_disk_usage(&self, storage: &Path, stored: [&'static str; 3], files: (u64, &Path)) {
        self.process.measure_disk_usage(storage, stored, files);
    }

    /// Renders all metrics in Prometheus' text format, with gauges of the snapshot.
    #[must_use]
    pub fn render<'a>(
        &self,
        snapshot: MetricsSnapshot<'a, impl Iterator<Item = OfferStatus<'a>>>,
    ) -> Vec<u8> {
        let _scrape = self.scrape.lock();
        self.set(snapshot);
        self.encode()
    }

    /// Encodes the current values of all metrics in Prometheus' text format.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(16 * 1024);
        TextEncoder::new().encode(&self.registry.gather(), &mut text).ok();
        text
    }

    /// Creates those series of a provider that alerts need, with the value 0, before their first events.
    pub(super) fn create_provider_series(&self, provider: &str) {
        self.requests.create_provider_series(provider);
    }

    /// Sets the gauges that are read at each scrape.
    fn set<'a>(&self, snapshot: MetricsSnapshot<'a, impl Iterator<Item = OfferStatus<'a>>>) {
        let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.in_flight.reset();
        self.offers.update_gauges(snapshot.offers);
        for (provider, in_flight) in snapshot.providers {
            self.create_provider_series(provider);
            self.in_flight.with_label_values(&[provider]).set(i64::from(in_flight));
        }
        self.readiness.update_gauges(snapshot.is_ready, snapshot.is_draining);
        self.open.set(count(snapshot.exchanges as u64));
        self.retries_left.set(count(snapshot.retries_left));
        self.connections.set_certificate_expiry(snapshot.certificate_expires);
        self.durability.update_gauges(&snapshot.ledger, snapshot.last_export);
        self.overload.update_gauges(
            &snapshot.admission,
            snapshot.waiting_at_providers,
            snapshot.refusals.into_iter(),
        );
        self.batches.update_gauges(&snapshot.batches);
        self.clock_lead_seconds.set(count(snapshot.clock_lead_seconds));
        self.fleet.update_gauges(snapshot.fleet.as_ref());
        self.file_store.update_gauges(snapshot.file_store.as_ref());
    }
}

fn register_overstated_usage(r: &Registry) -> Result<IntCounterVec> {
    register_counter(
        r,
        "penstock_usage_overstated_total",
        "Answers whose provider reported an impossible figure (tokens or energy); the gateway's own figure counts.",
        &["provider", "model", "figure"],
    )
}

fn register_understated_usage(r: &Registry) -> Result<IntCounterVec> {
    register_counter(
        r,
        "penstock_usage_understated_total",
        "Answers whose provider reported fewer tokens than their text has; the gateway's own count is charged.",
        &["provider", "model"],
    )
}

#[cfg(test)]
thread_local! {
    /// Names and labels of all registered metrics. A registry itself shows only the metrics that have at least one
    /// series.
    pub(super) static REGISTERED_METRICS: std::cell::RefCell<Vec<(String, Vec<String>)>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Registers a metric and returns it.
pub(super) fn register<C: Collector + Clone + 'static>(registry: &Registry, metric: C) -> Result<C> {
    registry.register(Box::new(metric.clone()))?;
    #[cfg(test)]
    REGISTERED_METRICS.with_borrow_mut(|all| {
        all.extend(
            metric.desc().into_iter().map(|desc| (desc.fq_name.clone(), desc.variable_labels.clone())),
        );
    });
    Ok(metric)
}

/// Registers a counter with these labels.
pub(super) fn register_counter(
    r: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntCounterVec> {
    register(r, IntCounterVec::new(Opts::new(name, help), labels)?)
}

/// Registers a histogram with these labels; `buckets` are the upper bounds.
pub(super) fn register_histogram(
    r: &Registry,
    name: &str,
    help: &str,
    buckets: &[f64],
    labels: &[&str],
) -> Result<HistogramVec> {
    let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
    register(r, HistogramVec::new(opts, labels)?)
}

/// Registers a gauge with these labels.
pub(super) fn register_gauge(r: &Registry, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec> {
    register(r, IntGaugeVec::new(Opts::new(name, help), labels)?)
}
