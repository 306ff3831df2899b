//! Reserve file for a full disk. sled writes on opening, so without reserved space a store on a full disk could not
//! even be opened for reading.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::directory::{free_bytes, sync_dir};
use crate::{StoreError, permissions};

const CHUNK: usize = 1 << 20;

/// File of a fixed size that is deleted when the disk is full.
#[derive(Debug)]
pub(crate) struct ReserveFile {
    path: PathBuf,
    bytes: u64,
}

impl ReserveFile {
    pub(crate) fn new(path: PathBuf, bytes: u64) -> ReserveFile {
        ReserveFile { path, bytes }
    }

    /// Deletes the file to free its disk space.
    pub(crate) fn delete(&self) -> Result<(), StoreError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::io("delete its ballast file", &error))
            }
            _ => self.sync(),
        }
    }

    /// Creates the file, unless it exists with its full size.
    ///
    /// # Errors
    /// Returns `Full` if there is not enough free space; then no space is used.
    pub(crate) fn create_if_missing(&self) -> Result<(), StoreError> {
        if self.bytes == 0 || fs::metadata(&self.path).is_ok_and(|file| file.len() == self.bytes) {
            return Ok(());
        }
        let part = self.path.with_extension("part");
        let filled = write_zeros(&part, self.bytes).and_then(|()| fs::rename(&part, &self.path));
        if let Err(error) = filled {
            let _ = fs::remove_file(&part);
            return Err(StoreError::io("create its ballast file", &error));
        }
        self.sync()
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.path.parent().map_or(Ok(()), sync_dir)
    }
}

/// Fills the file with zeros, because a file that is only extended (sparse) allocates no disk blocks.
fn write_zeros(path: &Path, bytes: u64) -> io::Result<()> {
    // Without this check, a file larger than the free space would fill the disk for all processes before the error.
    if bytes > free_bytes(path.parent().unwrap_or(path))? {
        return Err(io::ErrorKind::StorageFull.into());
    }
    let mut file = permissions::open_options().create(true).truncate(true).write(true).open(path)?;
    let chunk = vec![0_u8; CHUNK];
    let mut left = bytes;
    while left > 0 {
        let now = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        file.write_all(chunk.get(..now).unwrap_or(&chunk))?;
        left -= now as u64;
    }
    file.sync_all()
}
