//! Tool calls in the conversation, and the results that answer them.

use super::ChatFindings;
use crate::field_path::{FieldPath, quotable_name};
use crate::read;
use penstock_core::ApiError;
use penstock_json_scan::json;
use penstock_json_scan::tape::JsonValue;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Tool calls in the messages that were validated so far.
#[derive(Default)]
pub(super) struct SeenToolCalls<'d> {
    ids: HashSet<Cow<'d, str>>,
    /// Number of the last legacy call, by function name. Legacy calls have no id, so the gateway makes one from this
    /// number.
    legacy: HashMap<Cow<'d, str>, usize>,
    /// Number of legacy calls so far.
    count: usize,
}

impl<'d> SeenToolCalls<'d> {
    /// Validates the `tool_calls` of an assistant message, and records their ids.
    pub(super) fn validate_tool_calls(
        &mut self,
        calls: JsonValue<'d>,
        path: &FieldPath<'_>,
        found: &mut ChatFindings,
    ) -> Result<(), ApiError> {
        for (index, call) in read::require_array(calls, path)?.items().enumerate() {
            self.read_tool_call(call, &path.item(index), found)?;
        }
        Ok(())
    }

    fn read_tool_call(
        &mut self,
        call: JsonValue<'d>,
        call_path: &FieldPath<'_>,
        found: &mut ChatFindings,
    ) -> Result<(), ApiError> {
        let [id, kind, function] = read::read_named_members(call, call_path, ["id", "type", "function"])?;
        let id = read::require_text_member(id, &call_path.member("id"))?;
        match kind {
            Some(kind) if read::require_string(kind, &call_path.member("type"))?.equals_text("function") => {}
            Some(kind) => {
                let path = call_path.member("type");
                return Err(match quotable_name(&kind) {
                    Some(name) => path.unsupported_error(format_args!(
                        "only calls of type \"function\" are supported, not \"{name}\""
                    )),
                    None => path.unsupported_error("only calls of type \"function\" are supported"),
                });
            }
            None => found.edits.prepend_members(call, r#""type":"function","#),
        }
        let path = call_path.member("function");
        let function = read::require_member(function, &path, "an object")?;
        self::read_function(function, &path, found)?;
        found.edits.retain_members(call, |key, member| {
            !member.is_null() && ["id", "type", "function"].iter().any(|name| key.equals_text(name))
        });
        found
            .edits
            .retain_members(function, |key, _| key.equals_text("name") || key.equals_text("arguments"));
        self.ids.insert(id.text());
        Ok(())
    }

    /// Validates `tool_call_id` of a `tool` message.
    pub(super) fn check_result_id(
        &mut self,
        id: Option<JsonValue<'d>>,
        path: &FieldPath<'_>,
    ) -> Result<(), ApiError> {
        if self.ids.contains(&read::require_text_member(id, path)?.text()) {
            return Ok(());
        }
        Err(path.invalid_error("expected the id of a tool call of an earlier assistant message"))
    }

    /// Converts the legacy `function_call` of an assistant message to `tool_calls`.
    pub(super) fn convert_function_call(
        &mut self,
        key: Option<JsonValue<'d>>,
        call: JsonValue<'d>,
        path: &FieldPath<'_>,
        found: &mut ChatFindings,
    ) -> Result<(), ApiError> {
        let name = self::read_function(call, path, found)?;
        self.legacy.insert(name.text(), self.count);
        if let Some(key) = key {
            found.edits.replace(key.range(), r#""tool_calls""#);
        }
        let before = format!(r#"[{{"id":"{}","type":"function","function":"#, legacy_id(self.count));
        found.edits.wrap(call, before, "}]");
        found.edits.retain_members(call, |key, _| key.equals_text("name") || key.equals_text("arguments"));
        self.count += 1;
        Ok(())
    }

    /// Returns the id of the call that a legacy `function` message answers: the last call of the function with this
    /// name.
    pub(super) fn legacy_result_id(
        &self,
        name: Option<JsonValue<'d>>,
        path: &FieldPath<'_>,
    ) -> Result<String, ApiError> {
        match self.legacy.get(&read::require_text_member(name, path)?.text()) {
            Some(count) => Ok(legacy_id(*count)),
            None => {
                Err(path
                    .invalid_error("expected the name of a function called by an earlier assistant message"))
            }
        }
    }
}

fn legacy_id(count: usize) -> String {
    format!("call_legacy_{count}")
}

/// Validates `{name, arguments}` of a call; returns the name. Missing arguments become an empty object, because
/// engines fail without arguments. If the arguments are an object instead of a string, they are replaced by the JSON
/// text of the object.
fn read_function<'d>(
    function: JsonValue<'d>,
    path: &FieldPath<'_>,
    found: &mut ChatFindings,
) -> Result<JsonValue<'d>, ApiError> {
    let [name, arguments] = read::read_named_members(function, path, ["name", "arguments"])?;
    match arguments {
        Some(object) if object.is_object() => {
            let mut text = Vec::with_capacity(object.raw().len() + 16);
            json::write_str(&mut text, object.raw());
            found.edits.replace(object.range(), text);
        }
        Some(arguments)
            if !read::has_call_arguments(read::require_string(arguments, &path.member("arguments"))?) =>
        {
            found.edits.replace(arguments.range(), EMPTY_ARGUMENTS);
        }
        Some(_) => {}
        None => match function.members().find(|(key, _)| key.equals_text("arguments")) {
            Some((_, null)) => found.edits.replace(null.range(), EMPTY_ARGUMENTS),
            None => found.edits.prepend_members(function, format!("\"arguments\":{EMPTY_ARGUMENTS},")),
        },
    }
    read::require_text_member(name, &path.member("name"))
}

/// Arguments that the gateway writes into a call that has none.
const EMPTY_ARGUMENTS: &str = r#""{}""#;
