//! Comparison of the bucket with a reference that fills millisecond by millisecond.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_limits::{RetryAfter, TokenBucket};
use proptest::prelude::*;
use std::num::NonZeroU64;
use std::time::Duration;

const START: u64 = 1_763_800_000_000;

/// Reference bucket. Its level is in sixty-thousandths of a token, so in a millisecond the level rises by exactly
/// `limit`.
struct ByHand {
    limit: i128,
    level: i128,
}

impl ByHand {
    fn pass(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds {
            self.level = (self.level + self.limit).min(self.limit * 60_000);
        }
    }

    fn take(&mut self, amount: u64) {
        self.level -= i128::from(amount) * 60_000;
    }

    fn has(&self, amount: u64) -> bool {
        self.level >= i128::from(amount) * 60_000
    }
}

fn limit(limit: u64) -> NonZeroU64 {
    NonZeroU64::new(limit).unwrap()
}

fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Any order of waiting, taking and settling gives the same level, debt and wait as the reference.
    #[test]
    fn it_agrees_with_one_filled_by_hand(
        most in 1..5_000_u64,
        steps in proptest::collection::vec((0..3_000_u64, 0..6_000_u64, 0..9_000_u64), 1..40),
    ) {
        let (mut bucket, most) = (TokenBucket::full(), limit(most));
        let mut hand = ByHand { limit: most.get().into(), level: i128::from(most.get()) * 60_000 };
        let mut now = START;
        for (pause, amount, used) in steps {
            now += pause;
            hand.pass(pause);
            let wait = bucket.retry_after(most, amount, at(now));
            prop_assert_eq!(wait.is_none(), hand.has(amount));
            if wait.is_none() {
                bucket.take(most, amount, at(now));
                hand.take(amount);
                bucket.settle(most, amount, used, at(now));
                hand.level = (hand.level + (i128::from(amount) - i128::from(used)) * 60_000).min(hand.limit * 60_000);
            } else if let Some(RetryAfter::After(wait)) = wait {
                // The wait is exact to the nanosecond: the request passes after it, and is refused one nanosecond
                // earlier.
                let then = at(now) + wait;
                prop_assert_eq!(bucket.retry_after(most, amount, then), None);
                prop_assert!(bucket.retry_after(most, amount, then - Duration::from_nanos(1)).is_some());
            } else {
                prop_assert!(amount > most.get(), "only what is over the limit never passes");
            }
            let owed = u64::try_from(-hand.level.min(0)).unwrap().div_ceil(60_000);
            prop_assert_eq!(bucket.debt(most, at(now)), owed);
            let gauge = bucket.status(most, at(now));
            prop_assert_eq!(i128::from(gauge.remaining), hand.level.max(0) / 60_000);
            prop_assert_eq!(bucket.status(most, at(now) + gauge.reset).remaining, most.get());
        }
    }

    /// The number of passing requests never exceeds the limit, for any number and timing of requests.
    #[test]
    fn a_limit_admits_its_configured_amount(
        most in 1..600_u64,
        pauses in proptest::collection::vec(0..2_000_u64, 1..200),
    ) {
        let (mut bucket, most) = (TokenBucket::full(), limit(most));
        let (mut now, mut passed) = (START, 0_u128);
        for pause in pauses {
            now += pause;
            // Requests continue until one is refused, so that no token is unused.
            while bucket.retry_after(most, 1, at(now)).is_none() {
                bucket.take(most, 1, at(now));
                passed += 1;
            }
        }
        let most = u128::from(most.get());
        let spent = u128::from(now - START);
        prop_assert!(passed <= most + most * spent / 60_000);
    }
}

#[test]
fn asked_all_the_time_it_lets_through_exactly_its_rate() {
    for most in [1, 7, 60, 1_000, 59_999] {
        let (mut bucket, most) = (TokenBucket::full(), limit(most));
        let mut passed = 0;
        for millisecond in 0..=60_000 {
            while bucket.retry_after(most, 1, at(START + millisecond)).is_none() {
                bucket.take(most, 1, at(START + millisecond));
                passed += 1;
            }
        }
        assert_eq!(passed, 2 * most.get(), "a bucket and a minute of {most}");
    }
}

#[test]
fn debt_is_paid_by_the_minutes_and_not_forgiven() {
    let (mut bucket, most) = (TokenBucket::full(), limit(100));
    bucket.take(most, 10, at(START));
    bucket.settle(most, 10, 450, at(START));
    assert_eq!(bucket.debt(most, at(START)), 350);
    assert_eq!(bucket.debt(most, at(START + 60_000)), 250);
    assert_eq!(
        bucket.retry_after(most, 1, at(START)),
        Some(RetryAfter::After(Duration::from_millis(351 * 600)))
    );
    // A higher limit refills faster; the debt stays.
    assert_eq!(bucket.debt(limit(350), at(START)), 350);
    assert_eq!(bucket.status(limit(350), at(START + 60_000)).remaining, 0);
}

#[test]
fn time_that_goes_back_is_no_time() {
    let (mut bucket, most) = (TokenBucket::full(), limit(60));
    bucket.take(most, 60, at(START));
    bucket.take(most, 0, at(START - 50_000));
    assert_eq!(bucket.status(most, at(START)).remaining, 0);
    assert_eq!(bucket.status(most, at(START + 1_000)).remaining, 1);
}

#[test]
fn the_largest_limit_does_not_overflow() {
    let (mut bucket, most) = (TokenBucket::full(), limit(u64::MAX));
    bucket.take(most, u64::MAX, at(START));
    bucket.settle(most, 0, u64::MAX, Duration::MAX);
    assert_eq!(bucket.debt(most, at(START)), 0);
    assert_eq!(bucket.status(most, Duration::MAX).limit, u64::MAX);
}
