//! Leases of a fleet member: the part of each prepaid balance and of each budget that this gateway may spend without
//! the database.
//!
//! In a fleet, the balance of an account in memory is the lease of this gateway, see [`crate::fleet`]. If the lease
//! does not cover the price of a request, the request draws from the account's pool, for at most three seconds in all.
//! From then on, the lease is refilled each second to the expected spending of `fleet.ahead`, and an amount that is no
//! longer needed returns to the pool. If a request is refused although the other members hold enough, they return all
//! of their leases except the spending of the last second.
//!
//! ```text
//! spent by this member ≤ leased + the excess of requests without max_tokens
//! idle elsewhere       ≤ Σ leases of the other members, until they return or the members are buried
//! ```

mod budgets;
mod draws;
mod pool;
mod returns;
mod state;
mod uncertain;

use super::Ledger;
use crate::fleet::FleetMember;
use crate::time::clock::ProcessClock;
use parking_lot::Mutex;
use penstock_ledger::Wallet;
use penstock_storage::StoreError;
use penstock_storage::fleet::{BudgetPool, BudgetRequest, FleetError, PoolAmount, PoolRequest};
use penstock_storage::ledger::BalanceRecord;
use pool::{LeasedBalance, LeasedPool};
use returns::PendingReturns;
use state::{LeaseChange, LeaseState, contended_lease_change, lease_change};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};

/// Maximum number of draws at a time, each of which blocks a thread while the database does not answer.
const MAX_DRAWS: usize = 32;
/// Maximum number of amounts that are returned to their pools with one heartbeat.
const MAX_RETURNS: usize = 500;

/// Leases of this member.
#[derive(Debug)]
pub struct Leases {
    member: Arc<FleetMember>,
    advance_seconds: i64,
    clock: ProcessClock,
    pools: Mutex<HashMap<LeasedPool, LeaseState>>,
    /// Parts of budgets that the previous process of this member had, until they are restored.
    previous_budgets: Mutex<Vec<(BudgetPool, i64)>>,
    returning: Mutex<PendingReturns>,
    /// Names of the pools that other members want.
    wanted_by_peers: Mutex<HashSet<String>>,
    /// Number of requests that had to draw.
    dry_draws: AtomicU64,
    /// Permits of the draws for requests.
    draw_permits: Arc<Semaphore>,
}

impl Leases {
    /// Creates the leases of a member; `None` without a fleet.
    #[must_use]
    pub fn of_member(member: &Arc<FleetMember>, clock: ProcessClock) -> Option<Self> {
        let settings = member.settings()?;
        Some(Self {
            member: member.clone(),
            advance_seconds: i64::try_from(settings.advance.as_secs()).unwrap_or(i64::MAX),
            clock,
            pools: Mutex::default(),
            previous_budgets: Mutex::default(),
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
            if let Some(budget) = BudgetPool::parse(&pool) {
                self.previous_budgets.lock().push((budget, amount));
                continue;
            }
            let Some((wallet, account)) = pool::split_wallet_name(&pool) else { continue };
            let balance = balances.entry(account.to_owned()).or_default();
            match wallet {
                Wallet::Credits => balance.credits = amount,
                Wallet::Energy => balance.energy = amount,
            }
            self.restore(LeasedPool::Wallet(account.into(), wallet), amount);
        }
        Ok(balances.into_iter().collect())
    }

    fn restore(&self, pool: LeasedPool, amount: i64) {
        self.pools.lock().insert(pool, LeaseState { drawn: amount, ..LeaseState::default() });
    }

    /// Returns the folder of the ledger's journal.
    pub(super) fn journal_folder(&self) -> Option<&std::path::Path> {
        self.member.journal_folder()
    }

    /// Records a charge of the previous process, so that it does not count as spending of this second.
    pub(super) fn exclude_replayed_charge(&self, account: &Arc<str>, wallet: Wallet, amount: i64) {
        self.with_state(&LeasedPool::Wallet(account.clone(), wallet), |state| {
            state.spent = state.spent.saturating_add(amount);
        });
    }

    fn with_state<T>(&self, pool: &LeasedPool, work: impl FnOnce(&mut LeaseState) -> T) -> T {
        let mut pools = self.pools.lock();
        match pools.get_mut(pool) {
            Some(state) => work(state),
            None => work(pools.entry(pool.clone()).or_default()),
        }
    }

    /// Draws and adds the amount to the balance in memory; returns true if the pool had enough for the lease to cover
    /// `covered`. Blocks.
    fn draw(&self, balance: &LeasedBalance, wanted: i64, covered: i64) -> Result<bool, FleetError> {
        let pool = balance.pool();
        let missing = || covered.saturating_sub(balance.available()).max(1);
        let budget = match balance {
            LeasedBalance::Wallet(..) => {
                let least = missing();
                let request = PoolRequest { pool: pool.name(), wanted: wanted.max(least), least };
                let drawn = self.member.draw_from_pool(&request);
                return self.note_draw(&pool, least, drawn, |drawn| balance.credit(drawn));
            }
            LeasedBalance::Budget(budget) => budget,
        };
        let terms = self.with_state(&pool, |state| {
            let terms = budget.begin_draw();
            state.drawn = state.drawn.saturating_sub(terms.map_or(0, |terms| terms.returned));
            terms
        });
        // The budget was removed.
        let Some(terms) = terms else { return Ok(true) };
        let least = missing();
        let request = BudgetRequest {
            pool: budget.pool(),
            limit: i64::try_from(terms.limit).unwrap_or(i64::MAX),
            wanted: wanted.max(least),
            least,
            returned: terms.returned,
            at: self.clock.calendar_now().as_secs(),
        };
        let draw = self.member.draw_from_budget(&request);
        if let Ok(draw) = &draw {
            let unwritten = budget.stored().saturating_sub(budget.left());
            self.note_total(&pool, draw.unspent.saturating_sub(unwritten));
        }
        self.note_draw(&pool, least, draw.map(|draw| draw.drawn), |drawn| budget.end_draw(terms, drawn))
    }

    fn note_draw(
        &self,
        pool: &LeasedPool,
        least: i64,
        drawn: Result<i64, FleetError>,
        add: impl FnOnce(i64),
    ) -> Result<bool, FleetError> {
        self.with_state(pool, |state| {
            state.uncertain |= drawn.is_err();
            let drawn = drawn?;
            state.drawn = state.drawn.saturating_add(drawn);
            state.empty_at = (drawn < least).then(Instant::now);
            state.is_fresh = true;
            add(drawn);
            Ok(drawn >= least)
        })
    }

    /// Records the balance of an account, or the rest of a budget, whose pool is empty.
    fn note_total(&self, pool: &LeasedPool, total: i64) {
        self.with_state(pool, |state| state.total = total);
    }

    /// Returns the recorded total of the time when the pool was found empty.
    fn noted_total(&self, pool: &LeasedPool) -> i64 {
        self.pools.lock().get(pool).map_or(0, |state| state.total)
    }

    fn is_known_empty(&self, pool: &LeasedPool) -> bool {
        self.pools.lock().get(pool).is_some_and(|state| state.is_known_empty(Instant::now()))
    }

    fn drawing(&self, pool: &LeasedPool) -> Arc<AsyncMutex<()>> {
        self.with_state(pool, |state| state.drawing.clone())
    }

    /// Records the refusal of a request of this price if the other members hold enough for it: what requests in flight
    /// hold here does not help.
    fn note_refused(&self, balance: &LeasedBalance, price: i64) {
        let pool = balance.pool();
        let held_here = balance.total().saturating_sub(balance.available());
        if self.noted_total(&pool).saturating_sub(held_here) >= price {
            self.with_state(&pool, |state| {
                (state.refused_at, state.refused) = (Some(Instant::now()), price);
            });
        }
    }

    /// Returns the names of the pools from which requests were recently refused although the other members hold enough;
    /// the pool of the last refusal is first.
    #[must_use]
    pub fn wanted_pools(&self) -> Vec<String> {
        let pools = self.pools.lock();
        let mut wanted: Vec<_> = pools.iter().filter(|(_, state)| state.is_wanted()).collect();
        wanted.sort_by_key(|(_, state)| std::cmp::Reverse(state.refused_at));
        wanted.into_iter().map(|(pool, _)| pool.name()).collect()
    }

    /// Replaces the names of the pools that other members want.
    pub fn set_wanted_by_peers(&self, pools: impl Iterator<Item = String>) {
        *self.wanted_by_peers.lock() = pools.collect();
    }

    /// Returns the number of requests that had to wait for a draw.
    #[must_use]
    pub fn waiting_draws(&self) -> u64 {
        self.dry_draws.load(Ordering::Relaxed)
    }
}

impl Ledger {
    /// Returns the balance in memory that the lease of a pool fills.
    fn leased_balance(&self, pool: &LeasedPool) -> LeasedBalance {
        match pool {
            LeasedPool::Wallet(account, wallet) => {
                LeasedBalance::Wallet(self.account_balance(account), *wallet)
            }
            LeasedPool::Budget(budget) => LeasedBalance::Budget(budget.clone()),
        }
    }

    /// Fills the leases that are used, and returns unused amounts; called once a second. `has_written_spends` is true
    /// if the spending of all budgets is written, but for that since then. Blocks.
    pub fn adjust_leases(&self, has_written_spends: bool) {
        let Some(leases) = &self.leases else { return };
        if self.resolve_uncertain(leases, has_written_spends).is_err() {
            return;
        }
        let mut draws = Vec::new();
        {
            let mut pools = leases.pools.lock();
            let mut returning = leases.returning.lock();
            let contended = leases.wanted_by_peers.lock();
            pools.retain(|pool, state| {
                let balance = self.leased_balance(pool);
                state.observe_second(balance.total());
                let is_fresh = std::mem::take(&mut state.is_fresh);
                let is_contended = !contended.is_empty() && contended.contains(&pool.name());
                let available = balance.available();
                let change = if balance.is_recalled() {
                    lease_change(available.max(0), 0)
                } else if is_contended {
                    contended_lease_change(available, state.second)
                } else {
                    lease_change(available, state.wanted(leases.advance_seconds).max(state.refused_amount()))
                };
                match change {
                    LeaseChange::Draw(amount) if !state.is_known_empty(Instant::now()) => {
                        draws.push((balance.clone(), amount));
                    }
                    LeaseChange::Return(amount)
                        if !is_fresh
                            && !returning.is_sent
                            && returning.amounts.len() < MAX_RETURNS
                            && balance.take_available(amount) =>
                    {
                        state.drawn = state.drawn.saturating_sub(amount);
                        returning.amounts.push((pool.clone(), amount));
                    }
                    _ => {}
                }
                state.rate > 0 || state.uncertain || state.is_wanted() || balance.total() != 0
            });
        }
        for (balance, amount) in draws {
            if leases.draw(&balance, amount, i64::MIN).is_err() {
                return;
            }
        }
    }

    /// Adds amounts back to the balances that should return to their pools, but that the store refuses.
    pub fn restore_refused_returns(&self) {
        if let Some(leases) = &self.leases {
            leases.restore_refused(|pool| self.leased_balance(pool));
        }
    }

    /// Returns the leases of a fleet member.
    #[must_use]
    pub const fn leases(&self) -> Option<&Leases> {
        self.leases.as_ref()
    }
}

#[cfg(test)]
mod budget_tests;
#[cfg(test)]
mod tests;
