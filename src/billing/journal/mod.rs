//! Journal of a fleet member: charges that the database does not have yet are also in a file of this machine, so that a
//! process that is killed during an outage of the database loses none of them.
//!
//! ```text
//! request ─▶ queue ─▶ journal thread ─▶ writer ─▶ database, with the number of the last operation
//!                          └─▶ file, synced once for each group of `ledger.window`
//! ```
//! The actions of requests get ascending numbers. Each commit to the database that contains such actions writes the
//! number of the last one in the same transaction. So the next process that uses the folder replays exactly the
//! operations of the file that the database lacks, see [`replay`]. A gateway without a fleet has no journal and no
//! journal thread.

mod frame_group;
mod record;
mod recorded;
pub(super) mod replay;
pub(super) mod start;

use super::write_op::{LedgerAction, WriteOp};
use super::write_queue::{DrainedOps, WriteQueue};
use frame_group::FrameGroup;
use penstock_storage::StoreError;
use penstock_storage::ledger::journal::{LedgerJournal, push_frame};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;
use tracing::Level;

/// Maximum number of operations per read of the queue.
const MAX_OPS: usize = 4_096;
/// Size in bytes at which one call stops appending groups. It limits the work that is lost if the call fails.
const MAX_APPEND_BYTES: usize = 1024 * 1024;
/// Pause before groups that could not be appended are appended again, if no operation arrives earlier.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Additional size of the journal in bytes, beyond the operations that wait for the database: both files of the
/// journal may be full of committed records.
const COMMITTED_BYTES: u64 = 32 * 1024 * 1024;
/// Factor by which the records of operations may be larger than the size estimate of these operations.
const BYTES_PER_ESTIMATE: u64 = 2;

/// State of a journal that other threads read.
#[derive(Debug)]
pub(super) struct JournalState {
    /// Random number that identifies the journal, in its files and in the store.
    pub(super) generation: u64,
    /// Number of the last operation that the database has.
    committed: AtomicU64,
    /// Ticket up to which operations are in the synced file, or in the database after the file rejected them.
    journaled: watch::Sender<u64>,
    /// Total size of the journal's files, in bytes.
    bytes: AtomicU64,
    /// Maximum total size of the journal's files, in bytes.
    limit: AtomicU64,
    is_failing: AtomicBool,
    /// Number of charges that this process has replayed.
    pub(super) replayed: AtomicU64,
}

/// State of a journal for metrics and status pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalSnapshot {
    /// Total size of the journal's files, in bytes.
    pub bytes: u64,
    /// True if the last write of the journal failed, or if a group of charges is missing in it: until the database has
    /// these charges, they are in memory only.
    pub is_failing: bool,
    /// Number of charges that were replayed at the start.
    pub replayed: u64,
}

impl JournalState {
    pub(super) fn new(generation: u64, committed: u64) -> Arc<Self> {
        Arc::new(Self {
            generation,
            committed: AtomicU64::new(committed),
            journaled: watch::Sender::new(0),
            bytes: AtomicU64::new(0),
            limit: AtomicU64::new(u64::MAX),
            is_failing: AtomicBool::new(false),
            replayed: AtomicU64::new(0),
        })
    }

    /// Sets the maximum size of the journal's files from `backlog`, the maximum number of bytes that may wait for the
    /// database.
    pub(super) fn set_backlog_limit(&self, backlog: u64) {
        self.set_max_bytes(backlog.saturating_mul(BYTES_PER_ESTIMATE).saturating_add(COMMITTED_BYTES));
    }

    /// Sets the maximum total size of the journal's files, in bytes.
    pub(super) fn set_max_bytes(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Records that the database has the operations up to `number`.
    pub(super) fn set_committed_number(&self, number: u64) {
        self.committed.fetch_max(number, Ordering::AcqRel);
    }

    /// Returns true if the last write of the journal failed, or if a group of charges is missing in it.
    pub(super) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Acquire)
    }

    /// Waits until all actions of requests up to `ticket` are in the synced file or in the database.
    pub(super) async fn wait_journaled(&self, ticket: u64) {
        self.journaled.subscribe().wait_for(|reached| *reached >= ticket).await.ok();
    }

    /// Returns the state of the journal for metrics and status pages.
    pub(super) fn snapshot(&self) -> JournalSnapshot {
        JournalSnapshot {
            bytes: self.bytes.load(Ordering::Relaxed),
            is_failing: self.is_failing(),
            replayed: self.replayed.load(Ordering::Relaxed),
        }
    }
}

/// Thread that numbers operations, passes them on and writes them to the journal.
pub(super) struct JournalWriter {
    journal: LedgerJournal,
    state: Arc<JournalState>,
    queue: Arc<WriteQueue>,
    ops: Sender<DrainedOps>,
    /// Number of the last operation.
    number: u64,
    /// Group that is collected.
    group: FrameGroup,
    /// Groups that are not in the file, in order. The first ones could not be appended; they are appended together with
    /// the next group, unless the database has them by then.
    unwritten: VecDeque<FrameGroup>,
    /// Number of the last operation of the groups that were dropped, since too many bytes could not be written; 0 for
    /// none.
    dropped: u64,
    /// Ids of the terms that are in the current file.
    known_terms: HashSet<Arc<str>>,
}

impl JournalWriter {
    /// Creates the writer of an open journal, whose operations continue after `number`.
    pub(super) fn new(
        journal: LedgerJournal,
        state: Arc<JournalState>,
        queue: Arc<WriteQueue>,
        ops: Sender<DrainedOps>,
        number: u64,
    ) -> Self {
        state.bytes.store(journal.byte_len(), Ordering::Relaxed);
        Self {
            journal,
            state,
            queue,
            ops,
            number,
            group: FrameGroup::default(),
            unwritten: VecDeque::new(),
            dropped: 0,
            known_terms: HashSet::new(),
        }
    }

    /// Starts the thread. It ends when the queue is closed or handed over.
    ///
    /// # Errors
    /// Returns a sentence for the operator.
    pub(super) fn start(self) -> Result<JoinHandle<()>, String> {
        std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || self.run())
            .map_err(|error| format!("The thread of the ledger's journal cannot be started: {error}."))
    }

    fn run(mut self) {
        let (mut ticket, mut is_group_open) = (0, false);
        while let Some(mut piece) = self.queue.take_operations(MAX_OPS, self.patience()) {
            piece.ops.iter_mut().for_each(|op| self.encode(op));
            let is_retry = piece.ops.is_empty() && !is_group_open;
            (ticket, is_group_open) = (piece.last, !piece.is_complete);
            // The file does not wait for the database, and the database does not wait for the file. After the end of
            // the writer, operations are in the file only, for the next process that uses the folder.
            let is_taken = is_retry || self.ops.send(piece).is_ok();
            if !is_group_open || !is_taken {
                self.write(ticket);
            }
        }
        if !self.unwritten.is_empty() {
            self.write(ticket);
        }
    }

    /// Returns the longest wait for operations; `None` (no limit) if no group has to be appended again.
    fn patience(&self) -> Option<Duration> {
        (!self.unwritten.is_empty()).then_some(RETRY_PAUSE)
    }

    /// Numbers the action of a request and adds it to the group. Other operations get no number and are not written to
    /// the journal: grants, corrections and batch lines are repeated by their callers.
    fn encode(&mut self, op: &mut WriteOp) {
        let WriteOp::Action(action) = op else { return };
        self.number += 1;
        action.number = self.number;
        let Some(bytes) = record::encode_action(action) else {
            tracing::error!(name: "ledger_entry_lost", account = &*action.account);
            return;
        };
        self.group.add(self.number, &bytes, action.terms.as_ref());
    }

    /// Writes the groups that could not be written before, and then the current group, whose last operation is
    /// `ticket`.
    fn write(&mut self, ticket: u64) {
        let committed = self.state.committed.load(Ordering::Acquire);
        self.unwritten.retain(|group| group.last > committed);
        let group = std::mem::take(&mut self.group);
        if !group.frames.is_empty() {
            self.unwritten.push_back(group);
        }
        let has_groups = !self.unwritten.is_empty();
        while !self.unwritten.is_empty() {
            if let Err(error) = self.append(committed) {
                self.drop_excess();
                if !self.state.is_failing.swap(true, Ordering::AcqRel) {
                    tracing::error!(name: "ledger_journal_failed", why = %error);
                }
                return;
            }
        }
        // The file lacks the dropped groups, so the journal stays incomplete until the database has them.
        if self.dropped > committed {
            return;
        }
        #[cfg(feature = "inject")]
        fail::fail_point!("journal_synced", has_groups, |_| std::process::abort());
        self.state.journaled.send_replace(ticket);
        if has_groups && self.state.is_failing.swap(false, Ordering::AcqRel) {
            tracing::event!(name: "ledger_journal_written", Level::INFO, {});
        }
    }

    /// Appends the first groups that are not in the file.
    fn append(&mut self, committed: u64) -> Result<(), StoreError> {
        // Each file of the journal must be readable without the other file, so a new file contains the terms again.
        if self.journal.starts_new_file(committed) {
            self.known_terms.clear();
        }
        let (mut count, mut last, mut actions) = (0, 0, Vec::new());
        let (mut frames, mut new_terms) = (Vec::new(), HashSet::new());
        push_frame(0, &record::encode_committed_number(committed), &mut frames);
        for group in &self.unwritten {
            if actions.len() >= MAX_APPEND_BYTES {
                break;
            }
            (count, last) = (count + 1, group.last);
            actions.extend_from_slice(&group.frames);
            for (id, terms) in group.terms.iter().filter(|(id, _)| !self.known_terms.contains(*id)) {
                if new_terms.insert(id.clone()) {
                    push_frame(0, &record::encode_terms(terms), &mut frames);
                }
            }
        }
        frames.append(&mut actions);
        let limit = self.state.limit.load(Ordering::Relaxed);
        self.journal.append(&frames, last, committed, limit)?;
        self.unwritten.drain(..count);
        self.known_terms.extend(new_terms);
        self.state.bytes.store(self.journal.byte_len(), Ordering::Relaxed);
        Ok(())
    }

    /// Drops the newest unwritten groups until the rest fits into the maximum size of the files. Larger groups could
    /// never be appended.
    fn drop_excess(&mut self) {
        let limit = self.state.limit.load(Ordering::Relaxed);
        let mut bytes: u64 = self.unwritten.iter().map(|group| group.frames.len() as u64).sum();
        while bytes > limit
            && let Some(group) = self.unwritten.pop_back()
        {
            bytes -= group.frames.len() as u64;
            self.dropped = self.dropped.max(group.last);
        }
    }
}

/// Returns the charge of an action for the counters of budgets; `None` if the action settles no reservation.
pub(super) fn budget_charge_of_action(action: &LedgerAction) -> Option<super::handover::BudgetCharge> {
    let penstock_ledger::EntryKind::Settle { key, wallet, amount, sale, .. } = &action.act else {
        return None;
    };
    Some(super::handover::BudgetCharge { key: key.clone(), wallet: *wallet, amount: *amount, eur: sale.eur })
}
