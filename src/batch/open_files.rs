//! Opening of a batch's files: the input file at its start or at the start of the slice, the output file truncated to
//! its committed size, and the bitmap of finished lines. Blocks.

use super::context::BatchContext;
use super::input::{BatchInputReader, PendingLine};
use crate::storage::files::OutputFile;
use penstock_batch::completion_bitmap::CompletionBitmap;
use penstock_storage::StoreError;
use penstock_storage::batches::{BatchRecord, BatchState};
use penstock_storage::files::FileRecord;
use std::io::{Error, ErrorKind, Result};

/// Open files of a batch.
pub(super) struct OpenedBatch {
    pub(super) input: BatchInputReader,
    pub(super) first_lines: Vec<PendingLine>,
    pub(super) input_record: FileRecord,
    pub(super) results: OpenedResults,
}

/// Results of a batch so far.
pub(super) struct OpenedResults {
    /// Output file and its record; `None` if there is none yet, or if a former holder of the batch may still write to
    /// it.
    pub(super) output: Option<(OutputFile, FileRecord)>,
    pub(super) finished_lines: CompletionBitmap,
}

/// Opens the files of a batch. The output file is not opened if a former holder of the batch may still write to it.
///
/// # Errors
/// Returns `NotFound` if the input was deleted, `InvalidData` if it is damaged, and `UnexpectedEof` if the results
/// are damaged. All other errors may be temporary.
pub(super) fn open_batch(
    context: &BatchContext,
    record: &BatchRecord,
    may_have_stale_writer: bool,
) -> Result<OpenedBatch> {
    let files = &context.files;
    let file = files
        .file_record_store()
        .get(&record.input)
        .map_err(io_error)?
        .ok_or(Error::from(ErrorKind::NotFound))?;
    let offset = record.slice.map_or(0, |slice| slice.offset);
    let reader = files.read_lines_from(&file, offset).map_err(|error| match error.kind() {
        // The record of the file exists, but its contents do not.
        ErrorKind::NotFound => Error::from(ErrorKind::InvalidData),
        _ => error,
    })?;
    let mut input = BatchInputReader::new(reader, context.batches.large_lines.large_line_lock());
    if let Some(slice) = record.slice {
        input.limit_lines(slice.lines);
    }
    let results = match record.state {
        BatchState::Validating => {
            OpenedResults { output: None, finished_lines: CompletionBitmap::with_line_count(file.lines) }
        }
        _ => open_results(context, record, may_have_stale_writer)?,
    };
    let most = context.batches.memory_limits(context, &record.account).prefetch_bytes;
    let first = input.read_pending_lines(&results.finished_lines, most)?;
    Ok(OpenedBatch { input, first_lines: first, input_record: file, results })
}

/// Opens the output file and reads the bitmap of a batch in progress.
///
/// # Errors
/// Returns `UnexpectedEof` if the results are damaged, and `InvalidData` if a row of the store is. All other errors may
/// be temporary.
pub(super) fn open_results(
    context: &BatchContext,
    record: &BatchRecord,
    may_have_stale_writer: bool,
) -> Result<OpenedResults> {
    let files = &context.files;
    let done = match context.batches.store.finished_line_bitmap(&record.id).map_err(io_error)? {
        Some(bits) => CompletionBitmap::from_bytes(&bits),
        None => CompletionBitmap::with_line_count(record.counts.total),
    };
    let lost = |_| Error::from(ErrorKind::UnexpectedEof);
    let output = match &record.output {
        None => None,
        // An output file with another possible writer is not opened, but copied when the first results are written.
        Some(_) if may_have_stale_writer => None,
        Some(id) => {
            let results = files.file_record_store().get(id).map_err(io_error)?.ok_or(()).map_err(lost)?;
            let output = files.open_output(&results).map_err(|error| match error.kind() {
                ErrorKind::NotFound | ErrorKind::InvalidData => Error::from(ErrorKind::UnexpectedEof),
                _ => error,
            })?;
            Some((output, results))
        }
    };
    Ok(OpenedResults { output, finished_lines: done })
}

fn io_error(error: StoreError) -> Error {
    match error {
        StoreError::Corrupt { .. } => Error::from(ErrorKind::InvalidData),
        _ => Error::other(error.to_string()),
    }
}
