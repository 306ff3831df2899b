//! Write of results to the disk: a group is appended to the output file, or becomes a segment of a slice. Blocks.

use super::commit::ResultGroup;
use super::slice_result::{SegmentFileInfo, StoredSegment, write_segment};
use crate::storage::files::{FileManager, FileOwner, OutputFile};
use penstock_batch::state::EarlyEndReason;
use penstock_storage::batches::BatchSlice;
use penstock_storage::files::{FileRecord, FileStatus, FileStore};
use penstock_storage::ledger::RowWrite;
use penstock_storage::{StoreError, Transaction, TransactionOp};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Changes that one write makes to the files of a batch.
#[derive(Default)]
pub(super) struct OutputUpdate {
    pub(super) output: Option<OutputFile>,
    /// Record of the output file for the next commit; `None` if no output file exists, and for a slice.
    pub(super) output_record: Option<FileRecord>,
    /// True if the file is new.
    pub(super) is_new: bool,
    /// File of a former holder of the batch, which the new file replaces.
    pub(super) replaced: Option<FileRecord>,
    /// Segment that a slice has written.
    pub(super) segment: Option<StoredSegment>,
}

/// Write of a group to the disk.
pub(super) struct ResultWriteJob {
    pub(super) output: Option<OutputFile>,
    pub(super) output_record: Option<FileRecord>,
    /// ID of the output file, if it exists but was not opened since the start.
    pub(super) output_id: Option<String>,
    /// True if the file must not be changed.
    pub(super) damaged: bool,
    /// True if a former holder of the batch may still write to the file, which is therefore replaced by a copy.
    pub(super) is_shared: bool,
    /// Slice whose results become a segment; `None` if the results are written to the output file.
    pub(super) slice: Option<BatchSlice>,
    pub(super) key: String,
    pub(super) account: String,
    pub(super) name: String,
    pub(super) url: String,
    pub(super) now: Duration,
}

impl ResultWriteJob {
    /// Writes and syncs the group. Blocks.
    pub(super) fn write(self, files: &Arc<FileManager>, group: &ResultGroup) -> io::Result<OutputUpdate> {
        let nothing = || Ok(OutputUpdate::default());
        if let Some(slice) = &self.slice {
            let owner = FileOwner { key: &self.key, account: &self.account };
            let file = SegmentFileInfo { owner, name: self.name, url: &self.url, now: self.now };
            let segment = write_segment(files, slice, group, file)?;
            return Ok(OutputUpdate { segment, ..OutputUpdate::default() });
        }
        if self.damaged {
            let known = self.output_id.and_then(|id| files.file_record_store().get(&id).ok().flatten());
            let results = known.map(|record| FileRecord {
                status: FileStatus::Error,
                finished_at: Some(self.now.as_secs()),
                status_details: Some(EarlyEndReason::OutputDamaged.sentence().to_owned()),
                ..record
            });
            return Ok(OutputUpdate { output_record: results, ..OutputUpdate::default() });
        }
        let known = match (self.output_record, self.output_id) {
            (None, Some(id)) => {
                files.file_record_store().get(&id).map_err(|error| io::Error::other(error.to_string()))?
            }
            (results, _) => results,
        };
        let replaced = known.as_ref().filter(|_| self.is_shared).cloned();
        let (record, fresh) = match known {
            Some(record) if self.is_shared => (files.copy_output_to_new_file(&record, self.now)?, true),
            Some(record) => (record, false),
            None if group.bytes.is_empty() => return nothing(),
            None => {
                let owner = FileOwner { key: &self.key, account: &self.account };
                (files.create_output(owner, self.name, &self.url, self.now)?, true)
            }
        };
        let written = append_group(files, self.output, &record, group, self.now);
        if fresh && written.is_err() {
            // The new file is deleted, because the next attempt creates another one.
            std::fs::remove_file(files.contents_path(&record.id)).ok();
        }
        let (output, results) = written?;
        Ok(OutputUpdate { output, output_record: Some(results), is_new: fresh, replaced, segment: None })
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
        let results = output.finalize(record, now)?;
        #[cfg(feature = "inject")]
        fail::fail_point!("output_completed", |_| std::process::abort());
        return Ok((None, results));
    }
    output.sync()?;
    #[cfg(feature = "inject")]
    fail::fail_point!("output_stored", |_| std::process::abort());
    let results = output.updated_record(record);
    Ok((Some(output), results))
}

/// Returns the store rows of the output file's record; for a new file also its index rows.
pub(super) fn output_file_rows(results: &FileRecord, fresh: bool) -> Vec<RowWrite> {
    if !fresh {
        let row = FileStore::encoded_row(results);
        return row
            .into_iter()
            .map(|(space, key, value)| RowWrite { table: space, key, value: Some(value) })
            .collect();
    }
    let steps: Result<Transaction, StoreError> = FileStore::insert_operations(results);
    steps.iter().flat_map(rows_of_transaction).collect()
}

/// Returns the row changes of a transaction, without its preconditions. These are not needed, because the file is
/// new, or no other gateway changes it.
pub(super) fn rows_of_transaction(transaction: &Transaction) -> Vec<RowWrite> {
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
