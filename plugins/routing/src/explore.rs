//! Exploration: a small share of the requests goes first to an offer without recent measurements. So the gateway
//! finds a faster offer even if the price gives that offer a low rank.
//!
//! The cost is bounded: at most one request in [`REQUESTS_PER_EXPLORATION`], only under a flavor that
//! [explores](crate::Flavor::allows_exploration), only to a healthy idle offer without recent failures, at a price of
//! at most [`MAX_EXPLORATION_PRICE_RATIO`] times that of the regular choice. One good answer ends the exploration of
//! an offer for [`MAX_MEASUREMENT_AGE`]. The request itself is safe: if the explored offer fails, the plan continues
//! with its regular order.

use crate::breaker::OfferHealth;
use crate::plan::Candidate;
use crate::rng::SplitMix64;
use std::time::Duration;

/// Age of measurements above which an offer may be explored again.
pub const MAX_MEASUREMENT_AGE: Duration = Duration::from_secs(600);

/// Number of requests of a model that could explore, for each allowed exploration.
pub const REQUESTS_PER_EXPLORATION: u64 = 50;

/// Maximum price of an explored offer, as a multiple of the price of the regular choice.
pub const MAX_EXPLORATION_PRICE_RATIO: f64 = 2.0;

/// Maximum prompt size of a request that may explore, in tokens.
pub const MAX_EXPLORATION_PROMPT_TOKENS: u64 = 1_000;

/// Failure ratio from which an offer is not explored. A failure that is the only recent attempt gives one third
/// ([`CircuitBreaker::failure_ratio`](crate::CircuitBreaker::failure_ratio)).
const MAX_FAILURE_RATIO: f64 = 0.3;

/// Exploration budget of a model: one exploration for each [`REQUESTS_PER_EXPLORATION`] requests. Unused explorations
/// do not add up: at most one is available at any time.
#[derive(Clone, Debug, Default)]
pub struct ExplorationBudget {
    /// Number of requests that could have explored, limited so that at most one exploration is available.
    requests: u64,
    explored: u64,
}

impl ExplorationBudget {
    /// Creates a budget whose first exploration is granted immediately.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a request that could have explored, toward the next exploration.
    pub fn on_request(&mut self) {
        let most = self.explored.saturating_add(1).saturating_mul(REQUESTS_PER_EXPLORATION);
        self.requests = self.requests.saturating_add(1).min(most);
    }

    /// Takes one exploration from the budget. Returns false if there were too few requests since the last one.
    pub fn try_explore(&mut self) -> bool {
        let granted = self.explored < (self.requests / REQUESTS_PER_EXPLORATION).max(1);
        self.explored = self.explored.saturating_add(u64::from(granted));
        granted
    }
}

/// Selects the offer to explore instead of `first`, the regular choice of the plan; `None` if no offer qualifies, or
/// if `first` is not healthy. Prefers an offer without measurements, then the one with the oldest measurements; breaks
/// ties at random.
#[must_use]
pub fn choose_exploration(candidates: &[Candidate], first: usize, seed: u64) -> Option<usize> {
    let first = candidates.iter().find(|one| one.offer == first)?;
    // Exploration stops while the best offer is unhealthy.
    if first.health != OfferHealth::Healthy {
        return None;
    }
    let due = || candidates.iter().filter(|one| one.offer != first.offer && is_explorable(one, first.price));
    let age = |one: &Candidate| one.measured_age.unwrap_or(Duration::MAX);
    let oldest = due().map(age).max()?;
    let equals = due().filter(|one| age(one) == oldest).count();
    let drawn = SplitMix64::new(seed).random_below(u64::try_from(equals).unwrap_or(u64::MAX));
    let mut equals = due().filter(|one| age(one) == oldest);
    equals.nth(usize::try_from(drawn).unwrap_or(0)).map(|one| one.offer)
}

fn is_explorable(one: &Candidate, price: f64) -> bool {
    let affordable = one.price.is_finite() && one.price <= price * MAX_EXPLORATION_PRICE_RATIO;
    one.measured_age.is_none_or(|age| age > MAX_MEASUREMENT_AGE)
        && one.health == OfferHealth::Healthy
        && one.in_flight == 0
        && one.failure_ratio < MAX_FAILURE_RATIO
        && affordable
}
