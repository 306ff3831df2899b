//! Writer of the tools of a request and of the tool choice.

use super::content_blocks::write_cache_marker;
use super::request::write_object_schema;
use crate::body_builder::BodyBuilder;
use crate::json_cursor::{self, JsonCursor};
use crate::tool_names::portable_tool_name;
use penstock_core::{
    AdjustableMember, ApiError, AttemptTarget, CacheMarker, CachePosition, Dialect, InferenceRequest,
};
use penstock_json_scan::json;
use std::borrow::Cow;
use std::convert::Infallible;

/// Writes the tools and the tool choice. Writes nothing if the request has no tools.
pub(super) fn write_tools(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    out: &mut BodyBuilder<'_>,
) -> Result<(), ApiError> {
    let choice =
        ask.member_value("tool_choice").or_else(|| ask.member_value("function_call")).unwrap_or_default();
    let allowed = json_cursor::member_value(choice, "allowed_tools");
    if write_declared_tools(ask, allowed, CacheMarker::for_target(ask, target), out)? {
        let mode = allowed.and_then(|allowed| json_cursor::member_value(allowed, "mode")).unwrap_or(choice);
        write_tool_choice(choice, mode, ask.parallel_tools, target, out);
    }
    Ok(())
}

/// Writes the tools that the tool choice allows, and the legacy `functions`. Returns false, and writes nothing, if
/// there are none.
fn write_declared_tools(
    ask: &InferenceRequest,
    allowed: Option<&[u8]>,
    markers: &[CacheMarker],
    out: &mut BodyBuilder<'_>,
) -> Result<bool, ApiError> {
    let read = |name| json::unescape_lossy(name);
    let marker = |index| markers.iter().find(|marker| marker.position == CachePosition::Tool(index)).copied();
    let allowed_names: Option<Vec<Cow<'_, str>>> = allowed.map(|allowed| {
        let tools = json_cursor::elements(json_cursor::member_value(allowed, "tools").unwrap_or_default());
        tools.filter_map(|tool| function_name(tool).and_then(read)).collect()
    });
    let mut any = false;
    JsonCursor::new(ask.member_value("tools").unwrap_or_default()).visit_elements(|index, tool| {
        let tool = ChatToolDeclaration::parse(tool);
        if tool.tool_type.is_some_and(|kind| !json::escaped_text_equals(kind, "function")) {
            return Err(ApiError::unsupported(
                format!("tools[{index}].type"),
                "Only tools of type `function` are supported.",
            ));
        }
        let name = tool.function.name.and_then(json_cursor::parse_string);
        if allowed_names.as_ref().is_some_and(|names| name.is_none_or(|name| !names.contains(&name))) {
            return Ok(());
        }
        tool.function.write_tool(|| format!("tools[{index}].function"), marker(index), &mut any, out)
    })?;
    JsonCursor::new(ask.member_value("functions").unwrap_or_default()).visit_elements(
        |index, function| {
            let function = FunctionDefinition::parse(function);
            function.write_tool(|| format!("functions[{index}]"), marker(index), &mut any, out)
        },
    )?;
    if any {
        out.push_byte(b']');
    }
    Ok(any)
}

/// Writes the tool choice, with the limit to one call. `mode` is the mode of the allowed tools, or else `choice`
/// itself.
fn write_tool_choice(
    choice: &[u8],
    mode: &[u8],
    parallel_tools: bool,
    target: &AttemptTarget<'_>,
    out: &mut BodyBuilder<'_>,
) {
    let one = if parallel_tools || !target.allows_member(AdjustableMember::ParallelTools) {
        "}"
    } else {
        r#","disable_parallel_tool_use":true}"#
    };
    match (json_cursor::parse_string(mode).as_deref(), function_name(choice)) {
        (Some("none"), _) => out.push_str(r#","tool_choice":{"type":"none"}"#),
        (Some("required"), _) => {
            out.push_str(r#","tool_choice":{"type":"any""#);
            out.push_str(one);
        }
        (_, Some(name)) => {
            out.push_str(r#","tool_choice":{"type":"tool","name":""#);
            out.push_source(&portable_tool_name(Dialect::Messages, name));
            out.push_byte(b'"');
            out.push_str(one);
        }
        _ if !target.allows_member(AdjustableMember::ToolChoice) => {}
        _ => {
            out.push_str(r#","tool_choice":{"type":"auto""#);
            out.push_str(one);
        }
    }
}

/// Returns the function's name in `{"function":{"name":…}}` or `{"name":…}`.
fn function_name(choice: &[u8]) -> Option<&[u8]> {
    json_cursor::member_value(json_cursor::member_value(choice, "function").unwrap_or(choice), "name")
        .and_then(json_cursor::string_body)
}

/// Tool that a chat request declares: an element of `tools`.
#[derive(Default)]
struct ChatToolDeclaration<'a> {
    tool_type: Option<&'a [u8]>,
    function: FunctionDefinition<'a>,
}

impl<'a> ChatToolDeclaration<'a> {
    fn parse(tool: &mut JsonCursor<'a>) -> Self {
        let mut seen = Self::default();
        let Ok(()) = tool.visit_members::<Infallible>(|key, value| {
            match key {
                "type" => seen.tool_type = json_cursor::string_body(value.take_value()),
                "function" => seen.function = FunctionDefinition::parse(value),
                _ => {}
            }
            Ok(())
        });
        seen
    }
}

/// Function definition, with its values as slices of JSON in the request.
#[derive(Default)]
struct FunctionDefinition<'a> {
    name: Option<&'a [u8]>,
    description: Option<&'a [u8]>,
    parameters: Option<&'a [u8]>,
    strict: Option<&'a [u8]>,
}

impl<'a> FunctionDefinition<'a> {
    fn parse(function: &mut JsonCursor<'a>) -> Self {
        let mut seen = Self::default();
        let Ok(()) = function.visit_members::<Infallible>(|key, value| {
            let slot = match key {
                "name" => &mut seen.name,
                "description" => &mut seen.description,
                "parameters" => &mut seen.parameters,
                "strict" => &mut seen.strict,
                _ => return Ok(()),
            };
            *slot = Some(value.take_value()).filter(|value| !json_cursor::is_null(value));
            Ok(())
        });
        seen
    }

    /// Writes the function as a tool, with a marker of the prompt cache; `path` is its path.
    fn write_tool(
        &self,
        path: impl Fn() -> String,
        marker: Option<CacheMarker>,
        any: &mut bool,
        out: &mut BodyBuilder<'_>,
    ) -> Result<(), ApiError> {
        let name = self.name.and_then(json_cursor::string_body).ok_or_else(|| {
            ApiError::invalid(format!("{}.name", path()), "A function needs a string `name`.")
        })?;
        out.push_str(if std::mem::replace(any, true) { r#",{"name":""# } else { r#","tools":[{"name":""# });
        out.push_source(&portable_tool_name(Dialect::Messages, name));
        out.push_byte(b'"');
        if let Some(description) = self.description {
            out.push_str(r#","description":"#);
            out.push_source(description);
        }
        out.push_str(r#","input_schema":"#);
        write_object_schema(self.parameters.unwrap_or(br#"{"type":"object","properties":{}}"#), out);
        if let Some(strict) = self.strict {
            out.push_str(r#","strict":"#);
            out.push_source(strict);
        }
        write_cache_marker(marker, out);
        out.push_byte(b'}');
        Ok(())
    }
}
