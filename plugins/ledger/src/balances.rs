//! Balances computed from entries; each entry is checked against the previous ones.

use crate::entry::{CorrectedKind, EntryKind, LedgerEntry, Wallet};
use crate::error::EntryError;
use crate::posting::{BookTotals, entry_postings};
use penstock_core::entry_number::{chain_of, number_before_chain, sequence_in_chain};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Balance of one wallet of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalletBalance {
    /// Grants less charges, corrections included, in the unit of the wallet; negative in debt.
    pub amount: i64,
    /// Amount held by open reserves, in the unit of the wallet.
    pub held: i64,
}

impl WalletBalance {
    /// Returns the amount that may be spent: the balance less the open reserves.
    #[must_use]
    pub const fn available(&self) -> i64 {
        self.amount.saturating_sub(self.held)
    }
}

/// Balances of both wallets of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountWallets {
    /// Credits, in micro-credits.
    pub credits: WalletBalance,
    /// Prepaid energy, in nano-kWh.
    pub energy: WalletBalance,
}

impl AccountWallets {
    /// Returns the balance of a wallet.
    #[must_use]
    pub const fn wallet(&self, wallet: Wallet) -> &WalletBalance {
        match wallet {
            Wallet::Credits => &self.credits,
            Wallet::Energy => &self.energy,
        }
    }

    fn wallet_mut(&mut self, wallet: Wallet) -> &mut WalletBalance {
        match wallet {
            Wallet::Credits => &mut self.credits,
            Wallet::Energy => &mut self.energy,
        }
    }
}

/// Reserve for a request that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenReserve {
    /// Number of the ledger entry that made the reserve.
    pub seq: u64,
    /// Time of the reserve, Unix seconds.
    pub at: u64,
    /// Account of the reserve.
    pub account: Arc<str>,
    /// Public id of the key.
    pub key: Arc<str>,
    /// Wallet of the reserve.
    pub wallet: Wallet,
    /// Reserved amount, in the unit of the wallet.
    pub amount: i64,
}

/// Reserves of all requests that have not ended, by the id of the request.
#[derive(Clone, Debug, Default)]
pub struct OpenReserves {
    by_request: HashMap<Arc<str>, OpenReserve>,
    by_seq: BTreeSet<(u64, Arc<str>)>,
}

impl OpenReserves {
    /// Applies an entry. The end of a reserve is ignored if the entry of the reserve was not applied before. If a
    /// reserve is applied again, the number of its last entry counts.
    pub fn apply_entry(&mut self, entry: &LedgerEntry) {
        match &entry.kind {
            EntryKind::Reserve { request, key, wallet, amount } => {
                let hold = OpenReserve {
                    seq: entry.seq,
                    at: entry.at,
                    account: entry.account.clone(),
                    key: key.clone(),
                    wallet: *wallet,
                    amount: *amount,
                };
                if let Some(earlier) = self.by_request.insert(request.clone(), hold) {
                    self.by_seq.remove(&(earlier.seq, request.clone()));
                }
                self.by_seq.insert((entry.seq, request.clone()));
            }
            EntryKind::Settle { request, .. } | EntryKind::Void { request, .. } => {
                if let Some(hold) = self.by_request.remove(request) {
                    self.by_seq.remove(&(hold.seq, request.clone()));
                }
            }
            EntryKind::Grant { .. } | EntryKind::Correct { .. } | EntryKind::Terms { .. } => {}
        }
    }

    /// Returns the reserve of a request.
    #[must_use]
    pub fn get(&self, request: &str) -> Option<&OpenReserve> {
        self.by_request.get(request)
    }

    /// Iterates over the reserves, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &OpenReserve)> {
        self.by_seq.iter().filter_map(|(_, request)| self.by_request.get_key_value(request))
    }

    /// Returns the entry number of the oldest reserve; `None` if no reserve is open.
    #[must_use]
    pub fn oldest_seq(&self) -> Option<u64> {
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

/// Sums of the entries of one chain by account, from its first entry up to the last applied one. The balance of an
/// account is the sum over all chains; a reserve ends in the chain in which it was made.
#[derive(Clone, Debug, Default)]
pub struct ChainBalances {
    seq: u64,
    at: u64,
    accounts: BTreeMap<Arc<str>, AccountWallets>,
    open: OpenReserves,
    corrected: BTreeSet<u64>,
    credits: BookTotals,
    energy: BookTotals,
}

impl ChainBalances {
    /// Creates the sums before the first entry of a chain.
    #[must_use]
    pub fn at_chain_start(chain: u32) -> Self {
        Self { seq: number_before_chain(chain), ..Self::default() }
    }

    /// Applies the next entry.
    ///
    /// # Errors
    /// Returns the first check that the entry fails; then the balances are unchanged.
    pub fn apply_entry(&mut self, entry: &LedgerEntry) -> Result<(), EntryError> {
        self.check(entry)?;
        if let Some((wallet, moves)) = entry_postings(&entry.kind) {
            let mut account = self.accounts.get(&entry.account).copied().unwrap_or_default();
            apply_to_balance(account.wallet_mut(wallet), &entry.kind).ok_or(EntryError::Overflow)?;
            self.accounts.insert(entry.account.clone(), account);
            let totals = match wallet {
                Wallet::Credits => &mut self.credits,
                Wallet::Energy => &mut self.energy,
            };
            moves.into_iter().for_each(|posting| totals.post(posting));
        }
        if let EntryKind::Correct { of, .. } = &entry.kind {
            self.corrected.insert(*of);
        }
        self.open.apply_entry(entry);
        (self.seq, self.at) = (entry.seq, entry.at);
        Ok(())
    }

    fn check(&self, entry: &LedgerEntry) -> Result<(), EntryError> {
        if entry.seq != self.seq + 1 {
            return Err(EntryError::UnexpectedNumber { expected: self.seq + 1 });
        }
        if entry.at < self.at {
            return Err(EntryError::TimeDecreased);
        }
        match &entry.kind {
            EntryKind::Grant { amount, .. } => check_amount(*amount > 0),
            EntryKind::Reserve { request, amount, .. } => {
                check_amount(*amount >= 0)?;
                self.open.get(request).map_or(Ok(()), |_| Err(EntryError::AlreadyReserved))
            }
            EntryKind::Settle { request, key, wallet, amount, held, .. } => {
                check_amount(*amount >= 0)?;
                self.check_end(entry, request, key, *wallet, *held)
            }
            EntryKind::Void { request, key, wallet, held, .. } => {
                self.check_end(entry, request, key, *wallet, *held)
            }
            EntryKind::Correct { of, previous_amount: was, new_amount: instead, .. } => {
                check_amount(*was >= 0 && *instead >= 0)?;
                // The corrected entry may be in another chain, see `corrected_entry_numbers`.
                let is_before = chain_of(*of) != chain_of(entry.seq) || *of < entry.seq;
                let known = sequence_in_chain(*of) >= 1 && is_before && !self.corrected.contains(of);
                if known { Ok(()) } else { Err(EntryError::NotCorrectable) }
            }
            EntryKind::Terms { .. } => Ok(()),
        }
    }

    fn check_end(
        &self,
        entry: &LedgerEntry,
        request: &str,
        key: &str,
        wallet: Wallet,
        held: i64,
    ) -> Result<(), EntryError> {
        let hold = self.open.get(request).ok_or(EntryError::NotReserved)?;
        let same = hold.account == entry.account
            && *hold.key == *key
            && hold.wallet == wallet
            && hold.amount == held;
        if same { Ok(()) } else { Err(EntryError::ReserveMismatch) }
    }

    /// Returns the numbers of the corrected entries. If the corrected entry is in another chain, only the form of its
    /// number was checked, not its existence.
    #[must_use]
    pub const fn corrected_entry_numbers(&self) -> &BTreeSet<u64> {
        &self.corrected
    }

    /// Returns the number of the last entry; before the first entry, the number that precedes the chain.
    #[must_use]
    pub const fn last_seq(&self) -> u64 {
        self.seq
    }

    /// Returns the balances of an account; zero if it has no entries.
    #[must_use]
    pub fn account_balances(&self, name: &str) -> AccountWallets {
        self.accounts.get(name).copied().unwrap_or_default()
    }

    /// Returns the balances of every account that has entries, by its name.
    #[must_use]
    pub const fn balances_by_account(&self) -> &BTreeMap<Arc<str>, AccountWallets> {
        &self.accounts
    }

    /// Returns the open reserves.
    #[must_use]
    pub const fn open_reserves(&self) -> &OpenReserves {
        &self.open
    }

    /// Returns the sums of a wallet's four books: issued, customer, held and revenue.
    #[must_use]
    pub const fn book_totals(&self, wallet: Wallet) -> BookTotals {
        match wallet {
            Wallet::Credits => self.credits,
            Wallet::Energy => self.energy,
        }
    }
}

const fn check_amount(amount: bool) -> Result<(), EntryError> {
    if amount { Ok(()) } else { Err(EntryError::InvalidAmount) }
}

/// Applies an entry to the balance of its account; `None` on overflow.
fn apply_to_balance(balance: &mut WalletBalance, act: &EntryKind) -> Option<()> {
    let (amount, held) = match act {
        EntryKind::Grant { amount, .. } => (balance.amount.checked_add(*amount)?, balance.held),
        EntryKind::Reserve { amount, .. } => (balance.amount, balance.held.checked_add(*amount)?),
        EntryKind::Settle { amount, held, .. } => {
            (balance.amount.checked_sub(*amount)?, balance.held.checked_sub(*held)?)
        }
        EntryKind::Void { held, .. } => (balance.amount, balance.held.checked_sub(*held)?),
        EntryKind::Correct { what, previous_amount: was, new_amount: instead, .. } => {
            let back = was.checked_sub(*instead)?;
            let amount = match what {
                CorrectedKind::Settle => balance.amount.checked_add(back)?,
                CorrectedKind::Grant => balance.amount.checked_sub(back)?,
            };
            (amount, balance.held)
        }
        EntryKind::Terms { .. } => (balance.amount, balance.held),
    };
    *balance = WalletBalance { amount, held };
    Some(())
}
