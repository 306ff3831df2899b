//! Input of a running batch: opens its files and prefetches its lines. Files that are temporarily unreadable are opened
//! again later; a missing or invalid file ends the batch.

use super::carbon_schedule;
use super::input::PendingLine;
use super::open_files::{self, OpenedBatch, OpenedResults};
use super::runner::{BatchEvent, BatchRunner};
use penstock_batch::completion_bitmap::CompletionBitmap;
use penstock_batch::state::{EarlyEndReason, LifecycleState, LineCounts};
use std::io::ErrorKind;

/// Number of prefetched lines below which more are read.
const MIN_PREFETCHED: usize = 128;

impl BatchRunner {
    /// Opens the files of the batch, unless they are already open or another read is in progress.
    pub(super) fn open_files(&mut self) {
        if self.files.input.is_none() && !self.disk.reading {
            self.disk.reading = true;
            let (context, record, tell) = (self.app.clone(), self.record.clone(), self.events.clone());
            let may_have_stale_writer = self.may_have_stale_writer();
            tokio::task::spawn_blocking(move || {
                let opened = open_files::open_batch(&context, &record, may_have_stale_writer);
                // The shared state is dropped before the event is sent, so that no task of the batch holds it after the
                // batch has ended.
                drop(context);
                tell.send(match opened {
                    Ok(opened) => BatchEvent::FilesOpened(Box::new(opened)),
                    Err(error) => BatchEvent::OpenFailed(error.kind()),
                })
            });
        }
    }

    /// Reads the next input lines, unless enough are prefetched or too many wait for a retry.
    pub(super) fn prefetch_lines(&mut self) {
        let enough = self.prefetched.lines.len() >= MIN_PREFETCHED
            || self.prefetched.bytes >= self.memory_limits.prefetch_bytes / 2;
        if self.disk.reading || enough || self.retries.is_full() {
            return;
        }
        let Some(mut input) = self.files.input.take_if(|input| !input.at_end) else { return };
        self.disk.reading = true;
        let (done, tell, most) =
            (self.finished_lines.clone(), self.events.clone(), self.memory_limits.prefetch_bytes);
        tokio::task::spawn_blocking(move || {
            let read = input.read_pending_lines(&done, most);
            tell.send(BatchEvent::LinesRead(input, read))
        });
    }

    /// Handles the opened files: continues from their results with the first lines.
    pub(super) fn on_files_opened(&mut self, opened: OpenedBatch) {
        self.disk.reading = false;
        let OpenedBatch { mut input, first_lines: first, input_record: file, results } = opened;
        let model = input.model.take();
        self.files.input = Some(input);
        if self.record.slice.is_some() {
            // The record of a slice is not stored. Its failed lines are counted in the record of the batch.
            let completed = results.finished_lines.finished_count();
            self.lifecycle.counts = LineCounts { completed, failed: 0, ..self.lifecycle.counts };
        }
        self.set_opened_results(results);
        self.disk.retry_at = None;
        if self.shutdown.reason.is_some() {
            return;
        }
        if self.lifecycle.state == LifecycleState::Validating {
            if file.lines == 0 {
                return self.end_early(EarlyEndReason::InvalidInput);
            }
            self.record.model = model;
            self.finished_lines = CompletionBitmap::with_line_count(file.lines);
            let clock = self.app.clock;
            self.lifecycle.start(file.lines, clock.unix_seconds());
            let plan = carbon_schedule::plan_batch_start(
                &self.app.config_snapshot(),
                &self.record,
                file.lines,
                clock,
            );
            self.record.scheduled = plan.map(|plan| plan.start);
            self.commit_record();
        }
        self.add_prefetched(first);
    }

    /// Sets the finished lines and the output file to those of the opened results.
    pub(super) fn set_opened_results(&mut self, results: OpenedResults) {
        self.finished_lines = results.finished_lines;
        if let Some((output, record)) = results.output {
            self.files.output = Some(output);
            self.files.output_record = Some(record);
        }
    }

    pub(super) fn add_prefetched(&mut self, lines: Vec<PendingLine>) {
        self.prefetched.bytes += lines.iter().map(|line| line.body.len()).sum::<usize>();
        self.prefetched.lines.extend(lines);
    }

    /// Handles a failure to open or read files: ends the batch, or pauses disk access if the error may be temporary.
    pub(super) fn on_open_failed(&mut self, kind: ErrorKind) {
        self.disk.reading = false;
        match kind {
            ErrorKind::NotFound => self.end_early(EarlyEndReason::InputDeleted),
            ErrorKind::InvalidData => self.end_early(EarlyEndReason::InvalidInput),
            // Only `open_batch` returns this kind: the output file is missing, damaged or smaller than its committed
            // size.
            ErrorKind::UnexpectedEof => self.end_early(EarlyEndReason::OutputDamaged),
            kind => {
                let why = kind.to_string();
                tracing::error!(name: "batch_not_read", batch = self.record.id, why);
                self.pause_disk_access();
            }
        }
    }
}
