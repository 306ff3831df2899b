//! Bytes set aside while a request needs them: in memory while they are few, in a
//! file when they are many. A file has no name from its first moment on, so that
//! nothing is left of it whatever ends this process.

use bytes::{Bytes, BytesMut};
use std::fs::{DirBuilder, File};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::AsyncWriteExt;
use tokio::task::spawn_blocking;

/// Bytes of a file that are read at once.
pub const SLICE: usize = 64 << 10;

/// Files beyond this are let go of on another thread.
const LARGE: u64 = 1 << 20;

/// Where files are made, and how much may be in them together.
pub struct Spools {
    folder: PathBuf,
    /// Bytes that are kept in memory before there is a file.
    memory: usize,
    /// Bytes of all files together.
    most: u64,
    used: Arc<AtomicU64>,
}

impl Spools {
    /// Spools in this folder, which is made when it is first needed.
    #[must_use]
    pub fn new(folder: PathBuf, memory: usize, most: u64) -> Self {
        Self { folder, memory, most, used: Arc::default() }
    }

    /// An empty spool.
    #[must_use]
    pub fn open(&self) -> Spool {
        Spool {
            folder: self.folder.clone(),
            memory: self.memory,
            room: Room { used: self.used.clone(), most: self.most, taken: 0 },
            held: BytesMut::new(),
            file: None,
            length: 0,
        }
    }

    /// Bytes in files now.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// What one spool has taken of the room for all; given back when dropped.
struct Room {
    used: Arc<AtomicU64>,
    most: u64,
    taken: u64,
}

impl Room {
    fn none() -> Self {
        Self { used: Arc::default(), most: 0, taken: 0 }
    }

    fn take(&mut self, bytes: u64) -> Result<()> {
        let grown = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.most);
        self.used
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, grown)
            .map_err(|_| Error::from(ErrorKind::StorageFull))?;
        self.taken += bytes;
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.used.fetch_sub(self.taken, Ordering::AcqRel);
    }
}

/// Lets go of a file. One that is large takes its time, and requests on this thread have none.
fn let_go<F: Send + 'static>(file: F, bytes: u64) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) if bytes > LARGE => drop(runtime.spawn_blocking(move || drop(file))),
        _ => drop(file),
    }
}

/// Bytes that still arrive.
pub struct Spool {
    folder: PathBuf,
    memory: usize,
    room: Room,
    held: BytesMut,
    file: Option<tokio::fs::File>,
    length: u64,
}

impl Spool {
    /// Adds bytes.
    ///
    /// # Errors
    /// `StorageFull`, or what else the disk says.
    pub async fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.length += bytes.len() as u64;
        if self.file.is_none() && self.held.len() + bytes.len() <= self.memory {
            self.held.extend_from_slice(bytes);
            return Ok(());
        }
        self.room.take(bytes.len() as u64)?;
        if self.file.is_none() {
            self.room.take(self.held.len() as u64)?;
            self.file = Some(self.create().await?);
        }
        if let Some(file) = &mut self.file {
            if !self.held.is_empty() {
                file.write_all(&std::mem::take(&mut self.held)).await?;
            }
            file.write_all(bytes).await?;
        }
        Ok(())
    }

    async fn create(&self) -> Result<tokio::fs::File> {
        let folder = self.folder.clone();
        let made = spawn_blocking(move || {
            DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            tempfile::tempfile_in(&folder)
        });
        let mut file = tokio::fs::File::from_std(made.await.map_err(Error::other)??);
        // What waits for the disk is memory too.
        file.set_max_buf_size(SLICE);
        Ok(file)
    }

    /// There is no more; from now on it can be read.
    ///
    /// # Errors
    /// What the disk says.
    pub async fn seal(mut self) -> Result<Spooled> {
        let length = self.length;
        if let Some(file) = &mut self.file {
            file.flush().await?;
        }
        let held = match self.file.take() {
            None => Held::Memory(std::mem::take(&mut self.held).freeze()),
            Some(file) => {
                let room = std::mem::replace(&mut self.room, Room::none());
                Held::File(OnDisk { file: Some(file.into_std().await), length, _room: room })
            }
        };
        Ok(Spooled { held: Arc::new(held), length })
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            let_go(file, self.length);
        }
    }
}

/// Bytes that are all there, for as many readers as there are clones.
#[derive(Clone)]
pub struct Spooled {
    held: Arc<Held>,
    length: u64,
}

enum Held {
    Memory(Bytes),
    File(OnDisk),
}

/// A file, and its share of the room for all.
struct OnDisk {
    /// `None` once it is let go of.
    file: Option<File>,
    length: u64,
    _room: Room,
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            let_go(file, self.length);
        }
    }
}

impl Spooled {
    /// How many bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.length
    }

    /// None at all.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// They are in a file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        matches!(*self.held, Held::File(..))
    }

    /// The bytes from a place on, at most [`SLICE`] of them; none at the end.
    ///
    /// # Errors
    /// What the disk says; a file that became shorter.
    pub async fn read(&self, at: u64) -> Result<Bytes> {
        let most = usize::try_from(self.length.saturating_sub(at)).unwrap_or(SLICE).min(SLICE);
        if most == 0 {
            return Ok(Bytes::new());
        }
        if let Held::Memory(bytes) = &*self.held {
            let from = usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
            return Ok(bytes.slice(from..bytes.len().min(from + most)));
        }
        let held = self.held.clone();
        let read = spawn_blocking(move || {
            let mut bytes = vec![0; most];
            if let Held::File(OnDisk { file: Some(file), .. }) = &*held {
                file.read_exact_at(&mut bytes, at)?;
            }
            Ok(Bytes::from(bytes))
        });
        read.await.map_err(Error::other)?
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    async fn filled(spools: &Spools, pieces: &[&[u8]]) -> Result<Spooled> {
        let mut spool = spools.open();
        for piece in pieces {
            spool.push(piece).await?;
        }
        spool.seal().await
    }

    async fn all(spooled: &Spooled) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            let piece = spooled.read(bytes.len() as u64).await.unwrap();
            if piece.is_empty() {
                return bytes;
            }
            bytes.extend_from_slice(&piece);
        }
    }

    #[tokio::test]
    async fn few_bytes_stay_in_memory_and_many_go_to_a_file_without_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().join("spool"), 10, 1 << 20);
        let few = filled(&spools, &[b"0123", b"456789"]).await.unwrap();
        assert!(!few.is_file() && spools.used() == 0 && !folder.path().join("spool").exists());
        let long = vec![7; SLICE];
        let many = filled(&spools, &[b"0123", b"456789", b"a", &long, b"z"]).await.unwrap();
        assert!(many.is_file());
        assert_eq!(spools.used(), many.len());
        assert_eq!(std::fs::read_dir(folder.path().join("spool")).unwrap().count(), 0);
        assert_eq!(all(&few).await, b"0123456789");
        let read = all(&many).await;
        assert_eq!(read, [b"0123456789a", &long[..], b"z"].concat());
        assert_eq!(all(&many.clone()).await, read, "again for the next reader");
        drop(many);
        assert_eq!(spools.used(), 0, "the room is given back");
    }

    #[tokio::test]
    async fn all_files_together_have_a_bound() {
        let folder = tempfile::tempdir().unwrap();
        let spools = Spools::new(folder.path().to_owned(), 0, 100);
        let first = filled(&spools, &[&[1; 60]]).await.unwrap();
        let full = filled(&spools, &[&[2; 60]]).await.err().unwrap();
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        drop(first);
        assert!(filled(&spools, &[&[2; 60]]).await.is_ok());
    }
}
