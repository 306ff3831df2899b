//! Replay of the journal that the previous process wrote to this folder: the actions that the database lacks are
//! committed before all others, each once.
//!
//! A journal is replayed into the chain for which it was written, while the same member owns the chain. If the other
//! members have evicted the member, its leases were returned to the accounts and its reservations were voided, so its
//! charges must not be made: the folder of the journal is renamed and the loss is logged.

use super::super::handover::BudgetCharge;
use super::super::write_op::{LedgerAction, SaleTerms};
use super::record::{self, DecodedRecord};
use super::recorded::charged_requests;
use super::{JournalState, budget_charge_of_action};
use penstock_ledger::{EntryKind, LedgerEntry, OpenReserves, Wallet};
use penstock_storage::StoreError;
use penstock_storage::ledger::journal::{JournalId, JournalRecord, LedgerJournal, RecoveredJournal};
use penstock_storage::ledger::{JournalPosition, LedgerStore};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Open journal, and the actions of the last process that the database lacks.
pub(in super::super) struct OpenedJournal {
    pub(in super::super) journal: LedgerJournal,
    pub(in super::super) state: Arc<JournalState>,
    /// Number of the last operation in the journal or the store; new operations get higher numbers.
    pub(in super::super) last_number: u64,
    pub(in super::super) pending: Vec<LedgerAction>,
}

/// Opens the journal of a member in `folder`.
///
/// # Errors
/// Returns a sentence for the operator.
pub(in super::super) fn open_journal(store: &LedgerStore, folder: &Path) -> Result<OpenedJournal, String> {
    open(store, folder).map_err(|error| format!("The journal of the ledger cannot be used: {error}."))
}

fn open(store: &LedgerStore, folder: &Path) -> Result<OpenedJournal, StoreError> {
    let incarnation = store.claim().map_or(0, penstock_storage::ledger::ChainClaim::incarnation);
    let chain = store.chain();
    let position = store.journal_position()?;
    let (mut pending, mut known) = (Vec::new(), None);
    if let Some(stored) = LedgerJournal::read(folder)? {
        let known_position = position.filter(|position| position.generation == stored.id.generation);
        if (stored.id.incarnation, stored.id.chain) == (incarnation, chain)
            && let Some(position) = known_position
        {
            log_gap(&stored, position.number);
            pending = pending_actions(&stored, position.number, CommittedRecords::Ignore);
            known = Some((stored.id, position));
        } else {
            isolate_journal(store, folder, &stored, known_position)?;
        }
    }
    let (id, position) = match known {
        Some(known) => known,
        None => {
            let id = JournalId { generation: rand::random(), incarnation, chain };
            let position = JournalPosition { generation: id.generation, number: 0 };
            store.begin_journal(position)?;
            (id, position)
        }
    };
    let journal = LedgerJournal::open(folder, id)?;
    // The files may be from an older backup and end before the position that the store has.
    let last_number = journal.last_record_number().max(position.number);
    let state = JournalState::new(id.generation, position.number);
    Ok(OpenedJournal { journal, state, last_number, pending })
}

/// Logs a gap between the position in the store and the first record in the files. The files contain only the newest
/// records, so the store lacks more records than they can restore.
fn log_gap(stored: &RecoveredJournal, position: u64) {
    let first = stored.records.iter().map(|record| record.number).find(|number| *number > 0);
    let missing = first.map_or(0, |first| first.saturating_sub(position.saturating_add(1)));
    if missing > 0 {
        tracing::error!(name: "ledger_journal_incomplete", actions = %missing);
    }
}

/// Use of the records in which the journal itself notes the committed operations.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CommittedRecords {
    /// Skip these records: the store has its own position, and may have lost commits that it had acknowledged.
    Ignore,
    /// Count the operations up to the noted number as committed.
    Obey,
}

/// Returns the actions after a position, each with its terms.
fn pending_actions(
    stored: &RecoveredJournal,
    position: u64,
    committed: CommittedRecords,
) -> Vec<LedgerAction> {
    let mut terms: HashMap<Arc<str>, Arc<SaleTerms>> = HashMap::new();
    let mut actions = Vec::new();
    let (mut unreadable, mut position, mut previous) = (0_usize, position, 0);
    for JournalRecord { number, bytes } in &stored.records {
        match record::decode_record(*number, bytes) {
            Some(DecodedRecord::Terms(text)) => drop(terms.insert(text.id.clone(), Arc::new(text))),
            // Only the first one of two records with a number is valid.
            Some(DecodedRecord::Action(_)) if *number == previous => unreadable += 1,
            Some(DecodedRecord::Action(action)) => {
                previous = *number;
                if previous > position {
                    actions.push(action);
                }
            }
            Some(DecodedRecord::Committed(number)) => {
                if committed == CommittedRecords::Obey {
                    position = position.max(number);
                }
            }
            None => unreadable += 1,
        }
    }
    let missing = count_missing(&stored.records, position);
    if unreadable > 0 || missing > 0 || stored.torn_bytes > 0 {
        tracing::warn!(name: "ledger_journal_torn", records = %unreadable, missing = %missing, bytes = %stored.torn_bytes);
    }
    actions.retain(|action: &LedgerAction| action.number > position);
    for action in &mut actions {
        if let EntryKind::Settle { sale, .. } = &action.act {
            action.terms = terms.get(&sale.terms).cloned();
        }
    }
    actions
}

/// Counts the records after a position that are missing between two others. Records up to the position may be missing,
/// because the database got them while the file could not be written.
fn count_missing(records: &[JournalRecord], position: u64) -> u64 {
    let mut previous = None;
    let mut missing = 0;
    for number in records.iter().map(|record| record.number).filter(|number| *number > 0) {
        let last_known: u64 = previous.map_or(number, |previous: u64| previous.max(position));
        missing += number.saturating_sub(last_known.saturating_add(1));
        previous = Some(number);
    }
    missing
}

/// Renames the folder of a journal that must not be replayed, and logs the charges that are not made; does nothing if
/// the ledger has all charges of the journal. The journal does not note its last commits. So the ledger is asked which
/// of the charges it already has; after an orderly stop it has all of them.
fn isolate_journal(
    store: &LedgerStore,
    folder: &Path,
    stored: &RecoveredJournal,
    position: Option<JournalPosition>,
) -> Result<(), StoreError> {
    let mut lost = match position {
        Some(position) => pending_actions(stored, position.number, CommittedRecords::Ignore),
        // The store has no position of this journal any more, because another member may have written the chain since
        // then. The last group of the journal may be committed nevertheless.
        None => pending_actions(stored, 0, CommittedRecords::Obey),
    };
    lost.retain(|action| matches!(action.act, EntryKind::Settle { .. }));
    if let Some(since) = lost.iter().map(|action| action.at).min() {
        let charged = charged_requests(store, stored.id.chain, since)?;
        lost.retain(|action| match &action.act {
            EntryKind::Settle { request, .. } => !charged.contains(request),
            _ => false,
        });
    }
    let charges: Vec<BudgetCharge> = lost.iter().filter_map(budget_charge_of_action).collect();
    if charges.is_empty() {
        return Ok(());
    }
    let credits = charges.iter().filter(|charge| charge.wallet == Wallet::Credits);
    let credits: i64 = credits.fold(0, |sum, charge| sum.saturating_add(charge.amount));
    let apart = LedgerJournal::quarantine(folder, stored.id.generation)?;
    tracing::error!(
        name: "ledger_journal_not_replayed",
        charges = %charges.len(),
        micro_credits = %credits,
        folder = %apart.display(),
    );
    Ok(())
}

/// Drops the actions that do not continue the chain: an end without an open reservation, or a reservation that is
/// already open. `open` contains the open reservations of the chain, and is updated by the remaining actions.
pub(in super::super) fn retain_valid_actions(
    pending: Vec<LedgerAction>,
    open: &mut OpenReserves,
    last_entry: u64,
) -> Vec<LedgerAction> {
    let before = pending.len();
    let mut number = last_entry;
    let valid: Vec<LedgerAction> = pending
        .into_iter()
        .filter(|action| {
            let is_valid = match &action.act {
                EntryKind::Reserve { request, .. } => open.get(request).is_none(),
                EntryKind::Settle { request, .. } | EntryKind::Void { request, .. } => {
                    open.get(request).is_some()
                }
                EntryKind::Grant { .. } | EntryKind::Correct { .. } | EntryKind::Terms { .. } => false,
            };
            if is_valid {
                number += 1;
                let (account, kind) = (action.account.clone(), action.act.clone());
                open.apply_entry(&LedgerEntry { seq: number, at: action.at, account, kind });
            }
            is_valid
        })
        .collect();
    if valid.len() < before {
        let count = (before - valid.len()).to_string();
        tracing::error!(name: "ledger_journal_unmatched", actions = count);
    }
    valid
}

/// Logs the replay of a journal and counts its charges; returns the charges, each with its account.
pub(in super::super) fn record_replay(
    state: &JournalState,
    replayed: &[LedgerAction],
) -> Vec<(Arc<str>, BudgetCharge)> {
    let charge = |action: &LedgerAction| Some((action.account.clone(), budget_charge_of_action(action)?));
    let charges: Vec<(Arc<str>, BudgetCharge)> = replayed.iter().filter_map(charge).collect();
    if !replayed.is_empty() {
        tracing::info!(name: "ledger_journal_replayed", actions = %replayed.len(), charges = %charges.len());
    }
    state.replayed.store(charges.len() as u64, Ordering::Relaxed);
    charges
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use penstock_ledger::RequestFootprint;

    fn record(number: u64) -> JournalRecord {
        let act = EntryKind::Void {
            request: "r".into(),
            key: "k".into(),
            wallet: Wallet::Credits,
            held: 1,
            why: "failed".into(),
            footprint: RequestFootprint::default(),
        };
        let action = LedgerAction { at: 1, account: "acme".into(), act, terms: None, exposed_eur: 0, number };
        JournalRecord { number, bytes: record::encode_action(&action).unwrap() }
    }

    /// Returns the numbers of the pending actions, and the number of missing records.
    fn read(numbers: &[u64], position: u64, committed: u64) -> (Vec<u64>, u64) {
        let mut records =
            vec![JournalRecord { number: 0, bytes: record::encode_committed_number(committed) }];
        records.extend(numbers.iter().map(|number| record(*number)));
        let missing = count_missing(&records, position.max(committed));
        let stored = RecoveredJournal {
            id: JournalId { generation: 1, incarnation: 1, chain: 1 },
            records,
            torn_bytes: 0,
        };
        let pending = pending_actions(&stored, position, CommittedRecords::Obey);
        (pending.iter().map(|action| action.number).collect(), missing)
    }

    #[test]
    fn records_that_do_not_follow_their_predecessors_are_counted() {
        for (numbers, position, committed, pending, missing) in [
            (&[3, 4, 5, 6][..], 4, 0, &[5, 6][..], 0),
            (&[3, 4, 8, 9], 4, 0, &[8, 9], 3),
            (&[3, 4, 8, 10], 4, 0, &[8, 10], 4),
            // The database got 5 to 7 while the file could not be written.
            (&[3, 4, 8, 9], 7, 0, &[8, 9], 0),
            (&[3, 4, 8, 9], 4, 6, &[8, 9], 1),
            (&[3, 4, 8, 9], 9, 0, &[], 0),
            // A gap before the first record is not counted here, because `log_gap` reports it.
            (&[7, 8], 4, 0, &[7, 8], 0),
            (&[5, 5, 6], 4, 0, &[5, 6], 0),
            (&[], 4, 0, &[], 0),
        ] {
            assert_eq!(
                read(numbers, position, committed),
                (pending.to_vec(), missing),
                "{numbers:?} {position}"
            );
        }
    }
}
