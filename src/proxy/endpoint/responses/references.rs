//! Items of `item_reference`, for keys that may store responses: each reference is replaced by the stored item before
//! the request is validated.

use super::stored::load_response;
use crate::proxy::exchange::Exchange;
use bytes::Bytes;
use penstock_core::{ApiError, ErrorCode};
use penstock_dialect::item_references::{
    MAX_REFERENCES, find_references, find_stored_item, replace_references,
};

/// Maximum number of responses whose items a request may refer to: each of them is read from the disk.
const MAX_RESPONSES: usize = 64;
/// Advice for clients that refer to items because they assume that every response is stored.
const SEND_ITEM: &str = "responses are stored with `store: true` alone, and clients send the item itself with \
    `store: false`";

/// Replaces the references in a body by the stored items.
///
/// # Errors
/// Returns a refusal that names the first item that is not stored. Also returns a refusal if there are too many
/// references, if the resulting body is too large, if the disk fails, or if there is no memory.
pub(super) async fn resolve_item_references(x: &mut Exchange<'_>, body: Bytes) -> Result<Bytes, ApiError> {
    let references = find_references(&body);
    if references.is_empty() {
        return Ok(body);
    }
    if references.len() > MAX_REFERENCES {
        return Err(ApiError::invalid(
            "input",
            "input: expected at most 1024 items of type `item_reference`.",
        ));
    }
    let mut documents: Vec<(String, Option<Vec<u8>>)> = Vec::new();
    let mut items: Vec<(usize, Bytes)> = Vec::with_capacity(references.len());
    let most = x.config.settings.limits.json_body;
    let mut size = body.len();
    for reference in &references {
        let Some(id) = reference.id.as_deref() else { return Err(without_id(reference.index)) };
        let not_stored = || not_stored(reference.index, id);
        let response = reference.response_id().ok_or_else(not_stored)?;
        if !documents.iter().any(|(id, _)| *id == response) {
            if documents.len() >= MAX_RESPONSES {
                let sentence = "input: expected references to items of at most 64 responses.";
                return Err(ApiError::invalid("input", sentence));
            }
            let document = load_response(x, &response).await?;
            documents.push((response.clone(), document));
        }
        let document =
            documents.iter().find(|(id, _)| *id == response).and_then(|(_, found)| found.as_deref());
        let item = document.and_then(|document| find_stored_item(document, id));
        let item = item.ok_or_else(not_stored)?;
        size = size.saturating_add(item.len());
        if size > most {
            return Err(too_large(most));
        }
        // The memory is reserved for the item, and for the body that contains it.
        x.reserve_memory(item.len().saturating_mul(2))?;
        items.push((reference.index, Bytes::copy_from_slice(item)));
    }
    Ok(replace_references(&body, &items))
}

/// Returns the error for references to items that are larger than `max_bytes`, together with the body.
fn too_large(max_bytes: usize) -> ApiError {
    let sentence =
        format!("input: the body and the items of its references are larger than {max_bytes} bytes.");
    ApiError::with_message(ErrorCode::TooLarge, sentence)
        .with_param("input")
        .with_details_member("max_bytes", max_bytes)
}

/// Returns the error for a reference without an id that is a string with at least one character.
fn without_id(index: usize) -> ApiError {
    let param = format!("input[{index}].id");
    let sentence = format!("{param}: expected the id of a stored item.");
    ApiError::invalid(param, sentence)
}

/// Returns the error for a reference to an item that is not stored.
fn not_stored(index: usize, id: &str) -> ApiError {
    let param = format!("input[{index}].id");
    let known = id.len() <= 128 && id.bytes().all(|byte| byte.is_ascii_graphic());
    let id = if known { id } else { "this id" };
    let sentence = format!("{param}: no item {id} is stored for this API key, or not any more; {SEND_ITEM}.");
    ApiError::invalid(param, sentence)
}
