//! Salvages a damaged store: what can still be read moves to another folder. The
//! ledger is taken from whichever of its two copies is whole. What is damaged is
//! not changed.

use super::copy;
use super::progress::{Progress, Unit};
use super::throttle::Brake;
use super::verify::{Verdict, each_file, verify};
use super::{Place, told};
use crate::billing::{rebuild, report};
use penstock_storage::files::FileStore;
use penstock_storage::ledger::LedgerStore;
use penstock_storage::{RepairOutcome, Store, StoreError};
use std::path::Path;
use std::sync::Arc;

/// What was saved.
#[derive(Clone, Debug)]
pub struct Salvaged {
    /// Rows, and how many were lost.
    pub rows: RepairOutcome,
    /// Entries of the ledger that were written again from the second copy.
    pub rebuilt: Option<u64>,
    /// Why the ledger is not whole, if it is not.
    pub ledger: Option<String>,
    /// What is still wrong with what was saved.
    pub verdict: Verdict,
}

/// Salvages to the folder `to`, which has to be empty or not there yet.
///
/// # Errors
/// One sentence that says what is in the way; nothing of the store could be read.
pub fn repair(place: &Place, to: &Path, progress: &Progress) -> Result<Salvaged, String> {
    let failed = |error: std::io::Error| format!("{} cannot be written: {error}.", to.display());
    if !copy::is_empty(to).map_err(failed)? {
        return Err(format!("{} is not empty: what is saved needs a folder of its own.", to.display()));
    }
    let new = place.moved(to);
    for folder in [to.to_owned(), new.ledger(), new.files.clone()] {
        copy::folder(&folder).map_err(failed)?;
    }
    progress.begin("Rows", Unit::Rows, None);
    let mut read = |rows| progress.advance(rows);
    let rows = penstock_storage::repair_with(&place.store(), &new.store(), place.options(), &mut read)
        .map_err(|error| told(&error))?;
    let mut brake = Brake::reporting(progress);
    let months = copy::names(&place.ledger()).map_err(failed)?;
    let bytes = copy::sizes(months.iter().map(|name| place.ledger().join(name)));
    progress.begin("Ledger", Unit::Bytes, Some(bytes));
    if place.pepper().exists() {
        copy::copy(&place.pepper(), &new.pepper(), &mut Brake::off()).map_err(failed)?;
    }
    for name in months {
        copy::copy(&place.ledger().join(&name), &new.ledger().join(&name), &mut brake).map_err(failed)?;
    }
    let store = new.open()?;
    let mut contents = Vec::new();
    each_file(&FileStore::new(store.clone()), |record| contents.push(record.id.clone()))
        .map_err(|error: StoreError| told(&error))?;
    let bytes = copy::sizes(contents.iter().map(|id| place.files.join(id)));
    progress.begin("File contents", Unit::Bytes, Some(bytes));
    for id in contents {
        // Damaged ones too: never served, and yet all that is left of them.
        copy::copy(&place.files.join(&id), &new.files.join(&id), &mut brake).ok();
    }
    copy::sync(&new.ledger()).and_then(|()| copy::sync(&new.files)).map_err(failed)?;
    progress.finish();
    let (rebuilt, ledger) = ledger(&store, &new.ledger());
    drop(store);
    let verdict = verify(&new, progress)?;
    Ok(Salvaged { rows, rebuilt, ledger, verdict })
}

/// The ledger as the store has it, if that is whole, else as the second copy has it.
fn ledger(store: &Arc<dyn Store>, copies: &Path) -> (Option<u64>, Option<String>) {
    let whole = LedgerStore::open(store.clone(), Some(copies))
        .is_ok_and(|book| report::verify(&book).is_ok_and(|proof| proof.good()));
    if whole {
        return (None, None);
    }
    match rebuild::rebuild(store, copies) {
        Ok(entries) => (Some(entries), None),
        Err(failed) => (None, Some(failed.0)),
    }
}
