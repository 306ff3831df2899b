//! Benchmark of a plan: at most 5 µs for 20 candidates.
#![allow(missing_docs, reason = "the macros of the harness make items without docs")]

use criterion::{Criterion, criterion_group, criterion_main};
use penstock_routing::{Candidate, ECO, SPEED, plan};
use std::hint::black_box;

fn candidates() -> Vec<Candidate> {
    (0..20_u32)
        .map(|n| Candidate {
            price: 1.0 + f64::from(n % 7),
            predicted_seconds: (n % 5 != 0).then(|| 2.0 + f64::from(n % 11)),
            in_flight: n % 13,
            max_in_flight: 16,
            ci_g_per_kwh: 20.0 + 40.0 * f64::from(n % 9),
            renewable: f64::from(n % 10) / 10.0,
            ..Candidate::new(usize::try_from(n).unwrap_or_default())
        })
        .collect()
}

fn measure(c: &mut Criterion) {
    let candidates = candidates();
    let alike: Vec<_> = (0..20).map(Candidate::new).collect();
    let mut seed = 0;
    let mut run = |name, flavor, candidates: &[Candidate]| {
        c.bench_function(name, |b| {
            b.iter(|| {
                seed += 1;
                plan(flavor, black_box(candidates), seed)
            });
        });
    };
    run("20 different, speed", SPEED, &candidates);
    run("20 different, eco", ECO, &candidates);
    run("20 alike, speed", SPEED, &alike);
}

criterion_group!(benches, measure);
criterion_main!(benches);
