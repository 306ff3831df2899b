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
fn text_range(value: JsonValue<'_>, at: &FieldPath<'_>) -> Result<Range<usize>, ApiError> {
    read::require_non_empty_string(value, at).map(|value| value.range())
}

/// Checks that an array has 1 to `most` items; `what` is the noun for an item in the error message.
pub(crate) fn require_bounded_array<'d>(
    value: JsonValue<'d>,
    at: &FieldPath<'_>,
    most: usize,
    what: &str,
) -> Result<JsonValue<'d>, ApiError> {
    let count = value.items().take(most + 1).count();
    if count == 0 {
        return Err(at.invalid_error(format_args!("expected at least one {what}, got an empty array")));
    }
    if count > most {
        return Err(at.invalid_error(format_args!("expected at most {most} {what}s")));
    }
    Ok(value)
}
