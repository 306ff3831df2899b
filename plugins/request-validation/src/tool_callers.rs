//! Validation of the callers of a tool, which the messages and responses dialects have in common.

use crate::field_path::FieldPath;
use crate::read;
use penstock_core::ApiError;
use penstock_json_scan::tape::JsonValue;

/// Checks `allowed_callers` of the tool at `tool_path`. Only direct calls by the model are supported.
///
/// # Errors
/// Returns `Unsupported` for a list without `direct`, and an error for a value that is no array of strings.
pub(crate) fn check_allowed_callers(
    callers: Option<JsonValue<'_>>,
    tool_path: &FieldPath<'_>,
) -> Result<(), ApiError> {
    let Some(callers) = callers else { return Ok(()) };
    let path = tool_path.member("allowed_callers");
    let mut is_direct = false;
    for (index, caller) in read::require_array(callers, &path)?.items().enumerate() {
        is_direct |= read::require_string(caller, &path.item(index))?.equals_text("direct");
    }
    if is_direct {
        Ok(())
    } else {
        Err(path.unsupported_error("expected \"direct\" among them; the model calls each tool itself"))
    }
}
