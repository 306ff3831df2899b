//! Tests of exploration: a small share of the requests measures offers that would not be used otherwise.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_routing::{
    BALANCED, BATCH, Candidate, ECO, ExplorationBudget, ExplorationBudgets, ExplorationScope, FLAVORS,
    Flavor, LatencySample, LatencyStats, MAX_MEASUREMENT_AGE, MIN_RECENT_ANSWERS, OfferHealth, PRICE,
    REQUESTS_PER_EXPLORATION, SPEED, choose_exploration, estimate_price, plan,
};
use std::time::Duration;

const NOW: Duration = Duration::from_secs(1_800_000_000);

/// Offer of a simulated model, with its price and its true speed.
struct Offer {
    price: f64,
    first: f64,
    tokens_per_second: f64,
    figures: LatencyStats,
}

impl Offer {
    fn new(price: f64, first: f64, tokens_per_second: f64) -> Self {
        Self { price, first, tokens_per_second, figures: LatencyStats::new() }
    }

    fn candidate(&mut self, offer: usize, now: Duration) -> Candidate {
        Candidate {
            price: estimate_price(self.price, self.price, 10, 100),
            predicted_seconds: self.figures.predict_seconds(now, 10, 100),
            measured_age: self.figures.last_observation_age(now),
            recent_answers: self.figures.recent_answers(now),
            known_for: self.figures.time_since_first_seen(now),
            ..Candidate::new(offer)
        }
    }

    fn answers(&mut self, now: Duration) {
        let first = Duration::from_secs_f64(self.first);
        let total = first + Duration::from_secs_f64(99.0 / self.tokens_per_second);
        let sample = LatencySample { prompt_tokens: 10, output_tokens: 100, first_token: Some(first), total };
        self.figures.observe(now, sample);
    }
}

/// Returns the number of requests that each offer gets, for `requests` consecutive requests, one every `pace`.
fn asked(flavor: &dyn Flavor, offers: &mut [Offer], requests: u64, pace: Duration) -> Vec<u64> {
    let mut counts = vec![0; offers.len()];
    let mut explorations = ExplorationBudgets::default();
    let scope =
        if flavor.allows_exploration() { ExplorationScope::AllOffers } else { ExplorationScope::EqualOffers };
    for seed in 0..requests {
        let now = NOW + pace * u32::try_from(seed).unwrap();
        let candidates: Vec<Candidate> =
            offers.iter_mut().enumerate().map(|(index, offer)| offer.candidate(index, now)).collect();
        let mut first = plan(flavor, &candidates, seed)[0];
        let budget = explorations.of_flavor(flavor);
        budget.on_request();
        if let Some(scope) = scope.within_budget(budget)
            && let Some(other) = choose_exploration(flavor, scope, &candidates, first, seed)
            && budget.try_explore()
        {
            first = other;
        }
        counts[first] += 1;
        offers[first].answers(now);
    }
    counts
}

/// Returns the offer that `:speed` explores.
fn explored(candidates: &[Candidate], first: usize, seed: u64) -> Option<usize> {
    choose_exploration(SPEED, ExplorationScope::AllOffers, candidates, first, seed)
}

/// Two offers: a measured one with 400 ms to the first token and 200 tokens/s, and an unmeasured one with 20 ms and
/// 2,000 tokens/s at 1.9 times the price.
fn slow_and_fast() -> Vec<Offer> {
    let mut offers = vec![Offer::new(1.0, 0.4, 200.0), Offer::new(1.9, 0.02, 2_000.0)];
    offers[0].answers(NOW);
    // The offer is known for a day, so its optimistic first estimate no longer applies, and only exploration can find
    // it.
    offers[1].figures.time_since_first_seen(NOW - Duration::from_secs(86_400));
    offers
}

#[test]
fn a_faster_and_dearer_offer_is_found_under_speed_and_balanced_and_not_paid_for_under_the_others() {
    for flavor in [SPEED, BALANCED] {
        let counts = asked(flavor, &mut slow_and_fast(), 60, Duration::from_millis(500));
        assert!(counts[1] >= 58, "{}: {counts:?}", flavor.name());
    }
    for flavor in [PRICE, ECO, BATCH] {
        assert!(!flavor.allows_exploration());
        let counts = asked(flavor, &mut slow_and_fast(), 60, Duration::from_millis(500));
        assert_eq!(counts[1], 0, "{}", flavor.name());
    }
}

#[test]
fn an_offer_of_more_than_twice_the_price_is_never_explored() {
    for (price, found) in
        [(2.0, true), (2.000_1, false), (1e9, false), (f64::INFINITY, false), (f64::NAN, false)]
    {
        let mut offers = slow_and_fast();
        offers[1].price = price;
        let counts = asked(SPEED, &mut offers, 60, Duration::from_millis(500));
        assert_eq!(counts[1] > 0, found, "{price}: {counts:?}");
    }
}

#[test]
fn one_that_turns_out_to_be_slower_is_asked_again_every_ten_minutes_and_no_more_often() {
    let mut offers = vec![Offer::new(1.0, 0.02, 2_000.0), Offer::new(1.5, 0.4, 200.0)];
    offers[1].figures.time_since_first_seen(NOW - Duration::from_secs(86_400));
    // Requests at one per second for an hour.
    let counts = asked(SPEED, &mut offers, 3_600, Duration::from_secs(1));
    assert!((5..=6).contains(&counts[1]), "{counts:?}");
}

/// Two offers with the same price and speed; the only answer of the second took this many times as long.
fn equals_with_a_slow_answer(times: u32) -> Vec<Offer> {
    let mut offers = vec![Offer::new(1.0, 0.2, 500.0), Offer::new(1.0, 0.2, 500.0)];
    for offer in &mut offers {
        offer.figures.time_since_first_seen(NOW - Duration::from_secs(86_400));
    }
    for _ in 0..8 {
        offers[0].answers(NOW);
    }
    let total = Duration::from_millis(400) * times;
    let first_token = Some(total / 2);
    let sample = LatencySample { prompt_tokens: 10, output_tokens: 100, first_token, total };
    offers[1].figures.observe(NOW, sample);
    offers
}

#[test]
fn one_slow_answer_does_not_exclude_an_equal_offer() {
    for flavor in [PRICE, ECO] {
        let counts = asked(flavor, &mut equals_with_a_slow_answer(10), 60, Duration::from_millis(10));
        assert!(counts[1] >= 5, "{}: {counts:?}", flavor.name());
        // An offer that was slow once has half of the requests again after some correct answers.
        let counts = asked(flavor, &mut equals_with_a_slow_answer(5), 1_000, Duration::from_millis(100));
        assert!(counts[1] >= 350, "{}: {counts:?}", flavor.name());
    }
    for flavor in [SPEED, BALANCED] {
        let counts = asked(flavor, &mut equals_with_a_slow_answer(2), 3_000, Duration::from_millis(500));
        assert!(counts[1] >= 600, "{}: {counts:?}", flavor.name());
    }
}

#[test]
fn an_equal_offer_that_stays_slow_gets_few_requests() {
    let slower = || vec![Offer::new(1.0, 0.2, 500.0), Offer::new(1.0, 2.0, 50.0)];
    for flavor in [PRICE, ECO, SPEED, BALANCED] {
        // 10 requests a second for half an hour: less than one in 180 goes to the slow offer.
        let counts = asked(flavor, &mut slower(), 18_000, Duration::from_millis(100));
        assert!((16..=100).contains(&counts[1]), "{}: {counts:?}", flavor.name());
        // With one request each ten seconds, the budget is the limit.
        let counts = asked(flavor, &mut slower(), 200, Duration::from_secs(10));
        let most = if flavor.allows_exploration() { 6 } else { 24 };
        assert!(counts[1] <= most, "{}: {counts:?}", flavor.name());
    }
}

#[test]
fn uncertain_offers_are_explored_only_if_speed_alone_ranks_them_lower() {
    let first = Candidate {
        price: 1.0,
        predicted_seconds: Some(1.0),
        measured_age: Some(Duration::ZERO),
        recent_answers: 50.0,
        renewable: 0.5,
        ..Candidate::new(0)
    };
    let slow = Candidate { predicted_seconds: Some(9.0), recent_answers: 1.0, offer: 1, ..first };
    let picks = |other: Candidate| {
        FLAVORS.iter().filter(|flavor| flavor.name() != "batch").all(|flavor| {
            choose_exploration(*flavor, ExplorationScope::EqualOffers, &[first, other], 0, 7) == Some(1)
        })
    };
    assert!(picks(slow));
    assert!(!picks(Candidate { recent_answers: MIN_RECENT_ANSWERS, ..slow }), "its speed is known");
    assert!(!picks(Candidate { price: 1.5, ..slow }));
    assert!(!picks(Candidate { ci_g_per_kwh: 900.0, renewable: 0.0, ..slow }));
    assert!(!picks(Candidate { predicted_seconds: Some(1.0), ..slow }), "it shares the load");
    assert!(!picks(Candidate { in_flight: 1, ..slow }));
    assert!(!picks(Candidate { failure_ratio: 1.0 / 3.0, ..slow }));
    assert!(!picks(Candidate { health: OfferHealth::HalfOpen, ..slow }));
    let old = Candidate { measured_age: None, predicted_seconds: None, price: 1.9, ..slow };
    assert!(!picks(old), "only flavors of speed explore offers with higher prices");
}

#[test]
fn at_most_one_request_in_fifty_explores_a_failing_offer() {
    // The other offers never answer, so all of them stay unmeasured.
    let mut known = Offer::new(1.0, 0.1, 100.0);
    known.answers(NOW);
    let candidates: Vec<Candidate> = std::iter::once(known.candidate(0, NOW))
        .chain((1..40).map(|offer| Candidate {
            price: known.candidate(0, NOW).price,
            known_for: Duration::from_secs(86_400),
            ..Candidate::new(offer)
        }))
        .collect();
    let mut explorations = ExplorationBudget::new(REQUESTS_PER_EXPLORATION);
    let (mut count, mut picked) = (0, std::collections::HashSet::new());
    for request in 1..=10_000 {
        explorations.on_request();
        let Some(offer) = explored(&candidates, 0, request) else { panic!("all are due") };
        if explorations.try_explore() {
            count += 1;
            picked.insert(offer);
        }
        assert!(count <= (request / REQUESTS_PER_EXPLORATION).max(1), "{count} of {request}");
    }
    assert_eq!(count, 200);
    assert!(picked.len() > 30, "all of them by chance: {}", picked.len());
}

#[test]
fn unused_exploration_budget_does_not_accumulate() {
    let mut explorations = ExplorationBudget::new(REQUESTS_PER_EXPLORATION);
    (0..1_000_000).for_each(|_| explorations.on_request());
    assert!(explorations.try_explore());
    assert!(!explorations.try_explore());
}

#[test]
fn only_due_healthy_and_idle_offers_are_explored() {
    let first = Candidate {
        price: 1.0,
        predicted_seconds: Some(1.0),
        measured_age: Some(Duration::ZERO),
        ..Candidate::new(0)
    };
    let due = Candidate { price: 1.0, ..Candidate::new(1) };
    let picks = |other: Candidate| explored(&[first, other], 0, 7) == Some(1);
    assert!(picks(due));
    assert!(picks(Candidate { measured_age: Some(MAX_MEASUREMENT_AGE + Duration::from_millis(1)), ..due }));
    assert!(!picks(Candidate { measured_age: Some(MAX_MEASUREMENT_AGE), ..due }));
    assert!(!picks(Candidate { in_flight: 1, ..due }), "one at a time");
    assert!(!picks(Candidate { failure_ratio: 1.0 / 3.0, ..due }), "its last answer was a failure");
    for health in [
        OfferHealth::HalfOpen,
        OfferHealth::CoolingDown { until: NOW },
        OfferHealth::Ejected { failures: 5, until: NOW },
    ] {
        assert!(!picks(Candidate { health, ..due }), "{health:?}");
        assert_eq!(explored(&[Candidate { health, ..first }, due], 0, 7), None, "{health:?}: an outage");
    }
    assert_eq!(explored(&[first, due], 9, 7), None, "the first is nobody");
    assert_eq!(explored(&[], 0, 7), None);
    let older = Candidate { measured_age: Some(MAX_MEASUREMENT_AGE * 3), ..Candidate { offer: 2, ..due } };
    let old = Candidate { measured_age: Some(MAX_MEASUREMENT_AGE * 2), ..due };
    assert_eq!(explored(&[first, old, older], 0, 7), Some(2), "the oldest figures first");
    assert_eq!(explored(&[first, older, due], 0, 7), Some(1), "those never measured before them");
    let free = Candidate { price: 0.0, ..first };
    assert_eq!(explored(&[free, due], 0, 7), None, "nothing is at most twice nothing");
    assert_eq!(explored(&[free, Candidate { price: 0.0, ..due }], 0, 7), Some(1));
}

#[test]
fn the_flavors_that_explore_are_those_of_speed() {
    let names: Vec<&str> =
        FLAVORS.iter().filter(|flavor| flavor.allows_exploration()).map(|flavor| flavor.name()).collect();
    assert_eq!(names, ["balanced", "speed"]);
}
