//! Tests of the failures of single clients: in some cases they count against an offer, in others not.

use super::*;

#[test]
fn a_repeated_failing_request_of_one_client_ejects_no_provider() {
    for (poison, other) in [(10, 20), (10, 11)] {
        let mut breaker = CircuitBreaker::default();
        // A hundred failures a second for a minute; another client succeeds every nine seconds.
        for tick in 0..6_000 {
            if tick % 900 == 0 {
                breaker.on_client_result(at(tick * 10), AttemptOutcome::Success, client(other));
            }
            breaker.on_client_result(at(tick * 10), BAD, client(poison));
            assert_eq!(
                breaker.state(at(tick * 10)),
                BreakerState::Closed,
                "tick {tick}, {poison} and {other}"
            );
        }
        assert!(breaker.failure_ratio(at(60_000)) < 0.4, "others are not sent elsewhere either");
    }
}

#[test]
fn two_keys_of_an_account_that_fail_are_one_client_and_two_accounts_are_not() {
    let run = |second: u64| {
        let mut breaker = CircuitBreaker::default();
        breaker.on_client_result(NOW, AttemptOutcome::Success, client(50));
        for key in [10, second, 10, second, 10, second] {
            breaker.on_client_result(at(100), BAD, client(key));
        }
        breaker.state(at(100))
    };
    assert_eq!(run(11), BreakerState::Closed);
    assert!(matches!(run(20), BreakerState::Open { .. }), "two accounts fail, and nobody was answered since");
}

#[test]
fn an_outage_with_one_client_is_found_at_once() {
    let mut breaker = CircuitBreaker::default();
    for _ in 0..50 {
        breaker.on_client_result(NOW, AttemptOutcome::Success, client(10));
    }
    for failure in 1..=5 {
        assert_eq!(breaker.state(at(failure)), BreakerState::Closed);
        breaker.on_client_result(at(failure), BAD, client(10));
    }
    assert!(matches!(breaker.state(at(5)), BreakerState::Open { .. }));
}

#[test]
fn an_outage_with_several_clients_is_found_when_the_second_fails_or_the_last_good_answer_is_old() {
    let dying = || {
        let mut breaker = CircuitBreaker::default();
        breaker.on_client_result(NOW, AttemptOutcome::Success, client(20));
        for millis in 0..100 {
            breaker.on_client_result(at(millis), BAD, client(10));
        }
        assert_eq!(breaker.state(at(100)), BreakerState::Closed);
        breaker
    };
    let mut second = dying();
    second.on_client_result(at(101), BAD, client(20));
    assert!(matches!(second.state(at(101)), BreakerState::Open { .. }));
    let mut alone = dying();
    alone.on_client_result(at(10_000), BAD, client(10));
    assert_eq!(alone.state(at(10_000)), BreakerState::Closed, "ten seconds are not over");
    alone.on_client_result(at(10_001), BAD, client(10));
    assert!(matches!(alone.state(at(10_001)), BreakerState::Open { .. }));
}

#[test]
fn failures_that_no_request_can_cause_always_count() {
    let mut breaker = CircuitBreaker::default();
    breaker.on_client_result(NOW, AttemptOutcome::Success, client(20));
    for _ in 0..5 {
        breaker.on_client_result(at(1), BAD, None);
    }
    assert!(matches!(breaker.state(at(1)), BreakerState::Open { .. }));
    let mut other = CircuitBreaker::default();
    other.on_client_result(NOW, AttemptOutcome::Success, client(20));
    (0..5).for_each(|_| other.on_provider_unreachable(at(1)));
    assert!(
        matches!(other.state(at(1)), BreakerState::Open { .. }),
        "a connection that fails is every offer's"
    );
}

#[test]
fn a_busy_offer_of_which_a_third_client_fails_now_and_then_is_not_ejected_by_one_either() {
    let mut breaker = CircuitBreaker::default();
    for tick in 0..3_000 {
        let now = at(tick * 10);
        breaker.on_client_result(now, BAD, client(10));
        if tick % 3 == 0 {
            breaker.on_client_result(now, AttemptOutcome::Success, client(20 + tick % 90));
        }
        if tick % 100 == 50 {
            breaker.on_client_result(now, BAD, client(20 + tick % 90));
        }
        assert_eq!(breaker.state(now), BreakerState::Closed, "tick {tick}");
    }
}

#[test]
fn one_client_s_request_does_not_end_a_trial_that_goes_well_for_others() {
    let mut breaker = ejected();
    assert!(breaker.try_acquire(at(1_000)).is_some());
    breaker.on_client_result(at(1_000), AttemptOutcome::Success, client(20));
    assert!(breaker.try_acquire(at(1_100)).is_some());
    breaker.on_client_result(at(1_100), BAD, client(10));
    assert_eq!(breaker.state(at(1_100)), BreakerState::HalfOpen);
    assert!(breaker.try_acquire(at(1_200)).is_some());
    breaker.on_client_result(at(1_200), AttemptOutcome::Success, client(20));
    assert_eq!(breaker.state(at(1_200)), BreakerState::Closed);
    let mut alone = ejected();
    assert!(alone.try_acquire(at(1_000)).is_some());
    alone.on_client_result(at(1_000), BAD, client(10));
    assert!(matches!(alone.state(at(1_000)), BreakerState::Open { .. }));
}

#[test]
fn a_check_is_enough_to_be_well_and_a_failure_after_it_is_the_end_of_that() {
    let mut breaker = ejected();
    assert!(!breaker.is_considered_healthy());
    breaker.on_health_check(at(100), false);
    assert!(!breaker.is_considered_healthy());
    breaker.on_health_check(at(200), true);
    assert!(breaker.is_considered_healthy());
    assert_ne!(breaker.state(at(200)), BreakerState::Closed, "requests still come one at a time");
    breaker.on_health_check(at(300), false);
    assert!(!breaker.is_considered_healthy());
    breaker.on_health_check(at(400), true);
    assert!(breaker.try_acquire(at(500)).is_some());
    breaker.on_unattributed_result(at(500), BAD);
    assert!(!breaker.is_considered_healthy());
    breaker.on_health_check(at(600), true);
    assert!(!breaker.is_considered_healthy(), "it lists its models and fails every request");
    breaker.on_health_check(at(10_499), true);
    assert!(!breaker.is_considered_healthy());
    breaker.on_health_check(at(10_500), true);
    assert!(breaker.is_considered_healthy(), "nobody has failed there for as long as the longest ejection");
}

proptest! {
    #[test]
    fn a_probe_is_admitted_after_thirty_quiet_seconds(
        events in proptest::collection::vec((0..10_u8, 0..5_000_u64), 0..200),
    ) {
        let mut breaker = CircuitBreaker::default();
        let mut now = NOW;
        for (event, gap) in events {
            now += Duration::from_millis(gap);
            match event {
                0 => breaker.on_unattributed_result(now, AttemptOutcome::Success),
                1 | 2 => breaker.on_unattributed_result(now, BAD),
                3 => breaker.on_unattributed_result(now, AttemptOutcome::RateLimited { retry_after: None }),
                4 => breaker.on_unattributed_result(now, AttemptOutcome::Neutral),
                5 => breaker.on_health_check(now, false),
                7 => breaker.on_client_result(now, BAD, client(gap % 40)),
                8 => breaker.on_client_result(now, AttemptOutcome::Success, client(gap % 40)),
                6 => breaker.on_health_check(now, true),
                _ => { let _ = breaker.try_acquire(now).is_some(); }
            }
            let healthy = breaker.health(now) == OfferHealth::Healthy;
            prop_assert!(!healthy || breaker.state(now) == BreakerState::Closed);
        }
        now += Duration::from_secs(60);
        prop_assert!(matches!(breaker.health(now), OfferHealth::Healthy | OfferHealth::HalfOpen));
        prop_assert!(breaker.try_acquire(now).is_some());
    }
}
