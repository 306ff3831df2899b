//! Tests of the failover rules, one per rule.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "course/late.rs"]
mod late;

use penstock_core::{ApiError, ErrorCode, UpstreamError, UpstreamErrorKind};
use penstock_routing::{AttemptPolicy, PlannedOffer, RetryAction, RetryBudget, RetryPlanner};
use std::time::Duration;

const NOW: Duration = Duration::from_secs(1_000);

fn at(millis: u64) -> Duration {
    NOW + Duration::from_millis(millis)
}

fn fault(kind: UpstreamErrorKind) -> UpstreamError {
    UpstreamError::new(kind)
}

fn rest(status: u16, seconds: u64) -> UpstreamError {
    UpstreamError {
        retry_after: Some(Duration::from_secs(seconds)),
        ..fault(UpstreamErrorKind::Status(status))
    }
}

/// Offers 0, 1, 2 … of providers 0, 1, 2 …
fn course(offers: usize, policy: AttemptPolicy) -> (RetryPlanner, RetryBudget) {
    (
        RetryPlanner::new((0..offers).map(|offer| PlannedOffer::new(offer, offer)), policy, 1),
        RetryBudget::new(),
    )
}

fn is_give_up(next: RetryAction) -> bool {
    matches!(next, RetryAction::GiveUp { retry_after: 1..=5 })
}

#[test]
fn the_plan_is_walked_in_order() {
    let (mut course, mut budget) = course(3, AttemptPolicy::default());
    assert_eq!(course.first_step(NOW), RetryAction::Attempt(0));
    assert_eq!(
        course.on_failure(&fault(UpstreamErrorKind::Connect), at(10), &mut budget),
        RetryAction::Attempt(1)
    );
    assert_eq!(
        course.on_failure(&fault(UpstreamErrorKind::Malformed), at(20), &mut budget),
        RetryAction::Attempt(2)
    );
    assert!(is_give_up(course.on_failure(&fault(UpstreamErrorKind::InBandError), at(30), &mut budget)));
    assert_eq!(course.started_attempt_count(), 3);
}

#[test]
fn an_empty_plan_gives_up() {
    let (mut course, _) = course(0, AttemptPolicy::default());
    assert!(is_give_up(course.first_step(NOW)));
    assert_eq!(course.started_attempt_count(), 0);
}

#[test]
fn there_are_four_attempts_and_no_more() {
    let (mut course, mut budget) = course(9, AttemptPolicy::default());
    let mut next = course.first_step(NOW);
    for offer in 0..4 {
        assert_eq!(next, RetryAction::Attempt(offer));
        next = course.on_failure(&fault(UpstreamErrorKind::Status(503)), NOW, &mut budget);
    }
    assert!(is_give_up(next));
    assert_eq!(course.failed_attempts().len(), 4);
}

#[test]
fn a_rescue_counts_as_an_attempt() {
    let (mut course, mut budget) = course(3, AttemptPolicy { max_attempts: 2, ..AttemptPolicy::default() });
    course.first_step(NOW);
    assert_eq!(
        course.on_stream_failure(&fault(UpstreamErrorKind::Truncated), NOW, &mut budget),
        RetryAction::Attempt(1)
    );
    assert!(is_give_up(course.on_stream_failure(&fault(UpstreamErrorKind::Truncated), NOW, &mut budget)));
}

#[test]
fn a_500_a_502_and_a_reset_earn_one_quick_retry() {
    for kind in [UpstreamErrorKind::Status(500), UpstreamErrorKind::Status(502), UpstreamErrorKind::Reset] {
        let (mut course, mut budget) = course(2, AttemptPolicy::default());
        course.first_step(NOW);
        let RetryAction::RetrySame { offer: 0, after } = course.on_failure(&fault(kind), NOW, &mut budget)
        else {
            panic!("no quick retry after {kind:?}")
        };
        assert!((25..=75).contains(&after.as_millis()), "{after:?}");
        assert_eq!(course.on_sleep_elapsed(NOW + after), RetryAction::Attempt(0));
        assert_eq!(
            course.on_failure(&fault(kind), at(100), &mut budget),
            RetryAction::Attempt(1),
            "only one"
        );
    }
}

#[test]
fn overload_and_everything_else_earn_none() {
    let kinds = [
        UpstreamErrorKind::Status(503),
        UpstreamErrorKind::Status(529),
        UpstreamErrorKind::Status(429),
        UpstreamErrorKind::Status(408),
        UpstreamErrorKind::Connect,
        UpstreamErrorKind::Tls,
        UpstreamErrorKind::Malformed,
        UpstreamErrorKind::InBandError,
        UpstreamErrorKind::FirstByteTimeout,
        UpstreamErrorKind::Credentials(404),
    ];
    for kind in kinds {
        let (mut course, mut budget) = course(2, AttemptPolicy::default());
        course.first_step(NOW);
        assert_eq!(course.on_failure(&fault(kind), NOW, &mut budget), RetryAction::Attempt(1), "{kind:?}");
    }
}

#[test]
fn a_failing_provider_gets_no_quick_retry() {
    let entries = [PlannedOffer { is_stable: false, ..PlannedOffer::new(0, 0) }, PlannedOffer::new(1, 1)];
    let mut course = RetryPlanner::new(entries, AttemptPolicy::default(), 1);
    course.first_step(NOW);
    assert_eq!(
        course.on_failure(&fault(UpstreamErrorKind::Reset), NOW, &mut RetryBudget::new()),
        RetryAction::Attempt(1)
    );
}

#[test]
fn the_quick_retry_is_the_provider_s_and_not_the_offer_s() {
    let mut course =
        RetryPlanner::new([PlannedOffer::new(0, 7), PlannedOffer::new(1, 7)], AttemptPolicy::default(), 1);
    let mut budget = RetryBudget::new();
    course.first_step(NOW);
    assert!(matches!(
        course.on_failure(&fault(UpstreamErrorKind::Reset), NOW, &mut budget),
        RetryAction::RetrySame { offer: 0, .. }
    ));
    assert_eq!(course.on_sleep_elapsed(at(60)), RetryAction::Attempt(0));
    assert_eq!(
        course.on_failure(&fault(UpstreamErrorKind::Reset), at(60), &mut budget),
        RetryAction::Attempt(1)
    );
    assert!(is_give_up(course.on_failure(&fault(UpstreamErrorKind::Reset), at(60), &mut budget)));
}

#[test]
fn a_rescue_prefers_others_and_takes_the_quick_retry_when_there_are_none() {
    let (mut course, mut budget) = course(2, AttemptPolicy::default());
    course.first_step(NOW);
    assert_eq!(
        course.on_stream_failure(&fault(UpstreamErrorKind::Reset), NOW, &mut budget),
        RetryAction::Attempt(1)
    );
    let next = course.on_stream_failure(&fault(UpstreamErrorKind::Reset), NOW, &mut budget);
    assert!(matches!(next, RetryAction::RetrySame { offer: 1, .. }), "{next:?}");
}

#[test]
fn no_quick_retry_past_the_deadline() {
    let (mut course, mut budget) = course(1, AttemptPolicy { deadline: at(20), ..AttemptPolicy::default() });
    course.first_step(NOW);
    assert!(is_give_up(course.on_failure(&fault(UpstreamErrorKind::Reset), NOW, &mut budget)));
}

#[test]
fn retry_after_moves_on_at_once() {
    let (mut course, mut budget) = course(2, AttemptPolicy::default());
    course.first_step(NOW);
    assert_eq!(course.on_failure(&rest(429, 2), NOW, &mut budget), RetryAction::Attempt(1));
}

#[test]
fn retry_after_on_a_500_is_honoured_instead_of_a_quick_retry() {
    let (mut course, mut budget) = course(1, AttemptPolicy::default());
    course.first_step(NOW);
    assert_eq!(course.on_failure(&rest(500, 2), NOW, &mut budget), RetryAction::WaitUntil(at(2_000)));
}

#[test]
fn a_rest_within_the_patience_is_waited_for() {
    let (mut course, mut budget) =
        course(2, AttemptPolicy { max_retry_after: Duration::from_secs(2), ..AttemptPolicy::default() });
    course.first_step(NOW);
    assert_eq!(course.on_failure(&rest(503, 2), NOW, &mut budget), RetryAction::WaitUntil(at(2_000)));
    assert_eq!(course.on_sleep_elapsed(at(2_000)), RetryAction::Attempt(0));
    assert_eq!(
        course.on_failure(&rest(503, 3), at(2_000), &mut budget),
        RetryAction::Attempt(1),
        "3 s is beyond it"
    );
}

#[test]
fn without_another_provider_the_earliest_cooldown_end_is_awaited() {
    let (mut course, mut budget) =
        course(2, AttemptPolicy { deadline: at(60_000), ..AttemptPolicy::default() });
    course.first_step(NOW);
    assert_eq!(course.on_failure(&rest(503, 9), NOW, &mut budget), RetryAction::Attempt(1));
    assert_eq!(course.on_failure(&rest(429, 4), at(100), &mut budget), RetryAction::WaitUntil(at(4_100)));
    assert_eq!(course.on_sleep_elapsed(at(4_100)), RetryAction::Attempt(1));
    assert_eq!(
        course.on_failure(&fault(UpstreamErrorKind::Status(503)), at(4_200), &mut budget),
        RetryAction::WaitUntil(at(9_000))
    );
    assert_eq!(course.on_sleep_elapsed(at(9_000)), RetryAction::Attempt(0));
}

#[test]
fn a_rest_that_outlasts_the_deadline_is_not_waited_for() {
    let (mut course, mut budget) =
        course(1, AttemptPolicy { deadline: at(3_000), ..AttemptPolicy::default() });
    course.first_step(NOW);
    assert_eq!(course.on_failure(&rest(503, 4), NOW, &mut budget), RetryAction::GiveUp { retry_after: 4 });
}

#[test]
fn the_retry_after_of_a_503_is_the_soonest_rest_within_one_to_five() {
    for (seconds, retry_after) in [(2, 2), (5, 5), (600, 5)] {
        let (mut course, mut budget) =
            course(1, AttemptPolicy { deadline: at(1_000), ..AttemptPolicy::default() });
        course.first_step(NOW);
        assert_eq!(
            course.on_failure(&rest(503, seconds), NOW, &mut budget),
            RetryAction::GiveUp { retry_after }
        );
    }
}

#[test]
fn a_provider_in_cooldown_at_the_start_is_tried_last() {
    let entries =
        [PlannedOffer { cooldown_until: Some(at(500)), ..PlannedOffer::new(0, 0) }, PlannedOffer::new(1, 1)];
    let mut course = RetryPlanner::new(entries, AttemptPolicy::default(), 1);
    assert_eq!(course.first_step(NOW), RetryAction::Attempt(1));
    let next = course.on_failure(&fault(UpstreamErrorKind::Connect), at(100), &mut RetryBudget::new());
    assert_eq!(next, RetryAction::WaitUntil(at(500)));
    assert_eq!(
        course.on_sleep_elapsed(at(499)),
        RetryAction::WaitUntil(at(500)),
        "a sleep cut short is slept on"
    );
    assert_eq!(course.on_sleep_elapsed(at(500)), RetryAction::Attempt(0));
}

#[test]
fn a_rest_holds_for_all_offers_of_the_provider() {
    let mut course = RetryPlanner::new(
        [PlannedOffer::new(0, 7), PlannedOffer::new(1, 7), PlannedOffer::new(2, 8)],
        AttemptPolicy::default(),
        1,
    );
    let mut budget = RetryBudget::new();
    course.first_step(NOW);
    assert_eq!(course.on_failure(&rest(429, 5), NOW, &mut budget), RetryAction::Attempt(2));
    assert_eq!(
        course.on_failure(&fault(UpstreamErrorKind::Connect), NOW, &mut budget),
        RetryAction::WaitUntil(at(5_000))
    );
}

#[test]
fn a_silent_offer_is_never_asked_twice_and_others_of_its_provider_come_last() {
    for kind in [
        UpstreamErrorKind::FirstByteTimeout,
        UpstreamErrorKind::FirstTokenTimeout,
        UpstreamErrorKind::IdleTimeout,
    ] {
        let mut course = RetryPlanner::new(
            [PlannedOffer::new(0, 7), PlannedOffer::new(1, 7), PlannedOffer::new(2, 8)],
            AttemptPolicy::default(),
            1,
        );
        let mut budget = RetryBudget::new();
        course.first_step(NOW);
        assert_eq!(course.on_failure(&fault(kind), NOW, &mut budget), RetryAction::Attempt(2), "{kind:?}");
        assert_eq!(
            course.on_failure(&fault(kind), NOW, &mut budget),
            RetryAction::Attempt(1),
            "one model's silence is its own"
        );
        assert!(is_give_up(course.on_failure(&fault(kind), NOW, &mut budget)));
    }
}

#[test]
fn a_fallback_model_at_the_only_provider_is_asked_after_a_silence_and_not_after_a_failed_connection() {
    for (kind, asked) in [
        (UpstreamErrorKind::FirstTokenTimeout, true),
        (UpstreamErrorKind::FirstByteTimeout, true),
        (UpstreamErrorKind::IdleTimeout, true),
        (UpstreamErrorKind::Status(503), true),
        (UpstreamErrorKind::Connect, false),
        (UpstreamErrorKind::Tls, false),
    ] {
        let mut course = RetryPlanner::new(
            [PlannedOffer::new(0, 7), PlannedOffer::new(1, 7)],
            AttemptPolicy::default(),
            1,
        );
        course.first_step(NOW);
        let next = course.on_failure(&fault(kind), NOW, &mut RetryBudget::new());
        assert_eq!(next == RetryAction::Attempt(1), asked, "{kind:?}");
        assert_eq!(is_give_up(next), !asked, "{kind:?}");
    }
}

#[test]
fn a_retryable_provider_comes_before_a_silent_offer() {
    let entries = [PlannedOffer::new(0, 8), PlannedOffer::new(1, 7), PlannedOffer::new(2, 7)];
    let mut course = RetryPlanner::new(entries, AttemptPolicy::default(), 1);
    let mut budget = RetryBudget::new();
    course.first_step(NOW);
    assert_eq!(course.on_failure(&rest(503, 1), NOW, &mut budget), RetryAction::Attempt(1));
    assert_eq!(
        course.on_failure(&fault(UpstreamErrorKind::FirstTokenTimeout), at(2_000), &mut budget),
        RetryAction::Attempt(0)
    );
    assert_eq!(
        course.on_failure(&fault(UpstreamErrorKind::Malformed), at(2_100), &mut budget),
        RetryAction::Attempt(2)
    );
}

#[test]
fn rejected_credentials_fail_over_and_401_ejects_the_whole_provider() {
    for (status, next) in [(401, 2), (403, 1), (404, 1)] {
        let mut course = RetryPlanner::new(
            [PlannedOffer::new(0, 7), PlannedOffer::new(1, 7), PlannedOffer::new(2, 8)],
            AttemptPolicy::default(),
            1,
        );
        course.first_step(NOW);
        let step =
            course.on_failure(&fault(UpstreamErrorKind::Credentials(status)), NOW, &mut RetryBudget::new());
        assert_eq!(step, RetryAction::Attempt(next), "{status}");
    }
}

#[test]
fn the_caller_s_fault_stops_at_once_and_costs_no_budget() {
    let (mut course, mut budget) = course(3, AttemptPolicy::default());
    course.first_step(NOW);
    let before = budget.remaining(NOW);
    let next = course.on_failure(
        &UpstreamError::caller_error(ApiError::new(ErrorCode::ContentRefused)),
        NOW,
        &mut budget,
    );
    assert_eq!(next, RetryAction::ReturnError);
    assert_eq!(budget.remaining(NOW), before);
}
