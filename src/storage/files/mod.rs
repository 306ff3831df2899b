//! Files of clients: their records in the store, their contents in a folder.
//!
//! A file exists once its record is committed, which happens after its contents are synced; it is gone once its
//! record is deleted, which happens before its contents are. So a crash leaves at most contents without a record,
//! which the next start deletes. Calls block unless they are `async`.

mod block_checksums;
mod contents;
mod error;
mod folder;
mod incoming;
mod output;
pub mod quota;
mod sweep;
#[cfg(test)]
mod tests;

pub use contents::{Contents, FileLine, LineReader, Next};
pub use error::{Failed, disk};
pub use incoming::Incoming;
pub use output::Output;

use crate::config::settings;
use crate::storage::object_id;
use async_trait::async_trait;
use bytes::Bytes;
use penstock_batch::upload_form::Uploaded;
use penstock_contract::{Code, Refusal};
use penstock_storage::StoreError;
use penstock_storage::files::{FilePage, FilePurpose, FileQuery, FileRecord, FileStatus, FileStore};
use quota::{Bounds, Room, Taken};
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::task::spawn_blocking;

/// Prefix of file IDs.
pub const PREFIX: &str = "file-";
/// Folder of incomplete uploads.
const ASIDE: &str = "aside";

/// Users of files, such as batches.
#[async_trait]
pub trait Runs: Send + Sync {
    /// Returns true if a running user still reads or writes this file, which protects it from expiry.
    fn needs(&self, id: &str) -> bool;

    /// Ends all users of a file that its client deletes.
    ///
    /// # Errors
    /// Returns a refusal if the file cannot be deleted now.
    async fn deleted(&self, id: &str) -> Result<(), Refusal>;
}

/// Owner of a file.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// Public ID of the key.
    pub key: &'a str,
    /// Account of the key.
    pub account: &'a str,
}

/// Removes the contents of a file, by its id, from all archives of a folder.
pub type PurgeArchives = fn(&Path, &str);

/// All files of the gateway.
pub struct Files {
    folder: PathBuf,
    aside: PathBuf,
    store: FileStore,
    room: Arc<Room>,
    runs: OnceLock<Arc<dyn Runs>>,
    /// Folder of the gateway's archives: deleted files are removed from them too.
    archives: OnceLock<(PathBuf, PurgeArchives)>,
}

impl Files {
    /// Opens or creates the folder, and deletes leftovers of a crash, unless a process that still drains
    /// uses them (`in_hand`).
    ///
    /// # Errors
    /// Returns a sentence for the operator if the folder cannot be used.
    pub fn open(settings: &settings::FileSettings, store: FileStore, in_hand: bool) -> Result<Self, String> {
        let folder = settings.path.clone();
        let aside = folder.join(ASIDE);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&aside)
            .and_then(|()| sync_folder(&folder))
            .map_err(|error| {
                format!("The folder of the files {} cannot be made: {error}.", folder.display())
            })?;
        let files = Self {
            folder,
            aside,
            store,
            room: Arc::default(),
            runs: OnceLock::new(),
            archives: OnceLock::new(),
        };
        files.belongs()?;
        files.start(in_hand)?;
        Ok(files)
    }

    /// Sets the users of files; only the first call has an effect.
    pub fn run_by(&self, runs: Arc<dyn Runs>) {
        self.runs.set(runs).ok();
    }

    /// Sets the folder of the archives; only the first call has an effect.
    pub fn archived_in(&self, folder: PathBuf, purge: PurgeArchives) {
        self.archives.set((folder, purge)).ok();
    }

    /// Store of the records.
    #[must_use]
    pub const fn store(&self) -> &FileStore {
        &self.store
    }

    /// Bytes of all files.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.room.used()
    }

    /// Path of the contents of a file.
    #[must_use]
    pub fn path(&self, id: &str) -> PathBuf {
        // Records only contain IDs of the gateway; any other ID must not lead to another path.
        if object_id::is(PREFIX, id) { self.folder.join(id) } else { self.aside.join("none") }
    }

    /// Returns a file of this key, unless it has expired.
    ///
    /// # Errors
    /// Returns 404 if the key has no file of this ID, even if another key has.
    pub async fn get(&self, key: &str, id: &str, at: When) -> Result<FileRecord, Refusal> {
        if !object_id::is(PREFIX, id) {
            return Err(none());
        }
        let (store, id) = (self.store.clone(), id.to_owned());
        let found = off_thread(move || Ok(store.get(&id)?)).await?;
        found.filter(|file| file.key == key && !at.is_over(file)).ok_or_else(none)
    }

    /// Lists a page of a key's files, without expired ones.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn list(&self, query: ListQuery, at: When) -> Result<FilePage, Refusal> {
        let store = self.store.clone();
        let page = off_thread(move || {
            let mut page = FilePage::default();
            let mut after = query.after;
            loop {
                let asked = FileQuery {
                    key: &query.key,
                    purpose: query.purpose,
                    after: after.as_deref(),
                    ascending: query.rising,
                    limit: query.limit - page.files.len(),
                };
                let some = store.list(&asked)?;
                after = some.files.last().map(|file| file.id.clone());
                page.files.extend(some.files.into_iter().filter(|file| !at.is_over(file)));
                page.more = some.more;
                if !some.more || after.is_none() || page.files.len() >= query.limit {
                    return Ok(page);
                }
            }
        });
        Ok(page.await?)
    }

    /// Starts an upload for this key.
    ///
    /// # Errors
    /// Returns an error if there is no space or the disk fails.
    pub fn incoming(&self, key: &str, bounds: Bounds) -> Result<Incoming, Failed> {
        Incoming::new(&self.aside, &self.folder, Taken::new(self.room.clone(), key), bounds)
    }

    /// Stores an uploaded file.
    ///
    /// # Errors
    /// Returns an error if lines are invalid or the disk or the store fails. Nothing of the file remains then.
    pub fn keep(
        &self,
        incoming: Incoming,
        owner: Owner<'_>,
        said: Uploaded,
        now: Duration,
    ) -> Result<FileRecord, Failed> {
        let settled = incoming.settle()?;
        let record = FileRecord {
            bytes: settled.bytes,
            sha256: Some(settled.sha256.clone()),
            sums: Some(settled.sums),
            expires_at: said.expires_after.map(|seconds| now.as_secs() + seconds),
            status: FileStatus::Processed,
            lines: settled.checked.lines,
            url: Some(settled.checked.url.to_owned()),
            ..fresh(owner, said.filename, FilePurpose::Batch, now)
        };
        let path = self.path(&record.id);
        let taken = settled.place(&self.folder, &path)?;
        if let Err(error) = self.store.add(&record) {
            // On a full disk the space is needed at once. After other errors the record may be stored nevertheless,
            // and needs its contents; if it is not, the next start deletes them.
            if error == StoreError::Full {
                std::fs::remove_file(&path).ok();
            }
            return Err(error.into());
        }
        taken.keep();
        Ok(record)
    }

    /// Opens the contents of a file.
    ///
    /// # Errors
    /// Returns `InvalidData` if they do not match the record, and any I/O error.
    pub fn contents(&self, record: &FileRecord) -> std::io::Result<Contents> {
        Contents::open(&self.path(&record.id), record)
    }

    /// Reads the lines of a file one by one.
    ///
    /// # Errors
    /// Returns the errors of [`Files::contents`].
    pub fn read_lines(&self, record: &FileRecord) -> std::io::Result<LineReader> {
        Ok(LineReader::new(self.contents(record)?))
    }

    /// Reads bytes of a file while it exists: once it is deleted, an open download ends.
    ///
    /// # Errors
    /// Returns 404 if the file was deleted, and an error if bytes are damaged or the disk fails.
    pub async fn read(
        &self,
        open: &Arc<(FileRecord, Contents)>,
        at: u64,
        most: usize,
    ) -> Result<Bytes, Failed> {
        let (store, open) = (self.store.clone(), open.clone());
        off_thread(move || {
            let (record, contents) = &*open;
            if store.get(&record.id)?.is_none() {
                return Err(Failed::Disk(std::io::ErrorKind::NotFound.into()));
            }
            contents.read(at, most).map_err(Failed::Disk)
        })
        .await
    }

    /// Creates and syncs an empty file for results. The caller commits its record ([`FileStore::insert`]); a file
    /// without a record is deleted at the next start.
    ///
    /// # Errors
    /// Returns any I/O error.
    pub fn new_output(
        &self,
        owner: Owner<'_>,
        filename: String,
        url: &str,
        now: Duration,
    ) -> std::io::Result<FileRecord> {
        let record = fresh(owner, filename, FilePurpose::BatchOutput, now);
        let path = self.path(&record.id);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.sync_all()?;
        sync_folder(&self.folder)?;
        Ok(FileRecord { url: Some(url.to_owned()), ..record })
    }

    /// Opens a growing file of results and truncates it to the size in its record.
    ///
    /// # Errors
    /// Returns the errors of [`Output`].
    pub fn open_output(&self, record: &FileRecord) -> std::io::Result<Output> {
        Output::open(&self.path(&record.id), record)
    }

    /// Adds results to the used bytes of a key.
    pub fn grown(&self, key: &str, bytes: u64) {
        self.room.note(key, bytes);
    }

    /// Deletes a file: it is unreadable once this returns. Its users end first.
    ///
    /// # Errors
    /// Returns 404 if this key has no such file, and 409 while a batch writes to it.
    pub async fn delete(self: &Arc<Self>, key: &str, id: &str, at: When) -> Result<(), Refusal> {
        let record = self.get(key, id, at).await?;
        if record.status == FileStatus::Uploaded {
            let message = "A running batch writes its results to this file; cancel the batch first.";
            return Err(Refusal::because(Code::Conflict, message));
        }
        if let Some(runs) = self.runs.get() {
            runs.deleted(id).await?;
        }
        let files = self.clone();
        let gone = off_thread(move || Ok(files.remove(&record)?)).await?;
        if gone { Ok(()) } else { Err(none()) }
    }
}

/// Time and retention period, which determine the files that have expired.
#[derive(Clone, Copy, Debug)]
pub struct When {
    /// Current time in Unix seconds.
    pub now: u64,
    /// Retention period in seconds; `None` without a limit.
    pub retention: Option<u64>,
}

impl When {
    /// Expiry of a file in Unix seconds: results expire relative to the time of the last one.
    #[must_use]
    pub fn ends(&self, file: &FileRecord) -> Option<u64> {
        let whole = file.finished_at.unwrap_or(file.created_at);
        let kept = self.retention.map(|seconds| whole.saturating_add(seconds));
        match (kept, file.expires_at) {
            (Some(kept), Some(asked)) => Some(kept.min(asked)),
            (kept, asked) => kept.or(asked),
        }
    }

    /// Returns true if a file has expired. A growing file never has.
    #[must_use]
    pub fn is_over(&self, file: &FileRecord) -> bool {
        file.status != FileStatus::Uploaded && self.ends(file).is_some_and(|end| end <= self.now)
    }
}

/// Query of the file list.
#[derive(Clone, Debug)]
pub struct ListQuery {
    /// Public ID of the key.
    pub key: Box<str>,
    /// Filter by purpose.
    pub purpose: Option<FilePurpose>,
    /// ID of the file before the page.
    pub after: Option<String>,
    /// True for the oldest first.
    pub rising: bool,
    /// Maximum number of files, at least 1.
    pub limit: usize,
}

fn fresh(owner: Owner<'_>, filename: String, purpose: FilePurpose, now: Duration) -> FileRecord {
    FileRecord {
        id: object_id::new(PREFIX, now),
        key: owner.key.to_owned(),
        account: owner.account.to_owned(),
        filename,
        purpose,
        bytes: 0,
        sha256: None,
        sums: None,
        created_at: now.as_secs(),
        finished_at: None,
        expires_at: None,
        status: FileStatus::Uploaded,
        status_details: None,
        lines: 0,
        url: None,
    }
}

fn none() -> Refusal {
    Refusal::because(Code::NotFound, "There is no file of this id for this API key.")
}

/// Runs a blocking call on a blocking thread.
pub async fn off_thread<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, Failed> + Send + 'static,
) -> Result<T, Failed> {
    spawn_blocking(call).await.unwrap_or(Err(Failed::Gone))
}

/// Syncs a folder, so that renames in it survive a power loss.
fn sync_folder(folder: &Path) -> std::io::Result<()> {
    File::open(folder)?.sync_all()
}
