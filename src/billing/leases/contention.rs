//! Pools from which several members refuse requests at the same time, because none of their leases covers a request.
//!
//! If all members returned their leases and drew again, each would get an equal part, which covers nothing again. So
//! one of the members that want the pool receives it for a few seconds, and then another one, see
//! [`receives_remainder`]; the others return their leases and do not draw meanwhile.

use super::Leases;
use super::pool::{LeasedBalance, LeasedPool};
use penstock_limits::receives_remainder;

/// Claim of the members on a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PoolClaim {
    /// No other member wants the pool.
    Free,
    /// Several members want the pool, and this one receives it.
    Own,
    /// Another member receives the pool.
    Peer,
}

impl Leases {
    /// Replaces the pools that other members want: number of the member and name of the pool.
    pub fn set_pools_wanted_by_peers(&self, pools: impl Iterator<Item = (u32, String)>) {
        let mut wanted = self.wanted_by_peers.lock();
        wanted.clear();
        for (member, pool) in pools {
            wanted.entry(pool).or_default().push(member);
        }
    }

    /// Returns the claim on a pool; `is_wanted` is true if this member wants it too.
    pub(super) fn pool_claim(&self, pool: &LeasedPool, is_wanted: bool) -> PoolClaim {
        let wanted = self.wanted_by_peers.lock();
        if wanted.is_empty() {
            return PoolClaim::Free;
        }
        let name = pool.name();
        let Some(peers) = wanted.get(&name) else { return PoolClaim::Free };
        let now = self.clock.calendar_now();
        match is_wanted && receives_remainder(&name, self.member.member_number(), peers, now) {
            true => PoolClaim::Own,
            false => PoolClaim::Peer,
        }
    }

    /// Returns true if this member wants the pool, but leaves it to another one that wants it too.
    pub(super) fn is_left_to_peer(&self, balance: &LeasedBalance) -> bool {
        let pool = balance.pool();
        let is_wanted =
            self.pools.lock().get(&pool).is_some_and(super::state::LeaseState::has_recent_refusal);
        is_wanted && self.pool_claim(&pool, true) == PoolClaim::Peer
    }
}
