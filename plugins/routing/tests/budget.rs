//! Tests of the retry budget: a fifth of the requests, plus three per second.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_routing::RetryBudget;
use proptest::prelude::*;
use std::time::Duration;

const NOW: Duration = Duration::from_secs(5_000);

fn drain(budget: &mut RetryBudget, now: Duration) -> u64 {
    let mut granted = 0;
    while budget.try_spend(now) {
        granted += 1;
    }
    granted
}

#[test]
fn a_quiet_gateway_may_retry_three_times_a_second() {
    let mut budget = RetryBudget::new();
    assert_eq!(drain(&mut budget, NOW), 30);
    assert_eq!(drain(&mut budget, NOW + Duration::from_secs(9)), 0);
    assert_eq!(drain(&mut budget, NOW + Duration::from_secs(10)), 30);
}

#[test]
fn a_busy_gateway_may_retry_a_fifth_of_its_requests() {
    let mut budget = RetryBudget::new();
    for _ in 0..1_000 {
        budget.on_request(NOW);
    }
    assert_eq!(budget.remaining(NOW), 230);
    assert_eq!(drain(&mut budget, NOW), 230);
    for _ in 0..4 {
        budget.on_request(NOW);
    }
    assert!(!budget.try_spend(NOW), "four requests earn four fifths of one");
    budget.on_request(NOW);
    assert!(budget.try_spend(NOW));
}

proptest! {
    #[test]
    fn under_total_failure_providers_see_no_more_than_the_budget(
        arrivals in proptest::collection::vec(0..600_u64, 1..400),
    ) {
        let mut budget = RetryBudget::new();
        let mut log: Vec<(Duration, bool)> = Vec::new();
        let mut now = NOW;
        for gap in arrivals {
            now += Duration::from_millis(gap);
            budget.on_request(now);
            log.push((now, false));
            for _ in 0..3 {
                if budget.try_spend(now) {
                    log.push((now, true));
                }
            }
        }
        let count = |retry, from, to| {
            log.iter().filter(|(at, is)| *is == retry && (from..=to).contains(&at.as_secs())).count() as u64
        };
        for end in log.iter().filter(|(_, retry)| *retry).map(|(at, _)| at.as_secs()) {
            prop_assert!(count(true, end - 9, end) * 10 <= count(false, end - 9, end) * 2 + 300);
        }
        let (first, last) = (NOW.as_secs(), now.as_secs());
        let tens = (last - first) / 10 + 1;
        prop_assert!(count(true, first, last) * 10 <= count(false, first, last) * 2 + 300 * tens);
    }
}
