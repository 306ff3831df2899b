//! Restore of an archive into a storage folder without a store. The store gets its final path last, so that a gateway
//! cannot open an incomplete one.

use super::export::backup_report;
use super::file_copy::{self, FILES_FOLDER, FileDigest};
use super::progress::{ProgressReporter, ProgressUnit};
use super::throttle::Throttle;
use super::verify::for_each_file_record;
use super::{BackupReport, DataPaths, manifest, store_error_message};
use crate::storage::files::{StoredContents, write_imported_store_id};
use crate::storage::stores::{
    IMPORT_FOLDER, LEDGER_REPLICA_FOLDER, PEPPER_FILE, StoreLocation, database_options, store_location,
};
use penstock_storage::files::FileStore;
use penstock_storage::{PostgresOptions, Store, StoreError};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Read buffer of the rows, in bytes.
const READ_BUFFER: usize = 256 << 10;

/// Restores the archive in the folder `from`. If a crash interrupts the restore, a second call continues it.
///
/// # Errors
/// Returns a sentence for the operator if the restore fails. If the archive is damaged, nothing was written.
pub fn import_archive(
    data_paths: &DataPaths,
    from: &Path,
    progress: &ProgressReporter,
) -> Result<BackupReport, String> {
    let folder = &data_paths.storage.path;
    let failed = |error: std::io::Error| format!("{} cannot be restored to: {error}.", folder.display());
    let to_message = |error: StoreError| store_error_message(&error);
    if database_options(&data_paths.storage).is_none() && data_paths.store_path().exists() {
        return Err(format!("There is a store in {} already: restore to an empty folder.", folder.display()));
    }
    let files = manifest::read_and_verify(from, progress)?;
    let pepper = data_paths.storage.pepper.is_some();
    let target = |name: &str| -> Option<PathBuf> {
        match name.split_once('/') {
            Some((LEDGER_REPLICA_FOLDER, file)) => Some(data_paths.ledger_path().join(file)),
            Some((FILES_FOLDER, file)) => Some(data_paths.files.join(file)),
            None if name == PEPPER_FILE && !pepper => Some(data_paths.pepper_path()),
            _ => None,
        }
    };
    let plain = || files.iter().filter_map(|(name, sum)| Some((name, sum, target(name)?)));
    let mut brake = Throttle::with_progress(progress);
    // Existing files are checked before anything is written, because they may be the only copy.
    check_present_files(plain, &mut brake, progress)?;
    for folder in [folder.clone(), data_paths.ledger_path(), data_paths.files.clone()] {
        file_copy::create_private_dir(&folder).map_err(failed)?;
    }
    // From here on, no gateway starts on a database whose import was interrupted.
    let import = TargetStore::open(data_paths)?;
    let missing = || plain().filter(|(_, _, to)| !to.exists());
    let bytes = missing().map(|(_, sum, _)| sum.bytes).sum();
    progress.begin_stage("Files", ProgressUnit::Bytes, Some(bytes));
    for (name, _, to) in plain() {
        if !to.exists() {
            file_copy::copy(&from.join(name), &to, &mut brake).map_err(failed)?;
        }
    }
    for folder in [&data_paths.ledger_path(), &data_paths.files] {
        file_copy::sync_dir(folder).map_err(failed)?;
    }
    let rows = from.join(manifest::ROWS_FILE);
    progress.begin_stage("Rows", ProgressUnit::Bytes, Some(file_copy::total_size([&rows])));
    let rows = ProgressReader { inner: File::open(rows).map_err(failed)?, progress };
    let mut rows = BufReader::with_capacity(READ_BUFFER, rows);
    let rows = penstock_storage::import(&*import.store, &mut rows).map_err(to_message)?;
    progress.finish_stage();
    let contents = data_paths.open_contents(&import.store)?;
    let records = FileStore::new(import.store.clone());
    let gone = delete_missing(&records, &files, &contents)?;
    move_to_bucket(&records, &contents)?;
    if let Some(id) = records.directory_id().map_err(to_message)?.filter(|_| !contents.has_bucket()) {
        write_imported_store_id(&data_paths.files, &id).map_err(failed)?;
    }
    // The handles of the store are closed before the import is completed.
    drop((records, contents));
    import.finish(data_paths)?;
    file_copy::sync_dir(folder).map_err(failed)?;
    Ok(BackupReport { dropped_files: gone, ..backup_report(rows, &files) })
}

/// Store that an import writes to.
struct TargetStore {
    store: Arc<dyn Store>,
    kind: TargetKind,
}

/// Kind of a store that an import writes to.
enum TargetKind {
    /// Store in this folder, which gets its final name when the import is complete.
    Folder(PathBuf),
    /// Database, which is marked as complete at the end of the import.
    Database(PostgresOptions),
}

impl TargetStore {
    fn open(data_paths: &DataPaths) -> Result<Self, String> {
        let to_message = |error: StoreError| store_error_message(&error);
        let engine = match store_location(&data_paths.storage) {
            StoreLocation::Folder(engine) => engine,
            StoreLocation::Database(options) => {
                let store = penstock_storage::begin_import(&options).map_err(to_message)?;
                return Ok(Self { store, kind: TargetKind::Database(options) });
            }
        };
        let folder = data_paths.storage.path.join(IMPORT_FOLDER);
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .map_err(|error| format!("{} cannot be removed: {error}.", folder.display()))?;
        }
        let store = (engine.open)(&folder, data_paths.store_options()).map_err(to_message)?;
        Ok(Self { store, kind: TargetKind::Folder(folder) })
    }

    /// Closes the store and marks it as complete.
    fn finish(self, data_paths: &DataPaths) -> Result<(), String> {
        drop(self.store);
        match self.kind {
            TargetKind::Database(options) => {
                penstock_storage::finish_import(&options).map_err(|error| store_error_message(&error))
            }
            TargetKind::Folder(folder) => fs::rename(&folder, data_paths.store_path())
                .map_err(|error| format!("{} cannot be renamed: {error}.", folder.display())),
        }
    }
}

/// Checks that the files that exist already are equal to those of the archive.
fn check_present_files<'a, F>(
    files: impl Fn() -> F,
    brake: &mut Throttle<'_>,
    progress: &ProgressReporter,
) -> Result<(), String>
where
    F: Iterator<Item = (&'a String, &'a FileDigest, PathBuf)>,
{
    let present = file_copy::total_size(files().map(|(_, _, to)| to));
    if present > 0 {
        progress.begin_stage("Files that are there", ProgressUnit::Bytes, Some(present));
    }
    for (name, sum, to) in files() {
        match file_copy::digest_file(&to, brake) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Ok(found) if found == *sum => {}
            _ => return Err(format!("{} is there already, and is not {name} of the archive.", to.display())),
        }
    }
    Ok(())
}

/// Reader that reports its bytes as progress.
struct ProgressReader<'a, R> {
    inner: R,
    progress: &'a ProgressReporter,
}

impl<R: Read> Read for ProgressReader<'_, R> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(bytes)?;
        self.progress.advance(read as u64);
        Ok(read)
    }
}

/// Deletes the records of files whose contents are neither in the archive nor in the bucket, because the files were
/// deleted during or after the export. Returns the number of deleted records.
fn delete_missing(
    store: &FileStore,
    files: &[(String, FileDigest)],
    contents: &StoredContents,
) -> Result<u64, String> {
    let to_message = |error: StoreError| store_error_message(&error);
    let there: HashSet<&str> = files.iter().filter_map(|(name, _)| name.strip_prefix("files/")).collect();
    let mut lost = Vec::new();
    for_each_file_record(store, |record| {
        if !there.contains(record.id.as_str()) {
            lost.push(record.clone());
        }
    })
    .map_err(to_message)?;
    let mut gone = 0;
    for record in &lost {
        // An archive that a running gateway made does not contain the contents of a bucket, so they may still be in the
        // bucket.
        if contents.is_in_bucket(record).map_err(|error| bucket_error(&error))? {
            continue;
        }
        store.delete(record).map_err(to_message)?;
        gone += 1;
    }
    Ok(gone)
}

/// Moves restored contents to the bucket, if one is configured.
fn move_to_bucket(store: &FileStore, contents: &StoredContents) -> Result<(), String> {
    if !contents.has_bucket() {
        return Ok(());
    }
    let mut moved = Ok(());
    for_each_file_record(store, |record| {
        if moved.is_ok() {
            moved = contents.move_to_bucket(record);
        }
    })
    .map_err(|error| store_error_message(&error))?;
    moved.map_err(|error| bucket_error(&error))
}

fn bucket_error(error: &std::io::Error) -> String {
    format!("The contents of files cannot be restored to the bucket: {error}.")
}
