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
//! part of its gateway. Therefore a gateway that has used at most its base since the last synchronization may exceed
//! its allowance by one request, see [`excess`]. At the same time other gateways may do the same, so each needs a
//! higher level than the gateways before it in the current order ([`turn_position`]).
//!
//! Permits for requests in flight do not refill over time: they come back only when a request ends. A gateway that
//! starts a new request whenever one ends would never leave a permit to the others. So while another gateway has to
//! refuse requests, the gateways that do not receive the remainder admit requests only up to their part of the limit.
//! While few requests are refused, each gateway may start one request if the others have left a permit.
//!
//! A gateway reports nothing about a key that it has not served. If other gateways report the key, it may use its base.
//! Otherwise it may use an equal part of the limit for the first requests of the key. Therefore the first
//! synchronization after the first request leaves an equal part to each gateway without a report: the key may just have
//! come into use there too. If demand moves to another gateway between two synchronizations, the limit can be exceeded
//! once, by the allowance that the first gateway still has; the excess becomes debt in every bucket.

mod excess;

use crate::token_bucket::TokenBucket;
use excess::Precedence;
use std::hash::{Hash, Hasher};
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
    /// Tokens reserved by requests in flight.
    pub reserved_tokens: u64,
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
    /// Tokens that requests in flight at the other gateways have reserved.
    pub reserved_tokens: u64,
    /// Number of requests that the other gateways refused between their last two reports.
    pub refused_requests: u64,
    /// Sum of the amounts that the other gateways may use until their next synchronization.
    pub allowed: LimitAllowances,
    /// True if the other gateways have no report of this gateway about the key, so that they leave only the base to it.
    pub is_silent: bool,
    /// True if this gateway may use the remainder of the permits for requests in flight, see [`receives_remainder`].
    pub may_use_remainder: bool,
    /// Position of this gateway among all gateways, see [`turn_position`].
    pub position: u32,
}

/// Time after which the order of the gateways changes. A change takes up to two seconds, until all gateways have
/// synchronized.
const TURN_PERIOD: Duration = Duration::from_secs(6);

/// Returns true if the gateway `own` currently receives the remainder of a divided limit of `owner`. The gateways with
/// demand (`own` and `peers`) receive it in turn.
#[must_use]
pub fn receives_remainder(owner: &str, own: u32, peers: &[u32], now: Duration) -> bool {
    turn_position(owner, own, peers, now) == 0
}

/// Returns the position of the gateway `own` in the current order of the gateways `own` and `peers` for the limits of
/// `owner`; 0 is the first. Every few seconds the first gateway becomes the last. Each round begins with a different
/// gateway: otherwise requests that come at regular intervals could meet the same gateway's turn each time.
#[must_use]
pub fn turn_position(owner: &str, own: u32, peers: &[u32], now: Duration) -> u32 {
    let before = u64::try_from(peers.iter().filter(|peer| **peer < own).count()).unwrap_or(u64::MAX);
    let gateways = u64::try_from(peers.len()).unwrap_or(u64::MAX).saturating_add(1);
    let period = now.as_secs() / TURN_PERIOD.as_secs();
    let mut hasher = std::hash::DefaultHasher::new();
    (owner, period / gateways).hash(&mut hasher);
    let first = (hasher.finish() % gateways).wrapping_add(period) % gateways;
    u32::try_from(before.saturating_add(gateways - first) % gateways).unwrap_or(u32::MAX)
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
    /// Sum of the amounts that the other gateways may use until their next synchronization, as far as known.
    allowed_to_peers: LimitAllowances,
    /// Totals of requests and tokens used by this gateway, as of the last synchronization.
    used: (u64, i64),
    /// Time of the last synchronization.
    synchronized_at: Duration,
    members: u32,
    precedence: Precedence,
    /// Requests in flight at the other gateways, including the ones that they may still admit.
    pub(crate) in_flight: u32,
    pub(crate) reserved: u64,
    /// Tokens that requests in flight at the other gateways have reserved.
    reserved_tokens: u64,
}

/// Demand for one limit since the last synchronization.
#[derive(Clone, Copy)]
struct SharedDemand {
    own: u64,
    peers: u64,
    /// Sum of the allowances that the other gateways reported.
    announced: u64,
    /// True if this gateway gets all that the others did not announce if the level is at most the number of gateways.
    receives_rest: bool,
}

impl SharingPhase {
    /// Returns the amount of a limit that must be left to each gateway that reported no demand.
    fn amount_for_silent_members(self, limit: u64, level: u64, members: u32) -> u64 {
        let members = u64::from(members.max(1));
        match self {
            Self::Begun => (limit / members).max(1),
            Self::Established => base_share(level, members),
        }
    }
}

/// Returns the base: the part of a level that each gateway has even without demand.
fn base_share(level: u64, members: u64) -> u64 {
    (level / 4 / members).max(u64::from(level > members))
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
    if demand.receives_rest && level <= members && demand.own > 0 {
        return rest;
    }
    share_by_demand(level, members, demand.own, demand.total()).unwrap_or(level / members).min(rest)
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
        let of_requests = SharedDemand {
            own: own.wanted_requests.saturating_sub(self.wanted.0),
            peers: peers.wanted_requests,
            announced: peers.allowed.requests,
            receives_rest: false,
        };
        let of_tokens = SharedDemand {
            own: own.wanted_tokens.saturating_sub(self.wanted.1),
            peers: peers.wanted_tokens,
            announced: peers.allowed.tokens,
            ..of_requests
        };
        let admitted = own.requests.saturating_sub(self.used.0);
        self.wanted = (own.wanted_requests, own.wanted_tokens);
        self.used = (own.requests, own.tokens);
        (self.synchronized_at, self.members) = (now, peers.members.max(1));
        let contention = Contention::new(own, admitted, of_requests, peers);
        self.precedence = contention.precedence(peers);
        let phase = std::mem::take(&mut self.phase);
        let division = PeerDivision { phase, is_silent: peers.is_silent && of_requests.own == 0, peers };
        self.allowed_to_peers = peers.allowed;
        if let Some(limit) = limits.requests {
            requests.settle(limit, 0, peers.requests, now);
            let level = requests.status(limit, now).remaining;
            self.allowed.requests = division.allow_per_minute(limit.get(), level, of_requests);
            let to_peers = &mut self.allowed_to_peers.requests;
            *to_peers = to_peers.saturating_add(division.left_to_silent(limit.get(), level));
        }
        if let Some(limit) = limits.tokens {
            let (back, used) = split_sign(peers.tokens);
            tokens.settle(limit, back, used, now);
            let level = tokens.status(limit, now).remaining;
            self.allowed.tokens = division.allow_per_minute(limit.get(), level, of_tokens);
            let to_peers = &mut self.allowed_to_peers.tokens;
            *to_peers = to_peers.saturating_add(division.left_to_silent(limit.get(), level));
        }
        if let Some(limit) = limits.concurrent {
            let demand = SharedDemand {
                announced: peers.allowed.in_flight,
                receives_rest: peers.may_use_remainder,
                ..of_requests
            };
            let most = division.most_in_flight(limit.get(), own.in_flight, demand, contention);
            self.allowed.in_flight = most.saturating_sub(own.in_flight).into();
            self.in_flight =
                limit.get().saturating_sub(most.min(limit.get().saturating_sub(peers.in_flight)));
        }
        (self.reserved, self.reserved_tokens) = (peers.reserved, peers.reserved_tokens);
    }
}

/// Division of the limits at one synchronization.
struct PeerDivision<'p> {
    phase: SharingPhase,
    /// True if the other gateways leave only the base to this gateway.
    is_silent: bool,
    peers: &'p PeerUsage,
}

impl PeerDivision<'_> {
    fn base(&self, level: u64) -> u64 {
        base_share(level, u64::from(self.peers.members.max(1)))
    }

    /// Returns the amount of a limit that is left to all gateways that reported no demand.
    fn left_to_silent(&self, limit: u64, level: u64) -> u64 {
        let each = self.phase.amount_for_silent_members(limit, level, self.peers.members);
        each.saturating_mul(u64::from(self.peers.silent_peers))
    }

    fn allow(&self, limit: u64, level: u64, demand: SharedDemand) -> u64 {
        let allowed = allowance(level, demand, self.peers.members, self.left_to_silent(limit, level));
        match self.phase {
            SharingPhase::Begun => allowed,
            // The other gateways never use the base part, even if two of them announced the same remainder.
            SharingPhase::Established => allowed.max(self.base(level)),
        }
    }

    /// Returns the allowance of a limit per minute.
    fn allow_per_minute(&self, limit: u64, level: u64, demand: SharedDemand) -> u64 {
        let most = if self.is_silent { self.base(level) } else { u64::MAX };
        self.allow(limit, level, demand).min(most)
    }

    /// Returns the number of requests in flight up to which this gateway may admit further ones.
    fn most_in_flight(&self, limit: u32, own: u32, demand: SharedDemand, contention: Contention) -> u32 {
        let spare = u64::from(limit.saturating_sub(own).saturating_sub(self.peers.in_flight));
        let allowed = self.allow(limit.into(), spare, demand);
        let at_least = u64::from(spare > 0 && contention != Contention::High);
        let most = own.saturating_add(u32::try_from(allowed.max(at_least)).unwrap_or(u32::MAX));
        most.min(contention.most_in_flight(limit, demand, self.peers))
    }
}

/// Number of refused requests between two synchronizations up to which they may come from a single client that sends
/// its next attempt to another gateway each time.
const REFUSALS_OF_ONE_CLIENT: u64 = 3;

/// Contention of the gateways for the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contention {
    /// No other gateway refuses requests, or this gateway receives the remainder.
    None,
    /// Other gateways refuse some requests, while this one hardly admits any.
    Low,
    /// Other gateways refuse some requests, while this one holds permits.
    Holding,
    /// Gateways refuse more requests than one client would send.
    High,
}

impl Contention {
    fn new(own: &UsageTotals, admitted: u64, demand: SharedDemand, peers: &PeerUsage) -> Self {
        let refused = demand.own.saturating_sub(admitted).saturating_add(peers.refused_requests);
        if refused > REFUSALS_OF_ONE_CLIENT {
            Self::High
        } else if peers.may_use_remainder || peers.refused_requests == 0 {
            Self::None
        } else if own.in_flight > 0 || admitted > 1 {
            Self::Holding
        } else {
            Self::Low
        }
    }

    /// Returns the precedence of this gateway for requests that exceed its allowance.
    fn precedence(self, peers: &PeerUsage) -> Precedence {
        match self {
            Self::High if peers.may_use_remainder => Precedence::Contended(0),
            Self::High => Precedence::Contended(peers.position.max(1)),
            _ => Precedence::Calm(peers.position),
        }
    }

    /// Returns the number of requests in flight up to which this gateway may admit further ones. If other gateways
    /// refuse requests and this one does not receive the remainder, the number is this gateway's part of the limit;
    /// otherwise it is `u32::MAX`.
    fn most_in_flight(self, limit: u32, demand: SharedDemand, peers: &PeerUsage) -> u32 {
        let is_divided = matches!(self, Self::Holding | Self::High)
            && !peers.may_use_remainder
            && peers.refused_requests > 0;
        if !is_divided {
            return u32::MAX;
        }
        let members = u64::from(peers.members.max(1));
        let part = share_by_demand(limit.into(), members, demand.own, demand.total());
        part.map_or(u32::MAX, |part| u32::try_from(part).unwrap_or(u32::MAX))
    }
}

/// Splits an amount by its sign: a negative amount is given back, a positive one is used. Returns (given back, used).
const fn split_sign(amount: i64) -> (u64, u64) {
    if amount < 0 { (amount.unsigned_abs(), 0) } else { (0, amount.unsigned_abs()) }
}

/// Time after the last synchronization from which on the limits of a key are shared anew: no gateway reports the key.
const UNREPORTED: Duration = Duration::from_secs(5);

impl MeterSharingState {
    /// Returns true if gateways still exchange the usage of the key.
    pub(crate) fn is_exchanged(&self, now: Duration) -> bool {
        now.saturating_sub(self.synchronized_at) < UNREPORTED
    }
}

#[cfg(test)]
mod tests;
