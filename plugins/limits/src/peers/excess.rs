//! Requests that exceed the allowance of their gateway, and the wait of a refused request.
//!
//! A gateway that has used at most its base since the last synchronization may exceed its allowance by one request, if
//! the level is high enough. Other gateways may do the same before they know of it. Therefore the required level
//! depends on the gateway's position in the current order, which is 0 for the first gateway:
//!
//! ```text
//! required level = (position + 1) · request, at most (limit + request) / 2
//! ```
//! So while the level suffices for few requests, only the first gateways may exceed their allowance, and together they
//! do not exceed the level. The upper bound lets requests of most of the limit pass at any gateway. It does not apply
//! while gateways refuse many requests: otherwise all gateways would exceed their allowances whenever the level has
//! reached the bound. If all gateways exceed their allowances at the same time, they exceed the level by at most
//! (n − 1) · (request + base).
//!
//! The wait of a refused request is the time until it passes at any gateway: the last gateway of the order requires
//! the highest level.

use super::{MeterSharingState, REFUSALS_OF_ONE_CLIENT, UsageTotals};
use crate::token_bucket::{RetryAfter, TokenBucket};
use std::num::NonZeroU64;
use std::time::Duration;

/// Longest time between two synchronizations, unless the database is slow.
pub(super) const MAX_SYNC_INTERVAL: Duration = Duration::from_millis(1_100);

/// Usage of one limit since the last synchronization.
#[derive(Clone, Copy)]
struct WindowUsage {
    used: u64,
    allowed: u64,
    /// Amount that the other gateways have probably used.
    used_by_peers: u64,
    /// Amount that requests in flight at other gateways have reserved. They will return a part of it.
    reserved_by_peers: u64,
}

/// Precedence of a gateway for requests that exceed its allowance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precedence {
    /// Position in the order of all gateways, while gateways refuse few requests.
    Calm(u32),
    /// Position while gateways refuse many requests; 0 only for the gateway that receives the remainder.
    Contended(u32),
}

impl Default for Precedence {
    fn default() -> Self {
        Self::Calm(0)
    }
}

impl Precedence {
    /// Returns the level that the gateway needs for a request that exceeds its allowance.
    pub(super) fn required_level(self, limit: u64, amount: u64) -> u64 {
        let (Self::Calm(position) | Self::Contended(position)) = self;
        let for_all_before = amount.saturating_mul(u64::from(position).saturating_add(1));
        match self {
            Self::Calm(_) => for_all_before.min(amount.saturating_add(limit.saturating_sub(amount) / 2)),
            Self::Contended(_) => for_all_before,
        }
    }
}

impl MeterSharingState {
    /// Returns the time until another request passes at any gateway; `None` if this gateway may admit it now. `own` are
    /// the totals of this gateway.
    pub(crate) fn request_wait(
        &self,
        bucket: &TokenBucket,
        limit: NonZeroU64,
        own: &UsageTotals,
        now: Duration,
    ) -> Option<RetryAfter> {
        let used = own.requests.saturating_sub(self.used.0);
        let usage = WindowUsage {
            used,
            allowed: self.allowed.requests,
            used_by_peers: self.used_by_peers(own, used, self.allowed_to_peers.requests),
            reserved_by_peers: 0,
        };
        self.wait(bucket, limit, 1, usage, now)
    }

    /// Returns the time until a request of this amount of tokens passes at any gateway; `None` if this gateway may
    /// admit it now. `own` are the totals of this gateway.
    pub(crate) fn token_wait(
        &self,
        bucket: &TokenBucket,
        limit: NonZeroU64,
        amount: u64,
        own: &UsageTotals,
        now: Duration,
    ) -> Option<RetryAfter> {
        let used = u64::try_from(own.tokens.wrapping_sub(self.used.1)).unwrap_or(0);
        let usage = WindowUsage {
            used,
            allowed: self.allowed.tokens,
            used_by_peers: self.used_by_peers(own, used, self.allowed_to_peers.tokens),
            reserved_by_peers: self.reserved_tokens,
        };
        self.wait(bucket, limit, amount, usage, now)
    }

    /// Returns the amount that the other gateways have probably used since their last reports: while this gateway
    /// refuses many requests, as much as this gateway, otherwise nothing.
    fn used_by_peers(&self, own: &UsageTotals, used: u64, allowed: u64) -> u64 {
        let admitted = own.requests.saturating_sub(self.used.0);
        let refused = own.wanted_requests.saturating_sub(self.wanted.0).saturating_sub(admitted);
        let peers = u64::from(self.members.max(1)).saturating_sub(1);
        if refused > REFUSALS_OF_ONE_CLIENT { used.saturating_mul(peers).min(allowed) } else { 0 }
    }

    fn wait(
        &self,
        bucket: &TokenBucket,
        limit: NonZeroU64,
        amount: u64,
        usage: WindowUsage,
        now: Duration,
    ) -> Option<RetryAfter> {
        let members = self.members.max(1);
        let level = bucket.status(limit, now).remaining;
        let may_exceed = usage.used <= usage.allowed.min(level / 4 / u64::from(members));
        if level >= amount {
            let is_allowed = usage.used.saturating_add(amount) <= usage.allowed;
            let required = self.precedence.required_level(limit.get(), amount);
            if is_allowed || (may_exceed && level >= required) {
                return None;
            }
        }
        let required = Precedence::Calm(members.saturating_sub(1)).required_level(limit.get(), amount);
        let refill = time_until_level(bucket, limit, required, usage, now);
        let exchange = self.synchronized_at.saturating_add(MAX_SYNC_INTERVAL).saturating_sub(now);
        Some(RetryAfter::After(if may_exceed { refill } else { refill.max(exchange) }))
    }
}

/// Returns the time until the common bucket has this level. If the amount that requests in flight at other gateways
/// have reserved suffices for it, they may have ended already: the time is at most that until this is known everywhere.
fn time_until_level(
    bucket: &TokenBucket,
    limit: NonZeroU64,
    required: u64,
    usage: WindowUsage,
    now: Duration,
) -> Duration {
    let mut expected = bucket.clone();
    expected.settle(limit, 0, usage.used_by_peers, now);
    let Some(RetryAfter::After(refill)) = expected.retry_after(limit, required, now) else {
        return Duration::ZERO;
    };
    expected.settle(limit, usage.reserved_by_peers, 0, now);
    let is_returned = expected.retry_after(limit, required, now).is_none();
    if is_returned { refill.min(MAX_SYNC_INTERVAL * 2) } else { refill }
}
