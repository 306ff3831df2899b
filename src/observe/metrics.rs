//! Prometheus metrics. Names follow OpenTelemetry's GenAI conventions where they exist, `penstock_…` otherwise. No
//! label has unbounded values: models, providers, flavors and endpoints come from the configuration and from this
//! program.

use super::Record;
use super::batches::Batches;
use super::doors::Doors;
use super::kept::Kept;
use super::offers::{Offers, Standing};
use super::overload::Overload;
use super::process::Process;
use super::requests::Requests;
use super::series::{Keeper, Series};
use crate::house::House;
use prometheus::core::Collector;
use prometheus::{
    Encoder, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    Result, TextEncoder,
};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Label value for an absent model or provider.
pub(super) const NONE: &str = "none";

/// All metrics with their registry.
pub struct Metrics {
    registry: Registry,
    requests: Requests,
    doors: Doors,
    kept: Kept,
    checks: IntCounterVec,
    offers: Offers,
    in_flight: IntGaugeVec,
    open: IntGauge,
    retries_left: IntGauge,
    reloads: IntCounterVec,
    overstated: IntCounterVec,
    images_gone: IntCounter,
    clock_ahead: IntGauge,
    overload: Overload,
    process: Process,
    /// Metrics of batches and their lines.
    pub batches: Batches,
    keeper: Keeper,
}

impl Metrics {
    /// Creates all metrics at zero.
    ///
    /// # Errors
    /// Returns an error if a name is registered twice, which is a bug in this file.
    pub fn new() -> Result<Self> {
        let r = Registry::new();
        let one = |name: &str, help: &str| registered(&r, IntGauge::new(name, help)?);
        let metrics = Self {
            requests: Requests::new(&r)?,
            doors: Doors::new(&r)?,
            kept: Kept::new(&r)?,
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
                "Requests in flight at a provider (its queue depth).",
                &["provider"],
            )?,
            open: one("penstock_requests_open", "Requests begun and not ended, streams included.")?,
            retries_left: one("penstock_retry_budget_left", "Retries that the retry budget allows now.")?,
            reloads: counter(
                &r,
                "penstock_config_reloads_total",
                "Reloads of the configuration by result.",
                &["result"],
            )?,
            overstated: counter(
                &r,
                "penstock_usage_overstated_total",
                "Answers whose provider reported an impossible figure (tokens or energy); the gateway's own figure counts.",
                &["provider", "model", "figure"],
            )?,
            images_gone: registered(
                &r,
                IntCounter::new(
                    "penstock_images_dropped_total",
                    "Images dropped before their expiry, because too many were stored.",
                )?,
            )?,
            clock_ahead: one(
                "penstock_clock_ahead_seconds",
                "Seconds by which the gateway's dates are ahead of the system's clock, which was set back; 0 if the difference is small.",
            )?,
            overload: Overload::new(&r)?,
            process: Process::new(&r)?,
            batches: Batches::new(&r)?,
            keeper: Keeper::new(&r)?,
            registry: r,
        };
        // Prometheus sees no increase if a series appears with its first event.
        for result in ["ok", "refused"] {
            metrics.reloads.with_label_values(&[result]).inc_by(0);
        }
        Ok(metrics)
    }

    /// Returns the gauge of open client connections.
    pub fn connections(&self) -> IntGauge {
        self.doors.connections.clone()
    }

    /// Counts a refused client connection.
    pub fn turned_away(&self, reason: &str) {
        self.doors.turned_away(reason);
    }

    /// Counts an ended exchange.
    pub fn exchange(&self, record: &Record, took: Duration) {
        self.requests.ended(record, took);
        let series: std::sync::Arc<Series> = self.keeper.of(record);
        // The queue time of batch lines is not part of a model's figures.
        series.observe(&self.keeper, record, took.saturating_sub(record.queued));
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
        self.requests.limited(limit, of);
    }

    /// Counts the wait of a request that got no permit at once.
    pub fn queued(&self, queue: &str, waited: Duration) {
        self.overload.waited(queue, waited);
    }

    /// Counts a request that ended in a panic.
    pub fn panicked(&self) {
        self.overload.panicked();
    }

    /// Counts an answer whose provider reported an impossible number of tokens or amount of energy.
    pub fn overstated(&self, provider: &str, model: &str, figure: &str) {
        self.overstated.with_label_values(&[provider, model, figure]).inc();
    }

    /// Counts images that were dropped before their expiry.
    pub fn images_gone(&self, images: usize) {
        self.images_gone.inc_by(u64::try_from(images).unwrap_or(u64::MAX));
    }

    /// Counts an archive.
    pub fn exported(&self, good: bool) {
        self.kept.exported(good);
    }

    /// Measures the stored bytes; blocks.
    pub fn measure_disk(&self, house: &House) {
        self.process.measure(house);
    }

    /// Returns all metrics in Prometheus' text format.
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

    /// Creates the series of a provider that an alert reads, before their first event.
    pub(super) fn known(&self, provider: &str) {
        self.requests.known(provider);
    }

    /// Sets the gauges that are read only at a scrape.
    fn gauge_house(&self, house: &House) {
        let now = house.clock.now();
        let live = house.live();
        self.in_flight.reset();
        self.offers.look(live.offers.iter().map(|offer| {
            let labels = [&*offer.offer.provider.id, offer.offer.model.card.id.as_str()];
            let asked = offer.attempts.load(Ordering::Relaxed) > 0;
            Standing::of(labels, asked, &offer.breaker.lock(), now)
        }));
        for provider in &live.providers {
            self.known(&provider.provider.id);
            let gauge = self.in_flight.with_label_values(&[&*provider.provider.id]);
            gauge.set(i64::from(provider.working()));
        }
        self.open.set(i64::try_from(house.exchanges()).unwrap_or(i64::MAX));
        let left = house.budget.lock().left(now);
        self.retries_left.set(i64::try_from(left).unwrap_or(i64::MAX));
        self.doors.look(house);
        self.kept.look(house);
        self.overload.look(house);
        self.batches.look(&house.batches.standing(house.clock.unix()));
        self.clock_ahead.set(i64::try_from(house.clock.seconds_ahead()).unwrap_or(i64::MAX));
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
