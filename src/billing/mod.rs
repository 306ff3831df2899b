//! Billing of credits and energy at run time: the balances are in memory, and charges are written to the disk through a
//! write queue.
//!
//! ```text
//! request ─▶ reserve ─▶ … ─▶ settle | void          atomics, and a push to the queue
//!               └──────────────┴──▶ queue ─▶ writer ─▶ store + replica files, one sync for all
//! ```
//! No request waits for the disk before it is sent. A [`Hold`] ends once: its methods consume it, and dropping it
//! voids the reservation. After a crash:
//! - a reservation that is on the disk without its end is voided at the next start: nothing is charged twice, and an
//!   interrupted response is not charged;
//! - charges that were still in the queue are lost: those of the last `ledger.window` and of the write after it. With
//!   `ledger.sync = "answer"` the last bytes of a response wait for its charge, so no charge of a
//!   complete response is lost.

mod abandoned;
mod balance;
pub mod carbon;
pub mod checkpoint;
pub mod correction_value;
mod current_balance;
mod entry_effects;
mod entry_merge;
pub mod entry_pages;
mod extra_rows;
mod fenced_outcomes;
pub mod format;
mod group_builder;
pub mod handover;
mod history;
mod hold;
pub mod invoice;
pub mod invoice_corrections;
mod invoice_prices;
pub mod invoice_totals;
mod journal;
mod leases;
pub mod ledger_export;
pub mod offline;
mod pools;
pub mod rebuild;
mod recovery;
mod replica_lag;
pub mod report;
pub mod rerate;
mod reserve;
pub mod rollups;
pub mod sale;
#[cfg(test)]
mod tests;
mod verification;
mod write_op;
mod write_queue;
mod writer;

pub use fenced_outcomes::{CommitConditions, FencedResult, PendingFencedCommit};
pub use history::BackdatedCharge;
pub use hold::{Hold, HoldEnd, Settlement};
pub use journal::JournalSnapshot;
pub use leases::Leases;
pub use reserve::ReserveAmounts;
pub use write_op::{AdjustmentError, SaleTerms};

use crate::config::settings;
use crate::telemetry::durability_metrics::LedgerSnapshot;
use crate::time::clock::ProcessClock;
use balance::AccountBalance;
use handover::BudgetCharge;
use journal::JournalState;
use parking_lot::{Mutex, RwLock};
use penstock_ledger::{EntryKind, Wallet};
use penstock_storage::audit::ChangeDescription;
use penstock_storage::ledger::{LedgerStore, RowWrite};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;
use write_op::{AdminAdjustment, BatchOutcomes, WriteOp};
use write_queue::WriteQueue;

/// Returns the unique name of the entry that corrects entry number `corrected_entry`, by which the ledger finds it.
pub fn correction_entry_name(corrected_entry: u64) -> String {
    format!("corrected {corrected_entry}")
}

/// Longest wait of an adjustment until its entry is on the disk; after that its outcome is unknown.
const ADJUSTMENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of reservation ends in one call of [`Ledger::record_outcomes`].
pub const MAX_OUTCOMES: usize = 512;
/// Maximum number of rows in one call of [`Ledger::record_outcomes`].
pub const MAX_EXTRA_ROWS: usize = 128;
/// Maximum size of the rows in one call of [`Ledger::record_outcomes`], in bytes, keys included.
pub use penstock_storage::ledger::MAX_EXTRA_ROWS_BYTES;

/// Error for data that exceeds the limits of one commit or of a row. It contains the data, none of which was recorded.
pub struct CommitTooLarge(pub Vec<HoldEnd>, pub Vec<RowWrite>);

/// Balances of all accounts, and the write queue of the ledger.
pub struct Ledger {
    /// Store of the ledger.
    pub store: Arc<LedgerStore>,
    balances: RwLock<HashMap<Box<str>, Arc<AccountBalance>, ahash::RandomState>>,
    queue: Arc<WriteQueue>,
    clock: ProcessClock,
    /// Maximum exposed amount while the store fails, in 1e-8 EUR.
    exposure_limit: AtomicI64,
    /// Maximum size of the operations that are not on the disk, in bytes.
    backlog_limit: AtomicU64,
    /// Duration in milliseconds from which a running write counts as a failure of the store.
    slow: AtomicU64,
    /// True if the last reservation was refused because its charge could not be recorded. If the limit on the unwritten
    /// amount was the cause, what is left of the limit is less than the price of one request.
    refused_last: AtomicBool,
    /// Leases of a fleet member; `None` without a fleet.
    leases: Option<Leases>,
    /// State of the journal of a fleet member; `None` without a fleet.
    journal: RwLock<Option<Arc<JournalState>>>,
    /// Charges of the last process that were replayed from the journal, until the budgets count them.
    replayed_charges: Mutex<Vec<BudgetCharge>>,
    /// Threads in the order in which they end.
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Ledger {
    /// Applies the settings of a new configuration.
    pub fn configure(&self, settings: &settings::LedgerSettings) {
        self.exposure_limit.store(settings.debt, Ordering::Relaxed);
        self.backlog_limit.store(settings.backlog as u64, Ordering::Relaxed);
        self.slow.store(u64::try_from(settings.slow.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.queue.set_collect_time(settings.window);
        if let Some(journal) = &*self.journal.read() {
            journal.set_backlog_limit(settings.backlog as u64);
        }
    }

    fn account_balance(&self, account: &str) -> Arc<AccountBalance> {
        if let Some(account_balance) = self.balances.read().get(account) {
            return account_balance.clone();
        }
        let mut account_balances = self.balances.write();
        account_balances
            .entry(account.into())
            .or_insert_with(|| Arc::new(AccountBalance::new(account, 0, 0)))
            .clone()
    }

    /// Returns true if no further request may be accepted: this process may not write any more, too many bytes are
    /// unwritten, or the store fails and the unwritten amount is over the limit.
    fn is_exhausted(&self) -> bool {
        self.queue.is_fenced()
            || self.queue.unwritten_bytes() > self.backlog_limit.load(Ordering::Relaxed)
            || (self.is_failing()
                && self.queue.exposed_amount() > self.exposure_limit.load(Ordering::Relaxed))
    }

    /// Returns true if the store rejects entries or is too slow, or if this process may not write to it any more.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.queue.is_failing() || self.queue.current_write_duration() > self.slow()
    }

    fn slow(&self) -> Duration {
        Duration::from_millis(self.slow.load(Ordering::Relaxed))
    }

    /// Returns the state of the ledger for metrics.
    #[must_use]
    pub fn durability_snapshot(&self) -> LedgerSnapshot {
        LedgerSnapshot {
            failing: self.is_failing(),
            exhausted: self.is_exhausted()
                || (self.is_failing() && self.refused_last.load(Ordering::Relaxed)),
            is_replica_current: self.queue.is_replica_current(),
            exposed_eur_units: self.queue.exposed_amount(),
            waiting: self.queue.unwritten_bytes(),
            open: self.queue.open_hold_count(),
            entries: self.queue.entry_count(),
        }
    }

    /// Waits until everything up to `ticket` is on the disk, for at most twice `ledger.slow`. If the store fails or
    /// takes longer, a member of a fleet then waits until everything is in the journal, for at most the same time
    /// again. The caller continues in any case.
    pub async fn wait_written_or_journaled(&self, ticket: u64) {
        let most = self.slow() * 2;
        if !self.is_failing()
            && tokio::time::timeout(most, self.queue.wait_until_written(ticket)).await.is_ok()
        {
            return;
        }
        let journal = self.journal.read().clone().filter(|journal| !journal.is_failing());
        if let Some(journal) = journal {
            self.queue.shorten_collect_time();
            tokio::time::timeout(most, journal.wait_journaled(ticket)).await.ok();
        }
    }

    /// Returns the state of the journal; `None` without a fleet.
    #[must_use]
    pub fn journal_snapshot(&self) -> Option<JournalSnapshot> {
        self.journal.read().as_ref().map(|journal| journal.snapshot())
    }

    /// Returns true if the store has every operation.
    #[must_use]
    pub fn is_completely_written(&self) -> bool {
        self.queue.unwritten_bytes() == 0
    }

    /// Passes the charges that were replayed at the start to `apply`, which adds them to the counters of budgets. They
    /// do not count as spending of this process.
    pub fn drain_replayed_charges(&self, apply: impl FnMut(&BudgetCharge)) {
        self.take_replayed_charges().iter().for_each(apply);
        self.reset_spending_baselines();
    }

    fn take_replayed_charges(&self) -> Vec<BudgetCharge> {
        std::mem::take(&mut *self.replayed_charges.lock())
    }

    /// Subtracts the replayed charges from the leases that the last process had.
    fn charge_replayed(&self, charges: Vec<(Arc<str>, BudgetCharge)>) {
        for (account, charge) in &charges {
            self.account_balance(account).release_and_charge(charge.wallet, 0, charge.amount);
        }
        self.reset_spending_baselines();
        self.replayed_charges.lock().extend(charges.into_iter().map(|(_, charge)| charge));
    }

    /// Records reservation ends and additional rows in one commit, in queue order. If the store fails temporarily,
    /// they are written later. Returns the ticket for [`Ledger::wait_durable`].
    ///
    /// # Errors
    /// Returns [`CommitTooLarge`] with the ends and the rows if they exceed [`MAX_OUTCOMES`], [`MAX_EXTRA_ROWS`] or
    /// [`MAX_EXTRA_ROWS_BYTES`], or if a row exceeds its limit; nothing is queued then.
    pub fn record_outcomes(&self, ends: Vec<HoldEnd>, rows: Vec<RowWrite>) -> Result<u64, CommitTooLarge> {
        if !is_within_commit(&ends, &rows) {
            return Err(CommitTooLarge(ends, rows));
        }
        let ends = ends.into_iter().map(HoldEnd::into_action).collect();
        Ok(self.queue.push(WriteOp::Outcomes(BatchOutcomes { actions: ends, rows })))
    }

    /// Waits until everything up to `ticket` is on the disk, however long the store takes. Returns false if it never
    /// will be, because the writer has ended.
    pub async fn wait_durable(&self, ticket: u64) -> bool {
        self.queue.wait_durable(ticket).await
    }

    /// Returns the balance of an account in memory, and the amount held by open reservations. In a fleet, this is the
    /// lease of this gateway; see [`Ledger::current_balance`] for the balance of the account.
    #[must_use]
    pub fn balance(&self, account: &str) -> penstock_ledger::AccountWallets {
        self.balances
            .read()
            .get(account)
            .map(|account_balance| account_balance.snapshot())
            .unwrap_or_default()
    }

    /// Returns the names of the accounts with a balance in memory, in order.
    #[must_use]
    pub fn accounts_with_balance(&self) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> =
            self.balances.read().values().map(|account_balance| account_balance.name.clone()).collect();
        names.sort();
        names
    }

    /// Grants credits or energy to an account. Returns the entry number when it is on the disk.
    ///
    /// # Errors
    /// Returns the errors of [`AdjustmentError`].
    pub async fn grant(
        &self,
        account: &str,
        id: &str,
        wallet: Wallet,
        amount: i64,
        (note, by): (&str, &str),
    ) -> Result<u64, AdjustmentError> {
        let act = EntryKind::Grant { id: id.into(), wallet, amount, note: note.into(), by: by.into() };
        self.record_grant(account, act, None).await
    }

    /// Records a grant, and its entry of the audit log in the same commit. Returns the entry number when it is on the
    /// disk.
    ///
    /// # Errors
    /// Returns the errors of [`AdjustmentError`].
    pub async fn record_grant(
        &self,
        account: &str,
        act: EntryKind,
        audit: Option<ChangeDescription>,
    ) -> Result<u64, AdjustmentError> {
        let EntryKind::Grant { id, .. } = &act else { return Err(AdjustmentError::InvalidAmount) };
        let names = vec![format!("grant {id}")];
        self.submit_adjustment(account, act, names, audit).await
    }

    /// Corrects a charge or a grant: reverses it and records another amount. The entry of the audit log is written in
    /// the same commit. Returns the entry number when it is on the disk.
    ///
    /// # Errors
    /// Returns the errors of [`AdjustmentError`].
    pub async fn record_correction(
        &self,
        account: &str,
        act: EntryKind,
        audit: Option<ChangeDescription>,
    ) -> Result<u64, AdjustmentError> {
        let EntryKind::Correct { id, of, .. } = &act else { return Err(AdjustmentError::InvalidAmount) };
        let names = vec![format!("correct {id}"), correction_entry_name(*of)];
        self.submit_adjustment(account, act, names, audit).await
    }

    async fn submit_adjustment(
        &self,
        account: &str,
        act: EntryKind,
        names: Vec<String>,
        audit: Option<ChangeDescription>,
    ) -> Result<u64, AdjustmentError> {
        if self.is_failing() {
            return Err(AdjustmentError::StoreFailing);
        }
        let (answer, answered) = mpsc::channel();
        let order = AdminAdjustment {
            balance: self.account_balance(account),
            at: self.clock.unix_seconds(),
            act,
            names,
            audit,
            reply: answer,
        };
        self.queue.push(WriteOp::Adjustment(Box::new(order)));
        // Waits on a blocking thread: the caller may run without timers, and a hanging disk must not block the request
        // of an operator.
        let waited = tokio::task::spawn_blocking(move || answered.recv_timeout(ADJUSTMENT_TIMEOUT));
        waited.await.ok().and_then(Result::ok).unwrap_or(Err(AdjustmentError::OutcomeUnknown))
    }

    /// Writes all queued operations and stops the writer. Blocks.
    pub fn close(&self) {
        self.queue.close();
        self.join_threads();
    }

    fn join_threads(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}

/// Returns true if ends and rows are within the limits of one commit and of a row.
fn is_within_commit(ends: &[HoldEnd], rows: &[RowWrite]) -> bool {
    let bytes: usize = rows.iter().map(RowWrite::byte_len).sum();
    let fit = bytes <= MAX_EXTRA_ROWS_BYTES && rows.iter().all(RowWrite::is_within_limits);
    ends.len() <= MAX_OUTCOMES && rows.len() <= MAX_EXTRA_ROWS && fit
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.close();
    }
}
