//! Leases of a fleet member: the part of each prepaid balance that this gateway may spend without the database.
//!
//! In a fleet, the balance of an account in memory is the lease of this gateway, see [`crate::fleet`]. A request whose
//! price is not covered by it draws from the account's pool, for at most three seconds in all. From then on the lease is
//! filled each second to the spending of `fleet.ahead`, and an amount that is no longer needed returns to the pool. If a
//! request is refused although the other members hold enough, they return all but the spending of the last second.
//!
//! ```text
//! spent by this member ≤ leased + the excess of requests without max_tokens
//! idle elsewhere       ≤ Σ leases of the other members, until they return or the members are buried
//! ```

mod draws;
mod returns;

use super::Ledger;
use super::balance::AccountBalance;
use crate::fleet::FleetMember;
use parking_lot::Mutex;
use penstock_ledger::Wallet;
use penstock_storage::StoreError;
use penstock_storage::fleet::{FleetError, PoolAmount, PoolRequest, credit_pool_name, energy_pool_name};
use penstock_storage::ledger::BalanceRecord;
use returns::PendingReturns;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex as AsyncMutex, Semaphore};

/// Time after a refusal for which the other members are asked to return what they do not need at once.
const WANTED_TIME: Duration = Duration::from_secs(3);
/// Time for which a pool that was found empty counts as empty.
const EMPTY_POOL_MEMORY: Duration = Duration::from_millis(250);
/// Maximum number of draws at a time, each of which blocks a thread while the database does not answer.
const MAX_DRAWS: usize = 32;
/// Maximum number of amounts that go back with one beat.
const MAX_RETURNS: usize = 500;
/// Part of the spending rate that a second's spending replaces: 1 / 8.
const RATE_SHIFT: u32 = 3;

/// Leases of this member.
#[derive(Debug)]
pub struct Leases {
    member: Arc<FleetMember>,
    advance_seconds: i64,
    accounts: Mutex<HashMap<(Arc<str>, Wallet), LeaseState>>,
    returning: Mutex<PendingReturns>,
    /// Names of the pools that other members want.
    wanted_by_peers: Mutex<HashSet<String>>,
    /// Number of requests that had to draw.
    dry_draws: AtomicU64,
    /// Permits of the draws for requests.
    draw_permits: Arc<Semaphore>,
}

/// Lease of one wallet.
#[derive(Debug, Default)]
struct LeaseState {
    /// Amount drawn since the start, minus the returned amount.
    drawn: i64,
    /// Part of the drawn amount that was spent at the last check.
    spent: i64,
    /// Spending of the last second.
    second: i64,
    /// Smoothed spending per second, in eighths of the unit.
    rate: i64,
    /// Time at which the pool was last found empty.
    empty_at: Option<Instant>,
    /// Balance of the account at that time, leases of all members included.
    total: i64,
    /// Time of the last refusal of a request although the other members hold enough for it.
    refused_at: Option<Instant>,
    /// Amount that the refused request needed.
    refused: i64,
    /// True if an amount was drawn since the last check: the request that needs it may not have reserved it yet.
    is_fresh: bool,
    /// True if the outcome of a draw is unknown.
    uncertain: bool,
    /// Held by the request that draws; the others wait for its result.
    drawing: Arc<AsyncMutex<()>>,
}

impl LeaseState {
    /// Records the spending of a second; `balance` is the rest of the lease without regard to holds.
    fn observe_second(&mut self, balance: i64) {
        let spent = self.drawn.saturating_sub(balance);
        self.second = spent.saturating_sub(self.spent).max(0);
        self.spent = spent;
        // At least one unit, so that the rate of an idle account becomes 0.
        let decay = (self.rate >> RATE_SHIFT).max(1).min(self.rate);
        self.rate = self.rate.saturating_sub(decay).saturating_add(self.second);
    }

    /// Returns the amount to hold in advance.
    fn wanted(&self, advance_seconds: i64) -> i64 {
        self.rate.saturating_mul(advance_seconds) >> RATE_SHIFT
    }

    fn is_wanted(&self) -> bool {
        self.refused_at.is_some_and(|at| at.elapsed() < WANTED_TIME)
    }

    /// Returns twice the price of a request that was refused lately, so that a lease below that price draws; 0 without one.
    fn refused_amount(&self) -> i64 {
        if self.is_wanted() { self.refused.saturating_mul(2) } else { 0 }
    }

    fn is_known_empty(&self, now: Instant) -> bool {
        self.empty_at.is_some_and(|at| now.saturating_duration_since(at) < EMPTY_POOL_MEMORY)
    }
}

/// Result of the check of one lease.
#[derive(Debug, PartialEq, Eq)]
enum LeaseChange {
    Nothing,
    Draw(i64),
    Return(i64),
}

/// Decides about a lease that another member wants: more than the spending of the last second returns.
const fn contended_lease_change(available: i64, second: i64) -> LeaseChange {
    if available > second {
        return LeaseChange::Return(available.saturating_sub(second));
    }
    LeaseChange::Nothing
}

/// Decides about a lease: it draws below half of the wanted amount, and returns above twice that amount.
const fn lease_change(available: i64, wanted: i64) -> LeaseChange {
    if available < wanted / 2 {
        return LeaseChange::Draw(wanted.saturating_sub(available));
    }
    if available > wanted.saturating_mul(2) {
        return LeaseChange::Return(available.saturating_sub(wanted));
    }
    LeaseChange::Nothing
}

fn pool_name(account: &str, wallet: Wallet) -> String {
    match wallet {
        Wallet::Credits => credit_pool_name(account),
        Wallet::Energy => energy_pool_name(account),
    }
}

/// Returns the wallet and the account of a pool.
fn split_pool_name(pool: &str) -> Option<(Wallet, &str)> {
    let (wallet, account) = pool.split_once('/')?;
    match wallet {
        "credits" => Some((Wallet::Credits, account)),
        "energy" => Some((Wallet::Energy, account)),
        _ => None,
    }
}

impl Leases {
    /// Creates the leases of a member; `None` without a fleet.
    #[must_use]
    pub fn of_member(member: &Arc<FleetMember>) -> Option<Self> {
        let settings = member.settings()?;
        Some(Self {
            member: member.clone(),
            advance_seconds: i64::try_from(settings.advance.as_secs()).unwrap_or(i64::MAX),
            accounts: Mutex::default(),
            returning: Mutex::default(),
            wanted_by_peers: Mutex::default(),
            dry_draws: AtomicU64::new(0),
            draw_permits: Arc::new(Semaphore::new(MAX_DRAWS)),
        })
    }

    /// Reads the leases of the previous process of this member, as balances by account. Blocks.
    pub(super) fn restore_balances(&self) -> Result<Vec<(String, BalanceRecord)>, StoreError> {
        let mut balances: HashMap<String, BalanceRecord> = HashMap::new();
        for PoolAmount { pool, amount } in self.member.leased_amounts()? {
            let Some((wallet, account)) = split_pool_name(&pool) else { continue };
            let balance = balances.entry(account.to_owned()).or_default();
            match wallet {
                Wallet::Credits => balance.credits = amount,
                Wallet::Energy => balance.energy = amount,
            }
            let state = LeaseState { drawn: amount, ..LeaseState::default() };
            self.accounts.lock().insert((account.into(), wallet), state);
        }
        Ok(balances.into_iter().collect())
    }

    /// Returns the folder of the ledger's journal.
    pub(super) fn journal_folder(&self) -> Option<&std::path::Path> {
        self.member.journal_folder()
    }

    /// Records a charge of the previous process, so that it does not count as spending of this second.
    pub(super) fn note_spent(&self, account: &Arc<str>, wallet: Wallet, amount: i64) {
        let mut accounts = self.accounts.lock();
        let state = accounts.entry((account.clone(), wallet)).or_default();
        state.spent = state.spent.saturating_add(amount);
    }

    /// Draws for a wallet and adds the amount to the balance in memory. Blocks.
    fn draw(
        &self,
        balance: &AccountBalance,
        wallet: Wallet,
        wanted: i64,
        least: i64,
    ) -> Result<i64, FleetError> {
        let request = PoolRequest { pool: pool_name(&balance.name, wallet), wanted, least };
        let drawn = self.member.draw_from_pool(&request);
        let mut accounts = self.accounts.lock();
        let state = accounts.entry((balance.name.clone(), wallet)).or_default();
        state.uncertain |= drawn.is_err();
        let drawn = drawn?;
        state.drawn = state.drawn.saturating_add(drawn);
        state.empty_at = (drawn < least).then(Instant::now);
        state.is_fresh = true;
        balance.credit(wallet, drawn);
        Ok(drawn)
    }

    /// Adds amounts whose draw succeeded with an unknown outcome: the excess of a lease in the store over the memory,
    /// at a time when all charges are written. `is_written` returns true if all charges are written. Blocks.
    fn resolve_uncertain(
        &self,
        balance: impl Fn(&str) -> Arc<AccountBalance>,
        is_written: impl Fn() -> bool,
    ) -> Result<(), StoreError> {
        if !self.accounts.lock().values().any(|state| state.uncertain) || !is_written() {
            return Ok(());
        }
        let totals = |accounts: &HashMap<(Arc<str>, Wallet), LeaseState>| {
            let uncertain = accounts.iter().filter(|(_, state)| state.uncertain);
            let total = |(account, wallet): &(Arc<str>, Wallet)| balance(account).total(*wallet);
            uncertain.map(|(key, _)| (key.clone(), total(key))).collect::<Vec<_>>()
        };
        let before = totals(&self.accounts.lock());
        let parts = self.member.leased_amounts()?;
        let mut accounts = self.accounts.lock();
        if !is_written() || totals(&accounts) != before {
            return Ok(());
        }
        for ((account, wallet), total) in before {
            let pool = pool_name(&account, wallet);
            let part = parts.iter().find(|part| part.pool == pool).map_or(0, |part| part.amount);
            let missing = part.saturating_sub(total).max(0);
            balance(&account).credit(wallet, missing);
            if let Some(state) = accounts.get_mut(&(account, wallet)) {
                state.drawn = state.drawn.saturating_add(missing);
                state.uncertain = false;
            }
        }
        Ok(())
    }

    /// Records the balance of an account whose pool is empty.
    fn note_total(&self, account: &Arc<str>, wallet: Wallet, total: i64) {
        let mut accounts = self.accounts.lock();
        accounts.entry((account.clone(), wallet)).or_default().total = total;
    }

    /// Returns the recorded balance of the time when the pool was found empty.
    fn noted_total(&self, account: &Arc<str>, wallet: Wallet) -> i64 {
        self.accounts.lock().get(&(account.clone(), wallet)).map_or(0, |state| state.total)
    }

    fn is_known_empty(&self, account: &Arc<str>, wallet: Wallet) -> bool {
        let accounts = self.accounts.lock();
        let state = accounts.get(&(account.clone(), wallet));
        state.is_some_and(|state| state.is_known_empty(Instant::now()))
    }

    fn drawing(&self, account: &Arc<str>, wallet: Wallet) -> Arc<AsyncMutex<()>> {
        self.accounts.lock().entry((account.clone(), wallet)).or_default().drawing.clone()
    }

    /// Records the refusal of a request of this price although the other members hold enough for it.
    fn note_refused(&self, account: &Arc<str>, wallet: Wallet, price: i64) {
        let mut accounts = self.accounts.lock();
        let state = accounts.entry((account.clone(), wallet)).or_default();
        (state.refused_at, state.refused) = (Some(Instant::now()), price);
    }

    /// Returns the names of the pools from which requests were refused lately although the other members hold enough, the
    /// last refusal first.
    #[must_use]
    pub fn wanted_pools(&self) -> Vec<String> {
        let accounts = self.accounts.lock();
        let mut wanted: Vec<_> = accounts.iter().filter(|(_, state)| state.is_wanted()).collect();
        wanted.sort_by_key(|(_, state)| std::cmp::Reverse(state.refused_at));
        wanted.into_iter().map(|((account, wallet), _)| pool_name(account, *wallet)).collect()
    }

    /// Replaces the names of the pools that other members want.
    pub fn set_wanted_by_peers(&self, pools: impl Iterator<Item = String>) {
        *self.wanted_by_peers.lock() = pools.collect();
    }

    /// Returns the number of requests that had to wait for a draw.
    #[must_use]
    pub fn dry_draws(&self) -> u64 {
        self.dry_draws.load(Ordering::Relaxed)
    }
}

impl Ledger {
    /// Fills the leases that are used, and returns unused amounts; called once a second. Blocks.
    pub fn adjust_leases(&self) {
        let Some(leases) = &self.leases else { return };
        let is_written = || self.queue.unwritten_bytes() == 0 && leases.returning.lock().amounts.is_empty();
        if leases.resolve_uncertain(|account| self.account_balance(account), is_written).is_err() {
            return;
        }
        let mut draws = Vec::new();
        {
            let mut accounts = leases.accounts.lock();
            let mut returning = leases.returning.lock();
            let contended = leases.wanted_by_peers.lock();
            accounts.retain(|(account, wallet), state| {
                let balance = self.account_balance(account);
                state.observe_second(balance.total(*wallet));
                let is_fresh = std::mem::take(&mut state.is_fresh);
                let is_contended = !contended.is_empty() && contended.contains(&pool_name(account, *wallet));
                let available = balance.available(*wallet);
                let change = if is_contended {
                    contended_lease_change(available, state.second)
                } else {
                    lease_change(available, state.wanted(leases.advance_seconds).max(state.refused_amount()))
                };
                match change {
                    LeaseChange::Draw(amount) if !state.is_known_empty(Instant::now()) => {
                        draws.push((balance.clone(), *wallet, amount));
                    }
                    LeaseChange::Return(amount)
                        if !is_fresh
                            && !returning.is_sent
                            && returning.amounts.len() < MAX_RETURNS
                            && balance.take_available(*wallet, amount) =>
                    {
                        state.drawn = state.drawn.saturating_sub(amount);
                        returning.amounts.push(PoolAmount { pool: pool_name(account, *wallet), amount });
                    }
                    _ => {}
                }
                state.rate > 0 || state.uncertain || state.is_wanted() || balance.total(*wallet) != 0
            });
        }
        for (balance, wallet, amount) in draws {
            if leases.draw(&balance, wallet, amount, 1).is_err() {
                return;
            }
        }
    }

    /// Adds the amounts that cannot return to their pools back to the balances, because the store refuses them.
    pub fn keep_returns(&self) {
        if let Some(leases) = &self.leases {
            leases.take_back_returns(|account| self.account_balance(account));
        }
    }

    /// Returns the leases of a fleet member.
    #[must_use]
    pub const fn leases(&self) -> Option<&Leases> {
        self.leases.as_ref()
    }
}

#[cfg(test)]
mod tests;
