//! Stored responses: one encrypted file for each. A response exists once its file has its final name, and no longer
//! exists once the file is removed; there is no other record of it. In a fleet, the files are where all gateways can
//! access them. The files of a single gateway are in its own folder, and are still read after the gateway has joined a
//! fleet. Calls block.

#[cfg(test)]
mod fleet_tests;
mod local_files;
mod response_files;
mod sealed_document;
mod shared_files;
mod sweep;
#[cfg(test)]
mod tests;
mod usage;

use crate::config::settings::ResponseSettings;
use crate::storage::shared_contents::SharedContents;
use crate::storage::stores::Pepper;
use local_files::LocalFiles;
use parking_lot::Mutex;
use response_files::{ResponseFile, ResponseFiles, ResponseName, ResponseStage};
use sealed_document::{DocumentCipher, HEAD_BYTES, start_of_retention};
use shared_files::SharedFiles;
pub use shared_files::is_response_object;
use std::io::{Error, ErrorKind, Result};
use std::path::Path;
use std::time::Duration;
pub use sweep::SweepRole;
use usage::StoredResponseBytes;

/// Folder of the stored responses: in the storage folder, and among the objects of a fleet.
pub const RESPONSES_FOLDER: &str = "responses";
/// Prefix of response ids.
pub const RESPONSE_ID_PREFIX: &str = "resp_";
/// Longest id, in bytes.
const MAX_ID_BYTES: usize = 64;

/// Limits of stored responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseLimits {
    /// Limits on the size of stored responses, and their retention.
    pub settings: ResponseSettings,
    /// Bytes of the disk that must stay free.
    pub keep_free: u64,
}

/// Stored responses of all keys.
pub struct ResponseStore {
    files: Box<dyn ResponseFiles>,
    /// Files of this gateway from before it joined its fleet; `None` without a fleet.
    earlier: Option<LocalFiles>,
    cipher: DocumentCipher,
    usage: StoredResponseBytes,
    /// Lock of the call that evicts responses beyond the limits. While one call holds it, other calls skip the
    /// eviction.
    eviction: Mutex<()>,
}

impl ResponseStore {
    /// Opens or creates the folder. Partly written files of a crash are removed, unless a process that still drains
    /// may be writing them (`taken_over`). With `shared` contents, new responses are stored in these contents.
    ///
    /// # Errors
    /// Returns a sentence for the operator if the folder cannot be used.
    pub fn open(
        storage: &Path,
        pepper: &Pepper,
        taken_over: bool,
        shared: Option<SharedContents>,
    ) -> std::result::Result<Self, String> {
        let folder = storage.join(RESPONSES_FOLDER);
        let failed = |error: Error| {
            format!("The folder of the stored responses {} cannot be used: {error}.", folder.display())
        };
        let local = LocalFiles::open(folder.clone()).map_err(failed)?;
        if !taken_over {
            local.remove_partial_writes().map_err(failed)?;
        }
        let (files, earlier): (Box<dyn ResponseFiles>, _) = match shared {
            None => (Box::new(local), None),
            Some(contents) => (Box::new(SharedFiles(contents)), Some(local)),
        };
        let (cipher, usage) = (DocumentCipher::new(pepper), StoredResponseBytes::default());
        let store = Self { files, earlier, cipher, usage, eviction: Mutex::default() };
        // Without a fleet, the files are counted here; in a fleet, the first sweep counts them.
        if store.earlier.is_none() {
            store.count_stored_bytes().map_err(failed)?;
        }
        Ok(store)
    }

    /// Stores a new response whose retention starts at `retained_since`, Unix seconds, and evicts the oldest finished
    /// responses beyond the limits. `name` is the public id of the API key, and the id of the response. The response
    /// survives a power loss.
    ///
    /// # Errors
    /// Returns `StorageFull` if the response is larger than its key may store or the disk has no free space,
    /// `InvalidInput` for an id that cannot name a file, and any I/O error.
    pub fn insert(
        &self,
        name: (&str, &str),
        retained_since: u64,
        document: &[u8],
        limits: ResponseLimits,
    ) -> Result<()> {
        self.write(name, retained_since, document, limits, ResponseStage::Complete)
    }

    /// Stores a background response that has not ended. It is not evicted before its end; its retention starts at
    /// `retained_since`, in the future.
    ///
    /// # Errors
    /// Returns the errors of [`ResponseStore::insert`].
    pub fn insert_unfinished(
        &self,
        name: (&str, &str),
        retained_since: u64,
        document: &[u8],
        limits: ResponseLimits,
    ) -> Result<()> {
        self.write(name, retained_since, document, limits, ResponseStage::Unfinished)
    }

    /// Replaces an unfinished background response by its final document; the retention starts at `retained_since`, Unix
    /// seconds.
    ///
    /// # Errors
    /// Returns the errors of [`ResponseStore::insert`].
    pub fn finish(
        &self,
        name: (&str, &str),
        retained_since: u64,
        document: &[u8],
        limits: ResponseLimits,
    ) -> Result<()> {
        self.write(name, retained_since, document, limits, ResponseStage::Finished)
    }

    fn write(
        &self,
        (key, id): (&str, &str),
        retained_since: u64,
        document: &[u8],
        limits: ResponseLimits,
        stage: ResponseStage,
    ) -> Result<()> {
        let name = ResponseName::new(key, id).ok_or(ErrorKind::InvalidInput)?;
        let sealed = self.cipher.encrypt(key, id, retained_since, document)?;
        let bytes = sealed.len() as u64;
        let settings = limits.settings;
        if bytes > settings.per_key.min(settings.disk) || !self.files.has_space(bytes, limits.keep_free) {
            return Err(ErrorKind::StorageFull.into());
        }
        let replaced = match stage {
            ResponseStage::Finished => self.files.size(name)?.unwrap_or(0),
            ResponseStage::Complete | ResponseStage::Unfinished => 0,
        };
        self.files.write(name, &sealed, retained_since, stage)?;
        self.usage.replace_bytes(key, replaced, bytes);
        // A failed eviction is only logged, because the response is already stored. After an error, the caller might
        // repeat the write without a charge.
        if let Err(error) =
            self.evict_over_limit(key, Some(id), settings, self.files.max_evictions_per_write())
        {
            tracing::error!(name: "responses_not_swept", why = %error);
        }
        Ok(())
    }

    /// Returns the size of a stored response in bytes, which is at least the size of its document; `None` if the key
    /// has no response with this id.
    ///
    /// # Errors
    /// Returns any I/O error.
    pub fn size(&self, key: &str, id: &str) -> Result<Option<u64>> {
        self.find(key, id, |files, name| files.size(name))
    }

    /// Returns the document of a response; `None` if the key has no response with this id, or if the response has
    /// expired at `now`, Unix seconds.
    ///
    /// # Errors
    /// Returns `InvalidData` if the file is damaged or was encrypted with another pepper, and any I/O error.
    pub fn get(&self, key: &str, id: &str, now: u64, retention: Duration) -> Result<Option<Vec<u8>>> {
        let Some(sealed) = self.find(key, id, |files, name| files.read(name))? else { return Ok(None) };
        let (retained_since, document) = self.cipher.decrypt(key, id, sealed)?;
        Ok((!is_expired(retained_since, now, retention)).then_some(document))
    }

    /// Returns true if the key has a response with this id that has expired at `now`, Unix seconds. Reads only the head
    /// of its file; a damaged file has not expired.
    ///
    /// # Errors
    /// Returns any I/O error.
    pub fn has_expired(&self, key: &str, id: &str, now: u64, retention: Duration) -> Result<bool> {
        let read_time = |files: &dyn ResponseFiles, name: ResponseName<'_>| {
            let mut head = [0; HEAD_BYTES];
            Ok(files.read_start(name, &mut head)?.map(|()| start_of_retention(&head)))
        };
        let retained_since = match self.find(key, id, read_time) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => None,
            found => found?.flatten(),
        };
        Ok(retained_since.is_some_and(|since| is_expired(since, now, retention)))
    }

    /// Removes a response, also one that has expired; returns false if the key has no response with this id.
    ///
    /// # Errors
    /// Returns any I/O error.
    pub fn delete(&self, key: &str, id: &str) -> Result<bool> {
        let Some(name) = ResponseName::new(key, id) else { return Ok(false) };
        let removed = match self.files.size(name)? {
            Some(bytes) => {
                let file = ResponseFile::for_ended_response(id, bytes);
                let unfinished = ResponseFile { bytes: 0, has_ended: false, ..file.clone() };
                self.remove(key, vec![file, unfinished])? > 0
            }
            None => false,
        };
        let Some(earlier) = &self.earlier else { return Ok(removed) };
        let file = ResponseFile::for_ended_response(id, 0);
        Ok(!earlier.remove(key, vec![file])?.is_empty() || removed)
    }

    /// Returns the bytes of all stored responses.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.usage.total_bytes()
    }

    /// Looks up a response in the current files, and then in the files from before this gateway joined its fleet;
    /// `None` for ids that cannot name a file.
    fn find<T>(
        &self,
        key: &str,
        id: &str,
        read_response: impl Fn(&dyn ResponseFiles, ResponseName<'_>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let Some(name) = ResponseName::new(key, id) else { return Ok(None) };
        match (read_response(&*self.files, name)?, &self.earlier) {
            (None, Some(earlier)) => read_response(earlier, name),
            (found, _) => Ok(found),
        }
    }

    /// Removes files of a key, and their bytes from the usage; returns the removed bytes.
    fn remove(&self, key: &str, files: Vec<ResponseFile>) -> Result<u64> {
        let removed = self.files.remove(key, files)?;
        let bytes = removed.iter().map(|file| file.bytes).sum();
        self.usage.release_bytes(key, bytes);
        Ok(bytes)
    }
}

/// Returns true if a response whose retention started at `retained_since` has expired; times are Unix seconds.
fn is_expired(retained_since: u64, now: u64, retention: Duration) -> bool {
    retained_since.saturating_add(retention.as_secs()) <= now
}
