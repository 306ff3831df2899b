//! Balances computed from entries; each entry is checked against the previous ones.

use crate::entry::{Act, Ending, Entry, Wallet};
use crate::misfit::Misfit;
use crate::posting::{Totals, postings};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Balance of one wallet of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Sum of grants, charges and corrections; below zero in debt.
    pub amount: i64,
    /// Amount held by open reserves.
    pub held: i64,
}

impl Balance {
    /// Returns the amount that may be spent: the balance less the open reserves.
    #[must_use]
    pub const fn available(&self) -> i64 {
        self.amount.saturating_sub(self.held)
    }
}

/// Balances of both wallets of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Balance in micro-credits.
    pub credits: Balance,
    /// Balance in nano-kWh.
    pub energy: Balance,
}

impl Account {
    /// Returns the balance of a wallet.
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

/// Open reserve of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Number of its entry.
    pub seq: u64,
    /// Time of the reserve, Unix seconds.
    pub at: u64,
    /// Account of the reserve.
    pub account: Arc<str>,
    /// Public id of the key.
    pub key: Arc<str>,
    /// Wallet of the reserve.
    pub wallet: Wallet,
    /// Reserved amount.
    pub amount: i64,
}

/// Open reserves, by request.
#[derive(Clone, Debug, Default)]
pub struct Open {
    by_request: HashMap<Arc<str>, Hold>,
    by_seq: BTreeSet<(u64, Arc<str>)>,
}

impl Open {
    /// Applies an entry. Ends of reserves made before the first applied entry are ignored.
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

    /// Returns the reserve of a request.
    #[must_use]
    pub fn get(&self, request: &str) -> Option<&Hold> {
        self.by_request.get(request)
    }

    /// Iterates over the reserves, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Hold)> {
        self.by_seq.iter().filter_map(|(_, request)| self.by_request.get_key_value(request))
    }

    /// Returns the entry number of the oldest reserve.
    #[must_use]
    pub fn oldest(&self) -> Option<u64> {
        self.by_seq.first().map(|(seq, _)| *seq)
    }

    /// Returns the number of open reserves.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_request.len()
    }

    /// Returns true if there is no open reserve.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_request.is_empty()
    }
}

/// Balances of all accounts after a prefix of the ledger.
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
    /// Applies the next entry.
    ///
    /// # Errors
    /// Returns the reason if the entry does not fit; then the balances are unchanged.
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

    /// Returns the number of the last entry; 0 before the first.
    #[must_use]
    pub const fn seq(&self) -> u64 {
        self.seq
    }

    /// Returns the balances of an account.
    #[must_use]
    pub fn account(&self, name: &str) -> Account {
        self.accounts.get(name).copied().unwrap_or_default()
    }

    /// Returns every account that has entries, by name.
    #[must_use]
    pub const fn accounts(&self) -> &BTreeMap<Arc<str>, Account> {
        &self.accounts
    }

    /// Returns the open reserves.
    #[must_use]
    pub const fn open(&self) -> &Open {
        &self.open
    }

    /// Returns the sums of the four books of a wallet.
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

/// Applies an entry to the balance of its account; `None` on overflow.
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
