//! Validation of `tools`: functions, custom tools, and namespaces that contain functions and custom tools. Tools that
//! run on the servers of a vendor are refused by name.

use super::chat_body::ChatBodyWriter;
use super::function_name::qualified_tool_name;
use crate::body::RootObject;
use crate::field_path::{FieldPath, quotable_name};
use crate::limits::RequestLimits;
use crate::read;
use crate::tool_callers::check_allowed_callers;
use penstock_core::{ApiError, MappedTool};
use penstock_json_scan::tape::JsonValue;
use std::borrow::Cow;
use std::collections::HashMap;

/// Tool that the request declares and the client runs.
#[derive(Debug)]
pub(super) struct DeclaredTool<'d> {
    pub(super) namespace: Option<JsonValue<'d>>,
    pub(super) name: JsonValue<'d>,
    description: Option<JsonValue<'d>>,
    pub(super) kind: ToolKind<'d>,
}

/// Kind of tool.
#[derive(Debug)]
pub(super) enum ToolKind<'d> {
    /// Function, with its `parameters` and `strict` if they are present.
    Function { parameters: Option<JsonValue<'d>>, strict: Option<JsonValue<'d>> },
    /// Tool whose input is free text, with the syntax and the definition of its grammar if it has one.
    Custom { grammar: Option<(&'static str, JsonValue<'d>)> },
}

/// Tools that the request declares.
#[derive(Debug, Default)]
pub(super) struct DeclaredTools<'d> {
    /// Tools in the order of the request.
    list: Vec<DeclaredTool<'d>>,
    /// Positions in the list, by the name of the function.
    positions: HashMap<Cow<'d, str>, usize>,
}

/// Validates `tools` and returns the declared tools.
pub(super) fn read_tools<'d>(
    top: &RootObject<'d>,
    limits: &RequestLimits,
) -> Result<DeclaredTools<'d>, ApiError> {
    let mut tools = DeclaredTools::default();
    let path = top.member_path("tools");
    let Some(list) = top.get("tools") else { return Ok(tools) };
    for (index, tool) in read::require_array(list, &path)?.items().enumerate() {
        tools.read_tool(tool, &path.item(index), None)?;
        if tools.list.len() > limits.max_tools {
            return Err(path.invalid_error(format_args!("expected at most {} tools", limits.max_tools)));
        }
    }
    Ok(tools)
}

/// Checks the members that state the caller of a tool and the time of the call. Only direct calls by the model are
/// supported, and the model waits for the output.
fn check_callers(tool: JsonValue<'_>, path: &FieldPath<'_>) -> Result<(), ApiError> {
    let names = ["allowed_callers", "async", "defer_loading"];
    let [callers, is_async, defer_loading] = read::read_named_members(tool, path, names)?;
    read::read_optional_bool(defer_loading, &path.member("defer_loading"))?;
    if read::read_optional_bool(is_async, &path.member("async"))? == Some(true) {
        return Err(path.member("async").unsupported_error("the model waits for the output of each tool"));
    }
    check_allowed_callers(callers, path)
}

impl<'d> DeclaredTools<'d> {
    fn read_tool(
        &mut self,
        tool: JsonValue<'d>,
        tool_path: &FieldPath<'_>,
        namespace: Option<JsonValue<'d>>,
    ) -> Result<(), ApiError> {
        let names = ["type", "name", "description", "parameters", "strict", "format", "tools"];
        let [kind, name, description, parameters, strict, format, tools] =
            read::read_named_members(tool, tool_path, names)?;
        check_callers(tool, tool_path)?;
        let path = tool_path.member("type");
        let kind =
            read::require_string(read::require_member(kind, &path, "\"function\" or \"custom\"")?, &path)?;
        let is_namespace = kind.equals_text("namespace") && namespace.is_none();
        if !is_namespace && !kind.equals_text("function") && !kind.equals_text("custom") {
            return Err(unsupported_type(&kind, &path));
        }
        let path = tool_path.member("name");
        let name = read::require_name_member(name, &path, "a string")?;
        description.map(|text| read::require_string(text, &tool_path.member("description"))).transpose()?;
        if is_namespace {
            let path = tool_path.member("tools");
            let tools = read::require_array(read::require_member(tools, &path, "an array of tools")?, &path)?;
            for (index, tool) in tools.items().enumerate() {
                self.read_tool(tool, &path.item(index), Some(name))?;
            }
            return Ok(());
        }
        let kind = if kind.equals_text("custom") {
            ToolKind::Custom { grammar: read_grammar(format, &tool_path.member("format"))? }
        } else {
            parameters
                .map(|schema| read::check_object(schema, &tool_path.member("parameters")))
                .transpose()?;
            read::read_optional_bool(strict, &tool_path.member("strict"))?;
            ToolKind::Function { parameters, strict }
        };
        let tool = DeclaredTool { namespace, name, description, kind };
        if self.positions.insert(tool.function_name(), self.list.len()).is_some() {
            return Err(path.invalid_error("another tool has the same name"));
        }
        self.list.push(tool);
        Ok(())
    }

    /// Returns the declared tool with this namespace and name.
    pub(super) fn find_tool(
        &self,
        namespace: Option<JsonValue<'d>>,
        name: JsonValue<'d>,
    ) -> Option<&DeclaredTool<'d>> {
        self.list.get(*self.positions.get(&*self.function_name(namespace, name))?)
    }

    /// Returns the names of the functions that represent the tools of a namespace; none for an unknown namespace.
    pub(super) fn functions_of_namespace(&self, name: JsonValue<'d>) -> Vec<Cow<'d, str>> {
        let is_member =
            |tool: &&DeclaredTool<'d>| tool.namespace.is_some_and(|own| own.text() == name.text());
        self.list.iter().filter(is_member).map(DeclaredTool::function_name).collect()
    }

    /// Returns the name of the function that represents a tool in the request to the provider.
    pub(super) fn function_name(
        &self,
        namespace: Option<JsonValue<'d>>,
        name: JsonValue<'d>,
    ) -> Cow<'d, str> {
        qualified_tool_name(namespace.map(|namespace| namespace.text()), name.text())
    }

    /// Returns true if there are no tools.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the tools whose calls must be converted back for the client: custom tools, tools in a namespace, and
    /// tools whose function has another name than the tool, because the name of the tool is too long.
    pub(super) fn mapped_tools(&self) -> Vec<MappedTool> {
        let special = |tool: &&DeclaredTool<'d>| {
            tool.namespace.is_some() || tool.is_custom() || tool.function_name() != tool.name.text()
        };
        let convert = |tool: &DeclaredTool<'d>| MappedTool {
            function_name: tool.function_name().into(),
            name: tool.name.text().into(),
            namespace: tool.namespace.map(|namespace| namespace.text().into()),
            is_custom: tool.is_custom(),
        };
        self.list.iter().filter(special).map(convert).collect()
    }

    /// Writes the member `tools` of the chat request.
    pub(super) fn write(&self, out: &mut ChatBodyWriter) {
        if self.list.is_empty() {
            return;
        }
        out.write_member("tools", "[");
        for (at, tool) in self.list.iter().enumerate() {
            out.write_raw_json(if at == 0 { "" } else { "," });
            tool.write(out);
        }
        out.write_raw_json("]");
    }
}

fn unsupported_type(kind: &JsonValue<'_>, path: &FieldPath<'_>) -> ApiError {
    match quotable_name(kind) {
        Some(name) => path.unsupported_error(format_args!(
            "the tool \"{name}\" is not offered; declare a tool of type \"function\" or \"custom\" and run it yourself"
        )),
        None => path.unsupported_error("expected a tool of type \"function\" or \"custom\""),
    }
}

/// Validates `format` of a custom tool; returns the syntax and the definition of its grammar; `None` for plain text.
fn read_grammar<'d>(
    format: Option<JsonValue<'d>>,
    format_path: &FieldPath<'_>,
) -> Result<Option<(&'static str, JsonValue<'d>)>, ApiError> {
    let Some(format) = format else { return Ok(None) };
    let [kind, syntax, definition] =
        read::read_named_members(format, format_path, ["type", "syntax", "definition"])?;
    let (path, words) = (format_path.member("type"), &["text", "grammar"]);
    let kind = read::require_member(kind, &path, read::QuotedAlternatives(words))?;
    if read::read_keyword(kind, &path, words)? == "text" {
        return Ok(None);
    }
    let (path, words) = (format_path.member("syntax"), &["lark", "regex"]);
    let syntax = read::read_keyword(
        read::require_member(syntax, &path, read::QuotedAlternatives(words))?,
        &path,
        words,
    )?;
    let path = format_path.member("definition");
    let definition = read::require_string(read::require_member(definition, &path, "a string")?, &path)?;
    Ok(Some((syntax, definition)))
}

impl<'d> DeclaredTool<'d> {
    /// Returns the name of the function that represents the tool in the request to the provider.
    pub(super) fn function_name(&self) -> Cow<'d, str> {
        qualified_tool_name(self.namespace.map(|namespace| namespace.text()), self.name.text())
    }

    /// Returns true for a custom tool.
    pub(super) const fn is_custom(&self) -> bool {
        matches!(self.kind, ToolKind::Custom { .. })
    }

    fn write(&self, out: &mut ChatBodyWriter) {
        out.write_raw_json(r#"{"type":"function","function":{"name":"#);
        out.write_string(&self.function_name());
        match &self.kind {
            ToolKind::Function { parameters, strict } => {
                let members =
                    [("description", self.description), ("parameters", *parameters), ("strict", *strict)];
                for (name, value) in members {
                    if let Some(value) = value {
                        out.write_key(name);
                        out.write_raw_json(value.raw());
                    }
                }
            }
            ToolKind::Custom { grammar } => self.write_custom(*grammar, out),
        }
        out.write_raw_json("}}");
    }

    /// Writes a custom tool as a function with one string parameter. Engines cannot apply a grammar to a parameter, so
    /// the grammar is part of the description, where the model reads it.
    fn write_custom(&self, grammar: Option<(&'static str, JsonValue<'d>)>, out: &mut ChatBodyWriter) {
        out.write_key("description");
        out.write_raw_json("\"");
        if let Some(description) = self.description {
            out.write_raw_json(description.raw_inner_text());
            out.write_raw_json(r"\n\n");
        }
        out.write_raw_json("The member `");
        out.write_raw_json(MappedTool::INPUT_MEMBER);
        out.write_raw_json("` holds the whole input of this tool as plain text.");
        if let Some((syntax, definition)) = grammar {
            out.write_raw_json(r"\nThe text must match this grammar (");
            out.write_raw_json(syntax);
            out.write_raw_json(r"):\n");
            out.write_raw_json(definition.raw_inner_text());
        }
        out.write_raw_json(r#"","parameters":{"type":"object","properties":{""#);
        out.write_raw_json(MappedTool::INPUT_MEMBER);
        out.write_raw_json(r#"":{"type":"string"}},"required":[""#);
        out.write_raw_json(MappedTool::INPUT_MEMBER);
        out.write_raw_json(r#""],"additionalProperties":false}"#);
    }
}
