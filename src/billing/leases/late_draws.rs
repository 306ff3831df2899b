//! Draws of a process that drains after it has handed over to this one. Both are the same member, so what the earlier
//! process draws for its last requests is in this member's leases in the store, but not in this process. After the
//! end of the earlier process, a lease may therefore be larger in the store than in memory, as after a draw with an
//! unknown outcome.

use super::super::Ledger;
use super::pool::LeasedPool;
use crate::auth::key_cache::KeyCache;
use std::sync::atomic::Ordering;

impl Ledger {
    /// Records that a process which has handed over to this one has ended, and makes no more calls of the store.
    pub fn record_predecessor_end(&self) {
        if let Some(leases) = &self.leases {
            leases.has_late_draws.store(true, Ordering::Release);
        }
    }

    /// Marks all leases of this member as uncertain after an earlier process has ended, so that
    /// [`Ledger::adjust_leases`] adds what that process has drawn and not spent. Blocks.
    pub fn mark_late_draws_uncertain(&self, cache: &KeyCache) {
        let Some(leases) = &self.leases else { return };
        if !leases.has_late_draws.swap(false, Ordering::AcqRel) {
            return;
        }
        let Ok(parts) = leases.member.leased_amounts() else {
            leases.has_late_draws.store(true, Ordering::Release);
            return;
        };
        for pool in parts.iter().filter_map(|part| LeasedPool::find(cache, &part.pool)) {
            leases.with_state(&self.leased_balance(&pool), |state| state.uncertain = true);
        }
    }
}
