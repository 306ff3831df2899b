//! Validation of `tools` and `tool_choice`.

use super::MessagesFindings;
use crate::body::RootObject;
use crate::field_path::{FieldPath, quotable_name};
use crate::limits::RequestLimits;
use crate::read;
use crate::tool_callers::check_allowed_callers;
use penstock_core::ApiError;
use penstock_json_scan::tape::JsonValue;

/// Validates `tools` and `tool_choice`; returns true if parallel calls are allowed.
pub(super) fn validate_tools(
    top: &RootObject<'_>,
    limits: &RequestLimits,
    found: &mut MessagesFindings,
) -> Result<bool, ApiError> {
    let path = top.member_path("tools");
    let declared = top.get("tools").map(|tools| read::require_array(tools, &path)).transpose()?;
    let declared = declared.filter(|tools| !tools.has_no_entries());
    for (index, tool) in declared.iter().flat_map(JsonValue::items).enumerate() {
        if index >= limits.max_tools {
            return Err(path.invalid_error(format_args!("expected at most {} tools", limits.max_tools)));
        }
        self::validate_tool(tool, &path.item(index))?;
    }
    found.needs.tools = declared.is_some();
    // The member `parallel_tool_calls` of the chat dialect is accepted too.
    let name = "parallel_tool_calls";
    let parallel = read::read_optional_bool(top.get(name), &top.member_path(name))?.unwrap_or(true);
    let Some(choice) = top.get("tool_choice") else { return Ok(parallel) };
    Ok(validate_tool_choice(choice, &top.member_path("tool_choice"), declared)? && parallel)
}

fn validate_tool(tool: JsonValue<'_>, tool_path: &FieldPath<'_>) -> Result<(), ApiError> {
    let names = ["type", "name", "description", "input_schema", "strict", "allowed_callers", "defer_loading"];
    let [kind, name, description, schema, strict, callers, defer_loading] =
        read::read_named_members(tool, tool_path, names)?;
    if let Some(kind) = kind {
        let path = tool_path.member("type");
        if !read::require_string(kind, &path)?.equals_text("custom") {
            return Err(match quotable_name(&kind) {
                Some(name) => path.unsupported_error(format_args!(
                    "the vendor's server tool \"{name}\" is not supported, only tools of your own"
                )),
                None => {
                    path.unsupported_error("only tools of your own are supported, of the type \"custom\"")
                }
            });
        }
    }
    read::require_name_member(name, &tool_path.member("name"), "a string")?;
    description.map(|text| read::require_string(text, &tool_path.member("description"))).transpose()?;
    read::read_optional_bool(strict, &tool_path.member("strict"))?;
    read::read_optional_bool(defer_loading, &tool_path.member("defer_loading"))?;
    check_allowed_callers(callers, tool_path)?;
    let path = tool_path.member("input_schema");
    read::check_object(read::require_member(schema, &path, "a JSON schema")?, &path)
}

fn validate_tool_choice(
    choice: JsonValue<'_>,
    choice_path: &FieldPath<'_>,
    declared: Option<JsonValue<'_>>,
) -> Result<bool, ApiError> {
    let [kind, name, single] =
        read::read_named_members(choice, choice_path, ["type", "name", "disable_parallel_tool_use"])?;
    let words = &["auto", "any", "tool", "none"];
    let path = choice_path.member("type");
    let kind = read::read_keyword(
        read::require_member(kind, &path, read::QuotedAlternatives(words))?,
        &path,
        words,
    )?;
    if kind == "any" && declared.is_none() {
        return Err(path.invalid_error("\"any\" needs `tools`"));
    }
    if kind == "tool" {
        let path = choice_path.member("name");
        let text = read::require_text_member(name, &path)?.text();
        if !declared.iter().flat_map(JsonValue::items).any(|tool| is_named(tool, &text)) {
            return Err(path.invalid_error("expected the name of one of the declared tools"));
        }
    }
    let single = read::read_optional_bool(single, &choice_path.member("disable_parallel_tool_use"))?;
    Ok(!single.unwrap_or(false))
}

fn is_named(tool: JsonValue<'_>, text: &str) -> bool {
    tool.members().any(|(key, value)| key.equals_text("name") && value.equals_text(text))
}
