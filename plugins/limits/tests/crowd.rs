//! Tests of many concurrent clients of one key: the number of admitted requests is exact.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_core::MicroCredits;
use penstock_limits::{
    ActualCost, CostEstimate, LimitedMeter, UsageLimits, UsageMeter, WorkClass, reserve_key_and_account,
};
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Duration;

const CLIENTS: usize = 64;
const NOW: Duration = Duration::from_secs(1_763_812_800);

/// Number of admitted requests when 64 clients send `asks` requests each at the same time. Each request holds its
/// reservation while `during` runs.
fn crowd(
    limits: &UsageLimits,
    shared: &UsageLimits,
    cost: &CostEstimate,
    asks: usize,
    during: impl Fn() + Sync,
) -> u64 {
    // The account is locked before the key, as in the gateway.
    let (account, key) = (Mutex::new(UsageMeter::default()), Mutex::new(UsageMeter::default()));
    let (passed, start) = (AtomicU64::new(0), Barrier::new(CLIENTS));
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                start.wait();
                for _ in 0..asks {
                    let taken = {
                        let (mut account, mut key) = (account.lock().unwrap(), key.lock().unwrap());
                        let key = LimitedMeter { meter: &mut key, limits };
                        reserve_key_and_account(
                            key,
                            LimitedMeter { meter: &mut account, limits: shared },
                            cost,
                            WorkClass::Request,
                            NOW,
                        )
                    };
                    let Ok(taken) = taken else { continue };
                    passed.fetch_add(1, Ordering::Relaxed);
                    during();
                    let used = ActualCost { input: cost.input, output: cost.output, money: cost.money };
                    let (mut account, mut key) = (account.lock().unwrap(), key.lock().unwrap());
                    account.settle(taken.account, shared, &used, NOW);
                    key.settle(taken.key, limits, &used, NOW);
                }
            });
        }
    });
    passed.into_inner()
}

#[test]
fn requests_pass_up_to_the_limit_and_not_one_fewer() {
    let cost = CostEstimate { input: 3, output: 4, money: MicroCredits(5) };
    for most in [1, 63, 64, 65, 1_000] {
        let limits = UsageLimits { requests: NonZeroU64::new(most), ..UsageLimits::default() };
        assert_eq!(crowd(&limits, &UsageLimits::default(), &cost, 20, || {}), most);
        assert_eq!(crowd(&UsageLimits::default(), &limits, &cost, 20, || {}), most);
    }
}

#[test]
fn tokens_and_money_pass_up_to_the_limit_and_not_one_fewer() {
    let cost = CostEstimate { input: 3, output: 4, money: MicroCredits(5) };
    let tokens = UsageLimits { tokens: NonZeroU64::new(7 * 100 + 6), ..UsageLimits::default() };
    assert_eq!(crowd(&tokens, &UsageLimits::default(), &cost, 20, || {}), 100);
    let day = UsageLimits { day: NonZeroU64::new(5 * 300 + 4), ..UsageLimits::default() };
    assert_eq!(crowd(&tokens, &day, &cost, 20, || {}), 100);
    assert_eq!(crowd(&day, &UsageLimits::default(), &cost, 20, || {}), 300);
}

#[test]
fn permits_never_exceed_the_limit_and_are_all_released() {
    let limits = UsageLimits { concurrent: NonZeroU32::new(5), ..UsageLimits::default() };
    let (at_work, most) = (AtomicU64::new(0), AtomicU64::new(0));
    let passed = crowd(&limits, &UsageLimits::default(), &CostEstimate::default(), 200, || {
        most.fetch_max(at_work.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::yield_now();
        at_work.fetch_sub(1, Ordering::SeqCst);
    });
    assert!(passed >= 5 && most.into_inner() <= 5);
}
