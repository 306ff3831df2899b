//! Routing: ranking of the offers for a request, retries after failures, and circuit breakers. Pure functions of their
//! arguments: no clock, no random source, no I/O.
//!
//! - [`split`] and [`FLAVORS`]: flavor suffix of a model name and its weights;
//! - [`plan`]: ranks candidates, best first;
//! - [`explore()`]: directs a small share of the requests to offers without recent measurements;
//! - [`figures`]: recent latency of an offer, and statistics of a model's last hour;
//! - [`breaker`]: ejection, cooldown and probing of offers;
//! - [`budget`]: retry budget of the gateway;
//! - [`course`]: retry planner of one request.
//!
//! **Time.** Every `now` is a `Duration` since one origin that the gateway chooses once. The Unix epoch, read at start,
//! plus monotonic time since then is suitable: it never goes back while the process lives, and statistics stored across
//! a restart keep their age. If `now` does go back, no time has passed.
//!
//! **Randomness.** Every `seed` is a random number from the gateway; the same seed gives the same result.
//!
//! **Floating point** is used to rank offers only, never for money or billed energy.

pub mod breaker;
pub mod budget;
pub mod course;
mod dice;
mod explore;
pub mod figures;
mod flavor;
mod plan;
mod score;

pub use breaker::{Breaker, Client, Health, Outcome, State};
pub use budget::RetryBudget;
pub use course::{Attempt, Course, Entry, Next, Policy};
pub use explore::{Explorations, FRESH, MAX_PROMPT, MOST_TIMES_THE_PRICE, ONE_IN, explore};
pub use figures::{Figures, Hour, Rates, Sample};
pub use flavor::{BALANCED, BATCH, ECO, FLAVORS, Flavor, PRICE, SPEED, Weights, default_for, split};
pub use plan::{Candidate, NEAR, plan, price_hint};
