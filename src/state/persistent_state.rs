//! Persistent part of the state: everything that is stored in the store and its folders.

use crate::auth::key_cache::KeyCache;
use crate::backup::rotation;
use crate::backup::state::BackupState;
use crate::batch::{BatchContext, BatchManager};
use crate::billing::Ledger;
use crate::billing::handover::InheritedHolds;
use crate::config::settings::Settings;
use crate::limits::admission_control::AdmissionControl;
use crate::storage::files::FileManager;
use crate::storage::responses::ResponseStore;
use crate::storage::stores::OpenStorage;
use crate::telemetry::metrics::MetricsRegistry;
use crate::time::clock::ProcessClock;
use crate::upstream::config_snapshot::ConfigSnapshot;
use arc_swap::ArcSwap;
use penstock_storage::files::FileStore;
use std::sync::{Arc, OnceLock};

/// Persistent state: keys, ledger, files, stored responses, batches and backups.
pub(super) struct PersistentState {
    pub(super) key_cache: Arc<KeyCache>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) files: Arc<FileManager>,
    pub(super) responses: Arc<ResponseStore>,
    pub(super) batches: Arc<BatchManager>,
    pub(super) backup_state: BackupState,
}

impl PersistentState {
    /// Opens everything in the store. Also returns the reservations that are open in an earlier process that still
    /// drains.
    ///
    /// # Errors
    /// Returns a sentence that names the cause.
    pub(super) fn open(
        settings: &Settings,
        stores: &OpenStorage,
        clock: ProcessClock,
        taken_over: bool,
    ) -> Result<(Self, InheritedHolds), String> {
        let key_cache = Arc::new(KeyCache::load(stores, clock)?);
        let (ledger_store, terms) = (stores.ledger.clone(), &settings.ledger);
        let (ledger, holds) = match taken_over {
            true => Ledger::open_after_handover(ledger_store, terms, clock, &stores.fleet)?,
            false => {
                let ledger = Ledger::open_for_member(ledger_store, terms, clock, &stores.fleet)?;
                (ledger, InheritedHolds::default())
            }
        };
        ledger.restore_budget_leases(&key_cache);
        let records = FileStore::new(stores.store.clone());
        let files = match stores.fleet.has_fleet() {
            true => FileManager::open_shared_folder(&settings.files, records)?,
            false => FileManager::open(&settings.files, records, taken_over)?,
        };
        let (folder, shared) = (&settings.storage.path, files.shared_contents());
        let responses = Arc::new(ResponseStore::open(folder, &stores.pepper, taken_over, shared)?);
        let batches = Arc::new(BatchManager::new(stores.store.clone(), stores.fleet.clone()));
        files.set_consumers(batches.clone());
        let exports = BackupState::open(settings, clock.unix_seconds());
        files.set_archive_folder(exports.folder().to_owned(), rotation::remove_from_archives);
        Ok((
            Self { key_cache, ledger, files: Arc::new(files), responses, batches, backup_state: exports },
            holds,
        ))
    }

    /// Returns the handles that the work of batches needs.
    pub(super) fn batch_context(
        &self,
        live: &Arc<ArcSwap<ConfigSnapshot>>,
        clock: ProcessClock,
        overload: &Arc<AdmissionControl>,
        metrics: &Arc<MetricsRegistry>,
    ) -> BatchContext {
        BatchContext {
            current_config: live.clone(),
            clock,
            ledger: self.ledger.clone(),
            key_cache: self.key_cache.clone(),
            admission: overload.clone(),
            metrics: metrics.clone(),
            files: self.files.clone(),
            responses: self.responses.clone(),
            batches: self.batches.clone(),
            lifecycle: Arc::default(),
            executor: OnceLock::new(),
        }
    }
}
