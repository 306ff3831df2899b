//! The ledger while a process hands over to another: the one that leaves stops
//! writing and sends what its exchanges still do; the one that has the store
//! enters it, each end once, and voids what was never ended.

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

/// Most acts that are sent together.
const MOST: usize = 1_024;

/// What was charged, for the budgets.
#[derive(Debug, PartialEq, Eq)]
pub struct Charged {
    /// Public id of the key.
    pub key: Arc<str>,
    /// What was paid with.
    pub wallet: Wallet,
    /// Micro-credits or nano-kWh.
    pub amount: i64,
    /// The same in EUR.
    pub eur: Decimal,
}

/// The open reserves of a process that leaves, by request.
#[derive(Default)]
pub struct Holds(HashMap<Arc<str>, Hold>);

impl Holds {
    /// How many are open.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// None is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their process is gone: nobody pays for what it did not tell.
    pub fn void(mut self) {
        self.0.drain().for_each(|(_, hold)| hold.void("crash", RequestFootprint::default()));
    }
}

/// A process that fails before it has taken over leaves them to the one that goes on with them.
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
    /// The reserves that the store has open, as those of a process that goes on with them.
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
        // It was covered where it was taken.
        purse.take(wallet, amount, false).ok();
        Hold::new(self.clone(), purse, request.clone(), key.clone(), wallet, amount, 0)
    }

    /// Enters an act of another process; returns what was charged and is not in the
    /// noted spends. What does not fit its open reserves is not entered.
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

    /// What to wait for until everything entered so far is on the disk.
    #[must_use]
    pub fn ticket(&self) -> u64 {
        self.queue.pushed()
    }

    /// Stops writing at the end of the commit at work; what comes waits. Blocks.
    pub fn detach(&self) {
        self.queue.hand_over(true);
        if let Some(writer) = self.writer.lock().take() {
            writer.join().ok();
        }
        // The next process reads it.
        self.store.sync_replica();
        self.queue.hand_over(false);
    }

    /// Writes again, after the other process has not taken over.
    ///
    /// # Errors
    /// One sentence that says what is in the way.
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

    /// Gives what waits and what comes to `send`, which is done once it is on the
    /// disk, and false if it never will be. What was pushed up to the number `counted`
    /// is in the spends that were noted.
    ///
    /// # Errors
    /// One sentence that says what is in the way.
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

/// Orders of the operator are asked of the process that writes.
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
