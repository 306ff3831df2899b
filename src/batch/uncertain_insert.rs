//! Inserts of batches whose outcome is unknown, because the store gave no answer. The client received an error, so it
//! must not pay for the batch.
//!
//! The insert may still wait in the queue of the store's writer, where a read does not see it. Therefore a request to
//! end the batch is queued behind the insert. A file also notes the batch, so that the next process ends the batch if
//! this process stops first.

use super::context::BatchContext;
use super::runner::RunnableBatch;
use super::{BATCH_ID_PREFIX, BatchChannels, BatchCommand, BatchManager};
use crate::storage::object_id;
use penstock_storage::StoreError;
use penstock_storage::batches::{BatchRecord, BatchStore, EndRequest};
use std::fs;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Folder in the storage folder with an empty file for each batch whose insert has an unknown outcome.
const NOTES_FOLDER: &str = "uncertain-batches";
/// Maximum time for which a client waits until the file of its batch is written.
const NOTE_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause before the store is asked again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Outcome of an insert for which the store returned an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailedInsertOutcome {
    /// The batch is stored.
    Stored,
    /// The batch is not stored, and will not be.
    NotStored,
    /// The transaction may still be committed, or the store does not answer.
    Unknown,
}

impl BatchManager {
    /// Finds out whether a batch is stored although its insert failed.
    pub(super) async fn find_insert_outcome(&self, id: &str, error: &StoreError) -> FailedInsertOutcome {
        match error {
            StoreError::Guard { .. }
            | StoreError::TooLarge { .. }
            | StoreError::InvalidArgument { .. }
            | StoreError::Unreachable { .. } => FailedInsertOutcome::NotStored,
            StoreError::Stuck | StoreError::HandedOver { .. } => FailedInsertOutcome::Unknown,
            // The writer has answered, so nothing of the transaction is in its queue.
            _ => self.read_insert(id).await,
        }
    }

    async fn read_insert(&self, id: &str) -> FailedInsertOutcome {
        let (store, id) = (self.store.clone(), id.to_owned());
        match spawn_blocking(move || store.get(&id)).await {
            Ok(Ok(Some(_))) => FailedInsertOutcome::Stored,
            Ok(Ok(None)) => FailedInsertOutcome::NotStored,
            Ok(Err(_)) | Err(_) => FailedInsertOutcome::Unknown,
        }
    }

    /// Notes a batch whose insert has an unknown outcome, and cancels it once the store answers. If this process
    /// stops before that, the next process cancels the batch. `channels` is `None` in a fleet, where the batch is not
    /// registered in this process.
    pub(super) async fn cancel_uncertain_batch(
        context: &Arc<BatchContext>,
        record: BatchRecord,
        channels: Option<BatchChannels>,
    ) {
        let Some(runtime) = context.batches.runtime.get() else {
            return context.batches.unregister(&record.id);
        };
        let (folder, id) = (notes_folder(context), record.id.clone());
        let noted = timeout(NOTE_TIMEOUT, spawn_blocking(move || write_note(&folder, &id))).await;
        if !matches!(noted, Ok(Ok(Ok(())))) {
            tracing::error!(name: "uncertain_batch_not_noted", batch = &*record.id);
        }
        let context = context.clone();
        runtime.spawn(async move {
            let batches = &context.batches;
            let is_cancelled = Self::cancel_once_stored(&context, &record.id).await;
            if is_cancelled {
                tracing::warn!(name: "batch_insert_uncertain", batch = &*record.id, key = &*record.key);
            }
            match channels {
                Some((commands, publisher)) if is_cancelled => {
                    let start = RunnableBatch { record, claim: None };
                    batches.spawn_batch(&context, start, commands, publisher);
                }
                Some(_) => batches.unregister(&record.id),
                None => {}
            }
        });
    }

    /// Requests the cancellation of a batch, and retries until the store answers. Returns false if the batch is not
    /// stored, or if the process stops.
    async fn cancel_once_stored(context: &Arc<BatchContext>, id: &str) -> bool {
        let mut stop = context.batches.stop_signal();
        loop {
            let (own, batch) = (context.clone(), id.to_owned());
            let end = move || end_insert(&own.batches.store, &notes_folder(&own), &batch);
            if let Ok(Ok(is_stored)) = spawn_blocking(end).await {
                if is_stored && let Some(running) = context.batches.running.lock().get(id) {
                    running.commands.send(BatchCommand::End(EndRequest::Cancelled)).ok();
                }
                return is_stored;
            }
            if timeout(RETRY_PAUSE, stop.wait_for(|stops| *stops)).await.is_ok() {
                return false;
            }
        }
    }

    /// Requests the cancellation of the batches that an earlier process has noted. Blocks.
    ///
    /// # Errors
    /// Returns an error if the notes cannot be read, or the errors of the store.
    pub(super) fn cancel_noted_batches(context: &BatchContext) -> Result<(), StoreError> {
        let folder = notes_folder(context);
        let failed = |error: Error| StoreError::io("list the batches without an answer", &error);
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            if let Some(id) = name.to_str().filter(|name| object_id::is_valid(BATCH_ID_PREFIX, name)) {
                end_insert(&context.batches.store, &folder, id)?;
            }
        }
        Ok(())
    }
}

fn notes_folder(context: &BatchContext) -> PathBuf {
    context.config_snapshot().settings.storage.path.join(NOTES_FOLDER)
}

/// Creates the file of a batch, and syncs it. Blocks.
fn write_note(folder: &Path, id: &str) -> std::io::Result<()> {
    penstock_storage::create_private_dir_all(folder)?;
    fs::File::create(folder.join(id))?.sync_all()?;
    fs::File::open(folder)?.sync_all()
}

/// Requests the cancellation of a batch, removes its file, and returns true if the batch is stored. Blocks.
fn end_insert(store: &BatchStore, folder: &Path, id: &str) -> Result<bool, StoreError> {
    // The writer answers in the order of its queue, so the insert has been committed or refused before.
    store.request_end(id, EndRequest::Cancelled)?;
    let is_stored = store.get(id)?.is_some();
    fs::remove_file(folder.join(id)).ok();
    Ok(is_stored)
}
