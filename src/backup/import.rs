//! Restore of an archive into a storage folder without a store. The store is renamed to its path last: until then
//! there is nothing that a gateway would open.

use super::copy::{self, FILES, Sum};
use super::export::saved;
use super::progress::{Progress, Unit};
use super::throttle::Brake;
use super::verify::each_file;
use super::{Place, Saved, manifest, told};
use crate::storage::stores::{LEDGER, PEPPER};
use penstock_storage::StoreError;
use penstock_storage::files::FileStore;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Read buffer of the rows, in bytes.
const READ: usize = 256 << 10;

/// Restores the archive in the folder `from`. A second call after a crash continues the restore.
///
/// # Errors
/// Returns a sentence for the operator if the restore fails. If the archive is damaged, nothing was written.
pub fn import(place: &Place, from: &Path, progress: &Progress) -> Result<Saved, String> {
    let folder = &place.storage.path;
    let failed = |error: std::io::Error| format!("{} cannot be restored to: {error}.", folder.display());
    let said = |error: StoreError| told(&error);
    if place.store().exists() {
        return Err(format!("There is a store in {} already: restore to an empty folder.", folder.display()));
    }
    let files = manifest::read(from, progress)?;
    let pepper = place.storage.pepper.is_some();
    let target = |name: &str| -> Option<PathBuf> {
        match name.split_once('/') {
            Some((LEDGER, file)) => Some(place.ledger().join(file)),
            Some((FILES, file)) => Some(place.files.join(file)),
            None if name == PEPPER && !pepper => Some(place.pepper()),
            _ => None,
        }
    };
    let plain = || files.iter().filter_map(|(name, sum)| Some((name, sum, target(name)?)));
    let mut brake = Brake::reporting(progress);
    let present = copy::sizes(plain().map(|(_, _, to)| to));
    if present > 0 {
        progress.begin("Files that are there", Unit::Bytes, Some(present));
    }
    // Existing files are checked before anything is written: they may be the only copy.
    for (name, sum, to) in plain() {
        match copy::sum(&to, &mut brake) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Ok(found) if found == *sum => {}
            _ => return Err(format!("{} is there already, and is not {name} of the archive.", to.display())),
        }
    }
    for folder in [folder.clone(), place.ledger(), place.files.clone()] {
        copy::folder(&folder).map_err(failed)?;
    }
    let missing = || plain().filter(|(_, _, to)| !to.exists());
    let bytes = missing().map(|(_, sum, _)| sum.bytes).sum();
    progress.begin("Files", Unit::Bytes, Some(bytes));
    for (name, _, to) in plain() {
        if !to.exists() {
            copy::copy(&from.join(name), &to, &mut brake).map_err(failed)?;
        }
    }
    for folder in [&place.ledger(), &place.files] {
        copy::sync(folder).map_err(failed)?;
    }
    let aside = folder.join("store.import");
    if aside.exists() {
        fs::remove_dir_all(&aside).map_err(failed)?;
    }
    let store = penstock_storage::open(&aside, place.options()).map_err(said)?;
    let rows = from.join(manifest::ROWS);
    progress.begin("Rows", Unit::Bytes, Some(copy::sizes([&rows])));
    let rows = Reported { inner: File::open(rows).map_err(failed)?, progress };
    let mut rows = BufReader::with_capacity(READ, rows);
    let rows = penstock_storage::import(&*store, &mut rows).map_err(said)?;
    progress.finish();
    let gone = forget(&FileStore::new(store.clone()), &files).map_err(said)?;
    drop(store);
    fs::rename(&aside, place.store()).map_err(failed)?;
    copy::sync(folder).map_err(failed)?;
    Ok(Saved { gone, ..saved(rows, &files) })
}

/// Reader that reports its bytes as progress.
struct Reported<'a, R> {
    inner: R,
    progress: &'a Progress,
}

impl<R: Read> Read for Reported<'_, R> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(bytes)?;
        self.progress.advance(read as u64);
        Ok(read)
    }
}

/// Deletes the records of files without contents: these files were deleted during or after the export.
fn forget(store: &FileStore, files: &[(String, Sum)]) -> Result<u64, StoreError> {
    let there: HashSet<&str> = files.iter().filter_map(|(name, _)| name.strip_prefix("files/")).collect();
    let mut lost = Vec::new();
    each_file(store, |record| {
        if !there.contains(record.id.as_str()) {
            lost.push(record.clone());
        }
    })?;
    for record in &lost {
        store.delete(record)?;
    }
    Ok(lost.len() as u64)
}
