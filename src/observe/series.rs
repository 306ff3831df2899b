//! The series of one endpoint, model and provider, found once and kept, so that
//! a request does not look each of its labels up again.

use super::Record;
use super::metrics::{NONE, counter, histogram, registered};
use parking_lot::RwLock;
use penstock_contract::Done;
use prometheus::core::{AtomicF64, GenericCounter};
use prometheus::{CounterVec, Histogram, HistogramVec, IntCounterVec, Opts, Registry, Result};
use rust_decimal::prelude::ToPrimitive;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Seconds, from a small embedding to a long generation.
const SECONDS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0, 600.0];
/// Seconds a token.
const PER_TOKEN: [f64; 10] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 2.0];
/// Tokens.
const TOKENS: [f64; 9] = [1.0, 16.0, 64.0, 256.0, 1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0];

/// Powers of ten that are exact.
const SCALES: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];

/// All series, by endpoint, model and provider.
pub struct Keeper {
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
    counted: IntCounterVec,
    hasher: ahash::RandomState,
    known: RwLock<HashMap<u64, Vec<Known>, ahash::RandomState>>,
}

/// A series with its labels: endpoint, model, provider.
type Known = (&'static str, Box<str>, Box<str>, Arc<Series>);

/// The series of one endpoint, model and provider.
pub struct Series {
    duration: Histogram,
    first_token: Histogram,
    per_token: Histogram,
    input: Histogram,
    output: Histogram,
    energy: GenericCounter<AtomicF64>,
    carbon: GenericCounter<AtomicF64>,
    water: GenericCounter<AtomicF64>,
    credits: GenericCounter<AtomicF64>,
    images: GenericCounter<AtomicF64>,
    audio: GenericCounter<AtomicF64>,
    charged_kwh: GenericCounter<AtomicF64>,
    counted: prometheus::IntCounter,
}

impl Keeper {
    /// Registers its metrics.
    pub(super) fn new(r: &Registry) -> Result<Self> {
        let by_model = ["gen_ai_operation_name", "gen_ai_request_model", "gen_ai_provider_name"];
        let by_kind =
            ["gen_ai_operation_name", "gen_ai_request_model", "gen_ai_provider_name", "gen_ai_token_type"];
        let by_provider = ["provider", "model"];
        let sum =
            |name: &str, help: &str| registered(r, CounterVec::new(Opts::new(name, help), &by_provider)?);
        Ok(Self {
            duration: histogram(
                r,
                "gen_ai_server_request_duration_seconds",
                "Time of a request, seconds.",
                &SECONDS,
                &by_model,
            )?,
            first_token: histogram(
                r,
                "gen_ai_server_time_to_first_token_seconds",
                "Time to the first token sent to the client, seconds; streams only.",
                &SECONDS,
                &by_model,
            )?,
            per_token: histogram(
                r,
                "gen_ai_server_time_per_output_token_seconds",
                "Time per output token after the first, seconds; streams only.",
                &PER_TOKEN,
                &by_model,
            )?,
            tokens: histogram(
                r,
                "gen_ai_client_token_usage",
                "Tokens of a request by type (input, output).",
                &TOKENS,
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
            audio: sum("penstock_audio_seconds_total", "Seconds of sound written down.")?,
            charged_kwh: sum("penstock_energy_charged_kwh_total", "Energy charged to energy wallets, kWh.")?,
            counted: counter(
                r,
                "penstock_usage_counted_by_gateway_total",
                "Answers whose provider told no usage.",
                &by_provider,
            )?,
            hasher: ahash::RandomState::new(),
            known: RwLock::default(),
        })
    }

    /// The series of a record.
    pub(super) fn of(&self, record: &Record) -> Arc<Series> {
        let model = record.model.as_deref().unwrap_or(NONE);
        let provider = record.provider.as_deref().unwrap_or(NONE);
        let endpoint = record.endpoint;
        let hash = self.hasher.hash_one((endpoint, model, provider));
        let found = self.known.read().get(&hash).and_then(|same| {
            let is = |known: &&Known| known.0 == endpoint && *known.1 == *model && *known.2 == *provider;
            same.iter().find(is).map(|known| known.3.clone())
        });
        found.unwrap_or_else(|| self.add(hash, endpoint, model, provider))
    }

    fn add(&self, hash: u64, endpoint: &'static str, model: &str, provider: &str) -> Arc<Series> {
        let labels = [endpoint, model, provider];
        let tokens = |kind| self.tokens.with_label_values(&[endpoint, model, provider, kind]);
        let sums = [provider, model];
        let series = Arc::new(Series {
            duration: self.duration.with_label_values(&labels),
            first_token: self.first_token.with_label_values(&labels),
            per_token: self.per_token.with_label_values(&labels),
            input: tokens("input"),
            output: tokens("output"),
            energy: self.energy.with_label_values(&sums),
            carbon: self.carbon.with_label_values(&sums),
            water: self.water.with_label_values(&sums),
            credits: self.credits.with_label_values(&sums),
            images: self.images.with_label_values(&sums),
            audio: self.audio.with_label_values(&sums),
            charged_kwh: self.charged_kwh.with_label_values(&sums),
            counted: self.counted.with_label_values(&sums),
        });
        let known = (endpoint, model.into(), provider.into(), series.clone());
        self.known.write().entry(hash).or_default().push(known);
        series
    }
}

impl Series {
    /// Counts an ended exchange.
    pub(super) fn observe(&self, record: &Record, took: Duration) {
        self.duration.observe(took.as_secs_f64());
        if let Some(first) = record.first_token {
            self.first_token.observe(first.as_secs_f64());
        }
        if let Some(usage) = record.done.as_ref().and_then(Done::usage) {
            self.input.observe(usage.input as f64);
            self.output.observe(usage.output as f64);
            if let Some(first) = record.first_token
                && usage.output > 1
            {
                let rest = took.saturating_sub(first).as_secs_f64();
                self.per_token.observe(rest / (usage.output - 1) as f64);
            }
            if usage.source == penstock_contract::UsageSource::Gateway {
                self.counted.inc();
            }
        }
        match record.done {
            Some(Done::Images { count, .. }) => self.images.inc_by(f64::from(count)),
            Some(Done::Audio { seconds }) => add(&self.audio, seconds),
            Some(Done::Tokens(_) | Done::Unknown) | None => {}
        }
        if let Some(footprint) = &record.footprint {
            add(&self.energy, footprint.energy_kwh);
            add(&self.carbon, footprint.carbon_g);
            add(&self.water, footprint.water_l);
        }
        if let Some(charge) = &record.charge {
            add(&self.credits, charge.credits.credits());
            add(&self.charged_kwh, charge.energy.kwh());
        }
    }
}

/// Prometheus knows floats only; the exact sums are elsewhere.
fn add(counter: &GenericCounter<AtomicF64>, amount: rust_decimal::Decimal) {
    let float = match (i32::try_from(amount.mantissa()), SCALES.get(amount.scale() as usize)) {
        // Both are exact, and so what they give is the nearest there is.
        (Ok(short), Some(scale)) => f64::from(short) / scale,
        _ => amount.to_f64().unwrap_or(0.0),
    };
    if float > 0.0 {
        counter.inc_by(float);
    }
}
