//! Tests of `details.attempts`, the list of failed attempts in an error for customers.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use penstock_core::{UpstreamError, UpstreamErrorKind};
use penstock_routing::{AttemptPolicy, PlannedOffer, RetryBudget, RetryPlanner};
use std::time::Duration;

const NOW: Duration = Duration::from_secs(1_000);

fn at(millis: u64) -> Duration {
    NOW + Duration::from_millis(millis)
}

#[test]
fn the_details_name_provider_reason_and_milliseconds() {
    let (mut course, mut budget) = (
        RetryPlanner::new((0..3).map(|offer| PlannedOffer::new(offer, offer)), AttemptPolicy::default(), 1),
        RetryBudget::new(),
    );
    course.first_step(NOW);
    course.on_failure(&UpstreamError::new(UpstreamErrorKind::Status(503)), at(120), &mut budget);
    course.on_failure(&UpstreamError::new(UpstreamErrorKind::FirstByteTimeout), at(150), &mut budget);
    let names = ["alpha-fr", "beta-de", "gamma-nl"];
    let expected = serde_json::json!([
        {"provider": "alpha-fr", "reason": "unavailable", "ms": 120},
        {"provider": "beta-de", "reason": "timeout", "ms": 30},
    ]);
    assert_eq!(course.failed_attempts_json(|provider| names[provider]), expected);
}

#[test]
fn customers_read_one_of_four_reasons_and_nothing_of_our_key() {
    for (kind, reason) in [
        (UpstreamErrorKind::Connect, "unavailable"),
        (UpstreamErrorKind::Tls, "unavailable"),
        (UpstreamErrorKind::Reset, "unavailable"),
        (UpstreamErrorKind::Status(500), "unavailable"),
        (UpstreamErrorKind::Status(529), "unavailable"),
        (UpstreamErrorKind::Status(428), "unavailable"),
        (UpstreamErrorKind::Status(430), "unavailable"),
        (UpstreamErrorKind::Status(429), "rate_limited"),
        (UpstreamErrorKind::Status(408), "timeout"),
        (UpstreamErrorKind::Status(504), "timeout"),
        (UpstreamErrorKind::Status(522), "timeout"),
        (UpstreamErrorKind::Status(524), "timeout"),
        (UpstreamErrorKind::Status(502), "unavailable"),
        (UpstreamErrorKind::FirstByteTimeout, "timeout"),
        (UpstreamErrorKind::FirstTokenTimeout, "timeout"),
        (UpstreamErrorKind::IdleTimeout, "timeout"),
        (UpstreamErrorKind::DeadlineExceeded, "timeout"),
        (UpstreamErrorKind::Credentials(401), "unavailable"),
        (UpstreamErrorKind::Credentials(402), "unavailable"),
        (UpstreamErrorKind::Credentials(403), "unavailable"),
        (UpstreamErrorKind::Credentials(404), "unavailable"),
        (UpstreamErrorKind::Malformed, "unavailable"),
        (UpstreamErrorKind::InBandError, "unavailable"),
        (UpstreamErrorKind::Truncated, "unavailable"),
        (UpstreamErrorKind::Diverged, "unavailable"),
        (UpstreamErrorKind::Caller, "refused"),
    ] {
        let mut course = RetryPlanner::new([PlannedOffer::new(0, 0)], AttemptPolicy::default(), 1);
        course.first_step(NOW);
        course.on_failure(&UpstreamError::new(kind), at(5), &mut RetryBudget::new());
        let details = course.failed_attempts_json(|_| "alpha-fr");
        assert_eq!(
            details,
            serde_json::json!([{"provider": "alpha-fr", "reason": reason, "ms": 5}]),
            "{kind:?}"
        );
    }
}

#[test]
fn the_operator_reads_a_status_of_a_timeout_as_a_timeout() {
    for (status, name) in [
        (408, "timeout"),
        (504, "timeout"),
        (522, "timeout"),
        (524, "timeout"),
        (429, "rate_limited"),
        (409, "status"),
        (500, "status"),
        (502, "status"),
        (503, "status"),
        (529, "status"),
    ] {
        assert_eq!(UpstreamErrorKind::Status(status).name(), name, "{status}");
    }
}
