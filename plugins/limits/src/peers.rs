//! Limits that several gateways share: the usage of the other gateways, and the part of each limit that this gateway
//! may use.
//!
//! Each gateway has its own meter. Once a second it synchronizes: it subtracts from its buckets what the other
//! gateways have used since the last synchronization. So every bucket has the level that one common bucket would
//! have. Until the next synchronization the gateway may use a part of that level, its allowance. It reports the
//! allowance to the others together with its usage, and the others do not use this amount:
//!
//! ```text
//! base      = level / 4n, at least 1 if the level exceeds n           n gateways
//! part      = base + (level − n · base) · own demand / total demand   level / n without any demand
//! allowance = min(part, level − announced allowances of the others − base for each that is silent), at least base
//! ```
//! So each gateway always has at least the base, even if all demand was at other gateways before: a client that moves
//! to another gateway is not refused there while the level is high.
//!
//! Some amounts cannot be divided: a level of fewer requests than gateways, and a request of more tokens than the
//! part of its gateway. Then the gateways with demand take turns, see [`receives_remainder`]: one at a time may use
//! all that the others did not announce. In the case of the large request, the others use only their base meanwhile.
//!
//! Permits for requests in flight do not refill over time: they come back only when a request ends. A gateway that
//! starts a new request whenever one ends would never leave a permit to the others. So while another gateway has to
//! refuse requests, the gateways that do not receive the remainder admit requests only up to their part of the limit.
//!
//! A gateway reports nothing about a key that it has not served. For the first request of the key it may use an equal
//! part of the limit. Therefore the first synchronization after the first request leaves an equal part to each gateway
//! without a report: the key may just have come into use there too. If demand moves to another gateway between two
//! synchronizations, the limit can be exceeded once, by the allowance that the first gateway still has; the excess
//! becomes debt in every bucket.

use crate::token_bucket::{RetryAfter, TokenBucket};
use std::hash::{Hash, Hasher};
use std::num::NonZeroU64;
use std::time::Duration;

/// Usage of one key or account at one gateway: totals since the meter was created, and current amounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// Number of admitted requests.
    pub requests: u64,
    /// Number of used tokens, estimates of open requests included.
    pub tokens: i64,
    /// Number of requests that were admitted or refused.
    pub wanted_requests: u64,
    /// Tokens of requests that were admitted or refused.
    pub wanted_tokens: u64,
    /// Requests in flight.
    pub in_flight: u32,
    /// Micro-credits reserved by requests in flight.
    pub reserved: u64,
    /// Tokens of the largest request that was refused since the last synchronization.
    pub largest_refused: u64,
    /// Amounts that may be used until the next synchronization.
    pub allowed: LimitAllowances,
}

/// Amounts of the shared limits that one gateway, or several gateways together, may use until the next
/// synchronization.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitAllowances {
    /// Number of requests, counted toward the limit on requests per minute.
    pub requests: u64,
    /// Number of tokens, counted toward the limit on tokens per minute.
    pub tokens: u64,
    /// Number of requests that may be in flight in addition to the current ones.
    pub in_flight: u64,
}

/// Usage of the other gateways of the fleet between two synchronizations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerUsage {
    /// Number of gateways, this one included.
    pub members: u32,
    /// Number of other gateways that reported no demand, because the key was not used there.
    pub silent_peers: u32,
    /// Number of requests that the other gateways admitted since the last synchronization.
    pub requests: u64,
    /// Tokens that the other gateways used since the last synchronization; negative if estimates were too high.
    pub tokens: i64,
    /// Number of requests that the other gateways admitted or refused between their last two reports.
    pub wanted_requests: u64,
    /// Tokens of the requests that the other gateways admitted or refused between their last two reports.
    pub wanted_tokens: u64,
    /// Number of requests that the other gateways have in flight.
    pub in_flight: u32,
    /// Micro-credits that the other gateways have reserved.
    pub reserved: u64,
    /// Number of requests that the other gateways refused between their last two reports.
    pub refused_requests: u64,
    /// Largest request, in tokens, that another gateway refused between its last two reports.
    pub refused: LargestRefusedRequest,
    /// Sum of the amounts that the other gateways may use until their next synchronization.
    pub allowed: LimitAllowances,
    /// True if this gateway may use the remainder of the divided limits, see [`receives_remainder`].
    pub may_use_remainder: bool,
}

/// Largest request that a gateway refused between two reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LargestRefusedRequest {
    /// Tokens of the request; 0 if none was refused.
    pub amount: u64,
    /// Tokens of all requests that the gateway admitted or refused between the same two reports.
    pub wanted: u64,
}

/// Time for which one gateway receives the remainder of the divided limits. A change to the next gateway takes up to
/// two seconds, until both gateways have synchronized.
const REST_PERIOD: Duration = Duration::from_secs(6);

/// Returns true if the gateway `own` currently receives the remainder of the divided limits of `owner`. The gateways
/// with demand (`own` and `peers`) receive it in turn. Each round of turns begins with a different gateway: otherwise
/// requests that come at regular intervals could meet the same gateway's turn each time.
#[must_use]
pub fn receives_remainder(owner: &str, own: u32, peers: &[u32], now: Duration) -> bool {
    let before = peers.iter().filter(|peer| **peer < own).count();
    let gateways = u64::try_from(peers.len()).unwrap_or(u64::MAX).saturating_add(1);
    let period = now.as_secs() / REST_PERIOD.as_secs();
    let mut hasher = std::hash::DefaultHasher::new();
    (owner, period / gateways).hash(&mut hasher);
    let recipient = (hasher.finish() % gateways).wrapping_add(period) % gateways;
    u64::try_from(before).is_ok_and(|before| before == recipient)
}

/// Phase of limit sharing for one key. It decides how much of a limit stays reserved for gateways that report no usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SharingPhase {
    /// Phase until the first synchronization after this gateway's first use of the key: a gateway without a report may
    /// have started to use the key at the same moment.
    Begun,
    /// Phase in which the gateways without a report know that this gateway uses the key.
    #[default]
    Established,
}

/// State of a meter whose limits are shared.
#[derive(Clone, Debug, Default)]
pub(crate) struct MeterSharingState {
    pub(crate) phase: SharingPhase,
    /// Totals of requests and tokens of the demand, as of the last synchronization.
    wanted: (u64, u64),
    /// Amounts that may be used until the next synchronization.
    pub(crate) allowed: LimitAllowances,
    /// Totals of requests and tokens used by this gateway, as of the last synchronization.
    used: (u64, i64),
    /// Requests in flight at the other gateways, including the ones that they may still admit.
    pub(crate) in_flight: u32,
    pub(crate) reserved: u64,
    /// Tokens of the largest request that was refused between the last two synchronizations.
    pub(crate) largest_refused: u64,
}

/// Demand for one limit since the last synchronization.
#[derive(Clone, Copy)]
struct SharedDemand {
    own: u64,
    peers: u64,
    /// Sum of the allowances that the other gateways reported.
    announced: u64,
    division: Division,
}

/// Division of the level of a limit between the gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Division {
    /// Each gateway gets a part in proportion to its demand. If the level is at most the number of gateways, the
    /// gateway with `receives_rest` gets all that the others did not announce.
    ByDemand { receives_rest: bool },
    /// All that the other gateways did not announce.
    Rest,
    /// Only the base part, because another gateway receives the remainder.
    Base,
}

impl SharingPhase {
    /// Returns the amount of a limit that must be left to each gateway that reported no demand.
    fn amount_for_silent_members(self, limit: u64, level: u64, members: u32) -> u64 {
        let members = u64::from(members.max(1));
        match self {
            Self::Begun => equal_share(limit, members),
            Self::Established => base_share(level, members),
        }
    }
}

/// Returns the base: the part of a level that each gateway has even without demand.
fn base_share(level: u64, members: u64) -> u64 {
    (level / 4 / members).max(u64::from(level > members))
}

/// Returns an equal part of an amount, at least 1, so that each gateway admits a first request even if the limit is
/// smaller than the number of gateways.
fn equal_share(amount: u64, members: u64) -> u64 {
    (amount / members).max(u64::from(amount > 0))
}

/// Returns the part of a level that a gateway with this share of the demand gets: its base, and the rest by demand;
/// `None` if there is no demand.
fn share_by_demand(level: u64, members: u64, own: u64, total: u128) -> Option<u64> {
    let base = base_share(level, members);
    let shared = level.saturating_sub(base.saturating_mul(members));
    let part = (u128::from(shared) * u128::from(own)).checked_div(total)?;
    Some(u64::try_from(part).unwrap_or(u64::MAX).saturating_add(base))
}

impl SharedDemand {
    fn total(&self) -> u128 {
        u128::from(self.own) + u128::from(self.peers)
    }
}

/// Returns the part of a level that this gateway may use until the next synchronization; `silent` is the amount left to
/// gateways that reported no demand.
fn allowance(level: u64, demand: SharedDemand, members: u32, silent: u64) -> u64 {
    let members = u64::from(members.max(1));
    let rest = level.saturating_sub(demand.announced.saturating_add(silent));
    let part = match demand.division {
        Division::ByDemand { receives_rest: true } if level <= members && demand.own > 0 => rest,
        Division::ByDemand { .. } => share_by_demand(level, members, demand.own, demand.total())
            .unwrap_or_else(|| equal_share(level, members)),
        Division::Rest => rest,
        Division::Base => base_share(level, members),
    };
    part.min(rest)
}

/// Returns the division of a token limit. If a gateway refused a request that is larger than its part of the whole
/// limit, one gateway receives all that the others did not announce. For a request of more than half of the limit,
/// half of the limit suffices.
fn division_of_tokens(
    limit: u64,
    demand: [LargestRefusedRequest; 2],
    total: u128,
    peers: &PeerUsage,
) -> Division {
    let members = u64::from(peers.members.max(1));
    let exceeds_part = |refused: &LargestRefusedRequest| {
        let part = share_by_demand(limit, members, refused.wanted, total).unwrap_or(limit);
        refused.amount.min(limit / 2) > part
    };
    match (demand.iter().any(exceeds_part), peers.may_use_remainder) {
        (false, receives_rest) => Division::ByDemand { receives_rest },
        (true, true) => Division::Rest,
        (true, false) => Division::Base,
    }
}

impl MeterSharingState {
    /// Applies the usage of the other gateways to the buckets, and computes the allowances.
    pub(crate) fn apply_peer_usage(
        &mut self,
        (requests, tokens): (&mut TokenBucket, &mut TokenBucket),
        limits: &crate::UsageLimits,
        own: &UsageTotals,
        peers: &PeerUsage,
        now: Duration,
    ) {
        let division = Division::ByDemand { receives_rest: peers.may_use_remainder };
        let of_requests = SharedDemand {
            own: own.wanted_requests.saturating_sub(self.wanted.0),
            peers: peers.wanted_requests,
            announced: peers.allowed.requests,
            division,
        };
        let mut of_tokens = SharedDemand {
            own: own.wanted_tokens.saturating_sub(self.wanted.1),
            peers: peers.wanted_tokens,
            announced: peers.allowed.tokens,
            division,
        };
        self.wanted = (own.wanted_requests, own.wanted_tokens);
        self.used = (own.requests, own.tokens);
        let phase = std::mem::take(&mut self.phase);
        let allow = |limit: u64, level: u64, demand| {
            let each = phase.amount_for_silent_members(limit, level, peers.members);
            let allowed =
                allowance(level, demand, peers.members, each.saturating_mul(u64::from(peers.silent_peers)));
            match phase {
                SharingPhase::Begun => allowed,
                // The other gateways never use the base part, even if two of them announced the same remainder.
                SharingPhase::Established => allowed.max(base_share(level, u64::from(peers.members.max(1)))),
            }
        };
        if let Some(limit) = limits.requests {
            requests.settle(limit, 0, peers.requests, now);
            self.allowed.requests = allow(limit.get(), requests.status(limit, now).remaining, of_requests);
        }
        if let Some(limit) = limits.tokens {
            let (back, used) = split_sign(peers.tokens);
            tokens.settle(limit, back, used, now);
            let refused = LargestRefusedRequest { amount: own.largest_refused, wanted: of_tokens.own };
            of_tokens.division =
                division_of_tokens(limit.get(), [refused, peers.refused], of_tokens.total(), peers);
            self.allowed.tokens = allow(limit.get(), tokens.status(limit, now).remaining, of_tokens);
        }
        if let Some(limit) = limits.concurrent {
            let limit = limit.get();
            let spare = u64::from(limit.saturating_sub(own.in_flight).saturating_sub(peers.in_flight));
            let demand = SharedDemand { announced: peers.allowed.in_flight, ..of_requests };
            let allowed = allow(limit.into(), spare, demand);
            let most = own.in_flight.saturating_add(u32::try_from(allowed).unwrap_or(u32::MAX));
            let most = most.min(most_in_flight(limit, demand, peers));
            self.allowed.in_flight = most.saturating_sub(own.in_flight).into();
            self.in_flight = limit.saturating_sub(most.min(limit.saturating_sub(peers.in_flight)));
        }
        self.reserved = peers.reserved;
    }
}

/// Returns the number of requests in flight up to which this gateway may admit further ones. If other gateways refuse
/// requests and this one does not receive the remainder, the number is this gateway's part of the limit; otherwise it
/// is `u32::MAX`.
fn most_in_flight(limit: u32, demand: SharedDemand, peers: &PeerUsage) -> u32 {
    if peers.may_use_remainder || peers.refused_requests == 0 {
        return u32::MAX;
    }
    let members = u64::from(peers.members.max(1));
    let part = share_by_demand(limit.into(), members, demand.own, demand.total());
    part.map_or(u32::MAX, |part| u32::try_from(part).unwrap_or(u32::MAX))
}

/// Splits an amount by its sign: a negative amount is given back, a positive one is used. Returns (given back, used).
const fn split_sign(amount: i64) -> (u64, u64) {
    if amount < 0 { (amount.unsigned_abs(), 0) } else { (0, amount.unsigned_abs()) }
}

/// Maximum wait for an amount that is left to others: until the next synchronization.
const MAX_SYNC_WAIT: Duration = Duration::from_secs(1);

impl MeterSharingState {
    /// Returns the longest wait for the next synchronization if this gateway may not admit another request before it;
    /// `None` if it may. `requests` is the total number of requests that it has admitted.
    pub(crate) fn request_wait(&self, requests: u64) -> Option<RetryAfter> {
        let used = requests.saturating_sub(self.used.0);
        (used >= self.allowed.requests).then_some(RetryAfter::After(MAX_SYNC_WAIT))
    }

    /// Returns the longest wait for the next synchronization if this gateway may not use this amount of tokens before
    /// it; `None` if it may. `tokens` is the total number of used tokens. An amount above half of the limit is admitted
    /// if half of the limit is allowed and unused, because no gateway's allowance ever reaches the whole limit.
    pub(crate) fn token_wait(&self, limit: NonZeroU64, amount: u64, tokens: i64) -> Option<RetryAfter> {
        let used = u64::try_from(tokens.wrapping_sub(self.used.1)).unwrap_or(0);
        let left = self.allowed.tokens.saturating_sub(used);
        let half = limit.get() / 2;
        let passes = amount <= left || (amount > half && left >= half);
        (!passes).then_some(RetryAfter::After(MAX_SYNC_WAIT))
    }
}

#[cfg(test)]
mod tests;
