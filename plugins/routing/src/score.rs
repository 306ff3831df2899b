//! The score of a candidate: 0 is best in every respect, 1 is worst.
//!
//! `score = w_price * price + w_speed * time + w_environment * environment`, where
//!
//! - `price = 1 - best / own`, the expected price of this request;
//! - `time = 1 - best / own`, of `seconds * (1 + in_flight / seats) / (1 - failing)`:
//!   predicted seconds (and a grain of 50 ms), times queue depth, times the tries
//!   that a good answer takes.
//!   (A provider that fails fast is not a fast provider.)
//! - `environment = (1 - best / own of g/kWh) / 2 + (best renewable share - own) / 2`.
//!
//! Ratios to the best, not ranks: two offers that are one percent apart score
//! one percent apart. "Best" is the best of those that may be asked now, so
//! that a dead bargain does not make the living ones look alike.

use crate::breaker::Health;
use crate::figures::HALF_LIFE;
use crate::flavor::Flavor;
use crate::plan::Candidate;
use std::time::Duration;

/// Seats of an offer that does not tell.
const SEATS: u32 = 32;
/// More failures than this do not make an offer look slower still.
const MOST_FAILING: f64 = 0.9;

/// Seconds added to every prediction: a few milliseconds more or less, such as
/// one connection that had to be opened, say nothing about a provider.
const GRAIN: f64 = 0.05;

/// The rank of those that may be asked.
pub(crate) const CLEAN: u128 = 0;
/// The rank of those that may be asked and are beyond the flavor's intensity limit.
pub(crate) const DIRTY: u128 = 1;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Scored {
    pub(crate) offer: usize,
    /// Lower ranks come first, whatever the score.
    pub(crate) rank: u128,
    pub(crate) score: f64,
    /// In flight by seats.
    pub(crate) load: f64,
}

pub(crate) fn scores(flavor: &dyn Flavor, candidates: &[Candidate]) -> Vec<Scored> {
    let peers = Peers::of(candidates);
    // The score's place holds the time until the best is known.
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

/// Usable, then resting (soonest first), then ejected (fewest failures, then soonest).
fn rank(health: &Health) -> u128 {
    let millis = |until: &Duration| u128::from(u64::try_from(until.as_millis()).unwrap_or(u64::MAX));
    match health {
        Health::Healthy | Health::HalfOpen => CLEAN,
        Health::Resting { until } => (1 << 96) | millis(until),
        Health::Ejected { failures, until } => (2 << 96) | (u128::from(*failures) << 64) | millis(until),
    }
}

/// The best of each term.
struct Best {
    price: f64,
    time: f64,
    ci: f64,
    renewable: f64,
}

impl Best {
    /// Of those that may be asked, or of all if none may.
    fn of(candidates: &[Candidate], times: &[Scored]) -> Self {
        let none = times.iter().all(|one| one.rank != CLEAN);
        let start = Self { price: f64::INFINITY, time: f64::INFINITY, ci: f64::INFINITY, renewable: 0.0 };
        let counted = candidates.iter().zip(times).filter(|(_, one)| none || one.rank == CLEAN);
        counted.fold(start, |best, (one, timed)| Self {
            // `min` and `max` pass over NaN.
            price: best.price.min(one.price),
            time: best.time.min(timed.score),
            ci: best.ci.min(one.ci_g_per_kwh),
            renewable: best.renewable.max(share(one)),
        })
    }
}

/// How far above the best, 0 to 1. What is no number is worst.
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

/// Requests in flight by seats. A newcomer has one seat until its first answer
/// is in: a median is a guess, and half of the traffic is too much to learn from.
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

/// Predicted seconds of those that were measured.
struct Peers {
    best: f64,
    median: f64,
}

impl Peers {
    fn of(candidates: &[Candidate]) -> Self {
        let known = candidates.iter().filter_map(|one| one.seconds).filter(|seconds| seconds.is_finite());
        let mut known: Vec<f64> = known.collect();
        known.sort_unstable_by(f64::total_cmp);
        // The mean of the middle two for an even number.
        let upper = known.get(known.len() / 2);
        let lower = known.get(known.len().saturating_sub(1) / 2);
        match (known.first(), lower, upper) {
            (Some(best), Some(lower), Some(upper)) => {
                Self { best: *best, median: f64::midpoint(*lower, *upper) }
            }
            _ => Self { best: 1.0, median: 1.0 },
        }
    }

    /// The seconds that an unmeasured offer is taken for: the best of its peers, so that it is tried, and ever closer
    /// to their median while nothing is learnt of it.
    fn start(&self, known: Duration) -> f64 {
        let hope = (-known.as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2();
        self.median + (self.best - self.median) * hope
    }
}
