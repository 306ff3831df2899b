//! Validation of `tools` and `tool_choice`.

use super::Findings;
use crate::body::Top;
use crate::json::Value;
use crate::limits::Limits;
use crate::path::{Path, speakable};
use crate::read;
use penstock_contract::Refusal;

/// Maximum length of a tool name, in bytes.
const MAX_NAME: usize = 256;

/// Validates both members; returns true if parallel calls are allowed.
pub(super) fn tools(top: &Top<'_>, limits: &Limits, found: &mut Findings) -> Result<bool, Refusal> {
    let path = top.path("tools");
    let declared = top.get("tools").map(|tools| read::array(tools, &path)).transpose()?;
    let declared = declared.filter(|tools| !tools.is_hollow());
    for (index, tool) in declared.iter().flat_map(Value::items).enumerate() {
        if index >= limits.max_tools {
            return Err(path.wrong(format_args!("expected at most {} tools", limits.max_tools)));
        }
        self::tool(tool, &path.index(index))?;
    }
    found.needs.tools = declared.is_some();
    let Some(choice) = top.get("tool_choice") else { return Ok(true) };
    tool_choice(choice, &top.path("tool_choice"), declared)
}

fn tool(tool: Value<'_>, at: &Path<'_>) -> Result<(), Refusal> {
    let [kind, name, description, schema, strict] =
        read::object(tool, at, ["type", "name", "description", "input_schema", "strict"])?;
    if let Some(kind) = kind {
        let path = at.key("type");
        if !read::string(kind, &path)?.is("custom") {
            let name = speakable(&kind).unwrap_or_default();
            return Err(path.unsupported(format_args!(
                "the vendor's server tool \"{name}\" is not supported, only tools of your own"
            )));
        }
    }
    let path = at.key("name");
    if read::name(name, &path)?.body().len() > MAX_NAME {
        return Err(path.wrong(format_args!("expected a string of at most {MAX_NAME} bytes")));
    }
    description.map(|text| read::string(text, &at.key("description"))).transpose()?;
    read::flag(strict, &at.key("strict"))?;
    let path = at.key("input_schema");
    read::any_object(read::required(schema, &path, "a JSON schema")?, &path)
}

fn tool_choice(choice: Value<'_>, at: &Path<'_>, declared: Option<Value<'_>>) -> Result<bool, Refusal> {
    let [kind, name, single] = read::object(choice, at, ["type", "name", "disable_parallel_tool_use"])?;
    let words = &["auto", "any", "tool", "none"];
    let path = at.key("type");
    let kind = read::one_of(read::required(kind, &path, read::Alternatives(words))?, &path, words)?;
    if kind == "any" && declared.is_none() {
        return Err(path.wrong("\"any\" needs `tools`"));
    }
    if kind == "tool" {
        let path = at.key("name");
        let text = read::name(name, &path)?.text();
        if !declared.iter().flat_map(Value::items).any(|tool| is_named(tool, &text)) {
            return Err(path.wrong("expected the name of one of the declared tools"));
        }
    }
    let single = read::flag(single, &at.key("disable_parallel_tool_use"))?;
    Ok(!single.unwrap_or(false))
}

fn is_named(tool: Value<'_>, text: &str) -> bool {
    tool.members().any(|(key, value)| key.is("name") && value.is(text))
}
