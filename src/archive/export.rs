//! Saves everything to a folder: rows as lines of JSON, the ledger's months and
//! the contents of files as they are, each with its checksum.

use super::copy::{self, FILES, Sum, Summing};
use super::verify::each_file;
use super::{Place, Saved, manifest, told};
use crate::vault::{LEDGER, PEPPER};
use penstock_storage::StoreError;
use penstock_storage::files::FileStore;
use penstock_storage::ledger::LedgerStore;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Saves to the folder `to`, which has to be empty or not there yet.
///
/// # Errors
/// One sentence that says what is in the way. A folder without a manifest is no archive.
pub fn export(place: &Place, to: &Path) -> Result<Saved, String> {
    let failed = |error: std::io::Error| format!("The archive {} cannot be written: {error}.", to.display());
    let said = |error: StoreError| told(&error);
    if !copy::is_empty(to).map_err(failed)? {
        return Err(format!("{} is not empty: an archive needs a folder of its own.", to.display()));
    }
    let store = place.open()?;
    // The second copy is brought up to the store first.
    LedgerStore::open(store.clone(), Some(&place.ledger())).map_err(said)?;
    for folder in [to.to_owned(), to.join(LEDGER), to.join(FILES)] {
        copy::folder(&folder).map_err(failed)?;
    }
    let mut files: Vec<(String, Sum)> = Vec::new();
    let file = copy::create(&to.join(manifest::ROWS), false).map_err(failed)?;
    let mut summing = Summing::new(BufWriter::new(file));
    let rows = penstock_storage::export(&*store, &mut summing).map_err(said)?;
    let (mut file, sum) = summing.finish();
    file.flush().and_then(|()| file.get_ref().sync_all()).map_err(failed)?;
    files.push((manifest::ROWS.to_owned(), sum));

    let mut take = |from: &Path, name: String| -> Result<(), String> {
        let sum = copy::copy(from, &to.join(&name))
            .map_err(|error| format!("{} cannot be saved: {error}.", from.display()))?;
        files.push((name, sum));
        Ok(())
    };
    if place.storage.pepper.is_none() && place.pepper().exists() {
        take(&place.pepper(), PEPPER.to_owned())?;
    }
    for name in copy::names(&place.ledger()).map_err(failed)? {
        if name.ends_with(".jsonl") {
            take(&place.ledger().join(&name), format!("{LEDGER}/{name}"))?;
        }
    }
    let mut contents = Vec::new();
    each_file(&FileStore::new(store), |record| contents.push(record.id.clone())).map_err(said)?;
    for id in contents {
        take(&place.files.join(&id), format!("{FILES}/{id}"))?;
    }
    for folder in [LEDGER, FILES] {
        copy::sync(&to.join(folder)).map_err(failed)?;
    }
    manifest::write(to, &files).map_err(failed)?;
    Ok(saved(rows, &files))
}

/// What an archive holds.
pub(super) fn saved(rows: u64, files: &[(String, Sum)]) -> Saved {
    let plain = || files.iter().filter(|(name, _)| name != manifest::ROWS);
    Saved { rows, files: plain().count() as u64, bytes: plain().map(|(_, sum)| sum.bytes).sum() }
}
