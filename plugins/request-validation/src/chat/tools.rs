//! Validation of `tools` and `tool_choice`, and of their legacy names.

use super::ChatFindings;
use crate::body::RootObject;
use crate::field_path::{FieldPath, quotable_name};
use crate::limits::RequestLimits;
use crate::read;
use penstock_core::{ApiError, BodyMembers, CachePosition};
use penstock_json_scan::tape::JsonValue;
use std::borrow::Cow;
use std::collections::HashSet;

/// Validates `tools`, `tool_choice` and their legacy names; returns the top-level members with legacy names replaced.
pub(super) fn validate_tools(
    top: &RootObject<'_>,
    limits: &RequestLimits,
    found: &mut ChatFindings,
) -> Result<BodyMembers, ApiError> {
    let mut fields = top.to_body_members();
    let declared =
        top.get("tools").map(|tools| read::require_array(tools, &top.member_path("tools"))).transpose()?;
    let declared = declared.filter(|tools| !tools.has_no_entries());
    let functions = top
        .get("functions")
        .map(|list| read::require_array(list, &top.member_path("functions")))
        .transpose()?;
    let functions = functions.filter(|list| !list.has_no_entries());
    found.needs.tools = declared.or(functions).is_some();
    match (declared, functions) {
        (Some(tools), None) => {
            for_each_tool(tools, &top.member_path("tools"), limits, |index, tool, path| {
                for object in [Some(tool), function_of(tool)].into_iter().flatten() {
                    found.cache_markers.read(object, CachePosition::Tool(index));
                }
                self::validate_tool(tool, path, found)
            })?;
        }
        (None, Some(functions)) => {
            let path = top.member_path("functions");
            for_each_tool(functions, &path, limits, |index, function, path| {
                found.cache_markers.read(function, CachePosition::Tool(index));
                self::validate_function(function, path, found)?;
                found.edits.wrap(function, r#"{"type":"function","function":"#, "}");
                Ok(())
            })?;
            rename_legacy_member(top, &mut fields, ["functions", "tools"], found);
        }
        (Some(_), Some(_)) => {
            return Err(top
                .member_path("functions")
                .invalid_error("expected either `tools` or `functions`, got both"));
        }
        (None, None) => {}
    }
    if let Some(choice) = top.get("tool_choice") {
        validate_tool_choice(choice, &top.member_path("tool_choice"), declared, functions, found)?;
    } else if let Some(choice) = top.get("function_call") {
        convert_function_call(choice, &top.member_path("function_call"), declared.or(functions), found)?;
        rename_legacy_member(top, &mut fields, ["function_call", "tool_choice"], found);
    }
    Ok(fields)
}

/// Renames a legacy member, in the list of members and in the body. If a member with the new name exists too, it is
/// `null` or empty, as checked before; then the two members swap their names.
fn rename_legacy_member(
    top: &RootObject<'_>,
    fields: &mut BodyMembers,
    names: [&'static str; 2],
    found: &mut ChatFindings,
) {
    let [old, new] = names;
    for (from, to) in [(old, new), (new, old)] {
        if let Some(key) = top.member_key(from) {
            found.edits.replace(key.range(), format!("\"{to}\""));
        }
    }
    for field in &mut fields.0 {
        if let Some(name) = [(old, new), (new, old)].iter().find(|(from, _)| &*field.name == *from) {
            field.name = name.1.into();
        }
    }
}

fn for_each_tool<'d>(
    list: JsonValue<'d>,
    path: &FieldPath<'_>,
    limits: &RequestLimits,
    mut read_tool: impl FnMut(usize, JsonValue<'d>, &FieldPath<'_>) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    for (index, item) in list.items().enumerate() {
        if index >= limits.max_tools {
            return Err(path.invalid_error(format_args!("expected at most {} tools", limits.max_tools)));
        }
        read_tool(index, item, &path.item(index))?;
    }
    Ok(())
}

/// Validates `{type: "function", function: {…}}`.
fn validate_tool(
    tool: JsonValue<'_>,
    tool_path: &FieldPath<'_>,
    found: &mut ChatFindings,
) -> Result<(), ApiError> {
    let [kind, function] = read::read_named_members(tool, tool_path, ["type", "function"])?;
    match kind {
        Some(kind) => check_function_type(kind, &tool_path.member("type"))?,
        None => found.edits.prepend_members(tool, r#""type":"function","#),
    }
    let path = tool_path.member("function");
    self::validate_function(read::require_member(function, &path, "an object")?, &path, found)?;
    found.edits.retain_members(tool, |key, member| {
        !member.is_null() && (key.equals_text("type") || key.equals_text("function"))
    });
    Ok(())
}

fn check_function_type(kind: JsonValue<'_>, path: &FieldPath<'_>) -> Result<(), ApiError> {
    if read::require_string(kind, path)?.equals_text("function") {
        return Ok(());
    }
    Err(match quotable_name(&kind) {
        Some(name) => path.unsupported_error(format_args!("only \"function\" is supported, not \"{name}\"")),
        None => path.unsupported_error("only \"function\" is supported"),
    })
}

fn validate_function(
    function: JsonValue<'_>,
    path: &FieldPath<'_>,
    found: &mut ChatFindings,
) -> Result<(), ApiError> {
    let [name, description, parameters, strict] =
        read::read_named_members(function, path, ["name", "description", "parameters", "strict"])?;
    read::require_name_member(name, &path.member("name"), "a string")?;
    description.map(|text| read::require_string(text, &path.member("description"))).transpose()?;
    parameters.map(|schema| read::check_object(schema, &path.member("parameters"))).transpose()?;
    read::read_optional_bool(strict, &path.member("strict"))?;
    let known = ["name", "description", "parameters", "strict"];
    found.edits.retain_members(function, |key, member| {
        !member.is_null() && known.iter().any(|name| key.equals_text(name))
    });
    Ok(())
}

const TOOL_CHOICES: &[&str] = &["auto", "none", "required"];

fn validate_tool_choice<'d>(
    choice: JsonValue<'d>,
    choice_path: &FieldPath<'_>,
    declared: Option<JsonValue<'d>>,
    functions: Option<JsonValue<'d>>,
    found: &mut ChatFindings,
) -> Result<(), ApiError> {
    if choice.is_string() {
        if read::read_keyword(choice, choice_path, TOOL_CHOICES)? == "required"
            && declared.or(functions).is_none()
        {
            return Err(choice_path.invalid_error("\"required\" needs `tools`"));
        }
        return Ok(());
    }
    if !choice.is_object() {
        return Err(choice_path.unexpected_type_error(
            format_args!("{} or an object", read::QuotedAlternatives(TOOL_CHOICES)),
            choice.kind(),
        ));
    }
    let [kind, function, allowed] =
        read::read_named_members(choice, choice_path, ["type", "function", "allowed_tools"])?;
    let kind_path = choice_path.member("type");
    let kind = read::require_member(kind, &kind_path, "\"function\"")?;
    if read::require_string(kind, &kind_path)?.equals_text("allowed_tools") {
        let path = choice_path.member("allowed_tools");
        return apply_allowed_tools(
            choice,
            read::require_member(allowed, &path, "an object")?,
            &path,
            declared,
            found,
        );
    }
    check_function_type(kind, &kind_path)?;
    let path = choice_path.member("function");
    let [name] =
        read::read_named_members(read::require_member(function, &path, "an object")?, &path, ["name"])?;
    let path = path.member("name");
    check_declared(read::require_text_member(name, &path)?, &path, declared.or(functions))
}

/// Validates the legacy `function_call`: a keyword, or `{name}`.
fn convert_function_call<'d>(
    choice: JsonValue<'d>,
    call_path: &FieldPath<'_>,
    declared: Option<JsonValue<'d>>,
    found: &mut ChatFindings,
) -> Result<(), ApiError> {
    let words = &["auto", "none"];
    if choice.is_string() {
        return read::read_keyword(choice, call_path, words).map(|_| ());
    }
    if !choice.is_object() {
        return Err(call_path.unexpected_type_error(
            format_args!("{} or an object", read::QuotedAlternatives(words)),
            choice.kind(),
        ));
    }
    let [name] = read::read_named_members(choice, call_path, ["name"])?;
    let path = call_path.member("name");
    check_declared(read::require_text_member(name, &path)?, &path, declared)?;
    found.edits.wrap(choice, r#"{"type":"function","function":"#, "}");
    Ok(())
}

/// Returns the name of a validated tool, in the current or the legacy form.
fn name_of<'d>(tool: JsonValue<'d>) -> Option<JsonValue<'d>> {
    member(function_of(tool).unwrap_or(tool), "name")
}

/// Returns the function of a tool in the current form.
fn function_of(tool: JsonValue<'_>) -> Option<JsonValue<'_>> {
    member(tool, "function")
}

fn member<'d>(object: JsonValue<'d>, name: &str) -> Option<JsonValue<'d>> {
    object.members().find(|(key, _)| key.equals_text(name)).map(|(_, value)| value)
}

fn check_declared(
    name: JsonValue<'_>,
    path: &FieldPath<'_>,
    tools: Option<JsonValue<'_>>,
) -> Result<(), ApiError> {
    let text = name.text();
    let is_declared =
        tools.is_some_and(|tools| tools.items().filter_map(name_of).any(|tool| tool.equals_text(&text)));
    if is_declared {
        Ok(())
    } else {
        Err(path.invalid_error("expected the name of one of the declared tools"))
    }
}

/// Removes the tools that the choice does not allow, and replaces the choice by its mode.
fn apply_allowed_tools<'d>(
    choice: JsonValue<'d>,
    allowed: JsonValue<'d>,
    allowed_path: &FieldPath<'_>,
    declared: Option<JsonValue<'d>>,
    found: &mut ChatFindings,
) -> Result<(), ApiError> {
    let [mode, tools] = read::read_named_members(allowed, allowed_path, ["mode", "tools"])?;
    let mode_path = allowed_path.member("mode");
    let words = &["auto", "required"];
    let mode = read::require_member(mode, &mode_path, read::QuotedAlternatives(words))?;
    let mode = read::read_keyword(mode, &mode_path, words)?;
    let tools_path = allowed_path.member("tools");
    let tools =
        read::require_array(read::require_member(tools, &tools_path, "an array of tools")?, &tools_path)?;
    let names: HashSet<Cow<'_, str>> =
        declared.iter().flat_map(JsonValue::items).filter_map(name_of).map(|name| name.text()).collect();
    let mut retained = HashSet::new();
    for (index, item) in tools.items().enumerate() {
        let path = tools_path.item(index);
        let [kind, function] = read::read_named_members(item, &path, ["type", "function"])?;
        kind.map(|kind| check_function_type(kind, &path.member("type"))).transpose()?;
        let path = path.member("function");
        let [name] =
            read::read_named_members(read::require_member(function, &path, "an object")?, &path, ["name"])?;
        let path = path.member("name");
        let name = read::require_text_member(name, &path)?.text();
        if !names.contains(&name) {
            return Err(path.invalid_error("expected the name of one of the declared tools"));
        }
        retained.insert(name);
    }
    if retained.is_empty() {
        return Err(tools_path.invalid_error("expected at least one tool"));
    }
    if let Some(declared) = declared {
        let is_retained = |tool| name_of(tool).is_some_and(|name| retained.contains(&name.text()));
        found.edits.retain_items(declared, is_retained);
        found.cache_markers.remove_tools(&declared.items().map(is_retained).collect::<Vec<_>>());
    }
    found.edits.replace(choice.range(), format!("\"{mode}\""));
    Ok(())
}
