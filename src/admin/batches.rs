//! Batches of all accounts for the operator: list, show, cancel.

use super::api::run_blocking;
use super::audit::write_entry_first;
use super::openapi::{page_schema, schema_ref};
use super::request::{AdminRequest, AdminResponse, store_error_response};
use super::routes::{AdminRoute, RouteHandler};
use crate::batch::api_object;
use crate::state::AppState;
use crate::storage::stores::OpenStorage;
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::batches::{BatchRecord, BatchStore};
use serde_json::{Value, json};
use std::sync::Arc;

/// Query parameters of the request that lists batches.
const LIST_QUERY_PARAMETERS: [&str; 4] = ["account", "state", "after", "limit"];

/// Names of the states of a batch.
pub(super) const STATES: [&str; 5] = ["validating", "in_progress", "completed", "failed", "cancelled"];

/// Members of a batch in responses.
pub(super) const BATCH_MEMBERS: [&str; 18] = [
    "id",
    "account",
    "key",
    "endpoint",
    "model",
    "status",
    "request_counts",
    "created",
    "scheduled",
    "started",
    "ended",
    "window_ends",
    "input_file_id",
    "output_file_id",
    "output_bytes",
    "usage",
    "errors",
    "metadata",
];

/// Routes of batches.
pub const ROUTES: &[AdminRoute] = &[
    AdminRoute::get(
        "/admin/batches",
        "listBatches",
        "Lists the batches of all accounts, the newest first",
        RouteHandler::Store(list),
    )
    .with_query_parameters(&LIST_QUERY_PARAMETERS)
    .with_response(200, || page_schema(schema_ref("Batch"))),
    AdminRoute::get("/admin/batches/{id}", "getBatch", "Shows a batch", RouteHandler::Store(get))
        .with_response(200, || schema_ref("Batch")),
    AdminRoute::post(
        "/admin/batches/{id}/cancel",
        "cancelBatch",
        "Cancels a batch; its finished results stay readable",
        RouteHandler::Runtime(|app, _, asked| Box::pin(cancel(app, asked))),
    )
    .with_response(200, || schema_ref("Batch")),
];

/// Returns a page of batches of all accounts or of one, the newest first.
fn list(stores: &OpenStorage, asked: &AdminRequest) -> Result<AdminResponse, ApiError> {
    let limit = asked.page_limit(&LIST_QUERY_PARAMETERS)?;
    let (account, state) = (
        asked.query_parameter("account", &LIST_QUERY_PARAMETERS)?,
        asked.query_choice("state", &LIST_QUERY_PARAMETERS, &STATES)?,
    );
    let (store, after) =
        (BatchStore::new(stores.store.clone()), asked.query_parameter("after", &LIST_QUERY_PARAMETERS)?);
    let is_wanted = |record: &BatchRecord| {
        state.is_none_or(|state| api_object::lifecycle_state(record.state).name() == state)
    };
    let page = match account {
        None => store.list_all(after, limit, is_wanted),
        Some(account) => {
            let after = after.map(|id| batch_of_account(&store, account, id)).transpose()?;
            store.list(account, after.as_ref(), limit, is_wanted)
        }
    };
    let page = page.map_err(store_error_response)?;
    let data: Vec<Value> = page.batches.iter().map(batch_json).collect();
    Ok(AdminResponse::ok(json!({ "data": data, "has_more": page.next.is_some(), "next": page.next })))
}

/// Returns the batch after which a page of an account's batches starts; checks that it belongs to the account.
fn batch_of_account(store: &BatchStore, account: &str, id: &str) -> Result<BatchRecord, ApiError> {
    let record = store.get(id).map_err(store_error_response)?.filter(|record| record.account == account);
    record.ok_or_else(|| ApiError::invalid("after", "after has to be the id of a batch of the account."))
}

fn get(stores: &OpenStorage, asked: &AdminRequest) -> Result<AdminResponse, ApiError> {
    let record = BatchStore::new(stores.store.clone()).get(&asked.id).map_err(store_error_response)?;
    Ok(AdminResponse::ok(batch_json(&record.ok_or_else(batch_not_found)?)))
}

async fn cancel(app: &Arc<AppState>, asked: &AdminRequest) -> Result<Value, ApiError> {
    let (store, id) = (app.stores.store.clone(), asked.id.clone());
    let record = run_blocking(move || BatchStore::new(store).get(&id).map_err(store_error_response)).await?;
    let record = record.ok_or_else(batch_not_found)?;
    if !record.state.is_final() {
        let entry = asked.audit_entry("batch.cancel", &record.id, json!({ "account": record.account }));
        write_entry_first(&app.stores, entry).await?;
    }
    let record = app.batches.cancel(&record.account, &record.id).await?;
    Ok(batch_json(&record))
}

fn batch_not_found() -> ApiError {
    ApiError::with_message(ErrorCode::NotFound, "There is no batch with this id.")
}

/// Returns a batch as the admin API shows it. Times are Unix seconds.
fn batch_json(record: &BatchRecord) -> Value {
    let public = api_object::batch_object(record);
    let member = |name: &str| public.get(name).cloned().unwrap_or_default();
    json!({
        "id": record.id,
        "account": record.account,
        "key": record.key,
        "endpoint": record.endpoint,
        "model": record.model,
        "status": member("status"),
        "request_counts": member("request_counts"),
        "created": record.created_ms / 1_000,
        "scheduled": record.scheduled,
        "started": record.in_progress,
        "ended": record.completed.or(record.failed).or(record.cancelled),
        "window_ends": record.expires,
        "input_file_id": record.input,
        "output_file_id": record.output,
        "output_bytes": record.output_bytes,
        "usage": member("usage"),
        "errors": member("errors"),
        "metadata": member("metadata"),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_batch_has_the_members_that_the_document_names() {
        let object = batch_json(&BatchRecord::default());
        let names: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(names, BATCH_MEMBERS);
    }
}
