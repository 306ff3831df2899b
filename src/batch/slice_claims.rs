//! Claims of slices: each live member of a fleet runs one slice of a batch after the other, under a claim of its own.
//!
//! A member takes a further slice of a batch once all lines of its present ones have started, so a batch in slices gets
//! no larger share of a gateway than any other batch, and no gateway waits for the last lines of a slice. As in a
//! batch that is not divided, no line and no slice starts while too many lines of the batch wait for a retry.

use super::claims::{ClaimedBatch, HeldClaim, TakeoverKind};
use super::retry_queue::RetryLoad;
use super::{BatchCommand, BatchManager, RunningBatch};
use penstock_storage::StoreError;
use penstock_storage::batches::{
    BatchClaim, BatchCounts, BatchRecord, BatchSlice, BatchState, BatchUsage, ClaimState, EndRequest,
    UnfinishedSlices, is_slice_id, parent_batch_id,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Number of lines of a slice.
pub(super) const SLICE_LINES: u32 = 1_000;

impl BatchManager {
    /// Sets whether batches may be divided: true if other members are alive and all of them run slices. Members with
    /// an earlier version only run whole batches.
    pub fn set_peers_run_slices(&self, do_all: bool) {
        self.peers_run_slices.store(do_all, Ordering::Release);
    }

    /// Returns true if a batch may be divided into slices.
    pub(super) fn may_divide_batches(&self) -> bool {
        self.fleet.has_fleet() && self.peers_run_slices.load(Ordering::Acquire)
    }

    /// Records that all lines of a slice have started, and searches for a further slice.
    pub(super) fn mark_all_lines_started(&self, id: &str) {
        if let Some(running) = self.running.lock().get_mut(id) {
            running.all_lines_started = true;
        }
        self.claims.search.notify_one();
    }

    /// Ends the slices of a batch that run in this process.
    pub(super) fn end_local_slices(&self, batch: &str, request: EndRequest) {
        let running = self.running.lock();
        for (_, slice) in running.iter().filter(|(id, _)| is_slice_of(id, batch)) {
            slice.commands.send(BatchCommand::End(request)).ok();
        }
    }

    /// Takes claims of slices and adds them to `taken`: for each batch of which this member may run another slice,
    /// the claim of the next slice. Blocks.
    pub(super) fn take_slice_claims(
        &self,
        is_start: bool,
        taken: &mut Vec<ClaimedBatch>,
    ) -> Result<(), StoreError> {
        for (batch, slices) in self.read_unfinished_slices()? {
            if self.may_run_slice_of(&batch) {
                taken.extend(self.take_next_slice(&batch, &slices, is_start)?);
            }
        }
        Ok(())
    }

    /// Returns the unfinished slices by batch. Logs each slice with a damaged row once. Blocks.
    fn read_unfinished_slices(&self) -> Result<BTreeMap<String, Vec<BatchSlice>>, StoreError> {
        let UnfinishedSlices { by_batch, damaged } = self.store.unfinished_slices()?;
        for id in damaged {
            if self.claims.mark_damaged_slice_logged(&id) {
                tracing::error!(name: "batch_slice_damaged", slice = id);
            }
        }
        Ok(by_batch)
    }

    /// Returns the records of all unfinished slices, for a process that runs them alone. Blocks.
    pub(super) fn list_unfinished_slices(&self) -> Result<Vec<BatchRecord>, StoreError> {
        let mut records = Vec::new();
        for (batch, slices) in self.read_unfinished_slices()? {
            let Some(record) = self.store.get(&batch)? else { continue };
            records.extend(slices.into_iter().map(|slice| slice_record(&record, slice)));
        }
        Ok(records)
    }

    /// Returns the ids of the batches and slices for which a gateway has stored a request to end, with the request.
    /// Blocks.
    pub(super) fn requested_ends(
        &self,
        open: &[BatchRecord],
    ) -> Result<Vec<(String, EndRequest)>, StoreError> {
        let ids: Vec<String> = open.iter().map(|record| record.id.clone()).collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let rows = self.store.coordination(&ids)?;
        Ok(ids.into_iter().zip(rows).filter_map(|(id, row)| Some((id, row.end?))).collect())
    }

    /// Returns true if this process may run another slice of the batch: all lines of its present slices have started,
    /// and not too many of them wait for a retry.
    fn may_run_slice_of(&self, batch: &str) -> bool {
        let running = self.running.lock();
        let mut own = running.iter().filter(|(id, _)| is_slice_of(id, batch));
        own.all(|(_, slice)| slice.all_lines_started && !slice.retry_load.is_full())
    }

    /// Takes the claim of the first slice that no live member runs; `None` if there is no such slice.
    fn take_next_slice(
        &self,
        batch: &str,
        slices: &[BatchSlice],
        is_start: bool,
    ) -> Result<Option<ClaimedBatch>, StoreError> {
        let (live, own, alive) =
            (self.fleet.live_members(), self.fleet.member_number(), self.fleet.commit_fence());
        let ids: Vec<String> = slices.iter().map(|slice| slice.id(batch)).collect();
        let rows = self.store.coordination(&ids)?;
        for ((slice, id), row) in slices.iter().zip(&ids).zip(rows) {
            let is_running = self.running.lock().contains_key(id.as_str());
            // After an end request, no member claims the slices without a claim: the member that ends the batch
            // removes them.
            if is_running || (row.end.is_some() && row.claim.is_none()) {
                continue;
            }
            let seen = row.claim.as_ref();
            let Some(takeover) = takeover_for_any_member(seen, &live, own, is_start) else { continue };
            let member = (own, alive.as_ref());
            let Some(claim) = self.store.take_slice_claim(batch, slice, seen, member)? else { continue };
            let (record, held) = (self.store.get(batch)?, HeldClaim { claim, takeover });
            return Ok(record.map(|record| ClaimedBatch {
                record: slice_record(&record, *slice),
                held,
                end: row.end,
            }));
        }
        Ok(None)
    }
}

/// Returns the counter of the lines that wait for a retry, for a batch or slice that is about to run. Slices of one
/// batch share the counter in this process.
pub(super) fn shared_retry_load(running: &HashMap<Box<str>, RunningBatch>, id: &str) -> Arc<RetryLoad> {
    let mut others =
        running.iter().filter(|(other, _)| is_slice_id(id) && is_slice_of(other, parent_batch_id(id)));
    others.next().map(|(_, slice)| slice.retry_load.clone()).unwrap_or_default()
}

fn is_slice_of(id: &str, batch: &str) -> bool {
    is_slice_id(id) && parent_batch_id(id) == batch
}

/// Returns the kind of takeover by which member `own` may claim a slice, or a batch in slices, that it does not run;
/// `None` if it may not. Any member may take one without a live holder.
pub(super) fn takeover_for_any_member(
    claim: Option<&BatchClaim>,
    live: &[u32],
    own: u32,
    is_start: bool,
) -> Option<TakeoverKind> {
    match claim {
        None | Some(BatchClaim { state: ClaimState::Released, .. }) => Some(TakeoverKind::Orderly),
        Some(claim) if claim.incarnation == own && is_start => Some(TakeoverKind::Orderly),
        Some(claim) if claim.incarnation == own || !live.contains(&claim.incarnation) => {
            Some(TakeoverKind::Forced)
        }
        Some(_) => None,
    }
}

/// Returns the record under which a slice runs.
fn slice_record(batch: &BatchRecord, slice: BatchSlice) -> BatchRecord {
    BatchRecord {
        id: slice.id(&batch.id),
        scheduled: None,
        output: None,
        output_bytes: 0,
        state: BatchState::InProgress,
        counts: BatchCounts { total: slice.lines, ..BatchCounts::default() },
        errors: Vec::new(),
        metadata: Vec::new(),
        usage: BatchUsage::default(),
        slices: None,
        slice: Some(slice),
        ..batch.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_taken_from_a_dead_or_stopped_member_only() {
        let live = [3, 5];
        let claim = |incarnation, state| BatchClaim { incarnation, number: 1, commits: 0, state };
        let held = |incarnation| claim(incarnation, ClaimState::Held);
        assert_eq!(takeover_for_any_member(None, &live, 3, false), Some(TakeoverKind::Orderly));
        assert_eq!(takeover_for_any_member(Some(&held(5)), &live, 3, true), None);
        assert_eq!(takeover_for_any_member(Some(&held(8)), &live, 3, false), Some(TakeoverKind::Forced));
        assert_eq!(takeover_for_any_member(Some(&held(3)), &live, 3, true), Some(TakeoverKind::Orderly));
        assert_eq!(takeover_for_any_member(Some(&held(3)), &live, 3, false), Some(TakeoverKind::Forced));
        let released = claim(5, ClaimState::Released);
        assert_eq!(takeover_for_any_member(Some(&released), &live, 3, false), Some(TakeoverKind::Orderly));
    }
}
