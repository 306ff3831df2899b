//! Keys and accounts as owners of limits and budgets.

use super::key_cache::KeyCache;
use super::principal::{CachedAccount, Principal};
use super::usage_limiter::{LimiterState, UsageLimiter};
use penstock_limits::BudgetPeriod;
use penstock_storage::fleet::BudgetPoolId;
use penstock_storage::spend::SpendOwner;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU64;
use std::sync::Arc;

/// Key or account with limits.
#[derive(Clone, Debug)]
pub enum LimitSubject {
    /// Key with its own limits.
    Key(Arc<Principal>),
    /// Account with limits that its keys share.
    Account(Arc<CachedAccount>),
}

/// Budget of which a fleet member leases parts. Two leased budgets are equal if they have the same owner and period.
#[derive(Clone)]
pub struct LeasedBudget {
    owner: LimitSubject,
    period: BudgetPeriod,
}

/// Amounts of a draw from a shared budget at its start, in micro-credits. A draw leases a part of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartedBudgetDraw {
    /// Limit of the budget when the draw began.
    pub limit: u64,
    /// Amount of the recalled leased part that goes back to the pool.
    pub returned: i64,
}

impl LimitSubject {
    pub(super) fn limiter(&self) -> &UsageLimiter {
        match self {
            Self::Key(principal) => principal.limiter(),
            Self::Account(account) => &account.limiter,
        }
    }

    /// Returns `key/` or `account/` with the id.
    pub(super) fn qualified_id(&self) -> String {
        match self {
            Self::Key(principal) => format!("key/{}", principal.public_id),
            Self::Account(account) => format!("account/{}", account.id),
        }
    }

    /// Returns the owner by which the store identifies the spending.
    pub(super) fn spend_owner(&self) -> SpendOwner {
        match self {
            Self::Key(principal) => SpendOwner::Key(principal.public_id.to_string()),
            Self::Account(account) => SpendOwner::Account(account.id.to_string()),
        }
    }

    /// Finds the owner with a qualified id, `key/…` or `account/…`; `None` if the key cache does not have it.
    pub(super) fn find_by_qualified_id(cache: &KeyCache, name: &str) -> Option<Self> {
        match name.split_once('/')? {
            ("key", id) => cache.find_principal(id).map(Self::Key),
            ("account", id) => cache.account(id).map(Self::Account),
            _ => None,
        }
    }

    /// Returns true for a key or false for an account, and its id.
    fn identity(&self) -> (bool, &str) {
        match self {
            Self::Key(principal) => (true, &principal.public_id),
            Self::Account(account) => (false, &account.id),
        }
    }
}

impl LeasedBudget {
    /// Returns the budgets of a key and its account whose leased part does not cover a request of this cost, in
    /// micro-credits.
    #[must_use]
    pub fn uncovered_budgets(principal: &Arc<Principal>, cost: u64) -> Vec<Self> {
        let mut lacking = Vec::new();
        for owner in [LimitSubject::Key(principal.clone()), LimitSubject::Account(principal.account.clone())]
        {
            for period in [BudgetPeriod::Day, BudgetPeriod::Month] {
                let budget = Self { owner: owner.clone(), period };
                if !budget.covers(cost) {
                    lacking.push(budget);
                }
            }
        }
        lacking
    }

    /// Returns the budget of a pool; `None` if the key cache does not have its owner.
    #[must_use]
    pub fn find_by_pool(cache: &KeyCache, pool: &BudgetPoolId) -> Option<Self> {
        let owner = match &pool.owner {
            SpendOwner::Key(id) => LimitSubject::Key(cache.find_principal(id)?),
            SpendOwner::Account(id) => LimitSubject::Account(cache.account(id)?),
        };
        Some(Self { owner, period: pool.period })
    }

    /// Returns the budget in micro-credits; 0 if there is none any more.
    #[must_use]
    pub fn limit(&self) -> i64 {
        let limit = self.with(|state, period| state.limits.budget(period).map_or(0, NonZeroU64::get));
        i64::try_from(limit).unwrap_or(i64::MAX)
    }

    /// Returns the pool of the budget.
    #[must_use]
    pub fn pool(&self) -> BudgetPoolId {
        BudgetPoolId { owner: self.owner.spend_owner(), period: self.period }
    }

    /// Returns true if there is no budget any more, or if the leased part covers a request of this cost, in
    /// micro-credits.
    #[must_use]
    pub fn covers(&self, cost: u64) -> bool {
        self.with(|state, period| state.meter.is_cost_covered(&state.limits, period, cost))
    }

    /// Returns the leased amount that no request has reserved, in micro-credits.
    #[must_use]
    pub fn unreserved_amount(&self) -> i64 {
        self.with(|state, period| state.meter.unreserved_lease(period))
    }

    /// Returns the leased amount that is not spent, in micro-credits.
    #[must_use]
    pub fn unspent_amount(&self) -> i64 {
        self.with(|state, period| state.meter.unspent_lease(period))
    }

    /// Returns the leased amount that the store has, in micro-credits: spending that is not written yet is still part
    /// of it.
    #[must_use]
    pub fn stored_amount(&self) -> i64 {
        self.with(|state, period| state.meter.stored_lease(period))
    }

    /// Returns true if the leased part has to go back to the pool, because the budget was lowered or removed.
    #[must_use]
    pub fn is_recalled(&self) -> bool {
        self.with(|state, period| state.meter.is_lease_recalled(&state.limits, period))
    }

    /// Marks the leased part as recalled: it may not be spent until a further draw succeeds. Its amount stays until
    /// [`LeasedBudget::begin_draw`] removes it.
    pub fn mark_recalled(&self) {
        self.with(|state, period| state.meter.mark_lease_recalled(period));
    }

    /// Adds an amount in micro-credits to the leased part of the budget.
    pub fn add(&self, amount: i64) {
        self.with(|state, period| state.meter.add_lease(period, amount));
    }

    /// Subtracts an amount in micro-credits from the leased part, if no request has reserved it. Returns true if it was
    /// subtracted.
    #[must_use]
    pub fn try_subtract(&self, amount: i64) -> bool {
        self.with(|state, period| state.meter.try_reduce_lease(period, amount))
    }

    /// Begins a draw. If the leased part is recalled, removes its unreserved amount, which goes back to the pool with
    /// the draw. Returns `None` if there is no budget any more.
    #[must_use]
    pub fn begin_draw(&self) -> Option<StartedBudgetDraw> {
        self.with(|state, period| {
            let limit = state.limits.budget(period)?.get();
            Some(StartedBudgetDraw { limit, returned: state.meter.take_recalled_lease(period) })
        })
    }

    /// Ends a draw: adds the drawn amount, in micro-credits, to the leased part of the budget. If the budget was
    /// lowered meanwhile, the leased part is recalled.
    pub fn end_draw(&self, terms: StartedBudgetDraw, drawn: i64) {
        self.with(|state, period| state.meter.add_drawn_lease(&state.limits, period, drawn, terms.limit));
    }

    fn with<T>(&self, work: impl FnOnce(&mut LimiterState, BudgetPeriod) -> T) -> T {
        work(&mut self.owner.limiter().0.lock(), self.period)
    }
}

impl PartialEq for LeasedBudget {
    fn eq(&self, other: &Self) -> bool {
        (self.owner.identity(), self.period) == (other.owner.identity(), other.period)
    }
}

impl Eq for LeasedBudget {}

impl Hash for LeasedBudget {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.owner.identity(), self.period).hash(state);
    }
}

impl fmt::Debug for LeasedBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.pool().name())
    }
}
