//! Validation of `response_format`: text, any JSON, or JSON of a schema.

use super::ChatFindings;
use crate::body::RootObject;
use crate::field_path::FieldPath;
use crate::read;
use penstock_core::ApiError;
use penstock_json_scan::tape::JsonValue;

/// Validates `response_format` and `structured_outputs`, and records the features that they need.
pub(super) fn validate_response_format(
    top: &RootObject<'_>,
    found: &mut ChatFindings,
) -> Result<(), ApiError> {
    let path = top.path("structured_outputs");
    top.get("structured_outputs").map(|outputs| read::check_object(outputs, &path)).transpose()?;
    let path = top.path("response_format");
    let Some(format) = top.get("response_format") else { return Ok(()) };
    let [kind, schema] = read::object(format, &path, ["type", "json_schema"])?;
    let words = &["text", "json_object", "json_schema"];
    let kind_path = path.key("type");
    let kind = read::required(kind, &kind_path, read::QuotedAlternatives(words))?;
    match read::one_of(kind, &kind_path, words)? {
        "json_object" => found.needs.json_object = true,
        "json_schema" => {
            found.needs.json_schema = true;
            let path = path.key("json_schema");
            validate_json_schema(read::required(schema, &path, "an object")?, &path, found)?;
        }
        _ => {}
    }
    Ok(())
}

fn validate_json_schema<'d>(
    value: JsonValue<'d>,
    at: &FieldPath<'_>,
    found: &mut ChatFindings,
) -> Result<(), ApiError> {
    let [name, schema, strict, description] =
        read::object(value, at, ["name", "schema", "strict", "description"])?;
    read::required_text(name, &at.key("name"))?;
    let schema_path = at.key("schema");
    read::check_object(read::required(schema, &schema_path, "a JSON schema")?, &schema_path)?;
    read::optional_bool(strict, &at.key("strict"))?;
    description.map(|text| read::string(text, &at.key("description"))).transpose()?;
    found.edits.retain_members(value, |_, member| !member.is_null());
    Ok(())
}
