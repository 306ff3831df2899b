//! Pools of the balances (credits and energy). The first gateway of a fleet that opens the store fills them; a
//! gateway that uses the store without a fleet removes them.
//!
//! While the row `fleet/pools` exists, each balance is the rest of its pool and the sum of its parts:
//!
//! ```text
//! credits of an account = pool `credits/<account>` + its parts,   energy likewise with `energy/<account>`
//! ```
//! A gateway without a fleet changes only the balances, not the pools, so it removes the row.

use super::Incarnation;
use super::rows::{self, POOL_PART_PREFIX, POOL_PREFIX, POOLS_OPENING_KEY, POOLS_READY_KEY};
use super::shared::SharedFleet;
use crate::ledger::BalanceRecord;
use crate::{MAX_PAGE_ROWS, StoreError, StoreTable, Transaction, counter_row};

const META: StoreTable = StoreTable::Meta;
/// Key prefixes of the fleet rows that become meaningless once all gateways of the fleet have ended.
const DISSOLVED_PREFIXES: [&[u8]; 5] =
    [b"fleet/live/", b"fleet/strand/", b"fleet/report/", POOL_PREFIX, POOL_PART_PREFIX];

/// State of the pools, as [`SharedFleet::open_pools`] returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolOpeningState {
    /// The pools agree with the balances.
    Ready,
    /// The incarnation with this number is filling the pools, or ended before it had filled them.
    Opening(u32),
}

/// Returns the name of an account's pool of credits.
#[must_use]
pub fn credit_pool_name(account: &str) -> String {
    format!("credits/{account}")
}

/// Returns the name of an account's pool of energy.
#[must_use]
pub fn energy_pool_name(account: &str) -> String {
    format!("energy/{account}")
}

impl SharedFleet {
    /// Fills the pools from the balances, unless they already agree with the balances. If another incarnation is filling
    /// them, returns `Opening` with its number and does nothing. `abandoned_by` is the incarnation whose unfinished
    /// filling this call starts again: a dead one, or `incarnation` itself after an earlier call. Callers change no
    /// balance before `Ready`. Each transaction is also a heartbeat of `incarnation`, so that other processes do not take
    /// it for dead meanwhile.
    ///
    /// # Errors
    /// Same as [`crate::Store::apply`].
    pub fn open_pools(
        &self,
        incarnation: &mut Incarnation,
        abandoned_by: Option<u32>,
    ) -> Result<PoolOpeningState, StoreError> {
        let store = self.store();
        let own = incarnation.id;
        if store.get(META, POOLS_READY_KEY)?.is_some() {
            return Ok(PoolOpeningState::Ready);
        }
        let claim = Transaction::new().require_absent(META, POOLS_READY_KEY);
        let claim = match abandoned_by {
            None => claim.require_absent(META, POOLS_OPENING_KEY),
            Some(dead) => claim.require_value(META, POOLS_OPENING_KEY, counter_row(i64::from(dead))),
        };
        match store.apply(claim.put(META, POOLS_OPENING_KEY, counter_row(i64::from(own)))) {
            Ok(()) => {}
            Err(StoreError::Guard { .. }) => return self.pool_state(),
            Err(error) => return Err(error),
        }
        let mut next_batch = || {
            let beat = counter_row(incarnation.beat);
            incarnation.beat = incarnation.beat.wrapping_add(1);
            Transaction::new()
                .require_value(META, POOLS_OPENING_KEY, counter_row(i64::from(own)))
                .require_value(META, rows::incarnation_key(own), beat)
                .put(META, rows::incarnation_key(own), counter_row(incarnation.beat))
        };
        for prefix in [POOL_PREFIX, POOL_PART_PREFIX] {
            self.delete_rows(prefix, &mut next_batch)?;
        }
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = store.scan(StoreTable::Balances, b"", after.as_deref(), MAX_PAGE_ROWS)?;
            let mut batch = next_batch();
            for row in &page.rows {
                let balance = BalanceRecord::from_row(&row.value)?;
                let account = String::from_utf8_lossy(&row.key);
                for (pool, amount) in [
                    (credit_pool_name(&account), balance.credits),
                    (energy_pool_name(&account), balance.energy),
                ] {
                    batch = batch.put(META, rows::pool_key(&pool), counter_row(amount));
                }
            }
            store.apply(batch)?;
            after = page.rows.last().map(|row| row.key.clone());
            if !page.more {
                break;
            }
        }
        store.apply(next_batch().put(META, POOLS_READY_KEY, b"1").delete(META, POOLS_OPENING_KEY))?;
        Ok(PoolOpeningState::Ready)
    }

    fn pool_state(&self) -> Result<PoolOpeningState, StoreError> {
        let store = self.store();
        let opening = store.get(META, POOLS_OPENING_KEY)?;
        if store.get(META, POOLS_READY_KEY)?.is_some() {
            return Ok(PoolOpeningState::Ready);
        }
        let incarnation = u32::try_from(crate::parse_counter(opening.as_deref())?);
        Ok(PoolOpeningState::Opening(
            incarnation.map_err(|_| StoreError::corrupt("the incarnation that fills the pools"))?,
        ))
    }

    /// Removes the rows that an earlier fleet left in the store. Called by a process that uses the store alone, when
    /// no process of that fleet is alive. Costs one read if there was no fleet.
    ///
    /// # Errors
    /// Same as [`crate::Store::apply`].
    pub fn remove_fleet_rows(&self) -> Result<(), StoreError> {
        let store = self.store();
        if store.get(META, rows::LAST_INCARNATION_KEY)?.is_none() {
            return Ok(());
        }
        if store.get(META, POOLS_READY_KEY)?.is_some() || store.get(META, POOLS_OPENING_KEY)?.is_some() {
            store.apply(Transaction::new().delete(META, POOLS_READY_KEY).delete(META, POOLS_OPENING_KEY))?;
        }
        DISSOLVED_PREFIXES.into_iter().try_for_each(|prefix| self.delete_rows(prefix, Transaction::new))
    }

    /// Deletes the rows under a prefix, page by page. Each page is deleted in one transaction, which begins with the
    /// guards that `guard` returns.
    pub(super) fn delete_rows(
        &self,
        prefix: &[u8],
        mut guard: impl FnMut() -> Transaction,
    ) -> Result<(), StoreError> {
        loop {
            let page = self.store().scan(META, prefix, None, MAX_PAGE_ROWS)?;
            if page.rows.is_empty() {
                return Ok(());
            }
            let batch = page.rows.into_iter().fold(guard(), |batch, row| batch.delete(META, row.key));
            self.store().apply(batch)?;
        }
    }
}
