//! Files of all accounts for the operator: list, show, delete. Contents are not shown.

use super::openapi::{page_schema, response_schema, schema_ref};
use super::request::{AdminRequest, AdminResponse, PAGE_ROWS, store_error_response};
use super::routes::{AdminRoute, RouteHandler};
use crate::state::AppState;
use crate::storage::files::ExpiryCheck;
use crate::storage::stores::{Stores, run_blocking};
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::files::{FilePage, FileQuery, FileRecord, FileStore};
use penstock_storage::{StoreError, Transaction};
use serde_json::{Value, json};
use std::sync::Arc;

/// Query parameters of the request that lists files.
const LIST_QUERY_PARAMETERS: [&str; 4] = ["account", "purpose", "after", "limit"];

/// Members of a file in responses.
pub(super) const FILE_MEMBERS: [&str; 11] = [
    "id", "account", "key", "filename", "purpose", "bytes", "lines", "status", "created", "expires", "sha256",
];

/// Routes of files.
pub const ROUTES: &[AdminRoute] = &[
    AdminRoute::get(
        "/admin/files",
        "listFiles",
        "Lists the files of all accounts, the oldest first",
        RouteHandler::Store(list),
    )
    .with_query_parameters(&LIST_QUERY_PARAMETERS)
    .with_response(200, || page_schema(schema_ref("File"))),
    AdminRoute::get(
        "/admin/files/{id}",
        "getFile",
        "Shows a file, without its contents",
        RouteHandler::Store(get),
    )
    .with_response(200, || schema_ref("File")),
    AdminRoute::delete(
        "/admin/files/{id}",
        "deleteFile",
        "Deletes a file; a batch that reads it is cancelled first",
        RouteHandler::Runtime(|app, _, asked| Box::pin(delete(app, asked))),
    )
    .with_response(200, || response_schema(&["id", "deleted"])),
];

/// Returns a page of files in the order of their ids.
fn list(vault: &Stores, asked: &AdminRequest) -> Result<AdminResponse, ApiError> {
    let limit = asked.page_limit(&LIST_QUERY_PARAMETERS)?;
    let (account, purpose) = (
        asked.query_parameter("account", &LIST_QUERY_PARAMETERS)?,
        asked.query_parameter("purpose", &LIST_QUERY_PARAMETERS)?,
    );
    let (store, after) =
        (FileStore::new(vault.store.clone()), asked.query_parameter("after", &LIST_QUERY_PARAMETERS)?);
    let is_wanted = |record: &FileRecord| purpose.is_none_or(|purpose| record.purpose.name() == purpose);
    let page = match account {
        None => store.list_wanted(after, limit, is_wanted),
        Some(account) => files_of_account(vault, &store, account, (after, limit), is_wanted),
    };
    let page = page.map_err(store_error_response)?;
    let data: Vec<Value> = page.files.iter().map(|record| file_json(record, asked)).collect();
    Ok(AdminResponse::ok(json!({ "data": data, "has_more": page.next.is_some(), "next": page.next })))
}

/// Returns a page of the files of an account. Files are indexed by key, so the pages of all keys of the account are
/// merged.
fn files_of_account(
    vault: &Stores,
    store: &FileStore,
    account: &str,
    (after, limit): (Option<&str>, usize),
    is_wanted: impl Fn(&FileRecord) -> bool,
) -> Result<FilePage, StoreError> {
    let (mut files, mut more, mut after_key) = (Vec::<FileRecord>::new(), false, None::<String>);
    loop {
        let keys = vault.keys.list(Some(account), after_key.as_deref(), PAGE_ROWS)?;
        for key in &keys.keys {
            let query = FileQuery { key: &key.id, purpose: None, after, ascending: true, limit };
            let page = store.list(&query, &is_wanted)?;
            files.extend(page.files);
            // Only the files of two pages are in memory at a time.
            files.sort_unstable_by(|one, other| one.id.cmp(&other.id));
            more |= page.next.is_some() || files.len() > limit;
            files.truncate(limit);
        }
        match keys.next {
            Some(next) => after_key = Some(next),
            None => {
                let next = files.last().filter(|_| more).map(|file| file.id.clone());
                return Ok(FilePage { files, next });
            }
        }
    }
}

fn get(vault: &Stores, asked: &AdminRequest) -> Result<AdminResponse, ApiError> {
    let record = FileStore::new(vault.store.clone()).get(&asked.id).map_err(store_error_response)?;
    Ok(AdminResponse::ok(file_json(&record.ok_or_else(file_not_found)?, asked)))
}

async fn delete(app: &Arc<AppState>, asked: &AdminRequest) -> Result<Value, ApiError> {
    let (store, id) = (app.stores.store.clone(), asked.id.clone());
    let record = run_blocking(move || FileStore::new(store).get(&id)).await;
    let record =
        record.map_err(|why| ApiError::with_message(ErrorCode::Internal, why))?.ok_or_else(file_not_found)?;
    app.files.delete(&record.key, &record.id, app.expiry_check()).await?;
    let entry = asked.audit_entry("file.delete", &record.id, json!({ "account": record.account }));
    let audit = app.stores.audit.clone();
    run_blocking(move || audit.apply(&Transaction::new(), &entry))
        .await
        .map_err(|why| ApiError::with_message(ErrorCode::Internal, why))?;
    Ok(json!({ "id": record.id, "deleted": true }))
}

fn file_not_found() -> ApiError {
    ApiError::with_message(ErrorCode::NotFound, "There is no file with this id.")
}

/// Returns a file as the admin API shows it. Times are Unix seconds.
fn file_json(record: &FileRecord, asked: &AdminRequest) -> Value {
    let expiry = ExpiryCheck { now: asked.now, retention: asked.file_retention };
    json!({
        "id": record.id,
        "account": record.account,
        "key": record.key,
        "filename": record.filename,
        "purpose": record.purpose.name(),
        "bytes": record.bytes,
        "lines": record.lines,
        "status": record.status.name(),
        "created": record.created_at,
        "expires": expiry.expires_at(record),
        "sha256": record.sha256,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use penstock_storage::files::{FilePurpose, FileStatus};

    #[test]
    fn a_file_has_the_members_that_the_document_names_and_the_end_of_its_retention() {
        let mut record = FileRecord {
            id: "file-1".to_owned(),
            key: "k".to_owned(),
            account: "a".to_owned(),
            filename: "in.jsonl".to_owned(),
            purpose: FilePurpose::Batch,
            bytes: 1,
            sha256: None,
            sums: None,
            created_at: 1,
            finished_at: None,
            expires_at: None,
            status: FileStatus::Processed,
            status_details: None,
            lines: 1,
            url: None,
        };
        let mut request = AdminRequest { now: 5, ..AdminRequest::default() };
        let object = file_json(&record, &request);
        assert_eq!(object.get("expires"), Some(&Value::Null));
        request.file_retention = Some(100);
        assert_eq!(file_json(&record, &request).get("expires"), Some(&json!(101)));
        record.finished_at = Some(11);
        assert_eq!(file_json(&record, &request).get("expires"), Some(&json!(111)));
        record.expires_at = Some(50);
        assert_eq!(file_json(&record, &request).get("expires"), Some(&json!(50)));
        let names: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(names, FILE_MEMBERS);
    }
}
