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

pub mod handover;
mod hold;
mod purse;
mod queue;
pub mod rebuild;
pub mod report;
pub mod rerate;
#[cfg(test)]
mod tests;
pub mod views;
mod writer;

pub use hold::{Ending, Hold, Settlement};
pub use queue::{Refused, TermsText};

use crate::civil::rfc3339;
use crate::clock::Clock;
use crate::config::settings;
use crate::observe::log;
use parking_lot::{Mutex, RwLock};
use penstock_contract::{Code, MicroCredits, NanoKwh, Refusal};
use penstock_ledger::{Act, Chain, Drawn, Open, Wallet, lines};
use penstock_storage::StoreError;
use penstock_storage::ledger::{LedgerStore, MAX_ROW_BYTES, RowWrite, Tip};
use purse::Purse;
use queue::{Deed, Lines, Op, Order, Queue};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

/// As far ahead as a configuration can say: any date will do.
const ANY: Duration = Duration::from_secs(366 * 86_400);
/// Longest wait of an order for its entry; whether it is made is then not known.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a request may come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// In micro-credits, where credits pay.
    pub credits: i64,
    /// In nano-kWh, where the energy wallet may pay.
    pub energy: Option<i64>,
    /// In 1e-8 EUR.
    pub eur: i64,
}

/// Most ends of one [`Ledger::enter`].
pub const MOST_ENDS: usize = 512;
/// Most rows of one [`Ledger::enter`].
pub const MOST_ROWS: usize = 128;
/// Most bytes of its rows, keys included.
pub const MOST_ROW_BYTES: usize = MAX_ROW_BYTES;

/// More than one commit can hold; nothing of it was entered.
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

/// How the ledger is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The store does not take entries, or takes too long.
    pub failing: bool,
    /// No further request is taken: debt or backlog is used up.
    pub exhausted: bool,
    /// The second copy is up to the store.
    pub copied: bool,
    /// Charged and reserved, and not yet on the disk, in 1e-8 EUR.
    pub exposed: i64,
    /// Bytes that wait to be written.
    pub waiting: u64,
    /// Open reserves.
    pub open: u64,
    /// Number of the last entry on the disk.
    pub entries: u64,
}

impl Ledger {
    /// Takes up the ledger in a store, voids the reserves that a crash left
    /// open, and starts to write.
    ///
    /// # Errors
    /// One sentence that says what is in the way.
    pub fn open(
        store: Arc<LedgerStore>,
        settings: &settings::Ledger,
        clock: Clock,
    ) -> Result<Arc<Self>, String> {
        Self::begin(store, settings, clock, false).map(|(ledger, _)| ledger)
    }

    /// The same for a store that another process has just closed: the reserves
    /// that are open are its own, and it goes on with them.
    ///
    /// # Errors
    /// As [`Ledger::open`].
    pub fn take_over(
        store: Arc<LedgerStore>,
        settings: &settings::Ledger,
        clock: Clock,
    ) -> Result<(Arc<Self>, handover::Holds), String> {
        let (ledger, open) = Self::begin(store, settings, clock, true)?;
        let holds = ledger.holds(&open);
        Ok((ledger, holds))
    }

    fn begin(
        store: Arc<LedgerStore>,
        settings: &settings::Ledger,
        clock: Clock,
        taken_over: bool,
    ) -> Result<(Arc<Self>, Open), String> {
        let said = |error: StoreError| format!("The ledger cannot be used: {error}.");
        let tip = store.tip().map_err(said)?;
        in_time(tip, settings.ahead, clock.unix())?;
        let balances = store.balances().map_err(said)?;
        let purses = balances.iter().map(|(account, balance)| {
            (account.as_str().into(), Arc::new(Purse::new(account, balance.credits, balance.energy)))
        });
        let purses = RwLock::new(purses.collect::<HashMap<_, _, ahash::RandomState>>());
        let open = left_open(&store).map_err(said)?;
        let queue = Arc::new(Queue::new(settings.window, tip.map_or(0, |tip| tip.seq)));
        let theirs = if taken_over { open.clone() } else { Open::default() };
        for (request, hold) in open.iter().filter(|_| !taken_over) {
            let act = Act::Void {
                request: request.clone(),
                key: hold.key.clone(),
                wallet: hold.wallet,
                held: hold.amount,
                why: "crash".into(),
                drawn: Drawn::default(),
            };
            let (at, account) = (clock.unix(), hold.account.clone());
            queue.push(Op::Act(Deed { at, account, act, terms: None, exposed: 0 }));
        }
        if !open.is_empty() && !taken_over {
            let count = open.len().to_string();
            log::event(log::info(), "reserves_voided", &[("count", &count), ("why", "crash")]);
        }
        let writer = writer::start(store.clone(), tip, balances, open, queue.clone())?;
        let ledger = Self {
            store,
            purses,
            queue,
            clock,
            debt: AtomicI64::new(0),
            backlog: AtomicU64::new(0),
            slow: AtomicU64::new(0),
            turned_away: AtomicBool::new(false),
            writer: Mutex::new(Some(writer)),
        };
        ledger.configure(settings);
        Ok((Arc::new(ledger), theirs))
    }

    /// What another configuration says of it.
    pub fn configure(&self, settings: &settings::Ledger) {
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

    /// Sets aside what a request may come to, before it is sent to a provider.
    ///
    /// # Errors
    /// 402 with what is required and what there is; 503 while too much is unwritten.
    pub fn reserve(
        self: &Arc<Self>,
        account: &str,
        key: &Arc<str>,
        request: &str,
        need: Need,
        prepaid: bool,
    ) -> Result<Hold, Refusal> {
        let purse = self.purse(account);
        self.queue.expose(need.eur);
        let pressed = self.pressed();
        if pressed != self.turned_away.load(Ordering::Relaxed) {
            self.turned_away.store(pressed, Ordering::Relaxed);
        }
        let taken = if pressed { Err(unwritten()) } else { choose(&purse, need, prepaid) };
        let (wallet, amount) = match taken {
            Ok(taken) => taken,
            Err(refusal) => {
                self.queue.expose(-need.eur);
                return Err(refusal);
            }
        };
        let hold = Hold::new(self.clone(), purse, request.into(), key.clone(), wallet, amount, need.eur);
        hold.reserved();
        Ok(hold)
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
    /// Over [`MOST_ENDS`], [`MOST_ROWS`] or [`MOST_ROW_BYTES`].
    pub fn enter(&self, ends: Vec<Ending>, rows: Vec<RowWrite>) -> Result<u64, TooMuch> {
        let bytes: usize = rows.iter().map(RowWrite::bytes).sum();
        if ends.len() > MOST_ENDS || rows.len() > MOST_ROWS || bytes > MOST_ROW_BYTES {
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
    pub fn balance(&self, account: &str) -> penstock_ledger::Account {
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
        let act = Act::Grant { id: id.into(), wallet, amount, note: note.into(), by: by.into() };
        self.order(account, act, vec![format!("grant {id}")]).await
    }

    /// Takes a charge or a grant back and puts another amount in its place.
    ///
    /// # Errors
    /// See [`Refused`].
    pub async fn correct(&self, account: &str, act: Act) -> Result<u64, Refused> {
        let Act::Correct { id, of, .. } = &act else { return Err(Refused::Impossible) };
        let names = vec![format!("correct {id}"), format!("corrected {of}")];
        self.order(account, act, names).await
    }

    async fn order(&self, account: &str, act: Act, names: Vec<String>) -> Result<u64, Refused> {
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

/// Entries are never dated before the one they follow: behind a last entry of the future, all that come are
/// of the future too, on statements and invoices.
fn in_time(tip: Option<Tip>, ahead: Duration, now: u64) -> Result<(), String> {
    if ahead >= ANY {
        return Ok(());
    }
    let Some(tip) = tip.filter(|tip| tip.at > now.saturating_add(ahead.as_secs())) else { return Ok(()) };
    Err(format!(
        "The ledger's last entry is of {}, and this machine's clock says {}: set the clock right and start again. If \
         the clock is right and was ahead then, allow it with ledger.ahead = \"366d\"; entries go on with that date until it \
         is reached.",
        rfc3339(tip.at),
        rfc3339(now)
    ))
}

/// The reserves that have no end on the disk.
fn left_open(store: &LedgerStore) -> Result<Open, StoreError> {
    let mut open = Open::default();
    let Some(tip) = store.tip()? else { return Ok(open) };
    let damaged = |what: &str| StoreError::Corrupt { what: what.to_owned() };
    let mut last = Chain::default();
    // At least the last sheet: it has to end where the tip says.
    store.walk(tip.low.min(tip.seq).saturating_sub(1), |sheet| {
        for line in lines(&sheet.text) {
            let (entry, chain) = Chain::glance(line).map_err(|_| damaged("an entry of the ledger"))?;
            open.take(&entry);
            last = chain;
        }
        Ok::<_, StoreError>(())
    })?;
    if (last.seq, last.hash) != (tip.seq, tip.hash) {
        return Err(damaged("the last entry of the ledger is not the one it should be"));
    }
    Ok(open)
}

/// The wallet that pays, and how much it holds: energy where it covers the
/// need, or need not, else credits.
fn choose(purse: &Purse, need: Need, prepaid: bool) -> Result<(Wallet, i64), Refusal> {
    if let Some(energy) = need.energy
        && purse.take(Wallet::Energy, energy, prepaid).is_ok()
    {
        return Ok((Wallet::Energy, energy));
    }
    match purse.take(Wallet::Credits, need.credits, prepaid) {
        Ok(()) => Ok((Wallet::Credits, need.credits)),
        Err(available) => Err(insufficient(purse, need, available)),
    }
}

fn insufficient(purse: &Purse, need: Need, available: i64) -> Refusal {
    let (required, available) = (MicroCredits(need.credits).credits(), MicroCredits(available).credits());
    let message = format!(
        "The account's balance does not cover this request: it may take up to {} credits, and {} are available.",
        required.normalize(),
        available.normalize(),
    );
    let refusal = Refusal::because(Code::InsufficientCredits, message)
        .with("wallet", Wallet::Credits.name())
        .with("required", views::number(required))
        .with("available", views::number(available));
    match need.energy {
        None => refusal,
        Some(energy) => {
            let there = NanoKwh(purse.available(Wallet::Energy)).kwh();
            let both = [("required_kwh", NanoKwh(energy).kwh()), ("available_kwh", there)];
            let both: serde_json::Map<String, Value> =
                both.into_iter().map(|(name, kwh)| (name.to_owned(), views::number(kwh))).collect();
            refusal.with("energy", Value::Object(both))
        }
    }
}

fn unwritten() -> Refusal {
    let message = "Charges cannot be written down at the moment, so no request is taken; try again shortly.";
    Refusal::because(Code::Unavailable, message).retry_after(5)
}
