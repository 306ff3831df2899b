//! Tests of conversations that stay at the offer that has cached their prefix.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_routing::{
    BALANCED, Candidate, FLAVORS, OfferAffinity, OfferHealth, PromptCacheSaving, SPEED, SessionKey,
    load_limit, plan, rendezvous_weight, stable_hash,
};
use proptest::prelude::*;
use std::collections::HashMap;
use std::time::Duration;

/// Hash of the identity of an offer, equal on every gateway.
fn identity(offer: usize) -> u64 {
    stable_hash(0, format!("provider-{offer}").as_bytes())
}

fn session(number: u64) -> SessionKey {
    SessionKey(stable_hash(1, &number.to_le_bytes()))
}

/// Equal offers with these numbers of requests in flight, for a session whose last answer came from `last`.
fn candidates(in_flight: &[u32], key: SessionKey, last: Option<usize>) -> Vec<Candidate> {
    let saving = PromptCacheSaving { price: 0.6, seconds: 0.5, energy: 0.4 };
    let one = |(offer, in_flight): (usize, &u32)| Candidate {
        price: 1.0,
        predicted_seconds: Some(2.0),
        in_flight: *in_flight,
        max_in_flight: 64,
        ci_g_per_kwh: 100.0,
        renewable: 0.5,
        session: Some(OfferAffinity {
            weight: rendezvous_weight(key, identity(offer)),
            saving: (last == Some(offer)).then_some(saving),
        }),
        ..Candidate::new(offer)
    };
    in_flight.iter().enumerate().map(one).collect()
}

/// Simulates requests of many concurrent conversations at four equal offers. Returns the share of cache hits among
/// the requests after the first of their conversation, and the number of answers of each offer.
fn simulate_conversations(with_sessions: bool, in_flight_at_once: usize) -> (f64, [u32; 4]) {
    let (mut hits, mut later, mut answers) = (0, 0, [0; 4]);
    let mut last: HashMap<u64, usize> = HashMap::new();
    let mut running: Vec<usize> = Vec::new();
    for request in 0..8_000_u64 {
        // 200 conversations in a mixed order, 40 requests each.
        let conversation = stable_hash(7, &request.to_le_bytes()) % 200;
        let mut in_flight = [0; 4];
        running.iter().for_each(|offer| in_flight[*offer] += 1);
        let before = last.get(&conversation).copied();
        let mut offers = candidates(&in_flight, session(conversation), before);
        if !with_sessions {
            offers.iter_mut().for_each(|one| one.session = None);
        }
        let chosen = plan(BALANCED, &offers, request)[0];
        later += u32::from(before.is_some());
        hits += u32::from(before == Some(chosen));
        answers[chosen] += 1;
        last.insert(conversation, chosen);
        running.push(chosen);
        if running.len() > in_flight_at_once {
            let ended = stable_hash(3, &request.to_le_bytes()) % u64::try_from(running.len()).unwrap();
            running.remove(usize::try_from(ended).unwrap());
        }
    }
    (f64::from(hits) / f64::from(later), answers)
}

#[test]
fn conversations_meet_their_prefix_and_the_load_stays_even() {
    for in_flight in [1, 16, 96] {
        let (hits, answers) = simulate_conversations(true, in_flight);
        assert!(hits >= 0.9, "{hits} with {in_flight} in flight");
        assert!(answers.iter().all(|answers| (1_400..=2_600).contains(answers)), "{answers:?}");
        let (random, _) = simulate_conversations(false, in_flight);
        assert!((0.2..0.35).contains(&random), "{random} with {in_flight} in flight");
    }
}

#[test]
fn gateways_without_shared_state_choose_the_same_offer() {
    let mut chosen = [0; 4];
    for number in 0..1_000 {
        // The second plan, with another seed and slightly different loads, stands for another gateway.
        let first = plan(SPEED, &candidates(&[1, 2, 0, 1], session(number), None), 1);
        let other = plan(SPEED, &candidates(&[0, 1, 1, 2], session(number), None), 2);
        assert_eq!(first, other, "the order of failover is the same too");
        chosen[first[0]] += 1;
    }
    assert!(chosen.iter().all(|count| (200..=300).contains(count)), "{chosen:?}");
}

#[test]
fn a_lost_offer_moves_its_own_sessions_only() {
    for number in 0..1_000 {
        let all = candidates(&[0; 4], session(number), None);
        let before = plan(BALANCED, &all, number)[0];
        let after = plan(BALANCED, &all[..3], number)[0];
        assert!(before == 3 || after == before);
    }
}

#[test]
fn an_ejected_offer_loses_the_session_and_comes_last() {
    for state in [
        OfferHealth::Ejected { failures: 5, until: Duration::from_secs(9) },
        OfferHealth::CoolingDown { until: Duration::from_secs(9) },
    ] {
        let mut offers = candidates(&[0; 4], session(1), Some(2));
        assert_eq!(plan(BALANCED, &offers, 1)[0], 2);
        offers[2].health = state;
        assert_eq!(plan(BALANCED, &offers, 1)[3], 2);
    }
}

#[test]
fn a_session_leaves_an_offer_above_its_share_of_the_load() {
    let first = |in_flight: [u32; 4]| plan(BALANCED, &candidates(&in_flight, session(1), Some(2)), 1)[0];
    assert_eq!(first([8, 8, 11, 8]), 2, "a quarter of 36, times 1.25, rounded up is 12");
    assert_ne!(first([8, 8, 12, 8]), 2);
    assert_eq!(first([0, 0, 7, 0]), 2, "a few requests are no load");
    assert_ne!(first([0, 0, 8, 0]), 2);
}

#[test]
fn a_much_better_offer_wins_over_a_cached_prefix() {
    let mut offers = candidates(&[0; 4], session(1), Some(2));
    offers[0].price = 0.05;
    offers[0].predicted_seconds = Some(0.1);
    assert_eq!(plan(BALANCED, &offers, 1)[0], 0);
}

#[test]
fn the_saving_counts_in_each_term_of_the_score() {
    let none = PromptCacheSaving::default();
    // Savings that exceed the margin of a tie, for the offer with the cached prefix.
    for saving in [
        PromptCacheSaving { price: 0.5, ..none },
        PromptCacheSaving { seconds: 1.2, ..none },
        PromptCacheSaving { energy: 0.9, ..none },
    ] {
        for flavor in FLAVORS {
            let mut offers = candidates(&[0; 4], session(1), Some(2));
            offers[2].session.as_mut().unwrap().saving = Some(saving);
            assert_eq!(plan(*flavor, &offers, 1)[0], 2, "{saving:?} {flavor:?}");
        }
    }
    // A more expensive offer is still chosen if the saving outweighs its price.
    let mut offers = candidates(&[0; 4], session(1), Some(2));
    offers[2].price = 1.4;
    assert_eq!(plan(BALANCED, &offers, 1)[0], 2);
    offers[2].session.as_mut().unwrap().saving = Some(none);
    assert_ne!(plan(BALANCED, &offers, 1)[0], 2);
}

#[test]
fn absurd_savings_are_bounded_by_the_request() {
    for absurd in [f64::INFINITY, 1e300, f64::NAN, -1e300] {
        let mut offers = candidates(&[0; 4], session(1), Some(2));
        let saving = PromptCacheSaving { price: absurd, seconds: absurd, energy: absurd };
        offers[2].session.as_mut().unwrap().saving = Some(saving);
        let mut order = plan(BALANCED, &offers, 1);
        order.sort_unstable();
        assert_eq!(order, [0, 1, 2, 3]);
    }
}

proptest! {
    #[test]
    fn affinity_gives_no_offer_more_than_its_bound(
        in_flight in prop::collection::vec(0_u32..40, 2..9), last in 0_usize..9, number in any::<u64>(),
    ) {
        let last = (last < in_flight.len()).then_some(last);
        let with = candidates(&in_flight, session(number), last);
        let without: Vec<_> = with.iter().map(|one| Candidate { session: None, ..*one }).collect();
        let chosen = plan(BALANCED, &with, number)[0];
        let total = in_flight.iter().sum::<u32>() + 1;
        let limit = load_limit(total, 1.0 / in_flight.len() as f64);
        // An offer above its load limit can only be chosen by its score, so some seed must choose it without a
        // session too.
        let by_score = (0..200).any(|seed| plan(BALANCED, &without, seed)[0] == chosen);
        prop_assert!(in_flight[chosen] < limit || by_score, "{in_flight:?} {chosen} {limit}");
    }

    #[test]
    fn no_candidate_is_dropped_or_repeated(
        in_flight in prop::collection::vec(0_u32..40, 1..9), last in 0_usize..9, number in any::<u64>(),
    ) {
        let last = (last < in_flight.len()).then_some(last);
        for flavor in FLAVORS {
            let mut order = plan(*flavor, &candidates(&in_flight, session(number), last), number);
            order.sort_unstable();
            prop_assert_eq!(order, (0..in_flight.len()).collect::<Vec<_>>());
        }
    }
}
