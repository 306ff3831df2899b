//! Stored responses: one encrypted file for each, in a folder for each API key. A response exists once its file has its
//! final name, and is gone when the file is removed; there is no other record of it. Calls block.

mod sealed_document;
mod sweep;
#[cfg(test)]
mod tests;
mod usage;

use crate::config::settings::ResponseSettings;
use crate::storage::files::quota::has_free_space;
use crate::storage::stores::Pepper;
use sealed_document::DocumentCipher;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Error, ErrorKind, Result, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use usage::ResponseUsage;

/// Folder in the storage folder.
pub const RESPONSES_FOLDER: &str = "responses";
/// Prefix of response ids.
pub const RESPONSE_ID_PREFIX: &str = "resp_";
/// Longest id, in bytes.
const MAX_ID_BYTES: usize = 64;
/// Extension of files that are being written.
const UNFINISHED: &str = "new";

/// Limits of stored responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseLimits {
    /// Sizes and retention.
    pub settings: ResponseSettings,
    /// Free disk space that stored responses must leave, in bytes.
    pub keep_free: u64,
}

/// Stored responses of all keys.
#[derive(Debug)]
pub struct ResponseStore {
    folder: PathBuf,
    cipher: DocumentCipher,
    usage: ResponseUsage,
}

impl ResponseStore {
    /// Opens or creates the folder. Unfinished files of a crash are removed, unless a process that still drains writes
    /// them (`taken_over`).
    ///
    /// # Errors
    /// Returns a sentence for the operator if the folder cannot be used.
    pub fn open(storage: &Path, pepper: &Pepper, taken_over: bool) -> std::result::Result<Self, String> {
        let folder = storage.join(RESPONSES_FOLDER);
        let failed = |error: Error| {
            format!("The folder of the stored responses {} cannot be used: {error}.", folder.display())
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed)?;
        let store = Self {
            cipher: DocumentCipher::new(pepper),
            usage: ResponseUsage::default(),
            folder: folder.clone(),
        };
        store.count_files(if taken_over { None } else { Some(UNFINISHED) }).map_err(failed)?;
        Ok(store)
    }

    /// Stores a response that was created at `created`, Unix seconds, and removes the oldest ones beyond the limits.
    /// The response survives a power cut.
    ///
    /// # Errors
    /// Returns `StorageFull` if the response is larger than its key may store or the disk has no free space,
    /// `InvalidInput` for an id that cannot name a file, and any I/O error.
    pub fn insert(
        &self,
        (key, id): (&str, &str),
        created: u64,
        document: &[u8],
        limits: ResponseLimits,
    ) -> Result<()> {
        let path = self.path(key, id).ok_or(ErrorKind::InvalidInput)?;
        let sealed = self.cipher.seal(key, id, created, document)?;
        let bytes = sealed.len() as u64;
        let settings = limits.settings;
        if bytes > settings.per_key.min(settings.disk)
            || !has_free_space(&self.folder, bytes, limits.keep_free)
        {
            return Err(ErrorKind::StorageFull.into());
        }
        let folder = self.folder.join(key);
        let mut written = self.write_file(&folder, &path, &sealed, created);
        if matches!(&written, Err(error) if error.kind() == ErrorKind::NotFound) {
            // The sweep removed the empty folder meanwhile.
            written = self.write_file(&folder, &path, &sealed, created);
        }
        written?;
        self.usage.add_bytes(key, bytes);
        self.evict(key, settings)
    }

    /// Writes a file under another name first, so that it appears complete or not at all.
    fn write_file(&self, folder: &Path, path: &Path, sealed: &[u8], created: u64) -> Result<()> {
        if !folder.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            sync_folder(&self.folder)?;
        }
        let unfinished = path.with_extension(UNFINISHED);
        let written = write_synced(&unfinished, sealed, created).and_then(|()| fs::rename(&unfinished, path));
        if written.is_err() {
            fs::remove_file(&unfinished).ok();
        }
        written.and_then(|()| sync_folder(folder))
    }

    /// Returns the size of a stored response in bytes, at least that of its document; `None` if the key has none of
    /// this id.
    ///
    /// # Errors
    /// Returns any I/O error.
    pub fn size(&self, key: &str, id: &str) -> Result<Option<u64>> {
        let Some(path) = self.path(key, id) else { return Ok(None) };
        match fs::metadata(path) {
            Ok(file) => Ok(Some(file.len())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the document of a response that the key stored, unless it has expired at `now`, Unix seconds.
    ///
    /// # Errors
    /// Returns `InvalidData` if the file is damaged or was encrypted with another pepper, and any I/O error.
    pub fn get(&self, key: &str, id: &str, now: u64, retention: Duration) -> Result<Option<Vec<u8>>> {
        let Some(path) = self.path(key, id) else { return Ok(None) };
        let sealed = match fs::read(path) {
            Ok(sealed) => sealed,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let (created, document) = self.cipher.open(key, id, sealed)?;
        Ok((!is_expired(created, now, retention)).then_some(document))
    }

    /// Removes a response from the disk; returns false if the key has none of this id.
    ///
    /// # Errors
    /// Returns any I/O error.
    pub fn delete(&self, key: &str, id: &str) -> Result<bool> {
        let Some(path) = self.path(key, id) else { return Ok(false) };
        let removed = self.remove(key, &path)?;
        if removed {
            sync_folder(&self.folder.join(key))?;
        }
        Ok(removed)
    }

    /// Returns the bytes of all stored responses.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.usage.total_bytes()
    }

    /// Removes a file and its bytes from the usage; returns false if it does not exist.
    fn remove(&self, key: &str, path: &Path) -> Result<bool> {
        let bytes = fs::metadata(path).map(|file| file.len()).unwrap_or_default();
        match fs::remove_file(path) {
            Ok(()) => {
                self.usage.release_bytes(key, bytes);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the path of a response; `None` for ids that name none, such as `../key`.
    fn path(&self, key: &str, id: &str) -> Option<PathBuf> {
        let is_word = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let unique = id.strip_prefix(RESPONSE_ID_PREFIX)?;
        (is_word(key) && is_word(unique) && id.len() <= MAX_ID_BYTES).then(|| self.folder.join(key).join(id))
    }
}

/// Returns true if a response that was created at `created` has expired; times are Unix seconds.
fn is_expired(created: u64, now: u64, retention: Duration) -> bool {
    created.saturating_add(retention.as_secs()) <= now
}

/// Writes and syncs a file for its owner only. Its modification time is that of the response, by which it expires.
fn write_synced(path: &Path, bytes: &[u8], created: u64) -> Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(created))?;
    file.sync_all()
}

/// Syncs a folder, so that changes of its names survive a power cut.
fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder)?.sync_all()
}
