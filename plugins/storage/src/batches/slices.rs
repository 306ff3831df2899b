//! Slices of a batch: ranges of its lines that several members of a fleet run at the same time, each under a claim of
//! its own.
//!
//! ```text
//! batches  `p/` id               →  empty; the batch is unfinished and runs in slices, in place of its `o/` row
//! batches  `p/` id `/` number    →  first line (4 bytes BE), lines (4), offset in the input file (8), end (1)
//! batches  `c/` id `/` number    →  claim of the slice
//! batches  `g/` id `/` file id   →  segment: results that are not in the output file of the batch yet
//! lines    id `/` number         →  a bit for each line of the slice that has its result
//! ```
//! A commit of a slice requires the claim of the slice, and writes the charges of its results, the bitmap and one
//! segment. The member that runs the batch appends segments to the output file; its commit requires the claim of the
//! batch, counts the lines and removes the segments. Versions without slices do not read these rows, so they neither
//! run nor change such a batch.

use super::claims::{EndRequest, claim_key, end_request_key, fence_guards};
use super::{
    BatchClaim, BatchRecord, BatchState, BatchStore, BatchUsage, coordination_row_removals, open_key,
};
use crate::ledger::{RowFence, RowWrite};
use crate::{StoreError, StoreTable, Transaction, versioned_json};
use serde::{Deserialize, Serialize};

/// Key prefix of the rows of batches in slices, and of their slices.
pub(super) const SLICE_ROW_PREFIX: &[u8] = b"p/";
const SEGMENT_PREFIX: &[u8] = b"g/";
const WHAT: &str = "a segment of results";
/// Maximum number of slices of one batch: all their rows must fit into one commit.
pub const MAX_SLICES: u32 = 64;

/// Reason for the end of a slice before its last line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SliceEndReason {
    Cancelled,
    InvalidInput,
    InputDeleted,
    Expired,
    KeyRevoked,
    OutputDamaged,
}

impl SliceEndReason {
    const ALL: [Self; 6] = [
        Self::Cancelled,
        Self::InvalidInput,
        Self::InputDeleted,
        Self::Expired,
        Self::KeyRevoked,
        Self::OutputDamaged,
    ];

    const fn to_byte(self) -> u8 {
        match self {
            Self::Cancelled => b'c',
            Self::InvalidInput => b'i',
            Self::InputDeleted => b'd',
            Self::Expired => b'e',
            Self::KeyRevoked => b'k',
            Self::OutputDamaged => b'o',
        }
    }
}

/// Slice of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchSlice {
    /// Number of the slice, from 0.
    pub number: u32,
    /// Index of the first line of the slice, from 0.
    pub first_line: u32,
    /// Number of lines of the slice.
    pub lines: u32,
    /// Offset in bytes of the first line of the slice in the input file.
    pub offset: u64,
    /// Reason why the slice ended before its last line; `None` while the slice is open. A completed slice has no row.
    pub end: Option<SliceEndReason>,
}

impl BatchSlice {
    /// Returns the id under which the slice of a batch is claimed and run.
    #[must_use]
    pub fn id(&self, batch: &str) -> String {
        format!("{batch}/{:04}", self.number)
    }

    fn to_row(self) -> Vec<u8> {
        let end = self.end.map_or(0, SliceEndReason::to_byte);
        [&self.first_line.to_be_bytes()[..], &self.lines.to_be_bytes(), &self.offset.to_be_bytes(), &[end]]
            .concat()
    }

    /// Decodes the row of the slice with this id; `Corrupt` if the row is damaged.
    pub(super) fn from_row(id: &str, row: &[u8]) -> Result<Self, StoreError> {
        let slice = || {
            let number = id.rsplit_once('/')?.1.parse().ok()?;
            let (first_line, rest) = row.split_first_chunk::<4>()?;
            let (lines, rest) = rest.split_first_chunk::<4>()?;
            let (offset, end) = rest.split_first_chunk::<8>()?;
            let end = match end {
                [0] => None,
                [byte] => Some(SliceEndReason::ALL.into_iter().find(|end| end.to_byte() == *byte)?),
                _ => return None,
            };
            let (first_line, lines) = (u32::from_be_bytes(*first_line), u32::from_be_bytes(*lines));
            Some(Self { number, first_line, lines, offset: u64::from_be_bytes(*offset), end })
        };
        slice().ok_or_else(|| StoreError::corrupt("the slice of a batch"))
    }
}

/// Results of one commit of a slice, in a separate file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultSegment {
    /// Id of the file, which does not appear in any list of files.
    pub file: String,
    /// Lines of the file in their order: the index of the line in the batch, and true if it was answered successfully.
    pub lines: Vec<(u32, bool)>,
    /// Token usage of the lines of the file.
    pub usage: BatchUsage,
}

impl ResultSegment {
    /// Returns the write of the segment's row, to include in a larger commit.
    ///
    /// # Errors
    /// Returns `Corrupt` if the segment cannot be encoded, which does not happen for segments of this program.
    pub fn row_write(&self, batch: &str) -> Result<RowWrite, StoreError> {
        let value = Some(versioned_json::encode(WHAT, self)?);
        Ok(RowWrite { table: StoreTable::Batches, key: segment_key(batch, &self.file), value })
    }

    /// Returns the removal of the segment's row, to include in a larger commit.
    #[must_use]
    pub fn row_removal(&self, batch: &str) -> RowWrite {
        RowWrite { table: StoreTable::Batches, key: segment_key(batch, &self.file), value: None }
    }
}

/// Remaining work of the merge of a batch in slices: the slices that have not completed, and the result segments that
/// are not in the output file yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingSliceMerge {
    /// Slices that are open, or that ended before their last line.
    pub slices: Vec<BatchSlice>,
    /// Segments, at most the requested number.
    pub segments: Vec<ResultSegment>,
    /// True if more result segments follow.
    pub more: bool,
}

/// Returns the id of the batch that a slice belongs to; the id of a batch itself is returned unchanged.
#[must_use]
pub fn parent_batch_id(id: &str) -> &str {
    id.split_once('/').map_or(id, |(batch, _)| batch)
}

/// Returns true if an id belongs to a slice and not to a batch.
#[must_use]
pub fn is_slice_id(id: &str) -> bool {
    id.contains('/')
}

/// Returns the rows that divide a batch into slices, for a commit under the claim of the batch.
#[must_use]
pub fn slicing_rows(batch: &str, slices: &[BatchSlice]) -> Vec<RowWrite> {
    let row = |key, value| RowWrite { table: StoreTable::Batches, key, value };
    let index = [row(open_key(batch), None), row(slice_row_key(batch), Some(Vec::new()))];
    let slices = slices.iter().map(|slice| row(slice_row_key(&slice.id(batch)), Some(slice.to_row())));
    index.into_iter().chain(slices).collect()
}

/// Returns the changed rows of a slice. When a slice ends, its rows are removed, except for the `p/` row of a slice
/// that ended before its last line, which remains until the batch ends.
pub(super) fn slice_progress_rows(
    record: &BatchRecord,
    slice: &BatchSlice,
    done: Option<&[u8]>,
) -> Vec<RowWrite> {
    let row = |table, key, value| RowWrite { table, key, value };
    let lines = record.id.as_bytes().to_vec();
    if !record.state.is_final() {
        return done.map(|done| row(StoreTable::Lines, lines, Some(done.to_vec()))).into_iter().collect();
    }
    let state = (record.state != BatchState::Completed).then(|| slice.to_row());
    let mut rows =
        vec![row(StoreTable::Batches, slice_row_key(&record.id), state), row(StoreTable::Lines, lines, None)];
    rows.extend(coordination_row_removals(&record.id));
    rows
}

/// Returns the removals of the rows of a batch in slices, for its last commit.
pub(super) fn slice_row_removals(batch: &str, count: u32) -> impl Iterator<Item = RowWrite> {
    let slices = (0..count).map(|number| BatchSlice { number, ..BatchSlice::default() }.id(batch));
    let keys = std::iter::once(slice_row_key(batch)).chain(slices.map(|id| slice_row_key(&id)));
    keys.map(|key| RowWrite { table: StoreTable::Batches, key, value: None })
}

impl BatchStore {
    /// Returns the slices of a batch and up to `limit` of its segments. If no returned slice is open, the returned
    /// segments are complete unless `more` is true.
    ///
    /// # Errors
    /// Same as [`crate::Store::scan`].
    pub fn pending_slice_merge(&self, batch: &str, limit: usize) -> Result<PendingSliceMerge, StoreError> {
        let mut slices = Vec::new();
        // Slices are read before segments: the last commit of a slice also writes its last segment, so the segments
        // of a slice that has ended are all found.
        let prefix = [&slice_row_key(batch)[..], b"/"].concat();
        self.for_each_row(&prefix, |row| {
            let id = String::from_utf8_lossy(row.key.get(SLICE_ROW_PREFIX.len()..).unwrap_or_default());
            slices.push(BatchSlice::from_row(&id, &row.value)?);
            Ok(())
        })?;
        let page = self.store.scan(StoreTable::Batches, &segment_key(batch, ""), None, limit)?;
        let segments = page.rows.iter().map(|row| versioned_json::decode(WHAT, &row.value));
        Ok(PendingSliceMerge { slices, segments: segments.collect::<Result<_, _>>()?, more: page.more })
    }

    /// Returns true if a file is a segment of one of these batches.
    ///
    /// # Errors
    /// Same as [`crate::Store::get`].
    pub fn has_segment_file<'r>(
        &self,
        batches: impl IntoIterator<Item = &'r BatchRecord>,
        file: &str,
    ) -> Result<bool, StoreError> {
        for record in batches.into_iter().filter(|record| record.slices.is_some()) {
            if self.store.get(StoreTable::Batches, &segment_key(&record.id, file))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes the claim of an open slice, see [`BatchStore::take_claim`].
    ///
    /// # Errors
    /// Same as [`crate::Store::apply`].
    pub fn take_slice_claim(
        &self,
        batch: &str,
        slice: &BatchSlice,
        observed_claim: Option<&BatchClaim>,
        (incarnation, alive): (u32, Option<&RowFence>),
    ) -> Result<Option<BatchClaim>, StoreError> {
        let id = slice.id(batch);
        let open = Transaction::new().require_value(StoreTable::Batches, slice_row_key(&id), slice.to_row());
        self.take_claim_if(&id, observed_claim, incarnation, open.append_operations(fence_guards(alive)))
    }

    /// Asks the members that run slices of a batch to end them, if `claim` is still the claim of the batch; with
    /// `None`, the claim is not checked. Returns false if `claim` is outdated, if there already is a request, or if the
    /// batch does not run in slices.
    ///
    /// # Errors
    /// Same as [`crate::Store::apply`].
    pub fn request_end_of_slices(
        &self,
        batch: &str,
        request: EndRequest,
        claim: Option<&BatchClaim>,
    ) -> Result<bool, StoreError> {
        let (table, key) = (StoreTable::Batches, end_request_key(batch));
        let mut guards = Transaction::new()
            .require_present(table, slice_row_key(batch))
            .require_absent(table, key.as_slice());
        if let Some(claim) = claim {
            guards = guards.require_value(table, claim_key(batch), claim.to_row());
        }
        match self.store.apply(guards.put(table, key, vec![request.to_byte()])) {
            Ok(()) => Ok(true),
            Err(StoreError::Guard { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes open slices that no member has claimed, if `claim` is still the claim of the batch. The caller holds
    /// this claim and is about to end the batch.
    ///
    /// Each slice is claimed first, so that no other member can claim it. If the process ends between the claim and
    /// the removal, the slice remains claimed by a dead member, and another member can take it.
    ///
    /// # Errors
    /// Same as [`crate::Store::apply`].
    pub fn remove_unclaimed_slices(
        &self,
        batch: &str,
        slices: &[BatchSlice],
        claim: &BatchClaim,
        (incarnation, alive): (u32, Option<&RowFence>),
    ) -> Result<(), StoreError> {
        let table = StoreTable::Batches;
        for slice in slices.iter().filter(|slice| slice.end.is_none()) {
            let id = slice.id(batch);
            let is_open = Transaction::new()
                .require_value(table, slice_row_key(&id), slice.to_row())
                .require_value(table, claim_key(batch), claim.to_row());
            let Some(taken) =
                self.take_claim_if(&id, None, incarnation, is_open.append_operations(fence_guards(alive)))?
            else {
                continue;
            };
            let removal = Transaction::new()
                .require_value(table, claim_key(&id), taken.to_row())
                .require_value(table, claim_key(batch), claim.to_row())
                .delete(table, slice_row_key(&id))
                .delete(table, claim_key(&id));
            match self.store.apply(removal) {
                Ok(()) | Err(StoreError::Guard { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Returns the key of the row of a batch in slices, or of a slice.
pub(super) fn slice_row_key(id: &str) -> Vec<u8> {
    [SLICE_ROW_PREFIX, id.as_bytes()].concat()
}

fn segment_key(batch: &str, file: &str) -> Vec<u8> {
    [SEGMENT_PREFIX, batch.as_bytes(), b"/", file.as_bytes()].concat()
}
