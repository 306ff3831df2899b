//! Validation of `tools` and `tool_choice`, and of their legacy names.

use super::Findings;
use crate::body::Top;
use crate::json::Value;
use crate::limits::Limits;
use crate::path::{Path, speakable};
use crate::read;
use penstock_contract::{Fields, Refusal};
use std::borrow::Cow;
use std::collections::HashSet;

/// Validates the tools; returns the top-level members with legacy names replaced.
pub(super) fn tools(top: &Top<'_>, limits: &Limits, found: &mut Findings) -> Result<Fields, Refusal> {
    let mut fields = top.fields();
    let declared = top.get("tools").map(|tools| read::array(tools, &top.path("tools"))).transpose()?;
    let declared = declared.filter(|tools| !tools.is_hollow());
    let functions = top.get("functions").map(|list| read::array(list, &top.path("functions"))).transpose()?;
    let functions = functions.filter(|list| !list.is_hollow());
    found.needs.tools = declared.or(functions).is_some();
    match (declared, functions) {
        (Some(tools), None) => {
            each(tools, &top.path("tools"), limits, |tool, path| self::tool(tool, path, found))?
        }
        (None, Some(functions)) => {
            let path = top.path("functions");
            each(functions, &path, limits, |function, path| {
                self::function(function, path, found)?;
                found.edits.wrap(function, r#"{"type":"function","function":"#, "}");
                Ok(())
            })?;
            rename(top, &mut fields, ["functions", "tools"], found);
        }
        (Some(_), Some(_)) => {
            return Err(top.path("functions").wrong("expected either `tools` or `functions`, got both"));
        }
        (None, None) => {}
    }
    if let Some(choice) = top.get("tool_choice") {
        tool_choice(choice, &top.path("tool_choice"), declared, functions, found)?;
    } else if let Some(choice) = top.get("function_call") {
        function_call(choice, &top.path("function_call"), declared.or(functions), found)?;
        rename(top, &mut fields, ["function_call", "tool_choice"], found);
    }
    Ok(fields)
}

/// Renames a legacy member, in `fields` and in the body. A member that already has the new name can only be `null` or
/// empty; the two names are swapped.
fn rename(top: &Top<'_>, fields: &mut Fields, names: [&'static str; 2], found: &mut Findings) {
    let [old, new] = names;
    for (from, to) in [(old, new), (new, old)] {
        if let Some(key) = top.key(from) {
            found.edits.replace(key.range(), format!("\"{to}\""));
        }
    }
    for field in &mut fields.0 {
        if let Some(name) = [(old, new), (new, old)].iter().find(|(from, _)| &*field.name == *from) {
            field.name = name.1.into();
        }
    }
}

fn each<'d>(
    list: Value<'d>,
    at: &Path<'_>,
    limits: &Limits,
    mut read: impl FnMut(Value<'d>, &Path<'_>) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    for (index, item) in list.items().enumerate() {
        if index >= limits.max_tools {
            return Err(at.wrong(format_args!("expected at most {} tools", limits.max_tools)));
        }
        read(item, &at.index(index))?;
    }
    Ok(())
}

/// Validates `{type: "function", function: {…}}`.
fn tool(tool: Value<'_>, at: &Path<'_>, found: &mut Findings) -> Result<(), Refusal> {
    let [kind, function] = read::object(tool, at, ["type", "function"])?;
    match kind {
        Some(kind) => only_functions(kind, &at.key("type"))?,
        None => found.edits.prepend(tool, r#""type":"function","#),
    }
    let path = at.key("function");
    self::function(read::required(function, &path, "an object")?, &path, found)?;
    found.edits.keep_members(tool, |key, member| !member.is_null() && (key.is("type") || key.is("function")));
    Ok(())
}

fn only_functions(kind: Value<'_>, at: &Path<'_>) -> Result<(), Refusal> {
    if read::string(kind, at)?.is("function") {
        return Ok(());
    }
    Err(match speakable(&kind) {
        Some(name) => at.unsupported(format_args!("only \"function\" is supported, not \"{name}\"")),
        None => at.unsupported("only \"function\" is supported"),
    })
}

/// Maximum length of a tool name, in bytes.
const MAX_NAME: usize = 256;

fn function(function: Value<'_>, at: &Path<'_>, found: &mut Findings) -> Result<(), Refusal> {
    let [name, description, parameters, strict] =
        read::object(function, at, ["name", "description", "parameters", "strict"])?;
    let path = at.key("name");
    if read::name(name, &path)?.body().len() > MAX_NAME {
        return Err(path.wrong(format_args!("expected a string of at most {MAX_NAME} bytes")));
    }
    description.map(|text| read::string(text, &at.key("description"))).transpose()?;
    parameters.map(|schema| read::any_object(schema, &at.key("parameters"))).transpose()?;
    read::flag(strict, &at.key("strict"))?;
    let known = ["name", "description", "parameters", "strict"];
    found
        .edits
        .keep_members(function, |key, member| !member.is_null() && known.iter().any(|name| key.is(name)));
    Ok(())
}

const CHOICES: &[&str] = &["auto", "none", "required"];

fn tool_choice<'d>(
    choice: Value<'d>,
    at: &Path<'_>,
    declared: Option<Value<'d>>,
    functions: Option<Value<'d>>,
    found: &mut Findings,
) -> Result<(), Refusal> {
    if choice.is_string() {
        if read::one_of(choice, at, CHOICES)? == "required" && declared.or(functions).is_none() {
            return Err(at.wrong("\"required\" needs `tools`"));
        }
        return Ok(());
    }
    if !choice.is_object() {
        return Err(at.expected(format_args!("{} or an object", read::Alternatives(CHOICES)), choice.kind()));
    }
    let [kind, function, allowed] = read::object(choice, at, ["type", "function", "allowed_tools"])?;
    let kind_path = at.key("type");
    let kind = read::required(kind, &kind_path, "\"function\"")?;
    if read::string(kind, &kind_path)?.is("allowed_tools") {
        let path = at.key("allowed_tools");
        return allowed_tools(choice, read::required(allowed, &path, "an object")?, &path, declared, found);
    }
    only_functions(kind, &kind_path)?;
    let path = at.key("function");
    let [name] = read::object(read::required(function, &path, "an object")?, &path, ["name"])?;
    let path = path.key("name");
    is_declared(read::name(name, &path)?, &path, declared.or(functions))
}

/// Validates the legacy `function_call`: a keyword, or `{name}`.
fn function_call<'d>(
    choice: Value<'d>,
    at: &Path<'_>,
    declared: Option<Value<'d>>,
    found: &mut Findings,
) -> Result<(), Refusal> {
    let words = &["auto", "none"];
    if choice.is_string() {
        return read::one_of(choice, at, words).map(|_| ());
    }
    if !choice.is_object() {
        return Err(at.expected(format_args!("{} or an object", read::Alternatives(words)), choice.kind()));
    }
    let [name] = read::object(choice, at, ["name"])?;
    let path = at.key("name");
    is_declared(read::name(name, &path)?, &path, declared)?;
    found.edits.wrap(choice, r#"{"type":"function","function":"#, "}");
    Ok(())
}

/// Name of a validated tool in either form.
fn name_of<'d>(tool: Value<'d>) -> Option<Value<'d>> {
    let member = |object: Value<'d>, name| {
        object.members().find(|(key, _): &(Value<'d>, Value<'d>)| key.is(name)).map(|(_, value)| value)
    };
    member(member(tool, "function").unwrap_or(tool), "name")
}

fn is_declared(name: Value<'_>, at: &Path<'_>, tools: Option<Value<'_>>) -> Result<(), Refusal> {
    let text = name.text();
    let is_declared = tools.is_some_and(|tools| tools.items().filter_map(name_of).any(|tool| tool.is(&text)));
    if is_declared { Ok(()) } else { Err(at.wrong("expected the name of one of the declared tools")) }
}

/// Removes the tools that are not allowed, and replaces the choice by its mode.
fn allowed_tools<'d>(
    choice: Value<'d>,
    allowed: Value<'d>,
    at: &Path<'_>,
    declared: Option<Value<'d>>,
    found: &mut Findings,
) -> Result<(), Refusal> {
    let [mode, tools] = read::object(allowed, at, ["mode", "tools"])?;
    let mode_path = at.key("mode");
    let words = &["auto", "required"];
    let mode = read::required(mode, &mode_path, read::Alternatives(words))?;
    let mode = read::one_of(mode, &mode_path, words)?;
    let tools_path = at.key("tools");
    let tools = read::array(read::required(tools, &tools_path, "an array of tools")?, &tools_path)?;
    let names: HashSet<Cow<'_, str>> =
        declared.iter().flat_map(Value::items).filter_map(name_of).map(|name| name.text()).collect();
    let mut kept = HashSet::new();
    for (index, item) in tools.items().enumerate() {
        let path = tools_path.index(index);
        let [kind, function] = read::object(item, &path, ["type", "function"])?;
        kind.map(|kind| only_functions(kind, &path.key("type"))).transpose()?;
        let path = path.key("function");
        let [name] = read::object(read::required(function, &path, "an object")?, &path, ["name"])?;
        let path = path.key("name");
        let name = read::name(name, &path)?.text();
        if !names.contains(&name) {
            return Err(path.wrong("expected the name of one of the declared tools"));
        }
        kept.insert(name);
    }
    if kept.is_empty() {
        return Err(tools_path.wrong("expected at least one tool"));
    }
    if let Some(declared) = declared {
        found
            .edits
            .keep_items(declared, |tool| name_of(tool).is_some_and(|name| kept.contains(&name.text())));
    }
    found.edits.replace(choice.range(), format!("\"{mode}\""));
    Ok(())
}
