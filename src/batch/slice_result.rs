//! File with the results of one commit of a slice. `GET /v1/files` does not list it. It has a file record, so sweeps,
//! backups and checks include it. All calls block.

use super::commit::{LineOutcome, ResultGroup};
use crate::storage::files::{FileManager, FileOwner};
use bytes::Bytes;
use penstock_batch::state::EarlyEndReason;
use penstock_storage::batches::{BatchSlice, BatchUsage, ResultSegment, SliceEndReason};
use penstock_storage::files::{FileRecord, FileStore};
use penstock_storage::ledger::RowWrite;
use std::io::{Error, ErrorKind, Result};
use std::time::Duration;

/// Segment of a slice's results, and the record of the file that contains it.
pub(super) struct StoredSegment {
    pub(super) segment: ResultSegment,
    /// Record of the file; `None` if it does not exist any more.
    pub(super) file: Option<FileRecord>,
}

/// Owner, name, URL and creation time of the file to which a segment is written.
pub(super) struct SegmentFileInfo<'a> {
    pub(super) owner: FileOwner<'a>,
    pub(super) name: String,
    pub(super) url: &'a str,
    pub(super) now: Duration,
}

impl StoredSegment {
    /// Returns the rows that add the segment to a batch. The file gets no row in the list of its key.
    pub(super) fn row_writes(&self, batch: &str) -> Vec<RowWrite> {
        let file = self.file.as_ref().and_then(|file| FileStore::encoded_row(file).ok());
        let file = file.map(|(table, key, value)| RowWrite { table, key, value: Some(value) });
        file.into_iter().chain(self.segment.row_write(batch).ok()).collect()
    }

    /// Returns the size of the file, in bytes.
    pub(super) fn bytes(&self) -> i64 {
        self.file.as_ref().map_or(0, |file| i64::try_from(file.bytes).unwrap_or(i64::MAX))
    }
}

/// Writes and syncs the results of a group; `None` if there are none.
///
/// # Errors
/// Returns any I/O error. Contents that remain then have no record, and are deleted as leftovers.
pub(super) fn write_segment(
    files: &FileManager,
    slice: &BatchSlice,
    group: &ResultGroup,
    file: SegmentFileInfo<'_>,
) -> Result<Option<StoredSegment>> {
    if group.bytes.is_empty() {
        return Ok(None);
    }
    let record = files.create_output(file.owner, file.name, file.url, file.now)?;
    let written = files.open_output(&record).and_then(|mut output| {
        output.append(&group.bytes)?;
        output.finalize(&record, file.now)
    });
    if written.is_err() {
        std::fs::remove_file(files.contents_path(&record.id)).ok();
    }
    let written = written?;
    #[cfg(feature = "inject")]
    fail::fail_point!("segment_stored", |_| std::process::abort());
    let lines = group.lines.iter().map(|line| (slice.first_line + line.index, line.succeeded)).collect();
    let segment = ResultSegment { file: written.id.clone(), lines, usage: sum_usage(&group.lines) };
    let lines = u32::try_from(group.lines.len()).unwrap_or(u32::MAX);
    Ok(Some(StoredSegment { segment, file: Some(FileRecord { lines, ..written }) }))
}

/// Reads the contents of segments, all at the same time, because each takes a round trip to a bucket or file server.
///
/// # Errors
/// Returns the first error of a segment: `NotFound` if its file is missing, `InvalidData` if it does not have the lines
/// of the segment, and any I/O error.
pub(super) fn read_segments(
    files: &FileManager,
    segments: Vec<StoredSegment>,
) -> Result<Vec<(StoredSegment, Bytes)>> {
    std::thread::scope(|scope| {
        let mut reads = Vec::with_capacity(segments.len());
        for stored in segments {
            let read = move || read_contents(files, &stored).map(|contents| (stored, contents));
            reads.push(std::thread::Builder::new().spawn_scoped(scope, read)?);
        }
        let panicked = |_| Err(Error::other("the read of a segment panicked"));
        reads.into_iter().map(|read| read.join().unwrap_or_else(panicked)).collect()
    })
}

fn read_contents(files: &FileManager, stored: &StoredSegment) -> Result<Bytes> {
    let record = stored.file.as_ref().ok_or(ErrorKind::NotFound)?;
    let length = usize::try_from(record.bytes).map_err(|_| Error::from(ErrorKind::FileTooLarge))?;
    let contents = files.open_contents(record)?.read(0, length)?;
    if memchr::memchr_iter(b'\n', &contents).count() != stored.segment.lines.len() {
        return Err(ErrorKind::InvalidData.into());
    }
    Ok(contents)
}

fn sum_usage(lines: &[LineOutcome]) -> BatchUsage {
    let mut sum = BatchUsage::default();
    lines.iter().filter_map(|line| line.usage.as_ref()).for_each(|usage| sum.add(usage));
    sum
}

/// Converts the reason for the end of a batch to the reason that its slices store.
pub(super) const fn to_slice_end(why: EarlyEndReason) -> SliceEndReason {
    match why {
        EarlyEndReason::Cancelled => SliceEndReason::Cancelled,
        EarlyEndReason::InvalidInput => SliceEndReason::InvalidInput,
        EarlyEndReason::InputDeleted => SliceEndReason::InputDeleted,
        EarlyEndReason::Expired => SliceEndReason::Expired,
        EarlyEndReason::KeyRevoked => SliceEndReason::KeyRevoked,
        EarlyEndReason::OutputDamaged => SliceEndReason::OutputDamaged,
    }
}
