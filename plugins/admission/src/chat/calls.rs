//! Tool calls in the conversation, and the results that answer them.

use super::Findings;
use crate::json::Value;
use crate::path::{Path, speakable};
use crate::read;
use penstock_contract::Refusal;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Tool calls found so far.
#[derive(Default)]
pub(super) struct Calls<'d> {
    ids: HashSet<Cow<'d, str>>,
    /// Number of the last legacy call by function name; legacy calls have no id.
    legacy: HashMap<Cow<'d, str>, usize>,
    count: usize,
}

impl<'d> Calls<'d> {
    /// Validates `tool_calls` of an assistant message.
    pub(super) fn tool_calls(
        &mut self,
        calls: Value<'d>,
        at: &Path<'_>,
        found: &mut Findings,
    ) -> Result<(), Refusal> {
        for (index, call) in read::array(calls, at)?.items().enumerate() {
            self.tool_call(call, &at.index(index), found)?;
        }
        Ok(())
    }

    fn tool_call(&mut self, call: Value<'d>, at: &Path<'_>, found: &mut Findings) -> Result<(), Refusal> {
        let [id, kind, function] = read::object(call, at, ["id", "type", "function"])?;
        let id = read::name(id, &at.key("id"))?;
        match kind {
            Some(kind) if read::string(kind, &at.key("type"))?.is("function") => {}
            Some(kind) => {
                let name = speakable(&kind).unwrap_or_default();
                return Err(at.key("type").unsupported(format_args!(
                    "only calls of type \"function\" are supported, not \"{name}\""
                )));
            }
            None => found.edits.prepend(call, r#""type":"function","#),
        }
        let path = at.key("function");
        let function = read::required(function, &path, "an object")?;
        self::function(function, &path, found)?;
        found.edits.keep_members(call, |key, member| {
            !member.is_null() && ["id", "type", "function"].iter().any(|name| key.is(name))
        });
        found.edits.keep_members(function, |key, _| key.is("name") || key.is("arguments"));
        self.ids.insert(id.text());
        Ok(())
    }

    /// Validates `tool_call_id` of a `tool` message.
    pub(super) fn answered(&mut self, id: Option<Value<'d>>, at: &Path<'_>) -> Result<(), Refusal> {
        if self.ids.contains(&read::name(id, at)?.text()) {
            return Ok(());
        }
        Err(at.wrong("expected the id of a tool call of an earlier assistant message"))
    }

    /// Converts the legacy `function_call` of an assistant message to `tool_calls`.
    pub(super) fn function_call(
        &mut self,
        key: Option<Value<'d>>,
        call: Value<'d>,
        at: &Path<'_>,
        found: &mut Findings,
    ) -> Result<(), Refusal> {
        let name = self::function(call, at, found)?;
        self.legacy.insert(name.text(), self.count);
        if let Some(key) = key {
            found.edits.replace(key.range(), r#""tool_calls""#);
        }
        let before = format!(r#"[{{"id":"{}","type":"function","function":"#, legacy_id(self.count));
        found.edits.wrap(call, before, "}]");
        found.edits.keep_members(call, |key, _| key.is("name") || key.is("arguments"));
        self.count += 1;
        Ok(())
    }

    /// Id for a legacy `function` message: the id of the last call of this name.
    pub(super) fn function_answered(
        &self,
        name: Option<Value<'d>>,
        at: &Path<'_>,
    ) -> Result<String, Refusal> {
        match self.legacy.get(&read::name(name, at)?.text()) {
            Some(count) => Ok(legacy_id(*count)),
            None => Err(at.wrong("expected the name of a function called by an earlier assistant message")),
        }
    }
}

fn legacy_id(count: usize) -> String {
    format!("call_legacy_{count}")
}

/// Validates `{name, arguments}` of a call; returns the name. A call without arguments gets an empty object, because
/// engines fail without it.
fn function<'d>(function: Value<'d>, at: &Path<'_>, found: &mut Findings) -> Result<Value<'d>, Refusal> {
    let [name, arguments] = read::object(function, at, ["name", "arguments"])?;
    match arguments {
        Some(arguments) if read::string(arguments, &at.key("arguments"))?.is_blank() => {
            found.edits.replace(arguments.range(), NOTHING);
        }
        Some(_) => {}
        None => match function.members().find(|(key, _)| key.is("arguments")) {
            Some((_, null)) => found.edits.replace(null.range(), NOTHING),
            None => found.edits.prepend(function, format!("\"arguments\":{NOTHING},")),
        },
    }
    read::name(name, &at.key("name"))
}

/// Arguments of a call without any.
const NOTHING: &str = r#""{}""#;
