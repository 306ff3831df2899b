//! Routing: ranking of the offers for a request, retries after failures, and circuit breakers. Pure functions of their
//! arguments: no clock, no random source, no I/O.
//!
//! - [`split_flavor`] and [`FLAVORS`]: flavor suffix of a model name and its weights;
//! - [`plan`]: ranks candidates, best first;
//! - [`explain_plan`]: the same ranking with the terms of each score;
//! - [`choose_exploration()`]: directs a small share of the requests to offers with missing or uncertain measurements;
//! - [`affinity`] and [`request_session()`]: conversations stay at the offer that has cached their prefix;
//! - [`latency`]: recent latency of an offer, and statistics of a model's last hour;
//! - [`breaker`]: ejection, cooldown and probing of offers;
//! - [`budget`]: retry budget of the gateway;
//! - [`retry`]: retry planner of one request.
//!
//! **Time.** Every `now` is a `Duration` since one origin that the gateway chooses once. The Unix epoch, read at
//! start, plus monotonic time since then is suitable: it never goes back while the process lives, and statistics
//! stored across a restart keep their age. If `now` goes back nevertheless, the functions assume that no time has
//! passed.
//!
//! **Randomness.** Every `seed` is a random number from the gateway; the same seed gives the same result.
//!
//! **Floating point** is used to rank offers only, never for money or billed energy.

pub mod affinity;
pub mod breaker;
pub mod budget;
mod explanation;
mod explore;
mod flavor;
pub mod latency;
mod plan;
pub mod retry;
mod rng;
mod score;
mod session;

pub use affinity::{
    OfferAffinity, PromptCacheSaving, SessionKey, load_limit, rendezvous_weight, stable_hash,
};
pub use breaker::{
    AttemptAdmission, AttemptOutcome, BreakerClient, BreakerState, CircuitBreaker, OfferHealth,
};
pub use budget::RetryBudget;
pub use explanation::{ExplainedOffer, OfferRankGroup, explain_plan};
pub use explore::{
    ExplorationBudget, ExplorationBudgets, ExplorationScope, MAX_EXPLORATION_PRICE_RATIO,
    MAX_EXPLORATION_PROMPT_TOKENS, MAX_MEASUREMENT_AGE, MIN_RECENT_ANSWERS, REQUESTS_PER_EQUAL_EXPLORATION,
    REQUESTS_PER_EXPLORATION, choose_exploration,
};
pub use flavor::{
    BALANCED, BATCH, ECO, FLAVORS, Flavor, FlavorWeights, PRICE, SPEED, default_flavor, split_flavor,
};
pub use latency::{LastHourStats, LastHourSummary, LatencySample, LatencyStats};
pub use plan::{Candidate, TIE_MARGIN, estimate_price, plan};
pub use retry::{AttemptPolicy, FailedAttempt, PlannedOffer, RetryAction, RetryPlanner};
pub use score::ScoreTerms;
pub use session::{RequestSession, SESSION_HEADERS, request_session};
