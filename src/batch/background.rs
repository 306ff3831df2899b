//! Background responses: requests of `/v1/responses` that are processed after the client got its first response. Each
//! is a batch of one request: it has the record, the claim and the charge of a batch, but its request and answer are
//! stored with the stored responses.
//!
//! ```text
//! POST ─▶ queued ─▶ in_progress ─▶ completed | incomplete | failed | cancelled
//!           │            └─ as a request of the key, once more after a crash
//!           └─ document, then record          document with the answer, then one commit: charge and end of the record
//! ```

use super::context::BatchContext;
use super::errors::{response_not_writable, too_many_responses};
use super::runner::RunnableBatch;
use super::{BatchManager, HeldClaim, TakeoverKind};
use crate::auth::key_cache::Principal;
use crate::storage::responses::RESPONSE_ID_PREFIX;
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::batches::{
    BackgroundRun, BatchClaim, BatchInsertOutcome, BatchRecord, BatchState, claim_for_insert,
};
use penstock_storage::{StoreError, Transaction};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Path whose requests may run in the background.
const RESPONSES_PATH: &str = "/v1/responses";
/// Maximum length of the id of a response, in bytes.
const MAX_ID_BYTES: usize = 64;

/// Receiver of the last committed record of a background response that this process runs.
pub type ResponseWatcher = watch::Receiver<Arc<BatchRecord>>;

/// Background response to create.
pub struct NewBackgroundResponse {
    /// Id, with its prefix.
    pub id: String,
    /// Document with the request and the queued response.
    pub document: Vec<u8>,
    /// Creation time since the Unix epoch.
    pub created: Duration,
}

impl BatchManager {
    /// Stores a background response, and starts to run it.
    ///
    /// # Errors
    /// Returns a refusal if the account has too many unfinished background responses, the disk is full, or the store is
    /// not writable.
    pub async fn create_response(
        context: &Arc<BatchContext>,
        principal: &Principal,
        new: NewBackgroundResponse,
    ) -> Result<(), ApiError> {
        let batches = &context.batches;
        batches.check_writable(context).map_err(|refusal| match refusal.code {
            ErrorCode::Unavailable => response_not_writable(),
            _ => refusal,
        })?;
        let settings = context.config_snapshot().settings.responses.background;
        let record = BatchRecord {
            id: new.id,
            key: principal.public_id.to_string(),
            account: principal.account.id.to_string(),
            endpoint: RESPONSES_PATH.to_owned(),
            created_ms: u64::try_from(new.created.as_millis()).unwrap_or(u64::MAX),
            expires: new.created.saturating_add(settings.window).as_secs(),
            state: BatchState::Validating,
            background: Some(BackgroundRun::default()),
            ..BatchRecord::default()
        };
        let (claim, guards) = batches.claim_of_creator(&record.id);
        let registered = batches.register(&record, settings.open, claim);
        let (commands, publisher) = registered.ok_or_else(|| too_many_responses(settings.open))?;
        let own = (context.clone(), record.clone());
        let insert = move || insert_response(&own.0, &own.1, &new.document, guards);
        let inserted = tokio::task::spawn_blocking(insert).await;
        if let Err(refusal) = inserted.unwrap_or_else(|_| Err(response_not_writable())) {
            batches.unregister(&record.id);
            return Err(refusal);
        }
        tracing::info!(name: "background_response_created", id = &*record.id, key = &*record.key);
        let claim = claim.map(|claim| HeldClaim { claim, takeover: TakeoverKind::Orderly });
        batches.spawn_batch(context, RunnableBatch { record, claim }, commands, publisher);
        Ok(())
    }

    /// Returns the claim with which this member of a fleet creates a response, and the operations that write the claim;
    /// nothing without a fleet. The gateway that has the document on its disk runs the response.
    fn claim_of_creator(&self, id: &str) -> (Option<BatchClaim>, Transaction) {
        if !self.fleet.has_fleet() {
            return (None, Transaction::new());
        }
        let (claim, guards) =
            claim_for_insert(id, self.fleet.member_number(), self.fleet.commit_fence().as_ref());
        (Some(claim), guards)
    }

    /// Returns the record of a background response of this key that has not ended; `None` if there is none.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub async fn find_unfinished_response(
        &self,
        key: &str,
        id: &str,
    ) -> Result<Option<Arc<BatchRecord>>, ApiError> {
        if !id.starts_with(RESPONSE_ID_PREFIX) || id.len() > MAX_ID_BYTES {
            return Ok(None);
        }
        let is_unfinished = |record: &Arc<BatchRecord>| {
            record.background.is_some() && record.key == key && !record.state.is_final()
        };
        Ok(self.find_record(id).await?.filter(is_unfinished))
    }

    /// Returns the receiver of the changes of a response; `None` if this process does not run it.
    pub fn watch_background_response(&self, id: &str) -> Option<ResponseWatcher> {
        self.running.lock().get(id).map(|running| running.published.clone())
    }

    /// Cancels a background response of this key, unless it has ended. When the call succeeds, no provider is called
    /// for the response any more.
    ///
    /// # Errors
    /// Returns a 503 if the response did not end in time, or if the store cannot be read.
    pub async fn cancel_background_response(&self, key: &str, id: &str) -> Result<(), ApiError> {
        let Some(record) = self.find_unfinished_response(key, id).await? else { return Ok(()) };
        let last = self.request_cancellation(record).await?;
        match last {
            Some(record) if !record.state.is_final() => Err(response_not_writable()),
            _ => Ok(()),
        }
    }
}

/// Stores the document of a response and then its record. Blocks.
fn insert_response(
    context: &BatchContext,
    record: &BatchRecord,
    document: &[u8],
    guards: Transaction,
) -> Result<(), ApiError> {
    // The retention of an unfinished response counts from the end of its completion window (`expires`), so that it is
    // not deleted while it runs. When it ends, the retention counts from that time instead.
    let (name, retained_since) = ((&*record.key, &*record.id), record.expires);
    let written =
        context.responses.insert_unfinished(name, retained_since, document, context.stored_response_limits());
    written.map_err(|error| match error.kind() {
        ErrorKind::StorageFull => ApiError::new(ErrorCode::StorageFull),
        _ => response_not_writable(),
    })?;
    let store = &context.batches.store;
    let most = context.config_snapshot().settings.responses.background.open;
    let inserted = match context.batches.fleet.has_fleet() {
        true => store.insert_within_limit(record, &guards, most),
        false => store.insert(record, guards).map(|()| BatchInsertOutcome::Inserted),
    };
    let refusal = match inserted {
        Ok(BatchInsertOutcome::Inserted) => return Ok(()),
        Ok(BatchInsertOutcome::TooManyOpen) => too_many_responses(most),
        Err(StoreError::Full) => ApiError::new(ErrorCode::StorageFull),
        Ok(BatchInsertOutcome::Refused) | Err(_) => response_not_writable(),
    };
    context.responses.delete(&record.key, &record.id).ok();
    Err(refusal)
}
