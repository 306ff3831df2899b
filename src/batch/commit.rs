//! Commit of results: first they are synced to the disk, then one store commit writes their charges, the bitmap of
//! finished lines, the batch record and the size of the output. So all of these change together or not at all.

use super::api_object;
use super::runner::{Event, Work};
use super::scheduler::Turn;
use crate::billing::{Ending, MOST_ENDS, TooMuch};
use crate::storage::files::{Files, Output, Owner};
use crate::telemetry::log;
use penstock_batch::state::EndReason;
use penstock_contract::Usage;
use penstock_storage::batches::{self, BatchError};
use penstock_storage::files::{FileRecord, FileStatus, FileStore};
use penstock_storage::ledger::RowWrite;
use penstock_storage::{StoreError, Transaction, TransactionOp};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Pause after the first disk error; it doubles up to `LONGEST_REST`.
const REST: Duration = Duration::from_millis(500);
const LONGEST_REST: Duration = Duration::from_secs(15);

/// Finished line with its result.
pub(super) struct Finished {
    pub(super) index: u32,
    pub(super) good: bool,
    pub(super) end: Option<Ending>,
    pub(super) usage: Option<Usage>,
    pub(super) text: Vec<u8>,
    /// Run permit, held until the commit: a crash repeats at most as many lines as may be in flight.
    pub(super) turn: Turn,
}

/// Finished lines that are written together.
#[derive(Default)]
pub(super) struct Group {
    pub(super) lines: Vec<Finished>,
    pub(super) bytes: Vec<u8>,
    /// True if no further group follows.
    seal: bool,
}

/// Result of writing a group.
pub(super) struct Wrote {
    group: Group,
    /// File that was written to, for the next append; `None` once it is sealed.
    written: io::Result<Written>,
}

struct Written {
    output: Option<Output>,
    /// Record of the file for the next commit; `None` if nothing was ever written.
    results: Option<FileRecord>,
    /// True if the file is new.
    fresh: bool,
}

impl Work {
    /// Starts writing the next group, if there is one and no write is in flight.
    pub(super) fn commit(&mut self) {
        if self.disk.writing || self.life.state.is_final() {
            return;
        }
        let ends = self.exit.why.is_some() && self.is_idle();
        if self.unwritten.lines.is_empty() && !ends {
            return;
        }
        let mut group = self.group(MOST_ENDS);
        let last = u32::try_from(group.lines.len()).is_ok_and(|lines| lines == self.life.counts.left());
        group.seal = (last && !group.lines.is_empty()) || (ends && self.unwritten.lines.is_empty());
        self.disk.writing = true;
        let (files, tell) = (self.house.files.clone(), self.tell.clone());
        let job = Job {
            output: self.files.output.take(),
            results: self.files.results.clone(),
            known: self.record.output.clone(),
            damaged: self.exit.why == Some(EndReason::OutputDamaged),
            key: self.record.key.clone(),
            account: self.record.account.clone(),
            name: format!("{}_output.jsonl", self.record.id),
            url: self.record.endpoint.clone(),
            now: self.house.clock.date(),
        };
        tokio::task::spawn_blocking(move || {
            let written = job.write(&files, &group);
            drop(files);
            tell.send(Event::Wrote(Box::new(Wrote { group, written })))
        });
    }

    /// Commits a group that is on the disk, or schedules it for another try if the write failed.
    pub(super) fn wrote(&mut self, wrote: Wrote) {
        let Wrote { group, written } = wrote;
        let Written { output, results, fresh } = match written {
            Ok(written) => written,
            Err(error) => return self.unwritten(group, &error),
        };
        self.disk.failures = 0;
        self.disk.rest_until = None;
        self.files.output = output;
        let now = self.house.clock.unix();
        let (seal, mut ends) = (group.seal, Vec::with_capacity(group.lines.len()));
        self.short.freed(group.lines.len());
        for line in group.lines {
            // A line is counted once, even if it is reported twice.
            if self.done.mark_finished(line.index) && self.life.finish_line(line.good, now) {
                self.house.metrics.batches.line(if line.good { "completed" } else { "failed" });
            }
            if let Some(usage) = line.usage {
                let sum = &mut self.record.usage;
                sum.input = sum.input.saturating_add(usage.input);
                sum.cached = sum.cached.saturating_add(usage.cached);
                sum.output = sum.output.saturating_add(usage.output);
                sum.reasoning = sum.reasoning.saturating_add(usage.reasoning);
            }
            ends.extend(line.end);
            self.kept_soon.push(line.turn);
        }
        if seal && let Some(why) = self.exit.why {
            self.ended(why, now);
        }
        let mut rows = Vec::with_capacity(6);
        if let Some(mut results) = results {
            results.lines = self.life.counts.finished();
            let before = self.record.output_bytes;
            self.house.files.grown(&self.record.key, results.bytes.saturating_sub(before));
            self.record.output = Some(results.id.clone());
            self.record.output_bytes = results.bytes;
            rows.extend(file_rows(&results, fresh));
            self.files.results = Some(results);
        }
        self.enter(ends, rows);
    }

    fn ended(&mut self, why: EndReason, now: u64) {
        if !self.life.end(why, now) {
            return;
        }
        if let Some(code) = why.code() {
            let message = why.sentence().to_owned();
            self.record.errors.push(BatchError { code: code.to_owned(), message, line: None, param: None });
        }
    }

    /// Commits the batch record alone.
    pub(super) fn keep_row(&mut self) {
        self.disk.writing = true;
        self.enter(Vec::new(), Vec::new());
    }

    /// Ends the reservation of a line that has no result.
    pub(super) fn void(&mut self, end: Option<Ending>) {
        self.short.freed(1);
        if let Some(end) = end {
            self.house.ledger.enter(vec![end], Vec::new()).ok();
        }
    }

    fn enter(&mut self, ends: Vec<Ending>, mut rows: Vec<RowWrite>) {
        api_object::keep(&mut self.record, &self.life);
        let others = rows.len();
        match batches::record_rows(&self.record, Some(self.done.bytes())) {
            Ok(own) => rows.extend(own),
            Err(error) => return self.impossible(&error.to_string()),
        }
        match self.house.ledger.enter(ends, rows) {
            Ok(ticket) => self.entered(ticket),
            Err(TooMuch(ends, mut rows)) => {
                rows.truncate(others);
                self.enter_less(ends, rows);
            }
        }
    }

    fn entered(&self, ticket: u64) {
        let (house, tell) = (self.house.clone(), self.tell.clone());
        tokio::spawn(async move {
            let kept = house.ledger.kept(ticket).await;
            drop(house);
            tell.send(Event::Kept(kept)).ok();
        });
    }

    /// Commits after a record that exceeds the size of a commit, which should not happen. All charges are written,
    /// and the batch ends without its metadata.
    fn enter_less(&mut self, ends: Vec<Ending>, mut rows: Vec<RowWrite>) {
        log::event(log::error(), "batch_too_large", &[("batch", &self.record.id)]);
        self.record.model = None;
        self.record.metadata.clear();
        rows.retain(RowWrite::is_within_limits);
        rows.extend(batches::record_rows(&self.record, Some(self.done.bytes())).unwrap_or_default());
        match self.house.ledger.enter(ends, rows) {
            Ok(ticket) => self.entered(ticket),
            Err(_) => return self.impossible("more than one commit can hold"),
        }
        self.end(EndReason::Invalid);
    }

    /// Reports a failed commit. The next start continues from the last successful one.
    fn impossible(&self, why: &str) {
        log::event(log::error(), "batch_not_kept", &[("batch", &self.record.id), ("why", why)]);
        self.tell.send(Event::Kept(false)).ok();
    }

    /// Queues a group again after a disk error; no new line starts until it is written.
    fn unwritten(&mut self, group: Group, error: &io::Error) {
        self.disk.writing = false;
        let lost = matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::NotFound);
        if lost && self.record.output.is_some() {
            // Results that cannot be delivered are not charged: dropping its end voids a line.
            self.unwritten.lines.clear();
            self.unwritten.bytes = 0;
            self.end(EndReason::OutputDamaged);
            self.exit.why = Some(EndReason::OutputDamaged);
            return;
        }
        if self.disk.failures == 0 {
            let why = error.kind().to_string();
            log::event(log::error(), "batch_not_written", &[("batch", &self.record.id), ("why", &why)]);
        }
        for line in group.lines.into_iter().rev() {
            self.unwritten.bytes += line.text.len();
            self.unwritten.lines.push_front(line);
        }
        self.rest();
    }

    /// Pauses disk access after an error.
    pub(super) fn rest(&mut self) {
        let pause = REST.saturating_mul(1 << self.disk.failures.min(8)).min(LONGEST_REST);
        self.disk.failures = self.disk.failures.saturating_add(1);
        self.disk.rest_until = Some(Instant::now() + pause);
    }
}

/// Write of a group to the disk.
struct Job {
    output: Option<Output>,
    results: Option<FileRecord>,
    /// ID of the output file, if it exists but was not opened since the start.
    known: Option<String>,
    /// True if the file must not be changed.
    damaged: bool,
    key: String,
    account: String,
    name: String,
    url: String,
    now: Duration,
}

impl Job {
    /// Writes and syncs the group. Blocks.
    fn write(self, files: &Arc<Files>, group: &Group) -> io::Result<Written> {
        let nothing = || Ok(Written { output: None, results: None, fresh: false });
        if self.damaged {
            let known = self.known.and_then(|id| files.store().get(&id).ok().flatten());
            let results = known.map(|record| FileRecord {
                status: FileStatus::Error,
                finished_at: Some(self.now.as_secs()),
                status_details: Some(EndReason::OutputDamaged.sentence().to_owned()),
                ..record
            });
            return Ok(Written { output: None, results, fresh: false });
        }
        let known = match (self.results, self.known) {
            (None, Some(id)) => {
                files.store().get(&id).map_err(|error| io::Error::other(error.to_string()))?
            }
            (results, _) => results,
        };
        let (record, fresh) = match known {
            Some(record) => (record, false),
            None if group.bytes.is_empty() => return nothing(),
            None => {
                let owner = Owner { key: &self.key, account: &self.account };
                (files.new_output(owner, self.name, &self.url, self.now)?, true)
            }
        };
        let written = grow(files, self.output, &record, group, self.now);
        if fresh && written.is_err() {
            // The next try creates another file.
            std::fs::remove_file(files.path(&record.id)).ok();
        }
        let (output, results) = written?;
        Ok(Written { output, results: Some(results), fresh })
    }
}

/// Appends a group. After an error the next try opens the file again and truncates a partial write.
fn grow(
    files: &Files,
    open: Option<Output>,
    record: &FileRecord,
    group: &Group,
    now: Duration,
) -> io::Result<(Option<Output>, FileRecord)> {
    let mut output = match open {
        Some(output) if output.len() == record.bytes => output,
        _ => files.open_output(record)?,
    };
    output.append(&group.bytes)?;
    if group.seal {
        return Ok((None, output.seal(record, now)?));
    }
    output.sync()?;
    let results = output.counted(record);
    Ok((Some(output), results))
}

/// Rows of the output file; for a new file also its index rows.
fn file_rows(results: &FileRecord, fresh: bool) -> Vec<RowWrite> {
    if !fresh {
        let row = FileStore::record_row(results);
        return row
            .into_iter()
            .map(|(space, key, value)| RowWrite { table: space, key, value: Some(value) })
            .collect();
    }
    let steps: Result<Transaction, StoreError> = FileStore::insert_operations(results);
    let operations = steps.iter().flat_map(Transaction::operations);
    // The ID is new, so the precondition against an existing file is not needed.
    let rows = operations.filter_map(|operation| match &operation.op {
        TransactionOp::Put(value) => Some((operation, Some(value.clone()))),
        TransactionOp::Delete => Some((operation, None)),
        TransactionOp::Absent | TransactionOp::Present | TransactionOp::Equals(_) => None,
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
