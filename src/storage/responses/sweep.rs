//! Removal of stored responses: those that have expired, and the oldest beyond the limits.

use super::{ResponseStore, is_expired, sync_folder};
use crate::config::settings::ResponseSettings;
use std::fs;
use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Stored file of a key.
struct StoredFile {
    path: PathBuf,
    bytes: u64,
    /// Creation time of the response, Unix seconds.
    created: u64,
}

impl ResponseStore {
    /// Removes the responses that have expired at `now`, Unix seconds, and those beyond the limits, and counts the
    /// remaining ones again. Returns the number of removed ones.
    ///
    /// # Errors
    /// Returns any I/O error.
    pub fn sweep(&self, now: u64, settings: ResponseSettings) -> Result<u64> {
        let mut removed = 0;
        for key in self.keys()? {
            let folder = self.folder.join(&key);
            let files = stored_files(&folder)?;
            let (expired, others): (Vec<_>, Vec<_>) =
                files.into_iter().partition(|file| is_expired(file.created, now, settings.retention));
            self.usage.set_bytes(&key, others.iter().map(|file| file.bytes).sum());
            for file in &expired {
                removed += u64::from(remove_if_present(&file.path)?);
            }
            if !expired.is_empty() {
                sync_folder(&folder)?;
            }
            if others.is_empty() {
                // Fails if a response was stored meanwhile.
                fs::remove_dir(&folder).ok();
            }
            self.evict(&key, settings)?;
        }
        Ok(removed)
    }

    /// Counts all files, and removes those with the extension `unfinished`.
    pub(super) fn count_files(&self, unfinished: Option<&str>) -> Result<()> {
        for key in self.keys()? {
            let mut bytes = 0;
            for file in stored_files(&self.folder.join(&key))? {
                if unfinished.is_some() && file.path.extension().and_then(|name| name.to_str()) == unfinished
                {
                    remove_if_present(&file.path)?;
                } else {
                    bytes += file.bytes;
                }
            }
            self.usage.set_bytes(&key, bytes);
        }
        Ok(())
    }

    /// Removes the oldest responses of a key beyond its limit, and those of the largest keys beyond the limit of all. A
    /// tenth of the limit is freed at once, because each time the files have to be listed.
    pub(super) fn evict(&self, key: &str, settings: ResponseSettings) -> Result<()> {
        let used = self.usage.of_key(key);
        if used > settings.per_key {
            self.evict_oldest(key, used - settings.per_key / 10 * 9)?;
        }
        while self.usage.total_bytes() > settings.disk {
            let Some(largest) = self.usage.largest_key() else { break };
            let excess = self.usage.total_bytes() - settings.disk / 10 * 9;
            if self.evict_oldest(&largest, excess.min(self.usage.of_key(&largest) / 10 + 1))? == 0 {
                // No file was left to remove, so the bytes of the key are no longer counted.
                self.usage.set_bytes(&largest, 0);
            }
        }
        Ok(())
    }

    /// Removes the oldest responses of a key until at least `excess` bytes are freed; returns the freed bytes.
    fn evict_oldest(&self, key: &str, excess: u64) -> Result<u64> {
        let folder = self.folder.join(key);
        let mut files = stored_files(&folder)?;
        files.sort_by(|a, b| (a.created, &a.path).cmp(&(b.created, &b.path)));
        let mut freed = 0;
        for file in &files {
            if freed >= excess {
                break;
            }
            self.remove(key, &file.path)?;
            freed += file.bytes;
        }
        if freed > 0 {
            sync_folder(&folder)?;
        }
        Ok(freed)
    }

    /// Returns the public ids of the keys that have a folder.
    fn keys(&self) -> Result<Vec<String>> {
        let mut keys = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            keys.extend(entry?.file_name().into_string());
        }
        Ok(keys)
    }
}

/// Returns the files of a folder; none if the folder does not exist.
fn stored_files(folder: &Path) -> Result<Vec<StoredFile>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        // A file may be removed between the list and this call.
        let Ok(metadata) = entry.metadata() else { continue };
        let since = metadata.modified()?.duration_since(SystemTime::UNIX_EPOCH);
        let created = since.unwrap_or(Duration::ZERO).as_secs();
        files.push(StoredFile { path: entry.path(), bytes: metadata.len(), created });
    }
    Ok(files)
}

/// Removes a file; returns false if another thread has removed it.
fn remove_if_present(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
