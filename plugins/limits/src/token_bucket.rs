//! Token bucket for a limit per minute, which fills evenly and may be in debt.
//!
//! With a limit of `L` per minute the bucket holds at most `L`, gains `L / 60 s` continuously, and starts full. Its
//! level is stored in tokens times nanoseconds of a minute, so that nothing is rounded:
//! ```text
//! level(now) = min(L · M, level(then) + L · (now − then))        M = 60 · 10⁹ ns
//! taking n      : level − n · M, once level ≥ n · M
//! waiting for n: ⌈(n · M − level) / L⌉ ns
//! ```
//! In any period of `t` seconds at most `L · (1 + t / 60)` can be taken; with enough demand, a bucket that was full
//! gives exactly this amount.

use std::num::NonZeroU64;
use std::time::Duration;

/// Nanoseconds per minute.
const MINUTE_NANOS: i128 = 60_000_000_000;

/// Level of the bucket of one limit. The limit itself is an argument of each call, so it can change without a change
/// of the debt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Level in tokens times nanoseconds of a minute; `i128::MAX` in a new bucket, which is full for any limit.
    level: i128,
    /// Time at which the bucket had the stored level, nanoseconds since 1970.
    updated_at: u64,
}

/// Time until a limit no longer blocks a request. The variants are in ascending order of this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RetryAfter {
    /// Blocked until this gateway has leased more of the budget from its fleet.
    OnLease,
    /// Blocked until another request ends.
    OnRelease,
    /// Blocked for this duration, unless other requests use the limit in between.
    After(Duration),
    /// Blocked forever: the request exceeds the limit itself.
    Never,
}

/// Status of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketStatus {
    /// Number of requests or tokens allowed per minute.
    pub limit: u64,
    /// Amount that can be taken now; 0 in debt.
    pub remaining: u64,
    /// Time until the bucket is full.
    pub reset: Duration,
}

impl Default for TokenBucket {
    fn default() -> Self {
        Self::full()
    }
}

impl TokenBucket {
    /// Returns a full bucket.
    #[must_use]
    pub const fn full() -> Self {
        Self { level: i128::MAX, updated_at: 0 }
    }

    /// Returns the time until `amount` can be taken; `None` if it can be taken now.
    #[must_use]
    pub fn retry_after(&self, limit: NonZeroU64, amount: u64, now: Duration) -> Option<RetryAfter> {
        let lacking = to_units(amount) - self.level(limit, now);
        if lacking <= 0 {
            return None;
        }
        Some(if amount > limit.get() {
            RetryAfter::Never
        } else {
            RetryAfter::After(time_to_gain(lacking, limit))
        })
    }

    /// Takes `amount`, going into debt if the level is too low.
    pub fn take(&mut self, limit: NonZeroU64, amount: u64, now: Duration) {
        self.settle(limit, 0, amount, now);
    }

    /// Replaces the amount taken by the amount actually used: puts the difference back into the bucket, or takes the
    /// missing amount, into debt if needed.
    pub fn settle(&mut self, limit: NonZeroU64, taken: u64, used: u64, now: Duration) {
        let back = to_units(taken) - to_units(used);
        self.level = self.level(limit, now).saturating_add(back).min(full_level(limit));
        self.updated_at = self.updated_at.max(nanoseconds(now));
    }

    /// Returns the limit, the remaining amount and the time until the bucket is full, at `now`.
    #[must_use]
    pub fn status(&self, limit: NonZeroU64, now: Duration) -> BucketStatus {
        let level = self.level(limit, now);
        let remaining = u64::try_from(level.max(0) / MINUTE_NANOS).unwrap_or(u64::MAX);
        BucketStatus { limit: limit.get(), remaining, reset: time_to_gain(full_level(limit) - level, limit) }
    }

    /// Returns the debt in whole tokens, rounded up; 0 if there is none.
    #[must_use]
    pub fn debt(&self, limit: NonZeroU64, now: Duration) -> u64 {
        let owed = self.level(limit, now).min(0).unsigned_abs().div_ceil(MINUTE_NANOS.unsigned_abs());
        u64::try_from(owed).unwrap_or(u64::MAX)
    }

    /// Returns the level at `now`, in tokens times nanoseconds of a minute.
    fn level(&self, limit: NonZeroU64, now: Duration) -> i128 {
        let passed = i128::from(nanoseconds(now).saturating_sub(self.updated_at));
        let gained = i128::from(limit.get()).saturating_mul(passed);
        self.level.saturating_add(gained).min(full_level(limit))
    }
}

fn to_units(amount: u64) -> i128 {
    i128::from(amount) * MINUTE_NANOS
}

fn full_level(limit: NonZeroU64) -> i128 {
    to_units(limit.get())
}

fn nanoseconds(now: Duration) -> u64 {
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the time in which a bucket with this limit gains this many units, rounded up.
fn time_to_gain(units: i128, limit: NonZeroU64) -> Duration {
    let wait = units.max(0).unsigned_abs().div_ceil(u128::from(limit.get()));
    Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX))
}
