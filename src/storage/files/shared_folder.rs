//! Files of a fleet: several gateways use one store of records and one folder of contents. Used bytes are counters in
//! the store, and contents without a record are deleted by one gateway, once they are so old that they cannot belong
//! to an upload in progress.

use super::{FILE_ID_PREFIX, FileContents, FileError, FileManager, FileOwner, UPLOAD_FOLDER};
use crate::config::settings;
use crate::storage::files::quota::{QuotaExceeded, QuotaReservation, UploadLimits};
use crate::storage::object_id;
use parking_lot::Mutex;
use penstock_storage::files::{FileInsertOutcome, FileRecord, FileStore, UsedBytes};
use std::collections::HashSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// File that is written to read the clock of the folder's file server, from its modification time.
const PROBE_FILE: &str = ".time";
/// Longest wait for the gateway that creates the folder. A client of NFS may not see a new file for half a minute.
const FOLDER_ID_WAIT: Duration = Duration::from_secs(35);
/// Number of bytes that a copy of a file reads at once.
const COPY_SIZE: usize = 1 << 20;

/// State of the sweeps of a fleet's folder.
#[derive(Debug, Default)]
pub(super) struct SuspectedLeftovers {
    /// Contents without a record that the last sweep found. The next sweep deletes them if they still have no record.
    suspects: Mutex<HashSet<PathBuf>>,
}

impl FileManager {
    /// Opens or creates the folder that a fleet shares. Leftovers of crashes are deleted by
    /// [`FileManager::delete_old_leftovers`].
    ///
    /// # Errors
    /// Returns a sentence for the operator if the folder or the store cannot be used.
    pub fn open_shared_folder(settings: &settings::FileSettings, store: FileStore) -> Result<Self, String> {
        let open_bucket = Self::bucket_opener(settings, &store);
        let files =
            Self::create_folder(settings, store.clone(), Some(SuspectedLeftovers::default()), open_bucket)?;
        if files.bucket.is_none() {
            files.check_folder(FOLDER_ID_WAIT)?;
        }
        let counted = files.store.build_usage_counters();
        counted.map_err(|error| format!("The used bytes of files cannot be counted: {error}."))?;
        Ok(files)
    }

    /// Returns an empty reservation for an upload of this owner, with the usage that the store has counted.
    pub(super) fn new_upload_reservation(&self, owner: FileOwner<'_>) -> Result<QuotaReservation, FileError> {
        let reservation = QuotaReservation::new(self.quota.clone(), owner);
        match &self.shared {
            None => Ok(reservation),
            Some(_) => Ok(reservation.with_stored_usage(self.store.used_bytes(owner.key)?)),
        }
    }

    /// Adds a record. In a fleet, the record is added only if the limits still hold together with the records that
    /// other gateways have added meanwhile.
    pub(super) fn insert_record(&self, record: &FileRecord, limits: UploadLimits) -> Result<(), FileError> {
        if self.shared.is_none() {
            return Ok(self.store.add(record)?);
        }
        match self
            .store
            .add_within_limits(record, UsedBytes { all: limits.max_total_bytes, key: limits.max_key_bytes })?
        {
            FileInsertOutcome::Added => Ok(()),
            FileInsertOutcome::TotalLimitExceeded => Err(FileError::Quota(QuotaExceeded::Gateway)),
            FileInsertOutcome::KeyLimitExceeded => {
                Err(FileError::Quota(QuotaExceeded::Key(limits.max_key_bytes)))
            }
        }
    }

    /// Copies the committed results of a batch to a new file. The caller has to commit the returned record in place of
    /// the old one.
    ///
    /// # Errors
    /// Returns `InvalidData` if results are damaged, and any I/O error. An incomplete copy may remain then; it is
    /// deleted later as a leftover.
    pub fn copy_output_to_new_file(&self, record: &FileRecord, now: Duration) -> io::Result<FileRecord> {
        let results = self.open_contents(record)?;
        let owner = FileOwner { key: &record.key, account: &record.account };
        let url = record.url.as_deref().unwrap_or_default();
        let fresh = self.create_output(owner, record.filename.clone(), url, now)?;
        let copied = self.append_copy(&results, &fresh);
        if copied.is_err() {
            self.delete_contents(&fresh).ok();
        }
        copied
    }

    fn append_copy(&self, results: &FileContents, fresh: &FileRecord) -> io::Result<FileRecord> {
        let mut output = self.open_output(fresh)?;
        while output.len() < results.len() {
            output.append(&results.read(output.len(), COPY_SIZE)?)?;
        }
        output.sync()?;
        Ok(output.updated_record(fresh))
    }

    /// Returns the total bytes of all files; 0 if the database of a fleet does not answer. Blocks.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        match &self.shared {
            None => self.quota.used_bytes(),
            Some(_) => self.store.used_bytes("").map(|used| used.all).unwrap_or_default(),
        }
    }

    /// Deletes incomplete uploads, and contents without a record, that were not written for `age`. They are deleted
    /// only if the previous call has found them too, because a record may be committed late after an outage of the
    /// database. Called by one gateway of a fleet, or by each gateway if contents are in a bucket. Returns the number
    /// of deleted files; blocks.
    ///
    /// # Errors
    /// Returns any I/O error, and the store's error as text.
    pub fn delete_old_leftovers(&self, age: Duration) -> io::Result<u64> {
        let Some(shared) = &self.shared else { return Ok(0) };
        let mut suspects = shared.suspects.lock();
        let before = std::mem::take(&mut *suspects);
        let now = self.server_time()?;
        let is_old = |path: &Path| match fs::metadata(path).and_then(|file| file.modified()) {
            Ok(modified) => now.duration_since(modified).is_ok_and(|since| since >= age),
            // The file was deleted or renamed meanwhile.
            Err(_) => false,
        };
        let is_leftover = |path: &Path| is_old(path) && !(self.bucket.is_some() && is_locked(path));
        let mut deleted = 0;
        for path in self.contents_without_record()?.into_iter().filter(|path| is_leftover(path)) {
            if before.contains(&path) {
                fs::remove_file(&path)?;
                deleted += 1;
            } else {
                suspects.insert(path);
            }
        }
        drop(suspects);
        if deleted > 0 {
            tracing::info!(name: "files_swept", leftovers = %deleted);
        }
        Ok(deleted)
    }

    /// Returns the time of the file server. The clocks of the gateways are not used, because they may differ.
    fn server_time(&self) -> io::Result<SystemTime> {
        let path = self.folder.join(PROBE_FILE);
        let probe = File::create(&path)?;
        // A byte is written, because truncating an empty file would not change its modification time.
        io::Write::write_all(&mut &probe, b".")?;
        probe.sync_all()?;
        probe.metadata()?.modified()
    }

    /// Returns the paths of incomplete uploads and of contents without a record.
    fn contents_without_record(&self) -> io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(self.folder.join(UPLOAD_FOLDER))? {
            paths.push(entry?.path());
        }
        let mut ids = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name().into_string();
            ids.extend(name.into_iter().filter(|name| object_id::is_valid(FILE_ID_PREFIX, name)));
        }
        let missing = self.store.are_missing(&ids).map_err(|error| io::Error::other(error.to_string()))?;
        let gone = ids.iter().zip(missing).filter(|(_, missing)| *missing);
        paths.extend(gone.map(|(id, _)| self.folder.join(id)));
        Ok(paths)
    }
}

/// Returns true if a temporary output file is locked by a batch in progress. The function is for folders of a single
/// gateway, because the locks of file servers cannot be relied on.
fn is_locked(path: &Path) -> bool {
    let locked = File::open(path).map(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)));
    locked.unwrap_or_default()
}
