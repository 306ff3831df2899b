//! Manifest of an archive: one JSON line per file with its size and SHA-256, and a last line with the number of files
//! and the SHA-256 of all lines before it. It is written last, so that an archive with a manifest is complete.

use super::copy::{self, Sum};
use super::progress::{Progress, Unit};
use super::throttle::Brake;
use crate::storage::files::PREFIX;
use crate::storage::object_id;
use penstock_contract::hex;
use penstock_ledger::Month;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// File name of the manifest.
pub const NAME: &str = "manifest.jsonl";
/// File name of the store's rows.
pub const ROWS: &str = "store.jsonl";
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Line {
    Head { penstock_archive: u32 },
    File { file: String, bytes: u64, sha256: String },
    End { end: bool, files: u64, sha256: String },
}

/// Writes the manifest.
pub fn write(folder: &Path, files: &[(String, Sum)]) -> std::io::Result<()> {
    let head = Line::Head { penstock_archive: VERSION };
    let each = files.iter().map(|(file, sum)| Line::File {
        file: file.clone(),
        bytes: sum.bytes,
        sha256: sum.sha256.clone(),
    });
    let mut text = Vec::new();
    for line in std::iter::once(head).chain(each) {
        serde_json::to_writer(&mut text, &line)?;
        text.push(b'\n');
    }
    let end = Line::End { end: true, files: files.len() as u64, sha256: hex::text(&Sha256::digest(&text)) };
    serde_json::to_writer(&mut text, &end)?;
    text.push(b'\n');
    let mut file = copy::create(&folder.join(NAME), false)?;
    file.write_all(&text)?;
    file.sync_all()?;
    copy::sync(folder)
}

/// Reads the manifest and verifies every file. Missing file contents were deleted later: they are left out.
///
/// # Errors
/// Returns a sentence if a file is missing or damaged, or if this program does not know the archive's version.
pub fn read(folder: &Path, progress: &Progress) -> Result<Vec<(String, Sum)>, String> {
    let path = folder.join(NAME);
    let text = fs::read_to_string(&path)
        .map_err(|error| format!("There is no complete archive in {}: {error}.", folder.display()))?;
    let damaged = || format!("{} is damaged: the archive cannot be trusted.", path.display());
    let last = text.trim_end().rfind('\n').ok_or_else(damaged)? + 1;
    let (before, end) = text.split_at(last);
    let mut files = Vec::new();
    for (number, line) in before.lines().enumerate() {
        match serde_json::from_str(line).map_err(|_| damaged())? {
            Line::Head { penstock_archive: VERSION } if number == 0 => {}
            Line::Head { penstock_archive } => {
                return Err(format!(
                    "The archive is of version {penstock_archive}, which this program does not read."
                ));
            }
            Line::File { file, bytes, sha256 } if number > 0 && known(&file) => {
                files.push((file, Sum { bytes, sha256 }));
            }
            Line::File { .. } | Line::End { .. } => return Err(damaged()),
        }
    }
    let sum = hex::text(&Sha256::digest(before));
    match serde_json::from_str(end.trim_end()).map_err(|_| damaged())? {
        Line::End { end: true, files: count, sha256 } if sha256 == sum && count == files.len() as u64 => {}
        _ => return Err(damaged()),
    }
    let bytes = files.iter().fold(0, |all: u64, (_, sum)| all.saturating_add(sum.bytes));
    progress.begin("Check of the archive", Unit::Bytes, Some(bytes));
    let mut brake = Brake::reporting(progress);
    let mut there = Vec::with_capacity(files.len());
    for (file, sum) in files {
        match copy::sum(&folder.join(&file), &mut brake) {
            Ok(found) if found == sum => there.push((file, sum)),
            Ok(_) => return Err(format!("{file} of the archive is damaged: its checksum differs.")),
            Err(error) if error.kind() == ErrorKind::NotFound && is_contents(&file) => {}
            Err(error) => return Err(format!("{file} of the archive cannot be read: {error}.")),
        }
    }
    Ok(there)
}

/// Returns true for names that this program writes, so that no path leads out of the folder.
fn known(name: &str) -> bool {
    if name == ROWS || name == crate::storage::stores::PEPPER {
        return true;
    }
    match name.split_once('/') {
        Some((crate::storage::stores::LEDGER, file)) => {
            file.strip_suffix(".jsonl").is_some_and(|month| Month::parse(month).is_some())
        }
        _ => is_contents(name),
    }
}

/// Returns true if a name is that of file contents.
fn is_contents(name: &str) -> bool {
    name.split_once('/').is_some_and(|(folder, file)| folder == copy::FILES && object_id::is(PREFIX, file))
}
