//! Routing: which offer is asked first, what is asked next when it fails, and
//! who is fit to be asked at all. Pure: nothing here reads a clock, rolls real
//! dice or opens a socket.
//!
//! - [`split`] and [`FLAVORS`]: the suffix of a model's name and what it weighs;
//! - [`plan`]: candidates in, offers out, best first;
//! - [`explore()`]: the small share of requests that measures what nobody would ask;
//! - [`figures`]: how fast an offer has lately been, and what a model's last hour was like;
//! - [`breaker`]: who is ejected, who rests, who may be probed;
//! - [`budget`]: how many retries the house can afford;
//! - [`course`]: the attempt planner of one request.
//!
//! **Time.** Every `now` is a `Duration` since one origin that the house picks
//! and keeps for all calls. The Unix epoch, read once at start, plus monotonic
//! time since then is the right one: it never goes back while the process
//! lives, and figures kept across a restart still know their age. A `now` that
//! does go back is read as no time having passed.
//!
//! **Chance.** Every `seed` is a random number by the house; the same seed
//! gives the same result.
//!
//! **Floats** order offers here. They never become money or billed energy.

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
