//! Manifest of an archive: one JSON line per file with its size and SHA-256, and a last line with the number of files
//! and the SHA-256 of all lines before it. It is written last, so that an archive with a manifest is complete.

use super::file_copy::{self, FileDigest};
use super::progress::{ProgressReporter, ProgressUnit};
use super::throttle::Throttle;
use crate::storage::files::FILE_ID_PREFIX;
use crate::storage::object_id;
use penstock_core::hex;
use penstock_ledger::UtcMonth;
use penstock_storage::ledger::parse_file_name;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// File name of the manifest.
pub const MANIFEST_FILE: &str = "manifest.jsonl";
/// File name of the store's rows.
pub const ROWS_FILE: &str = "store.jsonl";
const ARCHIVE_VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum ManifestLine {
    Head { penstock_archive: u32 },
    File { file: String, bytes: u64, sha256: String },
    End { end: bool, files: u64, sha256: String },
}

/// Writes the manifest of an archive: the name, size and digest of each file.
pub fn write(folder: &Path, files: &[(String, FileDigest)]) -> std::io::Result<()> {
    let head = ManifestLine::Head { penstock_archive: ARCHIVE_VERSION };
    let each = files.iter().map(|(file, sum)| ManifestLine::File {
        file: file.clone(),
        bytes: sum.bytes,
        sha256: sum.sha256.clone(),
    });
    let mut text = Vec::new();
    for line in std::iter::once(head).chain(each) {
        serde_json::to_writer(&mut text, &line)?;
        text.push(b'\n');
    }
    let end = ManifestLine::End {
        end: true,
        files: files.len() as u64,
        sha256: hex::encode(&Sha256::digest(&text)),
    };
    serde_json::to_writer(&mut text, &end)?;
    text.push(b'\n');
    let mut file = file_copy::create_private(&folder.join(MANIFEST_FILE), false)?;
    file.write_all(&text)?;
    file.sync_all()?;
    file_copy::sync_dir(folder)
}

/// Reads the manifest and verifies every file. File contents that are missing were deleted after the export, and are
/// left out of the result.
///
/// # Errors
/// Returns a sentence if a file is missing or damaged, or if this program does not know the archive's version.
pub fn read_and_verify(
    folder: &Path,
    progress: &ProgressReporter,
) -> Result<Vec<(String, FileDigest)>, String> {
    let path = folder.join(MANIFEST_FILE);
    let text = fs::read_to_string(&path)
        .map_err(|error| format!("There is no complete archive in {}: {error}.", folder.display()))?;
    let damaged = || format!("{} is damaged: the archive cannot be trusted.", path.display());
    let last = text.trim_end().rfind('\n').ok_or_else(damaged)? + 1;
    let (before, end) = text.split_at(last);
    let mut files = Vec::new();
    for (number, line) in before.lines().enumerate() {
        match serde_json::from_str(line).map_err(|_| damaged())? {
            ManifestLine::Head { penstock_archive: ARCHIVE_VERSION } if number == 0 => {}
            ManifestLine::Head { penstock_archive } => {
                return Err(format!(
                    "The archive is of version {penstock_archive}, which this program does not read."
                ));
            }
            ManifestLine::File { file, bytes, sha256 } if number > 0 && is_known_name(&file) => {
                files.push((file, FileDigest { bytes, sha256 }));
            }
            ManifestLine::File { .. } | ManifestLine::End { .. } => return Err(damaged()),
        }
    }
    let sum = hex::encode(&Sha256::digest(before));
    match serde_json::from_str(end.trim_end()).map_err(|_| damaged())? {
        ManifestLine::End { end: true, files: count, sha256 }
            if sha256 == sum && count == files.len() as u64 => {}
        _ => return Err(damaged()),
    }
    let bytes = files.iter().fold(0, |all: u64, (_, sum)| all.saturating_add(sum.bytes));
    progress.begin_stage("Check of the archive", ProgressUnit::Bytes, Some(bytes));
    let mut brake = Throttle::with_progress(progress);
    let mut there = Vec::with_capacity(files.len());
    for (file, sum) in files {
        match file_copy::digest_file(&folder.join(&file), &mut brake) {
            Ok(found) if found == sum => there.push((file, sum)),
            Ok(_) => return Err(format!("{file} of the archive is damaged: its checksum differs.")),
            Err(error) if error.kind() == ErrorKind::NotFound && is_file_contents(&file) => {}
            Err(error) => return Err(format!("{file} of the archive cannot be read: {error}.")),
        }
    }
    Ok(there)
}

/// Returns true for names that this program writes, so that no path leads out of the folder.
fn is_known_name(name: &str) -> bool {
    if name == ROWS_FILE || name == crate::storage::stores::PEPPER_FILE {
        return true;
    }
    match name.split_once('/') {
        Some((crate::storage::stores::LEDGER_REPLICA_FOLDER, file)) => {
            parse_file_name(file).is_some_and(|(_, month)| UtcMonth::parse(month).is_some())
        }
        _ => is_file_contents(name),
    }
}

/// Returns true if a name is that of file contents.
fn is_file_contents(name: &str) -> bool {
    name.split_once('/').is_some_and(|(folder, file)| {
        folder == file_copy::FILES_FOLDER && object_id::is_valid(FILE_ID_PREFIX, file)
    })
}
