//! Group of entries that the writer builds, and its size limits: the bytes and rows of an operation are estimated
//! before the operation is added.

use super::fenced_outcomes::CommitConditions;
use super::pools::PoolChanges;
use super::write_op::{AdminAdjustment, BatchOutcomes, LedgerAction, WriteOp};
use penstock_ledger::{EntryKind, MAX_LINE_BYTES};
use penstock_storage::audit::ChangeDescription;
use penstock_storage::fleet::PoolAmount;
use penstock_storage::ledger::{
    BalanceRecord, EntryBlock, MAX_BLOCK_BYTES, MAX_COMMIT_BYTES, MAX_COMMIT_ROWS, MAX_EXTRA_ROWS_BYTES,
    RowWrite,
};
use penstock_usage::ChargeDimensions;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Number of blocks of a group that get the preferred size; any further blocks get the maximum size.
pub(super) const MAX_SMALL_BLOCKS: usize = 100;
/// Maximum bytes of an entry without its names.
pub(super) const ENTRY_OVERHEAD_BYTES: usize = 1_280;

/// Maximum number of usage rollups that one entry changes: one of its account and one of the whole gateway.
const ROLLUPS_PER_ENTRY: usize = 2;

/// Number of rows of the audit log for one adjustment: the entry and the head.
const AUDIT_ROWS: usize = 2;

/// Maximum number of pools that an operation on one account changes: one for each wallet.
const POOLS_PER_ACCOUNT: usize = 2;

/// Adjustment with its entry in the group.
pub(super) struct DraftedAdjustment {
    pub(super) adjustment: AdminAdjustment,
    /// Number of the ledger entry of the adjustment.
    pub(super) seq: u64,
    /// Work of the charge that the adjustment corrects; `None` for a grant.
    pub(super) corrected: Option<ChargeDimensions>,
}

impl DraftedAdjustment {
    /// Returns the audit-log entry of the adjustment, with the number of its ledger entry; `None` if the adjustment is
    /// not audited.
    pub(super) fn audit_entry(&self) -> Option<ChangeDescription> {
        self.adjustment.audit_entry(self.seq)
    }
}

/// Group of ledger entries that the writer builds for its next commit.
#[derive(Default)]
pub(super) struct GroupBuilder {
    pub(super) blocks: Vec<EntryBlock>,
    pub(super) bytes: usize,
    /// Change of each balance.
    pub(super) balance_changes: BTreeMap<String, BalanceRecord>,
    pub(super) names: Vec<(String, u64)>,
    /// Changes of the fleet's pools; none for a process that writes alone.
    pub(super) pools: PoolChanges,
    pub(super) adjustments: Vec<DraftedAdjustment>,
    /// Adjustments that repeat an adjustment of this group, each with the number of that adjustment's entry.
    pub(super) duplicates: Vec<(AdminAdjustment, u64)>,
    pub(super) rows: Vec<RowWrite>,
    /// Number of rows of each operation, in order.
    pub(super) rows_per_op: Vec<usize>,
    pub(super) row_bytes: usize,
    /// Number of changed usage rollups.
    pub(super) rollups: usize,
    /// Conditions and counters of the group.
    pub(super) fenced: CommitConditions,
    /// Number of the last action in the journal; 0 for none.
    pub(super) journal_number: u64,
    pub(super) queued_bytes: u64,
    pub(super) exposed_eur: i64,
}

impl GroupBuilder {
    /// Adds the amount of an entry to the fleet's changes of this group: a charge reduces this process's lease of the
    /// account's wallet, and a grant or a correction changes the fleet's pool of that wallet.
    pub(super) fn add_pool_change(&mut self, account: &str, kind: &EntryKind) {
        self.pools.add_entry(account, kind);
    }

    /// Removes and returns two lists of amounts: those that the group spends from the leases of this process, and
    /// those that it adds to pools.
    pub(super) fn take_pool_amounts(&mut self) -> (Vec<PoolAmount>, Vec<PoolAmount>) {
        std::mem::take(&mut self.pools).into_spent_and_credited()
    }

    /// Iterates over all adjustments, also those that repeat another.
    pub(super) fn adjustments_mut(&mut self) -> impl Iterator<Item = &mut AdminAdjustment> {
        let drafted = self.adjustments.iter_mut().map(|drafted| &mut drafted.adjustment);
        drafted.chain(self.duplicates.iter_mut().map(|(adjustment, _)| adjustment))
    }

    /// Returns true if the whole operation fits into the group within the limits of one commit. Operations are never
    /// split.
    pub(super) fn can_fit(&self, op: &WriteOp) -> bool {
        let (bytes, rows, row_bytes) = max_size(op);
        let own = self.blocks.len()
            + self.balance_changes.len()
            + self.names.len()
            + self.rows.len()
            + self.rollups
            + AUDIT_ROWS * self.adjustments.len()
            + self.pools.max_operations();
        // A block may be smaller than its limit by up to one line of maximum size, and the last block may be
        // incomplete.
        let blocks = MAX_SMALL_BLOCKS + bytes / (MAX_BLOCK_BYTES - MAX_LINE_BYTES) + 2;
        self.bytes + bytes <= MAX_COMMIT_BYTES
            && own + rows + blocks <= MAX_COMMIT_ROWS
            && self.row_bytes + row_bytes <= MAX_EXTRA_ROWS_BYTES
    }
}

/// Returns the upper limits of an operation: bytes of entries, rows without blocks, and bytes of additional rows.
fn max_size(op: &WriteOp) -> (usize, usize, usize) {
    match op {
        WriteOp::Action(action) => (
            max_action_bytes(action)
                + action.terms.as_ref().map_or(0, |terms| max_line_bytes(terms.text.len())),
            2 + ROLLUPS_PER_ENTRY + POOLS_PER_ACCOUNT,
            0,
        ),
        WriteOp::Adjustment(order) => {
            let rows = 1 + order.names.len() + ROLLUPS_PER_ENTRY + POOLS_PER_ACCOUNT + AUDIT_ROWS;
            (MAX_LINE_BYTES, rows, order.max_audit_bytes())
        }
        WriteOp::Outcomes(lines) => max_outcomes_size(lines),
        // Outcomes with conditions become a separate group, so only their own size is relevant.
        WriteOp::Fenced(lines) => max_outcomes_size(&lines.outcomes),
    }
}

/// Returns the upper limits of the outcomes of batch lines, in the form of [`max_size`].
fn max_outcomes_size(lines: &BatchOutcomes) -> (usize, usize, usize) {
    let accounts: HashSet<&str> = lines.actions.iter().map(|action| &*action.account).collect();
    let terms = lines.actions.iter().filter_map(|action| action.terms.as_ref());
    let terms: HashMap<&str, usize> =
        terms.map(|terms| (&*terms.id, max_line_bytes(terms.text.len()))).collect();
    let bytes = lines.actions.iter().map(max_action_bytes).sum::<usize>() + terms.values().sum::<usize>();
    let row_bytes = lines.rows.iter().map(RowWrite::byte_len).sum();
    let rollups = ROLLUPS_PER_ENTRY * lines.actions.len();
    let accounts = (1 + POOLS_PER_ACCOUNT) * accounts.len();
    (bytes, lines.rows.len() + accounts + terms.len() + rollups, row_bytes)
}

/// Returns the upper limit of an action in bytes, without the terms that may precede it.
fn max_action_bytes(action: &LedgerAction) -> usize {
    let names = match &action.act {
        EntryKind::Settle { request, key, sale, .. } => {
            request.len() + key.len() + sale.model.len() + sale.provider.len() + sale.terms.len()
        }
        EntryKind::Reserve { request, key, .. } | EntryKind::Void { request, key, .. } => {
            request.len() + key.len()
        }
        EntryKind::Grant { .. } | EntryKind::Correct { .. } | EntryKind::Terms { .. } => MAX_LINE_BYTES,
    };
    max_line_bytes(action.account.len() + names)
}

/// Returns the maximum size of an entry in bytes, if its names have `names` bytes in total: in JSON, each of these
/// may take six bytes.
const fn max_line_bytes(names: usize) -> usize {
    let bytes = ENTRY_OVERHEAD_BYTES + 6 * names;
    if bytes < MAX_LINE_BYTES { bytes } else { MAX_LINE_BYTES }
}
