//! Room kept back for a full disk: sled cannot be opened without writing, so without it a store on a full
//! disk could not even be read.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::folder::{room, sync_dir};
use crate::{StoreError, private};

const CHUNK: usize = 1 << 20;

/// A file of a fixed size that is given up when the disk is full.
#[derive(Debug)]
pub(crate) struct Ballast {
    path: PathBuf,
    bytes: u64,
}

impl Ballast {
    pub(crate) fn new(path: PathBuf, bytes: u64) -> Ballast {
        Ballast { path, bytes }
    }

    /// Gives the room back to the disk.
    pub(crate) fn release(&self) -> Result<(), StoreError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::io("release its ballast", &error))
            }
            _ => self.sync(),
        }
    }

    /// Takes the room, if it is not taken yet.
    ///
    /// # Errors
    /// `Full` if there is not that much room; then none is taken.
    pub(crate) fn secure(&self) -> Result<(), StoreError> {
        if self.bytes == 0 || fs::metadata(&self.path).is_ok_and(|file| file.len() == self.bytes) {
            return Ok(());
        }
        let part = self.path.with_extension("part");
        let filled = fill(&part, self.bytes).and_then(|()| fs::rename(&part, &self.path));
        if let Err(error) = filled {
            let _ = fs::remove_file(&part);
            return Err(StoreError::io("secure its ballast", &error));
        }
        self.sync()
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.path.parent().map_or(Ok(()), sync_dir)
    }
}

/// Writes the bytes out: a file only set to a length takes no room.
fn fill(path: &Path, bytes: u64) -> io::Result<()> {
    // More than there is would fill the disk for everybody before it is given up.
    if bytes > room(path.parent().unwrap_or(path))? {
        return Err(io::ErrorKind::StorageFull.into());
    }
    let mut file = private::options().create(true).truncate(true).write(true).open(path)?;
    let chunk = vec![0_u8; CHUNK];
    let mut left = bytes;
    while left > 0 {
        let now = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        file.write_all(chunk.get(..now).unwrap_or(&chunk))?;
        left -= now as u64;
    }
    file.sync_all()
}
