//! Admin requests and responses, shared by the listener of a running gateway and by the CLI when it opens a store
//! itself.

use crate::billing::report::ReportError;
use crate::http::query_names::check_query_names;
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::StoreError;
use penstock_storage::accounts::AccountRecord;
use penstock_storage::audit::ChangeDescription;
use penstock_storage::keys::KeyRecord;
use serde_json::{Value, json};

/// Default and maximum number of rows on a page.
pub const MAX_PAGE_ROWS: usize = 1_000;

/// Admin request: the id in its path, query, body, caller and time.
#[derive(Clone, Debug, Default)]
pub struct AdminRequest {
    /// Path segment that matches `{id}`, decoded; empty for a route without an id.
    pub id: String,
    /// Names and values of the query string, decoded.
    pub query: Vec<(String, String)>,
    /// Request body, a JSON object.
    pub body: Value,
    /// Name of the caller, for the audit log.
    pub actor: String,
    /// Current time in Unix seconds.
    pub now: u64,
    /// Retention period of files in seconds; `None` without a limit, and without a running gateway.
    pub file_retention: Option<u64>,
}

/// Response to an admin request.
#[derive(Debug)]
pub struct AdminResponse {
    /// HTTP status of the response.
    pub status: u16,
    /// JSON body of the response.
    pub answer: Value,
}

/// Update of the key cache after a change in the store.
#[derive(Debug)]
pub enum KeyCacheUpdate {
    /// Changed key, and the account that was created for it, if any.
    Key(Box<KeyRecord>, Option<Box<AccountRecord>>),
    /// Changed account.
    Account(Box<AccountRecord>),
}

/// Response to a request that changes a key or an account, with its update of the key cache.
pub type KeyChangeResponse = (AdminResponse, KeyCacheUpdate);

impl AdminResponse {
    pub(super) fn ok(answer: Value) -> Self {
        Self { status: 200, answer }
    }
}

/// Response of a ledger request.
#[derive(Debug)]
pub enum LedgerReply {
    /// Status and JSON object.
    Json(u16, Value),
    /// Ledger lines (JSON Lines).
    Lines(Vec<u8>),
}

impl AdminRequest {
    /// Returns the audit log entry of a change.
    pub(super) fn audit_entry(&self, action: &str, target: &str, change: Value) -> ChangeDescription {
        ChangeDescription {
            at: self.now,
            who: self.actor.clone(),
            what: action.to_owned(),
            target: target.to_owned(),
            change,
        }
    }

    /// Returns the value of a query parameter, if the query has it. Returns 400 if the query has a parameter that is
    /// not in `allowed_names`, or has one twice.
    pub(super) fn query_parameter(
        &self,
        name: &str,
        allowed_names: &[&str],
    ) -> Result<Option<&str>, ApiError> {
        check_query_names(self.query.iter().map(|(name, _)| name.as_str()), allowed_names)?;
        Ok(self.query.iter().find(|(parameter, _)| parameter == name).map(|(_, value)| value.as_str()))
    }

    /// Returns the value of a query parameter that has to be one of `choices`, if the query has it.
    pub(super) fn query_choice(
        &self,
        name: &str,
        allowed_names: &[&str],
        choices: &[&'static str],
    ) -> Result<Option<&'static str>, ApiError> {
        let Some(value) = self.query_parameter(name, allowed_names)? else { return Ok(None) };
        let chosen = choices.iter().copied().find(|choice| *choice == value);
        let unknown = || ApiError::invalid(name, format!("{name}: expected one of {}", choices.join(", ")));
        chosen.ok_or_else(unknown).map(Some)
    }

    /// Returns the query parameter `limit`, the maximum number of rows on a page; [`MAX_PAGE_ROWS`] by default.
    pub(super) fn page_limit(&self, allowed_names: &[&str]) -> Result<usize, ApiError> {
        let Some(text) = self.query_parameter("limit", allowed_names)? else { return Ok(MAX_PAGE_ROWS) };
        let invalid = || {
            ApiError::invalid("limit", format!("limit has to be a whole number from 1 to {MAX_PAGE_ROWS}."))
        };
        text.parse().ok().filter(|limit| (1..=MAX_PAGE_ROWS).contains(limit)).ok_or_else(invalid)
    }
}

/// Returns the members that differ, as `name: [before, after]`. If both values are objects, their members are
/// compared in the same way.
pub(super) fn changed_fields(before: &Value, after: &Value) -> Value {
    let mut changed = serde_json::Map::new();
    for (name, now) in after.as_object().into_iter().flatten() {
        let then = before.get(name).unwrap_or(&Value::Null);
        match (then, now) {
            (then, now) if then == now => {}
            (Value::Object(_), Value::Object(_)) => {
                changed.insert(name.clone(), changed_fields(then, now));
            }
            (then, now) => {
                changed.insert(name.clone(), json!([then, now]));
            }
        }
    }
    Value::Object(changed)
}

/// Returns the error response for a store error.
pub(super) fn store_error_response(error: StoreError) -> ApiError {
    match error {
        StoreError::Full => ApiError::new(ErrorCode::StorageFull),
        StoreError::Guard { .. } => ApiError::with_message(
            ErrorCode::Conflict,
            "Another request changed this at the same time; try again.",
        ),
        StoreError::Unreachable { .. } => {
            let message = "The database cannot be reached at the moment; try again shortly.";
            ApiError::with_message(ErrorCode::Unavailable, message).with_retry_after(5)
        }
        StoreError::Database { .. } => {
            let message =
                "The database refuses a statement of this gateway: `penstock check --reach` names the cause.";
            ApiError::with_message(ErrorCode::Unavailable, message).with_retry_after(5)
        }
        StoreError::Reverted => {
            let message =
                "The database lacks commits that it had acknowledged; this gateway has to be restarted.";
            ApiError::with_message(ErrorCode::Unavailable, message)
        }
        StoreError::InUse { .. } | StoreError::Evicted { .. } => {
            let message = "Another process took over this gateway's part of the database, which it writes no more: \
                           start it again, or use the other gateway.";
            ApiError::with_message(ErrorCode::Unavailable, message)
        }
        StoreError::Stuck => {
            let message = "The store has not answered in time, so the change may have been made or not: look before \
                           you try again.";
            ApiError::with_message(ErrorCode::Unavailable, message).with_retry_after(5)
        }
        error => ApiError::with_message(ErrorCode::Internal, error.to_string()),
    }
}

/// Returns the error response for a report error: for a failure of the store, that of the store.
pub(super) fn report_error_response(error: ReportError) -> ApiError {
    match error {
        ReportError::Invalid(sentence) => ApiError::with_message(ErrorCode::Internal, sentence),
        ReportError::Store(error) => store_error_response(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_is_advised_only_where_it_helps() {
        let holder = "gateway 2".to_owned();
        for (error, text, retry_after) in [
            (StoreError::Unreachable { what: "x".to_owned() }, "try again", Some(5)),
            (StoreError::Database { what: "x".to_owned() }, "refuses a statement", Some(5)),
            (StoreError::Reverted, "has to be restarted", None),
            (StoreError::InUse { holder: holder.clone() }, "start it again", None),
            (
                StoreError::Evicted { what: format!("{holder} has taken over") },
                "Another process took over",
                None,
            ),
        ] {
            let refusal = store_error_response(error);
            assert!(refusal.message.contains(text), "{}", refusal.message);
            assert_eq!((refusal.spec().status, refusal.retry_after), (503, retry_after), "{text}");
            assert!(!refusal.message.contains("gateway 2"));
        }
    }
}
