//! Limits that several gateways share: usage of the others, and the part of each limit that is held back for them.
//!
//! Each gateway has a meter of its own. Now and then it subtracts from its buckets what the others used since, so all
//! buckets have the level that one bucket for all would have. Until the next exchange it leaves a part of the level to
//! the others: in proportion to the demand of each, and at most what it would leave if the demand were equal.
//!
//! ```text
//! held back = level · (1 − max(own demand / total demand, 1 / members))
//! ```
//! Usage over the limit in between becomes debt of every bucket, so more than the limit passes only once and not for long.

use crate::token_bucket::TokenBucket;
use std::num::NonZeroU64;
use std::time::Duration;

/// Totals of one limit set of one gateway since the start of its process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// Admitted requests.
    pub requests: u64,
    /// Tokens, estimates of open requests included.
    pub tokens: i64,
    /// Requests that were admitted or refused.
    pub wanted_requests: u64,
    /// Tokens of requests that were admitted or refused.
    pub wanted_tokens: u64,
    /// Requests in flight.
    pub in_flight: u32,
    /// Micro-credits reserved by requests in flight.
    pub reserved: u64,
}

/// Usage of the other gateways between two exchanges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerUsage {
    /// Number of gateways, this one included.
    pub members: u32,
    /// Number of other gateways of which there is no new report since the last exchange.
    pub stale: u32,
    /// Requests that the others admitted since the last exchange.
    pub requests: u64,
    /// Tokens that the others used since the last exchange; negative if estimates were too high.
    pub tokens: i64,
    /// Requests that the others admitted or refused since the last exchange.
    pub wanted_requests: u64,
    /// Tokens of requests that the others admitted or refused since the last exchange.
    pub wanted_tokens: u64,
    /// Requests that the others have in flight.
    pub in_flight: u32,
    /// Micro-credits reserved by them.
    pub reserved: u64,
}

/// State of a meter whose limits are shared.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedState {
    /// Demand at the last exchange.
    wanted: (u64, u64),
    /// Amounts held back in the buckets.
    pub(crate) requests: u64,
    pub(crate) tokens: u64,
    /// Requests in flight of the others, and those held back for them.
    pub(crate) in_flight: u32,
    pub(crate) reserved: u64,
}

/// Amount that stays held back for gateways without a new report: they may have used the part that was left to them.
fn still_held(held: u64, peers: &PeerUsage) -> u64 {
    let others = u64::from(peers.members.saturating_sub(1).max(1));
    let stale = u64::from(peers.stale).min(others);
    u64::try_from(u128::from(held) * u128::from(stale) / u128::from(others)).unwrap_or(held)
}

/// Part of a level that is held back for others with `peers` of the demand.
fn held_back(level: u64, own: u64, peers: u64, members: u32) -> u64 {
    let members = u128::from(members.max(1));
    let total = u128::from(own) + u128::from(peers);
    let (level, peers) = (u128::from(level), u128::from(peers));
    let equal = level - level.div_ceil(members);
    let held = (level * peers).checked_div(total).map_or(equal, |part| part.min(equal));
    u64::try_from(held).unwrap_or(u64::MAX)
}

impl SharedState {
    /// Applies the usage of the other gateways to the buckets, and computes what is held back.
    pub(crate) fn exchange(
        &mut self,
        (requests, tokens): (&mut TokenBucket, &mut TokenBucket),
        limits: &crate::UsageLimits,
        own: &UsageTotals,
        peers: &PeerUsage,
        now: Duration,
    ) {
        let wanted = (
            own.wanted_requests.saturating_sub(self.wanted.0),
            own.wanted_tokens.saturating_sub(self.wanted.1),
        );
        self.wanted = (own.wanted_requests, own.wanted_tokens);
        self.requests = limits.requests.map_or(0, |limit| {
            requests.settle(limit, 0, peers.requests, now);
            let (held, level) = (still_held(self.requests, peers), requests.status(limit, now).remaining);
            let level = level.saturating_sub(held);
            held.saturating_add(held_back(level, wanted.0, peers.wanted_requests, peers.members))
        });
        self.tokens = limits.tokens.map_or(0, |limit| {
            let (back, used) = split_sign(peers.tokens);
            tokens.settle(limit, back, used, now);
            let (held, level) = (still_held(self.tokens, peers), tokens.status(limit, now).remaining);
            let level = level.saturating_sub(held);
            held.saturating_add(held_back(level, wanted.1, peers.wanted_tokens, peers.members))
        });
        self.reserved = peers.reserved;
        self.in_flight = limits.concurrent.map_or(0, |limit| {
            let taken = u64::from(own.in_flight) + u64::from(peers.in_flight);
            let spare = u64::from(limit.get()).saturating_sub(taken);
            let held = held_back(spare, wanted.0, peers.wanted_requests, peers.members);
            peers.in_flight.saturating_add(u32::try_from(held).unwrap_or(u32::MAX))
        });
    }
}

/// Returns the amounts given back and used.
const fn split_sign(amount: i64) -> (u64, u64) {
    if amount < 0 { (amount.unsigned_abs(), 0) } else { (0, amount.unsigned_abs()) }
}

/// Longest wait for an amount that is held back for others: until the next exchange.
pub(crate) const EXCHANGE_WAIT: Duration = Duration::from_secs(1);

/// Returns the wait for an amount while another is held back; at most [`EXCHANGE_WAIT`] if the level has the amount.
pub(crate) fn wait_with_held_back(
    bucket: &TokenBucket,
    limit: NonZeroU64,
    amount: u64,
    held_back: u64,
    now: Duration,
) -> Option<crate::RetryAfter> {
    let wait = bucket.retry_after(limit, amount, now);
    if wait.is_some() || held_back == 0 {
        return wait;
    }
    let remaining = bucket.status(limit, now).remaining;
    (remaining < amount.saturating_add(held_back)).then_some(crate::RetryAfter::After(EXCHANGE_WAIT))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::{CostEstimate, LimitKind, RetryAfter, UsageLimits, UsageMeter, WorkClass};
    use std::num::NonZeroU32;

    #[test]
    fn the_part_of_the_others_follows_demand_up_to_equal_parts() {
        for (level, own, peers, members, expected) in [
            (90, 0, 0, 3, 60),
            (90, 5, 0, 3, 0),
            (90, 1, 1, 3, 45),
            (90, 1, 100, 3, 60),
            (90, 100, 1, 3, 0),
            (1, 0, 0, 3, 0),
            (0, 1, 1, 3, 0),
            (u64::MAX, u64::MAX, u64::MAX, u32::MAX, u64::MAX / 2),
            (90, 3, 3, 0, 0),
        ] {
            assert_eq!(held_back(level, own, peers, members), expected, "{level} {own} {peers} {members}");
        }
    }

    fn limits(requests: u64) -> UsageLimits {
        UsageLimits { requests: NonZeroU64::new(requests), ..UsageLimits::default() }
    }

    /// Simulates `minutes` of demand by gateway in requests a second with an exchange each second; returns admitted
    /// requests.
    fn admitted(limit: u64, demand: impl Fn(u64) -> Vec<u64>, minutes: u64) -> u64 {
        let (limits, nothing) = (limits(limit), CostEstimate::default());
        let members = demand(0).len();
        let mut meters = vec![UsageMeter::default(); members];
        let mut before = vec![UsageTotals::default(); members];
        let mut passed = 0;
        for second in 0..minutes * 60 {
            let now = Duration::from_secs(1_000_000 + second);
            let totals: Vec<UsageTotals> = meters.iter().map(UsageMeter::totals).collect();
            for (own, meter) in meters.iter_mut().enumerate() {
                let mut peers =
                    PeerUsage { members: u32::try_from(members).unwrap(), ..PeerUsage::default() };
                for other in (0..members).filter(|other| *other != own) {
                    peers.requests += totals[other].requests - before[other].requests;
                    peers.wanted_requests += totals[other].wanted_requests - before[other].wanted_requests;
                }
                meter.exchange(&limits, &peers, now);
            }
            before = totals;
            for (meter, wanted) in meters.iter_mut().zip(demand(second)) {
                for n in 0..wanted {
                    let now = now + Duration::from_micros(n * 1_000_000 / wanted.max(1));
                    if meter.check(&limits, &nothing, WorkClass::Request, now).is_ok() {
                        let held = meter.reserve(&limits, &nothing, WorkClass::Request, now);
                        meter.void(held, &limits, now);
                        passed += 1;
                    } else {
                        meter.record_refusal(&nothing);
                    }
                }
            }
        }
        passed
    }

    #[test]
    fn gateways_together_admit_the_limit_under_every_skew() {
        let (limit, minutes) = (600, 10);
        // A full bucket at the start, and its refill.
        let allowed = limit * (minutes + 1);
        for demand in [vec![50, 50, 50], vec![150, 0, 0], vec![100, 5, 1], vec![20; 10], vec![1000, 1, 0]] {
            let passed = admitted(limit, |_| demand.clone(), minutes);
            let percent = passed * 1_000 / allowed;
            assert!((950..=1_050).contains(&percent), "{demand:?}: {passed} of {allowed}");
        }
        // The client moves to another gateway every five seconds.
        let moving = |second: u64| (0..3).map(|n| if second / 5 % 3 == n { 100 } else { 0 }).collect();
        let passed = admitted(limit, moving, minutes);
        assert!((950..=1_050).contains(&(passed * 1_000 / allowed)), "{passed} of {allowed}");
    }

    #[test]
    fn demand_below_the_limit_is_never_refused_once_it_is_known() {
        for demand in [vec![2, 2, 2], vec![7, 0, 0], vec![5, 1, 1]] {
            let wanted = demand.iter().sum::<u64>() * 600;
            assert_eq!(admitted(600, |_| demand.clone(), 10), wanted, "{demand:?}");
        }
    }

    #[test]
    fn a_part_stays_held_back_until_its_gateway_reports_again() {
        let (limits, nothing, now) = (limits(60), CostEstimate::default(), Duration::from_secs(9));
        let mut meter = UsageMeter::default();
        meter.begin_sharing(&limits, 3, now);
        let admit_all = |meter: &mut UsageMeter| {
            let mut passed = 0;
            while meter.check(&limits, &nothing, WorkClass::Request, now).is_ok() {
                let held = meter.reserve(&limits, &nothing, WorkClass::Request, now);
                meter.void(held, &limits, now);
                passed += 1;
            }
            passed
        };
        assert_eq!(admit_all(&mut meter), 20);
        meter.exchange(&limits, &PeerUsage { members: 3, stale: 2, ..PeerUsage::default() }, now);
        assert_eq!(admit_all(&mut meter), 0, "the others may have used the 40");
        let one =
            PeerUsage { members: 3, stale: 1, requests: 20, wanted_requests: 20, ..PeerUsage::default() };
        meter.exchange(&limits, &one, now);
        assert_eq!(admit_all(&mut meter), 0);
        meter.exchange(&limits, &PeerUsage { members: 3, stale: 0, ..PeerUsage::default() }, now);
        assert!(admit_all(&mut meter) > 0, "nobody used the last 20");
    }

    #[test]
    fn requests_in_flight_elsewhere_count() {
        let limits = UsageLimits { concurrent: NonZeroU32::new(10), ..UsageLimits::default() };
        let (mut meter, nothing, now) =
            (UsageMeter::default(), CostEstimate::default(), Duration::from_secs(9));
        meter.exchange(&limits, &PeerUsage { members: 2, in_flight: 6, ..PeerUsage::default() }, now);
        let mut open = Vec::new();
        while meter.check(&limits, &nothing, WorkClass::Request, now).is_ok() {
            open.push(meter.reserve(&limits, &nothing, WorkClass::Request, now));
        }
        assert_eq!(open.len(), 2, "half of the four that are free");
        let peers = PeerUsage { members: 2, in_flight: 6, ..PeerUsage::default() };
        meter.exchange(&limits, &peers, now);
        while meter.check(&limits, &nothing, WorkClass::Request, now).is_ok() {
            open.push(meter.reserve(&limits, &nothing, WorkClass::Request, now));
        }
        assert_eq!(open.len(), 4);
        for held in open {
            meter.void(held, &limits, now);
        }
        meter.exchange(&limits, &PeerUsage { members: 2, in_flight: u32::MAX, ..PeerUsage::default() }, now);
        let denied = meter.check(&limits, &nothing, WorkClass::Request, now).unwrap_err();
        assert_eq!((denied.limit, denied.maximum), (LimitKind::Concurrent, 10));
    }

    #[test]
    fn an_amount_held_back_is_waited_for_until_the_next_exchange() {
        let (limits, now) = (limits(100), Duration::from_secs(9));
        let mut meter = UsageMeter::default();
        meter.exchange(&limits, &PeerUsage { members: 4, ..PeerUsage::default() }, now);
        for _ in 0..25 {
            assert_eq!(meter.check(&limits, &CostEstimate::default(), WorkClass::Request, now), Ok(()));
            let held = meter.reserve(&limits, &CostEstimate::default(), WorkClass::Request, now);
            meter.void(held, &limits, now);
        }
        let denied = meter.check(&limits, &CostEstimate::default(), WorkClass::Request, now).unwrap_err();
        assert_eq!(denied.retry_after, RetryAfter::After(EXCHANGE_WAIT));
    }
}
