//! Division of a large batch of a fleet into slices, before its first line starts. The member that claimed the batch
//! divides it; a batch that cannot be divided runs as a whole.

use super::context::BatchContext;
use super::input::LARGE_LINE_BYTES;
use super::runner::{BatchEvent, BatchRunner};
use super::runner_state::{PrefetchedLines, SlicingState};
use crate::storage::files::{LineReader, NextLine};
use penstock_storage::batches::{BatchRecord, BatchSlice, MAX_SLICES, slicing_rows};
use std::io::{Error, ErrorKind, Result};

impl BatchRunner {
    /// Divides the batch if it should run in slices. Returns true while it is divided, so that no line starts.
    pub(super) fn divide_into_slices(&mut self) -> bool {
        if self.slicing == SlicingState::Dividing {
            return true;
        }
        let lines = self.app.batches.slice_lines.max(self.lifecycle.counts.total.div_ceil(MAX_SLICES));
        let is_large = self.lifecycle.counts.total > lines;
        let is_opened = !self.finished_lines.bytes().is_empty();
        let is_new = self.slicing == SlicingState::Undecided
            && self.record.slice.is_none()
            && self.record.output.is_none()
            && self.finished_lines.finished_count() == 0;
        if !is_large || !is_opened || !is_new || !self.app.batches.may_divide_batches() {
            return false;
        }
        if !self.disk.reading && !self.disk.writing {
            self.disk.reading = true;
            self.slicing = SlicingState::Dividing;
            let (context, record, tell) = (self.app.clone(), self.record.clone(), self.events.clone());
            tokio::task::spawn_blocking(move || {
                let divided = divide_input(&context, &record, lines);
                drop(context);
                tell.send(BatchEvent::Divided(divided))
            });
        }
        true
    }

    /// Commits the slices of a divided batch; if the division failed, the batch runs without slices.
    pub(super) fn on_divided(&mut self, divided: Result<Vec<BatchSlice>>) {
        self.disk.reading = false;
        if self.shutdown.reason.is_some() || self.shutdown.is_stopping() {
            return;
        }
        self.slicing = SlicingState::Whole;
        let slices = match divided {
            // A gateway that runs no slices may have joined during the read.
            Ok(_) if !self.app.batches.may_divide_batches() => return,
            Ok(slices) => slices,
            Err(error) => {
                tracing::error!(name: "batch_not_read", batch = self.record.id, why = %error);
                return;
            }
        };
        let Ok(count) = u32::try_from(slices.len()) else { return };
        tracing::info!(name: "batch_divided", batch = self.record.id, slices = %count);
        self.record.slices = Some(count);
        self.prefetched = PrefetchedLines::default();
        self.files.input = None;
        self.disk.writing = true;
        self.commit_rows(Vec::new(), slicing_rows(&self.record.id, &slices), Vec::new());
    }
}

/// Reads the input file once, and returns the slices of `lines` lines each. Blocks.
fn divide_input(context: &BatchContext, record: &BatchRecord, lines: u32) -> Result<Vec<BatchSlice>> {
    let files = &context.files;
    let file =
        files.file_record_store().get(&record.input).map_err(|error| Error::other(error.to_string()))?;
    let mut reader = files.read_lines(&file.ok_or(ErrorKind::NotFound)?)?;
    let lock = context.batches.large_lines.large_line_lock();
    let (mut slices, mut count) = (Vec::<BatchSlice>::new(), 0);
    loop {
        let offset = match reader.next_line_within(LARGE_LINE_BYTES)? {
            NextLine::Line(line) => line.offset,
            NextLine::TooLong => {
                let _alone = lock.lock();
                skip_long_line(&mut reader)?
            }
            NextLine::End => break,
        };
        if count % lines == 0 {
            slices.push(BatchSlice {
                number: count / lines,
                first_line: count,
                offset,
                ..BatchSlice::default()
            });
        }
        if let Some(last) = slices.last_mut() {
            last.lines += 1;
        }
        count += 1;
    }
    if count == record.counts.total { Ok(slices) } else { Err(ErrorKind::InvalidData.into()) }
}

/// Reads past the next line that is not blank, also if it is long. Returns the offset of its first byte.
///
/// # Errors
/// Returns `InvalidData` at the end of the file, above the maximum length of a line, or for a damaged block; and any
/// I/O error.
fn skip_long_line(reader: &mut LineReader) -> Result<u64> {
    reader.next_line()?.map(|line| line.offset).ok_or_else(|| ErrorKind::InvalidData.into())
}
