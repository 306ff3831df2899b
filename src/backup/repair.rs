//! Repair of a damaged store: all readable rows are copied to a store in another folder. The ledger is taken from the
//! store or from its replica files, whichever is intact. The damaged store is not changed.

use super::file_copy;
use super::progress::{ProgressReporter, ProgressUnit};
use super::throttle::Throttle;
use super::verify::{VerifyReport, for_each_file_record, verify};
use super::{DataPaths, store_error_message};
use crate::billing::{rebuild, report};
use crate::storage::stores::{StoreLocation, store_location};
use penstock_storage::files::FileStore;
use penstock_storage::ledger::LedgerStore;
use penstock_storage::{RepairLoss, RepairOutcome, Store, StoreError};
use std::path::Path;
use std::sync::Arc;

/// Result of a repair.
#[derive(Clone, Debug)]
pub struct RepairReport {
    /// Numbers of rows that were copied and that were lost.
    pub rows: RepairOutcome,
    /// Number of ledger entries that were rebuilt from the replica files; `None` if the store's ledger was intact or
    /// the rebuild failed.
    pub rebuilt_entries: Option<u64>,
    /// Reason why the ledger is incomplete, if it is.
    pub ledger_error: Option<String>,
    /// Problems that remain in the repaired data.
    pub verification: VerifyReport,
}

/// Copies the readable data of a damaged store to the folder `to`, which must be empty or absent, rebuilds the ledger
/// there if it is not intact, and verifies the result.
///
/// # Errors
/// Returns a sentence for the operator if nothing of the store could be read or the target cannot be written.
pub fn repair_store(
    data_paths: &DataPaths,
    to: &Path,
    progress: &ProgressReporter,
) -> Result<RepairReport, String> {
    let failed = |error: std::io::Error| format!("{} cannot be written: {error}.", to.display());
    let repair_rows = match store_location(&data_paths.storage) {
        StoreLocation::Folder(engine) => engine.repair.ok_or(
            "A store of this engine is not repaired: restore it from an archive (`penstock store import`).",
        )?,
        StoreLocation::Database(_) => {
            return Err(
                "A store in PostgreSQL is not repaired: restore the database from its backup.".to_owned()
            );
        }
    };
    if !file_copy::is_empty_dir(to).map_err(failed)? {
        return Err(format!("{} is not empty: the repaired data needs a folder of its own.", to.display()));
    }
    let new = data_paths.relocated(to);
    for folder in [to.to_owned(), new.ledger_path(), new.files.clone()] {
        file_copy::create_private_dir(&folder).map_err(failed)?;
    }
    progress.begin_stage("Rows", ProgressUnit::Rows, None);
    let mut read = |rows| progress.advance(rows);
    let rows =
        repair_rows(&data_paths.store_path(), &new.store_path(), data_paths.store_options(), &mut read)
            .map_err(|error| repair_error_message(&error))?;
    let mut brake = Throttle::with_progress(progress);
    let months = file_copy::file_names(&data_paths.ledger_path()).map_err(failed)?;
    let bytes = file_copy::total_size(months.iter().map(|name| data_paths.ledger_path().join(name)));
    progress.begin_stage("Ledger", ProgressUnit::Bytes, Some(bytes));
    if data_paths.pepper_path().exists() {
        file_copy::copy(&data_paths.pepper_path(), &new.pepper_path(), &mut Throttle::unlimited())
            .map_err(failed)?;
    }
    for name in months {
        file_copy::copy(&data_paths.ledger_path().join(&name), &new.ledger_path().join(&name), &mut brake)
            .map_err(failed)?;
    }
    let store = new.open_store()?;
    let mut contents = Vec::new();
    for_each_file_record(&FileStore::new(store.clone()), |record| contents.push(record.id.clone()))
        .map_err(|error: StoreError| store_error_message(&error))?;
    let bytes = file_copy::total_size(contents.iter().map(|id| data_paths.files.join(id)));
    progress.begin_stage("File contents", ProgressUnit::Bytes, Some(bytes));
    for id in contents {
        // Damaged contents are copied too: they are never served, but may be all that remains.
        file_copy::copy(&data_paths.files.join(&id), &new.files.join(&id), &mut brake).ok();
    }
    file_copy::sync_dir(&new.ledger_path()).and_then(|()| file_copy::sync_dir(&new.files)).map_err(failed)?;
    progress.finish_stage();
    let (rebuilt, ledger) = repair_ledger(&store, &new.ledger_path());
    drop(store);
    let mut verdict = verify(&new, progress)?;
    if let Some(loss) = rows.loss {
        verdict.add_finding(format_loss(rows.saved, loss));
    }
    Ok(RepairReport { rows, rebuilt_entries: rebuilt, ledger_error: ledger, verification: verdict })
}

/// Formats the loss of committed rows as a finding.
fn format_loss(saved: u64, loss: RepairLoss) -> String {
    let rows = match loss.committed_rows {
        Some(committed) => format!(
            "{committed} rows were committed and {saved} saved, so at least {} are missing",
            committed.saturating_sub(saved)
        ),
        None => format!("{saved} were saved, and the number of committed rows is unknown"),
    };
    let commits = match loss.commits {
        0 => "rows in damaged parts of the log are missing or older than the last commit".to_owned(),
        commits => format!("the last {commits} commits are lost"),
    };
    format!("rows: {rows}; {commits}. Revoked keys may be valid again, and charges may be undone")
}

/// Formats an error as a sentence. The text of `Corrupt` is replaced, because it recommends the repair that has just
/// failed.
fn repair_error_message(error: &StoreError) -> String {
    match error {
        StoreError::Corrupt { what } => format!(
            "Nothing of the store can be read ({what}): restore it from an archive (`penstock store import`)."
        ),
        error => store_error_message(error),
    }
}

/// Retains the ledger of the store if it is intact, else rebuilds it from the replica files. Returns the members
/// `rebuilt_entries` and `ledger_error` of the [`RepairReport`].
fn repair_ledger(store: &Arc<dyn Store>, copies: &Path) -> (Option<u64>, Option<String>) {
    let whole = LedgerStore::open(store.clone(), Some(copies))
        .is_ok_and(|book| report::verify(&book).is_ok_and(|proof| proof.is_intact()));
    if whole {
        return (None, None);
    }
    match rebuild::rebuild_ledger(store, copies) {
        Ok(rebuilt) => (Some(rebuilt.entries), None),
        Err(failed) => (None, Some(failed.to_string())),
    }
}
