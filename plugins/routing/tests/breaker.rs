//! Tests of ejection, cooldown and probes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "breaker/clients.rs"]
mod clients;

use penstock_core::{ApiError, ErrorCode, UpstreamError, UpstreamErrorKind};
use penstock_routing::breaker::{
    AttemptOutcome, BreakerClient, BreakerSettings, BreakerState, CircuitBreaker, OfferHealth,
};
use proptest::prelude::*;
use std::time::Duration;

const NOW: Duration = Duration::from_secs(1_000);
const BAD: AttemptOutcome = AttemptOutcome::Failure { retry_after: None };

fn at(millis: u64) -> Duration {
    NOW + Duration::from_millis(millis)
}

fn ejected() -> CircuitBreaker {
    let mut breaker = CircuitBreaker::default();
    for _ in 0..5 {
        breaker.on_unattributed_result(NOW, BAD);
    }
    breaker
}

#[test]
fn the_fifth_failure_in_a_row_ejects() {
    let mut breaker = CircuitBreaker::default();
    for _ in 0..4 {
        breaker.on_unattributed_result(NOW, BAD);
    }
    assert_eq!(breaker.state(NOW), BreakerState::Closed);
    breaker.on_unattributed_result(NOW, BAD);
    assert_eq!(breaker.state(NOW), BreakerState::Open { until: at(1_000) });
    assert_eq!(breaker.health(NOW), OfferHealth::Ejected { failures: 5, until: at(1_000) });
}

#[test]
fn a_success_in_between_starts_the_count_again() {
    let mut breaker = CircuitBreaker::default();
    for _ in 0..3 {
        for _ in 0..4 {
            breaker.on_unattributed_result(NOW, BAD);
        }
        breaker.on_unattributed_result(NOW, AttemptOutcome::Success);
    }
    assert_eq!(breaker.state(NOW), BreakerState::Closed);
}

#[test]
fn half_of_twenty_ejects_and_half_of_nineteen_does_not() {
    let mut breaker = CircuitBreaker::default();
    for _ in 0..9 {
        breaker.on_unattributed_result(NOW, AttemptOutcome::Success);
        breaker.on_unattributed_result(NOW, BAD);
    }
    breaker.on_unattributed_result(NOW, BAD);
    assert_eq!(breaker.state(NOW), BreakerState::Closed, "19 attempts, 10 failed: too few to tell");
    breaker.on_unattributed_result(NOW, AttemptOutcome::Success);
    breaker.on_unattributed_result(NOW, BAD);
    assert_ne!(breaker.state(NOW), BreakerState::Closed);
}

#[test]
fn failures_of_long_ago_do_not_count_towards_the_share() {
    let mut breaker = CircuitBreaker::default();
    for round in 0..40 {
        breaker.on_unattributed_result(at(round * 60_000), BAD);
        breaker.on_unattributed_result(at(round * 60_000), AttemptOutcome::Success);
    }
    assert_eq!(breaker.state(at(40 * 60_000)), BreakerState::Closed);
    assert!(breaker.failure_ratio(at(40 * 60_000)) < 1e-9);
}

#[test]
fn client_and_gateway_errors_never_count_as_provider_failures() {
    let mut breaker = CircuitBreaker::default();
    let caller = UpstreamError::caller_error(ApiError::new(ErrorCode::InvalidRequest));
    for kind in [
        UpstreamErrorKind::Caller,
        UpstreamErrorKind::DeadlineExceeded,
        UpstreamErrorKind::Diverged,
        UpstreamErrorKind::NoDescriptors,
    ] {
        let fault = UpstreamError { kind, ..caller.clone() };
        for _ in 0..100 {
            breaker.on_unattributed_result(NOW, AttemptOutcome::from(&fault));
        }
    }
    assert_eq!(breaker.health(NOW), OfferHealth::Healthy);
    assert!(breaker.is_stable(NOW));
    assert!(breaker.failure_ratio(NOW) < 1e-9);
}

#[test]
fn every_fault_of_a_provider_counts() {
    let kinds = [
        UpstreamErrorKind::Connect,
        UpstreamErrorKind::Tls,
        UpstreamErrorKind::Reset,
        UpstreamErrorKind::FirstByteTimeout,
        UpstreamErrorKind::FirstTokenTimeout,
        UpstreamErrorKind::IdleTimeout,
        UpstreamErrorKind::Status(500),
        UpstreamErrorKind::Status(503),
        UpstreamErrorKind::Credentials(401),
        UpstreamErrorKind::Malformed,
        UpstreamErrorKind::InBandError,
        UpstreamErrorKind::Truncated,
    ];
    for kind in kinds {
        assert_eq!(AttemptOutcome::from(&UpstreamError::new(kind)), BAD, "{kind:?}");
    }
}

#[test]
fn an_ejection_ends_in_a_trial_with_one_probe_at_a_time() {
    let mut breaker = ejected();
    assert!(breaker.try_acquire(at(999)).is_none());
    assert_eq!(breaker.health(at(1_000)), OfferHealth::HalfOpen);
    assert!(breaker.try_acquire(at(1_000)).is_some());
    assert!(breaker.try_acquire(at(1_001)).is_none(), "the seat is taken");
    assert!(matches!(breaker.health(at(1_001)), OfferHealth::Ejected { .. }));
    breaker.on_unattributed_result(at(1_500), AttemptOutcome::Success);
    assert_eq!(breaker.state(at(1_500)), BreakerState::HalfOpen);
    assert!(breaker.try_acquire(at(1_600)).is_some());
    breaker.on_unattributed_result(at(1_700), AttemptOutcome::Success);
    assert_eq!(breaker.state(at(1_700)), BreakerState::Closed);
    assert_eq!(breaker.health(at(1_700)), OfferHealth::Healthy);
}

#[test]
fn a_failed_probe_ejects_for_twice_as_long_up_to_the_longest() {
    let mut breaker = ejected();
    let mut now = NOW;
    for seconds in [1, 2, 4, 8, 10, 10] {
        let BreakerState::Open { until } = breaker.state(now) else { panic!("not open at {now:?}") };
        assert_eq!(until - now, Duration::from_secs(seconds));
        now = until;
        assert!(breaker.try_acquire(now).is_some());
        breaker.on_unattributed_result(now, BAD);
    }
}

#[test]
fn a_closing_forgets_the_backoff() {
    let mut breaker = ejected();
    assert!(breaker.try_acquire(at(1_000)).is_some());
    breaker.on_unattributed_result(at(1_000), BAD);
    for _ in 0..2 {
        assert!(breaker.try_acquire(at(3_000)).is_some());
        breaker.on_unattributed_result(at(3_000), AttemptOutcome::Success);
    }
    for _ in 0..5 {
        breaker.on_unattributed_result(at(3_000), BAD);
    }
    assert_eq!(breaker.state(at(3_000)), BreakerState::Open { until: at(4_000) });
}

#[test]
fn a_probe_releases_its_slot_when_its_client_disconnects() {
    let mut breaker = ejected();
    assert!(breaker.try_acquire(at(1_000)).is_some());
    breaker.on_unattributed_result(at(1_100), AttemptOutcome::Neutral);
    assert!(breaker.try_acquire(at(1_200)).is_some());
}

#[test]
fn a_lost_probe_releases_its_slot_eventually() {
    let mut breaker = ejected();
    assert!(breaker.try_acquire(at(1_000)).is_some());
    assert!(breaker.try_acquire(at(60_999)).is_none());
    assert!(breaker.try_acquire(at(61_000)).is_some());
}

#[test]
fn a_late_failure_of_an_attempt_from_before_does_not_prolong_the_ejection() {
    let mut breaker = ejected();
    for _ in 0..50 {
        breaker.on_unattributed_result(at(900), BAD);
        breaker.on_unattributed_result(at(1_100), BAD);
    }
    assert_eq!(breaker.state(at(1_100)), BreakerState::HalfOpen);
}

#[test]
fn results_of_attempts_from_before_the_ejection_are_no_probes() {
    // Five attempts are in flight when five others fail.
    let in_flight = |outcome, late: u64| {
        let mut breaker = CircuitBreaker::default();
        let old: Vec<_> = (0..5).map(|_| breaker.try_acquire(NOW).unwrap()).collect();
        for _ in 0..5 {
            breaker.on_unattributed_result(NOW, BAD);
        }
        for admission in &old {
            breaker.on_attempt_result(at(late), *admission, outcome, None);
        }
        (breaker, old)
    };
    let (breaker, _) = in_flight(AttemptOutcome::Success, 500);
    assert_eq!(breaker.state(at(999)), BreakerState::Open { until: at(1_000) }, "it is not closed");
    let (mut breaker, old) = in_flight(BAD, 500);
    let probe = breaker.try_acquire(at(1_000)).unwrap();
    for admission in old {
        breaker.on_attempt_result(at(1_100), admission, BAD, None);
        assert_eq!(breaker.state(at(1_100)), BreakerState::HalfOpen, "nor opened again");
        breaker.on_attempt_result(at(1_100), admission, AttemptOutcome::Success, None);
        assert_eq!(breaker.state(at(1_100)), BreakerState::HalfOpen);
        assert!(breaker.try_acquire(at(1_100)).is_none(), "the permit of the probe stays taken");
    }
    breaker.on_provider_unreachable(at(1_200));
    assert_eq!(breaker.state(at(1_200)), BreakerState::HalfOpen);
    breaker.on_attempt_result(at(1_300), probe, AttemptOutcome::Success, None);
    let second = breaker.try_acquire(at(1_300)).unwrap();
    breaker.on_attempt_result(at(1_400), second, BAD, None);
    assert!(matches!(breaker.state(at(1_400)), BreakerState::Open { .. }));
    // A probe of the earlier trial ends during the next one.
    let third = breaker.try_acquire(at(10_000)).unwrap();
    breaker.on_attempt_result(at(10_100), probe, AttemptOutcome::Success, None);
    breaker.on_attempt_result(at(10_100), second, AttemptOutcome::Success, None);
    assert_eq!(breaker.state(at(10_100)), BreakerState::HalfOpen);
    breaker.on_attempt_result(at(10_200), third, AttemptOutcome::Success, None);
    assert!(breaker.try_acquire(at(10_300)).is_some());
    breaker.on_unattributed_result(at(10_400), AttemptOutcome::Success);
    assert_eq!(breaker.state(at(10_400)), BreakerState::Closed);
}

#[test]
fn a_last_resort_attempt_holds_no_permit() {
    let mut breaker = ejected();
    let probe = breaker.try_acquire(at(1_000)).unwrap();
    let forced = breaker.last_resort_admission();
    breaker.on_attempt_result(at(1_100), forced, AttemptOutcome::Neutral, None);
    assert!(breaker.try_acquire(at(1_200)).is_none(), "the probe is still in flight");
    breaker.on_attempt_result(at(1_300), forced, AttemptOutcome::Success, None);
    breaker.on_attempt_result(at(1_400), probe, AttemptOutcome::Success, None);
    assert_eq!(breaker.state(at(1_400)), BreakerState::Closed, "both attempts began after the ejection");
}

#[test]
fn a_last_resort_attempt_that_works_is_as_good_as_a_probe() {
    let mut breaker = ejected();
    breaker.on_unattributed_result(at(10), AttemptOutcome::Success);
    assert_eq!(breaker.state(at(10)), BreakerState::HalfOpen);
    breaker.on_unattributed_result(at(20), AttemptOutcome::Success);
    assert_eq!(breaker.state(at(20)), BreakerState::Closed);
}

#[test]
fn a_check_that_passes_begins_the_trial_but_does_not_close() {
    let mut breaker = ejected();
    breaker.on_health_check(at(100), true);
    assert_eq!(breaker.state(at(100)), BreakerState::HalfOpen);
    breaker.on_health_check(at(200), true);
    assert_eq!(breaker.state(at(200)), BreakerState::HalfOpen);
}

#[test]
fn three_failed_checks_eject_and_prolong_it_while_they_fail() {
    let mut breaker = CircuitBreaker::default();
    breaker.on_health_check(at(0), false);
    breaker.on_health_check(at(100), false);
    assert_eq!(breaker.state(at(100)), BreakerState::Closed);
    breaker.on_health_check(at(200), false);
    assert_eq!(breaker.state(at(200)), BreakerState::Open { until: at(1_200) });
    breaker.on_health_check(at(800), false);
    assert_eq!(breaker.state(at(800)), BreakerState::Open { until: at(1_800) });
}

#[test]
fn failed_checks_do_not_eject_an_offer_that_answers() {
    let mut breaker = CircuitBreaker::default();
    for round in 0..20 {
        breaker.on_health_check(at(round * 10_000), false);
        breaker.on_unattributed_result(at(round * 10_000 + 1), AttemptOutcome::Success);
    }
    assert_eq!(breaker.state(at(200_000)), BreakerState::Closed);
}

#[test]
fn retry_after_is_a_rest_and_no_ejection() {
    let mut breaker = CircuitBreaker::default();
    let fault = UpstreamError {
        retry_after: Some(Duration::from_secs(7)),
        ..UpstreamError::new(UpstreamErrorKind::Status(503))
    };
    breaker.on_unattributed_result(NOW, AttemptOutcome::from(&fault));
    assert_eq!(breaker.cooldown_until(NOW), Some(at(7_000)));
    assert_eq!(breaker.health(NOW), OfferHealth::CoolingDown { until: at(7_000) });
    assert_eq!(breaker.state(NOW), BreakerState::Closed);
    assert_eq!(breaker.health(at(7_000)), OfferHealth::Healthy);
    assert!(!breaker.is_stable(at(7_000)), "its last attempt failed");
}

#[test]
fn rate_limits_never_eject_but_make_an_offer_look_slower() {
    let mut breaker = CircuitBreaker::default();
    let limited = AttemptOutcome::from(&UpstreamError::new(UpstreamErrorKind::Status(429)));
    for _ in 0..100 {
        breaker.on_unattributed_result(NOW, limited);
    }
    assert_eq!(breaker.state(NOW), BreakerState::Closed);
    assert!(breaker.failure_ratio(NOW) > 0.9);
}

#[test]
fn rate_limits_without_retry_after_back_off() {
    let mut breaker = CircuitBreaker::default();
    let limited = AttemptOutcome::RateLimited { retry_after: None };
    let mut now = NOW;
    for seconds in [1, 2, 4, 8, 16, 30, 30] {
        breaker.on_unattributed_result(now, limited);
        assert_eq!(breaker.cooldown_until(now), Some(now + Duration::from_secs(seconds)));
        now += Duration::from_secs(seconds);
    }
    breaker.on_unattributed_result(now, AttemptOutcome::Success);
    breaker.on_unattributed_result(now, limited);
    assert_eq!(breaker.cooldown_until(now), Some(now + Duration::from_secs(1)));
}

#[test]
fn a_longer_cooldown_is_retained_and_every_cooldown_is_bounded() {
    let mut breaker = CircuitBreaker::default();
    breaker.on_unattributed_result(
        NOW,
        AttemptOutcome::RateLimited { retry_after: Some(Duration::from_secs(20)) },
    );
    breaker.on_unattributed_result(
        NOW,
        AttemptOutcome::RateLimited { retry_after: Some(Duration::from_secs(2)) },
    );
    assert_eq!(breaker.cooldown_until(NOW), Some(at(20_000)));
    breaker.on_unattributed_result(NOW, AttemptOutcome::RateLimited { retry_after: Some(Duration::MAX) });
    assert_eq!(breaker.cooldown_until(NOW), Some(NOW + BreakerSettings::default().max_cooldown));
}

/// Returns the client with this key, in the account `key / 10`.
fn client(key: u64) -> Option<BreakerClient> {
    Some(BreakerClient { key, account: key / 10 })
}
