//! Credits and billed energy while the house runs: what accounts may spend, in
//! memory; what they spent, on its way to the disk.
//!
//! ```text
//! request ─▶ reserve ─▶ … ─▶ settle | void          atomics, and a push to the queue
//!               └──────────────┴──▶ queue ─▶ writer ─▶ store + second copy, one sync for all
//! ```
//! No request waits for the disk before it is sent. A [`Hold`] ends once: its
//! methods take it, and dropping it voids it. After a crash:
//! - a reserve that is on the disk without its end is voided at the next start:
//!   nothing is charged twice, and nobody pays for an answer that was cut;
//! - charges that were still in the queue are forgotten: those of the last
//!   `ledger.window` and of the write after it. With `ledger.sync = "answer"` the
//!   last bytes of an answer wait for its charge, and none is forgotten whose
//!   client has the whole answer.

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

/// Longest wait of an order for its entry; whether it is made is then not known.
const PATIENCE: Duration = Duration::from_secs(5);

/// Most ends of one [`Ledger::enter`].
pub const MOST_ENDS: usize = 512;
/// Most rows of one [`Ledger::enter`].
pub const MOST_ROWS: usize = 128;
/// Most bytes of its rows, keys included.
pub const MOST_ROW_BYTES: usize = MAX_EXTRA_ROW_BYTES;

/// More than one commit or one row can hold; nothing of it was entered.
pub struct TooMuch(pub Vec<Ending>, pub Vec<RowWrite>);

/// Every account's purse, and the way to the ledger.
pub struct Ledger {
    /// What is on the disk.
    pub store: Arc<LedgerStore>,
    purses: RwLock<HashMap<Box<str>, Arc<Purse>, ahash::RandomState>>,
    queue: Arc<Queue>,
    clock: Clock,
    debt: AtomicI64,
    backlog: AtomicU64,
    /// A write that takes longer means that the store fails, in milliseconds.
    slow: AtomicU64,
    /// The last request was refused since too much is unwritten: what is left of the debt is less than a request.
    turned_away: AtomicBool,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Ledger {
    /// What another configuration says of it.
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

    /// Whether too much is unwritten to take another request.
    fn pressed(&self) -> bool {
        self.queue.waiting() > self.backlog.load(Ordering::Relaxed)
            || (self.failing() && self.queue.exposed() > self.debt.load(Ordering::Relaxed))
    }

    /// Whether the store does not take entries, or takes too long.
    #[must_use]
    pub fn failing(&self) -> bool {
        self.queue.failing() || self.queue.busy() > self.slow()
    }

    fn slow(&self) -> Duration {
        Duration::from_millis(self.slow.load(Ordering::Relaxed))
    }

    /// How it is.
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

    /// Waits until what was pushed up to `ticket` is on the disk; not while the store fails.
    pub async fn written(&self, ticket: u64) {
        if !self.failing() {
            tokio::time::timeout(self.slow() * 2, self.queue.written(ticket)).await.ok();
        }
    }

    /// Enters how requests ended, and the rows that belong to that: all of it in
    /// one commit, in the order of all that is pushed. A store that fails for now
    /// gets it later. Returns what to wait for, see [`Ledger::kept`].
    ///
    /// # Errors
    /// Over [`MOST_ENDS`], [`MOST_ROWS`] or [`MOST_ROW_BYTES`], or a row that the store takes from nobody.
    pub fn enter(&self, ends: Vec<Ending>, rows: Vec<RowWrite>) -> Result<u64, TooMuch> {
        let bytes: usize = rows.iter().map(RowWrite::bytes).sum();
        let fit = bytes <= MOST_ROW_BYTES && rows.iter().all(RowWrite::is_within_limits);
        if ends.len() > MOST_ENDS || rows.len() > MOST_ROWS || !fit {
            return Err(TooMuch(ends, rows));
        }
        let ends = ends.into_iter().map(Ending::deed).collect();
        Ok(self.queue.push(Op::Lines(Lines { ends, rows })))
    }

    /// Waits until what was pushed up to `ticket` is on the disk, for as long as
    /// the store takes. False if it is not and will not be: the process ends.
    pub async fn kept(&self, ticket: u64) -> bool {
        self.queue.kept_up_to(ticket).await
    }

    /// What an account has, and what open reserves hold of it.
    #[must_use]
    pub fn balance(&self, account: &str) -> penstock_ledger::AccountBalances {
        self.purses.read().get(account).map(|purse| purse.account()).unwrap_or_default()
    }

    /// The accounts that have a balance, by name.
    #[must_use]
    pub fn accounts(&self) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> = self.purses.read().values().map(|purse| purse.name.clone()).collect();
        names.sort();
        names
    }

    /// Gives an account credits or energy. Returns the number of the entry when it is on the disk.
    ///
    /// # Errors
    /// See [`Refused`].
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

    /// Takes a charge or a grant back and puts another amount in its place.
    ///
    /// # Errors
    /// See [`Refused`].
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
        // On a thread: a caller may have no timers, and a disk that hangs must not hold an operator up.
        let waited = tokio::task::spawn_blocking(move || answered.recv_timeout(PATIENCE));
        waited.await.ok().and_then(Result::ok).unwrap_or(Err(Refused::Unknown))
    }

    /// Writes what is waiting and ends; blocks.
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
