//! Growing output file of a batch. Bytes are appended and synced here. The record of the file states how many bytes
//! are committed; the record is written in the same commit as the charges of the results in these bytes. Bytes beyond
//! that number are not results, and are truncated when the file is opened again. With a bucket, the file is a
//! temporary one, and each sync stores the appended bytes as a segment in the bucket. All calls block.

use super::block_checksums::BlockChecksums;
use super::segments::{OutputCheckpoint, SegmentWriter};
use penstock_core::hex;
use penstock_storage::files::{FileRecord, FileStatus};
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions};
use std::io::Result;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// Output file of a running batch.
#[derive(Debug)]
pub struct OutputFile {
    file: File,
    checksums: BlockChecksums,
    digest: Sha256,
    bytes: u64,
    /// Segments in the bucket; `None` if the file is the only copy.
    segments: Option<SegmentWriter>,
}

impl OutputFile {
    /// Opens the file, truncated to its committed length.
    ///
    /// # Errors
    /// Returns `InvalidData` if committed bytes are missing or damaged, and any I/O error.
    pub(super) fn open(path: &Path, record: &FileRecord) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Self::from_file(file, record, None)
    }

    /// Creates an output file from an open file: verifies its committed bytes, and truncates it to their length.
    ///
    /// # Errors
    /// The same as those of [`OutputFile::open`].
    pub(super) fn from_file(
        file: File,
        record: &FileRecord,
        segments: Option<SegmentWriter>,
    ) -> Result<Self> {
        let mut digest = Sha256::new();
        let checksums = BlockChecksums::compute(&file, record.bytes, record.table_checksum, |piece| {
            digest.update(piece)
        })?;
        file.set_len(record.bytes)?;
        Ok(Self { file, checksums, digest, bytes: record.bytes, segments })
    }

    fn add_to_checksums(&mut self, bytes: &[u8]) {
        self.checksums.push(bytes);
        self.digest.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// Appends bytes without a sync. After an error the length is unchanged.
    ///
    /// # Errors
    /// Returns `StorageFull` or another I/O error.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, self.bytes)?;
        self.add_to_checksums(bytes);
        Ok(())
    }

    /// Syncs the appended bytes, so that they survive a power loss. With a bucket, they also survive the loss of the
    /// machine.
    ///
    /// # Errors
    /// Returns any I/O error. The state on the disk is then unknown, and the file must be opened again.
    pub fn sync(&mut self) -> Result<()> {
        let end = OutputCheckpoint { bytes: self.bytes, table_checksum: self.checksums.table_checksum() };
        match &mut self.segments {
            None => self.file.sync_data(),
            Some(segments) => segments.store_up_to(&self.file, end),
        }
    }

    /// Returns the updated record, which includes all bytes that were appended so far. The caller commits it after a
    /// sync.
    #[must_use]
    pub fn updated_record(&self, record: &FileRecord) -> FileRecord {
        FileRecord {
            bytes: self.bytes,
            table_checksum: Some(self.checksums.table_checksum()),
            ..record.clone()
        }
    }

    /// Returns the length in bytes, including the bytes that earlier processes wrote.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.bytes
    }

    /// Returns true if the file is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Completes the file at the time `now`, and returns the record that has to be committed. Before this commit, the
    /// file can still be opened again as a growing file.
    ///
    /// # Errors
    /// Returns any I/O error.
    pub fn finalize(self, record: &FileRecord, now: Duration) -> Result<FileRecord> {
        let (tail, table_checksum) = self.checksums.into_table_and_footer();
        self.file.write_all_at(&tail, self.bytes)?;
        self.file.set_len(self.bytes + tail.len() as u64)?;
        self.file.sync_all()?;
        let whole = FileRecord {
            bytes: self.bytes,
            sha256: Some(hex::encode(&self.digest.finalize())),
            table_checksum: Some(table_checksum),
            status: FileStatus::Processed,
            finished_at: Some(now.as_secs()),
            ..record.clone()
        };
        if let Some(segments) = self.segments {
            segments.store_complete_file(&whole)?;
        }
        Ok(whole)
    }
}
