//! Tests of the order of a plan.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_routing::{
    BALANCED, BATCH, Candidate, ECO, ExplorationScope, FLAVORS, OfferAffinity, OfferHealth, PRICE,
    PromptCacheSaving, SPEED, TIE_MARGIN, choose_exploration, estimate_price, plan,
};
use proptest::prelude::*;
use std::time::Duration;

/// Three offers: cheap and slow, expensive and fast, and clean in between.
fn three() -> [Candidate; 3] {
    let candidate = |offer, price, seconds, ci_g_per_kwh, renewable| Candidate {
        price,
        predicted_seconds: Some(seconds),
        ci_g_per_kwh,
        renewable,
        ..Candidate::new(offer)
    };
    [
        candidate(0, 1.0, 8.0, 300.0, 0.4),
        candidate(1, 4.0, 2.0, 300.0, 0.4),
        candidate(2, 1.6, 3.0, 30.0, 0.9),
    ]
}

#[test]
fn each_flavor_ranks_by_its_own_criterion() {
    for seed in 0..50 {
        assert_eq!(plan(PRICE, &three(), seed)[0], 0);
        assert_eq!(plan(BATCH, &three(), seed)[0], 0);
        assert_eq!(plan(SPEED, &three(), seed)[0], 1);
        assert_eq!(plan(ECO, &three(), seed)[0], 2);
        assert_eq!(plan(BALANCED, &three(), seed)[0], 2, "the all-rounder");
    }
}

#[test]
fn no_candidates_make_an_empty_plan() {
    assert!(plan(BALANCED, &[], 1).is_empty());
}

#[test]
fn a_newcomer_starts_at_the_best_of_its_peers_and_decays_to_their_median() {
    let measured = |offer, seconds| Candidate { predicted_seconds: Some(seconds), ..Candidate::new(offer) };
    let known_for = |seconds| {
        let newcomer = Candidate { known_for: Duration::from_secs(seconds), ..Candidate::new(3) };
        [measured(0, 1.0), measured(1, 10.0), measured(2, 100.0), newcomer]
    };
    let first = |seconds| (0..50).filter(|seed| plan(SPEED, &known_for(seconds), *seed)[0] == 3).count();
    assert!((10..40).contains(&first(0)), "as good as the best: it has its share");
    assert_eq!(first(300), 0, "after a half-life without a word it is taken for half way to the median");
    for seed in 0..50 {
        assert_eq!(plan(SPEED, &known_for(86_400), seed)[0], 0);
        assert_eq!(plan(SPEED, &known_for(86_400), seed)[3], 2, "and not starved");
    }
}

#[test]
fn a_slow_figure_counts_less_the_older_it_is() {
    let candidates = |flavor_seconds: f64, age| {
        let fast = Candidate {
            predicted_seconds: Some(1.0),
            measured_age: Some(Duration::ZERO),
            ..Candidate::new(0)
        };
        let slow = Candidate {
            predicted_seconds: Some(flavor_seconds),
            measured_age: Some(Duration::from_secs(age)),
            ..Candidate::new(1)
        };
        [fast, slow]
    };
    let first = |flavor, seconds, age| {
        (0..50).filter(|seed| plan(flavor, &candidates(seconds, age), *seed)[0] == 1).count()
    };
    for flavor in [PRICE, ECO, BALANCED, SPEED] {
        assert_eq!(first(flavor, 4.0, 0), 0, "{flavor:?}");
        assert!((10..40).contains(&first(flavor, 4.0, 1_800)), "{flavor:?}");
    }
    assert!(first(PRICE, 4.0, 1_000) > 0);
    assert_eq!(first(SPEED, 4.0, 1_000), 0, "the speed matters more");
    assert_eq!(first(SPEED, 0.5, 1_800), 50, "only slow figures are forgotten");
}

#[test]
fn a_newcomer_gets_one_request_to_show_itself_and_not_half_of_the_traffic() {
    let known =
        Candidate { predicted_seconds: Some(1.0), in_flight: 5, max_in_flight: 1_000, ..Candidate::new(0) };
    let idle = Candidate::new(1);
    let asked = Candidate { in_flight: 1, max_in_flight: 1_000, ..idle };
    for seed in 0..50 {
        assert_eq!(plan(SPEED, &[known, idle], seed)[0], 1);
        assert_eq!(plan(SPEED, &[known, asked], seed)[0], 0);
    }
}

#[test]
fn queue_depth_multiplies_the_predicted_time() {
    let queue = |offer, seconds, in_flight| Candidate {
        predicted_seconds: Some(seconds),
        in_flight,
        max_in_flight: 4,
        ..Candidate::new(offer)
    };
    // An offer with 1 s and a queue of three times its capacity is worse than one with 2 s and no queue.
    assert_eq!(plan(SPEED, &[queue(0, 1.0, 12), queue(1, 2.0, 0)], 7), [1, 0]);
    assert_eq!(plan(SPEED, &[queue(0, 1.0, 0), queue(1, 2.0, 0)], 7), [0, 1]);
}

#[test]
fn an_offer_that_fails_fast_is_not_fast() {
    let fast = Candidate { predicted_seconds: Some(1.0), failure_ratio: 0.8, ..Candidate::new(0) };
    let steady = Candidate { predicted_seconds: Some(2.0), ..Candidate::new(1) };
    assert_eq!(plan(SPEED, &[fast, steady], 3), [1, 0]);
}

#[test]
fn eco_ranks_more_than_twice_the_best_intensity_last_for_any_renewable_share() {
    let grid = |offer, ci_g_per_kwh, renewable, price| Candidate {
        ci_g_per_kwh,
        renewable,
        price,
        predicted_seconds: Some(1.0),
        ..Candidate::new(offer)
    };
    // Offers in three grids: nuclear power with little wind; much wind with coal, at the lowest price; values in
    // between, at the highest price.
    let candidates = [grid(0, 30.0, 0.25, 9.0), grid(1, 330.0, 1.0, 1.0), grid(2, 59.0, 0.3, 50.0)];
    for seed in 0..50 {
        assert_eq!(plan(ECO, &candidates, seed)[2], 1);
        assert_ne!(plan(BALANCED, &candidates, seed)[2], 1, "no other flavor has the rule");
    }
    let exactly_twice = [grid(0, 30.0, 0.0, 1.0), grid(1, 60.0, 1.0, 1.0)];
    assert_eq!(plan(ECO, &exactly_twice, 1)[0], 1, "twice is still allowed");
}

#[test]
fn eco_applies_the_intensity_limit_to_the_offers_above_it_again() {
    let grid = |offer, ci_g_per_kwh, renewable| Candidate {
        ci_g_per_kwh,
        renewable,
        predicted_seconds: Some(1.0),
        ..Candidate::new(offer)
    };
    // The two coal grids have lower scores than the grids with 68 and 117 grams, by their renewable shares.
    let candidates = [
        grid(0, 565.0, 1.0),
        grid(1, 117.0, 0.0),
        grid(2, 31.0, 0.27),
        grid(3, 68.0, 0.0),
        grid(4, f64::NAN, 1.0),
        grid(5, 560.0, 1.0),
    ];
    for seed in 0..50 {
        let order = plan(ECO, &candidates, seed);
        assert_eq!((order[0], order[5]), (2, 4), "{order:?}");
        for group in [[1, 3], [0, 5]] {
            let places = group.map(|offer| order.iter().position(|one| *one == offer).unwrap());
            assert_eq!(places[0].abs_diff(places[1]), 1, "{order:?}");
        }
        assert!(order[1..3].contains(&3), "{order:?}");
        // Without the first offer, the others have the same order.
        assert_eq!(plan(ECO, &candidates[3..5], seed), [3, 4]);
    }
    let unknown = [grid(0, f64::NAN, 0.0), grid(1, f64::NAN, 1.0)];
    assert_eq!(plan(ECO, &unknown, 1), [1, 0], "intensities that are all unknown do not matter");
}

#[test]
fn eco_measures_intensity_against_those_that_can_be_asked() {
    let until = Duration::from_secs(9);
    let dead = Candidate {
        ci_g_per_kwh: 20.0,
        health: OfferHealth::Ejected { failures: 5, until },
        ..Candidate::new(0)
    };
    let dirty = Candidate { ci_g_per_kwh: 300.0, renewable: 0.9, ..Candidate::new(1) };
    let cleaner = Candidate { ci_g_per_kwh: 200.0, renewable: 0.1, price: 0.1, ..Candidate::new(2) };
    let order = plan(ECO, &[dead, dirty, cleaner], 1);
    assert_eq!(order, [1, 2, 0]);
}

#[test]
fn similar_offers_share_the_load_and_clear_winners_do_not() {
    let alike = |offer, price| Candidate { price, predicted_seconds: Some(1.0), ..Candidate::new(offer) };
    let candidates = [alike(0, 1.0), alike(1, 1.01), alike(2, 1.02), alike(3, 2.0)];
    let mut first = [0_u32; 4];
    for seed in 0..3_000 {
        first[plan(PRICE, &candidates, seed)[0]] += 1;
    }
    assert!(first[..3].iter().all(|count| (800..1_200).contains(count)), "{first:?}");
    assert_eq!(first[3], 0);
}

#[test]
fn of_two_similar_offers_the_less_busy_one_is_first() {
    let alike = |offer, in_flight| Candidate {
        in_flight,
        max_in_flight: 1_000,
        predicted_seconds: Some(1.0),
        ..Candidate::new(offer)
    };
    for seed in 0..100 {
        assert_eq!(plan(PRICE, &[alike(0, 3), alike(1, 1)], seed), [1, 0]);
    }
}

#[test]
fn the_power_of_two_choices_still_asks_the_middle_and_never_the_busiest() {
    let alike = |offer, in_flight| Candidate {
        in_flight,
        max_in_flight: 1_000,
        predicted_seconds: Some(1.0),
        ..Candidate::new(offer)
    };
    let candidates = [alike(0, 1), alike(1, 2), alike(2, 3)];
    let mut first = [0_u32; 3];
    for seed in 0..3_000 {
        first[plan(PRICE, &candidates, seed)[0]] += 1;
    }
    // Of the three possible pairs, the least loaded offer wins two, and the middle one wins one.
    assert!((1_800..2_200).contains(&first[0]) && (800..1_200).contains(&first[1]), "{first:?}");
    assert_eq!(first[2], 0);
}

#[test]
fn healthy_before_resting_before_ejected() {
    let secs = Duration::from_secs;
    let with = |offer, price, health| Candidate { price, health, ..Candidate::new(offer) };
    let candidates = [
        with(0, 1.0, OfferHealth::Ejected { failures: 9, until: secs(1) }),
        with(1, 1.0, OfferHealth::CoolingDown { until: secs(8) }),
        with(2, 50.0, OfferHealth::Healthy),
        with(3, 1.0, OfferHealth::Ejected { failures: 5, until: secs(4) }),
        with(4, 1.0, OfferHealth::CoolingDown { until: secs(3) }),
        with(5, 90.0, OfferHealth::HalfOpen),
    ];
    assert_eq!(plan(PRICE, &candidates, 1), [2, 5, 4, 1, 3, 0]);
}

#[test]
fn when_all_are_ejected_the_least_bad_comes_first() {
    let ejected = |offer, failures, until| Candidate {
        health: OfferHealth::Ejected { failures, until: Duration::from_secs(until) },
        ..Candidate::new(offer)
    };
    let candidates = [ejected(0, 40, 1), ejected(1, 5, 9), ejected(2, 5, 3)];
    assert_eq!(plan(SPEED, &candidates, 1), [2, 1, 0]);
}

#[test]
fn a_dead_bargain_does_not_make_the_living_look_alike() {
    let until = Duration::from_secs(1);
    let dead =
        Candidate { price: 0.001, health: OfferHealth::Ejected { failures: 5, until }, ..Candidate::new(0) };
    let cheap = Candidate { price: 1.0, ..Candidate::new(1) };
    let dear = Candidate { price: 2.0, ..Candidate::new(2) };
    for seed in 0..50 {
        assert_eq!(plan(PRICE, &[dead, dear, cheap], seed), [1, 2, 0]);
    }
}

#[test]
fn the_price_hint_is_eur_for_the_whole_request() {
    let eur = estimate_price(0.05, 0.15, 1_000_000, 2_000_000);
    assert!((eur - 0.35).abs() < 1e-12);
}

fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![8 => 0.0..1e4, 1 => Just(f64::NAN), 1 => Just(f64::INFINITY), 1 => Just(-1.0), 1 => Just(0.0)]
}

fn any_candidate() -> impl Strategy<Value = Candidate> {
    let health = prop_oneof![
        3 => Just(OfferHealth::Healthy),
        1 => Just(OfferHealth::HalfOpen),
        1 => (0..100_u64).prop_map(|s| OfferHealth::CoolingDown { until: Duration::from_secs(s) }),
        1 => (0..9_u32, 0..100_u64).prop_map(|(failures, s)| OfferHealth::Ejected { failures, until: Duration::from_secs(s) }),
    ];
    (
        any_number(),
        proptest::option::of(any_number()),
        0..64_u32,
        0..8_u32,
        any_number(),
        any_number(),
        any_number(),
        health,
        (proptest::option::of(any::<u64>()), any::<u64>()),
    )
        .prop_map(
            |(
                price,
                seconds,
                in_flight,
                max_in_flight,
                failing,
                ci_g_per_kwh,
                renewable,
                health,
                (age, known),
            )| {
                let measured: Option<Duration> = age.map(Duration::from_millis);
                let known = Duration::from_millis(known);
                Candidate {
                    offer: 0,
                    price,
                    predicted_seconds: seconds,
                    measured_age: measured,
                    recent_answers: failing,
                    known_for: known,
                    in_flight,
                    max_in_flight,
                    failure_ratio: failing,
                    ci_g_per_kwh,
                    renewable,
                    health,
                    session: age.map(|age| OfferAffinity {
                        weight: age,
                        saving: (age % 2 == 0).then_some(PromptCacheSaving {
                            price,
                            seconds: price,
                            energy: renewable,
                        }),
                    }),
                }
            },
        )
}

proptest! {
    #[test]
    fn a_plan_lists_every_offer_once_for_any_numbers(
        mut candidates in proptest::collection::vec(any_candidate(), 0..24), flavor in 0..5_usize, seed: u64,
    ) {
        for (offer, candidate) in candidates.iter_mut().enumerate() {
            candidate.offer = offer;
        }
        let order = plan(FLAVORS[flavor], &candidates, seed);
        prop_assert_eq!(&order, &plan(FLAVORS[flavor], &candidates, seed), "the same seed gives the same plan");
        if let Some(explored) = order.first().and_then(|first| {
            choose_exploration(FLAVORS[flavor], ExplorationScope::AllOffers, &candidates, *first, seed)
        }) {
            let first = &candidates[order[0]];
            let (price, most) = (candidates[explored].price, 2.0 * first.price);
            prop_assert!(explored != first.offer && (price <= most || price.is_nan() || most.is_nan()));
            prop_assert_eq!(candidates[explored].health, OfferHealth::Healthy);
        }
        let usable = |offer: &usize| matches!(candidates[*offer].health, OfferHealth::Healthy | OfferHealth::HalfOpen);
        let first_unusable = order.iter().position(|offer| !usable(offer)).unwrap_or(order.len());
        prop_assert!(order[first_unusable..].iter().all(|offer| !usable(offer)), "usable ones come first");
        let mut sorted = order;
        sorted.sort_unstable();
        prop_assert_eq!(sorted, (0..candidates.len()).collect::<Vec<_>>());
    }

    #[test]
    fn the_first_is_never_clearly_worse_than_another_healthy_one(prices in proptest::collection::vec(0.1..10.0_f64, 1..20), seed: u64) {
        let candidates: Vec<_> =
            prices.iter().enumerate().map(|(offer, price)| Candidate { price: *price, ..Candidate::new(offer) }).collect();
        let best = prices.iter().copied().fold(f64::INFINITY, f64::min);
        let chosen = prices[plan(PRICE, &candidates, seed)[0]];
        prop_assert!(0.7 * (1.0 - best / chosen) <= TIE_MARGIN + 1e-12);
    }
}
