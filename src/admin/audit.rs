//! Admin requests for the audit log.

use super::openapi::{answered, page};
use super::request::{Asked, Done, failed};
use super::routes::{Route, Work};
use crate::storage::stores::Vault;
use penstock_contract::Refusal;
use penstock_storage::audit::Entry;
use serde_json::{Value, json};

/// Query parameters of the list.
pub const LIST: [&str; 3] = ["after", "limit", "target"];
/// Limit on the pages that one request searches for a target.
const SEARCHED: usize = 100;

/// Routes of the audit log.
pub const ROUTES: &[Route] = &[
    Route::get("/admin/audit", "listAudit", "Lists changes with author and time", Work::Store(list))
        .query(&LIST)
        .answers(200, || page(answered(&["number", "at", "who", "what", "target", "change"]))),
    Route::get(
        "/admin/audit/verify",
        "verifyAudit",
        "Verifies the hash chain of the audit log",
        Work::Store(|vault, _| verify(vault)),
    )
    .answers(200, || answered(&["good", "entries", "first_bad"])),
];

fn list(vault: &Vault, asked: &Asked) -> Result<Done, Refusal> {
    let limit = asked.limit(&LIST)?;
    let target = asked.query("target", &LIST)?;
    let mut after: u64 = match asked.query("after", &LIST)? {
        None => 0,
        Some(text) => {
            text.parse().map_err(|_| Refusal::invalid("after", "after has to be the number of an entry."))?
        }
    };
    let mut data: Vec<Value> = Vec::new();
    let mut next = None;
    for _ in 0..SEARCHED {
        let page = vault.audit.list(after, limit).map_err(failed)?;
        let ours =
            page.entries.iter().filter(|entry| target.is_none_or(|target| entry.said.target == target));
        data.extend(ours.map(told));
        next = page.next;
        match next {
            Some(last) if target.is_some() && data.len() < limit => after = last,
            _ => break,
        }
    }
    Ok(Done::told(json!({ "data": data, "has_more": next.is_some(), "next": next })))
}

fn verify(vault: &Vault) -> Result<Done, Refusal> {
    let first_bad = vault.audit.verify().map_err(failed)?;
    let entries = vault.audit.last().map_err(failed)?;
    Ok(Done::told(json!({ "good": first_bad.is_none(), "entries": entries, "first_bad": first_bad })))
}

fn told(entry: &Entry) -> Value {
    let said = &entry.said;
    json!({
        "number": entry.number,
        "at": said.at,
        "who": said.who,
        "what": said.what,
        "target": said.target,
        "change": said.change,
    })
}
