//! Commit to the ledger: entries and the rows that belong to them, as one guarded transaction.

use super::key::{block_key, entry_name_key, journal_position_key, month_length_key, tip_key};
use super::{BalanceRecord, CounterDelta, JournalPosition, LedgerStore, LedgerTip, MonthLength, compression};
use crate::audit::ChangeDescription;
use crate::fleet::{PoolAmount, SharedFleet};
use crate::{MAX_KEY_BYTES, MAX_VALUE_BYTES, RowAddition, StoreError, StoreTable, Transaction};

/// Block of entries that are added together, all in one month.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryBlock {
    /// Month of the entries, such as `2026-11`.
    pub month: String,
    /// Number of the last entry of the block.
    pub last: u64,
    /// Text of the block, a line for each entry.
    pub text: Vec<u8>,
}

/// Row of another module that is written with a commit, such as the state of the work that is charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowWrite {
    /// Table of the row.
    pub table: StoreTable,
    /// Key of the row.
    pub key: Vec<u8>,
    /// New value of the row; `None` removes the row.
    pub value: Option<Vec<u8>>,
}

impl RowWrite {
    /// Returns the size of the row in bytes, which counts against
    /// [`MAX_EXTRA_ROWS_BYTES`](super::MAX_EXTRA_ROWS_BYTES).
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Vec::len)
    }

    /// Returns true if the row is within the store's size limits.
    #[must_use]
    pub fn is_within_limits(&self) -> bool {
        self.key.len() <= MAX_KEY_BYTES
            && self.value.as_ref().is_none_or(|value| value.len() <= MAX_VALUE_BYTES)
    }
}

/// Required state of a row of another module, checked in the transaction of a commit. It proves that the writer still
/// owns the work that the commit charges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowFence {
    /// Table of the row.
    pub table: StoreTable,
    /// Key of the row.
    pub key: Vec<u8>,
    /// Required value of the row; `None` if the row must not exist.
    pub value: Option<Vec<u8>>,
}

/// Commit to the ledger. A commit without blocks does not change the tip: `previous_tip` and `new_tip` are the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerCommit {
    /// Required tip of the ledger before the commit; `None` before the first commit.
    pub previous_tip: Option<LedgerTip>,
    /// Tip of the ledger after the commit.
    pub new_tip: LedgerTip,
    /// Blocks of new entries, in the order in which they are appended to the ledger.
    pub blocks: Vec<EntryBlock>,
    /// Amounts to add to balances, by account; empty if the commit has no blocks. A repeated commit does not add the
    /// amounts twice, because blocks change the tip, and the commit requires the previous tip.
    pub balance_changes: Vec<(String, BalanceRecord)>,
    /// Names used by the entries, with the number of each entry, see [`LedgerStore::entry_number_by_name`]. The
    /// commit fails if a name is already in use.
    pub names: Vec<(String, u64)>,
    /// Keys and new values of the changed usage rollups. Only for a process that writes alone.
    pub rollups: Vec<(Vec<u8>, Vec<u8>)>,
    /// Keys of the changed usage rollups, and the changes that are added to them. Only for a member of a fleet.
    pub rollup_changes: Vec<(Vec<u8>, Vec<u8>)>,
    /// Amounts that the entries take from the writer's parts of pools; only for a member of a fleet.
    pub spent: Vec<PoolAmount>,
    /// Amounts that the entries add to pools; only for a member of a fleet.
    pub credited: Vec<PoolAmount>,
    /// Rows that must have a given state; otherwise the commit fails.
    pub fences: Vec<RowFence>,
    /// Entries of the audit log that are written with the commit. Only a commit with blocks may have some.
    pub audited: Vec<ChangeDescription>,
    /// Further rows written with the commit, in order.
    pub extra_rows: Vec<RowWrite>,
    /// Position of the writer's journal after the commit; `None` leaves the stored position unchanged. Only a commit
    /// with blocks may have one.
    pub journal: Option<JournalPosition>,
    /// Changes of counters. A commit without blocks may only have some if it also changes a row of one of its fences:
    /// the changed row shows that the counters were already added.
    pub counters: Vec<CounterDelta>,
}

/// Result of a commit that is durable in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendOutcome {
    /// True if the replica has the commit too, or if there is no replica. Otherwise the next commit or the next opening
    /// of the ledger adds the commit to the replica.
    pub replicated: bool,
}

/// Reason for which the store refused a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitConflict {
    /// The writer no longer counts as alive, or another writer has claimed its chain: this writer can never commit
    /// again.
    Fenced,
    /// Names of the commit that entries of other commits already use, with the numbers of those entries.
    NamesInUse(Vec<(String, u64)>),
    /// Rows that do not have the required state, by their indexes in [`LedgerCommit::fences`].
    FencesViolated(Vec<usize>),
    /// The cause of the refusal no longer exists, so the commit may be retried.
    Resolved,
}

impl LedgerStore {
    /// Returns the reason for which the store refused a commit with a failed guard. Nothing of the commit was written.
    ///
    /// # Errors
    /// Same as [`Store::get`](crate::Store::get).
    pub fn commit_conflict(&self, commit: &LedgerCommit) -> Result<CommitConflict, StoreError> {
        if let Some(claim) = &self.claim
            && !claim.is_valid(&*self.store)?
        {
            return Ok(CommitConflict::Fenced);
        }
        let mut used = Vec::new();
        for (name, _) in &commit.names {
            if let Some(number) = self.entry_number_by_name(name)? {
                used.push((name.clone(), number));
            }
        }
        if !used.is_empty() {
            return Ok(CommitConflict::NamesInUse(used));
        }
        let mut fallen = Vec::new();
        for (index, fence) in commit.fences.iter().enumerate() {
            if self.store.get(fence.table, &fence.key)? != fence.value {
                fallen.push(index);
            }
        }
        Ok(if fallen.is_empty() { CommitConflict::Resolved } else { CommitConflict::FencesViolated(fallen) })
    }

    /// Returns the new length of each month that the blocks belong to, in the order of the blocks.
    pub(super) fn month_lengths_after(&self, blocks: &[EntryBlock]) -> Result<Vec<MonthLength>, StoreError> {
        let mut lengths: Vec<MonthLength> = Vec::new();
        for block in blocks {
            let bytes = block.text.len() as u64;
            match lengths.iter_mut().find(|length| length.month == block.month) {
                Some(length) => length.bytes += bytes,
                None => {
                    let before = self.month_byte_len(&block.month)?;
                    lengths.push(MonthLength { month: block.month.clone(), bytes: before + bytes });
                }
            }
        }
        Ok(lengths)
    }

    /// Returns the operations of a commit; `lengths` are the lengths of the months after the commit.
    pub(super) fn to_transaction(
        &self,
        group: &LedgerCommit,
        lengths: &[MonthLength],
    ) -> Result<Transaction, StoreError> {
        if group.blocks.is_empty() && !group.balance_changes.is_empty() {
            return Err(StoreError::corrupt("a commit changes balances without an entry"));
        }
        // The first guard requires the previous tip. If the guard holds, no earlier attempt of this commit was
        // applied.
        let mut batch = match &group.previous_tip {
            None => Transaction::new().require_absent(StoreTable::Meta, tip_key(self.chain)),
            Some(tip) => {
                Transaction::new().require_value(StoreTable::Meta, tip_key(self.chain), tip.to_row()?)
            }
        };
        if let Some(claim) = &self.claim {
            batch = claim.add_guards(batch);
        }
        if !group.blocks.is_empty() {
            batch = batch.put(StoreTable::Meta, tip_key(self.chain), group.new_tip.to_row()?);
            if let Some(position) = group.journal {
                batch = batch.put(StoreTable::Meta, journal_position_key(self.chain), position.to_row());
            }
        }
        for fence in &group.fences {
            batch = match &fence.value {
                Some(value) => batch.require_value(fence.table, fence.key.as_slice(), value.as_slice()),
                None => batch.require_absent(fence.table, fence.key.as_slice()),
            };
        }
        batch = self.add_blocks(batch, &group.blocks, lengths)?;
        for (account, change) in &group.balance_changes {
            batch =
                batch.add_amounts(StoreTable::Balances, account.as_bytes(), RowAddition::Balance(*change));
        }
        batch = self.add_pools(batch, group);
        for (name, number) in &group.names {
            let key = entry_name_key(name);
            batch = batch.require_absent(StoreTable::Idempotency, key.as_slice()).put(
                StoreTable::Idempotency,
                key,
                number.to_le_bytes(),
            );
        }
        for (key, value) in &group.rollups {
            batch = batch.put(StoreTable::Usage, key.as_slice(), value.as_slice());
        }
        for (key, change) in &group.rollup_changes {
            batch = batch.add_amounts(StoreTable::Usage, key.as_slice(), RowAddition::Usage(change.clone()));
        }
        add_rows(batch, group)
    }

    fn add_blocks(
        &self,
        mut batch: Transaction,
        blocks: &[EntryBlock],
        lengths: &[MonthLength],
    ) -> Result<Transaction, StoreError> {
        for block in blocks {
            let text = compression::compress(&block.text);
            batch = batch.put(StoreTable::Ledger, block_key(&block.month, block.last)?, text);
        }
        for MonthLength { month, bytes } in lengths {
            batch = batch.put(StoreTable::Meta, month_length_key(self.chain, month), bytes.to_le_bytes());
        }
        Ok(batch)
    }

    fn add_pools(&self, mut batch: Transaction, group: &LedgerCommit) -> Transaction {
        let Some(claim) = &self.claim else { return batch };
        for spent in &group.spent {
            batch = batch.append_operations(SharedFleet::charge_part_operations(claim.incarnation(), spent));
        }
        for credit in &group.credited {
            batch = batch.append_operations(SharedFleet::credit_pool_operations(credit));
        }
        batch
    }
}

/// Adds the further rows and the counters of a commit.
fn add_rows(mut batch: Transaction, group: &LedgerCommit) -> Result<Transaction, StoreError> {
    if group.blocks.is_empty() && !group.counters.is_empty() && group.fenced_row_write().is_none() {
        return Err(StoreError::corrupt("a commit changes counters without an entry or a fence"));
    }
    for row in &group.extra_rows {
        batch = match &row.value {
            Some(value) => batch.put(row.table, row.key.as_slice(), value.as_slice()),
            None => batch.delete(row.table, row.key.as_slice()),
        };
    }
    for change in &group.counters {
        batch = batch.add_to_counter(change.table, change.key.as_slice(), change.delta, None, None);
    }
    Ok(batch)
}
