//! An account's purse in memory: what is available and what is held, changed
//! without a lock.

use penstock_ledger::{Account, Balance, Wallet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// One wallet.
#[derive(Default)]
struct Pocket {
    available: AtomicI64,
    held: AtomicI64,
}

/// Both wallets of an account.
pub(super) struct Purse {
    pub(super) name: Arc<str>,
    credits: Pocket,
    energy: Pocket,
}

impl Purse {
    pub(super) fn new(name: &str, credits: i64, energy: i64) -> Self {
        let pocket = |amount| Pocket { available: AtomicI64::new(amount), held: AtomicI64::new(0) };
        Self { name: name.into(), credits: pocket(credits), energy: pocket(energy) }
    }

    const fn pocket(&self, wallet: Wallet) -> &Pocket {
        match wallet {
            Wallet::Credits => &self.credits,
            Wallet::Energy => &self.energy,
        }
    }

    /// Holds an amount. With `covered` only as far as it is there; what costs
    /// nothing is always covered by credits, and by energy if there is any.
    pub(super) fn take(&self, wallet: Wallet, amount: i64, covered: bool) -> Result<(), i64> {
        let pocket = self.pocket(wallet);
        let enough = |available: i64| match (amount, wallet) {
            (0, Wallet::Credits) => true,
            (0, Wallet::Energy) => available > 0,
            _ => available >= amount,
        };
        let taken = pocket.available.fetch_update(Ordering::AcqRel, Ordering::Acquire, |available| {
            (!covered || enough(available)).then(|| available.saturating_sub(amount))
        });
        taken?;
        pocket.held.fetch_add(amount, Ordering::AcqRel);
        Ok(())
    }

    /// Ends a hold; `spent` of it, or more, is gone.
    pub(super) fn end(&self, wallet: Wallet, held: i64, spent: i64) {
        let pocket = self.pocket(wallet);
        pocket.held.fetch_sub(held, Ordering::AcqRel);
        give(&pocket.available, held.saturating_sub(spent));
    }

    /// Adds a grant, or what a correction gives back.
    pub(super) fn add(&self, wallet: Wallet, amount: i64) {
        give(&self.pocket(wallet).available, amount);
    }

    pub(super) fn available(&self, wallet: Wallet) -> i64 {
        self.pocket(wallet).available.load(Ordering::Acquire)
    }

    /// Balances as they are told: what is held counts until it is settled.
    pub(super) fn account(&self) -> Account {
        let balance = |pocket: &Pocket| {
            let held = pocket.held.load(Ordering::Acquire);
            let available = pocket.available.load(Ordering::Acquire);
            Balance { amount: available.saturating_add(held), held }
        };
        Account { credits: balance(&self.credits), energy: balance(&self.energy) }
    }
}

/// Adds without ever turning a debt into riches.
fn give(available: &AtomicI64, amount: i64) {
    let add = |available: i64| Some(available.saturating_add(amount));
    available.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).ok();
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
        assert_eq!(purse.account().credits, Balance { amount: 10_000, held: 10_000 - 10_000 % 7 });
    }

    #[test]
    fn a_hold_gives_back_what_was_not_spent_and_debt_stays() {
        let purse = Purse::new("a", 100, 0);
        purse.take(Wallet::Credits, 60, true).unwrap();
        assert_eq!(purse.take(Wallet::Credits, 41, true), Err(40));
        purse.end(Wallet::Credits, 60, 10);
        assert_eq!(purse.account().credits, Balance { amount: 90, held: 0 });
        purse.take(Wallet::Credits, 90, true).unwrap();
        purse.end(Wallet::Credits, 90, 95);
        assert_eq!(purse.available(Wallet::Credits), -5);
        assert_eq!(purse.take(Wallet::Credits, 1, true), Err(-5));
        assert!(purse.take(Wallet::Credits, 0, true).is_ok(), "what is free is free");
        assert!(purse.take(Wallet::Credits, 50, false).is_ok(), "without a bound");
    }

    #[test]
    fn an_empty_energy_wallet_does_not_pay_even_for_nothing() {
        let purse = Purse::new("a", 0, 0);
        assert_eq!(purse.take(Wallet::Energy, 0, true), Err(0));
        purse.add(Wallet::Energy, 5);
        assert!(purse.take(Wallet::Energy, 5, true).is_ok());
    }
}
