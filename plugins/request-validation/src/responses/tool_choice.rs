//! Validation of `tool_choice` in all its forms.

use super::chat_body::ChatBodyWriter;
use super::tools::DeclaredTools;
use crate::body::RootObject;
use crate::field_path::{FieldPath, quotable_name};
use crate::read;
use penstock_core::ApiError;
use penstock_json_scan::tape::JsonValue;
use std::borrow::Cow;
use std::collections::HashSet;

const WORDS: &[&str] = &["auto", "none", "required"];

/// Validated value of `tool_choice`.
#[derive(Debug)]
pub(super) enum ToolChoice<'d> {
    /// Request without `tool_choice`.
    Absent,
    /// `auto`, `none` or `required`.
    Mode(&'static str),
    /// Choice of one tool, by the name of its function.
    Tool(Cow<'d, str>),
    /// Choice restricted to some of the tools, of which the model may or must call one, depending on `mode`.
    Allowed { mode: &'static str, functions: Vec<Cow<'d, str>> },
}

/// Validates `tool_choice` and returns its value.
pub(super) fn read_tool_choice<'d>(
    top: &RootObject<'d>,
    tools: &DeclaredTools<'d>,
) -> Result<ToolChoice<'d>, ApiError> {
    let path = top.member_path("tool_choice");
    let Some(choice) = top.get("tool_choice") else { return Ok(ToolChoice::Absent) };
    if choice.is_string() {
        let word = read::read_keyword(choice, &path, WORDS)?;
        if word == "required" && tools.is_empty() {
            return Err(path.invalid_error("\"required\" needs `tools`"));
        }
        return Ok(ToolChoice::Mode(word));
    }
    if !choice.is_object() {
        let expected = format_args!("{} or an object", read::QuotedAlternatives(WORDS)).to_string();
        return Err(path.unexpected_type_error(expected, choice.kind()));
    }
    let [kind, mode, allowed] = read::read_named_members(choice, &path, ["type", "mode", "tools"])?;
    if !kind.is_some_and(|kind| kind.equals_text("allowed_tools")) {
        return read_named_tool(choice, &path, tools).map(ToolChoice::Tool);
    }
    let (mode_path, modes) = (path.member("mode"), &["auto", "required"]);
    let mode = read::require_member(mode, &mode_path, read::QuotedAlternatives(modes))?;
    let mode = read::read_keyword(mode, &mode_path, modes)?;
    let path = path.member("tools");
    let list = read::require_array(read::require_member(allowed, &path, "an array of tools")?, &path)?;
    let (mut functions, mut namespaces) = (Vec::new(), HashSet::new());
    for (index, tool) in list.items().enumerate() {
        let tool_path = path.item(index);
        match read_namespace(tool, &tool_path, tools, &mut namespaces)? {
            Some(namespace) => functions.extend(namespace),
            None => functions.push(read_named_tool(tool, &tool_path, tools)?),
        }
    }
    if functions.is_empty() {
        return Err(path.invalid_error("expected at least one tool"));
    }
    Ok(ToolChoice::Allowed { mode, functions })
}

/// Reads `{"type": "namespace", "name": …}` in `allowed_tools`; returns the names of the functions of its tools, or
/// `None` for a value of another type. A namespace in `namespaces`, the ones that were read before, has none: its
/// repetition would multiply the request.
fn read_namespace<'d>(
    value: JsonValue<'d>,
    value_path: &FieldPath<'_>,
    tools: &DeclaredTools<'d>,
    namespaces: &mut HashSet<Cow<'d, str>>,
) -> Result<Option<Vec<Cow<'d, str>>>, ApiError> {
    let [kind, name] = read::read_named_members(value, value_path, ["type", "name"])?;
    if !kind.is_some_and(|kind| kind.equals_text("namespace")) {
        return Ok(None);
    }
    let path = value_path.member("name");
    let name = read::require_text_member(name, &path)?;
    if !namespaces.insert(name.text()) {
        return Ok(Some(Vec::new()));
    }
    let functions = tools.functions_of_namespace(name);
    if functions.is_empty() {
        return Err(path.invalid_error("expected the name of a declared namespace with tools"));
    }
    Ok(Some(functions))
}

/// Validates `{type, name}`; returns the name of the function.
fn read_named_tool<'d>(
    value: JsonValue<'d>,
    value_path: &FieldPath<'_>,
    tools: &DeclaredTools<'d>,
) -> Result<Cow<'d, str>, ApiError> {
    let [kind, namespace, name] = read::read_named_members(value, value_path, ["type", "namespace", "name"])?;
    let path = value_path.member("type");
    let kind = read::require_string(read::require_member(kind, &path, "\"function\" or \"custom\"")?, &path)?;
    let is_custom = kind.equals_text("custom");
    if !is_custom && !kind.equals_text("function") {
        return Err(match quotable_name(&kind) {
            Some(name) => path.unsupported_error(format_args!("the tool \"{name}\" is not offered")),
            None => path.unsupported_error("expected \"function\", \"custom\" or \"allowed_tools\""),
        });
    }
    let path = value_path.member("name");
    let name = read::require_text_member(name, &path)?;
    let tool = tools.find_tool(namespace, name).filter(|tool| tool.is_custom() == is_custom);
    match tool {
        Some(tool) => Ok(tool.function_name()),
        None => Err(path.invalid_error("expected the name of one of the declared tools of this type")),
    }
}

impl ToolChoice<'_> {
    /// Writes the member `tool_choice` of the chat request.
    pub(super) fn write(&self, out: &mut ChatBodyWriter) {
        match self {
            Self::Absent => {}
            Self::Mode(word) => out.write_string_member("tool_choice", word),
            Self::Tool(name) => {
                out.write_key("tool_choice");
                write_function(name, out);
            }
            Self::Allowed { mode, functions } => {
                out.write_member("tool_choice", r#"{"type":"allowed_tools","allowed_tools":{"mode":""#);
                out.write_raw_json(mode);
                out.write_raw_json(r#"","tools":["#);
                for (at, name) in functions.iter().enumerate() {
                    out.write_raw_json(if at == 0 { "" } else { "," });
                    write_function(name, out);
                }
                out.write_raw_json("]}}");
            }
        }
    }
}

fn write_function(name: &str, out: &mut ChatBodyWriter) {
    out.write_raw_json(r#"{"type":"function","function":{"name":"#);
    out.write_string(name);
    out.write_raw_json("}}");
}
