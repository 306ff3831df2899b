//! Expected benefit of an offer's prefix cache for a conversation that the offer has answered before.

use super::sessions::SessionRecord;
use crate::config::settings::OfferSettings;
use penstock_core::TokenUsage;
use penstock_routing::{
    LatencyStats, OfferAffinity, PromptCacheSaving, SessionKey, estimate_price, rendezvous_weight,
    stable_hash,
};
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Share of a prefix that is assumed to be cached until the offer has shown its own share.
const INITIAL_HIT_RATIO: f32 = 0.5;
/// Weight of the latest answer when the hit ratio is updated.
const HIT_RATIO_WEIGHT: f32 = 0.2;

/// Session of a request, with the last answer that this gateway knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionHistory {
    /// Key of the session at this model.
    pub key: SessionKey,
    /// Offer that answered last, and the length of the prefix that it has cached; `None` for a new session, or for a
    /// session that only other gateways have answered.
    pub record: Option<SessionRecord>,
}

/// Expected benefit of an offer's prefix cache: its prices, its energy, and the share of hits that its answers showed.
pub struct CacheAffinity {
    /// Hash of provider, base URL, model and the provider's name of the model; equal in every gateway with this
    /// configuration.
    identity: u64,
    /// Difference between the prices of an uncached and a cached input token, in EUR per million tokens.
    discount: f64,
    /// Joules per uncached input token and per output token; `None` if unknown.
    joules: Option<(f64, f64)>,
    /// Hit ratio: share of the expected prefix that the offer's answers reported as cached; stored as the bits of an
    /// `f32`.
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
        let joules = offer.footprint_factors.joules_per_token();
        let url = &offer.provider.base_url;
        let parts = [&*offer.provider.id, &*url.host, &*url.path_prefix, &*offer.model.card.id, &*offer.name];
        Self {
            identity: parts.iter().fold(url.port.into(), |hash, part| stable_hash(hash, part.as_bytes())),
            discount: number(discount.max(Decimal::ZERO)),
            joules: joules.map(|(input, output)| (number(input), number(output))),
            hit_ratio: Arc::new(AtomicU32::new(INITIAL_HIT_RATIO.to_bits())),
        }
    }

    /// Uses the hit ratio of the same offer in an earlier configuration; from then on, both share it.
    pub fn share_hit_ratio(&mut self, previous: &Self) {
        self.hit_ratio = previous.hit_ratio.clone();
    }

    /// Returns the hash of the offer's identity.
    #[must_use]
    pub const fn offer_identity_hash(&self) -> u64 {
        self.identity
    }

    /// Returns the affinity of the offer to a session, for a request with these numbers of prompt and output tokens.
    #[must_use]
    pub fn session_affinity(
        &self,
        session: SessionHistory,
        figures: &LatencyStats,
        now: Duration,
        (prompt, output): (u64, u64),
    ) -> OfferAffinity {
        let record = session.record.filter(|record| record.offer_hash == self.identity);
        OfferAffinity {
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
    ) -> PromptCacheSaving {
        let prefix = u64::from(record.tokens).min(prompt);
        // The casts lose no precision: token counts are far below 2^53, and the ratio is at most 1.
        let cached = (prefix as f64 * f64::from(self.hit_ratio())) as u64;
        let cached = cached.min(prompt);
        let predict = |prompt| figures.predict_seconds(now, prompt, output);
        let seconds = predict(prompt).zip(predict(prompt - cached)).map_or(0.0, |(full, less)| full - less);
        PromptCacheSaving {
            price: estimate_price(self.discount, 0.0, cached, 0),
            seconds: seconds.max(0.0),
            energy: self.joules.map_or(0.0, |(input, write)| {
                let saved = input * CACHE_HIT_ENERGY_SAVING * cached as f64;
                let all = input * prompt as f64 + write * output as f64;
                if all > 0.0 { saved / all } else { 0.0 }
            }),
        }
    }

    fn hit_ratio(&self) -> f32 {
        f32::from_bits(self.hit_ratio.load(Ordering::Relaxed))
    }

    /// Updates the hit ratio after this offer has answered a further request of a session. The new observation is the
    /// share of the expected prefix that was cached, at most 1.
    pub fn record_hits(&self, record: SessionRecord, usage: &TokenUsage) {
        let expected = u64::from(record.tokens).min(usage.input);
        if record.offer_hash != self.identity || expected == 0 {
            return;
        }
        let hit = (usage.cached.min(expected) as f64 / expected as f64) as f32;
        let ratio = self.hit_ratio();
        let learned = ratio + (hit - ratio) * HIT_RATIO_WEIGHT;
        // One of two concurrent updates may be lost; both move the ratio towards the same value.
        self.hit_ratio.store(learned.clamp(0.0, 1.0).to_bits(), Ordering::Relaxed);
    }
}

/// Share of a token's energy that is saved if the token is read from the cache.
const CACHE_HIT_ENERGY_SAVING: f64 = 0.9;
