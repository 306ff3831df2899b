//! Admin requests for the audit log.

use super::api::run_blocking;
use super::openapi::{page_schema, response_schema};
use super::request::{AdminRequest, AdminResponse, store_error_response};
use super::routes::{AdminRoute, RouteHandler};
use crate::storage::stores::OpenStorage;
use penstock_core::ApiError;
use penstock_storage::Transaction;
use penstock_storage::audit::{AuditEntry, ChangeDescription};
use serde_json::{Value, json};

/// Query parameters of the request that lists the audit log.
pub const LIST_QUERY_PARAMETERS: [&str; 3] = ["after", "limit", "target"];

/// Routes of the audit log.
pub const ROUTES: &[AdminRoute] = &[
    AdminRoute::get(
        "/admin/audit",
        "listAudit",
        "Lists changes with author and time, the oldest first",
        RouteHandler::Store(list),
    )
    .with_query_parameters(&LIST_QUERY_PARAMETERS)
    .with_response(200, || {
        page_schema(response_schema(&["number", "at", "who", "what", "target", "change"]))
    }),
    AdminRoute::get(
        "/admin/audit/verify",
        "verifyAudit",
        "Verifies the hash chain of the audit log",
        RouteHandler::Store(|stores, _| verify(stores)),
    )
    .with_response(200, || response_schema(&["good", "entries", "first_bad"])),
];

fn list(stores: &OpenStorage, asked: &AdminRequest) -> Result<AdminResponse, ApiError> {
    let limit = asked.page_limit(&LIST_QUERY_PARAMETERS)?;
    let target = asked.query_parameter("target", &LIST_QUERY_PARAMETERS)?;
    let after: u64 = match asked.query_parameter("after", &LIST_QUERY_PARAMETERS)? {
        None => 0,
        Some(text) => {
            text.parse().map_err(|_| ApiError::invalid("after", "after has to be the number of an entry."))?
        }
    };
    let page = match target {
        None => stores.audit.list(after, limit),
        Some(target) => stores.audit.list_filtered(after, limit, |entry| entry.description.target == target),
    };
    let page = page.map_err(store_error_response)?;
    let data: Vec<Value> = page.entries.iter().map(entry_json).collect();
    Ok(AdminResponse::ok(json!({ "data": data, "has_more": page.next.is_some(), "next": page.next })))
}

/// Writes the audit entry of a change that cannot be made in one transaction with the entry. The entry is written
/// before the change, so no change is missing in the log even after a crash in between.
///
/// # Errors
/// Returns the error of the store; the change must not be made then.
pub(super) async fn write_entry_first(
    stores: &OpenStorage,
    entry: ChangeDescription,
) -> Result<(), ApiError> {
    let audit = stores.audit.clone();
    run_blocking(move || audit.apply_with_entry(&Transaction::new(), &entry).map_err(store_error_response))
        .await
}

fn verify(stores: &OpenStorage) -> Result<AdminResponse, ApiError> {
    let first_bad = stores.audit.verify().map_err(store_error_response)?;
    let entries = stores.audit.last_entry_number().map_err(store_error_response)?;
    Ok(AdminResponse::ok(json!({ "good": first_bad.is_none(), "entries": entries, "first_bad": first_bad })))
}

fn entry_json(entry: &AuditEntry) -> Value {
    let description = &entry.description;
    json!({
        "number": entry.number,
        "at": description.at,
        "who": description.who,
        "what": description.what,
        "target": description.target,
        "change": description.change,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::config::settings::StorageSettings;

    fn page(stores: &OpenStorage, limit: usize, target: &str, after: &Value) -> Value {
        let after = after.as_u64().unwrap_or(0);
        let query =
            [("limit", limit.to_string()), ("target", target.to_owned()), ("after", after.to_string())];
        let query = query.map(|(name, value)| (name.to_owned(), value)).to_vec();
        list(stores, &AdminRequest { query, ..AdminRequest::default() }).unwrap().answer
    }

    #[test]
    fn pages_of_a_target_have_at_most_the_limit_and_miss_no_entry() {
        let folder = tempfile::tempdir().unwrap();
        let stores = OpenStorage::open(&StorageSettings::embedded(folder.path())).unwrap();
        let asked = AdminRequest { actor: "test".to_owned(), ..AdminRequest::default() };
        for number in 0..330 {
            // Three pairs of adjacent entries have the wanted target; each pair is followed by 108 entries of another
            // target.
            let target = if number % 110 == 0 || number % 110 == 1 { "wanted" } else { "other" };
            let entry = asked.audit_entry("something", target, json!({ "n": number }));
            stores.audit.apply_with_entry(&Transaction::new(), &entry).unwrap();
        }
        for limit in [1, 2, 4, 5, 6, 1_000] {
            let (mut found, mut after, mut requests) = (Vec::new(), Value::Null, 0);
            loop {
                let answer = page(&stores, limit, "wanted", &after);
                let data = answer["data"].as_array().unwrap();
                assert!(data.len() <= limit, "{} of {limit}", data.len());
                found.extend(data.iter().map(|entry| entry["change"]["n"].as_u64().unwrap()));
                requests += 1;
                after = answer["next"].clone();
                if after.is_null() {
                    break;
                }
            }
            assert_eq!(found, [0, 1, 110, 111, 220, 221], "{limit}");
            assert!(requests <= 6 / limit + 1, "{requests} requests of {limit}");
        }
        let whole = page(&stores, 1_000, "nothing", &Value::Null);
        assert_eq!((&whole["data"], &whole["has_more"]), (&json!([]), &json!(false)));
    }
}
