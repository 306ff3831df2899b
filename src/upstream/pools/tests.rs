//! Plans of a pool compared with the routing rules, in every state of its offers.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use super::*;
use crate::config::{ResolveEnv, load_text};
use crate::upstream::config_snapshot::ConfigSnapshot;
use crate::upstream::connection_pool::ConnectionPools;
use penstock_core::UpstreamErrorKind;
use penstock_routing::{AttemptOutcome, Candidate, ECO, ExplorationScope, LatencySample, SPEED};
use std::fmt::Write as _;

const NOW: Duration = Duration::from_secs(1_763_800_000);

/// Builds a configuration of one model at this many providers, which share addresses in pairs.
fn live(providers: usize, price: f64, old: Option<&ConfigSnapshot>) -> ConfigSnapshot {
    let mut text = String::from(
        "[listen]\nhttp = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n[storage]\npath = \"data\"\n\
         [[models]]\nid = \"m\"\nkind = \"chat\"\ncontext_length = 8192\nprice = { input = 1, output = 1 }\n",
    );
    for n in 0..providers {
        let country = ["FR", "DE", "SE", "PL"][n % 4];
        let price = price + f64::from(u32::try_from(n).unwrap());
        writeln!(
            text,
            "[[providers]]\nid = \"p{n}\"\noperator = \"P\"\ncountry = \"{country}\"\ncity = \"Here\"\npue = 1.2\n\
             base_url = \"http://127.0.0.1:{}/v1\"\n[[providers.offers]]\nmodel = \"m\"\nname = \"n\"\n\
             price = {{ input = {price}, output = {price} }}",
            9000 + n / 2
        )
        .unwrap();
    }
    let loaded = load_text("pools.toml", &text, ResolveEnv { env: &|_| None });
    let loaded = loaded.unwrap_or_else(|report| panic!("{}", report.mistakes.first().unwrap()));
    ConfigSnapshot::build(loaded.settings, old, &ConnectionPools::default(), 0).unwrap()
}

fn request(offers: &[usize], seed: u64) -> PlanRequest<'_> {
    let exploration = ExplorationMode::Denied;
    PlanRequest { now: NOW, prompt_tokens: 500, output_tokens: 200, seed, exploration, session: None, offers }
}

fn order(pool: &ModelPool, flavor: &'static dyn Flavor, request: &PlanRequest<'_>) -> Vec<usize> {
    pool.plan_candidates(flavor, request).entries.iter().map(|entry| entry.offer).collect()
}

/// Records the outcome of an attempt that begins now.
fn record(offer: &OfferState, now: Duration, outcome: AttemptOutcome, sample: Option<LatencySample>) {
    let admission = offer.breaker.lock().last_resort_admission();
    offer.record_outcome(now, admission, outcome, None, sample);
}

fn fail(offer: &OfferState, times: usize) {
    (0..times).for_each(|_| record(offer, NOW, AttemptOutcome::Failure { retry_after: None }, None));
}

/// Records latencies, failures, a cooldown and an ejection.
fn use_offers(live: &ConfigSnapshot) {
    for (n, offer) in (1..).zip(&live.offers) {
        let total = Duration::from_millis(400 * (n % 5 + 1));
        let sample = LatencySample { prompt_tokens: 500, output_tokens: 200, first_token: None, total };
        if n % 4 != 0 {
            record(offer, NOW, AttemptOutcome::Success, Some(sample));
        }
    }
    fail(&live.offers[1], 1);
    fail(&live.offers[2], 5);
    fail(&live.offers[5], 6);
    let limited = AttemptOutcome::RateLimited { retry_after: Some(Duration::from_secs(9)) };
    record(&live.offers[3], NOW, limited, None);
}

#[tokio::test]
async fn a_plan_is_that_of_the_routing_rules_and_drops_no_candidate() {
    let live = live(8, 1.0, None);
    live.publish_pools().await;
    let pool = &live.model("m").unwrap().pool;
    for state in ["new", "used"] {
        if state == "used" {
            use_offers(&live);
        }
        for offers in [vec![0, 1, 2, 3, 4, 5, 6, 7], vec![2, 3, 5, 7], vec![2, 5], vec![6]] {
            for (flavor, seed) in FLAVORS.iter().flat_map(|flavor| (0..50).map(move |seed| (*flavor, seed))) {
                let candidates: Vec<Candidate> =
                    offers.iter().map(|at| live.offers[*at].candidate(NOW, 500, 200, None).0).collect();
                let expected = penstock_routing::plan(flavor, &candidates, seed);
                let plan = pool.plan_candidates(flavor, &request(&offers, seed));
                let found: Vec<usize> = plan.entries.iter().map(|entry| entry.offer).collect();
                assert_eq!(found, expected, "{state}, {}, seed {seed}", flavor.name());
                let ejected = |one: &Candidate| matches!(one.health, OfferHealth::Ejected { .. });
                assert_eq!(plan.all_ejected, candidates.iter().all(ejected), "{state}, {offers:?}");
            }
        }
    }
}

#[tokio::test]
async fn an_ejection_disables_the_offer_in_old_and_new_pools_until_the_breaker_closes() {
    let old = live(4, 1.0, None);
    old.publish_pools().await;
    let new = live(4, 2.0, Some(&old));
    new.publish_pools().await;
    let ready = |live: &ConfigSnapshot| {
        (0..4).map(|at| live.model("m").unwrap().pool.is_offer_ready(at)).collect::<Vec<_>>()
    };
    assert_eq!(ready(&old), [true; 4]);
    // An exchange that still uses the old configuration fails.
    fail(&old.offers[1], 5);
    for live in [&old, &new] {
        assert_eq!(ready(live), [true, false, true, true]);
        assert_eq!(order(&live.model("m").unwrap().pool, ECO, &request(&[0, 1, 2, 3], 1)).last(), Some(&1));
    }
    // A pool that is published while the offer is ejected starts with the offer disabled.
    let newest = live(4, 3.0, Some(&new));
    newest.publish_pools().await;
    assert_eq!(ready(&newest), [true, false, true, true]);
    let later = NOW + Duration::from_secs(3600);
    let pool = &newest.model("m").unwrap().pool;
    for _ in 0..2 {
        let half_open_plan = || pool.plan_candidates(ECO, &PlanRequest { now: later, ..request(&[1], 1) });
        assert!(!pool.is_offer_ready(1) && !half_open_plan().all_ejected, "half-open: a probe is accepted");
        let probe = newest.offers[1].breaker.lock().try_acquire(later).unwrap();
        assert!(half_open_plan().all_ejected, "the only probe is taken");
        newest.offers[1].record_outcome(later, probe, AttemptOutcome::Success, None, None);
    }
    for live in [&old, &new, &newest] {
        assert_eq!(ready(live), [true; 4]);
    }
}

#[tokio::test]
async fn exploration_stays_within_the_budget_that_requests_earn() {
    let live = live(2, 1.0, None);
    live.publish_pools().await;
    let total = Duration::from_millis(300);
    let sample = LatencySample { prompt_tokens: 500, output_tokens: 200, first_token: None, total };
    record(&live.offers[0], NOW, AttemptOutcome::Success, Some(sample));
    let pool = &live.model("m").unwrap().pool;
    let denied = request(&[0, 1], 1);
    // The second offer has no measurements and costs at most twice as much.
    let first = |exploration| order(pool, SPEED, &PlanRequest { exploration, ..denied })[0];
    let usual = first(ExplorationMode::Denied);
    let scope = ExplorationScope::AllOffers;
    let explored =
        (0..100_u64).filter(|seed| first(ExplorationMode::Allowed { scope, seed: *seed }) != usual).count();
    assert!((1..=2).contains(&explored), "{explored} of 100 requests explored");
    assert_eq!(usual, first(ExplorationMode::Denied));
}

#[tokio::test]
async fn an_unresolved_provider_is_in_the_plan_and_a_new_address_is_published() {
    let live = live(3, 1.0, None);
    live.publish_pools().await;
    let pool = &live.model("m").unwrap().pool;
    let addresses =
        || pool.group.backends().get_backend().iter().map(|one| one.addr.to_string()).collect::<Vec<_>>();
    let before = addresses();
    live.publish_pools().await;
    assert_eq!(addresses(), before, "the same addresses change nothing");
    assert_eq!(pool.group.backend_generation(), 1);
    fail(&live.offers[0], 5);
    live.offers[0]
        .provider
        .route
        .set_addresses(&live.offers[0].provider.provider, &["127.0.0.9:9".parse().unwrap()]);
    live.publish_pools().await;
    assert_ne!(addresses(), before);
    assert!(!pool.is_offer_ready(0) && pool.is_offer_ready(1), "an ejection survives the move");
    assert_eq!(order(pool, ECO, &request(&[0, 1, 2], 3)).len(), 3);
}

#[tokio::test]
async fn a_key_that_is_no_plan_request_selects_nothing() {
    let live = live(2, 1.0, None);
    live.publish_pools().await;
    let group = &live.model("m").unwrap().pool.group;
    assert!(group.select(0, b"", 8).is_none() && group.select(0, b"short", 8).is_none());
    assert!(group.select(0, &request(&[0, 1], 1).encode(), 8).is_some());
    assert!(group.select(FLAVORS.len(), &request(&[0, 1], 1).encode(), 8).is_none());
}

#[test]
fn a_failed_check_is_stored_until_one_passes_and_stays_the_last_error() {
    let live = live(1, 1.0, None);
    let provider = &live.providers[0];
    let at = Duration::from_secs;
    let state =
        || (*provider.last_check_passed.lock(), *provider.check_failure.lock(), *provider.last_error.lock());
    assert_eq!(state(), (None, None, None));
    provider.record_check(at(1), health::classify_probe_status(200));
    assert_eq!(state(), (Some(true), None, None));
    provider.record_check(at(2), health::classify_probe_status(503));
    assert_eq!(state(), (Some(false), Some(UpstreamErrorKind::Status(503)), Some((at(2), "status"))));
    provider.record_check(at(3), health::classify_probe_status(401));
    assert_eq!(
        state(),
        (Some(false), Some(UpstreamErrorKind::Credentials(401)), Some((at(3), "credentials")))
    );
    provider.record_check(at(4), health::classify_probe_status(204));
    assert_eq!(state(), (Some(true), None, Some((at(3), "credentials"))));
}
