//! Replay of the log as sled does it on opening, without its writes.

use std::collections::BTreeMap;

use super::super::commit_marker::ContentDigest;
use super::super::handle::SEGMENT_BYTES;
use super::file::{HeaderState, LogFile, Segment, for_each_item};
use super::format::{FieldReader, Message, MessageKind, SegmentItem};
use super::marker::find_marker;
use super::pages::{PageChange, PageTable, Snapshot};
use crate::StoreError;

const SEGMENT: u64 = SEGMENT_BYTES as u64;

/// Place in the log from which sled reads no more, or from which it skips the rest of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tear {
    lsn: u64,
    /// Offset in the file.
    offset: u64,
    /// Number of the last group before it.
    groups: u64,
}

/// Atomic batch of which the end has not been read yet.
struct OpenBatch {
    /// Lsn of the last byte of the batch.
    last_lsn: u64,
    /// Number of the last group before the batch.
    groups: u64,
    /// Changes of pages, to be applied at the end of the batch.
    changes: Vec<PageChange>,
}

/// Result of a replay.
pub(crate) struct Replay {
    /// Pages that sled would have after opening.
    pub(crate) pages: PageTable,
    /// Newest commit marker of all messages, including those that sled would drop.
    pub(crate) newest: Option<ContentDigest>,
    /// Lsn up to which the snapshot includes the log.
    snapshot_lsn: u64,
    /// Number of the last group that sled reads.
    groups: u64,
    /// Batch that is being read.
    batch: Option<OpenBatch>,
    /// Tears before the last segments, where sled only skips the rest of a segment.
    skipped: Vec<Tear>,
    /// End of the log for sled; `None` while the replay has not reached it.
    end: Option<Tear>,
}

impl Replay {
    /// Replays the log. `base` is the newest commit marker of the pages of the snapshot.
    pub(crate) fn run(
        log: &LogFile,
        snapshot: Snapshot,
        base: Option<ContentDigest>,
    ) -> Result<Replay, StoreError> {
        let first = snapshot.lsn / SEGMENT;
        let segments = order_segments(log, first)?;
        let mut replay = Replay {
            pages: snapshot.pages,
            newest: None,
            snapshot_lsn: snapshot.lsn,
            groups: base.map_or(0, |base| base.groups),
            batch: None,
            skipped: Vec::new(),
            end: None,
        };
        let stable = segments.values().filter_map(|segment| match segment.header {
            HeaderState::Intact(stable_lsn) => Some(stable_lsn),
            HeaderState::Lost => None,
        });
        // From this segment on, sled requires a log without a gap.
        let tail = stable.max().unwrap_or(0).max(snapshot.lsn) / SEGMENT;
        if !segments.get(&tail).is_some_and(Segment::has_header) {
            // sled then reads none of the segments.
            let offset = segments.values().next().map_or(log.len, |segment| segment.offset);
            replay.end_log(first * SEGMENT, offset);
        }
        let mut next = tail;
        let mut buffer = Vec::new();
        for segment in segments.values() {
            if segment.number >= tail {
                if segment.number != next || !segment.has_header() {
                    replay.end_log(next * SEGMENT, segment.offset);
                }
                next += 1;
            } else if !segment.has_header() {
                replay.skip(segment.number * SEGMENT, segment.offset);
            }
            log.read_segment(segment.offset, &mut buffer)?;
            // sled also stops where the file ends within a segment.
            let stops = segment.number >= tail || buffer.len() < SEGMENT_BYTES;
            for_each_item(segment, &buffer, |item, lsn, offset| match item {
                SegmentItem::Message(_, message) => replay.read(&message, lsn, offset),
                SegmentItem::Tear { .. } if stops => replay.end_log(lsn, offset),
                SegmentItem::Tear { .. } => replay.skip(lsn, offset),
            });
        }
        replay.end_log(next * SEGMENT, log.len);
        Ok(replay)
    }

    /// Reads the message at an lsn and an offset of the file.
    fn read(&mut self, message: &Message<'_>, lsn: u64, offset: u64) {
        let marker = find_marker(message);
        self.newest = self.newest.max(marker);
        if self.end.is_some() {
            return;
        }
        self.close_batch(lsn);
        if message.kind == MessageKind::Manifest {
            let last_lsn = FieldReader(message.body).fixed_integer().unwrap_or(u64::MAX);
            let groups = self.groups;
            let batch = self.batch.get_or_insert(OpenBatch { last_lsn, groups, changes: Vec::new() });
            batch.last_lsn = batch.last_lsn.max(last_lsn);
        }
        // The snapshot includes earlier messages.
        if let Some(change) =
            PageChange::from_message(message, lsn, offset).filter(|_| lsn >= self.snapshot_lsn)
        {
            match &mut self.batch {
                Some(batch) => batch.changes.push(change),
                None => self.pages.apply(change),
            }
        }
        self.groups = marker.map_or(0, |marker| marker.groups).max(self.groups);
    }

    /// Applies the open batch if it ends before `lsn`.
    fn close_batch(&mut self, lsn: u64) {
        if let Some(batch) = self.batch.take_if(|batch| batch.last_lsn < lsn) {
            batch.changes.into_iter().for_each(|change| self.pages.apply(change));
        }
    }

    /// Ends the log at an lsn, unless it has ended before. An incomplete batch is dropped.
    fn end_log(&mut self, lsn: u64, offset: u64) {
        if self.end.is_none() {
            self.close_batch(lsn);
            self.groups = self.groups_before();
            self.batch = None;
            self.end = Some(Tear { lsn, offset, groups: self.groups });
        }
    }

    /// Records that sled skips a part of a segment from an lsn on.
    fn skip(&mut self, lsn: u64, offset: u64) {
        self.close_batch(lsn);
        self.skipped.push(Tear { lsn, offset, groups: self.groups_before() });
    }

    /// Returns the number of the last group of which everything has been read.
    fn groups_before(&self) -> u64 {
        self.batch.as_ref().map_or(self.groups, |batch| batch.groups)
    }

    /// Returns a description of the first place where sled would lose rows of the groups up to `acknowledged`.
    pub(crate) fn find_damage(&self, log: &LogFile, acknowledged: u64) -> Option<String> {
        let losses = self.skipped.iter().filter(|tear| {
            // The segment may be one that was free and was overwritten in part before a crash.
            self.pages.pointers().any(|pointer| pointer.lsn / SEGMENT == tear.lsn / SEGMENT)
        });
        let mut losses = losses.chain(&self.end).filter(|tear| tear.groups < acknowledged);
        if let Some(tear) = losses.next() {
            let commits = acknowledged - tear.groups;
            let damage = format!("the log is damaged; acknowledged commits that would be lost: {commits}");
            return Some(log.describe(tear.offset, &damage));
        }
        let end = self.end.filter(|end| end.lsn < self.snapshot_lsn)?;
        Some(log.describe(end.offset, "the log ends before its snapshot"))
    }
}

/// Returns the segments from the number `first` on, by their number.
fn order_segments(log: &LogFile, first: u64) -> Result<BTreeMap<u64, Segment>, StoreError> {
    let mut ordered = BTreeMap::<u64, Segment>::new();
    for segment in log.segments(first)? {
        match ordered.get(&segment.number) {
            Some(other) if other.has_header() && segment.has_header() => {
                let damage = format!("the segment is the same as that at byte {}", other.offset);
                return Err(StoreError::corrupt(log.describe(segment.offset, &damage)));
            }
            Some(_) if !segment.has_header() => {}
            _ => drop(ordered.insert(segment.number, segment)),
        }
    }
    Ok(ordered)
}
