//! Members that concern stored responses: `store`, `background` and `previous_response_id`.

use super::input::is_empty;
use crate::body::{RootObject, describe_scan_error, is_opaque_member};
use crate::field_path::FieldPath;
use crate::limits::RequestLimits;
use crate::{read, scalars};
use bytes::Bytes;
use penstock_core::{
    ApiError, ErrorCode, PreviousResponse, ResponseStorePermission, StoredInput, StoredResponseAccess,
};
use penstock_json_scan::tape::{JsonTape, StructureLimits, TapeNode, scan};

const NOT_ALLOWED: &str =
    "this API key stores no responses; send the whole history in `input` with each request";
const NOT_FOUND: &str = "no response of this id is stored for this API key, or not any more; responses are stored with \
    `store: true` alone; send the whole history in `input`";
const UNANSWERED: &str = "this response has no answer to continue; wait until its status is \"completed\"";
const ENDED_UNANSWERED: &str = "this response ended without an answer; continue an earlier response, or send the \
    whole history in `input`";
const SHORTEN: &str = "send a shorter history in `input` instead";
const BACKGROUND_NOT_ALLOWED: &str = "background responses are stored, and this API key stores none; the operator \
    allows it with `penstock keys change ID --store-responses true`, or leave `background` out";
const BACKGROUND_LINE: &str = "the lines of a batch run in the background already; leave it out";
const BACKGROUND_UNSTORED: &str = "expected true or nothing: a background response is stored until it is fetched; \
    delete it with DELETE /v1/responses/{id}";

/// Returns true if the request asks for a background response.
///
/// # Errors
/// Returns an error that names the member which prevents a background response.
pub(super) fn is_background_request(
    top: &RootObject<'_>,
    access: ResponseStorePermission,
) -> Result<bool, ApiError> {
    if !scalars::read_bool_or_false(top, "background")? {
        return Ok(false);
    }
    match access {
        ResponseStorePermission::NotAllowed => {
            return Err(top.member_path("background").unsupported_error(BACKGROUND_NOT_ALLOWED));
        }
        ResponseStorePermission::BatchLine => {
            return Err(top.member_path("background").unsupported_error(BACKGROUND_LINE));
        }
        ResponseStorePermission::Allowed | ResponseStorePermission::BackgroundRun => {}
    }
    // A background response must be stored, so an explicit `store: false` is refused.
    if top.get("store").is_some() && !scalars::read_bool_or_false(top, "store")? {
        return Err(top.member_path("store").invalid_error(BACKGROUND_UNSTORED));
    }
    Ok(true)
}

/// Returns the items of the conversation that `previous_response_id` continues: the elements of a JSON array, without
/// brackets. Empty without `previous_response_id`.
pub(super) fn previous_items(
    top: &RootObject<'_>,
    storage: &StoredResponseAccess,
) -> Result<Bytes, ApiError> {
    let Some(id) = top.get("previous_response_id") else { return Ok(Bytes::new()) };
    let path = top.member_path("previous_response_id");
    match &storage.previous {
        PreviousResponse::NotAllowed => Err(path.unsupported_error(NOT_ALLOWED)),
        PreviousResponse::NotFound => {
            read::require_string(id, &path)?;
            Err(path.invalid_error(NOT_FOUND))
        }
        PreviousResponse::Unanswered => {
            read::require_string(id, &path)?;
            Err(path.invalid_error(UNANSWERED))
        }
        PreviousResponse::EndedUnanswered => {
            read::require_string(id, &path)?;
            Err(path.invalid_error(ENDED_UNANSWERED))
        }
        PreviousResponse::Items(items) => read::require_string(id, &path).map(|_| items.clone()),
    }
}

/// Returns the input that is stored with the answer; `None` if this request stores no input.
pub(super) fn input_to_store(
    body: &Bytes,
    top: &RootObject<'_>,
    storage: &StoredResponseAccess,
    previous_items: &Bytes,
    in_background: bool,
) -> Result<Option<StoredInput>, ApiError> {
    let is_stored = scalars::read_bool_or_false(top, "store")? || in_background;
    if !is_stored || storage.store_permission != ResponseStorePermission::Allowed {
        return Ok(None);
    }
    // An empty input adds no item to the conversation of the previous response.
    let input = top.get("input").filter(|input| previous_items.is_empty() || !is_empty(*input));
    let input = input.map_or(Bytes::from_static(b"[]"), |value| body.slice(value.range()));
    Ok(Some(StoredInput { previous_items: previous_items.clone(), input }))
}

/// Items of the previous conversation as a JSON array, with the parsed nodes of the array.
pub(super) struct PreviousConversation {
    text: String,
    nodes: Vec<TapeNode>,
}

impl PreviousConversation {
    /// Parses the items. Their array must be within the limits of a request body; `path` is the path of the member that
    /// names the response.
    pub(super) fn parse(
        items: &[u8],
        limits: &RequestLimits,
        path: &FieldPath<'_>,
    ) -> Result<Self, ApiError> {
        if items.is_empty() {
            return Ok(Self { text: String::new(), nodes: Vec::new() });
        }
        let max_bytes = limits.max_body.min(u32::MAX as usize);
        let refusal =
            |fault: &str| path.invalid_error(format_args!("the stored conversation {fault}; {SHORTEN}"));
        if items.len() + 2 > max_bytes {
            let refusal = refusal(&format!("is larger than {max_bytes} bytes"));
            let refusal = ApiError { code: ErrorCode::TooLarge, ..refusal };
            return Err(refusal.with_details_member("max_bytes", max_bytes));
        }
        let text =
            String::from_utf8([b"[", items, b"]"].concat()).map_err(|_| refusal("is not valid UTF-8"))?;
        let bounds = StructureLimits { depth: limits.max_depth, nodes: limits.max_values };
        let nodes = scan(text.as_bytes(), bounds, is_opaque_member)
            .map_err(|(broken, _)| refusal(&describe_scan_error(broken, bounds)))?;
        Ok(Self { text, nodes })
    }

    /// Returns the parsed array; a tape without a root if there is no previous response.
    pub(super) fn as_tape(&self) -> JsonTape<'_> {
        JsonTape { text: &self.text, nodes: &self.nodes }
    }
}
