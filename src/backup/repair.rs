//! Repair of a damaged store: all readable rows are copied to another folder. The ledger comes from whichever of its
//! two copies is intact. The damaged store is not changed.

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

/// Result of a repair.
#[derive(Clone, Debug)]
pub struct Salvaged {
    /// Number of rows that were copied and lost.
    pub rows: RepairOutcome,
    /// Number of ledger entries that were rebuilt from the replica files.
    pub rebuilt: Option<u64>,
    /// Reason why the ledger is incomplete, if it is.
    pub ledger: Option<String>,
    /// Problems that remain in the repaired data.
    pub verdict: Verdict,
}

/// Repairs into the folder `to`, which must be empty or absent.
///
/// # Errors
/// Returns a sentence for the operator if nothing of the store could be read or the target cannot be written.
pub fn repair(place: &Place, to: &Path, progress: &Progress) -> Result<Salvaged, String> {
    let failed = |error: std::io::Error| format!("{} cannot be written: {error}.", to.display());
    if !copy::is_empty(to).map_err(failed)? {
        return Err(format!("{} is not empty: the repaired data needs a folder of its own.", to.display()));
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
        // Damaged contents are copied too: they are never served, but may be all that remains.
        copy::copy(&place.files.join(&id), &new.files.join(&id), &mut brake).ok();
    }
    copy::sync(&new.ledger()).and_then(|()| copy::sync(&new.files)).map_err(failed)?;
    progress.finish();
    let (rebuilt, ledger) = ledger(&store, &new.ledger());
    drop(store);
    let verdict = verify(&new, progress)?;
    Ok(Salvaged { rows, rebuilt, ledger, verdict })
}

/// Keeps the store's ledger if it is intact, else rebuilds it from the replica files.
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
