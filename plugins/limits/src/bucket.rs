//! So many a minute: a bucket that fills evenly, and may be in debt.
//!
//! With a limit of `L` a minute the bucket holds at most `L`, gains `L / 60 s`
//! all the time, and begins full. Its level is kept in units of a token times a
//! nanosecond of a minute, so that nothing is ever rounded:
//! ```text
//! level(now) = min(L · M, level(then) + L · (now − then))        M = 60 · 10⁹ ns
//! taking n      : level − n · M, once level ≥ n · M
//! waiting for n: ⌈(n · M − level) / L⌉ ns
//! ```
//! In any span of `t` seconds at most `L · (1 + t / 60)` pass, and never fewer
//! than that if so many ask.

use std::num::NonZeroU64;
use std::time::Duration;

/// Nanoseconds of a minute.
const MINUTE: i128 = 60_000_000_000;

/// The level of one limit. The limit itself is an argument, so that it can be
/// changed while the debt stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// In tokens times nanoseconds of a minute; `i128::MAX` for full.
    level: i128,
    /// When it was that, nanoseconds since 1970.
    then: u64,
}

/// How long something is in the way; later variants are longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// Until another request ends.
    Seat,
    /// This long, if nobody else asks meanwhile.
    For(Duration),
    /// For ever: what is asked is more than the limit itself.
    Never,
}

/// How a limit stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauge {
    /// So many a minute.
    pub limit: u64,
    /// So many may be taken now; 0 in debt.
    pub remaining: u64,
    /// Until it is full again.
    pub reset: Duration,
}

impl Default for Bucket {
    fn default() -> Self {
        Self::full()
    }
}

impl Bucket {
    /// A bucket of which nothing has been taken.
    #[must_use]
    pub const fn full() -> Self {
        Self { level: i128::MAX, then: 0 }
    }

    /// How long until `amount` could be taken; nothing if it can be now.
    #[must_use]
    pub fn wait(&self, limit: NonZeroU64, amount: u64, now: Duration) -> Option<Wait> {
        let lacking = units(amount) - self.level(limit, now);
        if lacking <= 0 {
            return None;
        }
        Some(if amount > limit.get() { Wait::Never } else { Wait::For(duration(lacking, limit)) })
    }

    /// Takes `amount`, into debt if there is not as much.
    pub fn take(&mut self, limit: NonZeroU64, amount: u64, now: Duration) {
        self.settle(limit, 0, amount, now);
    }

    /// Corrects what was taken to what was used: gives back, or takes more,
    /// into debt if need be.
    pub fn settle(&mut self, limit: NonZeroU64, taken: u64, used: u64, now: Duration) {
        let back = units(taken) - units(used);
        self.level = self.level(limit, now).saturating_add(back).min(full(limit));
        self.then = self.then.max(nanoseconds(now));
    }

    /// How it stands.
    #[must_use]
    pub fn gauge(&self, limit: NonZeroU64, now: Duration) -> Gauge {
        let level = self.level(limit, now);
        let remaining = u64::try_from(level.max(0) / MINUTE).unwrap_or(u64::MAX);
        Gauge { limit: limit.get(), remaining, reset: duration(full(limit) - level, limit) }
    }

    /// What is owed, in whole tokens rounded up; 0 while there is something left.
    #[must_use]
    pub fn debt(&self, limit: NonZeroU64, now: Duration) -> u64 {
        let owed = self.level(limit, now).min(0).unsigned_abs().div_ceil(MINUTE.unsigned_abs());
        u64::try_from(owed).unwrap_or(u64::MAX)
    }

    /// What is in it at `now`.
    fn level(&self, limit: NonZeroU64, now: Duration) -> i128 {
        let passed = i128::from(nanoseconds(now).saturating_sub(self.then));
        let gained = i128::from(limit.get()).saturating_mul(passed);
        self.level.saturating_add(gained).min(full(limit))
    }
}

fn units(amount: u64) -> i128 {
    i128::from(amount) * MINUTE
}

fn full(limit: NonZeroU64) -> i128 {
    units(limit.get())
}

fn nanoseconds(now: Duration) -> u64 {
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// How long a limit takes to gain so many units, rounded up.
fn duration(units: i128, limit: NonZeroU64) -> Duration {
    let wait = units.max(0).unsigned_abs().div_ceil(u128::from(limit.get()));
    Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX))
}
