//! Benchmark of reserve and settle with every limit set, for key and account.
#![allow(missing_docs, reason = "the macros of the harness make items without docs")]

use criterion::{Criterion, criterion_group, criterion_main};
use penstock_core::MicroCredits;
use penstock_limits::{
    ActualCost, CostEstimate, LimitedMeter, UsageLimits, UsageMeter, WorkClass, reserve_key_and_account,
};
use std::hint::black_box;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

fn measure(c: &mut Criterion) {
    let limits = UsageLimits {
        requests: NonZeroU64::new(1 << 40),
        tokens: NonZeroU64::new(1 << 50),
        concurrent: NonZeroU32::new(64),
        day: NonZeroU64::new(1 << 60),
        month: NonZeroU64::new(1 << 60),
    };
    let cost = CostEstimate { input: 900, output: 512, money: MicroCredits(42_000) };
    let used = ActualCost { input: 880, output: 310, money: MicroCredits(31_000) };
    let (mut key, mut account) = (UsageMeter::default(), UsageMeter::default());
    let mut now = Duration::from_secs(1_763_800_000);
    c.bench_function("admit and settle, key and account, all limits", |b| {
        b.iter(|| {
            now += Duration::from_micros(50);
            let both = reserve_key_and_account(
                LimitedMeter { meter: &mut key, limits: &limits },
                LimitedMeter { meter: &mut account, limits: &limits },
                black_box(&cost),
                WorkClass::Request,
                now,
            );
            if let Ok(taken) = both {
                key.settle(taken.key, &limits, black_box(&used), now);
                key.record_output_length(used.output);
                account.settle(taken.account, &limits, &used, now);
            }
        });
    });
    c.bench_function("standing, key and account", |b| {
        b.iter(|| {
            key.rate_limit_status(&limits, now)
                .most_restrictive(account.rate_limit_status(black_box(&limits), now))
        });
    });
}

criterion_group!(benches, measure);
criterion_main!(benches);
