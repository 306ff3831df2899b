//! API requests for batches: create, get, list and cancel. A batch belongs to an account, and each key of the account
//! sees it; its files belong to the key that created the batch.

use super::context::BatchContext;
use super::errors::{
    batch_not_found, batches_not_writable, input_not_found, insert_error_response, too_many_batches,
};
use super::runner::RunnableBatch;
use super::uncertain_insert::FailedInsertOutcome;
use super::{BATCH_ID_PREFIX, BatchCommand, BatchManager, DELETION_GUARD, END_TIMEOUT, api_object};
use crate::auth::key_cache::Principal;
use crate::storage::files::run_blocking;
use crate::storage::object_id;
use penstock_batch::create_request::CreateBatchRequest;
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::batches::{BatchPage, BatchRecord, BatchState, EndRequest};
use penstock_storage::files::FileStore;
use penstock_storage::{StoreError, StoreHealth, StoreTable, Transaction};
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::time::timeout;

impl BatchManager {
    /// Creates a batch from an uploaded file.
    ///
    /// # Errors
    /// Returns a refusal if the file cannot be the input, the account has too many open batches, or the
    /// store is not writable.
    pub async fn create(
        context: &Arc<BatchContext>,
        principal: &Principal,
        asked: CreateBatchRequest,
    ) -> Result<Arc<BatchRecord>, ApiError> {
        let batches = &context.batches;
        batches.check_writable(context)?;
        let now = context.clock.calendar_now();
        let record = BatchRecord {
            id: object_id::new(BATCH_ID_PREFIX, now),
            key: principal.public_id.to_string(),
            account: principal.account.id.to_string(),
            endpoint: asked.endpoint.to_owned(),
            input: asked.input_file_id,
            window: asked.completion_window,
            created_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            expires: now.as_secs().saturating_add(asked.window_seconds),
            metadata: asked.metadata,
            state: BatchState::Validating,
            ..BatchRecord::default()
        };
        let most = context.config_snapshot().settings.batches.open;
        let record = if batches.fleet.has_fleet() {
            Self::insert_in_fleet(context, record, most).await?
        } else {
            Self::insert_and_run(context, record, most).await?
        };
        log_creation(&record);
        Ok(record)
    }

    /// Stores a batch and starts it in this process; used only without a fleet.
    ///
    /// # Errors
    /// Returns a refusal if the input file is gone, the account has `max_open_batches` open batches, or the store is
    /// not writable.
    async fn insert_and_run(
        context: &Arc<BatchContext>,
        record: BatchRecord,
        max_open_batches: usize,
    ) -> Result<Arc<BatchRecord>, ApiError> {
        let batches = &context.batches;
        // The batch is registered before the insert, so that a concurrent deletion of the input file finds the batch,
        // or the insert finds the deletion.
        let (commands, publisher) = batches
            .register(&record, max_open_batches, None)
            .ok_or_else(|| too_many_batches(max_open_batches))?;
        if batches.is_deleting(&record.input) {
            batches.unregister(&record.id);
            return Err(input_not_found());
        }
        let (store, new_record) = (batches.store.clone(), record.clone());
        let input =
            Transaction::new().require_present(StoreTable::Files, FileStore::record_key(&record.input));
        let inserted = tokio::task::spawn_blocking(move || store.insert(&new_record, input)).await;
        if let Err(error) = inserted.unwrap_or(Err(StoreError::Stuck)) {
            match batches.find_insert_outcome(&record.id, &error).await {
                FailedInsertOutcome::Stored => {}
                FailedInsertOutcome::NotStored => {
                    batches.unregister(&record.id);
                    return Err(insert_error_response(&error));
                }
                FailedInsertOutcome::Unknown => {
                    Self::cancel_uncertain_batch(context, record, Some((commands, publisher))).await;
                    return Err(insert_error_response(&error));
                }
            }
        }
        batches.spawn_batch(
            context,
            RunnableBatch { record: record.clone(), claim: None },
            commands,
            publisher,
        );
        Ok(Arc::new(record))
    }

    /// Returns an error if no batch can be stored: the disk is full, store or ledger fail, or the gateway stops.
    pub(super) fn check_writable(&self, context: &BatchContext) -> Result<(), ApiError> {
        // A process that hands over its store still creates batches; the next process runs them.
        let shut = context.lifecycle.is_draining() && !context.lifecycle.is_store_handed_over();
        match self.backend.health() {
            StoreHealth::Full => Err(ApiError::new(ErrorCode::StorageFull)),
            StoreHealth::Ready if !shut && !context.ledger.is_failing() => Ok(()),
            _ => Err(batches_not_writable()),
        }
    }

    fn is_deleting(&self, file: &str) -> bool {
        self.deleting.lock().get(file).is_some_and(|since| since.elapsed() < DELETION_GUARD)
    }

    /// Returns a batch of this account.
    ///
    /// # Errors
    /// Returns 404 if the account has no batch of this ID, even if another account has.
    pub async fn get(&self, account: &str, id: &str) -> Result<Arc<BatchRecord>, ApiError> {
        if !object_id::is_valid(BATCH_ID_PREFIX, id) {
            return Err(batch_not_found());
        }
        let record = self.find_record(id).await?;
        record.filter(|record| record.account == account).ok_or_else(batch_not_found)
    }

    /// Returns the last committed record of a batch or a background response of any account; `None` if there is none.
    pub(super) async fn find_record(&self, id: &str) -> Result<Option<Arc<BatchRecord>>, ApiError> {
        let seen = self.running.lock().get(id).map(|running| running.published.borrow().clone());
        match seen {
            Some(record) => Ok(Some(record)),
            None => {
                let (store, id) = (self.store.clone(), id.to_owned());
                Ok(run_blocking(move || Ok(store.get(&id)?)).await?.map(Arc::new))
            }
        }
    }

    /// Lists batches of an account, newest first: those after the batch `after`, or from the newest on if it is `None`.
    ///
    /// # Errors
    /// Returns a refusal if `after` is not a batch of this account.
    pub async fn list(
        &self,
        account: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<BatchPage, ApiError> {
        let after = match after {
            None => None,
            Some(id) => Some(self.get(account, id).await.map_err(|why| match why.code {
                ErrorCode::NotFound => {
                    ApiError::invalid("after", "after: expected the id of a batch of this account")
                }
                _ => why,
            })?),
        };
        let (store, account) = (self.store.clone(), account.to_owned());
        Ok(run_blocking(move || Ok(store.list(&account, after.as_deref(), limit, |_| true)?)).await?)
    }

    /// Cancels a batch. When the call succeeds, no line of the batch is in flight.
    ///
    /// # Errors
    /// Returns 404 if the account has no batch of this id, 409 if the batch has already ended in another state, and 503
    /// if it does not end in time or the store cannot be used.
    pub async fn cancel(&self, account: &str, id: &str) -> Result<Arc<BatchRecord>, ApiError> {
        let record = self.get(account, id).await?;
        let record = self.request_cancellation(record).await?.ok_or_else(batch_not_found)?;
        match record.state {
            BatchState::Cancelled => Ok(record),
            BatchState::Completed | BatchState::Failed => {
                let state = api_object::lifecycle_state(record.state).name();
                let message = format!("This batch has ended and cannot be cancelled: it is {state}.");
                Err(ApiError::with_message(ErrorCode::Conflict, message).with_details_member("status", state))
            }
            _ => Err(batches_not_writable()),
        }
    }

    /// Requests the end of a batch or a background response, and waits for the end. Returns the last record, which is
    /// not final if another gateway takes too long or this one is stopping; `None` if the record no longer exists.
    ///
    /// # Errors
    /// Returns a 503 if the batch runs in this process and does not end in time, or if the store cannot be used.
    pub(super) async fn request_cancellation(
        &self,
        record: Arc<BatchRecord>,
    ) -> Result<Option<Arc<BatchRecord>>, ApiError> {
        let id = record.id.clone();
        let mut last = Some(record);
        if last.as_ref().is_some_and(|record| !record.state.is_final()) {
            let (asker, ended) = oneshot::channel();
            match self.running.lock().get(&*id) {
                Some(running) => {
                    running.commands.send(BatchCommand::Cancel(asker)).ok();
                }
                // The batch does not run in this process. Dropping the sender ends the wait at once.
                None => drop(asker),
            }
            last = match timeout(END_TIMEOUT, ended).await {
                Ok(Ok(record)) => Some(record),
                // The batch has just ended, does not run yet, or the gateway is stopping.
                Ok(Err(_)) => self.find_record(&id).await?,
                Err(_) => return Err(batches_not_writable()),
            };
        }
        // Another gateway runs the batch, or has just taken it over.
        let is_open = last.as_ref().is_some_and(|record| !record.state.is_final());
        if is_open && self.fleet.has_fleet() {
            last = self.request_end(&id, EndRequest::Cancelled).await?.map(Arc::new);
        }
        Ok(last)
    }
}

fn log_creation(record: &BatchRecord) {
    tracing::info!(
        name: "batch_created",
        batch = &*record.id,
        key = &*record.key,
        endpoint = &*record.endpoint,
    );
}
