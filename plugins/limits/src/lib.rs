//! Usage limits of a key or an account: per minute, in flight, per day and per month. Pure functions of their
//! arguments: no clock, no lock, no floating point.
//!
//! - [`UsageMeter`]: usage of one key or account; [`reserve_key_and_account`] reserves from the meters of both;
//! - [`TokenBucket`]: token bucket for requests or tokens per minute, exact to the nanosecond;
//! - [`SpendTotals`]: money spent in the current day and month;
//! - [`OutputLengthStats`]: the 90th percentile of a key's answer lengths, for requests without a cap;
//! - [`AdmissionController`]: in-flight requests and bytes of the gateway, with a queue for admission;
//! - [`AccountPermitCounts`]: permits in use, in total and by account;
//! - [`AccountShares`]: amounts that accounts hold, of which the last eighth is reserved for small holders;
//! - [`FairQueue`]: a queue that serves accounts round-robin.
//!
//! **Reserve, then settle.** Before a request is sent, a meter reserves the maximum that the request may use.
//! Afterwards the difference to the actual usage is returned to the limit, or taken from it. While the maximum is not
//! yet known, the request holds only its concurrency permit and its request count. Usage over the limit becomes debt:
//! the level is negative, and no request passes until it has refilled. Debt is never forgiven.
//!
//! **Time.** Every `now` is a `Duration` since 1970, UTC. If `now` goes back, no time has passed.

mod account_counts;
mod account_shares;
mod admission_controller;
mod budget_lease;
mod fair_queue;
mod limit_status;
mod meter;
mod output_length_stats;
mod peers;
mod reserve;
mod spend;
mod token_bucket;

pub use account_counts::AccountPermitCounts;
pub use account_shares::AccountShares;
pub use admission_controller::{
    AdmissionCapacity, AdmissionController, AdmissionEnqueueOutcome, LARGE_BODY_BYTES,
};
pub use budget_lease::LeaseSpending;
pub use fair_queue::{EnqueueOutcome, FairQueue};
pub use limit_status::RateLimitStatus;
pub use meter::{
    ActualCost, CostEstimate, LimitExceeded, LimitKind, LimitReservation, RequestSlot, UsageLimits,
    UsageMeter, WorkClass,
};
pub use output_length_stats::OutputLengthStats;
pub use peers::{LimitAllowances, PeerUsage, UsageTotals, receives_remainder, turn_position};
pub use penstock_core::calendar::BudgetPeriod;
pub use reserve::{LimitOwner, LimitedMeter, ReservationPair, reserve_key_and_account};
pub use spend::SpendTotals;
pub use token_bucket::{BucketStatus, RetryAfter, TokenBucket};
