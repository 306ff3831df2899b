//! Expected benefit of an offer's prefix cache for a conversation that it answered before.

use super::sessions::SessionRecord;
use crate::config::settings::OfferSettings;
use penstock_core::TokenUsage;
use penstock_routing::{
    CacheSaving, LatencyStats, SessionAffinity, SessionKey, estimate_price, rendezvous_weight, stable_hash,
};
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Assumed share of a prefix that is cached, before an offer has shown its own.
const INITIAL_HIT_RATIO: f32 = 0.5;
/// Weight of the latest answer in the hit ratio.
const HIT_RATIO_WEIGHT: f32 = 0.2;

/// Session of a request, with its last known answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedSession {
    /// Key of the session at this model.
    pub key: SessionKey,
    /// Offer and time of the last answer; `None` for a new session, or one that other gateways answered.
    pub record: Option<SessionRecord>,
}

/// Prefix cache of an offer.
pub struct CacheAffinity {
    /// Hash of provider, base URL, model and name: the same in every gateway with this configuration.
    identity: u64,
    /// EUR per million tokens that a cached token costs less than another.
    discount: f64,
    /// Joules per uncached token of input and per token of output, where both are known.
    joules: Option<(f64, f64)>,
    /// Share of the expected prefix that its answers reported as cached: the bits of an `f32`.
    hit_ratio: Arc<AtomicU32>,
}

impl CacheAffinity {
    /// Creates the state of an offer without observations.
    #[must_use]
    pub fn new(offer: &OfferSettings) -> Self {
        let number = |decimal: Decimal| decimal.to_f64().unwrap_or(0.0);
        let tariff = &offer.tariff;
        let discount =
            tariff.input.zip(tariff.cached_input).map_or(Decimal::ZERO, |(full, less)| full - less);
        let joules = offer.prepared.joules_per_token();
        let url = &offer.provider.base_url;
        let parts = [&*offer.provider.id, &*url.host, &*url.path_prefix, &*offer.model.card.id, &*offer.name];
        Self {
            identity: parts.iter().fold(url.port.into(), |hash, part| stable_hash(hash, part.as_bytes())),
            discount: number(discount.max(Decimal::ZERO)),
            joules: joules.map(|(input, output)| (number(input), number(output))),
            hit_ratio: Arc::new(AtomicU32::new(INITIAL_HIT_RATIO.to_bits())),
        }
    }

    /// Shares the observations of the same offer in an earlier configuration.
    pub fn inherit_observations(&mut self, known: &Self) {
        self.hit_ratio = known.hit_ratio.clone();
    }

    /// Hash of the offer's identity.
    #[must_use]
    pub const fn identity_hash(&self) -> u64 {
        self.identity
    }

    /// Relation of the offer to a session, for a request with these tokens.
    #[must_use]
    pub fn to_session(
        &self,
        session: PlannedSession,
        figures: &LatencyStats,
        now: Duration,
        (prompt, output): (u64, u64),
    ) -> SessionAffinity {
        let record = session.record.filter(|record| record.offer == self.identity);
        SessionAffinity {
            weight: rendezvous_weight(session.key, self.identity),
            saving: record.map(|record| self.saving(record, figures, now, (prompt, output))),
        }
    }

    fn saving(
        &self,
        record: SessionRecord,
        figures: &LatencyStats,
        now: Duration,
        (prompt, output): (u64, u64),
    ) -> CacheSaving {
        let prefix = u64::from(record.tokens).min(prompt);
        // Token counts are far below 2^53, and a ratio is at most 1.
        let cached = (prefix as f64 * f64::from(self.hit_ratio())) as u64;
        let cached = cached.min(prompt);
        let predict = |prompt| figures.predict_seconds(now, prompt, output);
        let seconds = predict(prompt).zip(predict(prompt - cached)).map_or(0.0, |(full, less)| full - less);
        CacheSaving {
            price: estimate_price(self.discount, 0.0, cached, 0),
            seconds: seconds.max(0.0),
            energy: self.joules.map_or(0.0, |(input, write)| {
                let saved = input * UNCACHED_SHARE * cached as f64;
                let all = input * prompt as f64 + write * output as f64;
                if all > 0.0 { saved / all } else { 0.0 }
            }),
        }
    }

    fn hit_ratio(&self) -> f32 {
        f32::from_bits(self.hit_ratio.load(Ordering::Relaxed))
    }

    /// Learns from an answer to a session that this offer answered before: the share of the expected prefix that was
    /// cached. A report of more than was expected counts as all of it.
    pub fn record_hits(&self, record: SessionRecord, usage: &TokenUsage) {
        let expected = u64::from(record.tokens).min(usage.input);
        if record.offer != self.identity || expected == 0 {
            return;
        }
        let hit = (usage.cached.min(expected) as f64 / expected as f64) as f32;
        let ratio = self.hit_ratio();
        let learned = ratio + (hit - ratio) * HIT_RATIO_WEIGHT;
        // One of two concurrent updates may be lost; both move the ratio towards the same value.
        self.hit_ratio.store(learned.clamp(0.0, 1.0).to_bits(), Ordering::Relaxed);
    }
}

/// Share of a token's energy that reading it from the cache saves.
const UNCACHED_SHARE: f64 = 0.9;
