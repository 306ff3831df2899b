//! Stored responses in a folder of this machine: one file for each, in a folder for each API key.

use super::response_files::{ResponseFile, ResponseFiles, ResponseName, ResponseStage};
use crate::storage::files::quota::has_free_space;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Result, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Extension of files that are being written.
pub(super) const PARTIAL_WRITE_EXTENSION: &str = "new";

/// Stored responses in a folder of this machine.
#[derive(Debug)]
pub(super) struct LocalFiles(PathBuf);

impl LocalFiles {
    /// Opens or creates the folder of the stored responses.
    pub(super) fn open(folder: PathBuf) -> Result<Self> {
        penstock_storage::create_private_dir_all(&folder)?;
        Ok(Self(folder))
    }

    /// Removes the files that were not completely written before a crash.
    pub(super) fn remove_partial_writes(&self) -> Result<()> {
        self.for_each_key(&mut |key, files| {
            let is_unfinished = |file: &ResponseFile| {
                Path::new(&file.id).extension().and_then(|name| name.to_str())
                    == Some(PARTIAL_WRITE_EXTENSION)
            };
            let unfinished = files.into_iter().filter(is_unfinished).collect::<Vec<_>>();
            if !unfinished.is_empty() {
                self.remove(key, unfinished)?;
            }
            Ok(())
        })
    }

    fn path(&self, name: ResponseName<'_>) -> PathBuf {
        self.0.join(name.key).join(name.id)
    }

    /// Writes a file under a temporary name and renames it, so that the file appears complete or not at all.
    fn write_file(&self, name: ResponseName<'_>, sealed: &[u8], retained_since: u64) -> Result<()> {
        let (folder, path) = (self.0.join(name.key), self.path(name));
        penstock_storage::create_private_dir_all(&folder)?;
        let unfinished = path.with_extension(PARTIAL_WRITE_EXTENSION);
        let written =
            write_synced(&unfinished, sealed, retained_since).and_then(|()| fs::rename(&unfinished, path));
        if written.is_err() {
            fs::remove_file(&unfinished).ok();
        }
        written.and_then(|()| sync_folder(&folder))
    }
}

impl ResponseFiles for LocalFiles {
    fn write(
        &self,
        name: ResponseName<'_>,
        sealed: &[u8],
        retained_since: u64,
        _stage: ResponseStage,
    ) -> Result<()> {
        match self.write_file(name, sealed, retained_since) {
            // Another call has removed the empty folder of the key meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.write_file(name, sealed, retained_since)
            }
            written => written,
        }
    }

    fn read(&self, name: ResponseName<'_>) -> Result<Option<Vec<u8>>> {
        found(fs::read(self.path(name)))
    }

    fn read_start(&self, name: ResponseName<'_>, buffer: &mut [u8]) -> Result<Option<()>> {
        found(File::open(self.path(name)).and_then(|mut file| file.read_exact(buffer)))
    }

    fn size(&self, name: ResponseName<'_>) -> Result<Option<u64>> {
        Ok(found(fs::metadata(self.path(name)))?.map(|file| file.len()))
    }

    fn remove(&self, key: &str, files: Vec<ResponseFile>) -> Result<Vec<ResponseFile>> {
        let folder = self.0.join(key);
        let mut removed = Vec::new();
        for file in files {
            if found(fs::remove_file(folder.join(&file.id)))?.is_some() {
                removed.push(file);
            }
        }
        if !removed.is_empty() {
            sync_folder(&folder)?;
            // If the folder still has files, it is not removed, and the error is ignored.
            fs::remove_dir(&folder).ok();
        }
        Ok(removed)
    }

    fn files_of_key(&self, key: &str) -> Result<Vec<ResponseFile>> {
        let entries = match fs::read_dir(self.0.join(key)) {
            Ok(entries) => entries,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        let mut files = Vec::new();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        for entry in entries {
            let entry = entry?;
            // A file that was removed after the folder was listed is skipped.
            let (Ok(metadata), Ok(id)) = (entry.metadata(), entry.file_name().into_string()) else {
                continue;
            };
            let since = metadata.modified()?.duration_since(SystemTime::UNIX_EPOCH);
            let retained_since = since.unwrap_or(Duration::ZERO).as_secs();
            let written_at =
                metadata.ctime().saturating_mul(1_000_000_000).saturating_add(metadata.ctime_nsec());
            // The retention of a response that has not ended begins in the future.
            let has_ended = retained_since <= now;
            files.push(ResponseFile { id, bytes: metadata.len(), retained_since, written_at, has_ended });
        }
        Ok(files)
    }

    fn for_each_key(&self, each: &mut dyn FnMut(&str, Vec<ResponseFile>) -> Result<()>) -> Result<()> {
        for entry in fs::read_dir(&self.0)? {
            if let Ok(key) = entry?.file_name().into_string() {
                each(&key, self.files_of_key(&key)?)?;
            }
        }
        Ok(())
    }

    fn max_evictions_per_write(&self) -> usize {
        usize::MAX
    }

    fn has_space(&self, bytes: u64, keep_free: u64) -> bool {
        has_free_space(&self.0, bytes, keep_free)
    }
}

/// Converts the error of a file that does not exist to `None`.
fn found<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes and syncs a file for its owner only. Its modification time is set to `retained_since`, by which the
/// response expires.
fn write_synced(path: &Path, bytes: &[u8], retained_since: u64) -> Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(retained_since))?;
    file.sync_all()
}

/// Syncs a folder, so that changes of its entries survive a power loss. A folder that was removed needs no sync.
fn sync_folder(folder: &Path) -> Result<()> {
    found(File::open(folder))?.map_or(Ok(()), |folder| folder.sync_all())
}
