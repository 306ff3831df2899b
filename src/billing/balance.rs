//! Balance of an account in memory: total and available amount, changed without a lock. The difference is held.

use penstock_ledger::{AccountBalances, Wallet, WalletBalance};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Balance of one wallet.
#[derive(Default)]
struct Pocket {
    /// Total without regard to holds: only a charge, a grant or a correction changes it.
    balance: AtomicI64,
    available: AtomicI64,
}

/// Both wallets of an account.
pub(super) struct Purse {
    pub(super) name: Arc<str>,
    credits: Pocket,
    energy: Pocket,
}

impl Purse {
    pub(super) fn new(name: &str, credits: i64, energy: i64) -> Self {
        let pocket = |amount| Pocket { balance: AtomicI64::new(amount), available: AtomicI64::new(amount) };
        Self { name: name.into(), credits: pocket(credits), energy: pocket(energy) }
    }

    const fn pocket(&self, wallet: Wallet) -> &Pocket {
        match wallet {
            Wallet::Credits => &self.credits,
            Wallet::Energy => &self.energy,
        }
    }

    /// Holds an amount. With `covered`, only if it is available; a zero amount is always covered by credits, and by
    /// energy if there is any.
    pub(super) fn take(&self, wallet: Wallet, amount: i64, covered: bool) -> Result<(), i64> {
        let take = |available: i64| {
            (!covered || enough(wallet, available, amount)).then(|| available.saturating_sub(amount))
        };
        let available = &self.pocket(wallet).available;
        available.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).map(|_| ())
    }

    /// Returns true if the amount would be covered without any holds.
    pub(super) fn covers(&self, wallet: Wallet, amount: i64) -> bool {
        enough(wallet, self.pocket(wallet).balance.load(Ordering::Acquire), amount)
    }

    /// Ends a hold and charges `spent`, which may exceed it.
    pub(super) fn end(&self, wallet: Wallet, held: i64, spent: i64) {
        let pocket = self.pocket(wallet);
        give(&pocket.available, held.saturating_sub(spent));
        give(&pocket.balance, spent.saturating_neg());
    }

    /// Adds a grant or the refund of a correction.
    pub(super) fn add(&self, wallet: Wallet, amount: i64) {
        let pocket = self.pocket(wallet);
        give(&pocket.balance, amount);
        give(&pocket.available, amount);
    }

    pub(super) fn available(&self, wallet: Wallet) -> i64 {
        self.pocket(wallet).available.load(Ordering::Acquire)
    }

    /// Balances for the API: held amounts count until they are settled.
    pub(super) fn account(&self) -> AccountBalances {
        let balance = |pocket: &Pocket| {
            let available = pocket.available.load(Ordering::Acquire);
            let amount = pocket.balance.load(Ordering::Acquire);
            WalletBalance { amount, held: amount.saturating_sub(available).max(0) }
        };
        AccountBalances { credits: balance(&self.credits), energy: balance(&self.energy) }
    }
}

/// Returns true if a balance covers an amount.
const fn enough(wallet: Wallet, there: i64, amount: i64) -> bool {
    match (amount, wallet) {
        (0, Wallet::Credits) => true,
        (0, Wallet::Energy) => there > 0,
        _ => there >= amount,
    }
}

/// Adds an amount, saturating so that a debt never wraps around.
fn give(to: &AtomicI64, amount: i64) {
    let add = |there: i64| Some(there.saturating_add(amount));
    to.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).ok();
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn sixty_four_at_once_never_take_more_than_there_is_nor_less() {
        let purse = Purse::new("a", 10_000, 0);
        let taken: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..64)
                .map(|_| {
                    scope.spawn(|| (0..100).filter(|_| purse.take(Wallet::Credits, 7, true).is_ok()).count())
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, 10_000 / 7);
        assert_eq!(purse.available(Wallet::Credits), 10_000 % 7);
        assert_eq!(purse.account().credits, WalletBalance { amount: 10_000, held: 10_000 - 10_000 % 7 });
    }

    #[test]
    fn a_hold_gives_back_what_was_not_spent_and_debt_stays() {
        let purse = Purse::new("a", 100, 0);
        purse.take(Wallet::Credits, 60, true).unwrap();
        assert_eq!(purse.take(Wallet::Credits, 41, true), Err(40));
        purse.end(Wallet::Credits, 60, 10);
        assert_eq!(purse.account().credits, WalletBalance { amount: 90, held: 0 });
        purse.take(Wallet::Credits, 90, true).unwrap();
        purse.end(Wallet::Credits, 90, 95);
        assert_eq!(purse.available(Wallet::Credits), -5);
        assert_eq!(purse.take(Wallet::Credits, 1, true), Err(-5));
        assert!(purse.take(Wallet::Credits, 0, true).is_ok(), "what is free is free");
        assert!(purse.take(Wallet::Credits, 50, false).is_ok(), "without a bound");
    }

    #[test]
    fn what_is_held_may_come_back_and_what_is_spent_may_not() {
        let purse = Purse::new("a", 100, 10);
        purse.take(Wallet::Credits, 80, true).unwrap();
        assert_eq!(purse.take(Wallet::Credits, 100, true), Err(20));
        assert!(purse.covers(Wallet::Credits, 100) && !purse.covers(Wallet::Credits, 101));
        purse.end(Wallet::Credits, 80, 1);
        assert!(purse.covers(Wallet::Credits, 99) && !purse.covers(Wallet::Credits, 100));
        purse.take(Wallet::Energy, 10, true).unwrap();
        assert!(purse.take(Wallet::Energy, 0, true).is_err() && purse.covers(Wallet::Energy, 0));
        purse.end(Wallet::Energy, 10, 12);
        assert!(!purse.covers(Wallet::Energy, 0));
    }

    #[test]
    fn an_empty_energy_wallet_does_not_pay_even_for_nothing() {
        let purse = Purse::new("a", 0, 0);
        assert_eq!(purse.take(Wallet::Energy, 0, true), Err(0));
        purse.add(Wallet::Energy, 5);
        assert!(purse.take(Wallet::Energy, 5, true).is_ok());
    }
}
