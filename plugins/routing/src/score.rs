//! Score of a candidate: 0 is the best in every respect, 1 is the worst.
//!
//! `score = w_price * price + w_speed * time + w_environment * environment`, where
//!
//! - `price = 1 - best / own`, the expected price of this request;
//! - `time = 1 - best / own`, of `seconds * (1 + in_flight / seats) / (1 - failing)`: predicted seconds (plus an offset
//!   of 50 ms), times queue depth, times the number of attempts per successful answer. (A provider that fails fast is
//!   not a fast provider.)
//! - `environment = (1 - best / own of g/kWh) / 2 + (best renewable share - own) / 2`.
//!
//! The terms are ratios to the best offer, not ranks: two offers that differ by one percent get scores that differ by
//! one percent. "Best" covers the usable offers only, so that a cheap but unavailable offer does not make the others
//! look equal.

use crate::breaker::Health;
use crate::figures::HALF_LIFE;
use crate::flavor::Flavor;
use crate::plan::Candidate;
use std::time::Duration;

/// Assumed capacity of an offer without a configured one.
const SEATS: u32 = 32;
/// Upper limit of the failure ratio in a score.
const MOST_FAILING: f64 = 0.9;

/// Seconds added to every prediction, because differences of a few milliseconds, such as one new connection, carry no
/// information about a provider.
const GRAIN: f64 = 0.05;

/// Rank of usable offers.
pub(crate) const CLEAN: u128 = 0;
/// Rank of usable offers above the flavor's intensity limit.
pub(crate) const DIRTY: u128 = 1;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Scored {
    pub(crate) offer: usize,
    /// Rank of the offer; lower ranks come first, regardless of the score.
    pub(crate) rank: u128,
    pub(crate) score: f64,
    /// Requests in flight divided by the capacity.
    pub(crate) load: f64,
}

pub(crate) fn scores(flavor: &dyn Flavor, candidates: &[Candidate]) -> Vec<Scored> {
    let peers = Peers::of(candidates);
    // `score` holds the expected time until the best time is known.
    let mut scored: Vec<Scored> = candidates
        .iter()
        .map(|one| {
            let load = load(one);
            Scored { offer: one.offer, rank: rank(&one.health), score: time(one, load, &peers), load }
        })
        .collect();
    let best = Best::of(candidates, &scored);
    let weights = flavor.weights();
    let limit = flavor.intensity_limit().map_or(f64::INFINITY, |times| times * best.ci);
    for (place, one) in scored.iter_mut().zip(candidates) {
        let environment =
            f64::midpoint(above(best.ci, one.ci_g_per_kwh), (best.renewable - share(one)).max(0.0));
        place.score = weights.price * above(best.price, one.price)
            + weights.speed * above(best.time, place.score)
            + weights.environment * environment;
        let unknown = one.ci_g_per_kwh.is_nan() && limit.is_finite();
        if place.rank == CLEAN && (one.ci_g_per_kwh > limit || unknown) {
            place.rank = DIRTY;
        }
    }
    scored
}

/// Rank by health: usable, then in cooldown (earliest end first), then ejected (fewest failures, then earliest end).
fn rank(health: &Health) -> u128 {
    let millis = |until: &Duration| u128::from(u64::try_from(until.as_millis()).unwrap_or(u64::MAX));
    match health {
        Health::Healthy | Health::HalfOpen => CLEAN,
        Health::Resting { until } => (1 << 96) | millis(until),
        Health::Ejected { failures, until } => (2 << 96) | (u128::from(*failures) << 64) | millis(until),
    }
}

/// Best value of each term.
struct Best {
    price: f64,
    time: f64,
    ci: f64,
    renewable: f64,
}

impl Best {
    /// Best values of the usable offers, or of all if none is usable.
    fn of(candidates: &[Candidate], times: &[Scored]) -> Self {
        let none = times.iter().all(|one| one.rank != CLEAN);
        let start = Self { price: f64::INFINITY, time: f64::INFINITY, ci: f64::INFINITY, renewable: 0.0 };
        let counted = candidates.iter().zip(times).filter(|(_, one)| none || one.rank == CLEAN);
        counted.fold(start, |best, (one, timed)| Self {
            // `min` and `max` ignore NaN.
            price: best.price.min(one.price),
            time: best.time.min(timed.score),
            ci: best.ci.min(one.ci_g_per_kwh),
            renewable: best.renewable.max(share(one)),
        })
    }
}

/// Distance from the best value, 0 to 1. NaN counts as worst.
fn above(best: f64, own: f64) -> f64 {
    if own <= best {
        0.0
    } else if own.is_finite() {
        1.0 - best / own
    } else {
        1.0
    }
}

fn share(one: &Candidate) -> f64 {
    if one.renewable.is_nan() { 0.0 } else { one.renewable.clamp(0.0, 1.0) }
}

/// Requests in flight divided by the capacity. An unmeasured offer has capacity for one request until its first answer:
/// its predicted time is a guess, and half of the traffic would be too much to test it.
fn load(one: &Candidate) -> f64 {
    let seats = match (one.seconds, one.seats) {
        (None, _) => 1,
        (Some(_), 0) => SEATS,
        (Some(_), seats) => seats,
    };
    f64::from(one.in_flight) / f64::from(seats)
}

fn time(one: &Candidate, load: f64, peers: &Peers) -> f64 {
    let measured = one.seconds.filter(|seconds| seconds.is_finite());
    let seconds = GRAIN + measured.unwrap_or_else(|| peers.start(one.known));
    let failing = if one.failing.is_nan() { 0.0 } else { one.failing.clamp(0.0, MOST_FAILING) };
    seconds * (1.0 + load) / (1.0 - failing)
}

/// Predicted seconds of the measured offers.
struct Peers {
    best: f64,
    median: f64,
}

impl Peers {
    fn of(candidates: &[Candidate]) -> Self {
        let known = candidates.iter().filter_map(|one| one.seconds).filter(|seconds| seconds.is_finite());
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

    /// Assumed seconds of an unmeasured offer: first the best of the others, so that it is tried, then closer and
    /// closer to their median as long as nothing is measured.
    fn start(&self, known: Duration) -> f64 {
        let hope = (-known.as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2();
        self.median + (self.best - self.median) * hope
    }
}
