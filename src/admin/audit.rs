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
/// Maximum number of pages that one request searches for the entries of a target.
const MAX_SEARCHED_PAGES: usize = 100;

/// Routes of the audit log.
pub const ROUTES: &[AdminRoute] = &[
    AdminRoute::get(
        "/admin/audit",
        "listAudit",
        "Lists changes with author and time",
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
    let mut after: u64 = match asked.query_parameter("after", &LIST_QUERY_PARAMETERS)? {
        None => 0,
        Some(text) => {
            text.parse().map_err(|_| ApiError::invalid("after", "after has to be the number of an entry."))?
        }
    };
    let mut data: Vec<Value> = Vec::new();
    let mut next = None;
    for _ in 0..MAX_SEARCHED_PAGES {
        let page = vault.audit.list(after, limit).map_err(store_error_response)?;
        let ours = page
            .entries
            .iter()
            .filter(|entry| target.is_none_or(|target| entry.description.target == target));
        data.extend(ours.map(entry_json));
        next = page.next;
        match next {
            Some(last) if target.is_some() && data.len() < limit => after = last,
            _ => break,
        }
    }
    Ok(AdminResponse::ok(json!({ "data": data, "has_more": next.is_some(), "next": next })))
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
