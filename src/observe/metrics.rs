//! Counters for Prometheus. Names of OpenTelemetry's GenAI conventions where
//! they exist, `penstock_…` for the rest. No label has unbounded values: models,
//! providers, flavors and endpoints come from the configuration and from this
//! program.

use super::Record;
use super::batches::Batches;
use super::offers::{Offers, Standing};
use super::overload::Overload;
use super::series::{Keeper, Series};
use crate::house::House;
use crate::ledger::State;
use prometheus::core::Collector;
use prometheus::{
    Encoder, Gauge, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, Result, TextEncoder,
};
use std::time::Duration;

/// Seconds inside the gateway.
const OVERHEAD: [f64; 11] =
    [0.000_025, 0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.05, 0.5];

/// What a label says when there is nothing to say.
pub(super) const NONE: &str = "none";

/// Every metric.
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    lines: IntCounterVec,
    overhead: HistogramVec,
    attempts: IntCounterVec,
    checks: IntCounterVec,
    offers: Offers,
    in_flight: IntGaugeVec,
    open: IntGauge,
    retries_left: IntGauge,
    reloads: IntCounterVec,
    limited: IntCounterVec,
    certificate: IntGauge,
    connections: IntGauge,
    images_gone: IntCounter,
    turned_away: IntCounterVec,
    exports: IntCounterVec,
    exported: IntGauge,
    clock_ahead: IntGauge,
    ledger: LedgerGauges,
    overload: Overload,
    /// Batches and their lines.
    pub batches: Batches,
    keeper: Keeper,
}

impl Metrics {
    /// All metrics at zero.
    ///
    /// # Errors
    /// A name that is taken twice, a mistake in this file.
    pub fn new() -> Result<Self> {
        let r = Registry::new();
        let metrics = Self {
            requests: counter(
                &r,
                "penstock_requests_total",
                "Requests by endpoint, outcome, status and work (request, or batch: a line of a batch).",
                &["endpoint", "outcome", "status", "work"],
            )?,
            lines: counter(
                &r,
                "penstock_batch_lines_total",
                "Those of the requests that were lines of batches, by endpoint and outcome; yielded ones are asked again.",
                &["endpoint", "outcome"],
            )?,
            overhead: histogram(
                &r,
                "penstock_overhead_seconds",
                "Time of a request outside of queues and of its attempts at providers.",
                &OVERHEAD,
                &["endpoint"],
            )?,
            attempts: counter(
                &r,
                "penstock_attempts_total",
                "Attempts by provider and outcome (ok, left, or why they failed).",
                &["provider", "outcome"],
            )?,
            checks: counter(
                &r,
                "penstock_health_checks_total",
                "Active checks by provider and result.",
                &["provider", "result"],
            )?,
            offers: Offers::new(&r)?,
            in_flight: gauge(
                &r,
                "penstock_provider_requests_in_flight",
                "Requests that a provider works on (its queue depth).",
                &["provider"],
            )?,
            open: registered(
                &r,
                IntGauge::new("penstock_requests_open", "Requests begun and not ended, streams included.")?,
            )?,
            retries_left: registered(
                &r,
                IntGauge::new("penstock_retry_budget_left", "Retries that the house can afford now.")?,
            )?,
            reloads: counter(
                &r,
                "penstock_config_reloads_total",
                "Reloads of the configuration by result.",
                &["result"],
            )?,
            limited: counter(
                &r,
                "penstock_limited_total",
                "Requests refused by a limit or a budget, by its name and whose it is.",
                &["limit", "of"],
            )?,
            certificate: registered(
                &r,
                IntGauge::new(
                    "penstock_certificate_expires_seconds",
                    "When the certificate of the TLS listener is over, Unix seconds; 0 without one.",
                )?,
            )?,
            connections: registered(
                &r,
                IntGauge::new("penstock_connections_open", "Client connections that are open.")?,
            )?,
            images_gone: registered(
                &r,
                IntCounter::new(
                    "penstock_images_dropped_total",
                    "Images whose address ended before its time, since too many were kept.",
                )?,
            )?,
            turned_away: counter(
                &r,
                "penstock_connections_refused_total",
                "Client connections that were closed for what is full (house, client) or for too much HTTP/2 (h2_abuse), and HTTP/2 requests that were refused unread: malformed (h2_malformed), or too many heads in memory (heads).",
                &["reason"],
            )?,
            exports: counter(
                &r,
                "penstock_exports_total",
                "Archives that the gateway made of what lasts, by result.",
                &["result"],
            )?,
            exported: registered(
                &r,
                IntGauge::new(
                    "penstock_export_last_timestamp_seconds",
                    "When the last archive was finished, Unix seconds; 0 if there is none.",
                )?,
            )?,
            clock_ahead: registered(
                &r,
                IntGauge::new(
                    "penstock_clock_ahead_seconds",
                    "How far dates here are ahead of the system's clock, which was set back; 0 if they are close.",
                )?,
            )?,
            ledger: LedgerGauges::new(&r)?,
            overload: Overload::new(&r)?,
            batches: Batches::new(&r)?,
            keeper: Keeper::new(&r)?,
            registry: r,
        };
        // The first one is no increase of a series that was not there before.
        for result in ["ok", "refused"] {
            metrics.reloads.with_label_values(&[result]).inc_by(0);
        }
        for result in ["ok", "failed"] {
            metrics.exports.with_label_values(&[result]).inc_by(0);
        }
        Ok(metrics)
    }

    /// Counts the client connections that are open.
    pub fn connections(&self) -> IntGauge {
        self.connections.clone()
    }

    /// A client connection was closed for this.
    pub fn turned_away(&self, reason: &str) {
        self.turned_away.with_label_values(&[reason]).inc();
    }

    /// Counts an ended exchange.
    pub fn exchange(&self, record: &Record, took: Duration) {
        let mut status = itoa::Buffer::new();
        let work = if record.line { "batch" } else { "request" };
        let labels = [record.endpoint, record.outcome.name(), status.format(record.status), work];
        self.requests.with_label_values(&labels).inc();
        if record.line {
            self.lines.with_label_values(&[record.endpoint, record.outcome.name()]).inc();
        }
        let own = record.own(took).as_secs_f64();
        self.overhead.with_label_values(&[record.endpoint]).observe(own);
        for note in &record.attempts {
            self.attempts.with_label_values(&[&*note.provider, note.outcome]).inc();
        }
        let series: std::sync::Arc<Series> = self.keeper.of(record);
        // How long batch work queued is no figure of a model.
        series.observe(record, took.saturating_sub(record.queued));
    }

    /// Counts an active check.
    pub fn checked(&self, provider: &str, good: bool) {
        self.checks.with_label_values(&[provider, if good { "good" } else { "bad" }]).inc();
    }

    /// Counts a reload.
    pub fn reloaded(&self, good: bool) {
        self.reloads.with_label_values(&[if good { "ok" } else { "refused" }]).inc();
    }

    /// Counts a request that a limit or a budget refused.
    pub fn limited(&self, limit: &str, of: &str) {
        self.limited.with_label_values(&[limit, of]).inc();
    }

    /// Counts the wait of a request that found no place at once.
    pub fn queued(&self, queue: &str, waited: Duration) {
        self.overload.waited(queue, waited);
    }

    /// Counts a request that ended in a panic.
    pub fn panicked(&self) {
        self.overload.panicked();
    }

    /// Counts images that went before their time.
    pub fn images_gone(&self, images: usize) {
        self.images_gone.inc_by(u64::try_from(images).unwrap_or(u64::MAX));
    }

    /// Counts an archive.
    pub fn exported(&self, good: bool) {
        self.exports.with_label_values(&[if good { "ok" } else { "failed" }]).inc();
    }

    /// Everything, in Prometheus' text format.
    #[must_use]
    pub fn text(&self, house: &House) -> Vec<u8> {
        self.gauge_house(house);
        self.counted()
    }

    pub(super) fn counted(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(16 * 1024);
        TextEncoder::new().encode(&self.registry.gather(), &mut text).ok();
        text
    }

    /// A provider's series that an alert waits for, before anything happened.
    pub(super) fn known(&self, provider: &str) {
        for outcome in ["ok", "credentials"] {
            self.attempts.with_label_values(&[provider, outcome]).inc_by(0);
        }
    }

    /// What is not counted but looked at when it is asked for.
    fn gauge_house(&self, house: &House) {
        let now = house.clock.now();
        let live = house.live();
        self.in_flight.reset();
        self.offers.look(live.offers.iter().map(|offer| {
            let labels = [&*offer.offer.provider.id, offer.offer.model.card.id.as_str()];
            Standing::of(labels, &offer.breaker.lock(), now)
        }));
        for provider in &live.providers {
            self.known(&provider.provider.id);
            let gauge = self.in_flight.with_label_values(&[&*provider.provider.id]);
            gauge.set(i64::from(provider.working()));
        }
        self.open.set(i64::try_from(house.exchanges()).unwrap_or(i64::MAX));
        let left = house.budget.lock().left(now);
        self.retries_left.set(i64::try_from(left).unwrap_or(i64::MAX));
        self.certificate.set(house.tls().map_or(0, |tls| tls.expires));
        self.ledger.look(&house.ledger.state());
        self.overload.look(house);
        self.exported.set(i64::try_from(house.exports.last()).unwrap_or(i64::MAX));
        self.batches.look(&house.batches.standing(house.clock.unix()));
        self.clock_ahead.set(i64::try_from(house.clock.seconds_ahead()).unwrap_or(i64::MAX));
    }
}

/// How charges get to the disk.
struct LedgerGauges {
    failing: IntGauge,
    copied: IntGauge,
    open: IntGauge,
    entries: IntGauge,
    waiting: IntGauge,
    exposed: Gauge,
}

impl LedgerGauges {
    fn new(r: &Registry) -> Result<Self> {
        let gauge = |name: &str, help: &str| registered(r, IntGauge::new(name, help)?);
        Ok(Self {
            failing: gauge("penstock_ledger_failing", "1 while the store does not take charges.")?,
            copied: gauge(
                "penstock_ledger_copied",
                "1 if the ledger's second copy is up to the store, 0 if it is behind.",
            )?,
            open: gauge("penstock_ledger_open_reserves", "Reserves that have not ended yet.")?,
            entries: gauge("penstock_ledger_entries", "Entries of the ledger on the disk.")?,
            waiting: gauge("penstock_ledger_unwritten_bytes", "Bytes of entries that wait to be written.")?,
            exposed: registered(
                r,
                Gauge::new(
                    "penstock_ledger_unwritten_eur",
                    "Reserved or charged, and not yet on the disk, EUR.",
                )?,
            )?,
        })
    }

    fn look(&self, state: &State) {
        let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.failing.set(i64::from(state.failing));
        self.copied.set(i64::from(state.copied));
        self.open.set(count(state.open));
        self.entries.set(count(state.entries));
        self.waiting.set(count(state.waiting));
        self.exposed.set(state.exposed as f64 / 1e8);
    }
}

#[cfg(test)]
thread_local! {
    /// Names and labels of what was registered: a registry shows those only that have counted.
    pub(super) static METRICS: std::cell::RefCell<Vec<(String, Vec<String>)>> = const { std::cell::RefCell::new(Vec::new()) };
}

pub(super) fn registered<C: Collector + Clone + 'static>(registry: &Registry, metric: C) -> Result<C> {
    registry.register(Box::new(metric.clone()))?;
    #[cfg(test)]
    METRICS.with_borrow_mut(|all| {
        all.extend(
            metric.desc().into_iter().map(|desc| (desc.fq_name.clone(), desc.variable_labels.clone())),
        );
    });
    Ok(metric)
}

pub(super) fn counter(r: &Registry, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec> {
    registered(r, IntCounterVec::new(Opts::new(name, help), labels)?)
}

pub(super) fn histogram(
    r: &Registry,
    name: &str,
    help: &str,
    buckets: &[f64],
    labels: &[&str],
) -> Result<HistogramVec> {
    let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
    registered(r, HistogramVec::new(opts, labels)?)
}

pub(super) fn gauge(r: &Registry, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec> {
    registered(r, IntGaugeVec::new(Opts::new(name, help), labels)?)
}
