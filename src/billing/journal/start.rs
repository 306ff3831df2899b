//! Start of the ledger's threads: the writer, and for a member of a fleet the journal thread, which passes operations
//! to the writer.

use super::super::leases::Leases;
use super::super::write_op::{LedgerAction, WriteOp};
use super::super::write_queue::{DrainedOps, MAX_GROUP_OPERATIONS, WriteQueue};
use super::super::writer::{self, JournaledOps, WriterStart};
use super::replay::{OpenedJournal, open_journal};
use super::{JournalState, JournalWriter};
use penstock_storage::ledger::LedgerStore;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

/// Running threads of a ledger, in the order in which they end.
#[derive(Default)]
pub(in super::super) struct LedgerThreads {
    pub(in super::super) handles: Vec<JoinHandle<()>>,
    pub(in super::super) journal: Option<Arc<JournalState>>,
}

/// Opens the journal of a member; `None` without a fleet.
///
/// # Errors
/// Returns a sentence for the operator.
pub(in super::super) fn open_member_journal(
    store: &LedgerStore,
    leases: Option<&Leases>,
) -> Result<Option<OpenedJournal>, String> {
    let folder = leases.and_then(Leases::journal_folder);
    folder.filter(|_| store.claim().is_some()).map(|folder| open_journal(store, folder)).transpose()
}

/// Starts the threads; the actions in `replayed` are written before all others.
///
/// # Errors
/// Returns a sentence for the operator.
pub(in super::super) fn start_threads(
    store: &Arc<LedgerStore>,
    queue: &Arc<WriteQueue>,
    start: WriterStart,
    journal: Option<OpenedJournal>,
    mut replayed: Vec<LedgerAction>,
) -> Result<LedgerThreads, String> {
    let Some(OpenedJournal { journal, state, last_number, .. }) = journal else {
        let writer = writer::start_writer(store.clone(), queue.clone(), start)?;
        return Ok(LedgerThreads { handles: vec![writer], journal: None });
    };
    let (sender, ops) = channel();
    queue.add_unqueued_totals(&replayed);
    while !replayed.is_empty() {
        let rest = replayed.split_off(replayed.len().min(MAX_GROUP_OPERATIONS));
        let group = std::mem::replace(&mut replayed, rest).into_iter().map(WriteOp::Action).collect();
        sender.send(DrainedOps { ops: group, last: 0, is_complete: true }).ok();
    }
    let journaled = Some(JournaledOps { ops, state: state.clone() });
    let writer = writer::start_writer(store.clone(), queue.clone(), WriterStart { journaled, ..start })?;
    let thread = JournalWriter::new(journal, state.clone(), queue.clone(), sender, last_number).start()?;
    Ok(LedgerThreads { handles: vec![thread, writer], journal: Some(state) })
}
