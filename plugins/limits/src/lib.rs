//! Limits: what a key or an account may use up in a minute, at once, in a day
//! and in a month. Pure: no clock, no lock, no float.
//!
//! - [`Meter`]: one key's or one account's use; [`admit`] takes from both before the work;
//! - [`Bucket`]: requests or tokens per minute, exact to the billionth of a second;
//! - [`Spend`]: money in the running day and month;
//! - [`Outputs`]: the ninetieth percentile of a key's own answers, for asks without a cap;
//! - [`Crowd`]: the requests and bytes of the whole house, and who waits for room in it;
//! - [`Fair`]: a queue in which accounts take turns.
//!
//! **Reserve, then settle.** Before the work a meter takes what the ask may
//! use at most; afterwards the difference to what it did use goes back, or is
//! taken too. While it is not known yet what it may use, it has its seat and its
//! request alone. What is over the limit then is debt: the level is negative, and
//! nothing passes until the minutes have paid for it. Nothing is forgiven.
//!
//! **Time.** Every `now` is a `Duration` since 1970, UTC. A `now` that goes back
//! is read as no time having passed.

mod admit;
mod bucket;
mod crowd;
mod fair;
mod meter;
mod outputs;
mod spend;

pub use admit::{Admitted, Metered, Whose, admit};
pub use bucket::{Bucket, Gauge, Wait};
pub use crowd::{Ceiling, Crowd, LONG, Queued};
pub use fair::{Fair, Joined};
pub use meter::{Cost, Denied, Entered, Held, Limit, Limits, Meter, Standing, Used, Work};
pub use outputs::Outputs;
pub use spend::{Period, Spend};
