//! Second draft of a group, for the case that other gateways have already used some of its names, or that one of its
//! conditions is not met. In the first case, the entries with these names are left out. In the second case, each charge
//! becomes a void, and the rows are left out. The entries of the second draft get new numbers and hashes without gaps.
//! The store contains no part of the first draft.

use super::super::entry_effects::replacement_void;
use super::super::fenced_outcomes::CommitConditions;
use super::super::group_builder::{DraftedAdjustment, GroupBuilder};
use super::super::write_op::{AdjustmentError, AdminAdjustment};
use super::{LedgerWriter, chain_end};
use penstock_ledger::{EntryKind, HashChain, LedgerEntry, split_lines};
use penstock_storage::ledger::LedgerCommit;
use std::collections::{HashMap, HashSet};

/// First draft of a group of ledger entries, which a later draft replaces.
struct FirstDraft {
    /// Names that other commits have already used, each with the number of its entry.
    used: HashMap<String, u64>,
    /// Names that the entries of the first draft use.
    names: HashSet<String>,
    /// Adjustments of the draft by the numbers of their entries.
    adjustments: HashMap<u64, DraftedAdjustment>,
    /// Entry that each adjustment has after the second draft, by the number of the adjustment's entry in the first
    /// draft.
    numbers: HashMap<u64, AdjustmentEntry>,
}

/// Entry of an adjustment after the second draft.
enum AdjustmentEntry {
    /// Number of the entry in the second draft.
    Drafted(u64),
    /// Number of the entry of another commit, which used the name first.
    Used(u64),
}

impl LedgerWriter {
    /// Replaces a group by a second draft without the entries whose names are already used. The callers of
    /// adjustments with such names get their answer now.
    pub(super) fn redraft(&mut self, group: LedgerCommit, draft: GroupBuilder, used: Vec<(String, u64)>) {
        self.rewind_drafts(&group);
        let mut first = FirstDraft {
            used: used.into_iter().collect(),
            names: group.names.into_iter().map(|(name, _)| name).collect(),
            adjustments: draft.adjustments.into_iter().map(|drafted| (drafted.seq, drafted)).collect(),
            numbers: HashMap::new(),
        };
        self.draft = GroupBuilder {
            rows: group.extra_rows,
            rows_per_op: draft.rows_per_op,
            row_bytes: draft.row_bytes,
            queued_bytes: draft.queued_bytes,
            exposed_eur: draft.exposed_eur,
            journal_number: draft.journal_number,
            fenced: CommitConditions { fences: group.fences, counters: group.counters },
            ..GroupBuilder::default()
        };
        for line in group.blocks.iter().flat_map(|block| split_lines(&block.text)) {
            match HashChain::parse_unverified(line) {
                Ok((entry, _)) => self.redraft_entry(entry, &mut first),
                Err(_) => tracing::error!(name: "ledger_entry_lost", account = ""),
            }
        }
        for (adjustment, seq) in draft.duplicates {
            match first.numbers.get(&seq) {
                Some(AdjustmentEntry::Drafted(seq)) => self.draft.duplicates.push((adjustment, *seq)),
                Some(AdjustmentEntry::Used(number)) => reply_used(&adjustment, *number),
                None => drop(adjustment.reply.send(Err(AdjustmentError::InvalidAmount))),
            }
        }
    }

    /// Replaces a group of batch outcomes by a draft that has a void in place of each charge, and no rows.
    pub(super) fn redraft_without_charges(&mut self, group: &LedgerCommit, draft: &GroupBuilder) {
        self.rewind_drafts(group);
        self.is_fence_lost = true;
        self.draft = GroupBuilder {
            queued_bytes: draft.queued_bytes,
            exposed_eur: draft.exposed_eur,
            journal_number: draft.journal_number,
            ..GroupBuilder::default()
        };
        for line in group.blocks.iter().flat_map(|block| split_lines(&block.text)) {
            let Ok((LedgerEntry { at, account, kind, .. }, _)) = HashChain::parse_unverified(line) else {
                tracing::error!(name: "ledger_entry_lost", account = "");
                continue;
            };
            match &kind {
                // The writer forgets the terms, so the next charge that refers to them records them again.
                EntryKind::Terms { id, .. } => drop(self.known_terms.remove(id)),
                kind => {
                    let void = replacement_void(kind, "claim_lost").unwrap_or_else(|| kind.clone());
                    self.append_action(at, &account, void);
                }
            }
        }
    }

    /// Restores the state before the first draft, except for the open reservations. An entry that is applied again
    /// replaces its reservation, and an entry that is left out has no reservation.
    fn rewind_drafts(&mut self, group: &LedgerCommit) {
        self.chain = chain_end(&self.store, self.tip);
        self.at = self.tip.map_or(0, |tip| tip.at);
        for (account, change) in &group.balance_changes {
            if let Some(balance) = self.balances.get_mut(account) {
                balance.credits = balance.credits.saturating_sub(change.credits);
                balance.energy = balance.energy.saturating_sub(change.energy);
            }
        }
        self.rollups.discard_changes();
    }

    fn redraft_entry(&mut self, entry: LedgerEntry, first: &mut FirstDraft) {
        let LedgerEntry { seq, at, account, kind } = entry;
        if let Some(drafted) = first.adjustments.remove(&seq) {
            let DraftedAdjustment { adjustment, corrected, .. } = drafted;
            let used = adjustment.names.iter().find_map(|name| first.used.get(name));
            let number = match used {
                Some(number) => {
                    reply_used(&adjustment, *number);
                    Some(AdjustmentEntry::Used(*number))
                }
                None => self.draft_adjustment(adjustment, corrected).map(AdjustmentEntry::Drafted),
            };
            first.numbers.extend(number.map(|number| (seq, number)));
            return;
        }
        let EntryKind::Terms { id, .. } = &kind else { return self.append_action(at, &account, kind) };
        let name = format!("terms {id}");
        if first.used.contains_key(&name) {
            return;
        }
        if let Some(seq) = self.append_entry(at, &account, kind, None)
            && first.names.contains(&name)
        {
            self.draft.names.push((name, seq));
        }
    }
}

fn reply_used(adjustment: &AdminAdjustment, number: u64) {
    adjustment.reply.send(Err(AdjustmentError::Duplicate(number))).ok();
}
