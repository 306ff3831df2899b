//! Export of all data to a folder: store rows as JSON lines, ledger month files and file contents unchanged,
//! each with its checksum.

use super::file_copy::{self, DigestWriter, FILES_FOLDER, FileDigest};
use super::progress::{ProgressReporter, ProgressUnit};
use super::throttle::{Throttle, ThrottledWriter};
use super::verify::for_each_file_record;
use super::{BackupReport, DataPaths, manifest, store_error_message};
use crate::storage::files::StoredContents;
use crate::storage::stores::{LEDGER_REPLICA_FOLDER, PEPPER_FILE, check_pepper};
use penstock_storage::files::{FileRecord, FileStatus, FileStore};
use penstock_storage::ledger::LedgerStore;
use penstock_storage::{Store, StoreError};
use std::fs;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Exports all data to the folder `to`, which must be empty or absent, while no gateway runs.
///
/// # Errors
/// Returns a sentence for the operator if the export fails. A folder without a manifest is not an archive.
pub fn export_archive(
    data_paths: &DataPaths,
    to: &Path,
    progress: &ProgressReporter,
) -> Result<BackupReport, String> {
    let store = data_paths.open_store()?;
    // Opening the ledger brings its replica files up to date with the store.
    let ledger = LedgerStore::open(store.clone(), Some(&data_paths.ledger_path()))
        .map_err(|error| store_error_message(&error))?;
    let repaired = ledger.take_replica_repairs().len() as u64;
    let brake = Throttle::with_progress(progress);
    let contents = Some(data_paths.open_contents(&store)?).filter(StoredContents::has_bucket);
    let report =
        ArchiveWriter { data_paths, to, throttle: brake, progress, live: None, contents, files: Vec::new() }
            .write_archive(&store)?;
    Ok(BackupReport { repaired_replica_parts: repaired, ..report })
}

/// Exports all data while the gateway runs. Contents of complete files are hard-linked where possible: to the file
/// itself, or on another disk to the earlier archive `last`. Contents in a bucket are left out.
///
/// # Errors
/// Same as [`export_archive`].
pub fn export_live(
    data_paths: &DataPaths,
    store: &Arc<dyn Store>,
    to: &Path,
    last: Option<&Path>,
    brake: Throttle<'_>,
) -> Result<BackupReport, String> {
    let works = Some(last.map(Path::to_owned));
    ArchiveWriter {
        data_paths,
        to,
        throttle: brake,
        progress: &ProgressReporter::hidden(),
        live: works,
        contents: None,
        files: Vec::new(),
    }
    .write_archive(store)
}

/// Archive that is being written.
struct ArchiveWriter<'a, 'b> {
    data_paths: &'a DataPaths,
    to: &'a Path,
    throttle: Throttle<'b>,
    progress: &'a ProgressReporter,
    /// `Some` if the gateway runs meanwhile; the inner path is an earlier archive.
    live: Option<Option<PathBuf>>,
    /// Contents in the bucket, if they are a part of the archive.
    contents: Option<StoredContents>,
    files: Vec<(String, FileDigest)>,
}

impl ArchiveWriter<'_, '_> {
    fn write_archive(mut self, store: &Arc<dyn Store>) -> Result<BackupReport, String> {
        let to = self.to;
        let failed =
            |error: std::io::Error| format!("The archive {} cannot be written: {error}.", to.display());
        let to_message = |error: StoreError| store_error_message(&error);
        if !file_copy::is_empty_dir(to).map_err(failed)? {
            return Err(format!("{} is not empty: an archive needs a folder of its own.", to.display()));
        }
        let has_pepper_file = self.check_pepper_file(store)?;
        for folder in [to.to_owned(), to.join(LEDGER_REPLICA_FOLDER), to.join(FILES_FOLDER)] {
            file_copy::create_private_dir(&folder).map_err(failed)?;
        }
        let months = file_copy::file_names(&self.data_paths.ledger_path()).map_err(failed)?;
        let months: Vec<String> = months.into_iter().filter(|name| name.ends_with(".jsonl")).collect();
        let bytes = file_copy::total_size(months.iter().map(|name| self.data_paths.ledger_path().join(name)));
        self.progress.begin_stage("Ledger", ProgressUnit::Bytes, Some(bytes));
        // The ledger files are copied before the rows. A replica that lags behind the rows is repaired when the ledger
        // is opened, but a replica must not have entries that the rows lack.
        if has_pepper_file {
            self.add_file(&self.data_paths.pepper_path(), PEPPER_FILE.to_owned())?;
        }
        for name in months {
            self.add_file(
                &self.data_paths.ledger_path().join(&name),
                format!("{LEDGER_REPLICA_FOLDER}/{name}"),
            )?;
        }
        self.progress.begin_stage("Rows", ProgressUnit::Bytes, None);
        let rows = self.write_rows(store)?;
        // The file records are read after the rows are copied: contents that the rows refer to either exist now, or
        // were deleted since.
        let mut records = Vec::new();
        for_each_file_record(&FileStore::new(store.clone()), |record| records.push(record.clone()))
            .map_err(to_message)?;
        let bytes = records.iter().map(|record| record.bytes).sum();
        self.progress.begin_stage("File contents", ProgressUnit::Bytes, Some(bytes));
        for record in &records {
            self.add_contents(record)?;
        }
        for folder in [LEDGER_REPLICA_FOLDER, FILES_FOLDER] {
            file_copy::sync_dir(&to.join(folder)).map_err(failed)?;
        }
        self.progress.finish_stage();
        manifest::write(to, &self.files).map_err(failed)?;
        Ok(backup_report(rows, &self.files))
    }

    /// Returns true if the archive has the file of the pepper: no pepper is configured, and the file exists.
    ///
    /// # Errors
    /// Returns a sentence if the file is not that of the keys, because a gateway cannot start with such an archive.
    fn check_pepper_file(&self, store: &Arc<dyn Store>) -> Result<bool, String> {
        if self.data_paths.storage.pepper.is_some() {
            return Ok(false);
        }
        check_pepper(&self.data_paths.storage, store)?;
        Ok(self.data_paths.pepper_path().exists())
    }

    fn write_rows(&mut self, store: &Arc<dyn Store>) -> Result<u64, String> {
        let failed =
            |error: std::io::Error| format!("The rows cannot be saved to {}: {error}.", self.to.display());
        let file = file_copy::create_private(&self.to.join(manifest::ROWS_FILE), false).map_err(failed)?;
        let mut summing =
            DigestWriter::new(ThrottledWriter { inner: BufWriter::new(file), throttle: &mut self.throttle });
        let rows =
            penstock_storage::export(&**store, &mut summing).map_err(|error| store_error_message(&error))?;
        let (ThrottledWriter { inner: mut file, .. }, sum) = summing.finish();
        file.flush().and_then(|()| file.get_ref().sync_all()).map_err(failed)?;
        self.files.push((manifest::ROWS_FILE.to_owned(), sum));
        Ok(rows)
    }

    fn add_file(&mut self, from: &Path, name: String) -> Result<(), String> {
        let sum = file_copy::copy_prefix(from, &self.to.join(&name), u64::MAX, &mut self.throttle);
        self.files.push((name, sum.map_err(|error| copy_error(from, &error))?));
        Ok(())
    }

    fn add_contents(&mut self, record: &FileRecord) -> Result<(), String> {
        let (from, name) = (self.data_paths.files.join(&record.id), format!("{FILES_FOLDER}/{}", record.id));
        let to = self.to.join(&name);
        if let Some(contents) = self.contents.as_ref().filter(|_| !from.exists()) {
            let copied = copy_from_bucket(contents, record, &to);
            let sum = copied.and_then(|()| file_copy::digest_file(&to, &mut self.throttle));
            self.files.push((name, sum.map_err(|error| copy_error(&from, &error))?));
            return Ok(());
        }
        let Some(last) = self.live.clone() else { return self.add_file(&from, name) };
        let saved = if record.status == FileStatus::Uploaded {
            // The file may still grow, but the first `record.bytes` bytes do not change any more.
            file_copy::copy_prefix(&from, &to, record.bytes, &mut self.throttle)
        } else {
            self.link_or_copy(&from, last.map(|last| last.join(&name)), &to)
        };
        match saved {
            // The file was deleted meanwhile, perhaps during the copy.
            Ok(_) if !from.exists() => fs::remove_file(&to).or(Ok(())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Ok(sum) => {
                self.files.push((name, sum));
                Ok(())
            }
            Err(error) => Err(copy_error(&from, &error)),
        }
    }

    /// Hard-links contents that no longer change, to the file itself or to the earlier archive; copies them if neither
    /// is on the same disk.
    fn link_or_copy(&mut self, from: &Path, last: Option<PathBuf>, to: &Path) -> std::io::Result<FileDigest> {
        let size = fs::metadata(from)?.len();
        let linked = fs::hard_link(from, to).or_else(|error| match last {
            Some(last) if fs::metadata(&last).is_ok_and(|known| known.len() == size) => {
                fs::hard_link(last, to)
            }
            _ => Err(error),
        });
        match linked {
            Ok(()) => file_copy::digest_file(to, &mut self.throttle),
            Err(_) => file_copy::copy_prefix(from, to, u64::MAX, &mut self.throttle),
        }
    }
}

fn copy_from_bucket(contents: &StoredContents, record: &FileRecord, to: &Path) -> std::io::Result<()> {
    let file = file_copy::create_private(to, true)?;
    contents.copy_from_bucket(record, &file)?;
    file.sync_all()
}

fn copy_error(from: &Path, error: &std::io::Error) -> String {
    format!("{} cannot be saved: {error}.", from.display())
}

/// Returns the counts of an archive: its rows, its plain files and their total size.
pub(super) fn backup_report(rows: u64, files: &[(String, FileDigest)]) -> BackupReport {
    let plain = || files.iter().filter(|(name, _)| name != manifest::ROWS_FILE);
    BackupReport {
        rows,
        files: plain().count() as u64,
        bytes: plain().map(|(_, sum)| sum.bytes).sum(),
        dropped_files: 0,
        repaired_replica_parts: 0,
    }
}
