//! Balance of an account in memory: the total and the available amount, changed without a lock. The difference is held
//! by reservations.

use penstock_ledger::{AccountWallets, Wallet, WalletBalance};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Balance of one wallet.
#[derive(Default)]
struct AtomicBalance {
    /// Total amount, which includes the held amounts. Only a charge, a grant or a correction changes it.
    balance: AtomicI64,
    /// Total amount minus the held amounts; negative if the account is in debt or more is held than it has.
    available: AtomicI64,
}

/// Balances of the credit wallet and the energy wallet of an account, in memory.
pub(super) struct AccountBalance {
    pub(super) name: Arc<str>,
    credits: AtomicBalance,
    energy: AtomicBalance,
}

impl AccountBalance {
    pub(super) fn new(name: &str, credits: i64, energy: i64) -> Self {
        let wallet_balance =
            |amount| AtomicBalance { balance: AtomicI64::new(amount), available: AtomicI64::new(amount) };
        Self { name: name.into(), credits: wallet_balance(credits), energy: wallet_balance(energy) }
    }

    const fn wallet_balance(&self, wallet: Wallet) -> &AtomicBalance {
        match wallet {
            Wallet::Credits => &self.credits,
            Wallet::Energy => &self.energy,
        }
    }

    /// Holds an amount. If `covered` is true and the wallet does not cover the amount, returns the available amount
    /// as the error. A zero amount is always covered by the credit wallet, and by the energy wallet only if a
    /// positive amount is available.
    pub(super) fn hold(&self, wallet: Wallet, amount: i64, covered: bool) -> Result<(), i64> {
        let take = |available: i64| {
            (!covered || is_covered(wallet, available, amount)).then(|| available.saturating_sub(amount))
        };
        let available = &self.wallet_balance(wallet).available;
        available.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).map(|_| ())
    }

    /// Returns true if the amount, in micro-credits or nano-kWh by wallet, would be covered without any holds.
    pub(super) fn is_covered_without_holds(&self, wallet: Wallet, amount: i64) -> bool {
        is_covered(wallet, self.wallet_balance(wallet).balance.load(Ordering::Acquire), amount)
    }

    /// Ends a hold of `held` and charges `spent`, which may exceed the held amount.
    pub(super) fn release_and_charge(&self, wallet: Wallet, held: i64, spent: i64) {
        let wallet_balance = self.wallet_balance(wallet);
        add_saturating(&wallet_balance.available, held.saturating_sub(spent));
        add_saturating(&wallet_balance.balance, spent.saturating_neg());
    }

    /// Adds a grant or the refund of a correction.
    pub(super) fn add_amount(&self, wallet: Wallet, amount: i64) {
        let wallet_balance = self.wallet_balance(wallet);
        add_saturating(&wallet_balance.balance, amount);
        add_saturating(&wallet_balance.available, amount);
    }

    /// Returns the amount that no request holds.
    pub(super) fn available(&self, wallet: Wallet) -> i64 {
        self.wallet_balance(wallet).available.load(Ordering::Acquire)
    }

    /// Returns the total amount, which includes the held amounts.
    pub(super) fn total(&self, wallet: Wallet) -> i64 {
        self.wallet_balance(wallet).balance.load(Ordering::Acquire)
    }

    /// Subtracts an amount if it is available; returns true if it was.
    pub(super) fn subtract_if_available(&self, wallet: Wallet, amount: i64) -> bool {
        let taken = self.hold(wallet, amount, true).is_ok();
        if taken {
            add_saturating(&self.wallet_balance(wallet).balance, amount.saturating_neg());
        }
        taken
    }

    /// Returns the balances for the API: a held amount is part of the balance until it is settled.
    pub(super) fn snapshot(&self) -> AccountWallets {
        let balance = |wallet_balance: &AtomicBalance| {
            let available = wallet_balance.available.load(Ordering::Acquire);
            let amount = wallet_balance.balance.load(Ordering::Acquire);
            WalletBalance { amount, held: amount.saturating_sub(available).max(0) }
        };
        AccountWallets { credits: balance(&self.credits), energy: balance(&self.energy) }
    }
}

/// Returns true if a balance covers an amount.
const fn is_covered(wallet: Wallet, there: i64, amount: i64) -> bool {
    match (amount, wallet) {
        (0, Wallet::Credits) => true,
        (0, Wallet::Energy) => there > 0,
        _ => there >= amount,
    }
}

/// Adds an amount. The sum saturates, so that a debt never becomes a positive balance by overflow.
fn add_saturating(to: &AtomicI64, amount: i64) {
    let add = |there: i64| Some(there.saturating_add(amount));
    to.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).ok();
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn sixty_four_threads_hold_exactly_the_balance() {
        let account_balance = AccountBalance::new("a", 10_000, 0);
        let taken: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..64)
                .map(|_| {
                    scope.spawn(|| {
                        (0..100).filter(|_| account_balance.hold(Wallet::Credits, 7, true).is_ok()).count()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, 10_000 / 7);
        assert_eq!(account_balance.available(Wallet::Credits), 10_000 % 7);
        assert_eq!(
            account_balance.snapshot().credits,
            WalletBalance { amount: 10_000, held: 10_000 - 10_000 % 7 }
        );
    }

    #[test]
    fn a_reserve_returns_the_unspent_amount_and_debt_stays() {
        let account_balance = AccountBalance::new("a", 100, 0);
        account_balance.hold(Wallet::Credits, 60, true).unwrap();
        assert_eq!(account_balance.hold(Wallet::Credits, 41, true), Err(40));
        account_balance.release_and_charge(Wallet::Credits, 60, 10);
        assert_eq!(account_balance.snapshot().credits, WalletBalance { amount: 90, held: 0 });
        account_balance.hold(Wallet::Credits, 90, true).unwrap();
        account_balance.release_and_charge(Wallet::Credits, 90, 95);
        assert_eq!(account_balance.available(Wallet::Credits), -5);
        assert_eq!(account_balance.hold(Wallet::Credits, 1, true), Err(-5));
        assert!(account_balance.hold(Wallet::Credits, 0, true).is_ok(), "what is free is free");
        assert!(account_balance.hold(Wallet::Credits, 50, false).is_ok(), "without a bound");
    }

    #[test]
    fn reserves_may_be_returned_and_spent_amounts_may_not() {
        let account_balance = AccountBalance::new("a", 100, 10);
        account_balance.hold(Wallet::Credits, 80, true).unwrap();
        assert_eq!(account_balance.hold(Wallet::Credits, 100, true), Err(20));
        assert!(
            account_balance.is_covered_without_holds(Wallet::Credits, 100)
                && !account_balance.is_covered_without_holds(Wallet::Credits, 101)
        );
        account_balance.release_and_charge(Wallet::Credits, 80, 1);
        assert!(
            account_balance.is_covered_without_holds(Wallet::Credits, 99)
                && !account_balance.is_covered_without_holds(Wallet::Credits, 100)
        );
        account_balance.hold(Wallet::Energy, 10, true).unwrap();
        assert!(
            account_balance.hold(Wallet::Energy, 0, true).is_err()
                && account_balance.is_covered_without_holds(Wallet::Energy, 0)
        );
        account_balance.release_and_charge(Wallet::Energy, 10, 12);
        assert!(!account_balance.is_covered_without_holds(Wallet::Energy, 0));
    }

    #[test]
    fn an_empty_energy_wallet_does_not_pay_even_for_nothing() {
        let account_balance = AccountBalance::new("a", 0, 0);
        assert_eq!(account_balance.hold(Wallet::Energy, 0, true), Err(0));
        account_balance.add_amount(Wallet::Energy, 5);
        assert!(account_balance.hold(Wallet::Energy, 5, true).is_ok());
    }
}
