//! Export of all data to a folder: store rows as JSON lines, ledger month files and file contents unchanged,
//! each with its checksum.

use super::copy::{self, FILES, Sum, Summing};
use super::progress::{Progress, Unit};
use super::throttle::{Brake, Braked};
use super::verify::each_file;
use super::{Place, Saved, manifest, told};
use crate::storage::stores::{LEDGER, PEPPER};
use penstock_storage::files::{FileRecord, FileStatus, FileStore};
use penstock_storage::ledger::LedgerStore;
use penstock_storage::{Store, StoreError};
use std::fs;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Exports to the folder `to`, which must be empty or absent, while no gateway runs.
///
/// # Errors
/// Returns a sentence for the operator if the export fails. A folder without a manifest is not an archive.
pub fn export(place: &Place, to: &Path, progress: &Progress) -> Result<Saved, String> {
    let store = place.open()?;
    // Opening the ledger brings its replica files up to date with the store.
    LedgerStore::open(store.clone(), Some(&place.ledger())).map_err(|error| told(&error))?;
    let brake = Brake::reporting(progress);
    Archive { place, to, brake, progress, works: None, files: Vec::new() }.save(&store)
}

/// Exports while the gateway runs. Contents that the earlier archive `last` has too are hard-linked, not copied.
///
/// # Errors
/// The same as those of [`export`].
pub fn save(
    place: &Place,
    store: &Arc<dyn Store>,
    to: &Path,
    last: Option<&Path>,
    brake: Brake<'_>,
) -> Result<Saved, String> {
    let works = Some(last.map(Path::to_owned));
    Archive { place, to, brake, progress: &Progress::hidden(), works, files: Vec::new() }.save(store)
}

/// Archive that is being written.
struct Archive<'a, 'b> {
    place: &'a Place,
    to: &'a Path,
    brake: Brake<'b>,
    progress: &'a Progress,
    /// `Some` if the gateway runs meanwhile; the inner path is an earlier archive.
    works: Option<Option<PathBuf>>,
    files: Vec<(String, Sum)>,
}

impl Archive<'_, '_> {
    fn save(mut self, store: &Arc<dyn Store>) -> Result<Saved, String> {
        let to = self.to;
        let failed =
            |error: std::io::Error| format!("The archive {} cannot be written: {error}.", to.display());
        let said = |error: StoreError| told(&error);
        if !copy::is_empty(to).map_err(failed)? {
            return Err(format!("{} is not empty: an archive needs a folder of its own.", to.display()));
        }
        for folder in [to.to_owned(), to.join(LEDGER), to.join(FILES)] {
            copy::folder(&folder).map_err(failed)?;
        }
        let months = copy::names(&self.place.ledger()).map_err(failed)?;
        let months: Vec<String> = months.into_iter().filter(|name| name.ends_with(".jsonl")).collect();
        let bytes = copy::sizes(months.iter().map(|name| self.place.ledger().join(name)));
        self.progress.begin("Ledger", Unit::Bytes, Some(bytes));
        // The ledger files come before the rows: a replica may lag behind its store, and is then repaired, but
        // must not be ahead of it.
        if self.place.storage.pepper.is_none() && self.place.pepper().exists() {
            self.take(&self.place.pepper(), PEPPER.to_owned())?;
        }
        for name in months {
            self.take(&self.place.ledger().join(&name), format!("{LEDGER}/{name}"))?;
        }
        self.progress.begin("Rows", Unit::Bytes, None);
        let rows = self.rows(store)?;
        // The file records come after the rows: contents that the rows refer to exist now, or were deleted since.
        let mut records = Vec::new();
        each_file(&FileStore::new(store.clone()), |record| records.push(record.clone())).map_err(said)?;
        let bytes = records.iter().map(|record| record.bytes).sum();
        self.progress.begin("File contents", Unit::Bytes, Some(bytes));
        for record in &records {
            self.contents(record)?;
        }
        for folder in [LEDGER, FILES] {
            copy::sync(&to.join(folder)).map_err(failed)?;
        }
        self.progress.finish();
        manifest::write(to, &self.files).map_err(failed)?;
        Ok(saved(rows, &self.files))
    }

    fn rows(&mut self, store: &Arc<dyn Store>) -> Result<u64, String> {
        let failed =
            |error: std::io::Error| format!("The rows cannot be saved to {}: {error}.", self.to.display());
        let file = copy::create(&self.to.join(manifest::ROWS), false).map_err(failed)?;
        let mut summing = Summing::new(Braked { inner: BufWriter::new(file), brake: &mut self.brake });
        let rows = penstock_storage::export(&**store, &mut summing).map_err(|error| told(&error))?;
        let (Braked { inner: mut file, .. }, sum) = summing.finish();
        file.flush().and_then(|()| file.get_ref().sync_all()).map_err(failed)?;
        self.files.push((manifest::ROWS.to_owned(), sum));
        Ok(rows)
    }

    fn take(&mut self, from: &Path, name: String) -> Result<(), String> {
        let sum = copy::copy_with(from, &self.to.join(&name), u64::MAX, &mut self.brake);
        self.files.push((name, sum.map_err(|error| unsaved(from, &error))?));
        Ok(())
    }

    fn contents(&mut self, record: &FileRecord) -> Result<(), String> {
        let (from, name) = (self.place.files.join(&record.id), format!("{FILES}/{}", record.id));
        let Some(last) = self.works.clone() else { return self.take(&from, name) };
        let to = self.to.join(&name);
        let saved = if record.status == FileStatus::Uploaded {
            // The file still grows, but the bytes counted in its record do not change any more.
            copy::copy_with(&from, &to, record.bytes, &mut self.brake)
        } else {
            self.one_with(&from, last.map(|last| last.join(&name)), &to)
        };
        match saved {
            // The file was deleted meanwhile, perhaps during the copy.
            Ok(_) if !from.exists() => fs::remove_file(&to).or(Ok(())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Ok(sum) => {
                self.files.push((name, sum));
                Ok(())
            }
            Err(error) => Err(unsaved(&from, &error)),
        }
    }

    /// Hard-links contents that no longer change, or copies them if they are on another disk.
    fn one_with(&mut self, from: &Path, last: Option<PathBuf>, to: &Path) -> std::io::Result<Sum> {
        let size = fs::metadata(from)?.len();
        let linked = fs::hard_link(from, to).or_else(|error| match last {
            Some(last) if fs::metadata(&last).is_ok_and(|known| known.len() == size) => {
                fs::hard_link(last, to)
            }
            _ => Err(error),
        });
        match linked {
            Ok(()) => copy::sum(to, &mut self.brake),
            Err(_) => copy::copy_with(from, to, u64::MAX, &mut self.brake),
        }
    }
}

fn unsaved(from: &Path, error: &std::io::Error) -> String {
    format!("{} cannot be saved: {error}.", from.display())
}

/// Builds the report of an archive.
pub(super) fn saved(rows: u64, files: &[(String, Sum)]) -> Saved {
    let plain = || files.iter().filter(|(name, _)| name != manifest::ROWS);
    Saved { rows, files: plain().count() as u64, bytes: plain().map(|(_, sum)| sum.bytes).sum(), gone: 0 }
}
