//! Tests of the wait that a refusal states.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use super::*;
use penstock_limits::BudgetPeriod;

/// Friday, 2026-11-27, half a second after noon UTC.
const NOW: Duration = Duration::from_millis(1_795_780_800_500);

fn refused(limit: LimitKind, wait: RetryAfter) -> ApiError {
    refusal(LimitOwner::Key, &LimitExceeded { limit, retry_after: wait, maximum: 5 }, NOW)
}

#[test]
fn a_brief_wait_is_given_in_seconds_and_a_long_one_as_a_date() {
    for (wait, ending, at) in [
        (Duration::from_millis(500), "Try again in 1 s.", "2026-11-27T12:00:01Z"),
        (Duration::from_secs(60), "Try again in 60 s.", "2026-11-27T12:01:01Z"),
        (Duration::from_millis(60_001), "Try again at 2026-11-27T12:01:01Z.", "2026-11-27T12:01:01Z"),
        (Duration::from_secs(38_149), "Try again at 2026-11-27T22:35:50Z.", "2026-11-27T22:35:50Z"),
    ] {
        let refusal = refused(LimitKind::Requests, RetryAfter::After(wait));
        assert!(refusal.message.ends_with(ending), "{wait:?}: {}", refusal.message);
        assert_eq!(refusal.details["resets_at"], at, "{wait:?}");
    }
}

#[test]
fn a_budget_tells_when_it_begins_anew() {
    let midnight = Duration::from_millis(43_199_500);
    let refusal = refused(LimitKind::Budget(BudgetPeriod::Day), RetryAfter::After(midnight));
    assert!(refusal.message.ends_with("It begins anew at 2026-11-28T00:00:00Z."), "{}", refusal.message);
    assert_eq!(
        (refusal.retry_after, &refusal.details["resets_at"]),
        (Some(43_200), &"2026-11-28T00:00:00Z".into())
    );
}

#[test]
fn a_wait_without_an_end_tells_no_time() {
    for wait in [RetryAfter::OnLease, RetryAfter::OnRelease, RetryAfter::Never] {
        for limit in [LimitKind::Budget(BudgetPeriod::Month), LimitKind::Tokens, LimitKind::Concurrent] {
            let refusal = refused(limit, wait);
            assert_eq!(refusal.details.get("resets_at"), None, "{limit:?} {wait:?}");
        }
    }
    // The end of the longest possible wait can be formatted.
    let refusal = refused(LimitKind::Tokens, RetryAfter::After(Duration::MAX));
    assert!(refusal.details["resets_at"].as_str().unwrap().ends_with('Z'));
}
