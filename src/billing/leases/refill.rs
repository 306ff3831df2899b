//! Refill of leases that run low: each heartbeat draws amounts for them from their pools.

use super::Leases;
use super::pool::LeasedBalance;
use penstock_storage::StoreError;
use penstock_storage::fleet::FleetError;
use std::cmp::Reverse;
use std::time::Duration;

/// Maximum time from the first draw of a heartbeat to its last, so that the next heartbeat is not late if many leases
/// run low.
pub(super) const MAX_HEARTBEAT_DRAW_TIME: Duration = Duration::from_millis(300);

/// Draw that a heartbeat makes for a lease that runs low.
pub(super) struct PendingRefill {
    pub(super) balance: LeasedBalance,
    pub(super) amount: i64,
    /// Number of heartbeats in a row that had no time for this draw.
    pub(super) skipped: u32,
}

impl Leases {
    /// Draws while `has_time` returns true; ends at the first error of the store other than a conflict. The leases that
    /// earlier heartbeats had no time for come first, and those that remain wait for the next heartbeat. Blocks.
    pub(super) fn refill(&self, mut draws: Vec<PendingRefill>, mut has_time: impl FnMut() -> bool) {
        draws.sort_by_key(|draw| Reverse(draw.skipped));
        let mut is_open = true;
        for PendingRefill { balance, amount, skipped } in draws {
            is_open = is_open && has_time();
            let skipped = if is_open { 0 } else { skipped.saturating_add(1) };
            self.with_state(&balance, |state| state.skipped_draws = skipped);
            if !is_open {
                continue;
            }
            match self.draw(&balance, amount, i64::MIN) {
                // After a conflict with other members, the next heartbeat draws again.
                Ok(_) | Err(FleetError::Store(StoreError::Guard { .. })) => {}
                Err(_) => return,
            }
        }
    }
}
