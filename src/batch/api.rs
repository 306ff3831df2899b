//! Requests about batches: to make one, to see one or all of them, to cancel one. Batches belong to the account, and each
//! of its keys sees all of them; their files belong to the key that made the batch.

use super::context::BatchContext;
use super::errors::{enough, no_file, none, refused, unkept};
use super::{Batches, DELETING, PATIENCE, PREFIX, Tell, api_object};
use crate::auth::key_cache::Grant;
use crate::storage::files::off_thread;
use crate::storage::object_id;
use crate::telemetry::log;
use penstock_batch::create_request::CreateBatchRequest;
use penstock_contract::{Code, Refusal};
use penstock_storage::batches::{BatchPage, BatchRecord, BatchState};
use penstock_storage::files::FileStore;
use penstock_storage::{StoreError, StoreHealth, StoreTable, Transaction};
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::time::timeout;

impl Batches {
    /// Makes a batch of an uploaded file.
    ///
    /// # Errors
    /// The file cannot be its input, the account has enough batches, the store takes nothing now.
    pub async fn create(
        house: &Arc<BatchContext>,
        grant: &Grant,
        asked: CreateBatchRequest,
    ) -> Result<Arc<BatchRecord>, Refusal> {
        let batches = &house.batches;
        batches.may_create(house)?;
        let now = house.clock.date();
        let record = BatchRecord {
            id: object_id::new(PREFIX, now),
            key: grant.public_id.to_string(),
            account: grant.account.id.to_string(),
            endpoint: asked.endpoint.to_owned(),
            input: asked.input_file_id,
            window: asked.completion_window,
            created_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            expires: now.as_secs().saturating_add(asked.window_seconds),
            metadata: asked.metadata,
            state: BatchState::Validating,
            ..BatchRecord::default()
        };
        // Known before it is kept: from here on a deletion of its input finds it, or is found.
        let most = house.live().settings.batches.open;
        let (told, seen) = batches.enter(&record, most).ok_or_else(|| enough(most))?;
        if batches.is_deleting(&record.input) {
            batches.gone(&record.id);
            return Err(no_file());
        }
        let (store, kept) = (batches.store.clone(), record.clone());
        let input =
            Transaction::new().require_present(StoreTable::Files, FileStore::record_key(&record.input));
        let inserted = tokio::task::spawn_blocking(move || store.insert(&kept, input)).await;
        if let Some(refusal) = refused(inserted.unwrap_or(Err(StoreError::Stuck))) {
            batches.gone(&record.id);
            return Err(refusal);
        }
        log::event(
            log::info(),
            "batch_created",
            &[("batch", &record.id), ("key", &record.key), ("endpoint", &record.endpoint)],
        );
        batches.run(house, record.clone(), told, seen);
        Ok(Arc::new(record))
    }

    fn may_create(&self, house: &BatchContext) -> Result<(), Refusal> {
        // A process that hands over keeps the batch for the next one.
        let shut = house.lifecycle.is_draining() && !house.lifecycle.is_handed_over();
        match self.engine.health() {
            StoreHealth::Full => Err(Refusal::new(Code::StorageFull)),
            StoreHealth::Ready if !shut && !house.ledger.failing() => Ok(()),
            _ => Err(unkept()),
        }
    }

    fn is_deleting(&self, file: &str) -> bool {
        self.deleting.lock().get(file).is_some_and(|since| since.elapsed() < DELETING)
    }

    /// A batch of this account.
    ///
    /// # Errors
    /// 404 if the account has none of this id, even if another has.
    pub async fn get(&self, account: &str, id: &str) -> Result<Arc<BatchRecord>, Refusal> {
        let seen = self.running.lock().get(id).map(|running| running.seen.borrow().clone());
        let record = match seen {
            Some(record) => Some(record),
            None if !object_id::is(PREFIX, id) => None,
            None => {
                let (store, id) = (self.store.clone(), id.to_owned());
                off_thread(move || Ok(store.get(&id)?)).await?.map(Arc::new)
            }
        };
        record.filter(|record| record.account == account).ok_or_else(none)
    }

    /// Batches of an account, the newest first, behind the one of the id `after`.
    ///
    /// # Errors
    /// `after` names no batch of this account.
    pub async fn list(&self, account: &str, after: Option<&str>, limit: usize) -> Result<BatchPage, Refusal> {
        let after = match after {
            None => None,
            Some(id) => Some(self.get(account, id).await.map_err(|why| match why.code {
                Code::NotFound => {
                    Refusal::invalid("after", "after: expected the id of a batch of this account")
                }
                _ => why,
            })?),
        };
        let (store, account) = (self.store.clone(), account.to_owned());
        Ok(off_thread(move || Ok(store.list(&account, after.as_deref(), limit)?)).await?)
    }

    /// Calls a batch off. When it returns, nothing of it is at work.
    ///
    /// # Errors
    /// 404 if the account has none of this id, 409 if it has ended otherwise.
    pub async fn cancel(&self, account: &str, id: &str) -> Result<Arc<BatchRecord>, Refusal> {
        let mut record = self.get(account, id).await?;
        if !record.state.is_final() {
            let (asker, ended) = oneshot::channel();
            match self.running.lock().get(id) {
                Some(running) => {
                    running.tell.send(Tell::Cancel(asker)).ok();
                }
                // Nobody is there to answer.
                None => drop(asker),
            }
            record = match timeout(PATIENCE, ended).await {
                Ok(Ok(record)) => record,
                // It ended at this very moment, is not at work yet, or the house stops.
                Ok(Err(_)) => self.get(account, id).await?,
                Err(_) => return Err(unkept()),
            };
        }
        match record.state {
            BatchState::Cancelled => Ok(record),
            BatchState::Completed | BatchState::Failed => {
                let state = api_object::state(record.state).name();
                let message = format!("This batch has ended and cannot be cancelled: it is {state}.");
                Err(Refusal::because(Code::Conflict, message).with("status", state))
            }
            _ => Err(unkept()),
        }
    }
}
