//! Commands that check or repair the ledger of a store that no process has open.

use super::checkpoint::LedgerCheckpoint;
use super::rebuild::{RebuiltLedger, rebuild_ledger};
use super::report;
use super::rollups::rebuild::{self, RollupCheck};
use crate::config::settings::StorageSettings;
use crate::storage::stores::{LEDGER_REPLICA_FOLDER, format_open_error, open_existing, open_or_create};
use penstock_storage::ledger::LedgerStore;

/// Rebuilds the ledger of a store from its replica files.
///
/// # Errors
/// Returns one sentence with the cause.
pub fn rebuild_from_replica(storage: &StorageSettings) -> Result<RebuiltLedger, String> {
    let store = open_or_create(storage)?;
    let copies = storage.path.join(LEDGER_REPLICA_FOLDER);
    let rebuilt = rebuild_ledger(&store, &copies).map_err(|failed| failed.to_string())?;
    LedgerStore::open(store, Some(&copies)).map_err(|error| format_open_error(&copies, &error))?;
    Ok(rebuilt)
}

/// Recomputes the usage rollups of a store from its ledger, writes them, and compares the stored rollups with the
/// ledger.
///
/// # Errors
/// Returns one sentence with the cause.
pub fn rebuild_rollups(storage: &StorageSettings) -> Result<RollupCheck, String> {
    let store = open_existing(storage)?;
    let store = store.ok_or_else(|| format!("There is no store in {}.", storage.path.display()))?;
    let ledger = LedgerStore::open_read_only(store);
    let check = || rebuild::rebuild(&ledger).and_then(|_| rebuild::verify(&ledger));
    check().map_err(|failed| failed.to_string())
}

/// Verifies the ledger of a store and compares its replica files with it; nothing is written.
///
/// # Errors
/// Returns one sentence with the cause.
pub fn verify_ledger(
    storage: &StorageSettings,
    checkpoint: &LedgerCheckpoint,
) -> Result<report::LedgerVerification, String> {
    let store = open_existing(storage)?;
    let store = store.ok_or_else(|| {
        let hint = if storage.path.join(LEDGER_REPLICA_FOLDER).is_dir() {
            " If it was lost, `penstock credits rebuild` writes its ledger again from the second copy."
        } else {
            ""
        };
        format!("There is no store in {}.{hint}", storage.path.display())
    })?;
    let store = LedgerStore::open_for_comparison(store, &storage.path.join(LEDGER_REPLICA_FOLDER));
    report::verify_with_checkpoint(&store, checkpoint, &mut |_| {}).map_err(|failed| failed.to_string())
}
