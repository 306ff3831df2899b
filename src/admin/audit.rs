//! Admin requests for the audit log.

use super::openapi::{page_schema, response_schema};
use super::request::{AdminRequest, AdminResponse, store_error_response};
use super::routes::{AdminRoute, RouteHandler};
use crate::storage::stores::Stores;
use penstock_core::ApiError;
use penstock_storage::audit::AuditEntry;
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
        RouteHandler::Store(|vault, _| verify(vault)),
    )
    .with_response(200, || response_schema(&["good", "entries", "first_bad"])),
];

fn list(vault: &Stores, asked: &AdminRequest) -> Result<AdminResponse, ApiError> {
    let limit = asked.page_limit(&LIST_QUERY_PARAMETERS)?;
    let target = asked.query_parameter("target", &LIST_QUERY_PARAMETERS)?;
    let after: u64 = match asked.query_parameter("after", &LIST_QUERY_PARAMETERS)? {
        None => 0,
        Some(text) => {
            text.parse().map_err(|_| ApiError::invalid("after", "after has to be the number of an entry."))?
        }
    };
    let page = match target {
        None => vault.audit.list(after, limit),
        Some(target) => vault.audit.list_wanted(after, limit, |entry| entry.description.target == target),
    };
    let page = page.map_err(store_error_response)?;
    let data: Vec<Value> = page.entries.iter().map(entry_json).collect();
    Ok(AdminResponse::ok(json!({ "data": data, "has_more": page.next.is_some(), "next": page.next })))
}

fn verify(vault: &Stores) -> Result<AdminResponse, ApiError> {
    let first_bad = vault.audit.verify().map_err(store_error_response)?;
    let entries = vault.audit.last_number().map_err(store_error_response)?;
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
