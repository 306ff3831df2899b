//! Commit of results: the results are synced to the disk first. Then one store commit writes their charges, the bitmap
//! of finished lines, the batch record and the size of the output, so that these change together or not at all.

use super::api_object;
use super::result_write::{OutputUpdate, ResultWriteJob, output_file_rows, rows_of_transaction};
use super::runner::{BatchEvent, BatchRunner};
use super::scheduler::RunPermit;
use super::slice_result::to_slice_end;
use crate::billing::{CommitTooLarge, HoldEnd, MAX_OUTCOMES};
use crate::storage::files::FileOwner;
use penstock_batch::state::EarlyEndReason;
use penstock_core::TokenUsage;
use penstock_storage::batches::{self, BatchError};
use penstock_storage::files::FileStore;
use penstock_storage::ledger::{CounterDelta, RowWrite};
use std::io;
use std::time::Duration;
use tokio::time::Instant;

/// Pause after the first disk error; it doubles up to `MAX_RETRY_PAUSE`.
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(500);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(15);
/// Time for which a result of a slice may wait for others, so that there are few segments to append.
const GROUP_WAIT: Duration = Duration::from_millis(250);

/// Finished line with its result.
pub(super) struct LineOutcome {
    pub(super) index: u32,
    pub(super) succeeded: bool,
    pub(super) hold_end: Option<HoldEnd>,
    pub(super) usage: Option<TokenUsage>,
    pub(super) result: Vec<u8>,
    /// Run permit, held until the commit. So after a crash, at most as many lines are sent again as may be in flight.
    /// `None` for a line that a slice has committed.
    pub(super) permit: Option<RunPermit>,
}

/// Finished lines that are written together.
#[derive(Default)]
pub(super) struct ResultGroup {
    pub(super) lines: Vec<LineOutcome>,
    pub(super) bytes: Vec<u8>,
    /// True if no further group follows.
    pub(super) is_last: bool,
}

/// Result of writing a group.
pub(super) struct GroupWriteResult {
    group: ResultGroup,
    /// Changes of the output file.
    written: io::Result<OutputUpdate>,
}

/// End of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchCommitOutcome {
    /// Commit that is durable.
    Durable,
    /// Commit that was refused, because another gateway of the fleet has claimed the batch.
    ClaimLost,
    /// Commit that will never be written.
    Failed,
}

impl BatchRunner {
    /// Starts writing the next group, if there is one and no write is in flight.
    pub(super) fn start_next_write(&mut self) {
        if self.disk.writing || self.lifecycle.state.is_final() {
            return;
        }
        let ends = self.shutdown.reason.is_some() && self.is_idle();
        let is_empty = self.pending.lines.is_empty() && self.merge.segments.is_empty();
        if (is_empty && !ends) || self.next_group_deadline().is_some() {
            return;
        }
        let mut group = self.next_group(MAX_OUTCOMES);
        let last = u32::try_from(group.lines.len())
            .is_ok_and(|lines| lines == self.lifecycle.counts.pending_count());
        group.is_last = (last && !group.lines.is_empty()) || (ends && self.pending.lines.is_empty());
        self.disk.writing = true;
        let (files, tell) = (self.app.files.clone(), self.events.clone());
        let job = ResultWriteJob {
            output: self.files.output.take(),
            output_record: self.files.output_record.clone(),
            output_id: self.record.output.clone(),
            damaged: self.shutdown.reason == Some(EarlyEndReason::OutputDamaged),
            is_shared: self.may_have_stale_writer(),
            slice: self.record.slice,
            key: self.record.key.clone(),
            account: self.record.account.clone(),
            name: format!("{}_output.jsonl", self.record.id.replace('/', "_")),
            url: self.record.endpoint.clone(),
            now: self.app.clock.calendar_now(),
        };
        tokio::task::spawn_blocking(move || {
            let written = job.write(&files, &group);
            drop(files);
            tell.send(BatchEvent::GroupWritten(Box::new(GroupWriteResult { group, written })))
        });
    }

    /// Returns the time until which the results of a slice wait for more results; `None` if they should be written now.
    /// Results hold run permits, so they are written at once if there are more of them than lines in flight.
    pub(super) fn next_group_deadline(&self) -> Option<Instant> {
        let is_ending = self.shutdown.reason.is_some() || self.shutdown.is_stopping();
        let (lines, most) = (self.pending.lines.len(), self.memory_limits.max_results.min(MAX_OUTCOMES));
        let is_full = lines > self.in_flight.lines
            || lines >= most
            || self.pending.bytes >= self.memory_limits.group_bytes;
        if self.record.slice.is_none() || is_ending || is_full {
            return None;
        }
        self.pending.since.map(|since| since + GROUP_WAIT).filter(|due| Instant::now() < *due)
    }

    fn next_group(&mut self, max_lines: usize) -> ResultGroup {
        let mut group = ResultGroup::default();
        // Segments of slices are not split, so the byte limit does not apply to them. The number of segments per read
        // is limited instead.
        let max_bytes =
            if self.record.slices.is_some() { usize::MAX } else { self.memory_limits.group_bytes };
        while group.lines.len() < max_lines && group.bytes.len() <= max_bytes {
            let Some(finished) = self.pending.lines.pop_front() else { break };
            self.pending.bytes = self.pending.bytes.saturating_sub(finished.result.len());
            group.bytes.extend_from_slice(&finished.result);
            group.lines.push(finished);
        }
        if self.pending.lines.is_empty() {
            self.pending.since = None;
        }
        group
    }

    /// Commits a group that is on the disk, or schedules it for another try if the write failed.
    pub(super) fn on_group_written(&mut self, wrote: GroupWriteResult) {
        let GroupWriteResult { group, written } = wrote;
        let OutputUpdate { output, output_record: results, is_new: fresh, replaced, segment } = match written
        {
            Ok(written) => written,
            Err(error) => return self.requeue_group(group, &error),
        };
        self.disk.failures = 0;
        self.disk.retry_at = None;
        self.files.output = output;
        let now = self.app.clock.unix_seconds();
        let (seal, mut ends) = (group.is_last, Vec::with_capacity(group.lines.len()));
        self.funds.on_ended(group.lines.len());
        for line in group.lines {
            // A line is counted once, even if its end is reported twice.
            if self.finished_lines.mark_finished(line.index)
                && self.lifecycle.finish_line(line.succeeded, now)
                && self.record.slices.is_none()
            {
                self.app.metrics.batches.count_line(if line.succeeded { "completed" } else { "failed" });
            }
            if let Some(usage) = &line.usage {
                self.record.usage.add(usage);
            }
            ends.extend(line.hold_end);
            self.committing.extend(line.permit);
        }
        if seal && let Some(why) = self.shutdown.reason {
            self.mark_ended(why, now);
        }
        let (mut rows, mut growth) = (Vec::with_capacity(8), 0);
        if let Some(mut results) = results {
            results.lines = self.lifecycle.counts.finished_count();
            let before = self.record.output_bytes;
            growth = i64::try_from(results.bytes.saturating_sub(before)).unwrap_or(i64::MAX);
            self.record.output = Some(results.id.clone());
            self.record.output_bytes = results.bytes;
            rows.extend(output_file_rows(&results, fresh));
            self.files.output_record = Some(results);
        }
        if let Some(replaced) = replaced {
            rows.extend(rows_of_transaction(&FileStore::remove_operations(&replaced)));
            self.files.replaced = Some(replaced);
        }
        growth += self.add_segment_row_writes(segment.as_ref(), &mut rows);
        let owner = FileOwner { key: &self.record.key, account: &self.record.account };
        let counters = if growth == 0 { Vec::new() } else { self.app.files.add_used_bytes(owner, growth) };
        self.commit_rows(ends, rows, counters);
    }

    fn mark_ended(&mut self, why: EarlyEndReason, now: u64) {
        if !self.lifecycle.end_early(why, now) {
            return;
        }
        if let Some(slice) = &mut self.record.slice {
            slice.end = Some(to_slice_end(why));
        }
        if let Some(code) = why.code() {
            let message = why.sentence().to_owned();
            self.record.errors.push(BatchError { code: code.to_owned(), message, line: None, param: None });
        }
    }

    /// Commits the batch record alone.
    pub(super) fn commit_record(&mut self) {
        self.disk.writing = true;
        self.commit_rows(Vec::new(), Vec::new(), Vec::new());
    }

    /// Ends the reservation of a line that has no result.
    pub(super) fn void_line(&mut self, end: Option<HoldEnd>) {
        self.funds.on_ended(1);
        if let Some(end) = end {
            self.app.ledger.record_outcomes(vec![end], Vec::new()).ok();
        }
    }

    /// Commits ends of reserves, rows and counters together with the batch record and its line bitmap.
    pub(super) fn commit_rows(
        &mut self,
        ends: Vec<HoldEnd>,
        mut rows: Vec<RowWrite>,
        counters: Vec<CounterDelta>,
    ) {
        api_object::write_lifecycle_to_record(&mut self.record, &self.lifecycle);
        let others = rows.len();
        match batches::batch_row_writes(&self.record, Some(self.finished_lines.bytes())) {
            Ok(own) => rows.extend(own),
            Err(error) => return self.commit_failed(&error.to_string()),
        }
        if let Err(CommitTooLarge(ends, mut rows)) = self.commit_outcomes(ends, rows, counters.clone()) {
            rows.truncate(others);
            self.commit_reduced(ends, rows, counters);
        }
    }

    /// Commits the record without its model and metadata, because with them it exceeds the size of a commit, which
    /// should not happen. All charges are written, and the batch ends.
    fn commit_reduced(&mut self, ends: Vec<HoldEnd>, mut rows: Vec<RowWrite>, counters: Vec<CounterDelta>) {
        tracing::error!(name: "batch_too_large", batch = self.record.id);
        self.record.model = None;
        self.record.metadata.clear();
        rows.retain(RowWrite::is_within_limits);
        rows.extend(
            batches::batch_row_writes(&self.record, Some(self.finished_lines.bytes())).unwrap_or_default(),
        );
        if self.commit_outcomes(ends, rows, counters).is_err() {
            return self.commit_failed("more than one commit can hold");
        }
        self.end_early(EarlyEndReason::InvalidInput);
    }

    /// Logs a failed commit, and ends the run of the batch. The next start of the batch continues from the last
    /// successful commit.
    fn commit_failed(&self, why: &str) {
        tracing::error!(name: "batch_results_not_committed", batch = self.record.id, why);
        self.events.send(BatchEvent::Committed(BatchCommitOutcome::Failed)).ok();
    }

    /// Queues a group again after a disk error; no new line starts until the group is written. If the output file is
    /// missing or damaged, drops all results instead and ends the batch.
    fn requeue_group(&mut self, group: ResultGroup, error: &io::Error) {
        self.disk.writing = false;
        let lost = matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::NotFound);
        if lost && self.record.output.is_some() {
            // Results that cannot be delivered are not charged: dropping the `hold_end` of a line voids its reserve.
            self.pending.lines.clear();
            self.pending.bytes = 0;
            self.merge.segments.clear();
            self.end_early(EarlyEndReason::OutputDamaged);
            self.shutdown.reason = Some(EarlyEndReason::OutputDamaged);
            return;
        }
        if self.disk.failures == 0 {
            let why = describe_commit_failure(error.kind());
            tracing::error!(name: "batch_not_written", batch = self.record.id, why);
        }
        for line in group.lines.into_iter().rev() {
            self.pending.bytes += line.result.len();
            self.pending.lines.push_front(line);
        }
        self.pause_disk_access();
    }

    /// Pauses disk access after an error.
    pub(super) fn pause_disk_access(&mut self) {
        let pause = FIRST_RETRY_PAUSE.saturating_mul(1 << self.disk.failures.min(8)).min(MAX_RETRY_PAUSE);
        self.disk.failures = self.disk.failures.saturating_add(1);
        self.disk.retry_at = Some(Instant::now() + pause);
    }
}

/// Describes a failed commit for the log: what failed, what it means, and what to do.
fn describe_commit_failure(kind: io::ErrorKind) -> String {
    let cause = match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "there is no space left for results; free some on the disk of `files.path` or in the bucket"
                .to_owned()
        }
        kind => format!("results cannot be written ({kind}); check the disk of `files.path`, or the bucket"),
    };
    format!("{cause}. The batch waits, charges nothing meanwhile, and goes on by itself")
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_storage::batches::BatchRecord;

    #[test]
    fn the_largest_record_that_a_client_can_ask_for_is_one_row() {
        // In JSON, a control character takes six bytes.
        let text = |letters: usize| "\u{1}".repeat(letters);
        let record = BatchRecord {
            id: text(64),
            key: text(16),
            account: text(200),
            input: text(64),
            output: Some(text(64)),
            window: text(7),
            metadata: vec![(text(64), text(512)); 16],
            model: Some(text(256)),
            errors: vec![BatchError { code: text(32), message: text(128), line: None, param: None }],
            ..BatchRecord::default()
        };
        let rows = batches::batch_row_writes(&record, Some(&vec![0; 50_000 / 8])).unwrap_or_default();
        assert!(rows.len() == 2 && rows.iter().all(RowWrite::is_within_limits));
    }
}
