//! Files of all accounts for the operator: list, show, delete. Contents are not shown.

use super::api::run_blocking;
use super::audit::write_entry_first;
use super::openapi::{page_schema, response_schema, schema_ref};
use super::request::{AdminRequest, AdminResponse, MAX_PAGE_ROWS, store_error_response};
use super::routes::{AdminRoute, RouteHandler};
use crate::state::AppState;
use crate::storage::files::FileExpiryContext;
use crate::storage::stores::OpenStorage;
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::StoreError;
use penstock_storage::files::{FilePage, FilePurpose, FileQuery, FileRecord, FileStore};
use serde_json::{Value, json};
use std::sync::Arc;

/// Query parameters of the request that lists files.
const LIST_QUERY_PARAMETERS: [&str; 5] = ["account", "purpose", "order", "after", "limit"];
/// Orders of a list: the oldest or the newest files first.
const ORDERS: [&str; 2] = ["asc", "desc"];

/// Members of a file in responses.
pub(super) const FILE_MEMBERS: [&str; 11] = [
    "id", "account", "key", "filename", "purpose", "bytes", "lines", "status", "created", "expires", "sha256",
];

/// Routes of files.
pub const ROUTES: &[AdminRoute] = &[
    AdminRoute::get(
        "/admin/files",
        "listFiles",
        "Lists the files of all accounts, the oldest first; with `order` as `desc`, the newest first",
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
        "Deletes a file; an unfinished batch that reads it ends as failed first",
        RouteHandler::Runtime(|app, _, asked| Box::pin(delete(app, asked))),
    )
    .with_response(200, || response_schema(&["id", "deleted"])),
];

/// Returns a page of files in ascending or descending order of their ids.
fn list(stores: &OpenStorage, asked: &AdminRequest) -> Result<AdminResponse, ApiError> {
    let limit = asked.page_limit(&LIST_QUERY_PARAMETERS)?;
    let (account, purpose) = (
        asked.query_parameter("account", &LIST_QUERY_PARAMETERS)?,
        asked.query_choice("purpose", &LIST_QUERY_PARAMETERS, &FilePurpose::ALL.map(FilePurpose::name))?,
    );
    let (store, after) =
        (FileStore::new(stores.store.clone()), asked.query_parameter("after", &LIST_QUERY_PARAMETERS)?);
    let ascending = asked.query_choice("order", &LIST_QUERY_PARAMETERS, &ORDERS)? != Some("desc");
    let purpose =
        purpose.and_then(|name| FilePurpose::ALL.into_iter().find(|purpose| purpose.name() == name));
    let page = match account {
        None => store.list_filtered(after, limit, ascending, |record| {
            purpose.is_none_or(|purpose| record.purpose == purpose)
        }),
        Some(account) => files_of_account(stores, &store, account, (after, limit, ascending), purpose),
    };
    let page = page.map_err(store_error_response)?;
    let data: Vec<Value> = page.files.iter().map(|record| file_json(record, asked)).collect();
    Ok(AdminResponse::ok(json!({ "data": data, "has_more": page.next.is_some(), "next": page.next })))
}

/// Returns a page of the files of an account. Files are indexed by key and purpose, so the ids of all keys of the
/// account are merged, and the records of one page are read.
fn files_of_account(
    stores: &OpenStorage,
    store: &FileStore,
    account: &str,
    (after, limit, ascending): (Option<&str>, usize, bool),
    purpose: Option<FilePurpose>,
) -> Result<FilePage, StoreError> {
    let (mut ids, mut has_more, mut after_key) = (Vec::new(), false, None::<String>);
    loop {
        let keys = stores.keys.list(Some(account), after_key.as_deref(), MAX_PAGE_ROWS)?;
        for key in &keys.keys {
            let query = FileQuery { key: &key.id, purpose, after, ascending, limit };
            let (ids_of_key, more) = store.list_ids(&query)?;
            ids.extend(ids_of_key);
            // The list is cut to one page after each key, so at most the ids of two pages are in memory.
            ids.sort_unstable();
            if !ascending {
                ids.reverse();
            }
            has_more |= more || ids.len() > limit;
            ids.truncate(limit);
        }
        match keys.next {
            Some(next) => after_key = Some(next),
            None => break,
        }
    }
    // A file that was deleted after its id was read is skipped.
    let files = store.get_many(&ids)?.into_iter().flatten().collect();
    Ok(FilePage { files, next: ids.pop().filter(|_| has_more) })
}

fn get(stores: &OpenStorage, asked: &AdminRequest) -> Result<AdminResponse, ApiError> {
    let record = FileStore::new(stores.store.clone()).get(&asked.id).map_err(store_error_response)?;
    Ok(AdminResponse::ok(file_json(&record.ok_or_else(file_not_found)?, asked)))
}

async fn delete(app: &Arc<AppState>, asked: &AdminRequest) -> Result<Value, ApiError> {
    let (store, id) = (app.stores.store.clone(), asked.id.clone());
    let record = run_blocking(move || FileStore::new(store).get(&id).map_err(store_error_response)).await?;
    let record = record.ok_or_else(file_not_found)?;
    // An expired file counts as not found.
    let record = app.files.get(&record.key, &record.id, app.file_expiry_context()).await?;
    let entry = asked.audit_entry("file.delete", &record.id, json!({ "account": record.account }));
    write_entry_first(&app.stores, entry).await?;
    app.files.delete(&record.key, &record.id, app.file_expiry_context()).await?;
    Ok(json!({ "id": record.id, "deleted": true }))
}

fn file_not_found() -> ApiError {
    ApiError::with_message(ErrorCode::NotFound, "There is no file with this id.")
}

/// Returns a file as the admin API shows it. Times are Unix seconds.
fn file_json(record: &FileRecord, asked: &AdminRequest) -> Value {
    let expiry = FileExpiryContext { now: asked.now, retention: asked.file_retention };
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
    use crate::config::settings::StorageSettings;
    use penstock_auth::ApiKey;
    use penstock_storage::files::FileStatus;
    use penstock_storage::keys::{KeyDigest, KeyRecord};
    use penstock_storage::{StoreTable, Transaction};

    fn file(id: &str, key: &str) -> FileRecord {
        FileRecord {
            id: id.to_owned(),
            key: key.to_owned(),
            account: "a".to_owned(),
            filename: "in.jsonl".to_owned(),
            purpose: FilePurpose::Batch,
            bytes: 1,
            sha256: None,
            table_checksum: None,
            created_at: 1,
            finished_at: None,
            expires_at: None,
            status: FileStatus::Processed,
            status_details: None,
            lines: 1,
            url: None,
        }
    }

    fn add_key(stores: &OpenStorage) -> String {
        let key = ApiKey::generate(&mut |bytes| rand::fill(bytes));
        let record = KeyRecord::new(
            key.public_id(),
            KeyDigest(penstock_auth::key_digest(&stores.pepper.0, &key)),
            "a",
            1,
        );
        let entry = AdminRequest::default().audit_entry("key.create", &record.id, json!({}));
        stores.keys.insert(&record, &entry).unwrap();
        record.id
    }

    #[test]
    fn pages_of_an_account_merge_the_files_of_its_keys_and_repeat_or_miss_none() {
        let folder = tempfile::tempdir().unwrap();
        let stores = OpenStorage::open(&StorageSettings::embedded(folder.path())).unwrap();
        let store = FileStore::new(stores.store.clone());
        let keys: Vec<String> = (0..3).map(|_| add_key(&stores)).collect();
        let ids: Vec<String> = (10..40).map(|number| format!("file-{number}")).collect();
        for (id, key) in ids.iter().zip(keys.iter().cycle()) {
            stores.store.apply(FileStore::insert_operations(&file(id, key)).unwrap()).unwrap();
        }
        let newest_first: Vec<String> = ids.iter().rev().cloned().collect();
        for (limit, ascending) in
            [1, 4, 10, 29, 30, 31, 1_000].into_iter().flat_map(|one| [(one, true), (one, false)])
        {
            let (mut found, mut after) = (Vec::<String>::new(), None);
            loop {
                let from = (after.as_deref(), limit, ascending);
                let page = files_of_account(&stores, &store, "a", from, None).unwrap();
                assert!(page.files.len() <= limit);
                found.extend(page.files.into_iter().map(|record| record.id));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(found, if ascending { &*ids } else { &*newest_first }, "{limit}");
        }
        let page = files_of_account(&stores, &store, "b", (None, 10, true), None).unwrap();
        assert!(page.files.is_empty() && page.next.is_none());
        let damaged = FileStore::record_key("file-11");
        stores.store.apply(Transaction::new().put(StoreTable::Files, damaged, b"?".to_vec())).unwrap();
        let list = |query: &[(&str, &str)]| {
            let query = query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            list(&stores, &AdminRequest { query: query.collect(), ..AdminRequest::default() })
        };
        // Checks that the records of other pages and purposes are not read: they cannot be decoded.
        let page = list(&[("account", "a"), ("limit", "1")]).unwrap();
        assert_eq!(page.answer.get("next"), Some(&json!("file-10")));
        assert!(list(&[("account", "a"), ("limit", "2")]).is_err());
        let page = list(&[("account", "a"), ("purpose", "batch_output")]).unwrap();
        assert_eq!(page.answer, json!({ "data": [], "has_more": false, "next": null }));
        assert!(list(&[("account", "a"), ("purpose", "unknown")]).is_err());
    }

    #[test]
    fn a_file_has_the_members_that_the_document_names_and_the_end_of_its_retention() {
        let mut record = file("file-1", "k");
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
