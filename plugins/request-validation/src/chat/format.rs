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
    let path = top.member_path("structured_outputs");
    top.get("structured_outputs").map(|outputs| read::check_object(outputs, &path)).transpose()?;
    let path = top.member_path("response_format");
    let Some(format) = top.get("response_format") else { return Ok(()) };
    let names = ["type", "json_schema", "schema", "value"];
    let [kind, named, schema, value] = read::read_named_members(format, &path, names)?;
    let words = &["text", "json_object", "json_schema"];
    let kind_path = path.member("type");
    let kind = read::require_member(kind, &kind_path, read::QuotedAlternatives(words))?;
    match read::read_keyword(kind, &kind_path, words)? {
        "json_object" => {
            found.needs.json_object = true;
            schema.map(|schema| read::check_object(schema, &path.member("schema"))).transpose()?;
            value.map(|value| read::check_object(value, &path.member("value"))).transpose()?;
            if value.is_some() && (named.is_some() || schema.is_some()) {
                return Err(path
                    .member("value")
                    .invalid_error("the schema is already set by another member"));
            }
        }
        "json_schema" => {
            found.needs.json_schema = true;
            let path = path.member("json_schema");
            validate_json_schema(read::require_member(named, &path, "an object")?, &path, found)?;
        }
        _ => {}
    }
    Ok(())
}

fn validate_json_schema<'d>(
    value: JsonValue<'d>,
    path: &FieldPath<'_>,
    found: &mut ChatFindings,
) -> Result<(), ApiError> {
    let [name, schema, strict, description] =
        read::read_named_members(value, path, ["name", "schema", "strict", "description"])?;
    read::require_text_member(name, &path.member("name"))?;
    let schema_path = path.member("schema");
    read::check_object(read::require_member(schema, &schema_path, "a JSON schema")?, &schema_path)?;
    read::read_optional_bool(strict, &path.member("strict"))?;
    description.map(|text| read::require_string(text, &path.member("description"))).transpose()?;
    found.edits.retain_members(value, |_, member| !member.is_null());
    Ok(())
}
