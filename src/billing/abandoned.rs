//! Reservations that the writer of another chain left open. They are voided in that chain, so that each chain is
//! complete without the others. A process that is the only writer voids them for all chains when it starts; a member of
//! a fleet voids them for the chains of dead members.

use super::Ledger;
use super::recovery::{open_reservations, push_voids};
use super::write_queue::WriteQueue;
use super::writer::{self, WriterStart};
use crate::time::clock::ProcessClock;
use penstock_core::entry_number::sequence_in_chain;
use penstock_storage::StoreError;
use penstock_storage::ledger::{ChainClaim, LedgerStore, LedgerTip};
use std::sync::Arc;
use std::time::Duration;

/// Voids the open reservations of all other chains, if this is the only process that writes.
///
/// # Errors
/// Returns a sentence for the operator if a chain cannot be read or written.
pub(super) fn void_other_chain_reservations(store: &LedgerStore, clock: ProcessClock) -> Result<(), String> {
    if store.claim().is_some() {
        return Ok(());
    }
    for (chain, tip) in store.chains().map_err(to_message)? {
        if chain != store.chain() && may_have_open_reservations(&tip) {
            let other = store.open_inactive_chain(chain).map_err(to_message)?;
            void_open(Arc::new(other), clock)?;
        }
    }
    Ok(())
}

impl Ledger {
    /// Voids the open reservations of the chains whose writers are dead; returns the number of voids, 0 without a
    /// fleet. A member of a fleet calls the function after it has evicted another member. Blocks.
    ///
    /// # Errors
    /// Returns a sentence for the operator if a chain cannot be read or written.
    pub fn void_abandoned_reservations(&self) -> Result<u64, String> {
        let Some(own) = self.store.claim() else { return Ok(0) };
        let mut voided = 0;
        for (chain, tip) in self.store.chains().map_err(to_message)? {
            if chain == own.chain() || !may_have_open_reservations(&tip) {
                continue;
            }
            let claim = ChainClaim::take_abandoned(self.store.store(), chain, own.incarnation());
            let Some(claim) = claim.map_err(to_message)? else { continue };
            let ended = void_open(Arc::new(self.store.open_claimed_chain(claim)), self.clock);
            // The claim is released after a failure too: the process that claims the chain next voids the remaining
            // reservations.
            let released = claim.release(self.store.store());
            voided += ended?;
            released.map_err(to_message)?;
        }
        Ok(voided)
    }
}

/// Returns true if a chain may have an open reservation, which has to be searched for.
const fn may_have_open_reservations(tip: &LedgerTip) -> bool {
    tip.first_open <= tip.seq
}

/// Voids the open reservations of the chain that `store` writes; returns the number of voids.
fn void_open(store: Arc<LedgerStore>, clock: ProcessClock) -> Result<u64, String> {
    let open = open_reservations(&store).map_err(to_message)?;
    if open.is_empty() {
        return Ok(0);
    }
    let tip = store.tip().map_err(to_message)?;
    let queue = Arc::new(WriteQueue::new(Duration::ZERO, tip.map_or(0, |tip| sequence_in_chain(tip.seq))));
    let count = open.len() as u64;
    push_voids(&queue, &open, clock);
    queue.close();
    let start = WriterStart { tip, balances: Vec::new(), open, journaled: None };
    let writer = writer::start_writer(store.clone(), queue, start)?;
    if writer.join().is_err() || !open_reservations(&store).map_err(to_message)?.is_empty() {
        return Err("The ledger cannot be used: the reservations of a crash cannot be voided.".to_owned());
    }
    Ok(count)
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn to_message(error: StoreError) -> String {
    format!("The ledger cannot be used: {error}.")
}
