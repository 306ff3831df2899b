//! Spool of a request's bytes: a small body stays in memory, and a larger one is in a file. The file is unlinked when
//! it is created, so that nothing of it remains after the end of the process. All files have a common size limit, of
//! which the last eighth is reserved for accounts that hold less than an eighth.

use crate::config::settings::SpoolSettings;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use penstock_limits::AccountShares;
use std::fs::{DirBuilder, File};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::task::spawn_blocking;

/// Maximum number of bytes per read of a spool's file.
pub const MAX_READ_BYTES: usize = 64 << 10;

/// Size in bytes above which a file is closed on a blocking thread.
const LARGE_FILE: u64 = 1 << 20;

/// Factory of spools, with their folder and their common size limit.
pub struct SpoolFactory {
    folder: PathBuf,
    /// Maximum bytes of one spool in memory; beyond this size, it uses a file.
    memory_limit: usize,
    /// Size limit of all files together, in bytes.
    limit: usize,
    used: Arc<Mutex<AccountShares>>,
}

impl SpoolFactory {
    /// Returns a factory for this folder, which is created at its first use.
    #[must_use]
    pub fn new(folder: PathBuf, memory_limit: usize, limit: u64) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Self { folder, memory_limit, limit, used: Arc::default() }
    }

    /// Returns the factory of the configured folder, with its limits.
    #[must_use]
    pub fn from_settings(settings: &SpoolSettings) -> Self {
        Self::new(settings.path.clone(), settings.memory, settings.disk)
    }

    /// Creates an empty spool of the gateway itself, such as that of an image in the cache. It may use the whole size
    /// limit.
    #[must_use]
    pub fn new_spool(&self) -> SpoolWriter {
        self.new_spool_of(None)
    }

    /// Creates an empty spool for a request of this account.
    #[must_use]
    pub fn new_request_spool(&self, account: &Arc<str>) -> SpoolWriter {
        self.new_spool_of(Some(account.clone()))
    }

    fn new_spool_of(&self, account: Option<Arc<str>>) -> SpoolWriter {
        SpoolWriter {
            folder: self.folder.clone(),
            memory: self.memory_limit,
            reservation: SpoolReservation { used: self.used.clone(), account, limit: self.limit, taken: 0 },
            held: BytesMut::new(),
            file: None,
            length: 0,
        }
    }

    /// Returns the bytes that all spools together have reserved for their files.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        u64::try_from(self.used.lock().total()).unwrap_or(u64::MAX)
    }
}

/// Reserved part of the common size limit; released on drop.
struct SpoolReservation {
    used: Arc<Mutex<AccountShares>>,
    /// Account of the request; `None` for a spool of the gateway itself.
    account: Option<Arc<str>>,
    limit: usize,
    taken: usize,
}

/// Account to which spools of the gateway itself are counted.
const GATEWAY_ACCOUNT: &str = "";

impl SpoolReservation {
    fn empty() -> Self {
        Self { used: Arc::default(), account: None, limit: 0, taken: 0 }
    }

    fn reserve(&mut self, bytes: usize) -> Result<()> {
        let mut used = self.used.lock();
        let fits = match &self.account {
            Some(account) => used.try_add(account, bytes, self.limit),
            None => {
                let fits = used.total().saturating_add(bytes) <= self.limit;
                if fits {
                    used.add(&GATEWAY_ACCOUNT.into(), bytes);
                }
                fits
            }
        };
        drop(used);
        if !fits {
            return Err(ErrorKind::StorageFull.into());
        }
        self.taken += bytes;
        Ok(())
    }
}

impl Drop for SpoolReservation {
    fn drop(&mut self) {
        if self.taken > 0 {
            self.used.lock().remove(self.account.as_deref().unwrap_or(GATEWAY_ACCOUNT), self.taken);
        }
    }
}

/// Closes a file. A large file is closed on a blocking thread, since that takes time.
fn close_file<F: Send + 'static>(file: F, bytes: u64) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) if bytes > LARGE_FILE => drop(runtime.spawn_blocking(move || drop(file))),
        _ => drop(file),
    }
}

/// Spool that is being written.
pub struct SpoolWriter {
    folder: PathBuf,
    memory: usize,
    reservation: SpoolReservation,
    held: BytesMut,
    file: Option<tokio::fs::File>,
    length: u64,
}

impl SpoolWriter {
    /// Appends bytes to the spool, in memory or in its file.
    ///
    /// # Errors
    /// Returns `StorageFull` or another I/O error.
    pub async fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.length += bytes.len() as u64;
        if self.file.is_none() && self.held.len() + bytes.len() <= self.memory {
            self.held.extend_from_slice(bytes);
            return Ok(());
        }
        self.reservation.reserve(bytes.len())?;
        if self.file.is_none() {
            self.reservation.reserve(self.held.len())?;
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
        // The write buffer of the file uses memory too, so its size is limited.
        file.set_max_buf_size(MAX_READ_BYTES);
        Ok(file)
    }

    /// Completes the spool, which makes it readable.
    ///
    /// # Errors
    /// Returns any I/O error.
    pub async fn finish(mut self) -> Result<SpooledData> {
        let length = self.length;
        if let Some(file) = &mut self.file {
            file.flush().await?;
        }
        let held = match self.file.take() {
            None => SpoolStorage::Memory(std::mem::take(&mut self.held).freeze()),
            Some(file) => {
                let reservation = std::mem::replace(&mut self.reservation, SpoolReservation::empty());
                SpoolStorage::File(SpoolFile {
                    file: Some(file.into_std().await),
                    length,
                    _reservation: reservation,
                })
            }
        };
        Ok(SpooledData { held: Arc::new(held), length })
    }
}

impl Drop for SpoolWriter {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            close_file(file, self.length);
        }
    }
}

/// Complete spool; any number of clones can read it.
#[derive(Clone)]
pub struct SpooledData {
    held: Arc<SpoolStorage>,
    length: u64,
}

enum SpoolStorage {
    Memory(Bytes),
    File(SpoolFile),
}

/// File with its part of the common size limit.
struct SpoolFile {
    /// Open file; `None` once it is closed.
    file: Option<File>,
    length: u64,
    _reservation: SpoolReservation,
}

impl Drop for SpoolFile {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            close_file(file, self.length);
        }
    }
}

impl SpooledData {
    /// Returns the length of the spooled data, in bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.length
    }

    /// Returns true if the spool is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns true if the bytes are in a file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        matches!(*self.held, SpoolStorage::File(..))
    }

    /// Reads at most [`MAX_READ_BYTES`] bytes from an offset; empty at the end.
    ///
    /// # Errors
    /// Returns any I/O error, also if the file was truncated.
    pub async fn read(&self, offset: u64) -> Result<Bytes> {
        let most =
            usize::try_from(self.length.saturating_sub(offset)).unwrap_or(MAX_READ_BYTES).min(MAX_READ_BYTES);
        if most == 0 {
            return Ok(Bytes::new());
        }
        if let SpoolStorage::Memory(bytes) = &*self.held {
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
            return Ok(bytes.slice(from..bytes.len().min(from + most)));
        }
        let held = self.held.clone();
        let read = spawn_blocking(move || {
            let mut bytes = vec![0; most];
            if let SpoolStorage::File(SpoolFile { file: Some(file), .. }) = &*held {
                file.read_exact_at(&mut bytes, offset)?;
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

    async fn filled(spools: &SpoolFactory, pieces: &[&[u8]]) -> Result<SpooledData> {
        let mut spool = spools.new_spool();
        for piece in pieces {
            spool.push(piece).await?;
        }
        spool.finish().await
    }

    async fn all(spooled: &SpooledData) -> Vec<u8> {
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
        let spools = SpoolFactory::new(folder.path().join("spool"), 10, 1 << 20);
        let few = filled(&spools, &[b"0123", b"456789"]).await.unwrap();
        assert!(!few.is_file() && spools.used_bytes() == 0 && !folder.path().join("spool").exists());
        let long = vec![7; MAX_READ_BYTES];
        let many = filled(&spools, &[b"0123", b"456789", b"a", &long, b"z"]).await.unwrap();
        assert!(many.is_file());
        assert_eq!(spools.used_bytes(), many.len());
        assert_eq!(std::fs::read_dir(folder.path().join("spool")).unwrap().count(), 0);
        assert_eq!(all(&few).await, b"0123456789");
        let read = all(&many).await;
        assert_eq!(read, [b"0123456789a", &long[..], b"z"].concat());
        assert_eq!(all(&many.clone()).await, read, "again for the next reader");
        drop(many);
        assert_eq!(spools.used_bytes(), 0, "the room is given back");
    }

    #[tokio::test]
    async fn all_files_together_have_a_bound() {
        let folder = tempfile::tempdir().unwrap();
        let spools = SpoolFactory::new(folder.path().to_owned(), 0, 100);
        let first = filled(&spools, &[&[1; 60]]).await.unwrap();
        let full = filled(&spools, &[&[2; 60]]).await.err().unwrap();
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        drop(first);
        assert!(filled(&spools, &[&[2; 60]]).await.is_ok());
    }

    #[tokio::test]
    async fn one_account_leaves_the_last_eighth_to_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let spools = SpoolFactory::new(folder.path().to_owned(), 0, 800);
        let (greedy, modest): (Arc<str>, Arc<str>) = ("greedy".into(), "modest".into());
        let mut theirs = spools.new_request_spool(&greedy);
        theirs.push(&[1; 700]).await.unwrap();
        assert_eq!(theirs.push(&[1]).await.unwrap_err().kind(), ErrorKind::StorageFull);
        let mut own = spools.new_request_spool(&modest);
        own.push(&[2; 60]).await.unwrap();
        let finished = own.finish().await.unwrap();
        spools.new_spool().push(&[3; 40]).await.unwrap();
        assert_eq!(spools.used_bytes(), 760, "the spool of the gateway is released");
        drop((theirs, finished));
        assert_eq!(spools.used_bytes(), 0);
    }
}
