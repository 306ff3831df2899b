//! Benchmark of a plan from a pool: `cargo bench --bench pools`. A plan is the complete order of a request's
//! candidates, failover included: figures and circuit breakers are read, offers scored, and the order taken from the
//! selector of the flavor.
//!
//! A plan over eight offers costs at most 2 µs. Plans are measured by processor time: other work on the machine counts
//! only as far as it shares the core.
#![allow(missing_docs, reason = "the macros of the harness make items without docs")]
#![allow(clippy::unwrap_used, reason = "what is made up here is well-formed")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use penstock::config::{ResolveEnv, load_text};
use penstock::upstream::cache_affinity::SessionHistory;
use penstock::upstream::config_snapshot::ConfigSnapshot;
use penstock::upstream::connection_pool::ConnectionPools;
use penstock::upstream::pools::{ExplorationMode, PlanRequest};
use penstock::upstream::sessions::SessionRecord;
use penstock_routing::{AttemptOutcome, ExplorationScope, FLAVORS, LatencySample, SPEED, SessionKey};
use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Duration;
use tokio::runtime::Runtime;

const NOW: Duration = Duration::from_secs(1_763_800_000);

/// Returns a configuration of models that each have this number of providers.
fn configuration(models: usize, providers: usize) -> String {
    let mut text = String::from(
        "[listen]\nhttp = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n[storage]\npath = \"data\"\n",
    );
    for model in 0..models {
        write!(
            text,
            "[[models]]\nid = \"m{model}\"\nkind = \"chat\"\ncontext_length = 131072\n\
             price = {{ input = 0.1, output = 0.2 }}\nenergy = {{ active_params_b = 8.0 }}\n"
        )
        .unwrap();
    }
    for provider in 0..providers {
        let country = ["FR", "DE", "SE", "PL"].get(provider % 4).unwrap();
        write!(
            text,
            "[[providers]]\nid = \"p{provider}\"\noperator = \"P\"\ncountry = \"{country}\"\ncity = \"Here\"\npue = 1.2\n\
             base_url = \"http://127.0.0.1:{}/v1\"\n",
            9000 + provider / 2
        )
        .unwrap();
        for model in 0..models {
            let price = 0.1 + f64::from(u32::try_from(provider).unwrap()) / 10.0;
            write!(
                text,
                "[[providers.offers]]\nmodel = \"m{model}\"\nname = \"n\"\nprice = {{ input = {price}, output = {price} }}\n"
            )
            .unwrap();
        }
    }
    text
}

fn live(models: usize, providers: usize) -> ConfigSnapshot {
    let text = configuration(models, providers);
    let Ok(loaded) = load_text("bench.toml", &text, ResolveEnv { env: &|_| None }) else {
        unreachable!("the configuration is sound")
    };
    ConfigSnapshot::build(loaded.settings, None, &ConnectionPools::default(), 0).unwrap()
}

/// Records several successes and one failure for each offer, as for a provider in use.
fn used(live: &ConfigSnapshot) {
    for (number, offer) in (1..).zip(&live.offers) {
        for answer in 0..6_u32 {
            let now = NOW - Duration::from_secs(20 - u64::from(answer));
            let total = Duration::from_millis(700 * number);
            let first_token = Some(total / 4);
            let sample = LatencySample { prompt_tokens: 500, output_tokens: 200, first_token, total };
            let outcome = if answer == 2 {
                AttemptOutcome::Failure { retry_after: None }
            } else {
                AttemptOutcome::Success
            };
            let admission = offer.breaker.lock().last_resort_admission();
            offer.record_outcome(now, admission, outcome, None, Some(sample));
        }
    }
}

/// Returns the processor time of this thread.
fn processor() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split_whitespace().next().unwrap().parse().unwrap())
}

/// Returns the processor time of this number of plans.
fn timed<T>(rounds: u64, mut plan: impl FnMut() -> T) -> Duration {
    let begun = processor();
    for _ in 0..rounds {
        black_box(plan());
    }
    processor().saturating_sub(begun)
}

fn plan(c: &mut Criterion) {
    let mut group = c.benchmark_group("pool plan");
    group.throughput(Throughput::Elements(1));
    let runtime = Runtime::new().unwrap();
    for providers in [2, 8, 20] {
        let live = live(1, providers);
        runtime.block_on(live.publish_pools());
        used(&live);
        let model = live.model("m0").unwrap();
        let request = PlanRequest {
            now: NOW,
            prompt_tokens: 500,
            output_tokens: 256,
            seed: 0,
            exploration: ExplorationMode::Denied,
            session: None,
            offers: &model.offers,
        };
        let mut seed = 0;
        for flavor in FLAVORS {
            group.bench_function(format!("{providers} offers, {}", flavor.name()), |bencher| {
                bencher.iter_custom(|rounds| {
                    timed(rounds, || {
                        seed += 1;
                        let plan =
                            model.pool.plan_candidates(*flavor, &PlanRequest { seed, ..black_box(request) });
                        assert_eq!(plan.entries.len(), providers, "no offer is dropped");
                        plan
                    })
                });
            });
        }
        group.bench_function(format!("{providers} offers, speed, explores"), |bencher| {
            bencher.iter_custom(|rounds| {
                timed(rounds, || {
                    seed += 1;
                    let exploration = ExplorationMode::Allowed { scope: ExplorationScope::AllOffers, seed };
                    model
                        .pool
                        .plan_candidates(SPEED, &PlanRequest { seed, exploration, ..black_box(request) })
                })
            });
        });
        // The known session is the most expensive case: an offer has answered it before, so the offers are scored
        // with and without the saving by that offer's prompt cache.
        let offer = live.offers.first().unwrap().cache_affinity.offer_identity_hash();
        for record in [None, Some(SessionRecord { offer_hash: offer, tokens: 400 })] {
            let name = if record.is_some() { "known" } else { "new" };
            group.bench_function(format!("{providers} offers, speed, {name} session"), |bencher| {
                bencher.iter_custom(|rounds| {
                    timed(rounds, || {
                        seed += 1;
                        let session = Some(SessionHistory { key: SessionKey(seed), record });
                        model
                            .pool
                            .plan_candidates(SPEED, &PlanRequest { seed, session, ..black_box(request) })
                    })
                });
            });
        }
        group.bench_function(format!("{providers} offers, state alone"), |bencher| {
            let read =
                || live.offers.iter().map(|offer| offer.candidate(NOW, 500, 256, None)).collect::<Vec<_>>();
            bencher.iter_custom(|rounds| timed(rounds, read));
        });
    }
    group.finish();
}

/// Measures the publication of a configuration's pools, as at a reload.
fn publish(c: &mut Criterion) {
    let mut group = c.benchmark_group("pool publish");
    let runtime = Runtime::new().unwrap();
    for models in [100, 1000] {
        group.throughput(Throughput::Elements(models));
        group.bench_function(format!("{models} models at 4 providers"), |bencher| {
            bencher.iter_batched(
                || live(usize::try_from(models).unwrap(), 4),
                |live| {
                    runtime.block_on(live.publish_pools());
                    live
                },
                criterion::BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group! {
    name = pools;
    config = Criterion::default().sample_size(20).warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = plan, publish
}
criterion_main!(pools);
