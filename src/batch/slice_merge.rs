//! Results of a batch in slices: the member that holds the claim of the batch reads the segments that the slices have
//! committed, appends their lines to the output file, and removes them in the same commit. It ends the batch once all
//! slices have ended.

use super::commit::LineOutcome;
use super::context::BatchContext;
use super::open_files::{self, OpenedResults};
use super::result_write::rows_of_transaction;
use super::runner::{BatchEvent, BatchRunner, TICK_INTERVAL};
use super::slice_result::{StoredSegment, read_segments};
use crate::billing::MAX_OUTCOMES;
use bytes::Bytes;
use penstock_batch::state::EarlyEndReason;
use penstock_core::TokenUsage;
use penstock_storage::StoreError;
use penstock_storage::batches::{
    BatchClaim, BatchRecord, BatchSlice, BatchUsage, EndRequest, PendingSliceMerge, ResultSegment,
    SliceEndReason, parent_batch_id,
};
use penstock_storage::files::{FileRecord, FileStore};
use penstock_storage::ledger::RowWrite;
use std::collections::HashSet;
use std::io::{Error, ErrorKind, Result};
use tokio::time::Instant;

/// Maximum number of segments in one commit. Each segment takes four rows.
const MAX_SEGMENTS: usize = 10;
/// Maximum number of reads in a row that may find a segment missing or damaged. A file server may show a new file late.
const MAX_ATTEMPTS: u32 = 6;

/// Progress of merging the results of a batch's slices into its output file.
#[derive(Default)]
pub(super) struct SliceMergeState {
    /// True once the bitmap and the output file were opened.
    is_opened: bool,
    /// True once no slice is open and all segments were read.
    pub(super) is_complete: bool,
    /// True once the slices were asked to end.
    has_requested_end: bool,
    /// Segments whose lines the next commit counts.
    pub(super) segments: Vec<StoredSegment>,
    /// Files of the segments that the current commit removes.
    removed: Vec<FileRecord>,
    /// Earliest time of the next read; `None` if it need not wait.
    next_read: Option<Instant>,
    /// Number of reads in a row that found a segment missing or damaged.
    lost_reads: u32,
}

impl SliceMergeState {
    /// Counts a failed read. Returns true if the results are lost: after too many reads in a row that found a segment
    /// missing or damaged, and at once if the output file is damaged. An outage of store or disk does not count.
    fn is_lost(&mut self, error: ErrorKind) -> bool {
        if matches!(error, ErrorKind::NotFound | ErrorKind::InvalidData) {
            self.lost_reads += 1;
        }
        error == ErrorKind::UnexpectedEof || self.lost_reads > MAX_ATTEMPTS
    }
}

/// Result of one read: the next segments of a batch with their contents, and the state of its slices.
pub(super) struct LoadedSegments {
    opened: Option<OpenedResults>,
    slices: Vec<BatchSlice>,
    segments: Vec<(StoredSegment, Bytes)>,
    /// True if there are more segments.
    more: bool,
    has_requested_end: bool,
}

impl BatchRunner {
    /// Starts reading the next segments, once those read before are committed.
    pub(super) fn start_segment_reads(&mut self) {
        let is_busy = self.disk.reading || self.disk.writing || !self.pending.lines.is_empty();
        let is_early = self.merge.next_read.is_some_and(|at| Instant::now() < at);
        if is_busy || is_early || !self.merge.segments.is_empty() || self.lifecycle.state.is_final() {
            return;
        }
        self.disk.reading = true;
        let job = SliceReadJob {
            record: self.record.clone(),
            claim: self.claim.map(|held| held.claim),
            is_opened: self.merge.is_opened,
            may_have_stale_writer: self.may_have_stale_writer(),
            end: self.shutdown.reason,
            has_requested_end: self.merge.has_requested_end,
            most: self.memory_limits.group_bytes,
        };
        let (context, tell) = (self.app.clone(), self.events.clone());
        tokio::task::spawn_blocking(move || {
            let read = job.read(&context);
            drop(context);
            tell.send(BatchEvent::SegmentsRead(read.map(Box::new)))
        });
    }

    /// Queues the lines of the segments for the output file.
    pub(super) fn on_segments_read(&mut self, loaded: Result<Box<LoadedSegments>>) {
        self.disk.reading = false;
        let LoadedSegments { opened, slices, segments, more, has_requested_end } = match loaded {
            Ok(loaded) => *loaded,
            Err(error) => return self.on_slices_unreadable(&error),
        };
        (self.disk.retry_at, self.disk.failures) = (None, 0);
        if let Some(results) = opened {
            self.set_opened_results(results);
            self.merge.is_opened = true;
        }
        self.merge.has_requested_end = has_requested_end;
        self.merge.is_complete = !more && slices.iter().all(|slice| slice.end.is_some());
        self.merge.next_read = segments.is_empty().then(|| Instant::now() + TICK_INTERVAL * 2);
        self.merge.lost_reads = 0;
        if let Some(end) = slices.iter().find_map(|slice| slice.end) {
            self.end_early(end_reason(end));
        }
        let is_over = self.merge.is_complete && segments.is_empty() && self.shutdown.reason.is_none();
        // A member that has to copy the output file does not commit here: its next read of the claims also returns
        // the reason for the end.
        if is_over && !self.may_have_stale_writer() {
            // All lines are counted, so this member would have ended the batch. The batch is still open here, so
            // another gateway has ended it, and this commit reports the lost claim.
            return self.commit_record();
        }
        let is_damaged = self.shutdown.reason == Some(EarlyEndReason::OutputDamaged);
        let mut queued = HashSet::new();
        for (stored, contents) in segments {
            if !is_damaged {
                self.queue_segment(&stored.segment, &contents, &mut queued);
            }
            self.merge.segments.push(stored);
        }
    }

    /// Queues the lines of a segment that are neither finished nor in `queued`, and adds them to `queued`.
    fn queue_segment(&mut self, segment: &ResultSegment, contents: &[u8], queued: &mut HashSet<u32>) {
        // Each line should be in one segment only. A line that is repeated is counted and stored once.
        let is_new = |index| !self.finished_lines.is_line_finished(index) && queued.insert(index);
        let outcomes = line_outcomes(segment, contents, is_new);
        self.pending.bytes += outcomes.iter().map(|line| line.result.len()).sum::<usize>();
        self.pending.lines.extend(outcomes);
    }

    /// Adds the rows of a segment that this slice has written, and removes the segments whose lines are in the output
    /// file now. Returns the change of the stored bytes.
    pub(super) fn add_segment_row_writes(
        &mut self,
        written: Option<&StoredSegment>,
        rows: &mut Vec<RowWrite>,
    ) -> i64 {
        let batch = parent_batch_id(&self.record.id);
        rows.extend(written.iter().flat_map(|stored| stored.row_writes(batch)));
        let mut growth = written.map_or(0, StoredSegment::bytes);
        for stored in self.merge.segments.drain(..) {
            growth -= stored.bytes();
            rows.push(stored.segment.row_removal(batch));
            if let Some(file) = stored.file {
                rows.extend(rows_of_transaction(&FileStore::remove_operations(&file)));
                self.merge.removed.push(file);
            }
        }
        growth
    }

    /// Deletes the files of the segments that the last commit has removed. After the commit that divided the batch,
    /// searches for a slice to run.
    pub(super) fn delete_merged_segment_files(&mut self) {
        if self.record.slices.is_some() && !self.merge.is_opened {
            self.app.batches.claims.search.notify_one();
        }
        let removed = std::mem::take(&mut self.merge.removed);
        if !removed.is_empty() {
            let files = self.app.files.clone();
            tokio::task::spawn_blocking(move || {
                removed.iter().for_each(|file| files.remove_contents(file));
            });
        }
    }

    fn on_slices_unreadable(&mut self, error: &Error) {
        if self.merge.is_lost(error.kind()) {
            self.end_early(EarlyEndReason::OutputDamaged);
            self.shutdown.reason = Some(EarlyEndReason::OutputDamaged);
            // Marking the output file as opened prevents another attempt to open it.
            self.merge.is_opened = true;
        } else {
            if self.disk.failures == 0 {
                tracing::error!(name: "batch_not_read", batch = self.record.id, why = %error);
            }
            self.pause_disk_access();
        }
    }
}

/// Read of the slices and segments of a batch.
struct SliceReadJob {
    record: BatchRecord,
    claim: Option<BatchClaim>,
    is_opened: bool,
    may_have_stale_writer: bool,
    /// Reason why the batch ends before its last line; `None` while it does not.
    end: Option<EarlyEndReason>,
    has_requested_end: bool,
    /// Bytes of results after which no further segment is read.
    most: usize,
}

impl SliceReadJob {
    /// Reads the segments; for a batch that ends, first asks the slices to end. Blocks.
    fn read(self, context: &BatchContext) -> Result<LoadedSegments> {
        let (store, batch) = (&context.batches.store, self.record.id.as_str());
        let opened = match self.is_opened {
            true => None,
            false => Some(open_files::open_results(context, &self.record, self.may_have_stale_writer)?),
        };
        if let Some(request) = self.end.map(end_request).filter(|_| !self.has_requested_end) {
            // A member that has lost the claim must not end slices. If an end request is already stored, the slices
            // of this process receive it when the process next reads its claims.
            let is_new =
                store.request_end_of_slices(batch, request, self.claim.as_ref()).map_err(io_error)?;
            if is_new || self.claim.is_none() {
                context.batches.end_local_slices(batch, request);
            }
        }
        let PendingSliceMerge { slices, segments, mut more } =
            store.pending_slice_merge(batch, MAX_SEGMENTS).map_err(io_error)?;
        if let Some(claim) = self.claim.filter(|_| self.end.is_some()) {
            let fleet = &context.batches.fleet;
            let (alive, incarnation) = (fleet.commit_fence(), fleet.member_number());
            let member = (incarnation, alive.as_ref());
            store.remove_unclaimed_slices(batch, &slices, &claim, member).map_err(io_error)?;
        }
        let is_damaged = self.end == Some(EarlyEndReason::OutputDamaged);
        let (segments, is_limited) = self.limit_segments(context, segments).map_err(io_error)?;
        more |= is_limited;
        // The results of a damaged batch are not read, and files of segments may be missing.
        let read = match is_damaged {
            true => segments.into_iter().map(|stored| (stored, Bytes::new())).collect(),
            false => read_segments(&context.files, segments)?,
        };
        let has_requested_end = self.end.is_some();
        Ok(LoadedSegments { opened, slices, segments: read, more, has_requested_end })
    }

    /// Returns as many segments as one commit may contain, with the records of their files, and true if some are left.
    fn limit_segments(
        &self,
        context: &BatchContext,
        segments: Vec<ResultSegment>,
    ) -> std::result::Result<(Vec<StoredSegment>, bool), StoreError> {
        let ids: Vec<String> = segments.iter().map(|segment| segment.file.clone()).collect();
        let files = context.files.file_record_store().get_many(&ids)?;
        let (mut limited, mut lines, mut bytes) = (Vec::with_capacity(segments.len()), 0, 0);
        for (segment, file) in segments.into_iter().zip(files) {
            lines += segment.lines.len();
            if !limited.is_empty() && (lines > MAX_OUTCOMES || bytes >= self.most as u64) {
                return Ok((limited, true));
            }
            bytes += file.as_ref().map_or(0, |file| file.bytes);
            limited.push(StoredSegment { segment, file });
        }
        Ok((limited, false))
    }
}

/// Returns the lines of a segment for which `is_new` returns true. The first of them has the usage of the segment,
/// which is one sum for all its lines. So the usage of a batch with repeated lines is too high rather than too low; a
/// segment that has only repeated lines adds nothing.
fn line_outcomes(
    segment: &ResultSegment,
    contents: &[u8],
    mut is_new: impl FnMut(u32) -> bool,
) -> Vec<LineOutcome> {
    let mut usage = Some(token_usage(&segment.usage));
    let results = contents.split_inclusive(|byte| *byte == b'\n');
    let new = segment.lines.iter().zip(results).filter(|((index, _), _)| is_new(*index));
    new.map(|((index, succeeded), result)| LineOutcome {
        index: *index,
        succeeded: *succeeded,
        hold_end: None,
        usage: usage.take(),
        result: result.to_vec(),
        permit: None,
    })
    .collect()
}

fn io_error(error: StoreError) -> Error {
    Error::other(error.to_string())
}

const fn end_request(why: EarlyEndReason) -> EndRequest {
    match why {
        EarlyEndReason::Cancelled => EndRequest::Cancelled,
        EarlyEndReason::InputDeleted => EndRequest::InputDeleted,
        EarlyEndReason::InvalidInput => EndRequest::InvalidInput,
        EarlyEndReason::OutputDamaged => EndRequest::OutputDamaged,
        EarlyEndReason::Expired => EndRequest::Expired,
        EarlyEndReason::KeyRevoked => EndRequest::KeyRevoked,
    }
}

const fn end_reason(end: SliceEndReason) -> EarlyEndReason {
    match end {
        SliceEndReason::Cancelled => EarlyEndReason::Cancelled,
        SliceEndReason::InvalidInput => EarlyEndReason::InvalidInput,
        SliceEndReason::InputDeleted => EarlyEndReason::InputDeleted,
        SliceEndReason::Expired => EarlyEndReason::Expired,
        SliceEndReason::KeyRevoked => EarlyEndReason::KeyRevoked,
        SliceEndReason::OutputDamaged => EarlyEndReason::OutputDamaged,
    }
}

fn token_usage(usage: &BatchUsage) -> TokenUsage {
    TokenUsage {
        input: usage.input,
        cached: usage.cached,
        output: usage.output,
        reasoning: usage.reasoning,
        ..TokenUsage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_no_lost_segment() {
        let mut merge = SliceMergeState::default();
        assert!((0..100).all(|_| !merge.is_lost(ErrorKind::Other)));
        assert!((0..MAX_ATTEMPTS).all(|_| !merge.is_lost(ErrorKind::NotFound)));
        assert!(merge.is_lost(ErrorKind::InvalidData));
        assert!(SliceMergeState::default().is_lost(ErrorKind::UnexpectedEof), "the output file");
    }

    const USAGE: BatchUsage = BatchUsage { input: 30, cached: 3, output: 60, reasoning: 6 };

    /// Returns the lines (index, success, result) that are queued for a segment of the lines 4 to 6 if `finished` are
    /// finished, and the sum of their usage.
    fn queue(finished: &[u32]) -> (Vec<(u32, bool, Vec<u8>)>, BatchUsage) {
        let lines = vec![(4, true), (5, false), (6, true)];
        let segment = ResultSegment { file: "file-1".to_owned(), lines, usage: USAGE };
        let is_new = |index| !finished.contains(&index);
        let outcomes = line_outcomes(&segment, b"four\nfive\nsix\n", is_new);
        let mut sum = BatchUsage::default();
        outcomes.iter().filter_map(|line| line.usage.as_ref()).for_each(|usage| sum.add(usage));
        let lines = outcomes.into_iter().map(|line| (line.index, line.succeeded, line.result)).collect();
        (lines, sum)
    }

    #[test]
    fn the_usage_of_a_segment_is_counted_once_whichever_lines_are_repeated() {
        let lines = [(4, true, &b"four\n"[..]), (5, false, b"five\n"), (6, true, b"six\n")];
        for finished in [&[][..], &[4], &[5], &[6], &[4, 5], &[4, 6], &[5, 6], &[4, 5, 6]] {
            let new = lines.iter().filter(|(index, ..)| !finished.contains(index));
            let expected: Vec<_> =
                new.map(|(index, succeeded, result)| (*index, *succeeded, result.to_vec())).collect();
            let usage = if expected.is_empty() { BatchUsage::default() } else { USAGE };
            assert_eq!(queue(finished), (expected, usage), "{finished:?}");
        }
    }

    #[test]
    fn a_line_in_two_segments_of_one_read_is_stored_once() {
        let segment = |lines: &[u32], input| ResultSegment {
            lines: lines.iter().map(|index| (*index, true)).collect(),
            usage: BatchUsage { input, ..BatchUsage::default() },
            ..ResultSegment::default()
        };
        let mut queued = HashSet::new();
        let mut queue = |segment: &ResultSegment| -> Vec<(u32, u64)> {
            let outcomes = line_outcomes(segment, b"a\nb\n", |index| queued.insert(index));
            outcomes.iter().map(|line| (line.index, line.usage.map_or(0, |usage| usage.input))).collect()
        };
        assert_eq!(queue(&segment(&[1, 2], 10)), [(1, 10), (2, 0)]);
        assert_eq!(queue(&segment(&[2, 3], 20)), [(3, 20)]);
        assert_eq!(queue(&segment(&[3, 1], 30)), []);
    }
}
