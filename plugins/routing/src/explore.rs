//! Exploration: a small share of the requests goes first to an offer whose figures are missing, old or uncertain.
//!
//! - **Old figures.** Under a flavor that [explores](crate::Flavor::allows_exploration), the gateway finds a faster
//!   offer even if the price gives that offer a low rank: up to [`MAX_EXPLORATION_PRICE_RATIO`] times the price of the
//!   regular choice. One good answer ends this for [`MAX_MEASUREMENT_AGE`].
//! - **Uncertain figures.** Under every flavor, an offer that is as good as the regular choice in price and
//!   environment, and that only its speed ranks lower, is explored while it has fewer than [`MIN_RECENT_ANSWERS`]
//!   recent answers. So one slow answer does not exclude an offer. About two requests a minute keep an offer that is
//!   slow at this number.
//!
//! The cost is bounded by the [`ExplorationBudgets`] of the model. Only healthy idle offers without recent failures are
//! explored. The request itself is safe: if the explored offer fails, the plan continues with its regular order.

use crate::breaker::OfferHealth;
use crate::flavor::Flavor;
use crate::plan::{Candidate, TIE_MARGIN};
use crate::rng::SplitMix64;
use crate::score::{self, RANK_WITHIN_CARBON_LIMIT, ScoredOffer};
use std::time::Duration;

/// Age of measurements above which an offer may be explored again.
pub const MAX_MEASUREMENT_AGE: Duration = Duration::from_secs(600);

/// Number of recent answers, each halved per half-life, from which the speed of an offer counts as known.
pub const MIN_RECENT_ANSWERS: f64 = 16.0;

/// Number of requests of a model that could explore, for each allowed exploration.
pub const REQUESTS_PER_EXPLORATION: u64 = 50;

/// Number of such requests under a flavor that explores only offers with equal prices.
pub const REQUESTS_PER_EQUAL_EXPLORATION: u64 = 10;

/// Maximum price of an explored offer, as a multiple of the price of the regular choice.
pub const MAX_EXPLORATION_PRICE_RATIO: f64 = 2.0;

/// Maximum prompt size of a request that may explore an offer with missing or old figures, in tokens.
pub const MAX_EXPLORATION_PROMPT_TOKENS: u64 = 1_000;

/// Failure ratio from which an offer is not explored. A failure that is the only recent attempt gives one third
/// ([`CircuitBreaker::failure_ratio`](crate::CircuitBreaker::failure_ratio)).
const MAX_FAILURE_RATIO: f64 = 0.3;

/// Offers that a request may explore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExplorationScope {
    /// Offers with uncertain figures that equal the regular choice in price and environment, or are better.
    EqualOffers,
    /// Offers with missing or old figures at up to [`MAX_EXPLORATION_PRICE_RATIO`] times the price.
    OldOffers,
    /// Both.
    AllOffers,
}

impl ExplorationScope {
    /// Returns the part of the scope that the budget allows; `None` for nothing. The first exploration of a budget,
    /// which no request has earned, is for offers with missing or old figures.
    #[must_use]
    pub const fn within_budget(self, budget: &ExplorationBudget) -> Option<Self> {
        match self {
            _ if budget.has_earned() => Some(self),
            Self::OldOffers | Self::AllOffers if budget.is_available() => Some(Self::OldOffers),
            Self::EqualOffers | Self::OldOffers | Self::AllOffers => None,
        }
    }
}

/// Exploration budget: one exploration for each `interval` requests. Unused explorations do not add up: at most one is
/// available at any time.
#[derive(Clone, Debug)]
pub struct ExplorationBudget {
    /// Number of requests for each exploration, at least 1.
    interval: u64,
    /// Number of requests that could have explored, limited so that at most one exploration is available.
    requests: u64,
    explored: u64,
}

impl ExplorationBudget {
    /// Creates a budget of one exploration for each `interval` requests; the first one is granted immediately.
    #[must_use]
    pub fn new(interval: u64) -> Self {
        Self { interval: interval.max(1), requests: 0, explored: 0 }
    }

    /// Counts a request that could have explored, toward the next exploration.
    pub fn on_request(&mut self) {
        let most = self.explored.saturating_add(1).saturating_mul(self.interval);
        self.requests = self.requests.saturating_add(1).min(most);
    }

    /// Returns true if an exploration is available.
    #[must_use]
    pub const fn is_available(&self) -> bool {
        self.explored == 0 || self.has_earned()
    }

    /// Returns true if enough requests were counted for one more exploration.
    const fn has_earned(&self) -> bool {
        self.explored < self.requests / self.interval
    }

    /// Takes one exploration from the budget. Returns false if there were too few requests since the last one.
    pub fn try_explore(&mut self) -> bool {
        let granted = self.is_available();
        self.explored = self.explored.saturating_add(u64::from(granted));
        granted
    }
}

/// Exploration budgets of a model, which its flavors share.
#[derive(Clone, Debug)]
pub struct ExplorationBudgets {
    /// Budget of the flavors that explore offers with old figures.
    all_offers: ExplorationBudget,
    /// Budget of the other flavors.
    equal_offers: ExplorationBudget,
}

impl Default for ExplorationBudgets {
    fn default() -> Self {
        Self {
            all_offers: ExplorationBudget::new(REQUESTS_PER_EXPLORATION),
            equal_offers: ExplorationBudget::new(REQUESTS_PER_EQUAL_EXPLORATION),
        }
    }
}

impl ExplorationBudgets {
    /// Returns the budget of a flavor.
    pub fn of_flavor(&mut self, flavor: &dyn Flavor) -> &mut ExplorationBudget {
        if flavor.allows_exploration() { &mut self.all_offers } else { &mut self.equal_offers }
    }
}

/// Selects the offer to explore instead of `first`, the regular choice of the plan; `None` if no offer qualifies, or
/// if `first` is not healthy. Prefers an offer without measurements, then the one with the oldest measurements; breaks
/// ties at random.
#[must_use]
pub fn choose_exploration(
    flavor: &dyn Flavor,
    scope: ExplorationScope,
    candidates: &[Candidate],
    first: usize,
    seed: u64,
) -> Option<usize> {
    let first = candidates.iter().find(|one| one.offer == first)?;
    // Exploration stops while the best offer is unhealthy.
    if first.health != OfferHealth::Healthy {
        return None;
    }
    let others = || candidates.iter().filter(|one| one.offer != first.offer && is_explorable(one));
    let outranked = if scope != ExplorationScope::OldOffers && others().any(is_uncertain) {
        outranked_by_speed(flavor, candidates, first.offer)
    } else {
        Vec::new()
    };
    let is_due = |one: &Candidate| {
        let is_due = scope != ExplorationScope::EqualOffers && is_old(one) || outranked.contains(&one.offer);
        is_due && is_affordable(one, first.price)
    };
    let due = || others().filter(|one| is_due(one));
    let age = |one: &Candidate| one.measured_age.unwrap_or(Duration::MAX);
    let oldest = due().map(age).max()?;
    let equals = due().filter(|one| age(one) == oldest).count();
    let drawn = SplitMix64::new(seed).random_below(u64::try_from(equals).unwrap_or(u64::MAX));
    let mut equals = due().filter(|one| age(one) == oldest);
    equals.nth(usize::try_from(drawn).unwrap_or(0)).map(|one| one.offer)
}

/// Returns true if the offer is healthy and idle, without recent failures.
fn is_explorable(one: &Candidate) -> bool {
    one.health == OfferHealth::Healthy && one.in_flight == 0 && one.failure_ratio < MAX_FAILURE_RATIO
}

/// Returns true if the figures of the offer are missing or old.
fn is_old(one: &Candidate) -> bool {
    one.measured_age.is_none_or(|age| age > MAX_MEASUREMENT_AGE)
}

/// Returns true if the price of the offer is at most [`MAX_EXPLORATION_PRICE_RATIO`] times `price`.
fn is_affordable(one: &Candidate, price: f64) -> bool {
    one.price.is_finite() && one.price <= price * MAX_EXPLORATION_PRICE_RATIO
}

/// Returns true if too few recent answers show the speed of the offer.
fn is_uncertain(one: &Candidate) -> bool {
    one.recent_answers < MIN_RECENT_ANSWERS
}

/// Returns the offers with uncertain figures that share no load with the offer `first`, although their prices and their
/// environment are as good or better.
fn outranked_by_speed(flavor: &dyn Flavor, candidates: &[Candidate], first: usize) -> Vec<usize> {
    let scored = score::score_candidates(flavor, candidates);
    let Some(best) = scored.iter().find(|one| one.offer == first) else { return Vec::new() };
    let other_terms = |one: &ScoredOffer| one.terms.price + one.terms.environment;
    let is_outranked = |one: &ScoredOffer| {
        one.rank == best.rank
            && one.rank == RANK_WITHIN_CARBON_LIMIT
            && other_terms(one) <= other_terms(best) + TIE_MARGIN
            && one.score > best.score + TIE_MARGIN
    };
    let uncertain = candidates.iter().zip(&scored).filter(|(one, _)| is_uncertain(one));
    uncertain.filter(|(_, scored)| is_outranked(scored)).map(|(one, _)| one.offer).collect()
}
