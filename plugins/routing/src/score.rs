//! Score of a candidate: 0 is the best in every respect, 1 is the worst.
//!
//! `score = w_price * price + w_speed * time + w_environment * environment`, where
//!
//! - `price = 1 - best / own`, the expected price of this request;
//! - `time = 1 - best / own`, of `seconds * (1 + in_flight / capacity) / (1 - failing)`: predicted seconds (plus an
//!   offset of 50 ms), times queue depth, times the number of attempts per successful answer. (A provider that fails
//!   fast is not a fast provider.) The predicted seconds above those of the fastest offer halve per half-life without
//!   an answer, so that an offer which was slow once is asked again;
//! - `environment = (1 - best / own of g/kWh) / 2 + (best renewable share - own) / 2`.
//!
//! If the offer has the prefix of the conversation in its cache, the expected saving is subtracted from its price, its
//! seconds and its grams. A flavor's intensity limit is not affected by the saving: it compares the grids themselves.
//!
//! The terms are ratios to the best offer, not ranks: two offers that differ by one percent get scores that differ by
//! one percent. "Best" is the best value of the usable offers: a cheap but unavailable offer must not make the
//! differences between the others look small.

use crate::affinity::{OfferAffinity, PromptCacheSaving};
use crate::breaker::OfferHealth;
use crate::flavor::Flavor;
use crate::latency::HALF_LIFE;
use crate::plan::Candidate;
use std::time::Duration;

/// Number of concurrent requests that an offer is assumed to serve if its capacity is unknown.
pub(crate) const DEFAULT_MAX_IN_FLIGHT: u32 = 32;
/// Upper limit of the failure ratio in a score.
const MAX_FAILURE_RATIO: f64 = 0.9;

/// Seconds added to every prediction. So differences of a few milliseconds, for example by one new connection, have
/// hardly any effect.
const LATENCY_OFFSET: f64 = 0.05;

/// Rank of usable offers within the flavor's limit of carbon intensity.
pub(crate) const RANK_WITHIN_CARBON_LIMIT: u128 = 0;
/// Lowest rank of offers in cooldown. Usable offers above the flavor's intensity limit have the ranks between this one
/// and [`RANK_WITHIN_CARBON_LIMIT`].
pub(crate) const RANK_COOLDOWN: u128 = 1 << 96;
/// Lowest rank of ejected offers.
const RANK_EJECTED: u128 = 2 << 96;

/// Weighted terms of a score: 0 is the best, and the sum is the score.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScoreTerms {
    /// Distance of the expected price to the lowest one, times the weight of the price.
    pub price: f64,
    /// Distance of the expected time to the shortest one, times the weight of the speed.
    pub speed: f64,
    /// Distance of carbon intensity and renewable share to the best ones, times the weight of the environment.
    pub environment: f64,
}

impl ScoreTerms {
    /// Returns the score.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.price + self.speed + self.environment
    }
}

/// Candidate with its rank and its score.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScoredOffer {
    pub(crate) offer: usize,
    /// Rank of the offer; lower ranks come first, regardless of the score.
    pub(crate) rank: u128,
    pub(crate) score: f64,
    /// Weighted terms that add up to the score.
    pub(crate) terms: ScoreTerms,
    /// Requests in flight divided by the capacity.
    pub(crate) load: f64,
    /// Relation of the offer to the request's session; `None` without a session, or if the offer may not serve it.
    pub(crate) session: Option<OfferAffinity>,
}

/// Returns rank and score of each candidate, in the order of `candidates`.
pub(crate) fn score_candidates(flavor: &dyn Flavor, candidates: &[Candidate]) -> Vec<ScoredOffer> {
    let peers = PeerLatency::from_candidates(candidates);
    // The field `score` temporarily contains the expected time, until the best time of all offers is known.
    let mut scored: Vec<ScoredOffer> = candidates
        .iter()
        .map(|one| {
            let load = load_ratio(one);
            ScoredOffer {
                offer: one.offer,
                rank: rank(&one.health),
                score: expected_seconds(one, load, &peers),
                terms: ScoreTerms::default(),
                load,
                session: None,
            }
        })
        .collect();
    let best = BestTerms::from_candidates(candidates, &scored);
    let weights = flavor.weights();
    for (entry, one) in scored.iter_mut().zip(candidates) {
        let environment = f64::midpoint(
            distance_to_best(best.carbon, expected_carbon(one)),
            (best.renewable - renewable_share(one)).max(0.0),
        );
        entry.terms = ScoreTerms {
            price: weights.price * distance_to_best(best.price, expected_price(one)),
            speed: weights.speed * distance_to_best(best.time, entry.score),
            environment: weights.environment * environment,
        };
        entry.score = entry.terms.sum();
    }
    if let Some(ratio) = flavor.max_carbon_intensity_ratio() {
        rank_by_carbon_limit(candidates, &mut scored, ratio);
    }
    scored
}

/// Ranks the usable offers by groups of carbon intensity. Each group is within the limit of its own cleanest offer: if
/// all offers of the first group fail, the rest has the order that it would have without them. An unknown intensity
/// counts as the highest.
fn rank_by_carbon_limit(candidates: &[Candidate], scored: &mut [ScoredOffer], ratio: f64) {
    let usable = candidates.iter().zip(scored).filter(|(_, entry)| entry.rank == RANK_WITHIN_CARBON_LIMIT);
    let intensity = |grams: f64| if grams.is_nan() { f64::INFINITY } else { grams };
    let mut usable: Vec<(f64, &mut ScoredOffer)> =
        usable.map(|(one, entry)| (intensity(one.ci_g_per_kwh), entry)).collect();
    usable.sort_unstable_by(|(a, _), (b, _)| a.total_cmp(b));
    let limit_of = |cleanest: f64| cleanest.max(cleanest * ratio);
    let mut limit = usable.first().map_or(f64::INFINITY, |(cleanest, _)| limit_of(*cleanest));
    let mut rank = RANK_WITHIN_CARBON_LIMIT;
    for (grams, entry) in usable {
        if grams > limit {
            (rank, limit) = (rank + 1, limit_of(grams));
        }
        entry.rank = rank;
    }
}

/// Returns the rank by health: usable offers first, then those in cooldown (earliest end first), then ejected ones
/// (fewest failures, then earliest end).
fn rank(health: &OfferHealth) -> u128 {
    let millis = |until: &Duration| u128::from(u64::try_from(until.as_millis()).unwrap_or(u64::MAX));
    match health {
        OfferHealth::Healthy | OfferHealth::HalfOpen => RANK_WITHIN_CARBON_LIMIT,
        OfferHealth::CoolingDown { until } => RANK_COOLDOWN | millis(until),
        OfferHealth::Ejected { failures, until } => {
            RANK_EJECTED | (u128::from(*failures) << 64) | millis(until)
        }
    }
}

/// Best value of each term of the score among the compared offers.
struct BestTerms {
    price: f64,
    time: f64,
    /// Lowest carbon intensity of a grid, times the share of the energy that is still needed with a cached prefix.
    carbon: f64,
    renewable: f64,
}

impl BestTerms {
    /// Returns the best values of the usable offers, or of all if none is usable.
    fn from_candidates(candidates: &[Candidate], times: &[ScoredOffer]) -> Self {
        let none = times.iter().all(|one| one.rank != RANK_WITHIN_CARBON_LIMIT);
        let start = Self { price: f64::INFINITY, time: f64::INFINITY, carbon: f64::INFINITY, renewable: 0.0 };
        let counted =
            candidates.iter().zip(times).filter(|(_, one)| none || one.rank == RANK_WITHIN_CARBON_LIMIT);
        counted.fold(start, |best, (one, timed)| Self {
            // NaN values have no effect, because `f64::min` and `f64::max` ignore them.
            price: best.price.min(expected_price(one)),
            time: best.time.min(timed.score),
            carbon: best.carbon.min(expected_carbon(one)),
            renewable: best.renewable.max(renewable_share(one)),
        })
    }
}

/// Returns the distance from the best value, 0 to 1. NaN counts as worst.
fn distance_to_best(best: f64, own: f64) -> f64 {
    if own <= best {
        0.0
    } else if own.is_finite() {
        1.0 - best / own
    } else {
        1.0
    }
}

fn renewable_share(one: &Candidate) -> f64 {
    if one.renewable.is_nan() { 0.0 } else { one.renewable.clamp(0.0, 1.0) }
}

/// Returns the requests in flight divided by the capacity. An unmeasured offer counts as having capacity for one
/// request until its first answer: its predicted time is a guess, so it must not get a large part of the traffic.
fn load_ratio(one: &Candidate) -> f64 {
    let capacity = match (one.predicted_seconds, one.max_in_flight) {
        (None, _) => 1,
        (Some(_), 0) => DEFAULT_MAX_IN_FLIGHT,
        (Some(_), capacity) => capacity,
    };
    f64::from(one.in_flight) / f64::from(capacity)
}

/// Returns the saving at an offer; a value that is not a valid amount counts as zero.
fn saving(one: &Candidate) -> PromptCacheSaving {
    let amount = |number: f64| if number.is_finite() { number.max(0.0) } else { 0.0 };
    let saving = one.session.and_then(|session| session.saving).unwrap_or_default();
    PromptCacheSaving {
        price: amount(saving.price),
        seconds: amount(saving.seconds),
        energy: amount(saving.energy).min(1.0),
    }
}

fn expected_price(one: &Candidate) -> f64 {
    let saving = saving(one).price;
    // The subtraction is not written with `max`, because `max` would turn an unknown price (NaN) into zero.
    if saving > one.price { 0.0 } else { one.price - saving }
}

fn expected_carbon(one: &Candidate) -> f64 {
    one.ci_g_per_kwh * (1.0 - saving(one).energy)
}

fn expected_seconds(one: &Candidate, load: f64, peers: &PeerLatency) -> f64 {
    let measured = one.predicted_seconds.filter(|seconds| seconds.is_finite());
    let seconds = match measured {
        Some(seconds) => peers.aged_seconds(seconds, one.measured_age.unwrap_or_default()),
        None => peers.initial_seconds(one.known_for),
    };
    let seconds = LATENCY_OFFSET + (seconds - saving(one).seconds).max(0.0);
    let failing =
        if one.failure_ratio.is_nan() { 0.0 } else { one.failure_ratio.clamp(0.0, MAX_FAILURE_RATIO) };
    seconds * (1.0 + load) / (1.0 - failing)
}

/// Best and median predicted seconds of the measured offers.
struct PeerLatency {
    best: f64,
    median: f64,
}

impl PeerLatency {
    fn from_candidates(candidates: &[Candidate]) -> Self {
        let known =
            candidates.iter().filter_map(|one| one.predicted_seconds).filter(|seconds| seconds.is_finite());
        let mut known: Vec<f64> = known.collect();
        known.sort_unstable_by(f64::total_cmp);
        // For an even number, the median is the mean of the middle two.
        let upper = known.get(known.len() / 2);
        let lower = known.get(known.len().saturating_sub(1) / 2);
        match (known.first(), lower, upper) {
            (Some(best), Some(lower), Some(upper)) => {
                Self { best: *best, median: f64::midpoint(*lower, *upper) }
            }
            _ => Self { best: 1.0, median: 1.0 },
        }
    }

    /// Returns the assumed seconds of an unmeasured offer; `age` is the time since the offer could first be chosen.
    /// The result is at first the best value of the other offers, so the offer is tried. Later it approaches their
    /// median, until a measurement exists.
    fn initial_seconds(&self, age: Duration) -> f64 {
        self.median + (self.best - self.median) * remaining_share(age)
    }

    /// Returns the assumed seconds of an offer whose last answer is this old: the part above the best value of the
    /// offers halves per half-life, because the reason of the slowness may be gone.
    fn aged_seconds(&self, seconds: f64, age: Duration) -> f64 {
        if seconds <= self.best {
            return seconds;
        }
        self.best + (seconds - self.best) * remaining_share(age)
    }
}

/// Returns the share that remains of a value after this time, from 1 to 0.
fn remaining_share(age: Duration) -> f64 {
    (-age.as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2()
}
