//! Validation of requests of `/v1/embeddings` and `/v1/rerank`.

mod embeddings;
mod rerank;

pub(crate) use embeddings::count_token_ids;
pub use embeddings::validate_embeddings_request;
pub use rerank::validate_rerank_request;

use crate::field_path::FieldPath;
use crate::read;
use penstock_core::ApiError;
use penstock_json_scan::tape::JsonValue;
use std::ops::Range;

/// Returns the byte range of a text that must not be empty.
fn text_range(value: JsonValue<'_>, path: &FieldPath<'_>) -> Result<Range<usize>, ApiError> {
    read::require_non_empty_string(value, path).map(|value| value.range())
}

/// Checks that an array has 1 to `max_items` items; `item_name` is the noun for an item in the error message.
pub(crate) fn require_bounded_array<'d>(
    value: JsonValue<'d>,
    path: &FieldPath<'_>,
    max_items: usize,
    item_name: &str,
) -> Result<JsonValue<'d>, ApiError> {
    let count = value.items().take(max_items + 1).count();
    if count == 0 {
        return Err(path.invalid_error(format_args!("expected at least one {item_name}, got an empty array")));
    }
    if count > max_items {
        return Err(path.invalid_error(format_args!("expected at most {max_items} {item_name}s")));
    }
    Ok(value)
}
