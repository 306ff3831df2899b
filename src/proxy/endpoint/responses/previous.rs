//! Conversation of `previous_response_id`, for keys that may store responses.

use super::stored::load_response;
use crate::proxy::exchange::Exchange;
use memchr::memmem;
use penstock_core::{ApiError, PreviousResponse, ResponseStorePermission, StoredResponseAccess};
use penstock_dialect::background_response::{has_answer, is_pending};
use penstock_dialect::stored_response::StoredResponse;
use penstock_json_scan::json;
use std::borrow::Cow;

const MEMBER: &str = "previous_response_id";

/// Returns the permission of a request to store its response, with the conversation that the request continues. Batch
/// lines are not stored, because the results of the batch contain their responses. Background responses are stored by
/// their runs.
///
/// # Errors
/// Returns a refusal if the disk fails, or if there is no memory for the conversation.
pub(super) async fn load_stored_response_access(
    x: &mut Exchange<'_>,
    body: &[u8],
) -> Result<StoredResponseAccess, ApiError> {
    let access = match x.caller.in_process_line() {
        None => ResponseStorePermission::Allowed,
        Some(line) if line.answer_identity().is_some() => ResponseStorePermission::BackgroundRun,
        Some(_) => ResponseStorePermission::BatchLine,
    };
    let previous = match previous_response_id(body) {
        None => PreviousResponse::NotFound,
        Some(id) => match load_response(x, &id).await? {
            None => PreviousResponse::NotFound,
            Some(document) => {
                // The memory is reserved for the items, and for their form for the provider.
                x.reserve_memory(document.len().saturating_mul(2))?;
                match StoredResponse::parse(&document) {
                    None => PreviousResponse::NotFound,
                    Some(stored) if is_pending(stored.response) => PreviousResponse::Unanswered,
                    Some(stored) if !has_answer(stored.response) => PreviousResponse::EndedUnanswered,
                    Some(stored) => PreviousResponse::Items(stored.conversation_items().into()),
                }
            }
        },
    };
    Ok(StoredResponseAccess { store_permission: access, previous })
}

/// Returns the id in a body that is not validated yet; `None` if the body has no id, or a malformed one. The validation
/// refuses a malformed id later.
fn previous_response_id(body: &[u8]) -> Option<Cow<'_, str>> {
    memmem::find(body, MEMBER.as_bytes())?;
    let mut members = json::members(body);
    while let Some((name, value)) = members.next_raw() {
        if name == MEMBER.as_bytes() {
            return json::unescape(value.strip_prefix(b"\"")?.strip_suffix(b"\"")?);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_found_at_the_top_of_the_body_alone() {
        let found = |body: &str| previous_response_id(body.as_bytes()).map(Cow::into_owned);
        assert_eq!(found(r#"{"a":{"b":1},"previous_response_id":"resp_1"}"#).as_deref(), Some("resp_1"));
        for body in [
            r#"{"input":"previous_response_id"}"#,
            r#"{"metadata":{"previous_response_id":"resp_1"}}"#,
            r#"{"previous_response_id":null}"#,
            r#"{"previous_response_id":1}"#,
            "{\"previous_response_id\"",
            "previous_response_id",
        ] {
            assert_eq!(found(body), None, "{body}");
        }
    }
}
