//! Files of clients: what is known of them in the store, their contents beside it.
//!
//! A file is there once its record is committed, which is after its contents are on the disk for good; it is gone
//! once its record is, which is before its contents are. So a crash leaves contents without a record at most, and
//! those are swept at the next start. Calls block but for those that are `async`.

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

/// How ids begin.
pub const PREFIX: &str = "file-";
/// Uploads that are not whole.
const ASIDE: &str = "aside";

/// What runs on files.
#[async_trait]
pub trait Runs: Send + Sync {
    /// Whether something that is not over still reads this file or writes to it: it is not swept meanwhile.
    fn needs(&self, id: &str) -> bool;

    /// The owner deletes this file: what runs on it ends before this does.
    ///
    /// # Errors
    /// The file cannot be deleted now.
    async fn deleted(&self, id: &str) -> Result<(), Refusal>;
}

/// Whose file.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// Public id of the key.
    pub key: &'a str,
    /// Its account.
    pub account: &'a str,
}

/// Removes the contents of a file, by its id, from all archives of a folder.
pub type PurgeArchives = fn(&Path, &str);

/// The files of the house.
pub struct Files {
    folder: PathBuf,
    aside: PathBuf,
    store: FileStore,
    room: Arc<Room>,
    runs: OnceLock<Arc<dyn Runs>>,
    /// Where archives of the house are: what is deleted is taken out of them too.
    archives: OnceLock<(PathBuf, PurgeArchives)>,
}

impl Files {
    /// Opens the folder, makes it if it is not there, and sweeps what a crash left; not what a process that
    /// still drains has `in_hand`.
    ///
    /// # Errors
    /// One sentence that says what is in the way.
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

    /// Tells who runs on files; the first to say so is believed.
    pub fn run_by(&self, runs: Arc<dyn Runs>) {
        self.runs.set(runs).ok();
    }

    /// Tells where archives are; the first to say so is believed.
    pub fn archived_in(&self, folder: PathBuf, purge: PurgeArchives) {
        self.archives.set((folder, purge)).ok();
    }

    /// The records.
    #[must_use]
    pub const fn store(&self) -> &FileStore {
        &self.store
    }

    /// Bytes of all files.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.room.used()
    }

    /// Where the contents of an id lie.
    #[must_use]
    pub fn path(&self, id: &str) -> PathBuf {
        // Records hold ids of ours only; should one not, it must not name another place.
        if object_id::is(PREFIX, id) { self.folder.join(id) } else { self.aside.join("none") }
    }

    /// A file of this key, unless it is over.
    ///
    /// # Errors
    /// 404 if there is none, whoever else has one of this id.
    pub async fn get(&self, key: &str, id: &str, at: When) -> Result<FileRecord, Refusal> {
        if !object_id::is(PREFIX, id) {
            return Err(none());
        }
        let (store, id) = (self.store.clone(), id.to_owned());
        let found = off_thread(move || Ok(store.get(&id)?)).await?;
        found.filter(|file| file.key == key && !at.is_over(file)).ok_or_else(none)
    }

    /// Some of a key's files, those that are over left out.
    ///
    /// # Errors
    /// What the store says.
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

    /// Room for a file of this key that is about to arrive.
    ///
    /// # Errors
    /// There is none; what the disk says.
    pub fn incoming(&self, key: &str, bounds: Bounds) -> Result<Incoming, Failed> {
        Incoming::new(&self.aside, &self.folder, Taken::new(self.room.clone(), key), bounds)
    }

    /// Keeps a file that has arrived.
    ///
    /// # Errors
    /// What is wrong with its lines; what the disk and the store say. Nothing is left of it then.
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
            // On a full disk every byte counts. After other failures the record may be kept all the same, and
            // needs its contents; if it is not, the next start sweeps them.
            if error == StoreError::Full {
                std::fs::remove_file(&path).ok();
            }
            return Err(error.into());
        }
        taken.keep();
        Ok(record)
    }

    /// The contents of a file.
    ///
    /// # Errors
    /// `InvalidData` if they are not what its record says; what the disk says.
    pub fn contents(&self, record: &FileRecord) -> std::io::Result<Contents> {
        Contents::open(&self.path(&record.id), record)
    }

    /// The lines of a file, one by one.
    ///
    /// # Errors
    /// As [`Files::contents`].
    pub fn read_lines(&self, record: &FileRecord) -> std::io::Result<LineReader> {
        Ok(LineReader::new(self.contents(record)?))
    }

    /// Bytes of a file, as long as it is there: those of one that is deleted meanwhile are no longer given.
    ///
    /// # Errors
    /// 404 if it is gone; damaged bytes; what the disk says.
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

    /// An empty file for results, on the disk for good. Its record is the caller's to commit
    /// ([`FileStore::insert`]); without one the file is swept at the next start.
    ///
    /// # Errors
    /// What the disk says.
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

    /// A growing file of results; what its record does not count is cut off.
    ///
    /// # Errors
    /// As [`Output`].
    pub fn open_output(&self, record: &FileRecord) -> std::io::Result<Output> {
        Output::open(&self.path(&record.id), record)
    }

    /// Counts bytes of results that were added.
    pub fn grown(&self, key: &str, bytes: u64) {
        self.room.note(key, bytes);
    }

    /// Deletes a file: unreadable once this returns. What runs on it ends first.
    ///
    /// # Errors
    /// 404 if there is none of this key; 409 while a batch writes to it.
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

/// A moment, and how long files stay: what makes a file one that is over.
#[derive(Clone, Copy, Debug)]
pub struct When {
    /// Unix seconds.
    pub now: u64,
    /// Seconds that files are kept; `None` for ever.
    pub retention: Option<u64>,
}

impl When {
    /// Unix seconds at which a file goes: results are kept from when the last of them was there.
    #[must_use]
    pub fn ends(&self, file: &FileRecord) -> Option<u64> {
        let whole = file.finished_at.unwrap_or(file.created_at);
        let kept = self.retention.map(|seconds| whole.saturating_add(seconds));
        match (kept, file.expires_at) {
            (Some(kept), Some(asked)) => Some(kept.min(asked)),
            (kept, asked) => kept.or(asked),
        }
    }

    /// Whether a file is over. One that grows is not.
    #[must_use]
    pub fn is_over(&self, file: &FileRecord) -> bool {
        file.status != FileStatus::Uploaded && self.ends(file).is_some_and(|end| end <= self.now)
    }
}

/// Which files are asked for.
#[derive(Clone, Debug)]
pub struct ListQuery {
    /// Public id of the key.
    pub key: Box<str>,
    /// For this alone, if said.
    pub purpose: Option<FilePurpose>,
    /// Behind this id.
    pub after: Option<String>,
    /// The oldest first.
    pub rising: bool,
    /// At most so many, at least one.
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

/// Runs a blocking call away from the async threads.
pub async fn off_thread<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, Failed> + Send + 'static,
) -> Result<T, Failed> {
    spawn_blocking(call).await.unwrap_or(Err(Failed::Gone))
}

/// What was moved in or out of a folder stays so after a power cut.
fn sync_folder(folder: &Path) -> std::io::Result<()> {
    File::open(folder)?.sync_all()
}
