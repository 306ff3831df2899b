//! Limits that several gateways share: the usage of the other gateways, and the part of each limit that this gateway
//! may use.
//!
//! Each gateway has its own meter. Once a second it synchronizes: it subtracts from its buckets what the other gateways
//! have used since the last time, so that all buckets have the level that one common bucket would have. It may use a
//! part of that level, its allowance, until the next synchronization, and reports the allowance to the others together
//! with its usage. The others do not use this amount:
//!
//! ```text
//! base      = level / 4n, at least 1 if the level exceeds n           n gateways
//! part      = base + (level − n · base) · own demand / total demand   level / n without any demand
//! allowance = min(part, level − announced allowances of the others − base for each that is silent), at least base
//! ```
//! So each gateway has a base, wherever the demand was before: a client that moves to another gateway is not refused
//! there while the level is high.
//!
//! A gateway is silent about a key that was not used there. At the first use it may take an equal part of the limit.
//! Therefore the first synchronization after the first use here leaves an equal part to each silent gateway: the key
//! may just have come into use there too. If demand moves to another gateway between two synchronizations, the limit
//! can be exceeded once, by the allowance that the first gateway still has; this becomes debt in every bucket.

use crate::token_bucket::{RetryAfter, TokenBucket};
use std::num::NonZeroU64;
use std::time::Duration;

/// Totals of one limit set of one gateway since the start of its process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// Number of admitted requests.
    pub requests: u64,
    /// Number of used tokens, estimates of open requests included.
    pub tokens: i64,
    /// Requests that were admitted or refused.
    pub wanted_requests: u64,
    /// Tokens of requests that were admitted or refused.
    pub wanted_tokens: u64,
    /// Requests in flight.
    pub in_flight: u32,
    /// Micro-credits reserved by requests in flight.
    pub reserved: u64,
    /// Amounts that may be used until the next synchronization.
    pub allowed: SharedAmounts,
}

/// Amounts of the limits that gateways share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedAmounts {
    /// Number of requests, counted toward the limit on requests per minute.
    pub requests: u64,
    /// Number of tokens, counted toward the limit on tokens per minute.
    pub tokens: u64,
    /// Number of requests that may be in flight in addition to the current ones.
    pub in_flight: u64,
}

/// Usage of the other gateways between two synchronizations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerUsage {
    /// Number of gateways, this one included.
    pub members: u32,
    /// Number of other gateways that reported no demand, because the key was not used there.
    pub silent: u32,
    /// Requests that the others admitted since the last synchronization.
    pub requests: u64,
    /// Tokens that the others used since the last synchronization; negative if estimates were too high.
    pub tokens: i64,
    /// Requests that the others admitted or refused since the last synchronization.
    pub wanted_requests: u64,
    /// Tokens of requests that the others admitted or refused since the last synchronization.
    pub wanted_tokens: u64,
    /// Requests that the others have in flight.
    pub in_flight: u32,
    /// Micro-credits that the other gateways have reserved.
    pub reserved: u64,
    /// Sum of the amounts that the others may use until their next synchronization.
    pub allowed: SharedAmounts,
}

/// State of the mutual knowledge about the use of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SharingPhase {
    /// No synchronization since the first use at this gateway: silent gateways may have begun to use the key at the
    /// same time.
    Begun,
    /// Silent gateways know that this gateway uses the key.
    #[default]
    Established,
}

/// State of a meter whose limits are shared.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedState {
    pub(crate) phase: SharingPhase,
    /// Total requests and tokens of the demand at the last synchronization.
    wanted: (u64, u64),
    /// Amounts that may be used until the next synchronization.
    pub(crate) allowed: SharedAmounts,
    /// Total requests and tokens of this gateway at the last synchronization.
    used: (u64, i64),
    /// Requests in flight at the others, including those that are left to them.
    pub(crate) in_flight: u32,
    pub(crate) reserved: u64,
}

/// Demand for one limit since the last synchronization.
#[derive(Clone, Copy)]
struct SharedDemand {
    own: u64,
    peers: u64,
    /// Sum of the allowances that the others reported.
    announced: u64,
}

impl SharingPhase {
    /// Returns the amount of a limit with this level that must be left to each silent gateway.
    fn left_to_silent(self, limit: u64, level: u64, members: u32) -> u64 {
        let members = u64::from(members.max(1));
        match self {
            Self::Begun => limit.div_ceil(members),
            Self::Established => base_part(level, members),
        }
    }
}

/// Returns the part of a level that each gateway has without demand.
fn base_part(level: u64, members: u64) -> u64 {
    (level / 4 / members).max(u64::from(level > members))
}

/// Returns the part of a level that this gateway may use until the next synchronization; `silent` is the amount left to
/// gateways that reported no demand.
fn allowance(level: u64, demand: SharedDemand, members: u32, silent: u64) -> u64 {
    let members = u64::from(members.max(1));
    let base = base_part(level, members);
    let shared = level.saturating_sub(base.saturating_mul(members));
    let total = u128::from(demand.own) + u128::from(demand.peers);
    let part = (u128::from(shared) * u128::from(demand.own)).checked_div(total);
    let part = part.map(|part| u64::try_from(part).unwrap_or(u64::MAX).saturating_add(base));
    let part = part.unwrap_or_else(|| level.div_ceil(members));
    part.min(level.saturating_sub(demand.announced.saturating_add(silent)))
}

impl SharedState {
    /// Applies the usage of the other gateways to the buckets, and computes the allowances.
    pub(crate) fn apply_peer_usage(
        &mut self,
        (requests, tokens): (&mut TokenBucket, &mut TokenBucket),
        limits: &crate::UsageLimits,
        own: &UsageTotals,
        peers: &PeerUsage,
        now: Duration,
    ) {
        let of_requests = SharedDemand {
            own: own.wanted_requests.saturating_sub(self.wanted.0),
            peers: peers.wanted_requests,
            announced: peers.allowed.requests,
        };
        let of_tokens = SharedDemand {
            own: own.wanted_tokens.saturating_sub(self.wanted.1),
            peers: peers.wanted_tokens,
            announced: peers.allowed.tokens,
        };
        self.wanted = (own.wanted_requests, own.wanted_tokens);
        self.used = (own.requests, own.tokens);
        let phase = std::mem::take(&mut self.phase);
        let allow = |limit: u64, level: u64, demand| {
            let each = phase.left_to_silent(limit, level, peers.members);
            let allowed =
                allowance(level, demand, peers.members, each.saturating_mul(u64::from(peers.silent)));
            match phase {
                SharingPhase::Begun => allowed,
                // The others leave it alone, even if two of them announced the same rest at the same time.
                SharingPhase::Established => allowed.max(base_part(level, u64::from(peers.members.max(1)))),
            }
        };
        if let Some(limit) = limits.requests {
            requests.settle(limit, 0, peers.requests, now);
            self.allowed.requests = allow(limit.get(), requests.status(limit, now).remaining, of_requests);
        }
        if let Some(limit) = limits.tokens {
            let (back, used) = split_sign(peers.tokens);
            tokens.settle(limit, back, used, now);
            self.allowed.tokens = allow(limit.get(), tokens.status(limit, now).remaining, of_tokens);
        }
        if let Some(limit) = limits.concurrent {
            let spare = u64::from(limit.get().saturating_sub(own.in_flight).saturating_sub(peers.in_flight));
            let demand = SharedDemand { announced: peers.allowed.in_flight, ..of_requests };
            self.allowed.in_flight = allow(limit.get().into(), spare, demand);
            let left = u32::try_from(spare - self.allowed.in_flight).unwrap_or(u32::MAX);
            self.in_flight = peers.in_flight.saturating_add(left);
        }
        self.reserved = peers.reserved;
    }
}

/// Splits an amount by its sign: returns the amount given back and the amount used.
const fn split_sign(amount: i64) -> (u64, u64) {
    if amount < 0 { (amount.unsigned_abs(), 0) } else { (0, amount.unsigned_abs()) }
}

/// Maximum wait for an amount that is left to others: until the next synchronization.
const MAX_SYNC_WAIT: Duration = Duration::from_secs(1);

impl SharedState {
    /// Returns the time until the next synchronization if this gateway may not admit another request before it.
    pub(crate) fn request_wait(&self, requests: u64) -> Option<RetryAfter> {
        let used = requests.saturating_sub(self.used.0);
        (used >= self.allowed.requests).then_some(RetryAfter::After(MAX_SYNC_WAIT))
    }

    /// Returns the time until the next synchronization if this gateway may not use this amount of tokens before it. An
    /// amount of more than half of the limit is admitted if half of the limit is allowed and unused, since no gateway
    /// is ever allowed the whole limit.
    pub(crate) fn token_wait(&self, limit: NonZeroU64, amount: u64, tokens: i64) -> Option<RetryAfter> {
        let used = u64::try_from(tokens.wrapping_sub(self.used.1)).unwrap_or(0);
        let left = self.allowed.tokens.saturating_sub(used);
        let half = limit.get() / 2;
        let passes = amount <= left || (amount > half && left >= half);
        (!passes).then_some(RetryAfter::After(MAX_SYNC_WAIT))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::{CostEstimate, LimitKind, UsageLimits, UsageMeter, WorkClass};
    use std::num::NonZeroU32;

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
            (1, 0, 0, 0, 3, 2, 1),
            (0, 1, 1, 0, 3, 0, 0),
            (u64::MAX, u64::MAX, u64::MAX, u64::MAX, u32::MAX, u64::MAX, 0),
            (u64::MAX, u64::MAX, 0, 0, 1, 0, u64::MAX),
            (90, 3, 3, 0, 0, 0, 56),
        ] {
            let demand = SharedDemand { own, peers, announced };
            let each = SharingPhase::Established.left_to_silent(u64::MAX, level, members);
            let allowed = allowance(level, demand, members, each.saturating_mul(silent));
            assert_eq!(allowed, expected, "{level} {own} {peers} {announced} {members} {silent}");
        }
    }

    fn limits(requests: u64) -> UsageLimits {
        UsageLimits { requests: NonZeroU64::new(requests), ..UsageLimits::default() }
    }

    #[test]
    fn gateways_where_a_key_is_first_used_at_once_admit_no_more_than_its_limit() {
        let (limits, nothing, now) = (limits(60), CostEstimate::default(), Duration::from_secs(9));
        let mut meters = vec![UsageMeter::default(); 3];
        let admit = |meters: &mut [UsageMeter]| {
            for meter in meters {
                while meter.check(&limits, &nothing, WorkClass::Request, now).is_ok() {
                    let held = meter.reserve(&limits, &nothing, WorkClass::Request, now);
                    meter.void(held, &limits, now);
                }
                meter.record_refusal(&nothing);
            }
        };
        meters.iter_mut().for_each(|meter| meter.begin_sharing(&limits, 3, now));
        admit(&mut meters);
        // All gateways exchange at the same moment, so none has read a report of another.
        let unheard = PeerUsage { members: 3, silent: 2, ..PeerUsage::default() };
        meters.iter_mut().for_each(|meter| meter.apply_peer_usage(&limits, &unheard, now));
        admit(&mut meters);
        assert_eq!(meters.iter().map(|meter| meter.totals().requests).sum::<u64>(), 60);
        // A client of one gateway has the rest after the second exchange.
        let mut alone = UsageMeter::default();
        alone.begin_sharing(&limits, 3, now);
        for expected in [20, 20, 54] {
            admit(std::slice::from_mut(&mut alone));
            assert_eq!(alone.totals().requests, expected);
            alone.apply_peer_usage(&limits, &unheard, now);
        }
    }

    #[test]
    fn requests_in_flight_elsewhere_count() {
        let limits = UsageLimits { concurrent: NonZeroU32::new(10), ..UsageLimits::default() };
        let (mut meter, nothing, now) =
            (UsageMeter::default(), CostEstimate::default(), Duration::from_secs(9));
        meter.apply_peer_usage(&limits, &PeerUsage { members: 2, in_flight: 6, ..PeerUsage::default() }, now);
        let mut open = Vec::new();
        while meter.check(&limits, &nothing, WorkClass::Request, now).is_ok() {
            open.push(meter.reserve(&limits, &nothing, WorkClass::Request, now));
        }
        assert_eq!(open.len(), 2, "half of the four that are free");
        let allowed = SharedAmounts { in_flight: 1, ..SharedAmounts::default() };
        let peers = PeerUsage { members: 2, in_flight: 6, allowed, ..PeerUsage::default() };
        meter.apply_peer_usage(&limits, &peers, now);
        while meter.check(&limits, &nothing, WorkClass::Request, now).is_ok() {
            open.push(meter.reserve(&limits, &nothing, WorkClass::Request, now));
        }
        assert_eq!(open.len(), 3, "all but the one that the other may admit");
        for held in open {
            meter.void(held, &limits, now);
        }
        meter.apply_peer_usage(
            &limits,
            &PeerUsage { members: 2, in_flight: u32::MAX, ..PeerUsage::default() },
            now,
        );
        let denied = meter.check(&limits, &nothing, WorkClass::Request, now).unwrap_err();
        assert_eq!((denied.limit, denied.maximum), (LimitKind::Concurrent, 10));
    }

    #[test]
    fn an_amount_left_to_others_is_waited_for_until_the_next_exchange() {
        let (limits, now) = (limits(100), Duration::from_secs(9));
        let mut meter = UsageMeter::default();
        meter.apply_peer_usage(&limits, &PeerUsage { members: 4, ..PeerUsage::default() }, now);
        for _ in 0..25 {
            assert_eq!(meter.check(&limits, &CostEstimate::default(), WorkClass::Request, now), Ok(()));
            let held = meter.reserve(&limits, &CostEstimate::default(), WorkClass::Request, now);
            meter.void(held, &limits, now);
        }
        let denied = meter.check(&limits, &CostEstimate::default(), WorkClass::Request, now).unwrap_err();
        assert_eq!(denied.retry_after, RetryAfter::After(MAX_SYNC_WAIT));
    }

    #[test]
    fn a_request_of_most_of_the_tokens_passes_once_its_gateway_has_most_of_the_demand() {
        let (limits, now) = (
            UsageLimits { tokens: NonZeroU64::new(1_000), ..UsageLimits::default() },
            Duration::from_secs(9),
        );
        let mut meter = UsageMeter::default();
        let most = CostEstimate { input: 10, output: 990, ..CostEstimate::default() };
        meter.begin_sharing(&limits, 3, now);
        assert!(meter.check(&limits, &most, WorkClass::Request, now).is_err(), "a third");
        meter.record_refusal(&most);
        meter.apply_peer_usage(&limits, &PeerUsage { members: 3, silent: 2, ..PeerUsage::default() }, now);
        assert!(
            meter.check(&limits, &most, WorkClass::Request, now).is_err(),
            "the others may have begun too"
        );
        meter.record_refusal(&most);
        meter.apply_peer_usage(&limits, &PeerUsage { members: 3, silent: 2, ..PeerUsage::default() }, now);
        assert_eq!(meter.check(&limits, &most, WorkClass::Request, now), Ok(()));
        let held = meter.reserve(&limits, &most, WorkClass::Request, now);
        assert!(meter.check(&limits, &most, WorkClass::Request, now).is_err());
        meter.void(held, &limits, now);
    }
}
