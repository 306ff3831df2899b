//! The plan: able candidates in, their offers out, best first.
//!
//! Order: usable offers by score; under a flavor with an intensity limit the
//! dirty ones after the clean; then those that rest, soonest first; then the
//! ejected, least bad first. Nobody is dropped.
//!
//! Near-equal offers share the load by the power of two choices: of those
//! within [`NEAR`] of the best score left, two are drawn and the less busy one
//! comes first. So no flavor sends everything to one provider because it is a
//! hair better, and two gateways with the same figures do not march in step.

use crate::breaker::Health;
use crate::dice::Dice;
use crate::flavor::Flavor;
use crate::score::{self, CLEAN, DIRTY, Scored};
use std::time::Duration;

/// Scores (0 best, 1 worst) that differ by no more than this are equal: about
/// 7 % of time or price for a flavor that weighs it 0.7.
pub const NEAR: f64 = 0.05;

/// An offer that is able and allowed to serve this request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// What [`plan`] calls it: an index of the house's own.
    pub offer: usize,
    /// Expected price of this request in EUR, for comparison only; see [`price_hint`].
    pub price: f64,
    /// Predicted seconds to the whole answer on an idle provider
    /// ([`Figures::predict`](crate::Figures::predict)); `None` if unmeasured: it then
    /// starts at the best of its peers, decays to their median, and has one seat.
    pub seconds: Option<f64>,
    /// Time since its last good answer ([`Figures::age`](crate::Figures::age)); `None` without one.
    pub measured: Option<Duration>,
    /// Time for which it could have been asked ([`Figures::known_for`](crate::Figures::known_for)).
    pub known: Duration,
    /// Requests that the offer is working on now.
    pub in_flight: u32,
    /// Requests that it works on at once before they slow each other down;
    /// 0 when unknown (then 32).
    pub seats: u32,
    /// Share of recent attempts that failed, 0 to 1 ([`Breaker::failing`](crate::Breaker::failing)).
    pub failing: f64,
    /// Grams of CO2e per kWh of its grid; `NAN` when unknown, which counts as worst.
    pub ci_g_per_kwh: f64,
    /// Renewable share of its grid, 0 to 1.
    pub renewable: f64,
    /// What its breaker says ([`Breaker::health`](crate::Breaker::health)).
    pub health: Health,
}

impl Candidate {
    /// A healthy, idle newcomer; the rest by struct update.
    #[must_use]
    pub const fn new(offer: usize) -> Self {
        Self {
            offer,
            price: 0.0,
            seconds: None,
            measured: None,
            known: Duration::ZERO,
            in_flight: 0,
            seats: 0,
            failing: 0.0,
            ci_g_per_kwh: 0.0,
            renewable: 0.0,
            health: Health::Healthy,
        }
    }
}

/// EUR that a request would cost, for comparison only:
/// `(prompt_tokens * input + output_tokens * output) / 1e6`, prices in EUR per million tokens.
#[must_use]
pub fn price_hint(input: f64, output: f64, prompt_tokens: u64, output_tokens: u64) -> f64 {
    // Token counts are far below 2^53, where the conversion is exact.
    (prompt_tokens as f64 * input + output_tokens as f64 * output) / 1e6
}

/// All offers of `candidates`, best first.
#[must_use]
pub fn plan(flavor: &dyn Flavor, candidates: &[Candidate], seed: u64) -> Vec<usize> {
    let mut ranked = score::scores(flavor, candidates);
    ranked.sort_unstable_by(|a, b| {
        a.rank.cmp(&b.rank).then(a.score.total_cmp(&b.score)).then(a.offer.cmp(&b.offer))
    });
    let mut dice = Dice::new(seed);
    let clean = ranked.iter().take_while(|one| one.rank == CLEAN).count();
    let (clean_ones, rest) = ranked.split_at_mut(clean);
    spread(clean_ones, &mut dice);
    let dirty = rest.iter().take_while(|one| one.rank == DIRTY).count();
    let (dirty_ones, _) = rest.split_at_mut(dirty);
    spread(dirty_ones, &mut dice);
    ranked.iter().map(|one| one.offer).collect()
}

/// Reorders a sorted run so that near-equals come in drawn order.
fn spread(mut run: &mut [Scored], dice: &mut Dice) {
    while let Some(best) = run.first() {
        let limit = best.score + NEAR;
        let near = run.iter().take_while(|one| one.score <= limit).count();
        let chosen = if near > 1 { less_busy(run, near, dice) } else { 0 };
        // Keeps the others in order of score.
        if let Some(head) = run.get_mut(..=chosen) {
            head.rotate_right(1);
        }
        let Some((_, rest)) = run.split_first_mut() else { return };
        run = rest;
    }
}

/// Two of the first `near`, the less busy of them.
fn less_busy(run: &[Scored], near: usize, dice: &mut Dice) -> usize {
    let bound = u64::try_from(near).unwrap_or(u64::MAX);
    let first = dice.below(bound);
    let second = dice.below(bound.saturating_sub(1));
    // Two different ones.
    let second = if second >= first { second + 1 } else { second };
    let first = usize::try_from(first).unwrap_or(0);
    let second = usize::try_from(second).unwrap_or(0);
    match (run.get(first), run.get(second)) {
        (Some(a), Some(b)) if b.load < a.load => second,
        _ => first,
    }
}
