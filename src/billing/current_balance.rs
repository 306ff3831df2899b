//! Balances for display. Without a fleet, they are the balances in memory. In a fleet, the memory has only the leases
//! of this member, so the balances are read from the store, where the charges of the last `ledger.window` may be
//! missing.

use super::Ledger;
use crate::storage::stores::run_blocking;
use penstock_core::{ApiError, ErrorCode};
use penstock_ledger::AccountWallets;
use penstock_storage::ledger::BalanceRecord;
use std::sync::Arc;

impl Ledger {
    /// Returns the balance of an account. In a fleet, held amounts are those of this member's requests.
    ///
    /// # Errors
    /// Returns 503 if the database of a fleet does not answer.
    pub async fn current_balance(&self, account: &str) -> Result<AccountWallets, ApiError> {
        if self.leases.is_none() {
            return Ok(self.balance(account));
        }
        let (store, name) = (self.store.clone(), account.to_owned());
        let stored = run_blocking(move || store.balance(&name)).await.map_err(|_| database_unavailable())?;
        Ok(self.with_own_holds(account, stored.unwrap_or_default()))
    }

    /// Returns the balances of all accounts that have one, by name.
    ///
    /// # Errors
    /// Returns 503 if the database of a fleet does not answer.
    pub async fn current_balances(&self) -> Result<Vec<(Arc<str>, AccountWallets)>, ApiError> {
        if self.leases.is_none() {
            let names = self.accounts_with_balance().into_iter();
            return Ok(names.map(|name| (name.clone(), self.balance(&name))).collect());
        }
        let store = self.store.clone();
        let stored = run_blocking(move || store.balances()).await;
        let stored = stored.map_err(|_| database_unavailable())?.into_iter();
        Ok(stored.map(|(name, stored)| (name.as_str().into(), self.with_own_holds(&name, stored))).collect())
    }

    fn with_own_holds(&self, account: &str, stored: BalanceRecord) -> AccountWallets {
        let mut balances = self.balance(account);
        balances.credits.amount = stored.credits;
        balances.energy.amount = stored.energy;
        balances
    }
}

/// Returns the refusal that is sent while the database of a fleet does not answer.
pub(super) fn database_unavailable() -> ApiError {
    let message =
        "The gateway cannot reach its database to read the balance of the account; try again shortly.";
    ApiError::with_message(ErrorCode::Unavailable, message).with_retry_after(5)
}
