//! Plan of a request: the candidates in the order of preference.
//!
//! Order: first the usable offers by score, but with a flavor's intensity limit, the offers above this limit come
//! after the other usable ones, and the same limit orders them relative to the cleanest among them; then the offers in
//! cooldown, the earliest end first; then the ejected offers, the fewest failures first. No offer is dropped.
//!
//! Offers with similar scores share the load by the power of two choices. Among the offers within [`TIE_MARGIN`] of
//! the best remaining score, the one that the request's session prefers comes first ([`affinity`](crate::affinity)).
//! Without a session, two of these offers are chosen at random, and the less loaded one comes first. So a flavor does
//! not send all requests to one provider for a tiny advantage, and two gateways with the same statistics do not
//! always make the same choice.

use crate::affinity::{OfferAffinity, session_eligibility};
use crate::breaker::OfferHealth;
use crate::flavor::Flavor;
use crate::rng::SplitMix64;
use crate::score::{self, RANK_COOLDOWN, ScoredOffer};
use std::time::Duration;

/// Maximum difference of scores (0 best, 1 worst) that count as equal: about 7 % of time or price for a flavor that
/// weighs it 0.7.
pub const TIE_MARGIN: f64 = 0.05;

/// Offer that can serve a request, with the values by which offers are ranked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Gateway's index of the offer, returned by [`plan`].
    pub offer: usize,
    /// Expected price of this request in EUR, for comparison only; see [`estimate_price`].
    pub price: f64,
    /// Predicted seconds to the complete answer on an idle provider
    /// ([`LatencyStats::predict_seconds`](crate::LatencyStats::predict_seconds)). `None` without a
    /// measurement: the score then assumes the best prediction of the other offers, approaches their median as
    /// `known_for` grows, and allows one request in flight.
    pub predicted_seconds: Option<f64>,
    /// Time since the last successful answer; `None` without one
    /// ([`LatencyStats::last_observation_age`](crate::LatencyStats::last_observation_age)).
    pub measured_age: Option<Duration>,
    /// Number of recent answers, each halved per half-life
    /// ([`LatencyStats::recent_answers`](crate::LatencyStats::recent_answers)).
    pub recent_answers: f64,
    /// Time since the offer could first be chosen
    /// ([`LatencyStats::time_since_first_seen`](crate::LatencyStats::time_since_first_seen)).
    pub known_for: Duration,
    /// Number of requests in flight at the offer.
    pub in_flight: u32,
    /// Number of concurrent requests that the offer serves without slowing down; 0 if unknown, then 32 is assumed.
    pub max_in_flight: u32,
    /// Share of recent attempts that failed, 0 to 1
    /// ([`CircuitBreaker::failure_ratio`](crate::CircuitBreaker::failure_ratio)).
    pub failure_ratio: f64,
    /// Grams of CO2e per kWh of the offer's grid; `NAN` if unknown, which counts as worst.
    pub ci_g_per_kwh: f64,
    /// Renewable share of the offer's grid, 0 to 1.
    pub renewable: f64,
    /// Health of the offer according to its breaker ([`CircuitBreaker::health`](crate::CircuitBreaker::health)).
    pub health: OfferHealth,
    /// Relation of the offer to the session of the request; `None` if the request has no session.
    pub session: Option<OfferAffinity>,
}

impl Candidate {
    /// Returns a healthy, idle offer without measurements; other fields are set by struct update.
    #[must_use]
    pub const fn new(offer: usize) -> Self {
        Self {
            offer,
            price: 0.0,
            predicted_seconds: None,
            measured_age: None,
            recent_answers: 0.0,
            known_for: Duration::ZERO,
            in_flight: 0,
            max_in_flight: 0,
            failure_ratio: 0.0,
            ci_g_per_kwh: 0.0,
            renewable: 0.0,
            health: OfferHealth::Healthy,
            session: None,
        }
    }
}

/// Returns the price of a request in EUR, for comparison only: `(prompt_tokens * input + output_tokens * output) /
/// 1e6`, with prices in EUR per million tokens.
#[must_use]
pub fn estimate_price(input: f64, output: f64, prompt_tokens: u64, output_tokens: u64) -> f64 {
    // The conversion of token counts to `f64` is exact, because they are far below 2^53.
    (prompt_tokens as f64 * input + output_tokens as f64 * output) / 1e6
}

/// Returns the [`Candidate::offer`] of every candidate, best first.
#[must_use]
pub fn plan(flavor: &dyn Flavor, candidates: &[Candidate], seed: u64) -> Vec<usize> {
    let mut ranked = rank_candidates(flavor, candidates);
    let mut dice = SplitMix64::new(seed);
    let usable = ranked.iter().take_while(|one| one.rank < RANK_COOLDOWN).count();
    let (usable, _) = ranked.split_at_mut(usable);
    for group in usable.chunk_by_mut(|one, next| one.rank == next.rank) {
        shuffle_ties(group, &mut dice);
    }
    ranked.iter().map(|one| one.offer).collect()
}

/// Returns the candidates with their scores, best first; offers with similar scores are not shuffled.
pub(crate) fn rank_candidates(flavor: &dyn Flavor, candidates: &[Candidate]) -> Vec<ScoredOffer> {
    let mut ranked = if candidates.iter().any(|one| one.session.is_some()) {
        score_with_session(flavor, candidates)
    } else {
        score::score_candidates(flavor, candidates)
    };
    ranked.sort_unstable_by(|a, b| {
        a.rank.cmp(&b.rank).then(a.score.total_cmp(&b.score)).then(a.offer.cmp(&b.offer))
    });
    ranked
}

/// Scores the candidates for a session. The score includes the cache saving of an offer if that offer is within its
/// load limit.
fn score_with_session(flavor: &dyn Flavor, candidates: &[Candidate]) -> Vec<ScoredOffer> {
    let mut cold: Vec<Candidate> = candidates.to_vec();
    for one in &mut cold {
        one.session = None;
    }
    let mut scored = score::score_candidates(flavor, &cold);
    let within = session_eligibility(candidates, &scored, TIE_MARGIN);
    let mut has_saving = false;
    for ((cold, one), within) in cold.iter_mut().zip(candidates).zip(&within) {
        cold.session = one.session.filter(|_| *within);
        has_saving |= cold.session.is_some_and(|session| session.saving.is_some());
    }
    if has_saving {
        scored = score::score_candidates(flavor, &cold);
    }
    for (scored, one) in scored.iter_mut().zip(&cold) {
        scored.session = one.session;
    }
    scored
}

/// Reorders a slice that is sorted by score: among offers with similar scores, the one that the session prefers comes
/// first; without a session, the less loaded of two random ones.
fn shuffle_ties(mut run: &mut [ScoredOffer], dice: &mut SplitMix64) {
    while let Some(best) = run.first() {
        let limit = best.score + TIE_MARGIN;
        let tie_count = run.iter().take_while(|one| one.score <= limit).count();
        let chosen = match preferred(run.get(..tie_count).unwrap_or_default()) {
            Some(preferred) => preferred,
            None if tie_count > 1 => pick_less_loaded(run, tie_count, dice),
            None => 0,
        };
        // The offers other than the chosen one keep their order by score.
        if let Some(head) = run.get_mut(..=chosen) {
            head.rotate_right(1);
        }
        let Some((_, rest)) = run.split_first_mut() else { return };
        run = rest;
    }
}

/// Returns the index of the offer that answered the session last, or else of the offer with the highest weight for the
/// session; `None` without a session, and if none of these offers may serve it.
fn preferred(tied: &[ScoredOffer]) -> Option<usize> {
    let sessions = tied.iter().enumerate().filter_map(|(at, one)| Some((at, one.session?)));
    sessions.max_by_key(|(_, session)| (session.saving.is_some(), session.weight)).map(|(at, _)| at)
}

/// Returns the index of the less loaded of two random offers among the first `tie_count`.
fn pick_less_loaded(run: &[ScoredOffer], tie_count: usize, dice: &mut SplitMix64) -> usize {
    let bound = u64::try_from(tie_count).unwrap_or(u64::MAX);
    let first = dice.random_below(bound);
    let second = dice.random_below(bound.saturating_sub(1));
    // The second random index skips the first one, so that the two differ.
    let second = if second >= first { second + 1 } else { second };
    let first = usize::try_from(first).unwrap_or(0);
    let second = usize::try_from(second).unwrap_or(0);
    match (run.get(first), run.get(second)) {
        (Some(a), Some(b)) if b.load < a.load => second,
        _ => first,
    }
}
