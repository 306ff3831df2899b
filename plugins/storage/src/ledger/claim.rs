//! Claims of chains by the members of a fleet: a member writes one chain, and no other process writes it while the
//! member is alive.
//!
//! ```text
//! ledger/chain/<k>  →  counter: incarnation that writes chain k
//! ```
//! A process that shares its store with no other writes chain 0 and claims nothing.

use penstock_core::entry_number::MAX_CHAINS;

use super::key::{CLAIM_PREFIX, chain_of_claim, claim_key};
use crate::fleet::SharedFleet;
use crate::{MAX_PAGE_ROWS, Store, StoreError, StoreTable, Transaction, counter_row, parse_counter};

/// Number of attempts to claim one chain against concurrent claims.
const MAX_ATTEMPTS: usize = 32;

/// Claim of a chain by a living incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainClaim {
    chain: u32,
    incarnation: u32,
}

/// Result of an attempt to claim a chain.
enum ClaimAttempt {
    Claimed,
    /// Chain that cannot be claimed, because a living incarnation writes it.
    Held,
}

impl ChainClaim {
    /// Claims the chain that the incarnation already holds, if it continues the incarnation of an earlier process;
    /// otherwise the lowest chain that no living incarnation writes.
    ///
    /// # Errors
    /// Returns `Evicted` if the incarnation itself does not count as alive, `Database` if all chains are claimed, and
    /// the errors of [`Store::apply`].
    pub fn take(store: &dyn Store, incarnation: u32) -> Result<ChainClaim, StoreError> {
        ChainClaim::take_below(store, incarnation, MAX_CHAINS)
    }

    fn take_below(store: &dyn Store, incarnation: u32, chains: u32) -> Result<ChainClaim, StoreError> {
        if let Some(claim) = ChainClaim::held_by(store, incarnation)? {
            return Ok(claim);
        }
        for chain in 0..chains {
            let claim = ChainClaim { chain, incarnation };
            if let ClaimAttempt::Claimed = claim.try_take(store)? {
                return Ok(claim);
            }
        }
        let what = format!("live processes write all {chains} chains of its ledger: stop one of them");
        Err(StoreError::Database { what })
    }

    /// Claims a chain whose writer is dead. The caller can then end the reserves that this writer left open. Returns
    /// `None` if another living incarnation writes the chain. The claim must be returned with
    /// [`ChainClaim::release`], and the chain must not be the incarnation's own.
    ///
    /// # Errors
    /// Same as [`ChainClaim::take`].
    pub fn take_abandoned(
        store: &dyn Store,
        chain: u32,
        incarnation: u32,
    ) -> Result<Option<ChainClaim>, StoreError> {
        let claim = ChainClaim { chain, incarnation };
        Ok(matches!(claim.try_take(store)?, ClaimAttempt::Claimed).then_some(claim))
    }

    /// Returns the lowest chain that an incarnation has claimed.
    fn held_by(store: &dyn Store, incarnation: u32) -> Result<Option<ChainClaim>, StoreError> {
        let held = counter_row(i64::from(incarnation));
        let mut chains = Vec::new();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = store.scan(StoreTable::Meta, CLAIM_PREFIX, after.as_deref(), MAX_PAGE_ROWS)?;
            for row in page.rows.iter().filter(|row| row.value == held) {
                chains.push(chain_of_claim(&row.key)?);
            }
            match page.rows.into_iter().next_back() {
                Some(row) if page.more => after = Some(row.key),
                _ => return Ok(chains.into_iter().min().map(|chain| ChainClaim { chain, incarnation })),
            }
        }
    }

    fn try_take(&self, store: &dyn Store) -> Result<ClaimAttempt, StoreError> {
        let (table, key) = (StoreTable::Meta, claim_key(self.chain));
        let mut last_error = StoreError::Guard { step: 0 };
        for _ in 0..MAX_ATTEMPTS {
            let unclaimed = match holder_of(store, self.chain)? {
                None => Transaction::new().require_absent(table, key.as_slice()),
                Some((holder, _)) if holder == self.incarnation => return Ok(ClaimAttempt::Claimed),
                Some((holder, row)) => {
                    if store.get(table, &process_name_key(holder))?.is_some() {
                        return Ok(ClaimAttempt::Held);
                    }
                    Transaction::new()
                        .require_value(table, key.as_slice(), row)
                        .require_absent(table, process_name_key(holder))
                }
            };
            let claimed = unclaimed.require_present(table, process_name_key(self.incarnation)).put(
                table,
                key.as_slice(),
                counter_row(i64::from(self.incarnation)),
            );
            match store.apply(claimed) {
                Ok(()) => return Ok(ClaimAttempt::Claimed),
                Err(error @ StoreError::Guard { .. }) => {
                    if store.get(table, &process_name_key(self.incarnation))?.is_none() {
                        let what = "the other gateways removed it from the fleet".to_owned();
                        return Err(StoreError::Evicted { what });
                    }
                    last_error = error;
                }
                Err(error) => return Err(error),
            }
        }
        Err(last_error)
    }

    /// Ends the claim, so that any member may claim the chain.
    ///
    /// # Errors
    /// Same as [`Store::apply`]; `Guard` if another incarnation has claimed it since.
    pub fn release(self, store: &dyn Store) -> Result<(), StoreError> {
        let key = claim_key(self.chain);
        let held = counter_row(i64::from(self.incarnation));
        store.apply(
            Transaction::new()
                .require_value(StoreTable::Meta, key.as_slice(), held)
                .delete(StoreTable::Meta, key),
        )
    }

    /// Returns the claimed chain.
    #[must_use]
    pub const fn chain(&self) -> u32 {
        self.chain
    }

    /// Returns the incarnation that holds the claim.
    #[must_use]
    pub const fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// Adds the guards that every commit under this claim needs: the incarnation is alive and still holds the chain.
    pub(super) fn add_guards(&self, transaction: Transaction) -> Transaction {
        let held = counter_row(i64::from(self.incarnation));
        transaction.require_present(StoreTable::Meta, process_name_key(self.incarnation)).require_value(
            StoreTable::Meta,
            claim_key(self.chain),
            held,
        )
    }

    /// Returns true if the incarnation counts as alive and still holds the chain.
    ///
    /// # Errors
    /// Same as [`Store::get`].
    pub fn is_valid(&self, store: &dyn Store) -> Result<bool, StoreError> {
        if store.get(StoreTable::Meta, &process_name_key(self.incarnation))?.is_none() {
            return Ok(false);
        }
        Ok(holder_of(store, self.chain)?.is_some_and(|(holder, _)| holder == self.incarnation))
    }
}

fn process_name_key(incarnation: u32) -> Vec<u8> {
    SharedFleet::liveness_row(incarnation).1
}

/// Returns the incarnation that claimed a chain last, and the row of this claim; `None` if the chain is not claimed.
fn holder_of(store: &dyn Store, chain: u32) -> Result<Option<(u32, Vec<u8>)>, StoreError> {
    let Some(row) = store.get(StoreTable::Meta, &claim_key(chain))? else { return Ok(None) };
    let incarnation = parse_counter(Some(&row)).ok().and_then(|incarnation| u32::try_from(incarnation).ok());
    let incarnation = incarnation.ok_or_else(|| StoreError::corrupt("the claim of a ledger chain"))?;
    Ok(Some((incarnation, row)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::fleet::{Fleet, PeerIncarnation};
    use crate::open_in_memory;

    #[test]
    fn a_claim_that_fails_says_what_helps() {
        let store = open_in_memory();
        let fleet = SharedFleet::new(store.clone());
        let members: Vec<u32> = (0..3).map(|_| fleet.join("host").unwrap().id).collect();
        for member in members.iter().take(2) {
            ChainClaim::take_below(&*store, *member, 2).unwrap();
        }
        let refused = ChainClaim::take_below(&*store, members[2], 2).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the database cannot be used: live processes write all 2 chains of its ledger: stop one of them"
        );
        let evicted = PeerIncarnation { id: members[2], beat: 0, name: None };
        assert!(fleet.evict(&evicted).unwrap());
        let refused = ChainClaim::take(&*store, members[2]).unwrap_err();
        assert!(matches!(refused, StoreError::Evicted { .. }), "{refused:?}");
        assert_eq!(
            refused.to_string(),
            "this process was taken for dead (the other gateways removed it from the fleet) and writes nothing more: \
             start it again"
        );
    }
}
