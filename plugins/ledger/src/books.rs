//! The books: entries folded into balances, each proven to fit the ones before it.

use crate::entry::{Act, Ending, Entry, Wallet};
use crate::misfit::Misfit;
use crate::posting::{Totals, postings};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// One wallet of one account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Sum of grants, charges and corrections; below zero in debt.
    pub amount: i64,
    /// What open reserves hold of it.
    pub held: i64,
}

impl Balance {
    /// What may be spent: the balance less the open reserves.
    #[must_use]
    pub const fn available(&self) -> i64 {
        self.amount.saturating_sub(self.held)
    }
}

/// Both wallets of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Micro-credits.
    pub credits: Balance,
    /// Nano-kWh.
    pub energy: Balance,
}

impl Account {
    /// The balance of a wallet.
    #[must_use]
    pub const fn wallet(&self, wallet: Wallet) -> &Balance {
        match wallet {
            Wallet::Credits => &self.credits,
            Wallet::Energy => &self.energy,
        }
    }

    fn wallet_mut(&mut self, wallet: Wallet) -> &mut Balance {
        match wallet {
            Wallet::Credits => &mut self.credits,
            Wallet::Energy => &mut self.energy,
        }
    }
}

/// An open reserve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Number of its entry.
    pub seq: u64,
    /// When it was made.
    pub at: u64,
    /// Whose it is.
    pub account: Arc<str>,
    /// Public id of the key.
    pub key: Arc<str>,
    /// Which wallet.
    pub wallet: Wallet,
    /// How much.
    pub amount: i64,
}

/// The open reserves, by request.
#[derive(Clone, Debug, Default)]
pub struct Open {
    by_request: HashMap<Arc<str>, Hold>,
    by_seq: BTreeSet<(u64, Arc<str>)>,
}

impl Open {
    /// Takes an entry up. Ends of reserves that were made before the first entry
    /// taken are passed over.
    pub fn take(&mut self, entry: &Entry) {
        match &entry.act {
            Act::Reserve { request, key, wallet, amount } => {
                let hold = Hold {
                    seq: entry.seq,
                    at: entry.at,
                    account: entry.account.clone(),
                    key: key.clone(),
                    wallet: *wallet,
                    amount: *amount,
                };
                self.by_seq.insert((entry.seq, request.clone()));
                self.by_request.insert(request.clone(), hold);
            }
            Act::Settle { request, .. } | Act::Void { request, .. } => {
                if let Some(hold) = self.by_request.remove(request) {
                    self.by_seq.remove(&(hold.seq, request.clone()));
                }
            }
            Act::Grant { .. } | Act::Correct { .. } | Act::Terms { .. } => {}
        }
    }

    /// The reserve of a request.
    #[must_use]
    pub fn get(&self, request: &str) -> Option<&Hold> {
        self.by_request.get(request)
    }

    /// All, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Hold)> {
        self.by_seq.iter().filter_map(|(_, request)| self.by_request.get_key_value(request))
    }

    /// The oldest, by the number of its entry.
    #[must_use]
    pub fn oldest(&self) -> Option<u64> {
        self.by_seq.first().map(|(seq, _)| *seq)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_request.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_request.is_empty()
    }
}

/// Every account's balances after some entries, from the first on.
#[derive(Clone, Debug, Default)]
pub struct Books {
    seq: u64,
    at: u64,
    accounts: BTreeMap<Arc<str>, Account>,
    open: Open,
    corrected: BTreeSet<u64>,
    credits: Totals,
    energy: Totals,
}

impl Books {
    /// Takes the next entry.
    ///
    /// # Errors
    /// Why it does not fit; the books are as they were.
    pub fn take(&mut self, entry: &Entry) -> Result<(), Misfit> {
        self.fits(entry)?;
        if let Some((wallet, moves)) = postings(&entry.act) {
            let mut account = self.accounts.get(&entry.account).copied().unwrap_or_default();
            change(account.wallet_mut(wallet), &entry.act).ok_or(Misfit::Overflow)?;
            self.accounts.insert(entry.account.clone(), account);
            let totals = match wallet {
                Wallet::Credits => &mut self.credits,
                Wallet::Energy => &mut self.energy,
            };
            moves.into_iter().for_each(|posting| totals.post(posting));
        }
        if let Act::Correct { of, .. } = &entry.act {
            self.corrected.insert(*of);
        }
        self.open.take(entry);
        (self.seq, self.at) = (entry.seq, entry.at);
        Ok(())
    }

    fn fits(&self, entry: &Entry) -> Result<(), Misfit> {
        if entry.seq != self.seq + 1 {
            return Err(Misfit::Order { expected: self.seq + 1 });
        }
        if entry.at < self.at {
            return Err(Misfit::Time);
        }
        match &entry.act {
            Act::Grant { amount, .. } => fair(*amount > 0),
            Act::Reserve { request, amount, .. } => {
                fair(*amount >= 0)?;
                self.open.get(request).map_or(Ok(()), |_| Err(Misfit::Reserved))
            }
            Act::Settle { request, key, wallet, amount, held, .. } => {
                fair(*amount >= 0)?;
                self.ends(entry, request, key, *wallet, *held)
            }
            Act::Void { request, key, wallet, held, .. } => self.ends(entry, request, key, *wallet, *held),
            Act::Correct { of, was, instead, .. } => {
                fair(*was >= 0 && *instead >= 0)?;
                let known = *of >= 1 && *of < entry.seq && !self.corrected.contains(of);
                if known { Ok(()) } else { Err(Misfit::Corrected) }
            }
            Act::Terms { .. } => Ok(()),
        }
    }

    fn ends(&self, entry: &Entry, request: &str, key: &str, wallet: Wallet, held: i64) -> Result<(), Misfit> {
        let hold = self.open.get(request).ok_or(Misfit::NotReserved)?;
        let same = hold.account == entry.account
            && *hold.key == *key
            && hold.wallet == wallet
            && hold.amount == held;
        if same { Ok(()) } else { Err(Misfit::Differs) }
    }

    /// Number of the last entry; 0 before the first.
    #[must_use]
    pub const fn seq(&self) -> u64 {
        self.seq
    }

    /// The balances of an account.
    #[must_use]
    pub fn account(&self, name: &str) -> Account {
        self.accounts.get(name).copied().unwrap_or_default()
    }

    /// Every account that has entries, by name.
    #[must_use]
    pub const fn accounts(&self) -> &BTreeMap<Arc<str>, Account> {
        &self.accounts
    }

    /// The open reserves.
    #[must_use]
    pub const fn open(&self) -> &Open {
        &self.open
    }

    /// The sums of a wallet's four books.
    #[must_use]
    pub const fn totals(&self, wallet: Wallet) -> Totals {
        match wallet {
            Wallet::Credits => self.credits,
            Wallet::Energy => self.energy,
        }
    }
}

const fn fair(amount: bool) -> Result<(), Misfit> {
    if amount { Ok(()) } else { Err(Misfit::Amount) }
}

/// What an act does to its account's balance. `None`: it would not fit.
fn change(balance: &mut Balance, act: &Act) -> Option<()> {
    let (amount, held) = match act {
        Act::Grant { amount, .. } => (balance.amount.checked_add(*amount)?, balance.held),
        Act::Reserve { amount, .. } => (balance.amount, balance.held.checked_add(*amount)?),
        Act::Settle { amount, held, .. } => {
            (balance.amount.checked_sub(*amount)?, balance.held.checked_sub(*held)?)
        }
        Act::Void { held, .. } => (balance.amount, balance.held.checked_sub(*held)?),
        Act::Correct { what, was, instead, .. } => {
            let back = was.checked_sub(*instead)?;
            let amount = match what {
                Ending::Settle => balance.amount.checked_add(back)?,
                Ending::Grant => balance.amount.checked_sub(back)?,
            };
            (amount, balance.held)
        }
        Act::Terms { .. } => (balance.amount, balance.held),
    };
    *balance = Balance { amount, held };
    Some(())
}
