//! A file on its way in: proven line by line and written aside, then moved to its place in one step. Whatever
//! ends it before that leaves nothing behind. Calls block.

use super::block_checksums::Sums;
use super::quota::{Bounds, Full, Taken, fits};
use super::{Failed, sync_folder};
use penstock_batch::jsonl::{FileSummary, FileValidator};
use penstock_contract::hex;
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::{NamedTempFile, TempPath};

/// After so many bytes the disk is asked again how much is free.
const ASK: u64 = 4 << 20;

/// Bytes that still arrive.
pub struct Incoming {
    /// `None` once a line is wrong: what follows is proven only.
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

/// Bytes that are all on the disk, still aside.
pub(super) struct Settled {
    path: TempPath,
    taken: Taken,
    /// What is in the lines.
    pub checked: FileSummary,
    /// How many bytes.
    pub bytes: u64,
    /// Their SHA-256 in hex.
    pub sha256: String,
    /// The checksum of their blocks' checksums.
    pub sums: u32,
}

/// The check of a file of which nothing has come.
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

    /// Takes the next bytes.
    ///
    /// # Errors
    /// There is no room for them; a line does not end; what the disk says.
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

    /// Bytes of memory that a line holds whose end has not come.
    #[must_use]
    pub const fn held_bytes(&self) -> usize {
        self.lines.buffered_bytes()
    }

    /// There is no more.
    ///
    /// # Errors
    /// What is wrong with the lines; what the disk says.
    pub(super) fn settle(self) -> Result<Settled, Failed> {
        let checked = self.lines.end().map_err(Failed::Lines)?;
        // Sound lines were all written aside.
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
    /// Moves the bytes to their place, for good once the folder says so.
    pub(super) fn place(self, folder: &Path, path: &Path) -> Result<Taken, Failed> {
        // Its id is new, so nothing is replaced. A call of the standard library, for the power-cut test to see.
        std::fs::rename(&self.path, path).map_err(Failed::Disk)?;
        if let Err(error) = sync_folder(folder) {
            std::fs::remove_file(path).ok();
            return Err(Failed::Disk(error));
        }
        Ok(self.taken)
    }
}
