//! Cache of the metric series of an endpoint, a model and a provider, so that a request does not have to look up the
//! series by their labels.

use super::AccessRecord;
use super::metrics::{NO_VALUE, register, register_counter, register_histogram};
use super::requests::CommonCounters;
use parking_lot::RwLock;
use penstock_core::WorkDone;
use prometheus::core::{AtomicF64, GenericCounter};
use prometheus::{CounterVec, Histogram, HistogramVec, IntCounterVec, Opts, Registry, Result};
use rust_decimal::prelude::ToPrimitive;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Histogram buckets in seconds, from a small embedding to a long generation.
const DURATION_BUCKETS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0, 600.0];
/// Histogram buckets in seconds per token.
const TOKEN_TIME_BUCKETS: [f64; 10] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 2.0];
/// Histogram buckets in tokens.
const TOKEN_COUNT_BUCKETS: [f64; 9] =
    [1.0, 16.0, 64.0, 256.0, 1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0];

/// Powers of ten that a float represents exactly.
const SCALES: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];

/// All series, by endpoint, model and provider.
pub struct SeriesCache {
    duration: HistogramVec,
    first_token: HistogramVec,
    per_token: HistogramVec,
    tokens: HistogramVec,
    energy: CounterVec,
    carbon: CounterVec,
    water: CounterVec,
    credits: CounterVec,
    images: CounterVec,
    audio: CounterVec,
    charged_kwh: CounterVec,
    cached_tokens: CounterVec,
    saved_kwh: CounterVec,
    saved_credits: CounterVec,
    counted: IntCounterVec,
    hasher: ahash::RandomState,
    known: RwLock<HashMap<u64, Vec<CachedSeries>, ahash::RandomState>>,
}

/// Counter of an amount that is not an integer.
type FloatCounter = GenericCounter<AtomicF64>;

/// Series with its labels: endpoint, model, provider.
type CachedSeries = (&'static str, Box<str>, Box<str>, Arc<MetricSeries>);

/// Series of one endpoint, model and provider.
pub struct MetricSeries {
    pub(super) common: CommonCounters,
    duration: Histogram,
    first_token: OnceLock<Histogram>,
    per_token: OnceLock<Histogram>,
    input: OnceLock<Histogram>,
    output: OnceLock<Histogram>,
    energy: OnceLock<FloatCounter>,
    carbon: OnceLock<FloatCounter>,
    water: OnceLock<FloatCounter>,
    credits: OnceLock<FloatCounter>,
    images: OnceLock<FloatCounter>,
    audio: OnceLock<FloatCounter>,
    charged_kwh: OnceLock<FloatCounter>,
    cached_tokens: OnceLock<FloatCounter>,
    saved_kwh: OnceLock<FloatCounter>,
    saved_credits: OnceLock<FloatCounter>,
    counted: OnceLock<prometheus::IntCounter>,
}

impl SeriesCache {
    /// Registers the metrics whose series are cached.
    pub(super) fn new(r: &Registry) -> Result<Self> {
        let by_model = ["gen_ai_operation_name", "gen_ai_request_model", "gen_ai_provider_name"];
        let by_kind =
            ["gen_ai_operation_name", "gen_ai_request_model", "gen_ai_provider_name", "gen_ai_token_type"];
        let by_provider = ["provider", "model"];
        let sum = |name: &str, help: &str| register(r, CounterVec::new(Opts::new(name, help), &by_provider)?);
        Ok(Self {
            duration: register_histogram(
                r,
                "gen_ai_server_request_duration_seconds",
                "Time of a request, seconds.",
                &DURATION_BUCKETS,
                &by_model,
            )?,
            first_token: register_histogram(
                r,
                "gen_ai_server_time_to_first_token_seconds",
                "Time to the first token sent to the client, seconds; streams only.",
                &DURATION_BUCKETS,
                &by_model,
            )?,
            per_token: register_histogram(
                r,
                "gen_ai_server_time_per_output_token_seconds",
                "Time per output token after the first, seconds; streams only.",
                &TOKEN_TIME_BUCKETS,
                &by_model,
            )?,
            tokens: register_histogram(
                r,
                "gen_ai_client_token_usage",
                "Tokens of a request by type (input, output).",
                &TOKEN_COUNT_BUCKETS,
                &by_kind,
            )?,
            energy: sum(
                "penstock_energy_kwh_total",
                "Energy of answers, kWh, PUE and failed attempts included.",
            )?,
            carbon: sum("penstock_carbon_grams_total", "Operational emissions of answers, grams of CO2e.")?,
            water: sum("penstock_water_liters_total", "Water of answers, litres.")?,
            credits: sum("penstock_credits_total", "Credits charged.")?,
            images: sum("penstock_images_total", "Images delivered.")?,
            audio: sum("penstock_audio_seconds_total", "Seconds of transcribed or generated audio.")?,
            charged_kwh: sum("penstock_energy_charged_kwh_total", "Energy charged to energy wallets, kWh.")?,
            cached_tokens: sum("penstock_cached_tokens_total", "Prompt tokens read from providers' caches.")?,
            saved_kwh: sum("penstock_cache_saved_kwh_total", "Energy that cached tokens saved, kWh.")?,
            saved_credits: sum("penstock_cache_saved_credits_total", "Credits that cached tokens saved.")?,
            counted: register_counter(
                r,
                "penstock_usage_counted_by_gateway_total",
                "Answers whose usage the gateway counted, because the provider reported none, or an impossible amount.",
                &by_provider,
            )?,
            hasher: ahash::RandomState::new(),
            known: RwLock::default(),
        })
    }

    /// Returns the metric series of a record's endpoint, model and provider.
    pub(super) fn series_for(&self, record: &AccessRecord) -> Arc<MetricSeries> {
        let model = record.model.as_deref().unwrap_or(NO_VALUE);
        let provider = record.provider.as_deref().unwrap_or(NO_VALUE);
        let endpoint = record.endpoint;
        let hash = self.hasher.hash_one((endpoint, model, provider));
        let found = self.known.read().get(&hash).and_then(|same| {
            let is =
                |known: &&CachedSeries| known.0 == endpoint && *known.1 == *model && *known.2 == *provider;
            same.iter().find(is).map(|known| known.3.clone())
        });
        found.unwrap_or_else(|| self.insert_series(hash, endpoint, model, provider))
    }

    fn insert_series(
        &self,
        hash: u64,
        endpoint: &'static str,
        model: &str,
        provider: &str,
    ) -> Arc<MetricSeries> {
        let labels = [endpoint, model, provider];
        let series = Arc::new(MetricSeries {
            common: CommonCounters::default(),
            duration: self.duration.with_label_values(&labels),
            first_token: OnceLock::new(),
            per_token: OnceLock::new(),
            input: OnceLock::new(),
            output: OnceLock::new(),
            energy: OnceLock::new(),
            carbon: OnceLock::new(),
            water: OnceLock::new(),
            credits: OnceLock::new(),
            images: OnceLock::new(),
            audio: OnceLock::new(),
            charged_kwh: OnceLock::new(),
            cached_tokens: OnceLock::new(),
            saved_kwh: OnceLock::new(),
            saved_credits: OnceLock::new(),
            counted: OnceLock::new(),
        });
        let known = (endpoint, model.into(), provider.into(), series.clone());
        self.known.write().entry(hash).or_default().push(known);
        series
    }
}

impl MetricSeries {
    /// Records an ended exchange; `took` is its duration, queues included. A series is created with its first value, so
    /// that a chat model has no series of images.
    pub(super) fn observe(&self, keeper: &SeriesCache, record: &AccessRecord, took: Duration) {
        let labels = SeriesLabels::from_record(record);
        // The time in queues does not depend on the model.
        self.duration.observe(took.saturating_sub(record.queued).as_secs_f64());
        let timed = |series: &OnceLock<Histogram>, of: &HistogramVec, seconds: f64| {
            series.get_or_init(|| of.with_label_values(&labels.by_endpoint())).observe(seconds);
        };
        if let Some(first) = record.first_token {
            timed(&self.first_token, &keeper.first_token, first.as_secs_f64());
        }
        if let Some(usage) = record.done.as_ref().and_then(WorkDone::usage) {
            let tokens = |series: &OnceLock<Histogram>, kind, count: u64| {
                let series =
                    series.get_or_init(|| keeper.tokens.with_label_values(&labels.with_token_type(kind)));
                series.observe(count as f64);
            };
            tokens(&self.input, "input", usage.input);
            tokens(&self.output, "output", usage.output);
            if let Some(first) = record.first_token
                && usage.output > 1
            {
                let rest = took.saturating_sub(first).as_secs_f64();
                timed(&self.per_token, &keeper.per_token, rest / (usage.output - 1) as f64);
            }
            let counted =
                self.counted.get_or_init(|| keeper.counted.with_label_values(&labels.by_provider()));
            counted.inc_by(u64::from(usage.source.is_gateway_count()));
        }
        let sum = |series: &OnceLock<FloatCounter>, of: &CounterVec, amount: rust_decimal::Decimal| {
            add_decimal(series.get_or_init(|| of.with_label_values(&labels.by_provider())), amount);
        };
        match record.done {
            Some(WorkDone::Images { count, .. }) => sum(&self.images, &keeper.images, count.into()),
            Some(WorkDone::Audio { seconds }) => sum(&self.audio, &keeper.audio, seconds),
            Some(WorkDone::Tokens(_) | WorkDone::Unknown) | None => {}
        }
        if let Some(footprint) = &record.footprint {
            sum(&self.energy, &keeper.energy, footprint.energy_kwh);
            sum(&self.carbon, &keeper.carbon, footprint.carbon_g);
            sum(&self.water, &keeper.water, footprint.water_l);
        }
        if let Some(charge) = &record.charge {
            sum(&self.credits, &keeper.credits, charge.credits.credits());
            let kwh = charge.energy.kwh();
            if !kwh.is_zero() {
                sum(&self.charged_kwh, &keeper.charged_kwh, kwh);
            }
        }
        if let Some(cache) = &record.cache {
            sum(&self.cached_tokens, &keeper.cached_tokens, cache.tokens.into());
            sum(&self.saved_kwh, &keeper.saved_kwh, cache.energy_kwh_saved);
            sum(&self.saved_credits, &keeper.saved_credits, cache.credits_saved);
        }
    }
}

/// Label values of a record's series.
struct SeriesLabels<'a> {
    endpoint: &'a str,
    model: &'a str,
    provider: &'a str,
}

impl<'a> SeriesLabels<'a> {
    fn from_record(record: &'a AccessRecord) -> Self {
        Self {
            endpoint: record.endpoint,
            model: record.model.as_deref().unwrap_or(NO_VALUE),
            provider: record.provider.as_deref().unwrap_or(NO_VALUE),
        }
    }

    fn by_endpoint(&self) -> [&'a str; 3] {
        [self.endpoint, self.model, self.provider]
    }

    fn with_token_type(&self, kind: &'a str) -> [&'a str; 4] {
        [self.endpoint, self.model, self.provider, kind]
    }

    fn by_provider(&self) -> [&'a str; 2] {
        [self.provider, self.model]
    }
}

/// Adds a decimal to a counter. Prometheus has only floating-point numbers; the exact sums are in the ledger.
fn add_decimal(counter: &FloatCounter, amount: rust_decimal::Decimal) {
    let float = match (i32::try_from(amount.mantissa()), SCALES.get(amount.scale() as usize)) {
        // The mantissa and the scale are exact as `f64`. So their quotient is the floating-point number that is
        // closest to the decimal.
        (Ok(mantissa), Some(scale)) => f64::from(mantissa) / scale,
        _ => amount.to_f64().unwrap_or(0.0),
    };
    if float > 0.0 {
        counter.inc_by(float);
    }
}
