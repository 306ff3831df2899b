//! Billing of credits and energy at run time: balances in memory, and a write queue for charges to the disk.
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
//! `ledger.sync = "answer"` the last bytes of a response wait for its charge, so no charge of a
//! complete response is lost.

mod balance;
pub mod format;
mod group_builder;
pub mod handover;
mod hold;
pub mod offline;
mod op;
pub mod rebuild;
mod recovery;
mod replica_lag;
pub mod report;
pub mod rerate;
mod reserve;
pub mod sale;
mod side_rows;
#[cfg(test)]
mod tests;
mod write_queue;
mod writer;

pub use hold::{Ending, Hold, Settlement};
pub use op::{Refused, TermsText};
pub use reserve::Need;

use crate::config::settings;
use crate::telemetry::durability_metrics::State;
use crate::time::clock::Clock;
use balance::Purse;
use op::{Lines, Op, Order};
use parking_lot::{Mutex, RwLock};
use penstock_ledger::{EntryKind, Wallet};
use penstock_storage::ledger::{LedgerStore, MAX_EXTRA_ROW_BYTES, RowWrite};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;
use write_queue::Queue;

/// Longest wait of an adjustment for its entry; after that its outcome is unknown.
const PATIENCE: Duration = Duration::from_secs(5);

/// Maximum number of reservation ends per [`Ledger::enter`].
pub const MOST_ENDS: usize = 512;
/// Maximum number of rows per [`Ledger::enter`].
pub const MOST_ROWS: usize = 128;
/// Maximum size of these rows in bytes, keys included.
pub const MOST_ROW_BYTES: usize = MAX_EXTRA_ROW_BYTES;

/// Error if the data exceeds one commit or one row; nothing of it was recorded.
pub struct TooMuch(pub Vec<Ending>, pub Vec<RowWrite>);

/// Balances of all accounts, and the write queue of the ledger.
pub struct Ledger {
    /// Store of the ledger.
    pub store: Arc<LedgerStore>,
    purses: RwLock<HashMap<Box<str>, Arc<Purse>, ahash::RandomState>>,
    queue: Arc<Queue>,
    clock: Clock,
    debt: AtomicI64,
    backlog: AtomicU64,
    /// Duration of a write in milliseconds above which the store counts as failing.
    slow: AtomicU64,
    /// True if the last request was refused because of the unwritten amount: the rest of the limit is
    /// less than a request.
    turned_away: AtomicBool,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Ledger {
    /// Applies the settings of a new configuration.
    pub fn configure(&self, settings: &settings::LedgerSettings) {
        self.debt.store(settings.debt, Ordering::Relaxed);
        self.backlog.store(settings.backlog as u64, Ordering::Relaxed);
        self.slow.store(u64::try_from(settings.slow.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.queue.wait_for(settings.window);
    }

    fn purse(&self, account: &str) -> Arc<Purse> {
        if let Some(purse) = self.purses.read().get(account) {
            return purse.clone();
        }
        let mut purses = self.purses.write();
        purses.entry(account.into()).or_insert_with(|| Arc::new(Purse::new(account, 0, 0))).clone()
    }

    /// Returns true if too much is unwritten to accept another request.
    fn pressed(&self) -> bool {
        self.queue.waiting() > self.backlog.load(Ordering::Relaxed)
            || (self.failing() && self.queue.exposed() > self.debt.load(Ordering::Relaxed))
    }

    /// Returns true if the store rejects entries or is too slow.
    #[must_use]
    pub fn failing(&self) -> bool {
        self.queue.failing() || self.queue.busy() > self.slow()
    }

    fn slow(&self) -> Duration {
        Duration::from_millis(self.slow.load(Ordering::Relaxed))
    }

    /// Status of the ledger.
    #[must_use]
    pub fn state(&self) -> State {
        State {
            failing: self.failing(),
            exhausted: self.pressed() || (self.failing() && self.turned_away.load(Ordering::Relaxed)),
            copied: self.queue.copied(),
            exposed: self.queue.exposed(),
            waiting: self.queue.waiting(),
            open: self.queue.open(),
            entries: self.queue.entries(),
        }
    }

    /// Waits until everything up to `ticket` is on the disk; returns at once while the store fails.
    pub async fn written(&self, ticket: u64) {
        if !self.failing() {
            tokio::time::timeout(self.slow() * 2, self.queue.written(ticket)).await.ok();
        }
    }

    /// Records reservation ends and additional rows in one commit, in queue order. If the store fails temporarily,
    /// they are written later. Returns the ticket for [`Ledger::kept`].
    ///
    /// # Errors
    /// Returns the data if it exceeds [`MOST_ENDS`], [`MOST_ROWS`] or [`MOST_ROW_BYTES`], or if a
    /// row exceeds its limit.
    pub fn enter(&self, ends: Vec<Ending>, rows: Vec<RowWrite>) -> Result<u64, TooMuch> {
        let bytes: usize = rows.iter().map(RowWrite::bytes).sum();
        let fit = bytes <= MOST_ROW_BYTES && rows.iter().all(RowWrite::is_within_limits);
        if ends.len() > MOST_ENDS || rows.len() > MOST_ROWS || !fit {
            return Err(TooMuch(ends, rows));
        }
        let ends = ends.into_iter().map(Ending::deed).collect();
        Ok(self.queue.push(Op::Lines(Lines { ends, rows })))
    }

    /// Waits until everything up to `ticket` is on the disk, however long the store takes. Returns false if it never
    /// will be, because the process ends.
    pub async fn kept(&self, ticket: u64) -> bool {
        self.queue.kept_up_to(ticket).await
    }

    /// Balance of an account, and the amount held by open reservations.
    #[must_use]
    pub fn balance(&self, account: &str) -> penstock_ledger::AccountBalances {
        self.purses.read().get(account).map(|purse| purse.account()).unwrap_or_default()
    }

    /// Names of the accounts with a balance.
    #[must_use]
    pub fn accounts(&self) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> = self.purses.read().values().map(|purse| purse.name.clone()).collect();
        names.sort();
        names
    }

    /// Grants credits or energy to an account. Returns the entry number when it is on the disk.
    ///
    /// # Errors
    /// Returns the errors of [`Refused`].
    pub async fn grant(
        &self,
        account: &str,
        id: &str,
        wallet: Wallet,
        amount: i64,
        (note, by): (&str, &str),
    ) -> Result<u64, Refused> {
        let act = EntryKind::Grant { id: id.into(), wallet, amount, note: note.into(), by: by.into() };
        self.order(account, act, vec![format!("grant {id}")]).await
    }

    /// Corrects a charge or a grant: reverses it and records another amount.
    ///
    /// # Errors
    /// Returns the errors of [`Refused`].
    pub async fn correct(&self, account: &str, act: EntryKind) -> Result<u64, Refused> {
        let EntryKind::Correct { id, of, .. } = &act else { return Err(Refused::Impossible) };
        let names = vec![format!("correct {id}"), format!("corrected {of}")];
        self.order(account, act, names).await
    }

    async fn order(&self, account: &str, act: EntryKind, names: Vec<String>) -> Result<u64, Refused> {
        if self.failing() {
            return Err(Refused::Failing);
        }
        let (answer, answered) = mpsc::channel();
        let order = Order { purse: self.purse(account), at: self.clock.unix(), act, names, answer };
        self.queue.push(Op::Order(Box::new(order)));
        // On a blocking thread: the caller may have no timers, and a hanging disk must not block an
        // operator's request.
        let waited = tokio::task::spawn_blocking(move || answered.recv_timeout(PATIENCE));
        waited.await.ok().and_then(Result::ok).unwrap_or(Err(Refused::Unknown))
    }

    /// Writes the queue and stops the writer. Blocks.
    pub fn close(&self) {
        self.queue.close();
        if let Some(writer) = self.writer.lock().take() {
            writer.join().ok();
        }
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.close();
    }
}
