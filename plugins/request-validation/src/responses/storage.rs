//! Members that concern stored responses: `store` and `previous_response_id`.

use crate::body::{RootObject, validate_body};
use crate::field_path::PathStyle;
use crate::limits::RequestLimits;
use crate::{read, scalars};
use bytes::Bytes;
use penstock_core::{ApiError, PreviousResponse, ResponseStorage, StoredInput};
use penstock_json_scan::tape::{JsonTape, TapeNode};

const NOT_ALLOWED: &str =
    "this API key stores no responses; send the whole history in `input` with each request";
const NOT_FOUND: &str =
    "no response of this id is stored for this API key, or not any more; send the whole history in `input`";

/// Returns the items of the previous response; none without `previous_response_id`.
pub(super) fn previous_items(top: &RootObject<'_>, storage: &ResponseStorage) -> Result<Bytes, ApiError> {
    let Some(id) = top.get("previous_response_id") else { return Ok(Bytes::new()) };
    let path = top.path("previous_response_id");
    match &storage.previous {
        PreviousResponse::NotAllowed => Err(path.unsupported(NOT_ALLOWED)),
        PreviousResponse::NotFound => {
            read::string(id, &path)?;
            Err(path.invalid(NOT_FOUND))
        }
        PreviousResponse::Items(items) => read::string(id, &path).map(|_| items.clone()),
    }
}

/// Returns the input if the response is to be stored.
pub(super) fn stored_input(
    body: &Bytes,
    top: &RootObject<'_>,
    storage: &ResponseStorage,
    previous_items: &Bytes,
) -> Result<Option<StoredInput>, ApiError> {
    if !scalars::bool_or_false(top, "store")? || !storage.may_store {
        return Ok(None);
    }
    let input = top.get("input").map(|value| body.slice(value.range()));
    Ok(input.map(|input| StoredInput { previous_items: previous_items.clone(), input }))
}

/// Parsed items of the previous response.
pub(super) struct PreviousConversation {
    text: String,
    nodes: Vec<TapeNode>,
}

impl PreviousConversation {
    /// Parses the items, within the limits of a body.
    pub(super) fn parse(items: &[u8], limits: &RequestLimits) -> Result<Self, ApiError> {
        if items.is_empty() {
            return Ok(Self { text: String::new(), nodes: Vec::new() });
        }
        let text = [b"[", items, b"]"].concat();
        let (_, nodes) = validate_body(&text, limits, PathStyle::Brackets)?;
        // Valid UTF-8, as a part of the validation.
        Ok(Self { text: String::from_utf8(text).unwrap_or_default(), nodes })
    }

    /// Returns the tape of the array; an empty one without a previous response.
    pub(super) fn as_tape(&self) -> JsonTape<'_> {
        JsonTape { text: &self.text, nodes: &self.nodes }
    }
}
