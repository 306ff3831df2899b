//! Claims of batches in a fleet: each unfinished batch is run by one member, and every commit of the batch requires the
//! claim.
//!
//! The owner of a batch without a holder is the live member with the highest hash of the batch and the member, so that
//! members agree without messages. A batch stays with its holder while the holder is alive. The holder starts lines
//! only if it has read its claims so recently that no other member can have taken them, see [`ClaimCheckState`].

use super::context::BatchContext;
use super::runner::RunnableBatch;
use super::slice_claims::takeover_for_any_member;
use super::{BatchCommand, BatchManager};
use crate::storage::stores::run_blocking;
use parking_lot::Mutex;
use penstock_storage::batches::{
    BatchClaim, BatchRecord, BatchStore, ClaimState, EndRequest, UnfinishedEntry,
};
use penstock_storage::{RowPage, StoreError};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Interval of the reads of the claims and end requests of running batches.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of damaged slices that are logged.
const MAX_LOGGED_SLICES: usize = 1_000;

/// Claim of a running batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldClaim {
    /// Claim as the last commit has written it.
    pub(super) claim: BatchClaim,
    /// Relation to the former holder.
    pub(super) takeover: TakeoverKind,
}

/// Batch or slice whose claim this member has taken.
pub(super) struct ClaimedBatch {
    pub(super) record: BatchRecord,
    pub(super) held: HeldClaim,
    /// Request to end the batch that was made before; then no line may start.
    pub(super) end: Option<EndRequest>,
}

/// Kind of a takeover, by whether the former holder of the batch may still write to its output file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakeoverKind {
    /// Takeover of a batch to whose output file no other process writes: the batch had no holder, or its holder has
    /// released it or ended.
    Orderly,
    /// Takeover from a holder that is declared dead, but may still write to the output file. Therefore the file is
    /// copied.
    Forced,
}

/// State of the claim checks: time of the last check, a signal that starts a search for batches, and logged failures.
#[derive(Debug, Default)]
pub(super) struct ClaimCheckState {
    checked: Mutex<Option<Instant>>,
    /// Wakes the search for batches to claim.
    pub(super) search: Notify,
    /// True while searches for batches fail, so that the failure is logged once.
    is_search_failing: AtomicBool,
    /// Ids of damaged slices that are logged, at most [`MAX_LOGGED_SLICES`].
    damaged_slices: Mutex<HashSet<String>>,
}

impl ClaimCheckState {
    /// Records a damaged slice as logged. Returns true for the first call with an id, for at most
    /// [`MAX_LOGGED_SLICES`] ids.
    pub(super) fn mark_damaged_slice_logged(&self, id: &str) -> bool {
        let mut logged = self.damaged_slices.lock();
        logged.len() < MAX_LOGGED_SLICES && logged.insert(id.to_owned())
    }

    /// Returns true if the claims were read so recently that no other member has taken them. `dead_after` is the time
    /// after which a silent member counts as dead.
    fn is_fresh(&self, now: Instant, dead_after: Duration) -> bool {
        let term = dead_after.saturating_sub(dead_after / 4);
        self.checked.lock().is_some_and(|checked| now.saturating_duration_since(checked) < term)
    }
}

/// Returns the member that runs a batch without a holder; `None` if there is no member.
fn owner_of(id: &str, members: impl Iterator<Item = u32>) -> Option<u32> {
    members.max_by_key(|member| {
        let hash = Sha256::new().chain_update(id).chain_update(member.to_be_bytes()).finalize();
        (<[u8; 32]>::from(hash), *member)
    })
}

/// Returns the kind of takeover by which member `own` may claim a batch that it does not run; `None` if it may not.
/// `is_start` is true until this process has resumed its batches.
fn takeover(
    id: &str,
    claim: Option<&BatchClaim>,
    live: &[u32],
    own: u32,
    is_start: bool,
) -> Option<TakeoverKind> {
    let is_owner = || owner_of(id, live.iter().copied()) == Some(own);
    match claim {
        None => is_owner().then_some(TakeoverKind::Orderly),
        Some(BatchClaim { state: ClaimState::Released, incarnation, .. }) => {
            // A member that released a claim is about to stop, so it does not take the claim again unless it is the
            // only member.
            let others = live.iter().copied().filter(|member| member != incarnation);
            let owner = owner_of(id, others).unwrap_or(*incarnation);
            (owner == own).then_some(TakeoverKind::Orderly)
        }
        // The claim belongs to the previous process of this member, which has ended.
        Some(claim) if claim.incarnation == own && is_start => Some(TakeoverKind::Orderly),
        Some(claim) if claim.incarnation == own => Some(TakeoverKind::Forced),
        Some(claim) if live.contains(&claim.incarnation) => None,
        Some(_) => is_owner().then_some(TakeoverKind::Forced),
    }
}

impl BatchManager {
    /// Returns true if lines of batches may start: this member certainly still holds its claims.
    pub(super) fn still_holds_claims(&self) -> bool {
        let Some(settings) = self.fleet.settings() else { return true };
        self.claims.is_fresh(Instant::now(), settings.claim)
    }

    /// Starts the task that claims batches, and that follows the claims and end requests of running batches until the
    /// gateway stops.
    pub(super) fn start_claim_task(context: &Arc<BatchContext>) {
        let context = context.clone();
        let mut stop = context.batches.stop_signal();
        tokio::spawn(async move {
            loop {
                let is_search_due = tokio::select! {
                    _ = stop.wait_for(|stop| *stop) => return,
                    () = tokio::time::sleep(CHECK_INTERVAL) => false,
                    () = context.batches.claims.search.notified() => true,
                };
                context.batches.check_claims().await;
                if is_search_due {
                    context.batches.log_search(Self::claim_and_run_batches(&context, false).await);
                }
            }
        });
    }

    /// Wakes the search for batches to claim, if the pages of unfinished batches and slices contain one that this
    /// member does not run, or if a page is not the last one.
    pub fn wake_search_if_unclaimed(&self, pages: &[RowPage]) {
        let running = self.running.lock();
        let is_unknown = |entry: UnfinishedEntry| !running.contains_key(entry.id().as_str());
        if pages.iter().any(|page| page.more || BatchStore::parse_unfinished_page(page).any(is_unknown)) {
            self.claims.search.notify_one();
        }
    }

    /// Reads the claims and end requests of the running batches, and informs the batches of changes.
    pub(super) async fn check_claims(&self) {
        let held: Vec<(String, BatchClaim)> = {
            let running = self.running.lock();
            let claims = running.iter().filter_map(|(id, batch)| Some((id.to_string(), batch.claim?)));
            claims.collect()
        };
        let (store, before) = (self.store.clone(), Instant::now());
        let ids: Vec<String> = held.iter().map(|(id, _)| id.clone()).collect();
        let read = match ids.is_empty() {
            true => Ok(Vec::new()),
            false => run_blocking(move || store.coordination(&ids)).await,
        };
        let Ok(rows) = read else { return };
        let running = self.running.lock();
        for ((id, claim), row) in held.iter().zip(rows) {
            let Some(batch) = running.get(id.as_str()) else { continue };
            let command = match (row.claim, row.end) {
                (Some(now), _) if !claim.is_continued_by(&now) => BatchCommand::ClaimLost,
                (None, _) => BatchCommand::ClaimGone,
                (Some(_), Some(end)) => BatchCommand::End(end),
                (Some(_), None) => continue,
            };
            batch.commands.send(command).ok();
        }
        drop(running);
        *self.claims.checked.lock() = Some(before);
    }

    /// Claims the unfinished batches that belong to this member and the slices that it may run, if no live member runs
    /// them, and runs them.
    ///
    /// # Errors
    /// Returns the store's error as text.
    pub(super) async fn claim_and_run_batches(
        context: &Arc<BatchContext>,
        is_start: bool,
    ) -> Result<(), String> {
        let batches = &context.batches;
        // Without the ledger nothing could be committed, so no batch is claimed.
        if *batches.stop.borrow() || context.ledger.is_failing() {
            return Ok(());
        }
        let own = context.clone();
        let take = move || {
            let mut taken = Vec::new();
            let batches = own.batches.take_claims(is_start, &mut taken);
            let slices = own.batches.take_slice_claims(is_start, &mut taken);
            // Even after an error, the batches whose claims were taken have to be run.
            Ok::<_, StoreError>((taken, batches.and(slices)))
        };
        let (taken, found) = run_blocking(take).await?;
        let slices = taken.iter().filter(|claimed| claimed.record.slice.is_some()).count();
        if taken.len() > slices {
            tracing::info!(name: "batches_claimed", count = %(taken.len() - slices));
        }
        if slices > 0 {
            tracing::info!(name: "slices_claimed", count = %slices);
        }
        taken.into_iter().for_each(|claimed| Self::run_claimed(context, claimed));
        found.map_err(|error| error.to_string())
    }

    /// Logs an error of the search for batches, until a search succeeds.
    fn log_search(&self, found: Result<(), String>) {
        let was_failing = self.claims.is_search_failing.swap(found.is_err(), Ordering::Relaxed);
        if let Err(why) = found
            && !was_failing
        {
            tracing::error!(name: "batches_not_claimed", why);
        }
    }

    /// Runs a batch or slice whose claim was taken.
    fn run_claimed(context: &Arc<BatchContext>, ClaimedBatch { record, held, end }: ClaimedBatch) {
        let (batches, id) = (&context.batches, record.id.clone());
        let Some((commands, published)) = batches.register(&record, usize::MAX, Some(held.claim)) else {
            return tracing::error!(name: "batch_registered_twice", batch = id);
        };
        // The runner handles the request before it starts a line.
        if let Some(running) = batches.running.lock().get(id.as_str())
            && let Some(end) = end
        {
            running.commands.send(BatchCommand::End(end)).ok();
        }
        let start = RunnableBatch { record, claim: Some(held) };
        batches.spawn_batch(context, start, commands, published);
    }

    /// Takes the claims of all batches that this member may take, and adds them to `taken`. Blocks.
    fn take_claims(&self, is_start: bool, taken: &mut Vec<ClaimedBatch>) -> Result<(), StoreError> {
        let (live, own, alive) =
            (self.fleet.live_members(), self.fleet.member_number(), self.fleet.commit_fence());
        let [whole, sliced] = self.store.unfinished_whole_and_sliced_ids()?;
        let is_sliced: HashSet<&str> = sliced.iter().map(String::as_str).collect();
        let mut ids = [whole, sliced.clone()].concat();
        {
            let running = self.running.lock();
            ids.retain(|id| !running.contains_key(id.as_str()));
        }
        if ids.is_empty() {
            return Ok(());
        }
        let rows: HashMap<_, _> = ids.iter().zip(self.store.coordination(&ids)?).collect();
        for (id, row) in rows {
            let seen = row.claim.as_ref();
            // The member with the highest hash may run an earlier version, which cannot see a batch in slices. So any
            // member may take such a batch.
            let takeover = match is_sliced.contains(id.as_str()) {
                true => takeover_for_any_member(seen, &live, own, is_start),
                false => takeover(id, seen, &live, own, is_start),
            };
            let Some(takeover) = takeover else { continue };
            let Some(claim) = self.store.take_claim(id, seen, own, alive.as_ref())? else { continue };
            // The record is read after the claim was taken, because no other process can change it from then on.
            if let Some(record) = self.store.get(id)? {
                let held = HeldClaim { claim, takeover };
                taken.push(ClaimedBatch { record, held, end: row.end });
            }
        }
        Ok(())
    }

    /// Releases the claim of a batch that has stopped before its end.
    pub(super) async fn release_claim(&self, id: &str, claim: BatchClaim) {
        let (store, id) = (self.store.clone(), id.to_owned());
        let released = run_blocking(move || store.release_claim(&id, &claim)).await;
        if let Err(why) = released {
            tracing::warn!(name: "batch_not_released", why);
        }
    }

    /// Claims the batches that belong to this member, and runs them. Called at the start of the process, and when its
    /// batches are resumed.
    ///
    /// # Errors
    /// Returns a sentence for the operator if the batches cannot be read.
    pub(super) async fn claim_and_resume_batches(context: &Arc<BatchContext>) -> Result<(), String> {
        let (batches, is_start) = (&context.batches, !context.batches.resumed.load(Ordering::Acquire));
        batches.check_claims().await;
        let own = context.clone();
        let noted = run_blocking(move || Self::cancel_noted_batches(&own)).await;
        noted.map_err(|error| format!("The batches cannot be read: {error}."))?;
        let claimed = Self::claim_and_run_batches(context, is_start).await;
        claimed.map_err(|error| format!("The batches cannot be read: {error}."))?;
        batches.resumed.store(true, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVE: [u32; 3] = [3, 5, 8];

    fn claim(incarnation: u32, state: ClaimState) -> BatchClaim {
        BatchClaim { incarnation, number: 4, commits: 2, state }
    }

    fn takers(id: &str, claim: Option<&BatchClaim>, live: &[u32]) -> Vec<u32> {
        live.iter().copied().filter(|own| takeover(id, claim, live, *own, false).is_some()).collect()
    }

    #[test]
    fn a_batch_without_a_holder_has_one_owner_and_all_members_have_some() {
        let ids: Vec<String> = (0..300).map(|n| format!("batch_{n}")).collect();
        for member in LIVE {
            let own = ids.iter().filter(|id| takers(id, None, &LIVE) == [member]).count();
            assert!((70..130).contains(&own), "{member}: {own}");
        }
        // If a member leaves, its own batches move to other members, and no other batch moves.
        for id in &ids {
            let before = takers(id, None, &LIVE);
            let after = takers(id, None, &LIVE[..2]);
            assert!(after.len() == 1 && (before == [8] || before == after), "{id}");
        }
    }

    #[test]
    fn a_batch_stays_with_its_live_holder() {
        for incarnation in LIVE {
            let held = claim(incarnation, ClaimState::Held);
            let others = LIVE.iter().filter(|own| **own != incarnation);
            for own in others {
                assert_eq!(takeover("batch_1", Some(&held), &LIVE, *own, true), None);
            }
        }
        let dead = claim(4, ClaimState::Held);
        let taken: Vec<_> =
            LIVE.iter().filter_map(|own| takeover("batch_1", Some(&dead), &LIVE, *own, false)).collect();
        assert_eq!(taken, [TakeoverKind::Forced]);
    }

    #[test]
    fn a_released_batch_goes_to_another_member_if_there_is_one() {
        for incarnation in LIVE {
            let released = claim(incarnation, ClaimState::Released);
            let taken = takers("batch_1", Some(&released), &LIVE);
            assert!(taken.len() == 1 && taken != [incarnation], "{taken:?}");
            assert_eq!(takers("batch_1", Some(&released), &[incarnation]), [incarnation]);
        }
    }

    #[test]
    fn a_restarted_member_continues_its_files_and_a_lost_runner_does_not() {
        let held = claim(5, ClaimState::Held);
        assert_eq!(takeover("batch_1", Some(&held), &LIVE, 5, true), Some(TakeoverKind::Orderly));
        assert_eq!(takeover("batch_1", Some(&held), &LIVE, 5, false), Some(TakeoverKind::Forced));
    }

    #[test]
    fn claims_are_trusted_for_less_time_than_others_wait() {
        let (watch, now) = (ClaimCheckState::default(), Instant::now());
        let ttl = Duration::from_secs(20);
        assert!(!watch.is_fresh(now, ttl));
        *watch.checked.lock() = Some(now);
        assert!(watch.is_fresh(now + Duration::from_secs(14), ttl));
        assert!(!watch.is_fresh(now + Duration::from_secs(15), ttl));
    }
}
