//! Pools from which a member leases amounts, and the balances in memory that the leases fill.

use super::super::balance::AccountBalance;
use crate::auth::key_cache::KeyCache;
use crate::auth::limited_owner::LeasedBudget;
use penstock_ledger::Wallet;
use penstock_storage::fleet::{BudgetPoolId, credit_pool_name, energy_pool_name};
use std::sync::Arc;

/// Pool from which a member leases amounts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum LeasedPool {
    /// Wallet of an account.
    Wallet(Arc<str>, Wallet),
    /// Budget of a key or an account.
    Budget(LeasedBudget),
}

/// Balance in memory that a lease fills.
#[derive(Clone)]
pub(super) enum LeasedBalance {
    /// Wallet of an account.
    Wallet(Arc<AccountBalance>, Wallet),
    /// Budget of a key or an account.
    Budget(LeasedBudget),
}

impl LeasedPool {
    /// Returns the pool with a name; `None` for a budget of a key or account that is not known here, and for an invalid
    /// name.
    pub(super) fn find(cache: &KeyCache, name: &str) -> Option<Self> {
        if let Some(budget) = BudgetPoolId::parse(name) {
            return LeasedBudget::find_by_pool(cache, &budget).map(Self::Budget);
        }
        let (wallet, account) = split_wallet_pool_name(name)?;
        Some(Self::Wallet(account.into(), wallet))
    }

    /// Returns the name in the store and in reports.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Wallet(account, Wallet::Credits) => credit_pool_name(account),
            Self::Wallet(account, Wallet::Energy) => energy_pool_name(account),
            Self::Budget(budget) => budget.pool().name(),
        }
    }
}

impl LeasedBalance {
    /// Returns the pool from which the balance is leased.
    pub(super) fn pool(&self) -> LeasedPool {
        match self {
            Self::Wallet(balance, wallet) => LeasedPool::Wallet(balance.name.clone(), *wallet),
            Self::Budget(budget) => LeasedPool::Budget(budget.clone()),
        }
    }

    /// Returns the amount that no request holds.
    pub(super) fn available(&self) -> i64 {
        match self {
            Self::Wallet(balance, wallet) => balance.available(*wallet),
            Self::Budget(budget) => budget.unreserved_amount(),
        }
    }

    /// Returns the unspent amount, including what requests hold.
    pub(super) fn total(&self) -> i64 {
        match self {
            Self::Wallet(balance, wallet) => balance.total(*wallet),
            Self::Budget(budget) => budget.unspent_amount(),
        }
    }

    /// Returns true if a request of this price is covered.
    pub(super) fn covers(&self, price: i64) -> bool {
        match self {
            Self::Wallet(balance, wallet) => balance.available(*wallet) >= price,
            Self::Budget(budget) => budget.covers(u64::try_from(price).unwrap_or(0)),
        }
    }

    /// Returns the amount that a draw has to add for a request of this price, at least 1. A recalled lease does not
    /// count, because it returns to the pool with the draw.
    pub(super) fn missing_amount(&self, price: i64) -> i64 {
        let available = self.available();
        let usable = if self.is_recalled() { available.min(0) } else { available };
        price.saturating_sub(usable).max(1)
    }

    /// Returns true if the lease may not be spent any more, and has to return to the pool.
    pub(super) fn is_recalled(&self) -> bool {
        matches!(self, Self::Budget(budget) if budget.is_recalled())
    }

    /// Adds an amount that was drawn from the pool, or that does not return to it.
    pub(super) fn add_amount(&self, amount: i64) {
        match self {
            Self::Wallet(balance, wallet) => balance.add_amount(*wallet, amount),
            Self::Budget(budget) => budget.add(amount),
        }
    }

    /// Subtracts an amount if it is available; returns true if it was.
    pub(super) fn subtract_if_available(&self, amount: i64) -> bool {
        match self {
            Self::Wallet(balance, wallet) => balance.subtract_if_available(*wallet, amount),
            Self::Budget(budget) => budget.try_subtract(amount),
        }
    }
}

/// Returns the wallet and the account of a pool; `None` for the pool of a budget, and for an invalid name.
pub(super) fn split_wallet_pool_name(pool: &str) -> Option<(Wallet, &str)> {
    let (wallet, account) = pool.split_once('/')?;
    match wallet {
        "credits" => Some((Wallet::Credits, account)),
        "energy" => Some((Wallet::Energy, account)),
        _ => None,
    }
}
