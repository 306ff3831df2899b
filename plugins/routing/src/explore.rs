//! Exploration: now and then a request goes first to an offer of which too little is known, so that a faster one is
//! found even where its price keeps it from being asked.
//!
//! What it may cost is bounded. One request in [`ONE_IN`] at most, and only under a flavor that
//! [explores](crate::Flavor::explores); an offer that is well, idle and has not just failed; a price of at most
//! [`MOST_TIMES_THE_PRICE`] that of the offer that would have been asked. One good answer ends it for
//! [`FRESH`]. The request itself is safe: if the explored offer fails, the plan goes on as it would have.

use crate::breaker::Health;
use crate::dice::Dice;
use crate::plan::Candidate;
use std::time::Duration;

/// Figures older than this are to be renewed.
pub const FRESH: Duration = Duration::from_secs(600);

/// Requests of which one may explore.
pub const ONE_IN: u64 = 50;

/// The dearest offer that is explored, by the price of the one that would be asked.
pub const MOST_TIMES_THE_PRICE: f64 = 2.0;

/// The largest prompt that explores, in tokens.
pub const MAX_PROMPT: u64 = 1_000;

/// A share of failures above this is too fresh a failure: one alone is a third ([`Breaker::failing`](crate::Breaker::failing)).
const FAILING: f64 = 0.3;

/// Explorations that a model's requests have earned: at any time at most one, or one in [`ONE_IN`] if that is more.
/// Unused ones are not saved up.
#[derive(Clone, Debug, Default)]
pub struct Explorations {
    /// Requests that could have explored, as far as they count.
    requests: u64,
    explored: u64,
}

impl Explorations {
    /// None so far; the first is granted at once.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a request that may explore.
    pub fn on_request(&mut self) {
        let most = self.explored.saturating_add(1).saturating_mul(ONE_IN);
        self.requests = self.requests.saturating_add(1).min(most);
    }

    /// Takes one exploration. False if too few requests came since the last.
    pub fn try_explore(&mut self) -> bool {
        let granted = self.explored < (self.requests / ONE_IN).max(1);
        self.explored = self.explored.saturating_add(u64::from(granted));
        granted
    }
}

/// The offer that is to be explored instead of `first`, the one that the plan would ask; `None` if there is none. Of
/// several the one that was never measured, or whose figures are oldest; equals by chance.
#[must_use]
pub fn explore(candidates: &[Candidate], first: usize, seed: u64) -> Option<usize> {
    let first = candidates.iter().find(|one| one.offer == first)?;
    // In an outage nobody experiments.
    if first.health != Health::Healthy {
        return None;
    }
    let due = || candidates.iter().filter(|one| one.offer != first.offer && is_due(one, first.price));
    let age = |one: &Candidate| one.measured.unwrap_or(Duration::MAX);
    let oldest = due().map(age).max()?;
    let equals = due().filter(|one| age(one) == oldest).count();
    let drawn = Dice::new(seed).below(u64::try_from(equals).unwrap_or(u64::MAX));
    let mut equals = due().filter(|one| age(one) == oldest);
    equals.nth(usize::try_from(drawn).unwrap_or(0)).map(|one| one.offer)
}

fn is_due(one: &Candidate, price: f64) -> bool {
    let affordable = one.price.is_finite() && one.price <= price * MOST_TIMES_THE_PRICE;
    one.measured.is_none_or(|age| age > FRESH)
        && one.health == Health::Healthy
        && one.in_flight == 0
        && one.failing < FAILING
        && affordable
}
