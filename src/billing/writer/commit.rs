//! Commit of a draft of ledger entries. A failed commit is retried until the store has the group, or until this
//! process may no longer write.

use super::super::entry_effects::correction_balance_change;
use super::super::extra_rows;
use super::super::fenced_outcomes::CommitConditions;
use super::super::group_builder::{DraftedAdjustment, GroupBuilder};
use super::super::write_op::{AdjustmentError, AdminAdjustment};
use super::super::write_queue::CommittedGroup;
use super::LedgerWriter;
use penstock_core::entry_number::sequence_in_chain;
use penstock_ledger::EntryKind;
use penstock_storage::StoreError;
use penstock_storage::ledger::{CommitConflict, JournalPosition, LedgerCommit, LedgerTip};
use std::time::Duration;
use tracing::Level;

/// Pause before a failed commit is retried.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// Number of retries while the process stops.
const LAST_TRIES: u32 = 4;

/// Outcome of the attempts to commit a group.
enum CommitOutcome {
    /// The group is in the store; true if it is in the replica too.
    Written(bool),
    /// The group is not in the store, because other commits have already used some of its names. Contains these
    /// names, each with the number of the entry that uses it.
    NamesUsed(Vec<(String, u64)>),
    /// The group is not in the store, because its conditions are not met.
    FenceLost,
    /// This process will not write the group.
    Lost,
}

/// Failed attempt to commit. The variant decides if it is retried: after a pause (`Retry`), at once (`Repeat`), or
/// not (`End`).
enum FailedAttempt {
    Retry(String),
    Repeat,
    End(CommitOutcome),
}

impl LedgerWriter {
    /// Commits the draft. Returns false if the draft cannot be committed; the writer then ends.
    pub(super) fn commit(&mut self) -> bool {
        loop {
            let mut draft = std::mem::take(&mut self.draft);
            let mut copied = true;
            let moved = !draft.blocks.is_empty();
            if moved || !draft.rows.is_empty() {
                let mut group = self.to_commit(&mut draft);
                match self.append_group(&mut group, &mut draft) {
                    CommitOutcome::Written(is_copied) => copied = is_copied,
                    CommitOutcome::NamesUsed(used) => {
                        self.redraft(group, draft, used);
                        continue;
                    }
                    CommitOutcome::FenceLost => {
                        self.redraft_without_charges(&group, &draft);
                        continue;
                    }
                    CommitOutcome::Lost => return false,
                }
                if moved {
                    self.tip = Some(group.new_tip);
                    self.rollups.mark_written();
                    if let (Some(journaled), Some(position)) = (&self.journaled, group.journal) {
                        journaled.state.set_committed_number(position.number);
                    }
                }
            }
            self.queue.on_committed(&CommittedGroup {
                bytes: draft.queued_bytes,
                exposed_eur: draft.exposed_eur,
                is_replicated: copied,
                open: self.open.len() as u64,
                chain_entries: sequence_in_chain(self.chain.seq),
            });
            reply_to_all(draft, self.store.claim().is_some());
            return true;
        }
    }

    fn to_commit(&self, draft: &mut GroupBuilder) -> LedgerCommit {
        let after = LedgerTip {
            seq: self.chain.seq,
            hash: self.chain.hash,
            at: self.at,
            first_open: self.open.oldest_seq().unwrap_or(self.chain.seq + 1),
            // The new group does not complete incomplete rollups: they remain marked as incomplete until they are
            // rebuilt.
            are_rollups_complete: self.tip.is_none_or(|tip| tip.are_rollups_complete),
        };
        let (spent, credited) = draft.take_pool_amounts();
        let journal = self.journaled.as_ref().filter(|_| draft.journal_number > 0).map(|journaled| {
            JournalPosition { generation: journaled.state.generation, number: draft.journal_number }
        });
        let CommitConditions { fences, counters } = std::mem::take(&mut draft.fenced);
        LedgerCommit {
            previous_tip: self.tip,
            new_tip: if draft.blocks.is_empty() { self.tip.unwrap_or_default() } else { after },
            blocks: std::mem::take(&mut draft.blocks),
            balance_changes: std::mem::take(&mut draft.balance_changes).into_iter().collect(),
            names: std::mem::take(&mut draft.names),
            extra_rows: std::mem::take(&mut draft.rows),
            audited: draft.adjustments.iter().filter_map(DraftedAdjustment::audit_entry).collect(),
            spent,
            credited,
            fences,
            counters,
            journal,
            ..LedgerCommit::default()
        }
    }

    /// Retries the append of a group until the store has committed it, or until the outcome is final.
    fn append_group(&mut self, group: &mut LedgerCommit, draft: &mut GroupBuilder) -> CommitOutcome {
        let mut tries = LAST_TRIES;
        let mut logged = false;
        self.queue.set_writing(true);
        loop {
            let appended = self.add_rollups(group).and_then(|()| self.store.append(group));
            let failed = match appended {
                Ok(appended) => {
                    self.queue.set_writing(false);
                    self.lag_log.log_change(appended.replicated, &self.store);
                    return CommitOutcome::Written(appended.replicated);
                }
                Err(error) => self.on_failure(error, group, &mut draft.rows_per_op),
            };
            let why = match failed {
                FailedAttempt::Retry(why) => why,
                FailedAttempt::Repeat => continue,
                FailedAttempt::End(outcome) => {
                    self.queue.set_writing(false);
                    return outcome;
                }
            };
            self.queue.set_failing();
            // The callers of adjustments get an error now. The adjustments stay in the group, and take effect once
            // the group is written.
            draft.adjustments_mut().for_each(drop_reply);
            if !logged {
                tracing::error!(name: "ledger_not_written", why);
                logged = true;
            }
            if !self.queue.wait_before_retry(RETRY_PAUSE) {
                tries -= 1;
                std::thread::sleep(RETRY_PAUSE);
                if tries == 0 {
                    let is_journaled = self.journaled.as_ref().is_some_and(|ops| !ops.state.is_failing());
                    if is_journaled {
                        tracing::error!(name: "ledger_left_in_journal", why);
                    } else {
                        tracing::error!(name: "ledger_lost", why);
                    }
                    return CommitOutcome::Lost;
                }
            }
        }
    }

    /// Adds the changed rollups to a group: as complete new values if this process is the only writer, otherwise as
    /// differences that the store adds to its values.
    fn add_rollups(&mut self, group: &mut LedgerCommit) -> Result<(), StoreError> {
        if self.store.claim().is_some() {
            let changes = self.rollups.changes(&self.store)?;
            (group.rollups, group.rollup_changes) = (changes.replacements, changes.added);
        } else {
            group.rollups = self.rollups.changed_row_values(&self.store)?;
        }
        // Marks incomplete rollups, which the next start of a gateway without a fleet rebuilds.
        group.new_tip.are_rollups_complete &= !self.rollups.is_damaged();
        Ok(())
    }

    fn on_failure(
        &mut self,
        error: StoreError,
        group: &mut LedgerCommit,
        rows_per_op: &mut Vec<usize>,
    ) -> FailedAttempt {
        match error {
            StoreError::Guard { .. } => match self.store.commit_conflict(group) {
                Ok(CommitConflict::Fenced) => FailedAttempt::End(self.fence()),
                Ok(CommitConflict::NamesInUse(used)) => FailedAttempt::End(CommitOutcome::NamesUsed(used)),
                Ok(CommitConflict::FencesViolated(_)) => FailedAttempt::End(CommitOutcome::FenceLost),
                Ok(CommitConflict::Resolved) | Err(_) => FailedAttempt::Retry(error.to_string()),
            },
            StoreError::Evicted { .. } if self.store.claim().is_some() => FailedAttempt::End(self.fence()),
            StoreError::Reverted => {
                self.queue.set_fenced();
                FailedAttempt::End(CommitOutcome::Lost)
            }
            error if extra_rows::is_permanent_rejection(&error) && !group.extra_rows.is_empty() => {
                let rows = extra_rows::drop_rejected_rows(group, rows_per_op).to_string();
                tracing::error!(name: "ledger_rows_dropped", rows = rows.as_str(), why = %error);
                FailedAttempt::Repeat
            }
            error => {
                if matches!(error, StoreError::Corrupt { .. }) && self.store.claim().is_some() {
                    // The store cannot add changes to an unreadable rollup, so the next attempt replaces the rollup.
                    self.rollups.forget_cached_values();
                }
                FailedAttempt::Retry(error.to_string())
            }
        }
    }

    /// Ends all writing of this process. Other gateways declared it dead, and may own its chain now.
    fn fence(&self) -> CommitOutcome {
        self.queue.set_fenced();
        tracing::event!(name: "ledger_fenced", Level::ERROR, {});
        CommitOutcome::Lost
    }
}

/// Answers the caller of an adjustment with an error: the outcome of the adjustment is unknown.
fn drop_reply(adjustment: &mut AdminAdjustment) {
    let (dropped_reply, _) = std::sync::mpsc::channel();
    std::mem::replace(&mut adjustment.reply, dropped_reply).send(Err(AdjustmentError::OutcomeUnknown)).ok();
}

/// Applies the committed adjustments of a draft to the balances in memory, and answers their callers. In a fleet the
/// shared pools have the amounts, so the balances in memory do not change.
fn reply_to_all(draft: GroupBuilder, in_fleet: bool) {
    for DraftedAdjustment { adjustment, seq, .. } in draft.adjustments {
        if !in_fleet {
            apply_adjustment(&adjustment);
        }
        adjustment.reply.send(Ok(seq)).ok();
    }
    for (adjustment, seq) in draft.duplicates {
        adjustment.reply.send(Err(AdjustmentError::Duplicate(seq))).ok();
    }
}

/// Applies a committed adjustment to the balance in memory.
fn apply_adjustment(adjustment: &AdminAdjustment) {
    match &adjustment.act {
        EntryKind::Grant { wallet, amount, .. } => adjustment.balance.add_amount(*wallet, *amount),
        act @ EntryKind::Correct { wallet, .. } => {
            adjustment.balance.add_amount(*wallet, correction_balance_change(act).unwrap_or(0))
        }
        _ => {}
    }
}
