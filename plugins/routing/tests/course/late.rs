//! Tests of plans whose offers are in cooldown, are at their concurrency limit, or fail late.

use super::*;

#[test]
fn the_total_deadline_ends_everything() {
    let (mut first, mut budget) =
        course(3, AttemptPolicy { deadline: at(1_000), ..AttemptPolicy::default() });
    first.first_step(NOW);
    assert!(is_give_up(first.on_failure(&fault(UpstreamErrorKind::Connect), at(1_000), &mut budget)));
    let (mut second, _) = course(3, AttemptPolicy::default());
    second.first_step(NOW);
    assert!(is_give_up(second.on_failure(&fault(UpstreamErrorKind::DeadlineExceeded), NOW, &mut budget)));
}

#[test]
fn a_rescue_that_differs_ends_everything() {
    let (mut course, mut budget) = course(3, AttemptPolicy::default());
    course.first_step(NOW);
    assert_eq!(
        course.on_stream_failure(&fault(UpstreamErrorKind::Truncated), NOW, &mut budget),
        RetryAction::Attempt(1)
    );
    assert!(is_give_up(course.on_stream_failure(&fault(UpstreamErrorKind::Diverged), NOW, &mut budget)));
}

#[test]
fn an_empty_budget_stops_retries_but_not_first_attempts() {
    let (mut course, mut budget) = course(3, AttemptPolicy::default());
    while budget.try_spend(NOW) {}
    assert_eq!(course.first_step(NOW), RetryAction::Attempt(0));
    assert!(is_give_up(course.on_failure(&fault(UpstreamErrorKind::Connect), NOW, &mut budget)));
}

#[test]
fn every_retry_costs_one_of_the_budget() {
    let (mut course, mut budget) = course(3, AttemptPolicy::default());
    let full = budget.remaining(NOW);
    course.first_step(NOW);
    course.on_failure(&fault(UpstreamErrorKind::Reset), NOW, &mut budget);
    course.on_sleep_elapsed(NOW);
    course.on_failure(&fault(UpstreamErrorKind::Reset), NOW, &mut budget);
    assert_eq!(budget.remaining(NOW), full - 2);
}

#[test]
fn passing_over_an_offer_is_no_attempt() {
    let (mut course, mut budget) = course(2, AttemptPolicy { max_attempts: 1, ..AttemptPolicy::default() });
    assert_eq!(course.first_step(NOW), RetryAction::Attempt(0));
    assert_eq!(course.on_skipped(NOW), RetryAction::Attempt(1));
    assert_eq!(course.started_attempt_count(), 1);
    assert!(is_give_up(course.on_failure(&fault(UpstreamErrorKind::Connect), NOW, &mut budget)));
    assert_eq!(course.failed_attempts().len(), 1);
}

#[test]
fn a_failure_without_an_attempt_gives_up() {
    let (mut course, mut budget) = course(2, AttemptPolicy::default());
    assert!(is_give_up(course.on_failure(&fault(UpstreamErrorKind::Connect), NOW, &mut budget)));
}

#[test]
fn full_providers_are_waited_for_when_no_other_is_left() {
    let (mut course, mut budget) = course(3, AttemptPolicy::default());
    assert_eq!(course.first_step(NOW), RetryAction::Attempt(0));
    assert_eq!(course.on_provider_full(NOW), RetryAction::Attempt(1));
    assert_eq!(
        course.on_failure(&fault(UpstreamErrorKind::Status(503)), at(10), &mut budget),
        RetryAction::Attempt(2)
    );
    assert_eq!(course.on_provider_full(at(10)), RetryAction::WaitForPermit);
    assert_eq!(course.full_offers(at(10)).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(course.on_permit(2, at(500)), RetryAction::Attempt(2));
    assert_eq!(course.started_attempt_count(), 2, "a provider that was full was not asked");
    assert_eq!(
        course.on_failure(&fault(UpstreamErrorKind::Status(503)), at(510), &mut budget),
        RetryAction::WaitForPermit
    );
    assert!(is_give_up(course.on_permit_timeout(at(2_510))));
    assert!(!course.has_only_full_offers(), "others failed");
}

#[test]
fn a_cooldown_learned_by_other_requests_costs_no_attempt() {
    let (mut course, _) = course(2, AttemptPolicy::default());
    assert_eq!(course.first_step(NOW), RetryAction::Attempt(0));
    assert_eq!(course.on_cooldown(at(30_000), NOW), RetryAction::Attempt(1));
    assert_eq!(course.on_provider_full(NOW), RetryAction::WaitForPermit);
    assert_eq!(course.on_permit(1, at(10)), RetryAction::Attempt(1));
    assert_eq!(course.on_cooldown(at(20_000), at(10)), RetryAction::WaitUntil(at(20_000)));
    assert_eq!(course.started_attempt_count(), 0);
    assert_eq!(course.on_sleep_elapsed(at(20_000)), RetryAction::Attempt(1));
    assert_eq!(course.on_cooldown(at(40_000), at(20_000)), RetryAction::WaitUntil(at(30_000)));
    assert_eq!(course.on_sleep_elapsed(at(30_000)), RetryAction::Attempt(0));
    assert_eq!(course.started_attempt_count(), 1);
}

#[test]
fn a_provider_with_the_same_refusal_is_not_waited_for() {
    let resting = PlannedOffer { cooldown_until: Some(at(500)), ..PlannedOffer::new(2, 2) };
    let plan = [PlannedOffer::new(0, 0), PlannedOffer::new(1, 1), resting];
    let mut course = RetryPlanner::new(plan, AttemptPolicy::default(), 1);
    assert_eq!(course.first_step(NOW), RetryAction::Attempt(0));
    assert_eq!(course.on_provider_full(NOW), RetryAction::Attempt(1));
    assert!(course.has_alternatives());
    course.exclude_offers(|offer| offer != 1);
    assert!(is_give_up(course.on_skipped(NOW)));
    assert!(!course.has_alternatives());
}

#[test]
fn a_rest_beyond_the_deadline_is_not_waited_for() {
    let (mut course, _) = course(1, AttemptPolicy { deadline: at(10_000), ..AttemptPolicy::default() });
    course.first_step(NOW);
    assert_eq!(course.on_cooldown(at(30_000), NOW), RetryAction::GiveUp { retry_after: 5 });
}

#[test]
fn an_unsuccessful_wait_sends_no_request() {
    let (mut course, _) = course(2, AttemptPolicy::default());
    course.first_step(NOW);
    course.on_provider_full(NOW);
    assert_eq!(course.on_provider_full(NOW), RetryAction::WaitForPermit);
    assert!(is_give_up(course.on_permit_timeout(at(2_000))));
    assert!(course.has_only_full_offers() && course.started_attempt_count() == 0);
}

#[test]
fn a_full_provider_that_was_silent_elsewhere_is_waited_for_and_one_without_a_connection_is_not() {
    let entries = [PlannedOffer::new(0, 7), PlannedOffer::new(1, 7)];
    let (mut course, mut budget) =
        (RetryPlanner::new(entries, AttemptPolicy::default(), 1), RetryBudget::new());
    course.first_step(NOW);
    assert_eq!(course.on_provider_full(NOW), RetryAction::Attempt(1));
    assert_eq!(
        course.on_failure(&fault(UpstreamErrorKind::FirstByteTimeout), at(10), &mut budget),
        RetryAction::WaitForPermit
    );
    assert_eq!(course.on_permit(0, at(20)), RetryAction::Attempt(0));
    let mut course = RetryPlanner::new(entries, AttemptPolicy::default(), 1);
    course.first_step(NOW);
    assert_eq!(course.on_provider_full(NOW), RetryAction::Attempt(1));
    assert!(is_give_up(course.on_failure(&fault(UpstreamErrorKind::Connect), at(10), &mut budget)));
}
