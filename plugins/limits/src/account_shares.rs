//! Shares of accounts in a common amount, such as memory or disk space. The last eighth is reserved for accounts that
//! hold less than an eighth: one account cannot block the others, and alone it can use nearly all.

use std::collections::HashMap;
use std::sync::Arc;

/// Amounts that accounts hold of a common amount. An account that holds nothing has no entry.
#[derive(Debug, Default)]
pub struct AccountShares {
    total: usize,
    by_account: HashMap<Arc<str>, usize>,
}

impl AccountShares {
    /// Returns the amount that all accounts hold together.
    #[must_use]
    pub const fn total(&self) -> usize {
        self.total
    }

    /// Returns true if the account may hold this much more, if all accounts together may hold `capacity`.
    #[must_use]
    pub fn has_capacity(&self, account: &str, amount: usize, capacity: usize) -> bool {
        let (eighth, total) = (capacity / 8, self.total.saturating_add(amount));
        let holds_little = || self.by_account.get(account).copied().unwrap_or(0) < eighth;
        total <= capacity && (amount == 0 || total <= capacity - eighth || holds_little())
    }

    /// Adds an amount to the share of an account.
    pub fn add(&mut self, account: &Arc<str>, amount: usize) {
        if amount == 0 {
            return;
        }
        self.total = self.total.saturating_add(amount);
        match self.by_account.get_mut(&**account) {
            Some(own) => *own = own.saturating_add(amount),
            None => drop(self.by_account.insert(account.clone(), amount)),
        }
    }

    /// Adds an amount to the share of an account if it may hold this much more; returns true if it was added.
    pub fn try_add(&mut self, account: &Arc<str>, amount: usize, capacity: usize) -> bool {
        let fits = self.has_capacity(account, amount, capacity);
        if fits {
            self.add(account, amount);
        }
        fits
    }

    /// Removes an amount from the share of an account, at most what the account holds.
    pub fn remove(&mut self, account: &str, amount: usize) {
        let Some(own) = self.by_account.get_mut(account) else { return };
        let removed = amount.min(*own);
        *own -= removed;
        self.total -= removed;
        if *own == 0 {
            self.by_account.remove(account);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_eighth_is_reserved_for_accounts_that_hold_less_than_an_eighth() {
        let mut shares = AccountShares::default();
        let (greedy, modest) = (Arc::from("greedy"), Arc::from("modest"));
        assert!(shares.try_add(&greedy, 700, 800), "one account may use nearly all");
        assert!(!shares.try_add(&greedy, 1, 800) && shares.has_capacity(&greedy, 0, 800));
        assert!(shares.try_add(&modest, 99, 800));
        assert!(!shares.try_add(&modest, 2, 800), "the capacity holds for all");
        shares.remove(&greedy, 50);
        assert!(shares.try_add(&modest, 51, 800), "an account with less than an eighth");
        assert!(!shares.try_add(&modest, 1, 800), "an account with more");
        shares.remove(&greedy, 1_000);
        shares.remove(&modest, 150);
        assert_eq!((shares.total(), shares.by_account.len()), (0, 0));
    }
}
