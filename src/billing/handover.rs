//! Ledger during an upgrade: the old process stops writing and sends the actions of its remaining exchanges to the new
//! process, which has the store. The new process records each action once, and voids the reservations that the old
//! process never ends.

use super::Ledger;
use super::hold::{Hold, Settlement};
use super::journal::start::{open_member_journal, start_threads};
use super::recovery::take_replayed_actions;
use super::write_op::{AdjustmentError, LedgerAction, SaleTerms, WriteOp};
use super::write_queue::{CommittedGroup, DrainedOps};
use super::writer::WriterStart;
use crate::upgrade::messages::SentLedgerAction;
use penstock_ledger::{EntryKind, HashChain, LedgerEntry, OpenReserves, RequestFootprint, Wallet};
use penstock_storage::StoreError;
use rust_decimal::Decimal;
use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use tracing::Level;

/// Maximum number of operations that are taken from the queue at a time. One operation may have several actions; the
/// sender limits the size of each message.
const MAX_FORWARDED_OPERATIONS: usize = 1_024;

/// Data of a charge that the counters of budgets need.
#[derive(Debug, PartialEq, Eq)]
pub struct BudgetCharge {
    /// Public ID of the key.
    pub key: Arc<str>,
    /// Wallet that paid.
    pub wallet: Wallet,
    /// Charged amount in micro-credits or nano-kWh, by the wallet.
    pub amount: i64,
    /// Amount of the charge in EUR.
    pub eur: Decimal,
}

/// Function that passes actions to another process. It returns true once they are on the disk, or false if they never
/// will be.
type SendActions = Box<dyn FnMut(Vec<SentLedgerAction>) -> bool + Send>;

/// Thread that waits for [`Ledger::forward_actions`]. Dropping the forwarder ends the thread.
pub struct ActionForwarder {
    start: mpsc::Sender<(u64, SendActions)>,
    thread: JoinHandle<()>,
}

/// Open reservations of the old process, by request ID.
#[derive(Default)]
pub struct InheritedHolds(HashMap<Arc<str>, Hold>);

impl InheritedHolds {
    /// Returns the number of open reservations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if the old process has no open reservations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Voids the reservations because their process no longer exists: work that it did not report is not charged.
    pub fn void(mut self) {
        self.0.drain().for_each(|(_, hold)| hold.void("crash", RequestFootprint::default()));
    }
}

/// Drops the reservations without an entry: if this process fails before it has taken over, the process that continues
/// ends them.
impl Drop for InheritedHolds {
    fn drop(&mut self) {
        self.0.drain().for_each(|(_, hold)| hold.disarm());
    }
}

/// Encodes an action for the process that writes; `None` if its line would be too long.
fn sent(action: LedgerAction, counted: bool) -> Option<SentLedgerAction> {
    let terms = action.terms.map(|terms| (terms.id.to_string(), terms.text.to_string()));
    let entry = LedgerEntry { seq: 1, at: action.at, account: action.account, kind: action.act };
    let mut line = Vec::new();
    HashChain::default().append(&entry, &mut line).ok()?;
    Some(SentLedgerAction { line: String::from_utf8(line).ok()?, terms, eur: action.exposed_eur, counted })
}

impl Ledger {
    /// Returns the open reservations of the store as holds of this process.
    pub(super) fn inherit_holds(self: &Arc<Self>, open: &OpenReserves) -> InheritedHolds {
        let hold = |request: &Arc<str>, hold: &penstock_ledger::OpenReserve| {
            self.inherit_hold(&hold.account, request, &hold.key, hold.wallet, hold.amount)
        };
        InheritedHolds(open.iter().map(|(request, known)| (request.clone(), hold(request, known))).collect())
    }

    fn inherit_hold(
        self: &Arc<Self>,
        account: &str,
        request: &Arc<str>,
        key: &Arc<str>,
        wallet: Wallet,
        amount: i64,
    ) -> Hold {
        let account_balance = self.account_balance(account);
        // The balance is not checked again, because the old process has checked it.
        account_balance.hold(wallet, amount, false).ok();
        Hold::new(self.clone(), account_balance, request.clone(), key.clone(), wallet, amount, 0)
    }

    /// Records an action of another process; returns its charge for the spend counters, or `None` if they include it
    /// already or there is no charge. An end that matches no open reservation, and a reservation that is already open,
    /// are not recorded.
    pub fn record_forwarded_action(
        self: &Arc<Self>,
        holds: &mut InheritedHolds,
        sent: &SentLedgerAction,
    ) -> Option<BudgetCharge> {
        let Ok(entry) = HashChain::default().verify_next(sent.line.as_bytes()) else {
            tracing::event!(name: "handover_charge_unreadable", Level::ERROR, {});
            return None;
        };
        match entry.kind {
            EntryKind::Reserve { request, key, wallet, amount } => {
                if holds.0.contains_key(&request) {
                    return None;
                }
                let hold = self.inherit_hold(&entry.account, &request, &key, wallet, amount);
                hold.queue_reservation();
                holds.0.insert(request, hold);
                None
            }
            EntryKind::Settle { request, key, wallet, amount, sale, footprint, .. } => {
                let hold = holds.0.remove(&request).or_else(log_unmatched)?;
                let (id, text) = sent.terms.clone().unwrap_or_default();
                let eur = sale.eur;
                let terms = Arc::new(SaleTerms { id: id.into(), text: text.into() });
                hold.settle(Settlement { amount, eur: sent.eur, sale: *sale, terms, footprint });
                (!sent.counted).then_some(BudgetCharge { key, wallet, amount, eur })
            }
            EntryKind::Void { request, why, footprint, .. } => {
                holds.0.remove(&request).or_else(log_unmatched)?.void(&why, footprint);
                None
            }
            EntryKind::Grant { .. } | EntryKind::Correct { .. } | EntryKind::Terms { .. } => None,
        }
    }

    /// Returns the number of the last operation that was pushed. Once it is written, everything pushed so far is on the
    /// disk.
    #[must_use]
    pub fn last_pushed_ticket(&self) -> u64 {
        self.queue.last_pushed_number()
    }

    /// Stops the writer after the current commit, and syncs the replica files; later operations are queued. Blocks.
    pub fn stop_writer(&self) {
        self.queue.set_handing_over(true);
        self.join_threads();
        // The replica is synced, because the next process reads it.
        self.store.sync_replica();
        self.queue.set_handing_over(false);
    }

    /// Starts the writer again after a failed handover.
    ///
    /// # Errors
    /// Returns a sentence for the operator if the ledger cannot be used.
    pub fn restart_writer(&self) -> Result<(), String> {
        let to_message = |error: StoreError| format!("The ledger cannot be used: {error}.");
        // There must never be two writers, also if the handover broke off before the writer was stopped.
        self.stop_writer();
        self.store.update_replica().map_err(to_message)?;
        let tip = self.store.tip().map_err(to_message)?;
        let balances = self.store.balances().map_err(to_message)?;
        let open = super::recovery::open_reservations(&self.store).map_err(to_message)?;
        let mut journal = open_member_journal(&self.store, self.leases.as_ref())?;
        // The writer has committed all operations of the journal, and its balances in memory include them.
        let replayed = take_replayed_actions(journal.as_mut(), &mut open.clone(), tip);
        let start = WriterStart { tip, balances, open, journaled: None };
        let threads = start_threads(&self.store, &self.queue, start, journal, replayed)?;
        *self.journal.write() = threads.journal;
        *self.threads.lock() = threads.handles;
        Ok(())
    }

    /// Starts the thread that will pass operations to another process. It is started before the handover, because
    /// nothing may fail once the other process has the store.
    ///
    /// # Errors
    /// Returns a sentence for the operator if the thread cannot be started.
    pub fn start_action_forwarder(&self) -> Result<ActionForwarder, String> {
        let (queue, (start, started)) = (self.queue.clone(), mpsc::channel::<(u64, SendActions)>());
        let forward = move || {
            let Ok((counted, mut send)) = started.recv() else { return };
            let mut is_lost = false;
            while let Some(DrainedOps { ops, last, .. }) =
                queue.take_operations(MAX_FORWARDED_OPERATIONS, None)
            {
                if ops.is_empty() {
                    continue;
                }
                let bytes = ops.iter().map(WriteOp::estimated_bytes).sum();
                let numbers = last + 1 - ops.len() as u64..;
                let numbered = ops.into_iter().zip(numbers);
                let actions: Vec<(LedgerAction, bool)> = numbered
                    .flat_map(|(op, number)| {
                        actions_of(op).into_iter().map(move |action| (action, number <= counted))
                    })
                    .collect();
                let exposed = actions.iter().map(|(action, _)| action.exposed_eur).sum();
                let count = actions.len();
                let actions = actions.into_iter().filter_map(|(action, counted)| sent(action, counted));
                is_lost = is_lost || !send(actions.collect());
                if is_lost {
                    tracing::error!(name: "handover_lost", acts = %count);
                    // These amounts stay in the exposed total, because no process will write the actions. Further
                    // requests are refused.
                    queue.subtract_pending_totals(bytes, 0);
                    queue.set_fenced();
                    queue.mark_writer_ended();
                    continue;
                }
                let (open, chain_entries) = (queue.open_hold_count(), queue.entry_count());
                queue.on_committed(&CommittedGroup {
                    bytes,
                    exposed_eur: exposed,
                    is_replicated: true,
                    open,
                    chain_entries,
                });
                queue.set_last_written_number(last);
            }
            queue.mark_writer_ended();
        };
        let spawned = std::thread::Builder::new().name("ledger".to_owned()).spawn(forward);
        let thread = spawned.map_err(|error| format!("The ledger's thread cannot be started: {error}."))?;
        Ok(ActionForwarder { start, thread })
    }

    /// Passes queued and later operations to `send`, which returns true once they are on the disk, or false if they
    /// never will be. After a false result, all later operations are lost too, and do not count as written. The
    /// stored spend counters already include the operations up to the number `counted`. Adjustments by operators are
    /// refused.
    pub fn forward_actions(
        &self,
        forwarder: ActionForwarder,
        counted: u64,
        send: impl FnMut(Vec<SentLedgerAction>) -> bool + Send + 'static,
    ) {
        // The thread waits for this message, so it is received.
        forwarder.start.send((counted, Box::new(send))).ok();
        self.threads.lock().push(forwarder.thread);
    }
}

fn log_unmatched() -> Option<Hold> {
    tracing::event!(name: "handover_charge_unmatched", Level::ERROR, {});
    None
}

/// Returns the actions of an operation for the new process, which writes the ledger now. An adjustment by an operator
/// has none: its caller gets an error, because the new process accepts adjustments itself.
fn actions_of(op: WriteOp) -> Vec<LedgerAction> {
    match op {
        WriteOp::Action(action) => vec![action],
        WriteOp::Outcomes(lines) => lines.actions,
        // The conditions and rows of these outcomes cannot be sent, so their charges become voids.
        WriteOp::Fenced(lines) => lines.into_voids(),
        WriteOp::Adjustment(order) => {
            order.reply.send(Err(AdjustmentError::StoreFailing)).ok();
            Vec::new()
        }
    }
}
