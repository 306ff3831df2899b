//! Tests of many concurrent clients of one key: the number of admitted requests is exact.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_contract::MicroCredits;
use penstock_limits::{Cost, Limits, Meter, Metered, Used, Work, admit};
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Duration;

const CLIENTS: usize = 64;
const NOW: Duration = Duration::from_secs(1_763_812_800);

/// Number of admitted requests when 64 clients send `asks` requests each at the same time. Each request holds its
/// reservation while `during` runs.
fn crowd(limits: &Limits, shared: &Limits, cost: &Cost, asks: usize, during: impl Fn() + Sync) -> u64 {
    // The account is locked before the key, as in the gateway.
    let (account, key) = (Mutex::new(Meter::default()), Mutex::new(Meter::default()));
    let (passed, start) = (AtomicU64::new(0), Barrier::new(CLIENTS));
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                start.wait();
                for _ in 0..asks {
                    let taken = {
                        let (mut account, mut key) = (account.lock().unwrap(), key.lock().unwrap());
                        let key = Metered { meter: &mut key, limits };
                        admit(key, Metered { meter: &mut account, limits: shared }, cost, Work::Request, NOW)
                    };
                    let Ok(taken) = taken else { continue };
                    passed.fetch_add(1, Ordering::Relaxed);
                    during();
                    let used = Used { input: cost.input, output: cost.output, money: cost.money };
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
    let cost = Cost { input: 3, output: 4, money: MicroCredits(5) };
    for most in [1, 63, 64, 65, 1_000] {
        let limits = Limits { requests: NonZeroU64::new(most), ..Limits::default() };
        assert_eq!(crowd(&limits, &Limits::default(), &cost, 20, || {}), most);
        assert_eq!(crowd(&Limits::default(), &limits, &cost, 20, || {}), most);
    }
}

#[test]
fn tokens_and_money_pass_up_to_the_limit_and_not_one_fewer() {
    let cost = Cost { input: 3, output: 4, money: MicroCredits(5) };
    let tokens = Limits { tokens: NonZeroU64::new(7 * 100 + 6), ..Limits::default() };
    assert_eq!(crowd(&tokens, &Limits::default(), &cost, 20, || {}), 100);
    let day = Limits { day: NonZeroU64::new(5 * 300 + 4), ..Limits::default() };
    assert_eq!(crowd(&tokens, &day, &cost, 20, || {}), 100);
    assert_eq!(crowd(&day, &Limits::default(), &cost, 20, || {}), 300);
}

#[test]
fn seats_are_never_more_than_there_are_and_are_all_given_back() {
    let limits = Limits { concurrent: NonZeroU32::new(5), ..Limits::default() };
    let (at_work, most) = (AtomicU64::new(0), AtomicU64::new(0));
    let passed = crowd(&limits, &Limits::default(), &Cost::default(), 200, || {
        most.fetch_max(at_work.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::yield_now();
        at_work.fetch_sub(1, Ordering::SeqCst);
    });
    assert!(passed >= 5 && most.into_inner() <= 5);
}
