//! Leases of a fleet member: the part of each prepaid balance and of each budget that this gateway may spend without
//! the database.
//!
//! In a fleet, the balance of an account in memory is the lease of this gateway, see [`crate::fleet`]. If the lease
//! does not cover the price of a request, the request draws from the account's pool, for at most three seconds in
//! all. From then on, the lease is refilled each second to the expected spending of `fleet.ahead`, and an amount that
//! is no longer needed returns to the pool. If a request is refused although the other members hold enough, they
//! return all of their leases except the spending of the last second; if several members refuse requests, they
//! receive the pool one after the other, see [`contention`].
//!
//! ```text
//! spent by this member ≤ leased + the excess of requests without max_tokens
//! idle elsewhere       ≤ Σ leases of the other members, until they return or the members are evicted
//! ```

mod budgets;
mod contention;
mod draws;
mod late_draws;
mod pool;
mod refill;
mod returns;
mod state;
mod uncertain;

use super::Ledger;
use crate::auth::limited_owner::LeasedBudget;
use crate::fleet::FleetMember;
use crate::time::clock::ProcessClock;
use contention::PoolClaim;
use parking_lot::Mutex;
use penstock_ledger::Wallet;
use penstock_storage::StoreError;
use penstock_storage::fleet::{BudgetPoolId, BudgetRequest, FleetError, PoolAmount, PoolRequest};
use penstock_storage::ledger::BalanceRecord;
use pool::{LeasedBalance, LeasedPool};
use refill::{MAX_HEARTBEAT_DRAW_TIME, PendingRefill};
use returns::PendingReturns;
use state::{DrawnAmount, LeaseChange, LeaseState, contended_lease_change, lease_change};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};

/// Maximum number of draws at a time, each of which blocks a thread while the database does not answer.
const MAX_DRAWS: usize = 32;
/// Maximum number of amounts that are returned to their pools with one heartbeat.
const MAX_RETURNS: usize = 500;

/// Leases of this fleet member: amounts of balances and budgets that it may spend.
#[derive(Debug)]
pub struct Leases {
    member: Arc<FleetMember>,
    /// Time in seconds for which a lease should last at the present rate of spending (`fleet.ahead`).
    advance_seconds: i64,
    clock: ProcessClock,
    pools: Mutex<HashMap<LeasedPool, LeaseState>>,
    /// Leases of budgets that the previous process of this member had, until they are restored.
    previous_budgets: Mutex<Vec<(BudgetPoolId, i64)>>,
    /// True if an earlier process of this member has ended, and may have drawn amounts that are not in memory.
    has_late_draws: AtomicBool,
    returning: Mutex<PendingReturns>,
    /// Numbers of the other members that want a pool, by the name of the pool.
    wanted_by_peers: Mutex<HashMap<String, Vec<u32>>>,
    /// Number of draws that requests waited for.
    blocking_draws: AtomicU64,
    /// Semaphore that limits the number of draws for requests at the same time.
    draw_permits: Arc<Semaphore>,
}

impl Leases {
    /// Creates the leases of a member; `None` without a fleet.
    #[must_use]
    pub fn from_member(member: &Arc<FleetMember>, clock: ProcessClock) -> Option<Self> {
        let settings = member.settings()?;
        Some(Self {
            member: member.clone(),
            advance_seconds: i64::try_from(settings.advance.as_secs()).unwrap_or(i64::MAX),
            clock,
            pools: Mutex::default(),
            previous_budgets: Mutex::default(),
            has_late_draws: AtomicBool::new(false),
            returning: Mutex::default(),
            wanted_by_peers: Mutex::default(),
            blocking_draws: AtomicU64::new(0),
            draw_permits: Arc::new(Semaphore::new(MAX_DRAWS)),
        })
    }

    /// Restores the leases that the previous process of this member held. Returns those of wallets as balances by
    /// account; those of budgets wait for [`Ledger::restore_budget_leases`]. Blocks.
    pub(super) fn restore_previous_leases(&self) -> Result<Vec<(String, BalanceRecord)>, StoreError> {
        let mut balances: HashMap<String, BalanceRecord> = HashMap::new();
        for PoolAmount { pool, amount } in self.member.leased_amounts()? {
            if let Some(budget) = BudgetPoolId::parse(&pool) {
                self.previous_budgets.lock().push((budget, amount));
                continue;
            }
            let Some((wallet, account)) = pool::split_wallet_pool_name(&pool) else { continue };
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
        self.pools.lock().insert(pool, LeaseState::from_amount(amount));
    }

    /// Returns the folder of the ledger's journal; `None` without a fleet.
    pub(super) fn journal_folder(&self) -> Option<&std::path::Path> {
        self.member.ledger_journal_folder()
    }

    /// Passes the state of a lease to `work`; a lease without a state gets one.
    fn with_state<T>(&self, balance: &LeasedBalance, work: impl FnOnce(&mut LeaseState) -> T) -> T {
        let (pool, mut pools) = (balance.pool(), self.pools.lock());
        work(pools.entry(pool).or_insert_with(|| LeaseState::from_amount(balance.total())))
    }

    /// Draws up to `wanted_amount` from the pool, or more if a request of the price `covered_price` needs it, and adds
    /// the drawn amount to the balance in memory. Returns true if the pool had enough for the lease to cover a request
    /// of the price `covered_price`. Blocks.
    fn draw(
        &self,
        balance: &LeasedBalance,
        wanted_amount: i64,
        covered_price: i64,
    ) -> Result<bool, FleetError> {
        let budget = match balance {
            LeasedBalance::Wallet(..) => {
                let least = balance.missing_amount(covered_price);
                let request =
                    PoolRequest { pool: balance.pool().name(), wanted: wanted_amount.max(least), least };
                let drawn = self.member.draw_from_pool(&request);
                #[cfg(feature = "inject")]
                fail::fail_point!("credits_drawn", matches!(drawn, Ok(1..)), |_| std::process::abort());
                // A draw that gets less than it needs takes all that the pool has.
                let part = drawn.map(|amount| DrawnAmount { amount, rest: 0 });
                return self.record_draw(balance, least, part, |drawn| balance.add_amount(drawn));
            }
            LeasedBalance::Budget(budget) => budget,
        };
        self.draw_budget(balance, budget, wanted_amount, covered_price)
    }

    fn draw_budget(
        &self,
        balance: &LeasedBalance,
        budget: &LeasedBudget,
        wanted_amount: i64,
        covered_price: i64,
    ) -> Result<bool, FleetError> {
        let terms = self.with_state(balance, |state| {
            let terms = budget.begin_draw();
            state.drawn = state.drawn.saturating_sub(terms.map_or(0, |terms| terms.returned));
            terms
        });
        // A removed budget needs no draw.
        let Some(terms) = terms else { return Ok(true) };
        let least = balance.missing_amount(covered_price);
        let request = BudgetRequest {
            pool: budget.pool(),
            limit: i64::try_from(terms.limit).unwrap_or(i64::MAX),
            wanted: wanted_amount.max(least),
            least,
            returned: terms.returned,
            at: self.clock.calendar_now().as_secs(),
        };
        let draw = self.member.draw_from_budget(&request);
        #[cfg(feature = "inject")]
        fail::fail_point!("budget_drawn", draw.as_ref().is_ok_and(|draw| draw.drawn > 0), |_| {
            std::process::abort()
        });
        // A failed draw leaves the recalled lease with this member, so its amount is added again.
        if draw.as_ref().is_err_and(FleetError::is_unapplied) {
            self.with_state(balance, |state| {
                state.drawn = state.drawn.saturating_add(terms.returned);
                budget.add(terms.returned);
            });
        }
        let unwritten = budget.stored_amount().saturating_sub(budget.unspent_amount());
        let total = draw.as_ref().ok().map(|draw| draw.unspent.saturating_sub(unwritten));
        let part = draw.map(|draw| DrawnAmount { amount: draw.drawn, rest: draw.rest });
        let is_enough = self.record_draw(balance, least, part, |drawn| budget.end_draw(terms, drawn));
        if let Some(total) = total {
            self.record_total(balance, total);
        }
        is_enough
    }

    fn record_draw(
        &self,
        balance: &LeasedBalance,
        least: i64,
        part: Result<DrawnAmount, FleetError>,
        add: impl FnOnce(i64),
    ) -> Result<bool, FleetError> {
        self.with_state(balance, |state| {
            state.uncertain |= part.as_ref().is_err_and(|error| !error.is_unapplied());
            let part = part?;
            state.record_draw(least, part, Instant::now());
            add(part.amount);
            Ok(part.amount >= least)
        })
    }

    /// Records the total of all members after a draw: the balance of the account, or the unspent amount of the budget.
    fn record_total(&self, balance: &LeasedBalance, total: i64) {
        self.with_state(balance, |state| state.record_fleet_total(total));
    }

    /// Returns the total that was recorded last; 0 if none was recorded.
    fn recorded_total(&self, balance: &LeasedBalance) -> i64 {
        self.pools.lock().get(&balance.pool()).map_or(0, LeaseState::recorded_fleet_total)
    }

    /// Returns true if the pool is known to have less than the balance lacks for a request of this price.
    fn is_pool_known_insufficient(&self, balance: &LeasedBalance, price: i64) -> bool {
        let (pool, missing) = (balance.pool(), balance.missing_amount(price));
        self.pools
            .lock()
            .get(&pool)
            .is_some_and(|state| state.is_pool_known_insufficient(missing, Instant::now()))
    }

    fn drawing(&self, balance: &LeasedBalance) -> Arc<AsyncMutex<()>> {
        self.with_state(balance, |state| state.drawing.clone())
    }

    /// Records the refusal of a request of this price if the other members hold enough for it. Amounts that requests in
    /// flight hold on this member are left out.
    fn note_refused(&self, balance: &LeasedBalance, price: i64) {
        let held_here = balance.total().saturating_sub(balance.available());
        if self.recorded_total(balance).saturating_sub(held_here) >= price {
            self.with_state(balance, |state| {
                (state.refused_at, state.refused_price) = (Some(Instant::now()), price);
            });
        }
    }

    /// Returns the names of the pools from which requests were recently refused although the other members hold enough;
    /// the pool of the last refusal is first.
    #[must_use]
    pub fn pools_wanted_from_peers(&self) -> Vec<String> {
        let pools = self.pools.lock();
        let mut wanted: Vec<_> = pools.iter().filter(|(_, state)| state.has_recent_refusal()).collect();
        wanted.sort_by_key(|(_, state)| std::cmp::Reverse(state.refused_at));
        wanted.into_iter().map(|(pool, _)| pool.name()).collect()
    }

    /// Returns the number of draws since the start for which a request had to wait.
    #[must_use]
    pub fn total_request_draws(&self) -> u64 {
        self.blocking_draws.load(Ordering::Relaxed)
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

    /// Excludes all charges until now from the spending rate that determines the size of leases. Otherwise the
    /// charges that are replayed at the start would count as the spending of one second.
    pub(super) fn reset_spending_baselines(&self) {
        let Some(leases) = &self.leases else { return };
        for (pool, state) in leases.pools.lock().iter_mut() {
            state.reset_spending_baseline(self.leased_balance(pool).total());
        }
    }

    /// Refills the leases in use, and marks unused amounts, which return to their pools with the next heartbeat; called
    /// once a second. `has_written_spends` is true if the last write of the spending of all budgets succeeded. Does
    /// nothing if the outcome of an earlier draw is unknown and the store does not answer. Blocks.
    pub fn adjust_leases(&self, has_written_spends: bool) {
        let mut begun = None;
        let has_time = || begun.get_or_insert_with(Instant::now).elapsed() < MAX_HEARTBEAT_DRAW_TIME;
        self.adjust_leases_while(has_written_spends, has_time);
    }

    /// Adjusts the leases as [`Ledger::adjust_leases`] does, and draws while `has_time` returns true.
    fn adjust_leases_while(&self, has_written_spends: bool, has_time: impl FnMut() -> bool) {
        let Some(leases) = &self.leases else { return };
        if self.resolve_uncertain_draws(leases, has_written_spends).is_ok() {
            leases.refill(self.take_unused(leases), has_time);
        }
    }

    /// Subtracts from the leases the unused amounts, which return to the pools with the next heartbeat. Returns the
    /// draws for the leases that run low.
    fn take_unused(&self, leases: &Leases) -> Vec<PendingRefill> {
        let mut draws = Vec::new();
        let mut pools = leases.pools.lock();
        let mut returning = leases.returning.lock();
        pools.retain(|pool, state| {
            let balance = self.leased_balance(pool);
            state.update_spending_rate(balance.total());
            let is_fresh = std::mem::take(&mut state.is_fresh);
            let available = balance.available();
            let change = match leases.pool_claim(pool, state.has_recent_refusal()) {
                _ if balance.is_recalled() => lease_change(available.max(0), 0),
                PoolClaim::Peer if state.has_recent_refusal() => lease_change(available.max(0), 0),
                PoolClaim::Peer => contended_lease_change(available, state.spent_last_second),
                PoolClaim::Free | PoolClaim::Own => lease_change(
                    available,
                    state.target_amount(leases.advance_seconds).max(state.target_after_refusal()),
                ),
            };
            match change {
                LeaseChange::Draw(amount) if state.may_refill(Instant::now()) => {
                    let (balance, skipped) = (balance.clone(), state.skipped_draws);
                    draws.push(PendingRefill { balance, amount, skipped });
                }
                LeaseChange::Return(amount)
                    if !is_fresh
                        && !returning.is_sent
                        && returning.amounts.len() < MAX_RETURNS
                        && balance.subtract_if_available(amount) =>
                {
                    state.drawn = state.drawn.saturating_sub(amount);
                    returning.amounts.push((pool.clone(), amount));
                }
                _ => {}
            }
            state.rate > 0 || state.uncertain || state.has_recent_refusal() || balance.total() != 0
        });
        draws
    }

    /// Cancels the returns that the store refuses permanently: adds their amounts back to the balances.
    pub fn cancel_refused_returns(&self) {
        if let Some(leases) = &self.leases {
            leases.cancel_refused_returns(|pool| self.leased_balance(pool));
        }
    }

    /// Returns the leases of a fleet member; `None` without a fleet.
    #[must_use]
    pub const fn leases(&self) -> Option<&Leases> {
        self.leases.as_ref()
    }
}

#[cfg(test)]
mod budget_tests;
#[cfg(test)]
mod tests;
