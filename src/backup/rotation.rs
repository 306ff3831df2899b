//! Scheduled archives of a running gateway. An archive is written to a temporary folder, which gets its final name when
//! the archive is completely on the disk, so that every named archive is complete. Then the oldest archives are
//! renamed and deleted. Contents of complete files are hard-linked where possible. All calls block.

use super::throttle::{Throttle, ThrottleLimits};
use super::{BackupReport, DataPaths, export, file_copy, manifest};
use crate::time::format::format_rfc3339;
use penstock_storage::Store;
use std::fs;
use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// Temporary folder of the archive that is being written.
const TEMPORARY_FOLDER: &str = "aside";
/// Suffix of the name of an archive that is being deleted.
const DELETED_SUFFIX: &str = ".deleted";
/// Bytes per second of an export: a small part of the throughput of any disk and of one processor.
const BYTES_PER_SECOND: u64 = 32 << 20;

/// Parameters of one scheduled archive.
pub struct ExportJob<'a> {
    /// Paths of the data to export.
    pub data_paths: DataPaths,
    /// Open store of that data.
    pub store: Arc<dyn Store>,
    /// Folder of all archives.
    pub folder: PathBuf,
    /// Number of archives to retain.
    pub max_archives: usize,
    /// Bytes that stay free on the disk.
    pub min_free_bytes: u64,
    /// Current time in Unix seconds, from which the archive gets its name.
    pub now: u64,
    /// Function that returns true if the gateway is stopping.
    pub stop: &'a (dyn Fn() -> bool + Sync),
}

impl ExportJob<'_> {
    /// Writes an archive, and deletes the oldest beyond `max_archives`. An archive that cannot be deleted is logged,
    /// and the next call tries it again.
    ///
    /// # Errors
    /// Returns a sentence for the operator if the export fails; the incomplete archive is deleted.
    pub fn run(&self) -> std::result::Result<BackupReport, String> {
        let failed = |error: std::io::Error| {
            format!("The folder of the archives {} cannot be used: {error}.", self.folder.display())
        };
        file_copy::create_private_dir(&self.folder).map_err(failed)?;
        let temporary = self.folder.join(TEMPORARY_FOLDER);
        remove_dir(&temporary).map_err(failed)?;
        let last = list_archives(&self.folder).map_err(failed)?.pop().map(|name| self.folder.join(name));
        let folder = Throttle::existing_ancestor(&self.folder);
        let brake = Throttle::new(ThrottleLimits {
            bytes_per_second: BYTES_PER_SECOND,
            min_free_bytes: self.min_free_bytes,
            folder,
            stop: self.stop,
        });
        let saved = export::export_live(&self.data_paths, &self.store, &temporary, last.as_deref(), brake);
        let placed = saved.and_then(|saved| {
            let name = self.folder.join(archive_name(self.now));
            fs::rename(&temporary, name).and_then(|()| file_copy::sync_dir(&self.folder)).map_err(failed)?;
            Ok(saved)
        });
        if placed.is_err() {
            remove_dir(&temporary).ok();
        }
        let saved = placed?;
        if let Err(error) = delete_oldest(&self.folder, self.max_archives.max(1), remove_dir) {
            tracing::warn!(name: "archive_not_deleted", why = %error);
        }
        Ok(saved)
    }
}

/// Deletes the oldest archives beyond `max_archives`, and those whose deletion was interrupted. All of them are tried;
/// returns the first error.
fn delete_oldest(folder: &Path, max_archives: usize, remove: impl Fn(&Path) -> Result<()>) -> Result<()> {
    let archives = list_archives(folder)?;
    let excess = archives.len().saturating_sub(max_archives);
    let mut deleted = Ok(());
    for old in archives.iter().take(excess) {
        // With another name the folder is no longer an archive, even if its deletion is interrupted.
        let renamed = fs::rename(folder.join(old), folder.join(format!("{old}{DELETED_SUFFIX}")));
        deleted = deleted.and(renamed);
    }
    for name in file_copy::folder_names(folder)?.iter().filter(|name| is_deleted_name(name)) {
        deleted = deleted.and(remove(&folder.join(name)));
    }
    deleted
}

/// Returns the name of an archive, such as `2026-11-22T183000Z`. Sorted by name, archives are in the order of time.
fn archive_name(now: u64) -> String {
    format_rfc3339(now).replace(':', "")
}

fn is_archive_name(name: &str) -> bool {
    let shape = "0000-00-00T000000Z";
    let fits = |(byte, shape): (u8, u8)| if shape == b'0' { byte.is_ascii_digit() } else { byte == shape };
    name.len() == shape.len() && name.bytes().zip(shape.bytes()).all(fits)
}

/// Returns true for the name of an archive that is being deleted.
fn is_deleted_name(name: &str) -> bool {
    name.strip_suffix(DELETED_SUFFIX).is_some_and(is_archive_name)
}

/// Returns the names of the archives in a folder, oldest first; empty if the folder does not exist.
///
/// # Errors
/// Returns the I/O error of the folder.
pub fn list_archives(folder: &Path) -> Result<Vec<String>> {
    let mut names = file_copy::folder_names(folder)?;
    names.retain(|name| is_archive_name(name));
    Ok(names)
}

/// Returns the time at which the last archive was finished, in Unix seconds; `None` if there is none.
#[must_use]
pub fn last_archive_time(folder: &Path) -> Option<u64> {
    let name = list_archives(folder).ok()?.pop()?;
    modified_at(&folder.join(name).join(manifest::MANIFEST_FILE))
}

/// Returns the time at which a file was last modified, in Unix seconds; `None` if the time is unknown, or is before
/// 1970.
#[must_use]
pub fn modified_at(file: &Path) -> Option<u64> {
    let at = fs::metadata(file).and_then(|file| file.modified()).ok()?;
    at.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

fn remove_dir(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Deletes the contents of a deleted file from every archive, also from the archive that is being written.
pub fn remove_from_archives(folder: &Path, id: &str) {
    for name in file_copy::folder_names(folder).into_iter().flatten() {
        if is_archive_name(&name) || is_deleted_name(&name) || name == TEMPORARY_FOLDER {
            fs::remove_file(folder.join(name).join(file_copy::FILES_FOLDER).join(id)).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn an_archive_that_cannot_be_deleted_is_no_archive_and_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let names: Vec<String> = (0..5).map(|hour| archive_name(hour * 3_600)).collect();
        names.iter().for_each(|name| fs::create_dir(folder.path().join(name)).unwrap());
        let contents = folder.path().join(&names[0]).join(file_copy::FILES_FOLDER);
        fs::create_dir(&contents).unwrap();
        fs::write(contents.join("file-a"), "secret").unwrap();
        let is_first = |path: &Path| path.to_string_lossy().contains(&names[0]);
        let refuse =
            |path: &Path| if is_first(path) { Err(ErrorKind::ResourceBusy.into()) } else { remove_dir(path) };
        let refused = delete_oldest(folder.path(), 2, refuse).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
        assert_eq!(list_archives(folder.path()).unwrap(), names[3..]);
        let left = file_copy::folder_names(folder.path()).unwrap();
        assert_eq!(left.len(), 3, "the others are deleted: {left:?}");
        // A file that is deleted now is also removed from the archive whose deletion has failed.
        remove_from_archives(folder.path(), "file-a");
        let left = folder.path().join(left.iter().find(|name| is_deleted_name(name)).unwrap());
        assert!(left.join(file_copy::FILES_FOLDER).exists());
        assert!(!left.join(file_copy::FILES_FOLDER).join("file-a").exists());
        delete_oldest(folder.path(), 2, remove_dir).unwrap();
        assert_eq!(file_copy::folder_names(folder.path()).unwrap(), names[3..]);
    }

    #[test]
    fn names_rise_with_time_and_nothing_else_is_taken_for_one() {
        assert_eq!(archive_name(1_700_000_000), "2023-11-14T221320Z");
        assert!(
            is_archive_name(&archive_name(0)) && archive_name(1_700_000_000) < archive_name(1_700_000_001)
        );
        for other in [
            "aside",
            "2023-11-14",
            "2023-11-14T221320z",
            "2023-11-14T221320Z.deleted",
            "../../etc/passwd000",
            "",
        ] {
            assert!(!is_archive_name(other), "{other}");
        }
    }
}
