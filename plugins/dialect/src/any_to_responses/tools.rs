//! Tools of a request, and the tool choice. The members of a function are one level higher than in the chat dialect.

use crate::body_builder::BodyBuilder;
use crate::json_cursor;
use crate::tool_names::portable_tool_name;
use penstock_core::{AdjustableMember, ApiError, AttemptTarget, Dialect};

/// Schema of a function without parameters.
const NO_PARAMETERS: &[u8] = br#"{"type":"object","properties":{}}"#;

/// Writes the tools and the tool choice.
///
/// # Errors
/// Returns an error for a tool that is no function.
pub(super) fn write_tools(
    tools: Option<&[u8]>,
    choice: Option<&[u8]>,
    target: &AttemptTarget<'_>,
    out: &mut BodyBuilder<'_>,
) -> Result<(), ApiError> {
    let Some(tools) = tools else { return Ok(()) };
    out.push_str(r#","tools":["#);
    for (index, tool) in json_cursor::elements(tools).enumerate() {
        let function = json_cursor::member_value(tool, "function").ok_or_else(|| {
            let sentence = "Only tools of type `function` are supported.";
            ApiError::unsupported(format!("tools[{index}].type"), sentence)
        })?;
        out.push_str(if index > 0 { "," } else { "" });
        write_tool(function, target, out);
    }
    out.push_byte(b']');
    if let Some(choice) = choice {
        out.push_str(r#","tool_choice":"#);
        write_choice(choice, out);
    }
    Ok(())
}

/// Writes a function. The default of `strict` differs from the chat dialect, so `strict` is always written, unless the
/// provider rejects the member and the client did not set it.
fn write_tool(function: &[u8], target: &AttemptTarget<'_>, out: &mut BodyBuilder<'_>) {
    let member = |name| json_cursor::member_value(function, name);
    let default_strict = target.allows_member(AdjustableMember::Strict).then_some(&b"false"[..]);
    out.push_str(r#"{"type":"function""#);
    if let Some(name) = member("name") {
        out.push_str(r#","name":"#);
        write_name(name, out);
    }
    let parameters = member("parameters").unwrap_or(NO_PARAMETERS);
    let members = [
        ("description", member("description")),
        ("parameters", Some(parameters)),
        ("strict", member("strict").or(default_strict)),
    ];
    for (name, value) in members {
        if let Some(value) = value {
            out.push_byte(b',');
            out.push_json_string(name);
            out.push_byte(b':');
            out.push_source(value);
        }
    }
    out.push_byte(b'}');
}

fn write_choice(choice: &[u8], out: &mut BodyBuilder<'_>) {
    if let Some(allowed) = json_cursor::member_value(choice, "allowed_tools") {
        out.push_str(r#"{"type":"allowed_tools","mode":"#);
        out.push_source(json_cursor::member_value(allowed, "mode").unwrap_or(br#""auto""#));
        out.push_str(r#","tools":["#);
        let tools = json_cursor::member_value(allowed, "tools").unwrap_or_default();
        for (index, tool) in json_cursor::elements(tools).enumerate() {
            out.push_str(if index > 0 { "," } else { "" });
            write_function_name(tool, out);
        }
        out.push_str("]}");
    } else if json_cursor::is_object(choice) {
        write_function_name(choice, out);
    } else {
        out.push_source(choice);
    }
}

/// Writes a function choice `{"type":"function","function":{"name":…}}` as `{"type":"function","name":…}`.
fn write_function_name(choice: &[u8], out: &mut BodyBuilder<'_>) {
    let function = json_cursor::member_value(choice, "function").unwrap_or(choice);
    out.push_str(r#"{"type":"function","name":"#);
    write_name(json_cursor::member_value(function, "name").unwrap_or(br#""""#), out);
    out.push_byte(b'}');
}

/// Writes the name of a function, a JSON value, in the form that the provider accepts.
fn write_name(name: &[u8], out: &mut BodyBuilder<'_>) {
    match json_cursor::string_body(name) {
        Some(name) => {
            out.push_byte(b'"');
            out.push_source(&portable_tool_name(Dialect::Responses, name));
            out.push_byte(b'"');
        }
        None => out.push_source(name),
    }
}
