//! Upload of a file: validated line by line and written to a temporary file, which is renamed at the end. An upload
//! that ends earlier leaves nothing behind. All calls block.

use super::block_checksums::Sums;
use super::quota::{Bounds, Full, Taken, fits};
use super::{Failed, sync_folder};
use penstock_batch::jsonl::{FileSummary, FileValidator};
use penstock_contract::hex;
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::{NamedTempFile, TempPath};

/// Bytes between two checks of the free disk space.
const ASK: u64 = 4 << 20;

/// Upload in progress.
pub struct Incoming {
    /// `None` after an invalid line: the rest is validated only.
    aside: Option<Aside>,
    lines: FileValidator,
    folder: PathBuf,
    bounds: Bounds,
    bytes: u64,
}

struct Aside {
    file: NamedTempFile,
    sums: Sums,
    digest: Sha256,
    taken: Taken,
}

/// Complete upload in a temporary file, synced.
pub(super) struct Settled {
    path: TempPath,
    taken: Taken,
    /// Result of the validation.
    pub checked: FileSummary,
    /// Length in bytes.
    pub bytes: u64,
    /// SHA-256 in hex.
    pub sha256: String,
    /// Checksum of the table of block checksums.
    pub sums: u32,
}

/// Returns a validator without input.
fn none_yet(longest: usize) -> FileValidator {
    FileValidator::new(penstock_batch::jsonl::BATCH_PATHS, longest)
}

impl Incoming {
    pub(super) fn new(aside: &Path, folder: &Path, taken: Taken, bounds: Bounds) -> Result<Self, Failed> {
        if !fits(folder, 0, bounds.free) {
            return Err(Failed::Full(Full::House));
        }
        let file = NamedTempFile::new_in(aside).map_err(Failed::Disk)?;
        let aside = Aside { file, sums: Sums::default(), digest: Sha256::new(), taken };
        Ok(Self {
            aside: Some(aside),
            lines: none_yet(bounds.line),
            folder: folder.to_owned(),
            bounds,
            bytes: 0,
        })
    }

    /// Adds the next bytes.
    ///
    /// # Errors
    /// Returns an error if there is no space, a line is too long, or the disk fails.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Failed> {
        let before = self.bytes;
        self.bytes += bytes.len() as u64;
        self.lines.push(bytes);
        if self.lines.has_error() {
            self.aside = None;
        }
        if self.lines.is_line_endless() {
            let none = none_yet(self.bounds.line);
            std::mem::replace(&mut self.lines, none).end().map_err(Failed::Lines)?;
        }
        let Some(aside) = &mut self.aside else { return Ok(()) };
        aside.taken.grow(bytes.len() as u64, &self.bounds).map_err(Failed::Full)?;
        if before / ASK != self.bytes / ASK && !fits(&self.folder, 0, self.bounds.free) {
            return Err(Failed::Full(Full::House));
        }
        aside.sums.push(bytes);
        aside.digest.update(bytes);
        aside.file.as_file_mut().write_all(bytes).map_err(Failed::Disk)
    }

    /// Bytes of memory that the incomplete line uses.
    #[must_use]
    pub const fn held_bytes(&self) -> usize {
        self.lines.buffered_bytes()
    }

    /// Completes the upload.
    ///
    /// # Errors
    /// Returns an error if lines are invalid or the disk fails.
    pub(super) fn settle(self) -> Result<Settled, Failed> {
        let checked = self.lines.end().map_err(Failed::Lines)?;
        // Valid lines were all written to the temporary file.
        let Some(aside) = self.aside else { return Err(Failed::Disk(std::io::ErrorKind::NotFound.into())) };
        let Aside { mut file, sums, digest, taken } = aside;
        let (tail, sums) = sums.finish();
        file.as_file_mut().write_all(&tail).map_err(Failed::Disk)?;
        file.as_file().sync_all().map_err(Failed::Disk)?;
        let sha256 = hex::text(&digest.finalize());
        Ok(Settled { path: file.into_temp_path(), taken, checked, bytes: self.bytes, sha256, sums })
    }
}

impl Settled {
    /// Renames the file to its path and syncs the folder.
    pub(super) fn place(self, folder: &Path, path: &Path) -> Result<Taken, Failed> {
        // The ID is new, so nothing is replaced. The standard library is used so that the power-loss
        // test sees the call.
        std::fs::rename(&self.path, path).map_err(Failed::Disk)?;
        if let Err(error) = sync_folder(folder) {
            std::fs::remove_file(path).ok();
            return Err(Failed::Disk(error));
        }
        Ok(self.taken)
    }
}
