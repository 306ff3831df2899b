//! Tests of the attempts in `details.attempts`, as customers read them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use penstock_contract::{Fault, FaultKind};
use penstock_routing::{Course, Entry, Policy, RetryBudget};
use std::time::Duration;

const NOW: Duration = Duration::from_secs(1_000);

fn at(millis: u64) -> Duration {
    NOW + Duration::from_millis(millis)
}

#[test]
fn the_details_name_provider_reason_and_milliseconds() {
    let (mut course, mut budget) =
        (Course::new((0..3).map(|offer| Entry::new(offer, offer)), Policy::default(), 1), RetryBudget::new());
    course.start(NOW);
    course.after(&Fault::new(FaultKind::Status(503)), at(120), &mut budget);
    course.after(&Fault::new(FaultKind::FirstByte), at(150), &mut budget);
    let names = ["alpha-fr", "beta-de", "gamma-nl"];
    let expected = serde_json::json!([
        {"provider": "alpha-fr", "reason": "unavailable", "ms": 120},
        {"provider": "beta-de", "reason": "timeout", "ms": 30},
    ]);
    assert_eq!(course.details(|provider| names[provider]), expected);
}

#[test]
fn customers_read_one_of_four_reasons_and_nothing_of_our_key() {
    for (kind, reason) in [
        (FaultKind::Connect, "unavailable"),
        (FaultKind::Tls, "unavailable"),
        (FaultKind::Reset, "unavailable"),
        (FaultKind::Status(500), "unavailable"),
        (FaultKind::Status(529), "unavailable"),
        (FaultKind::Status(428), "unavailable"),
        (FaultKind::Status(430), "unavailable"),
        (FaultKind::Status(429), "rate_limited"),
        (FaultKind::Status(408), "timeout"),
        (FaultKind::FirstByte, "timeout"),
        (FaultKind::FirstToken, "timeout"),
        (FaultKind::Idle, "timeout"),
        (FaultKind::Deadline, "timeout"),
        (FaultKind::Credentials(401), "unavailable"),
        (FaultKind::Credentials(402), "unavailable"),
        (FaultKind::Credentials(403), "unavailable"),
        (FaultKind::Credentials(404), "unavailable"),
        (FaultKind::Malformed, "unavailable"),
        (FaultKind::InBand, "unavailable"),
        (FaultKind::Truncated, "unavailable"),
        (FaultKind::Diverged, "unavailable"),
        (FaultKind::Caller, "refused"),
    ] {
        let mut course = Course::new([Entry::new(0, 0)], Policy::default(), 1);
        course.start(NOW);
        course.after(&Fault::new(kind), at(5), &mut RetryBudget::new());
        let told = course.details(|_| "alpha-fr");
        assert_eq!(
            told,
            serde_json::json!([{"provider": "alpha-fr", "reason": reason, "ms": 5}]),
            "{kind:?}"
        );
    }
}
