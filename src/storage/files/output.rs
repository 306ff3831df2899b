//! The growing file of a batch's results. Bytes are appended and synced here; which of them count is said by the
//! record, in the commit that also has their charges. Bytes beyond that are no results: they are cut off when the
//! file is opened again. Calls block.

use super::block_checksums::Sums;
use penstock_contract::hex;
use penstock_storage::files::{FileRecord, FileStatus};
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions};
use std::io::Result;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// A file of results that grows.
#[derive(Debug)]
pub struct Output {
    file: File,
    sums: Sums,
    digest: Sha256,
    bytes: u64,
}

impl Output {
    /// Goes on where the record says.
    ///
    /// # Errors
    /// `InvalidData` if not all that counts is there as it was written; what the disk says.
    pub(super) fn open(path: &Path, record: &FileRecord) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let mut digest = Sha256::new();
        let sums = Sums::of(&file, record.bytes, record.sums, |piece| digest.update(piece))?;
        file.set_len(record.bytes)?;
        Ok(Self { file, sums, digest, bytes: record.bytes })
    }

    fn count(&mut self, bytes: &[u8]) {
        self.sums.push(bytes);
        self.digest.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// Adds bytes, not yet for good. After an error it is as if nothing had been asked.
    ///
    /// # Errors
    /// `StorageFull`, or what else the disk says.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, self.bytes)?;
        self.count(bytes);
        Ok(())
    }

    /// All that was added survives a power cut.
    ///
    /// # Errors
    /// What the disk says; whether it was kept is unknown then, and the file is to be opened again.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_data()
    }

    /// The record with all that was added so far, to be committed once that is synced.
    #[must_use]
    pub fn counted(&self, record: &FileRecord) -> FileRecord {
        FileRecord { bytes: self.bytes, sums: Some(self.sums.sum()), ..record.clone() }
    }

    /// Bytes that were added, those of earlier starts included.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.bytes
    }

    /// There are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Nothing more comes, from `now` on: returns the record of the whole file, to be committed. Until it is, the
    /// file can be opened again as the growing one it was.
    ///
    /// # Errors
    /// What the disk says.
    pub fn seal(self, record: &FileRecord, now: Duration) -> Result<FileRecord> {
        let (tail, sums) = self.sums.finish();
        self.file.write_all_at(&tail, self.bytes)?;
        self.file.set_len(self.bytes + tail.len() as u64)?;
        self.file.sync_all()?;
        Ok(FileRecord {
            bytes: self.bytes,
            sha256: Some(hex::text(&self.digest.finalize())),
            sums: Some(sums),
            status: FileStatus::Processed,
            finished_at: Some(now.as_secs()),
            ..record.clone()
        })
    }
}
