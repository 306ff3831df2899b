//! Commit of results: the results are synced to the disk first. Then one store commit writes their charges, the bitmap
//! of finished lines, the batch record and the size of the output, so that these change together or not at all.

use super::api_object;
use super::runner::{BatchEvent, BatchRunner};
use super::scheduler::RunPermit;
use crate::billing::{CommitTooLarge, HoldEnd, MAX_OUTCOMES};
use crate::storage::files::{FileManager, FileOwner, OutputFile};
use penstock_batch::state::EndReason;
use penstock_core::TokenUsage;
use penstock_storage::batches::{self, BatchError};
use penstock_storage::files::{FileRecord, FileStatus, FileStore};
use penstock_storage::ledger::{CounterChange, RowWrite};
use penstock_storage::{StoreError, Transaction, TransactionOp};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Pause after the first disk error; it doubles up to `MAX_RETRY_PAUSE`.
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(500);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(15);

/// Finished line with its result.
pub(super) struct LineOutcome {
    pub(super) index: u32,
    pub(super) succeeded: bool,
    pub(super) end: Option<HoldEnd>,
    pub(super) usage: Option<TokenUsage>,
    pub(super) result: Vec<u8>,
    /// Run permit, held until the commit: a crash repeats at most as many lines as may be in flight.
    pub(super) permit: RunPermit,
}

/// Finished lines that are written together.
#[derive(Default)]
pub(super) struct ResultGroup {
    pub(super) lines: Vec<LineOutcome>,
    pub(super) bytes: Vec<u8>,
    /// True if no further group follows.
    is_last: bool,
}

/// Result of writing a group.
pub(super) struct GroupWriteResult {
    group: ResultGroup,
    /// Changes of the output file.
    written: io::Result<OutputUpdate>,
}

#[derive(Default)]
struct OutputUpdate {
    output: Option<OutputFile>,
    /// Record of the file for the next commit; `None` if nothing was ever written.
    results: Option<FileRecord>,
    /// True if the file is new.
    is_new: bool,
    /// File of a former holder of the batch, which the new file replaces.
    replaced: Option<FileRecord>,
}

/// End of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommitEnd {
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
        if self.pending.lines.is_empty() && !ends {
            return;
        }
        let mut group = self.next_group(MAX_OUTCOMES);
        let last =
            u32::try_from(group.lines.len()).is_ok_and(|lines| lines == self.lifecycle.counts.pending());
        group.is_last = (last && !group.lines.is_empty()) || (ends && self.pending.lines.is_empty());
        self.disk.writing = true;
        let (files, tell) = (self.app.files.clone(), self.events.clone());
        let job = ResultWriteJob {
            output: self.files.output.take(),
            results: self.files.output_record.clone(),
            output_id: self.record.output.clone(),
            damaged: self.shutdown.reason == Some(EndReason::OutputDamaged),
            is_shared: self.may_have_stale_writer(),
            key: self.record.key.clone(),
            account: self.record.account.clone(),
            name: format!("{}_output.jsonl", self.record.id),
            url: self.record.endpoint.clone(),
            now: self.app.clock.calendar_now(),
        };
        tokio::task::spawn_blocking(move || {
            let written = job.write(&files, &group);
            drop(files);
            tell.send(BatchEvent::GroupWritten(Box::new(GroupWriteResult { group, written })))
        });
    }

    /// Commits a group that is on the disk, or schedules it for another try if the write failed.
    pub(super) fn on_written(&mut self, wrote: GroupWriteResult) {
        let GroupWriteResult { group, written } = wrote;
        let OutputUpdate { output, results, is_new: fresh, replaced } = match written {
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
            if self.completed.mark_finished(line.index) && self.lifecycle.finish_line(line.succeeded, now) {
                self.app.metrics.batches.count_line(if line.succeeded { "completed" } else { "failed" });
            }
            if let Some(usage) = line.usage {
                let sum = &mut self.record.usage;
                sum.input = sum.input.saturating_add(usage.input);
                sum.cached = sum.cached.saturating_add(usage.cached);
                sum.output = sum.output.saturating_add(usage.output);
                sum.reasoning = sum.reasoning.saturating_add(usage.reasoning);
            }
            ends.extend(line.end);
            self.committing.push(line.permit);
        }
        if seal && let Some(why) = self.shutdown.reason {
            self.mark_ended(why, now);
        }
        let (mut rows, mut counters) = (Vec::with_capacity(8), Vec::new());
        if let Some(mut results) = results {
            results.lines = self.lifecycle.counts.finished();
            let before = self.record.output_bytes;
            counters = self.app.files.add_bytes(&self.record.key, results.bytes.saturating_sub(before));
            self.record.output = Some(results.id.clone());
            self.record.output_bytes = results.bytes;
            rows.extend(output_rows(&results, fresh));
            self.files.output_record = Some(results);
        }
        if let Some(replaced) = replaced {
            rows.extend(written_rows(&FileStore::remove_operations(&replaced)));
            self.files.replaced = Some(replaced);
        }
        self.commit_rows(ends, rows, counters);
    }

    fn mark_ended(&mut self, why: EndReason, now: u64) {
        if !self.lifecycle.end(why, now) {
            return;
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

    fn commit_rows(&mut self, ends: Vec<HoldEnd>, mut rows: Vec<RowWrite>, counters: Vec<CounterChange>) {
        api_object::store_lifecycle(&mut self.record, &self.lifecycle);
        let others = rows.len();
        match batches::record_rows(&self.record, Some(self.completed.bytes())) {
            Ok(own) => rows.extend(own),
            Err(error) => return self.commit_failed(&error.to_string()),
        }
        if let Err(CommitTooLarge(ends, mut rows)) = self.commit_outcomes(ends, rows, counters.clone()) {
            rows.truncate(others);
            self.commit_reduced(ends, rows, counters);
        }
    }

    /// Commits after a record that exceeds the size of a commit, which should not happen. All charges are written,
    /// and the batch ends without its metadata.
    fn commit_reduced(&mut self, ends: Vec<HoldEnd>, mut rows: Vec<RowWrite>, counters: Vec<CounterChange>) {
        tracing::error!(name: "batch_too_large", batch = self.record.id);
        self.record.model = None;
        self.record.metadata.clear();
        rows.retain(RowWrite::is_within_limits);
        rows.extend(batches::record_rows(&self.record, Some(self.completed.bytes())).unwrap_or_default());
        if self.commit_outcomes(ends, rows, counters).is_err() {
            return self.commit_failed("more than one commit can hold");
        }
        self.end_with(EndReason::InvalidInput);
    }

    /// Logs a failed commit. The next start of the batch continues from the last successful commit.
    fn commit_failed(&self, why: &str) {
        tracing::error!(name: "batch_not_kept", batch = self.record.id, why);
        self.events.send(BatchEvent::Committed(CommitEnd::Failed)).ok();
    }

    /// Queues a group again after a disk error; no new line starts until the group is written.
    fn requeue_group(&mut self, group: ResultGroup, error: &io::Error) {
        self.disk.writing = false;
        let lost = matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::NotFound);
        if lost && self.record.output.is_some() {
            // Results that cannot be delivered are not charged: dropping the `end` of a line voids its reserve.
            self.pending.lines.clear();
            self.pending.bytes = 0;
            self.end_with(EndReason::OutputDamaged);
            self.shutdown.reason = Some(EndReason::OutputDamaged);
            return;
        }
        if self.disk.failures == 0 {
            let why = error.kind().to_string();
            tracing::error!(name: "batch_not_written", batch = self.record.id, why);
        }
        for line in group.lines.into_iter().rev() {
            self.pending.bytes += line.result.len();
            self.pending.lines.push_front(line);
        }
        self.back_off();
    }

    /// Pauses disk access after an error.
    pub(super) fn back_off(&mut self) {
        let pause = FIRST_RETRY_PAUSE.saturating_mul(1 << self.disk.failures.min(8)).min(MAX_RETRY_PAUSE);
        self.disk.failures = self.disk.failures.saturating_add(1);
        self.disk.retry_at = Some(Instant::now() + pause);
    }
}

/// Write of a group to the disk.
struct ResultWriteJob {
    output: Option<OutputFile>,
    results: Option<FileRecord>,
    /// ID of the output file, if it exists but was not opened since the start.
    output_id: Option<String>,
    /// True if the file must not be changed.
    damaged: bool,
    /// True if a former holder of the batch may still write to the file, which is therefore replaced by a copy.
    is_shared: bool,
    key: String,
    account: String,
    name: String,
    url: String,
    now: Duration,
}

impl ResultWriteJob {
    /// Writes and syncs the group. Blocks.
    fn write(self, files: &Arc<FileManager>, group: &ResultGroup) -> io::Result<OutputUpdate> {
        let nothing = || Ok(OutputUpdate::default());
        if self.damaged {
            let known = self.output_id.and_then(|id| files.record_store().get(&id).ok().flatten());
            let results = known.map(|record| FileRecord {
                status: FileStatus::Error,
                finished_at: Some(self.now.as_secs()),
                status_details: Some(EndReason::OutputDamaged.sentence().to_owned()),
                ..record
            });
            return Ok(OutputUpdate { results, ..OutputUpdate::default() });
        }
        let known = match (self.results, self.output_id) {
            (None, Some(id)) => {
                files.record_store().get(&id).map_err(|error| io::Error::other(error.to_string()))?
            }
            (results, _) => results,
        };
        let replaced = known.as_ref().filter(|_| self.is_shared).cloned();
        let (record, fresh) = match known {
            Some(record) if self.is_shared => (files.copy_output(&record, self.now)?, true),
            Some(record) => (record, false),
            None if group.bytes.is_empty() => return nothing(),
            None => {
                let owner = FileOwner { key: &self.key, account: &self.account };
                (files.new_output(owner, self.name, &self.url, self.now)?, true)
            }
        };
        let written = append_group(files, self.output, &record, group, self.now);
        if fresh && written.is_err() {
            // The next try creates another file.
            std::fs::remove_file(files.path(&record.id)).ok();
        }
        let (output, results) = written?;
        Ok(OutputUpdate { output, results: Some(results), is_new: fresh, replaced })
    }
}

/// Appends a group. After an error the next try opens the file again and truncates a partial write.
fn append_group(
    files: &FileManager,
    open: Option<OutputFile>,
    record: &FileRecord,
    group: &ResultGroup,
    now: Duration,
) -> io::Result<(Option<OutputFile>, FileRecord)> {
    let mut output = match open {
        Some(output) if output.len() == record.bytes => output,
        _ => files.open_output(record)?,
    };
    output.append(&group.bytes)?;
    if group.is_last {
        return Ok((None, output.seal(record, now)?));
    }
    output.sync()?;
    let results = output.updated_record(record);
    Ok((Some(output), results))
}

/// Rows of the output file; for a new file also its index rows.
fn output_rows(results: &FileRecord, fresh: bool) -> Vec<RowWrite> {
    if !fresh {
        let row = FileStore::record_row(results);
        return row
            .into_iter()
            .map(|(space, key, value)| RowWrite { table: space, key, value: Some(value) })
            .collect();
    }
    let steps: Result<Transaction, StoreError> = FileStore::insert_operations(results);
    steps.iter().flat_map(written_rows).collect()
}

/// Rows that a transaction writes, without its preconditions: the file is new, or no other gateway changes it.
fn written_rows(transaction: &Transaction) -> Vec<RowWrite> {
    let operations = transaction.operations().iter();
    let rows = operations.filter_map(|operation| match &operation.op {
        TransactionOp::Put(value) => Some((operation, Some(value.clone()))),
        TransactionOp::Delete => Some((operation, None)),
        TransactionOp::Absent
        | TransactionOp::Present
        | TransactionOp::Equals(_)
        | TransactionOp::Add { .. }
        | TransactionOp::AddAmounts(_) => None,
    });
    rows.map(|(operation, value)| RowWrite { table: operation.table, key: operation.key.clone(), value })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_storage::batches::BatchRecord;

    #[test]
    fn the_largest_record_that_a_client_can_ask_for_is_one_row() {
        // A control character takes six bytes.
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
        let rows = batches::record_rows(&record, Some(&vec![0; 50_000 / 8])).unwrap_or_default();
        assert!(rows.len() == 2 && rows.iter().all(RowWrite::is_within_limits));
    }
}
