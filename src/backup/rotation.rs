//! Scheduled archives of a running gateway. An archive is written to a temporary folder, which gets its final name when
//! the archive is completely on the disk, so that every named archive is complete. Then the oldest archives are
//! deleted. Contents of complete files are hard-linked where possible. All calls block.

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
    /// Time of the archive, in Unix seconds.
    pub now: u64,
    /// Function that returns true if the gateway is stopping.
    pub stop: &'a (dyn Fn() -> bool + Sync),
}

impl ExportJob<'_> {
    /// Writes an archive, and deletes the oldest beyond `max_archives`.
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
        let all = list_archives(&self.folder).map_err(failed)?;
        for old in all.iter().take(all.len().saturating_sub(self.max_archives.max(1))) {
            // Without its manifest the folder is no longer an archive, even if its deletion is interrupted.
            fs::remove_file(self.folder.join(old).join(manifest::MANIFEST)).ok();
            remove_dir(&self.folder.join(old)).map_err(failed)?;
        }
        Ok(saved)
    }
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
    modified_at(&folder.join(name).join(manifest::MANIFEST))
}

/// Returns the time at which a file was last modified, in Unix seconds.
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
        if is_archive_name(&name) || name == TEMPORARY_FOLDER {
            fs::remove_file(folder.join(name).join(file_copy::FILES_FOLDER).join(id)).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_rise_with_time_and_nothing_else_is_taken_for_one() {
        assert_eq!(archive_name(1_700_000_000), "2023-11-14T221320Z");
        assert!(
            is_archive_name(&archive_name(0)) && archive_name(1_700_000_000) < archive_name(1_700_000_001)
        );
        for other in ["aside", "2023-11-14", "2023-11-14T221320z", "../../etc/passwd000", ""] {
            assert!(!is_archive_name(other), "{other}");
        }
    }
}
