//! Ledger during an upgrade: the old process stops writing and sends the actions of its remaining exchanges; the new
//! one, which has the store, records each of them once, and voids what was never ended.

use super::hold::{Hold, Settlement};
use super::op::{Deed, Op, Refused, TermsText};
use super::write_queue::{Kept, Piece};
use super::{Ledger, writer};
use crate::telemetry::log;
use crate::upgrade::messages::Sent;
use penstock_ledger::{EntryKind, HashChain, LedgerEntry, OpenReserves, RequestFootprint, Wallet};
use penstock_storage::StoreError;
use rust_decimal::Decimal;
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of actions per message.
const MOST: usize = 1_024;

/// Charge for the budget counters.
#[derive(Debug, PartialEq, Eq)]
pub struct Charged {
    /// Public ID of the key.
    pub key: Arc<str>,
    /// Wallet that paid.
    pub wallet: Wallet,
    /// Amount in micro-credits or nano-kWh.
    pub amount: i64,
    /// Amount in EUR.
    pub eur: Decimal,
}

/// Open reservations of the old process, by request ID.
#[derive(Default)]
pub struct Holds(HashMap<Arc<str>, Hold>);

impl Holds {
    /// Number of open reservations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if none is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Voids them because their process is gone: unreported work is not charged.
    pub fn void(mut self) {
        self.0.drain().for_each(|(_, hold)| hold.void("crash", RequestFootprint::default()));
    }
}

/// A process that fails before it has taken over leaves the reservations to the one that continues.
impl Drop for Holds {
    fn drop(&mut self) {
        self.0.drain().for_each(|(_, hold)| hold.leave());
    }
}

/// Encodes an act for the process that writes.
fn sent(deed: Deed, counted: bool) -> Option<Sent> {
    let terms = deed.terms.map(|terms| (terms.id.to_string(), terms.text.to_string()));
    let entry = LedgerEntry { seq: 1, at: deed.at, account: deed.account, kind: deed.act };
    let mut line = Vec::new();
    HashChain::default().append(&entry, &mut line).ok()?;
    Some(Sent { line: String::from_utf8(line).ok()?, terms, eur: deed.exposed, counted })
}

impl Ledger {
    /// Returns the open reservations of the store as holds of this process.
    pub(super) fn holds(self: &Arc<Self>, open: &OpenReserves) -> Holds {
        let hold = |request: &Arc<str>, hold: &penstock_ledger::OpenReserve| {
            self.held(&hold.account, request, &hold.key, hold.wallet, hold.amount)
        };
        Holds(open.iter().map(|(request, known)| (request.clone(), hold(request, known))).collect())
    }

    fn held(
        self: &Arc<Self>,
        account: &str,
        request: &Arc<str>,
        key: &Arc<str>,
        wallet: Wallet,
        amount: i64,
    ) -> Hold {
        let purse = self.purse(account);
        // The old process has checked the balance.
        purse.take(wallet, amount, false).ok();
        Hold::new(self.clone(), purse, request.clone(), key.clone(), wallet, amount, 0)
    }

    /// Records an action of another process; returns its charge if the spend counters do not include it. An action
    /// that does not match the open reservations is not recorded.
    pub fn take(self: &Arc<Self>, holds: &mut Holds, sent: &Sent) -> Option<Charged> {
        let Ok(entry) = HashChain::default().verify_next(sent.line.as_bytes()) else {
            log::event(log::error(), "handover_unread", &[]);
            return None;
        };
        match entry.kind {
            EntryKind::Reserve { request, key, wallet, amount } => {
                if holds.0.contains_key(&request) {
                    return None;
                }
                let hold = self.held(&entry.account, &request, &key, wallet, amount);
                hold.reserved();
                holds.0.insert(request, hold);
                None
            }
            EntryKind::Settle { request, key, wallet, amount, sale, drawn, .. } => {
                let hold = holds.0.remove(&request).or_else(unmatched)?;
                let (id, text) = sent.terms.clone().unwrap_or_default();
                let eur = sale.eur;
                let terms = Arc::new(TermsText { id: id.into(), text: text.into() });
                hold.settle(Settlement { amount, eur: sent.eur, sale: *sale, terms, drawn });
                (!sent.counted).then_some(Charged { key, wallet, amount, eur })
            }
            EntryKind::Void { request, why, drawn, .. } => {
                holds.0.remove(&request).or_else(unmatched)?.void(&why, drawn);
                None
            }
            EntryKind::Grant { .. } | EntryKind::Correct { .. } | EntryKind::Terms { .. } => None,
        }
    }

    /// Ticket to wait for until everything pushed so far is on the disk.
    #[must_use]
    pub fn ticket(&self) -> u64 {
        self.queue.pushed()
    }

    /// Stops the writer after the current commit; later operations are queued. Blocks.
    pub fn detach(&self) {
        self.queue.hand_over(true);
        if let Some(writer) = self.writer.lock().take() {
            writer.join().ok();
        }
        // The next process reads the replica.
        self.store.sync_replica();
        self.queue.hand_over(false);
    }

    /// Starts the writer again after a failed handover.
    ///
    /// # Errors
    /// Returns a sentence for the operator if the ledger cannot be used.
    pub fn attach(&self) -> Result<(), String> {
        let said = |error: StoreError| format!("The ledger cannot be used: {error}.");
        self.store.update_replica().map_err(said)?;
        let tip = self.store.tip().map_err(said)?;
        let balances = self.store.balances().map_err(said)?;
        let open = super::recovery::left_open(&self.store).map_err(said)?;
        let writer = writer::start(self.store.clone(), tip, balances, open, self.queue.clone())?;
        *self.writer.lock() = Some(writer);
        Ok(())
    }

    /// Passes queued and later operations to `send`, which returns once they are on the disk, or false if they never
    /// will be. Operations up to the number `counted` are included in the stored spend counters.
    ///
    /// # Errors
    /// Returns a sentence for the operator if the thread cannot be started.
    pub fn forward(
        &self,
        counted: u64,
        mut send: impl FnMut(Vec<Sent>) -> bool + Send + 'static,
    ) -> Result<(), String> {
        let queue = self.queue.clone();
        let forward = move || {
            while let Some(Piece { ops, last, .. }) = queue.collect(MOST, None) {
                if ops.is_empty() {
                    continue;
                }
                let bytes = ops.iter().map(Op::bytes).sum();
                let numbers = last + 1 - ops.len() as u64..;
                let numbered = ops.into_iter().zip(numbers);
                let deeds: Vec<(Deed, bool)> = numbered
                    .flat_map(|(op, number)| deeds(op).into_iter().map(move |deed| (deed, number <= counted)))
                    .collect();
                let exposed = deeds.iter().map(|(deed, _)| deed.exposed).sum();
                let count = deeds.len();
                if !send(deeds.into_iter().filter_map(|(deed, counted)| sent(deed, counted)).collect()) {
                    log::event(log::error(), "handover_lost", &[("acts", &count.to_string())]);
                }
                let (open, entries) = (queue.open(), queue.entries());
                queue.kept(&Kept { bytes, exposed, copied: true, open, entries });
                queue.reached(last);
            }
            queue.over();
        };
        let started = std::thread::Builder::new().name("ledger".to_owned()).spawn(forward);
        let thread = started.map_err(|error| format!("The ledger's thread cannot be started: {error}."))?;
        *self.writer.lock() = Some(thread);
        Ok(())
    }
}

fn unmatched() -> Option<Hold> {
    log::event(log::error(), "handover_unmatched", &[]);
    None
}

/// Actions of an operation. Administrative adjustments are refused: the writing process accepts them.
fn deeds(op: Op) -> Vec<Deed> {
    match op {
        Op::Act(deed) => vec![deed],
        Op::Lines(lines) => lines.ends,
        Op::Order(order) => {
            order.answer.send(Err(Refused::Failing)).ok();
            Vec::new()
        }
    }
}
