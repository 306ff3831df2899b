//! Requests about batches that any gateway of a fleet answers: creation, cancellation, and deletion of an input file.

use super::context::BatchContext;
use super::errors::{batches_not_writable, insert_error_response, too_many_batches};
use super::uncertain_insert::FailedInsertOutcome;
use super::{BatchManager, END_TIMEOUT};
use crate::storage::files::run_blocking;
use penstock_core::ApiError;
use penstock_storage::batches::{BatchInsertOutcome, BatchRecord, EndRequest};
use penstock_storage::files::FileStore;
use penstock_storage::{StoreError, StoreTable, Transaction};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Interval of the reads of a batch's record while another gateway ends the batch.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(100);

impl BatchManager {
    /// Stores a batch. The gateway that the hash of its id selects runs it.
    ///
    /// # Errors
    /// Returns a refusal if the input file is gone, the account has `max_open_batches` open batches, or the store is
    /// not writable.
    pub(super) async fn insert_in_fleet(
        context: &Arc<BatchContext>,
        record: BatchRecord,
        max_open_batches: usize,
    ) -> Result<Arc<BatchRecord>, ApiError> {
        let batches = &context.batches;
        let (store, stored) = (batches.store.clone(), record.clone());
        let input =
            Transaction::new().require_present(StoreTable::Files, FileStore::record_key(&record.input));
        let inserted =
            tokio::task::spawn_blocking(move || store.insert_within_limit(&stored, &input, max_open_batches))
                .await;
        match inserted.unwrap_or(Err(StoreError::Stuck)) {
            Ok(BatchInsertOutcome::Inserted) => {}
            Ok(BatchInsertOutcome::TooManyOpen) => return Err(too_many_batches(max_open_batches)),
            Ok(BatchInsertOutcome::Refused) => return Err(super::input_not_found()),
            Err(StoreError::Guard { .. }) => return Err(batches_not_writable()),
            Err(error) => match batches.find_insert_outcome(&record.id, &error).await {
                FailedInsertOutcome::Stored => {}
                FailedInsertOutcome::NotStored => return Err(insert_error_response(&error)),
                FailedInsertOutcome::Unknown => {
                    Self::cancel_uncertain_batch(context, record, None).await;
                    return Err(insert_error_response(&error));
                }
            },
        }
        batches.claims.search.notify_one();
        Ok(Arc::new(record))
    }

    /// Asks the gateway that runs a batch to end it, and waits for the end, for at most `END_TIMEOUT`. Returns the last
    /// record, which is not final if the end takes longer; `None` if it no longer exists.
    ///
    /// # Errors
    /// Returns an error if the store cannot be used.
    pub(super) async fn request_end(
        &self,
        id: &str,
        request: EndRequest,
    ) -> Result<Option<BatchRecord>, ApiError> {
        let (store, batch) = (self.store.clone(), id.to_owned());
        run_blocking(move || Ok(store.request_end(&batch, request)?)).await?;
        self.check_claims().await;
        let deadline = Instant::now() + END_TIMEOUT;
        loop {
            let (store, batch) = (self.store.clone(), id.to_owned());
            let record = run_blocking(move || Ok(store.get(&batch)?)).await?;
            if record.as_ref().is_none_or(|record| record.state.is_final()) || Instant::now() >= deadline {
                return Ok(record);
            }
            tokio::time::sleep(END_CHECK_INTERVAL).await;
        }
    }

    /// Ends all batches whose input is this file, because its client deletes it.
    ///
    /// # Errors
    /// Returns a refusal if a batch does not end in time or the store cannot be used.
    pub(super) async fn end_batches_of_input_in_fleet(&self, file: &str) -> Result<(), ApiError> {
        for id in self.request_end_by_input(file).await? {
            let record = self.request_end(&id, EndRequest::InputDeleted).await?;
            if record.is_some_and(|record| !record.state.is_final()) {
                return Err(batches_not_writable());
            }
        }
        Ok(())
    }

    /// Requests the end of all unfinished batches whose input is this file; returns their ids.
    pub(super) async fn request_end_by_input(&self, file: &str) -> Result<Vec<String>, ApiError> {
        let (store, file) = (self.store.clone(), file.to_owned());
        let request = move || {
            let open = store.list_unfinished()?;
            let users = open.into_iter().filter(|record| record.input == file).map(|record| record.id);
            let users: Vec<String> = users.collect();
            for id in &users {
                store.request_end(id, EndRequest::InputDeleted)?;
            }
            Ok(users)
        };
        Ok(run_blocking(request).await?)
    }

    /// Returns the files of `ids` that an unfinished batch of any gateway reads or writes; all of them if that is
    /// unknown. Blocks.
    pub(super) fn filter_files_used_in_fleet<'i>(&self, ids: &[&'i str]) -> HashSet<&'i str> {
        let open = self.store.list_unfinished();
        let used = open.and_then(|open| self.filter_files_of_batches(&open.iter().collect::<Vec<_>>(), ids));
        used.unwrap_or_else(|error| {
            tracing::warn!(name: "batches_not_read", why = %error);
            ids.iter().copied().collect()
        })
    }
}
