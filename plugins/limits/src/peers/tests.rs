//! Allowances of limits that several gateways share.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::excess::{MAX_SYNC_INTERVAL, Precedence};
use super::*;
use crate::{CostEstimate, LimitKind, RetryAfter, UsageLimits, UsageMeter, WorkClass};
use std::num::{NonZeroU32, NonZeroU64};

#[test]
fn an_allowance_follows_demand_and_leaves_what_others_announced() {
    for (level, own, peers, announced, members, silent, expected) in [
        (90, 0, 0, 60, 3, 0, 30),
        (90, 0, 0, 0, 3, 2, 30),
        (120, 5, 0, 20, 3, 0, 100),
        (120, 5, 0, 0, 3, 2, 100),
        (90, 1, 1, 45, 3, 0, 41),
        (120, 0, 7, 100, 3, 0, 10),
        (120, 0, 7, 115, 3, 0, 5),
        (120, 9, 1, 119, 3, 0, 1),
        (10, 5, 0, 0, 3, 2, 8),
        (4, 5, 0, 0, 3, 2, 2),
        (3, 5, 0, 0, 3, 2, 3),
        (1, 0, 0, 0, 3, 2, 0),
        (0, 1, 1, 0, 3, 0, 0),
        (u64::MAX, u64::MAX, u64::MAX, u64::MAX, u32::MAX, u64::MAX, 0),
        (u64::MAX, u64::MAX, 0, 0, 1, 0, u64::MAX),
        (90, 3, 3, 0, 0, 0, 56),
    ] {
        let demand = SharedDemand { own, peers, announced, receives_rest: false };
        let each = SharingPhase::Established.amount_for_silent_members(u64::MAX, level, members);
        let allowed = allowance(level, demand, members, each.saturating_mul(silent));
        assert_eq!(allowed, expected, "{level} {own} {peers} {announced} {members} {silent}");
    }
}

fn limits(requests: u64) -> UsageLimits {
    UsageLimits { requests: NonZeroU64::new(requests), ..UsageLimits::default() }
}

#[test]
fn gateways_where_a_key_is_first_used_at_once_admit_few_more_than_its_limit() {
    let (limits, nothing, now) = (limits(60), CostEstimate::default(), Duration::from_secs(9));
    let mut meters = vec![UsageMeter::default(); 3];
    let admit = |meters: &mut [UsageMeter]| {
        for meter in meters {
            while meter.check_limits(&limits, &nothing, WorkClass::Request, now).is_ok() {
                let held = meter.reserve(&limits, &nothing, WorkClass::Request, now);
                meter.void_reservation(held, &limits, now);
            }
            meter.record_refused_demand(&nothing);
        }
    };
    meters.iter_mut().for_each(|meter| meter.begin_limit_sharing(&limits, 3, now));
    admit(&mut meters);
    // All gateways exchange at the same moment, so none has read a report of another.
    let unheard = PeerUsage { members: 3, silent_peers: 2, ..PeerUsage::default() };
    meters.iter_mut().for_each(|meter| meter.apply_peer_usage(&limits, &unheard, now));
    admit(&mut meters);
    let admitted: u64 = meters.iter().map(|meter| meter.usage_totals().requests).sum();
    assert_eq!(admitted, 63, "each may exceed its allowance by one request");
    // If only one gateway serves a key, that gateway may use all but the bases of the others after the second
    // exchange.
    let mut alone = UsageMeter::default();
    alone.begin_limit_sharing(&limits, 3, now);
    for expected in [20, 21, 54] {
        admit(std::slice::from_mut(&mut alone));
        assert_eq!(alone.usage_totals().requests, expected);
        alone.apply_peer_usage(&limits, &unheard, now);
    }
}

#[test]
fn requests_in_flight_elsewhere_count() {
    let limits = UsageLimits { concurrent: NonZeroU32::new(10), ..UsageLimits::default() };
    let (mut meter, nothing, now) = (UsageMeter::default(), CostEstimate::default(), Duration::from_secs(9));
    meter.apply_peer_usage(&limits, &PeerUsage { members: 2, in_flight: 6, ..PeerUsage::default() }, now);
    let mut open = Vec::new();
    while meter.check_limits(&limits, &nothing, WorkClass::Request, now).is_ok() {
        open.push(meter.reserve(&limits, &nothing, WorkClass::Request, now));
    }
    assert_eq!(open.len(), 2, "half of the four that are free");
    let allowed = LimitAllowances { in_flight: 1, ..LimitAllowances::default() };
    let peers = PeerUsage { members: 2, in_flight: 6, allowed, ..PeerUsage::default() };
    meter.apply_peer_usage(&limits, &peers, now);
    while meter.check_limits(&limits, &nothing, WorkClass::Request, now).is_ok() {
        open.push(meter.reserve(&limits, &nothing, WorkClass::Request, now));
    }
    assert_eq!(open.len(), 3, "all but the one that the other may admit");
    for held in open {
        meter.void_reservation(held, &limits, now);
    }
    meter.apply_peer_usage(
        &limits,
        &PeerUsage { members: 2, in_flight: u32::MAX, ..PeerUsage::default() },
        now,
    );
    let denied = meter.check_limits(&limits, &nothing, WorkClass::Request, now).unwrap_err();
    assert_eq!((denied.limit, denied.maximum), (LimitKind::Concurrent, 10));
}

#[test]
fn an_amount_left_to_others_is_waited_for_until_the_next_exchange() {
    let (limits, now) = (limits(100), Duration::from_secs(9));
    let mut meter = UsageMeter::default();
    meter.apply_peer_usage(&limits, &PeerUsage { members: 4, ..PeerUsage::default() }, now);
    for _ in 0..25 {
        assert_eq!(meter.check_limits(&limits, &CostEstimate::default(), WorkClass::Request, now), Ok(()));
        let held = meter.reserve(&limits, &CostEstimate::default(), WorkClass::Request, now);
        meter.void_reservation(held, &limits, now);
    }
    let denied = meter.check_limits(&limits, &CostEstimate::default(), WorkClass::Request, now).unwrap_err();
    assert_eq!(denied.retry_after, RetryAfter::After(MAX_SYNC_INTERVAL));
}

#[test]
fn the_gateways_of_the_order_need_levels_that_suffice_for_those_before_them() {
    for (limit, amount, levels) in [
        (12, 1, [1, 2, 3]),
        (3, 1, [1, 2, 2]),
        (1, 1, [1, 1, 1]),
        (10_000, 1_000, [1_000, 2_000, 3_000]),
        (10_000, 5_000, [5_000, 7_500, 7_500]),
        (10_000, 10_000, [10_000, 10_000, 10_000]),
        (u64::MAX, u64::MAX, [u64::MAX, u64::MAX, u64::MAX]),
    ] {
        let required = [0, 1, 2].map(|position| Precedence::Calm(position).required_level(limit, amount));
        assert_eq!(required, levels, "{limit} {amount}");
    }
    let positions = |now| {
        [1, 5, 9].map(|own| {
            let peers: Vec<u32> = [1, 5, 9].into_iter().filter(|peer| *peer != own).collect();
            turn_position("key/k", own, &peers, Duration::from_secs(now))
        })
    };
    for now in (0..180).step_by(6) {
        let mut sorted = positions(now);
        assert_eq!(positions(now + 5), sorted);
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2]);
    }
}

#[test]
fn a_gateway_that_shares_a_limit_anew_after_a_pause_leaves_an_equal_part_to_others() {
    let (limits, nothing) = (limits(60), CostEstimate::default());
    let mut meter = UsageMeter::default();
    let later = |seconds: u64| Duration::from_secs(9 + seconds);
    let silent = PeerUsage { members: 3, silent_peers: 2, ..PeerUsage::default() };
    meter.begin_limit_sharing(&limits, 3, later(0));
    for seconds in 0..3 {
        let held = meter.reserve(&limits, &nothing, WorkClass::Request, later(seconds));
        meter.void_reservation(held, &limits, later(seconds));
        meter.apply_peer_usage(&limits, &silent, later(seconds));
    }
    assert_eq!(meter.usage_totals().allowed.requests, 51, "all but the bases of the others");
    for (seconds, allowed) in [(2, 51), (4, 51), (120, 20)] {
        meter.begin_limit_sharing(&limits, 3, later(seconds));
        assert_eq!(meter.usage_totals().allowed.requests, allowed, "{seconds}");
    }
    let held = meter.reserve(&limits, &nothing, WorkClass::Request, later(120));
    meter.void_reservation(held, &limits, later(120));
    meter.apply_peer_usage(&limits, &silent, later(121));
    assert_eq!(meter.usage_totals().allowed.requests, 20, "the others may have begun too");
}

#[test]
fn a_request_of_most_of_the_tokens_passes_at_a_gateway_that_used_nothing() {
    let (limits, now) =
        (UsageLimits { tokens: NonZeroU64::new(1_000), ..UsageLimits::default() }, Duration::from_secs(9));
    let most = CostEstimate { input: 10, output: 990, ..CostEstimate::default() };
    let half = CostEstimate { input: 10, output: 490, ..CostEstimate::default() };
    let mut meter = UsageMeter::default();
    meter.begin_limit_sharing(&limits, 3, now);
    let held = meter.reserve(&limits, &half, WorkClass::Request, now);
    // The level suffices for the same request, but the gateway has used more than its base.
    let denied = meter.check_limits(&limits, &half, WorkClass::Request, now).unwrap_err();
    assert_eq!(denied.retry_after, RetryAfter::After(Duration::from_secs(15)), "until the level is 750");
    meter.void_reservation(held, &limits, now);
    assert_eq!(meter.check_limits(&limits, &most, WorkClass::Request, now), Ok(()));
    // The last gateway leaves enough for a gateway before it.
    let last = PeerUsage {
        members: 3,
        tokens: 400,
        wanted_tokens: 1_000,
        position: 2,
        reserved_tokens: 100,
        ..PeerUsage::default()
    };
    meter.apply_peer_usage(&limits, &last, now);
    let denied = meter.check_limits(&limits, &half, WorkClass::Request, now).unwrap_err();
    assert_eq!(denied.retry_after, RetryAfter::After(Duration::from_secs(9)), "until the level is 750");
    meter.apply_peer_usage(&limits, &PeerUsage { tokens: 0, reserved_tokens: 150, ..last }, now);
    let denied = meter.check_limits(&limits, &half, WorkClass::Request, now).unwrap_err();
    assert_eq!(denied.retry_after, RetryAfter::After(MAX_SYNC_INTERVAL * 2), "a request may have ended");
    meter.apply_peer_usage(&limits, &PeerUsage { tokens: 0, position: 0, ..last }, now);
    assert_eq!(meter.check_limits(&limits, &half, WorkClass::Request, now), Ok(()));
}
