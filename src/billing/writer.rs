//! Writer thread of the ledger: operations become entries, entries become blocks, and a group of blocks is one commit
//! ([`commit`]). If the store rejects a group, the group is retried with the same bytes until it is known to be
//! committed, so that no entry is written twice or out of order. A group is changed in three cases only: the store will
//! never accept some of its rows (`extra_rows`), another gateway has used some of its names meanwhile, or one of its
//! conditions is not met ([`redraft`]). Each of the last two proves that the group was not committed.

mod commit;
mod fenced;
mod redraft;
mod source;

use super::entry_effects::{apply_balance_change, balance_change, replacement_void};
use super::group_builder::{DraftedAdjustment, ENTRY_OVERHEAD_BYTES, GroupBuilder, MAX_SMALL_BLOCKS};
use super::replica_lag::ReplicaLagLog;
use super::report::ReportError;
use super::rerate::load_terms_text;
use super::rollups::cache::RollupCache;
use super::rollups::rebuild::work_of_corrected_charge;
use super::write_op::{AdjustmentError, AdminAdjustment, LedgerAction, WriteOp};
use super::write_queue::{DrainedOps, WriteQueue};
use penstock_ledger::{EntryKind, HashChain, LedgerEntry, MAX_LINE_BYTES, OpenReserves, UtcMonth};
use penstock_storage::ledger::{
    BalanceRecord, EntryBlock, LedgerStore, LedgerTip, MAX_BLOCK_BYTES, RowWrite, TARGET_BLOCK_BYTES,
};
use penstock_usage::ChargeDimensions;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::thread::JoinHandle;

pub(super) use source::JournaledOps;

/// Maximum number of operations per read of the queue.
const MAX_OPS: usize = 4_096;

/// State of the ledger from which a writer continues.
pub(super) struct WriterStart {
    pub(super) tip: Option<LedgerTip>,
    pub(super) balances: Vec<(String, BalanceRecord)>,
    pub(super) open: OpenReserves,
    /// Operations of the queue as the journal thread passes them on; `None` without a journal.
    pub(super) journaled: Option<JournaledOps>,
}

/// Starts the writer thread of the ledger. Returns a sentence for the operator if the thread cannot be started.
pub(super) fn start_writer(
    store: Arc<LedgerStore>,
    queue: Arc<WriteQueue>,
    start: WriterStart,
) -> Result<JoinHandle<()>, String> {
    let WriterStart { tip, balances, open, journaled } = start;
    let writer = LedgerWriter {
        chain: chain_end(&store, tip),
        store,
        queue,
        journaled,
        tip,
        at: tip.map_or(0, |tip| tip.at),
        month: (None, String::new()),
        balances: balances.into_iter().collect(),
        open,
        known_terms: HashSet::new(),
        draft: GroupBuilder::default(),
        lag_log: ReplicaLagLog::default(),
        rollups: RollupCache::default(),
        is_fence_lost: false,
    };
    std::thread::Builder::new()
        .name("ledger".to_owned())
        .spawn(move || writer.run())
        .map_err(|error| format!("The ledger's thread cannot be started: {error}."))
}

/// Returns the end of the chain that a store writes.
fn chain_end(store: &LedgerStore, tip: Option<LedgerTip>) -> HashChain {
    tip.map_or_else(
        || HashChain::at_chain_start(store.chain()),
        |tip| HashChain { seq: tip.seq, hash: tip.hash },
    )
}

struct LedgerWriter {
    store: Arc<LedgerStore>,
    queue: Arc<WriteQueue>,
    /// Source of the operations for a member with a journal; `None` without a journal: they come from the queue.
    journaled: Option<JournaledOps>,
    chain: HashChain,
    /// Tip (last entry) of the ledger in the store; `None` before the first commit.
    tip: Option<LedgerTip>,
    at: u64,
    /// Month of the last entry, and the name of the month; `None` before the first entry.
    month: (Option<UtcMonth>, String),
    balances: HashMap<String, BalanceRecord, ahash::RandomState>,
    open: OpenReserves,
    /// Ids of the pricing terms that the ledger already contains.
    known_terms: HashSet<Arc<str>>,
    draft: GroupBuilder,
    lag_log: ReplicaLagLog,
    rollups: RollupCache,
    /// True if the charges of the last group were voided because of a fence.
    is_fence_lost: bool,
}

impl LedgerWriter {
    fn run(mut self) {
        self.write_groups();
        // Files that are behind the store, such as after a full disk, are completed while the store is open.
        self.store.sync_replica();
        self.queue.mark_writer_ended();
    }

    fn write_groups(&mut self) {
        while let Some(DrainedOps { ops, last, is_complete: whole }) = source::collect_operations(
            &self.queue,
            self.journaled.as_ref(),
            self.store.time_until_replica_sync(),
        ) {
            if ops.is_empty() && self.draft.queued_bytes == 0 {
                // No operation arrived for a while, so the replica is synced or repaired now.
                let is_current = self.store.sync_replica();
                self.lag_log.log_change(is_current, &self.store);
                self.queue.set_replica_current(is_current);
                continue;
            }
            for op in ops {
                if !self.add_operation_to_draft(op) {
                    return;
                }
            }
            if whole {
                if !self.commit() {
                    return;
                }
                self.queue.set_last_written_number(last);
            }
        }
    }

    fn add_op(&mut self, op: WriteOp) {
        match op {
            WriteOp::Action(action) => self.add_action(action),
            WriteOp::Outcomes(lines) => {
                lines.actions.into_iter().for_each(|action| self.add_action(action));
                self.draft.row_bytes += lines.rows.iter().map(RowWrite::byte_len).sum::<usize>();
                self.draft.rows_per_op.push(lines.rows.len());
                self.draft.rows.extend(lines.rows);
            }
            WriteOp::Adjustment(adjustment) => self.add_adjustment(*adjustment),
            // Outcomes with conditions become a separate group.
            WriteOp::Fenced(_) => {}
        }
    }

    fn add_action(&mut self, action: LedgerAction) {
        let LedgerAction { at, account, act, terms, exposed_eur: exposed, number } = action;
        self.draft.journal_number = self.draft.journal_number.max(number);
        if let Some(terms) = &terms {
            self.rollups.cache_terms_location(&terms.id, &terms.text);
        }
        if let Some(terms) = terms.filter(|terms| !self.known_terms.contains(&terms.id)) {
            self.add_terms(at, &terms.id, &terms.text);
        }
        self.draft.exposed_eur = self.draft.exposed_eur.saturating_add(exposed);
        self.append_action(at, &account, act);
    }

    /// Appends the entry of a request, or a void in place of a charge that cannot be recorded.
    fn append_action(&mut self, at: u64, account: &str, act: EntryKind) {
        let end = replacement_void(&act, "unwritable");
        if self.append_entry(at, account, act, None).is_none() {
            tracing::error!(name: "ledger_entry_lost", account);
            // The void ends the reservation on the disk, so that the next start does not void it again.
            if let Some(end) = end {
                self.append_entry(at, account, end, None);
            }
        }
    }

    /// Records terms before the first charge that refers to them.
    fn add_terms(&mut self, at: u64, id: &Arc<str>, text: &Arc<str>) {
        let name = format!("terms {id}");
        let known = self.store.entry_number_by_name(&name);
        if matches!(known, Ok(Some(_))) {
            self.known_terms.insert(id.clone());
            return;
        }
        let act = EntryKind::Terms { id: id.clone(), terms: text.clone() };
        if let Some(seq) = self.append_entry(at, "", act, None) {
            // A name that cannot be looked up may be in use already, and would then make the commit fail. So the entry
            // is written without the name. The next start may record the same terms again, which does no harm.
            if known.is_ok() {
                self.draft.names.push((name, seq));
            }
            self.known_terms.insert(id.clone());
        }
    }

    fn add_adjustment(&mut self, adjustment: AdminAdjustment) {
        let mut own = self.draft.names.iter().filter(|(known, _)| adjustment.names.contains(known));
        // The caller of a repeated adjustment gets its answer once the first adjustment is durable.
        if let Some(seq) = own.next().map(|(_, seq)| *seq) {
            self.draft.duplicates.push((adjustment, seq));
            return;
        }
        let used = adjustment.names.iter().find_map(|name| self.store.entry_number_by_name(name).transpose());
        match used {
            Some(Ok(seq)) => {
                adjustment.reply.send(Err(AdjustmentError::Duplicate(seq))).ok();
            }
            Some(Err(_)) => {
                adjustment.reply.send(Err(AdjustmentError::StoreFailing)).ok();
            }
            None => self.append_adjustment(adjustment),
        }
    }

    fn append_adjustment(&mut self, adjustment: AdminAdjustment) {
        // An unreadable audit log must not keep charges from being written.
        if adjustment.audit.is_some() && !self.store.is_audit_log_readable() {
            adjustment.reply.send(Err(AdjustmentError::StoreFailing)).ok();
            return;
        }
        let Ok(corrected) = self.find_corrected_work(&adjustment.act) else {
            adjustment.reply.send(Err(AdjustmentError::StoreFailing)).ok();
            return;
        };
        self.draft_adjustment(adjustment, corrected);
    }

    /// Adds an adjustment to the draft, with the work of the charge that it corrects, and returns the number of its
    /// entry; `None` if the entry is invalid, which the reply then states.
    fn draft_adjustment(
        &mut self,
        adjustment: AdminAdjustment,
        corrected: Option<ChargeDimensions>,
    ) -> Option<u64> {
        let (at, act) = (adjustment.at, adjustment.act.clone());
        let seq = self.append_entry(at, &adjustment.balance.name, act, corrected.as_ref());
        match seq {
            Some(seq) => {
                self.draft.names.extend(adjustment.names.iter().map(|name| (name.clone(), seq)));
                self.draft.row_bytes += adjustment.max_audit_bytes();
                self.draft.adjustments.push(DraftedAdjustment { adjustment, seq, corrected });
            }
            None => {
                adjustment.reply.send(Err(AdjustmentError::InvalidAmount)).ok();
            }
        }
        seq
    }

    /// Finds the work of the charge that an adjustment corrects, so that the correction counts for the same model;
    /// `None` if it corrects no charge.
    fn find_corrected_work(&mut self, act: &EntryKind) -> Result<Option<ChargeDimensions>, ReportError> {
        let corrected = work_of_corrected_charge(&self.store, act)?;
        if let Some(work) = &corrected {
            let terms = load_terms_text(&self.store, &work.terms)?;
            self.rollups.cache_terms_location(&work.terms, &terms);
        }
        Ok(corrected)
    }

    /// Stores the balance of an account in memory, and its change in the draft.
    fn store_balance(&mut self, account: &str, after: BalanceRecord, change: BalanceRecord) {
        // If the account is known already, its name is not copied.
        match self.balances.get_mut(account) {
            Some(known) => *known = after,
            None => {
                self.balances.insert(account.to_owned(), after);
            }
        }
        match self.draft.balance_changes.get_mut(account) {
            Some(known) => *known = known.saturating_add(change),
            None => {
                self.draft.balance_changes.insert(account.to_owned(), change);
            }
        }
    }

    /// Appends an entry to the draft and returns its number; `None` if the entry is invalid.
    fn append_entry(
        &mut self,
        at: u64,
        account: &str,
        act: EntryKind,
        corrected: Option<&ChargeDimensions>,
    ) -> Option<u64> {
        let entry =
            LedgerEntry { seq: self.chain.seq + 1, at: at.max(self.at), account: account.into(), kind: act };
        let before = self.balances.get(account).copied().unwrap_or_default();
        let changed = match balance_change(&entry.kind)? {
            Some(change) => Some((apply_balance_change(before, change)?, change)),
            None => None,
        };
        if self.month.0 != Some(UtcMonth::from_unix(entry.at)) {
            let month = UtcMonth::from_unix(entry.at);
            self.month = (Some(month), month.to_string());
        }
        let month = &self.month.1;
        let long = if self.draft.blocks.len() < MAX_SMALL_BLOCKS {
            TARGET_BLOCK_BYTES
        } else {
            MAX_BLOCK_BYTES - MAX_LINE_BYTES
        };
        let last = self.draft.blocks.last();
        let fits = last.is_some_and(|block| block.month == *month && block.text.len() < long);
        if !fits {
            self.draft.blocks.push(EntryBlock {
                month: month.clone(),
                last: entry.seq,
                text: Vec::with_capacity(TARGET_BLOCK_BYTES + ENTRY_OVERHEAD_BYTES),
            });
        }
        let block = self.draft.blocks.last_mut()?;
        let length = block.text.len();
        if self.chain.append(&entry, &mut block.text).is_err() {
            if length == 0 {
                self.draft.blocks.pop();
            }
            return None;
        }
        block.last = entry.seq;
        self.draft.bytes += block.text.len() - length;
        self.at = entry.at;
        self.open.apply_entry(&entry);
        self.rollups.add_entry(&entry, corrected);
        self.draft.rollups = self.rollups.changed_row_count();
        if let Some((after, change)) = changed {
            self.store_balance(account, after, change);
            if self.store.claim().is_some() {
                self.draft.add_pool_change(account, &entry.kind);
            }
        }
        Some(entry.seq)
    }
}
