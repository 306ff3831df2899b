//! Spending of keys and accounts in the current day and month, saved periodically so that a budget survives a restart.
//! The ledger stays authoritative for money; these rows only limit spending.
//!
//! Each writer adds the amounts spent since its last write, so the row has the sum of all writers. Each addition has
//! a number. After an unknown outcome the addition is tried again with the same number; the stored number shows
//! whether it was applied before.
//!
//! ```text
//! spend  `k` id, `a` id      →  the amounts of a key or an account
//! meta   `spends`            →  counter of the additions of a process that is alone
//! meta   `spends/` incarnation    →  counter of those of a fleet member
//! ```
//! A fleet member subtracts the added amounts from its parts of the budgets in the same commit, see [`BudgetPoolId`].

use parking_lot::Mutex;
use penstock_core::calendar::BudgetPeriod;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;

use crate::fleet::{BudgetPoolId, SharedFleet, require_alive};
use crate::versioned_json::{self, MAX_ATTEMPTS};
use crate::{
    MAX_OPERATIONS, RowAddition, Store, StoreError, StoreTable, Transaction, counter_row, parse_counter,
};

const WHAT: &str = "a spend";
const NUMBER_KEY: &[u8] = b"spends";
/// Maximum number of additions of a commit: each has at most five operations, and three are for the number and the
/// member.
const MAX_ADDITIONS: usize = (MAX_OPERATIONS - 3) / 5;

/// Owner of a spending record.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SpendOwner {
    /// API key, by its public id.
    Key(String),
    /// Account, by its id.
    Account(String),
}

/// Amounts spent, in micro-credits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpendRecord {
    /// Micro-credits spent in the UTC day of `at`.
    pub day: u64,
    /// Micro-credits spent in the UTC month of `at`.
    pub month: u64,
    /// Time to which the amounts refer, Unix seconds.
    pub at: u64,
}

impl SpendRecord {
    /// Returns the sum of both records. If they are of different days (or months), only the amount of the later day
    /// (or month) counts, because the other one has expired.
    #[must_use]
    pub fn merged_with(self, other: SpendRecord) -> SpendRecord {
        let (early, late) = if self.at <= other.at { (self, other) } else { (other, self) };
        let same_day = BudgetPeriod::Day.is_same_period(early.at, late.at);
        let same_month = BudgetPeriod::Month.is_same_period(early.at, late.at);
        SpendRecord {
            day: late.day.saturating_add(if same_day { early.day } else { 0 }),
            month: late.month.saturating_add(if same_month { early.month } else { 0 }),
            at: late.at,
        }
    }

    /// Returns the amount spent since `before`, an earlier record of the same owner.
    #[must_use]
    pub fn spent_since_record(self, before: SpendRecord) -> SpendRecord {
        let same_day = BudgetPeriod::Day.is_same_period(before.at, self.at);
        let same_month = BudgetPeriod::Month.is_same_period(before.at, self.at);
        SpendRecord {
            day: self.day.saturating_sub(if same_day { before.day } else { 0 }),
            month: self.month.saturating_sub(if same_month { before.month } else { 0 }),
            at: self.at,
        }
    }

    /// Returns the amount spent in a period at `now`. It is 0 if the record's period has ended. If the clock of the
    /// process that wrote the record is fast, it may be the amount of a later period.
    #[must_use]
    pub fn spent_in(self, period: BudgetPeriod, now: u64) -> u64 {
        let spent = match period {
            BudgetPeriod::Day => self.day,
            BudgetPeriod::Month => self.month,
        };
        if self.at >= now || period.is_same_period(self.at, now) { spent } else { 0 }
    }

    pub(crate) fn from_row(row: &[u8]) -> Result<SpendRecord, StoreError> {
        versioned_json::decode(WHAT, row)
    }

    pub(crate) fn to_row(self) -> Result<Vec<u8>, StoreError> {
        versioned_json::encode(WHAT, &self)
    }
}

/// Spending to add to a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpendAddition {
    /// Owner of the record.
    pub owner: SpendOwner,
    /// Amounts to add to the record, in micro-credits.
    pub spend: SpendRecord,
    /// Amounts that are taken from the member's parts of the daily and of the monthly budget, in micro-credits.
    pub from_parts: (i64, i64),
}

impl From<(SpendOwner, SpendRecord)> for SpendAddition {
    fn from((owner, spend): (SpendOwner, SpendRecord)) -> Self {
        Self { owner, spend, from_parts: (0, 0) }
    }
}

impl SpendAddition {
    /// Returns the operations that add the spending in the store. `incarnation` is 0 for a single process.
    fn operations(&self, incarnation: u32) -> Transaction {
        let add = Transaction::new().add_amounts(
            StoreTable::Spend,
            spend_key(&self.owner),
            RowAddition::Spend(self.spend),
        );
        let parts = [(BudgetPeriod::Day, self.from_parts.0), (BudgetPeriod::Month, self.from_parts.1)];
        let parts = parts.into_iter().filter(|(_, amount)| *amount != 0);
        parts.fold(add, |batch, (period, amount)| {
            let pool = BudgetPoolId { owner: self.owner.clone(), period };
            batch.append_operations(SharedFleet::budget_spending_operations(incarnation, &pool, amount))
        })
    }
}

/// Access to the spending records in a store.
#[derive(Clone, Debug)]
pub struct SpendStore {
    store: Arc<dyn Store>,
    /// Number of the fleet member; 0 for a process that is alone.
    incarnation: u32,
    number_key: Arc<[u8]>,
    /// Additions that [`SpendStore::add`] has accepted but that may not be in the store yet. The lock is held while
    /// they are applied.
    pending: Arc<Mutex<PendingAdditions>>,
}

#[derive(Debug, Default)]
struct PendingAdditions {
    /// Number of the last applied addition; `None` until it has been read. No other `SpendStore` writes the row of
    /// this number.
    last: Option<i64>,
    /// Number in the store before the first attempt to apply the first pending addition; `None` before that attempt.
    tried: Option<i64>,
    additions: VecDeque<Vec<SpendAddition>>,
}

impl SpendStore {
    /// Creates a view of the spending records in `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> SpendStore {
        SpendStore::with_incarnation(store, 0)
    }

    /// Creates a view for a member of a fleet. All members share the spending records; only the number of the last
    /// addition is stored for each incarnation. An `incarnation` of 0 means a process without a fleet.
    #[must_use]
    pub fn with_incarnation(store: Arc<dyn Store>, incarnation: u32) -> SpendStore {
        let number_key = match incarnation {
            0 => Arc::from(NUMBER_KEY),
            _ => [NUMBER_KEY, b"/", &incarnation.to_be_bytes()].concat().into(),
        };
        SpendStore { store, incarnation, number_key, pending: Arc::default() }
    }

    /// Returns the spending of several owners, in their order; `None` without a record.
    ///
    /// # Errors
    /// Same as [`Store::get`].
    pub fn get_many(&self, owners: &[SpendOwner]) -> Result<Vec<Option<SpendRecord>>, StoreError> {
        if owners.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<Vec<u8>> = owners.iter().map(spend_key).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let rows = self.store.get_many(StoreTable::Spend, &keys)?.into_iter();
        rows.map(|row| row.map(|row| SpendRecord::from_row(&row)).transpose()).collect()
    }

    /// Adds amounts to spending records, many in one commit. `Ok` means that the amounts are accepted: if the store
    /// could not write them, the next call of `add` or `flush` retries.
    ///
    /// # Errors
    /// Returns the error of an earlier addition that still cannot be applied; then nothing of this call is accepted.
    pub fn add(&self, spends: &[SpendAddition]) -> Result<(), StoreError> {
        let mut pending = self.pending.lock();
        self.apply_pending(&mut pending)?;
        pending.additions.extend(spends.chunks(MAX_ADDITIONS).map(<[_]>::to_vec));
        // An error is ignored here, because the amounts are retried by the next call, which returns the error if it
        // persists.
        let _ = self.apply_pending(&mut pending);
        Ok(())
    }

    /// Applies the accepted additions that may not be in the store yet.
    ///
    /// # Errors
    /// Same as [`Store::apply`]; the rest stays accepted.
    pub fn flush(&self) -> Result<(), StoreError> {
        self.apply_pending(&mut self.pending.lock())
    }

    fn apply_pending(&self, pending: &mut PendingAdditions) -> Result<(), StoreError> {
        let mut attempts = MAX_ATTEMPTS;
        while let Some(addition) = pending.additions.front() {
            let last = match pending.last.take() {
                Some(last) => last,
                None => parse_counter(self.store.get(StoreTable::Meta, &self.number_key)?.as_deref())?,
            };
            let mut applied = last;
            // A changed number in the store means that the earlier attempt was applied.
            if pending.tried.is_none_or(|before| before == last) {
                let is_first_try = pending.tried.replace(last).is_none();
                applied = last.wrapping_add(1);
                match self.store.apply(self.addition(last, applied, addition)) {
                    // A failed guard at the first attempt means that another process has written the same number row,
                    // so nothing of this attempt was applied.
                    Err(error @ StoreError::Guard { .. }) if is_first_try => {
                        pending.tried = None;
                        attempts = attempts.checked_sub(1).ok_or(error)?;
                        continue;
                    }
                    outcome => outcome?,
                }
            }
            (pending.last, pending.tried) = (Some(applied), None);
            pending.additions.pop_front();
        }
        Ok(())
    }

    /// Returns the operations that apply an addition, if the number in the store is `last`, and set this number to
    /// `applied`.
    fn addition(&self, last: i64, applied: i64, additions: &[SpendAddition]) -> Transaction {
        let (table, key) = (StoreTable::Meta, &*self.number_key);
        let numbered = match last {
            0 => Transaction::new().require_absent(table, key),
            _ => Transaction::new().require_value(table, key, counter_row(last)),
        };
        let numbered = numbered.put(table, key, counter_row(applied));
        // An evicted process no longer owns its parts of the budgets. So additions that use parts require that the
        // incarnation is alive.
        let has_parts = additions.iter().any(|addition| addition.from_parts != (0, 0));
        let numbered =
            if has_parts { numbered.append_operations(require_alive(self.incarnation)) } else { numbered };
        additions
            .iter()
            .fold(numbered, |batch, addition| batch.append_operations(addition.operations(self.incarnation)))
    }

    /// Passes every spending record to `each`.
    ///
    /// # Errors
    /// Same as [`Store::scan`].
    pub fn for_each(&self, mut each: impl FnMut(SpendOwner, SpendRecord)) -> Result<(), StoreError> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = self.store.scan(StoreTable::Spend, b"", after.as_deref(), crate::MAX_PAGE_ROWS)?;
            for row in &page.rows {
                let id = String::from_utf8_lossy(row.key.get(1..).unwrap_or_default()).into_owned();
                let spender = if row.key.first() == Some(&b'k') {
                    SpendOwner::Key(id)
                } else {
                    SpendOwner::Account(id)
                };
                each(spender, SpendRecord::from_row(&row.value)?);
            }
            after = page.rows.into_iter().last().map(|row| row.key);
            if !page.more {
                return Ok(());
            }
        }
    }
}

/// Returns the key of an owner's spending record.
pub(crate) fn spend_key(spender: &SpendOwner) -> Vec<u8> {
    match spender {
        SpendOwner::Key(id) => [b"k", id.as_bytes()].concat(),
        SpendOwner::Account(id) => [b"a", id.as_bytes()].concat(),
    }
}
