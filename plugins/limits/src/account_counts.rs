//! Number of permits in use, in total and by account.

use std::collections::HashMap;
use std::sync::Arc;

/// Counts of permits in use, by account. An account without permits has no entry.
#[derive(Debug, Default)]
pub struct AccountPermitCounts {
    total: usize,
    by_account: HashMap<Arc<str>, usize>,
}

impl AccountPermitCounts {
    /// Returns the number of permits in use, all accounts together.
    #[must_use]
    pub const fn total(&self) -> usize {
        self.total
    }

    /// Returns the number of permits in use by one account.
    #[must_use]
    pub fn account_count(&self, account: &str) -> usize {
        self.by_account.get(account).copied().unwrap_or(0)
    }

    /// Counts one more permit for an account.
    pub fn add(&mut self, account: &Arc<str>) {
        self.total += 1;
        match self.by_account.get_mut(account) {
            Some(own) => *own += 1,
            None => drop(self.by_account.insert(account.clone(), 1)),
        }
    }

    /// Removes a permit of an account, if it has one.
    pub fn remove(&mut self, account: &str) {
        let Some(own) = self.by_account.get_mut(account) else { return };
        *own -= 1;
        self.total -= 1;
        if *own == 0 {
            self.by_account.remove(account);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_counted_by_account_and_an_account_without_permits_is_forgotten() {
        let mut counts = AccountPermitCounts::default();
        for account in ["one", "two", "one"] {
            counts.add(&Arc::from(account));
        }
        assert_eq!((counts.total(), counts.account_count("one"), counts.account_count("none")), (3, 2, 0));
        for _ in 0..3 {
            counts.remove("one");
        }
        assert_eq!((counts.total(), counts.account_count("one")), (1, 0), "nothing is removed twice");
        assert_eq!(counts.by_account.len(), 1);
    }
}
