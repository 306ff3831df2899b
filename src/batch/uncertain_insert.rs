//! Inserts of batches whose outcome is unknown, because the store gave no answer: a client that was told that its batch
//! was not created must not pay for the batch.

use super::context::BatchContext;
use super::runner::RunnableBatch;
use super::{BatchChannels, BatchCommand, BatchManager};
use penstock_storage::StoreError;
use penstock_storage::batches::{BatchRecord, EndRequest};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Pause before a record that could not be read is read again.
const READ_PAUSE: Duration = Duration::from_secs(1);

/// Outcome of an insert for which the store returned an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailedInsertOutcome {
    /// The batch is stored.
    Stored,
    NotStored,
    /// The store does not answer.
    Unknown,
}

impl BatchManager {
    /// Finds out whether a batch is stored although its insert failed.
    pub(super) async fn find_insert_outcome(&self, id: &str, error: &StoreError) -> FailedInsertOutcome {
        match error {
            StoreError::Guard { .. } | StoreError::TooLarge { .. } | StoreError::Unreachable { .. } => {
                FailedInsertOutcome::NotStored
            }
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

    /// Cancels a batch with an unknown outcome of its insert, once the store answers. A process that stops leaves the
    /// batch to the next one. `channels` are those of a batch that is registered in this process; in a fleet the batch
    /// is not registered.
    pub(super) fn cancel_uncertain_batch(
        context: &Arc<BatchContext>,
        record: BatchRecord,
        channels: Option<BatchChannels>,
    ) {
        let Some(runtime) = context.batches.runtime.get() else {
            return context.batches.unregister(&record.id);
        };
        let context = context.clone();
        runtime.spawn(async move {
            let batches = &context.batches;
            let is_cancelled = batches.cancel_once_stored(&record.id).await;
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

    /// Waits until the store answers, and then requests the cancellation of the batch. Returns false if the batch is not
    /// stored, or if the process stops.
    async fn cancel_once_stored(&self, id: &str) -> bool {
        let mut stop = self.stop_signal();
        loop {
            if timeout(READ_PAUSE, stop.wait_for(|stops| *stops)).await.is_ok() {
                return false;
            }
            match self.read_insert(id).await {
                FailedInsertOutcome::Unknown => {}
                FailedInsertOutcome::NotStored => return false,
                FailedInsertOutcome::Stored if self.request_uncertain_end(id).await => return true,
                FailedInsertOutcome::Stored => {}
            }
        }
    }

    /// Requests the cancellation of a batch that no client knows; returns false if the store fails.
    async fn request_uncertain_end(&self, id: &str) -> bool {
        let request = EndRequest::Cancelled;
        if let Some(running) = self.running.lock().get(id) {
            running.commands.send(BatchCommand::End(request)).ok();
            return true;
        }
        let (store, id) = (self.store.clone(), id.to_owned());
        spawn_blocking(move || store.request_end(&id, request)).await.is_ok_and(|requested| requested.is_ok())
    }
}
