//! Rules for the events of one output item.
#![allow(clippy::indexing_slicing, reason = "an absent member of a JSON value reads as null")]

use super::{CheckResult, ensure, text};
use serde_json::Value;

/// Types of items, with the prefix of their ids.
const ITEM_TYPES: &[(&str, &str)] =
    &[("message", "msg_"), ("reasoning", "rs_"), ("function_call", "fc_"), ("custom_tool_call", "ctc_")];

/// Part of a message or of reasoning.
#[derive(Debug)]
struct CheckedPart {
    kind: String,
    text: String,
    /// True after the event that closes the text of the part.
    has_text_end: bool,
    is_closed: bool,
}

/// State of an output item after the events so far.
#[derive(Debug)]
pub(super) struct CheckedItem {
    pub(super) id: String,
    kind: String,
    parts: Vec<CheckedPart>,
    /// Arguments or input of a call.
    arguments: String,
    has_arguments_end: bool,
    /// Complete item as given in its closing event; `None` before that event.
    pub(super) finished: Option<Value>,
}

/// Returns the member that holds the text of a part or of a closing event.
fn text_member(kind: &str) -> &'static str {
    if kind == "refusal" { "refusal" } else { "text" }
}

/// Returns the type of the part to which an event of this name belongs, and true if the event ends the part's text;
/// `None` for other events.
fn part_of_event(name: &str) -> Option<(&'static str, bool)> {
    Some(match name {
        "response.output_text.delta" => ("output_text", false),
        "response.output_text.done" => ("output_text", true),
        "response.refusal.delta" => ("refusal", false),
        "response.refusal.done" => ("refusal", true),
        "response.reasoning_text.delta" => ("reasoning_text", false),
        "response.reasoning_text.done" => ("reasoning_text", true),
        "response.reasoning_summary_text.delta" => ("summary_text", false),
        "response.reasoning_summary_text.done" => ("summary_text", true),
        _ => return None,
    })
}

/// Checks an item of a finished response.
pub(super) fn check_finished(item: &Value) -> CheckResult {
    let kind = text(item, "type");
    let (_, prefix) = ITEM_TYPES.iter().find(|(name, _)| *name == kind).ok_or("unknown type of item")?;
    ensure(text(item, "id").starts_with(prefix), "the id does not fit the type")?;
    ensure(matches!(text(item, "status"), "completed" | "incomplete"), "status of a finished item")?;
    match kind {
        "message" => {
            ensure(text(item, "role") == "assistant", "role must be assistant")?;
            let parts = item["content"].as_array().ok_or("no content")?;
            for part in parts {
                let kind = text(part, "type");
                ensure(matches!(kind, "output_text" | "refusal"), "unknown part")?;
                let part_text = part[text_member(kind)].as_str().ok_or("a part needs its text")?;
                ensure(!part_text.is_empty() || parts.len() == 1, "an empty part beside others")?;
                ensure(kind == "refusal" || part["annotations"].is_array(), "annotations")?;
            }
            Ok(())
        }
        "reasoning" => ensure(item["summary"].is_array(), "reasoning needs a summary"),
        _ => {
            let member = if kind == "function_call" { "arguments" } else { "input" };
            ensure(
                !text(item, "call_id").is_empty() && !text(item, "name").is_empty(),
                "id and name of a call",
            )?;
            ensure(item[member].is_string(), "a call needs its arguments")
        }
    }
}

impl CheckedItem {
    /// Checks the item of an opening event, and returns its state.
    pub(super) fn open(item: &Value) -> Result<Self, String> {
        let kind = text(item, "type");
        let (_, prefix) = ITEM_TYPES.iter().find(|(name, _)| *name == kind).ok_or("unknown type of item")?;
        ensure(text(item, "id").starts_with(prefix), "the id does not fit the type")?;
        ensure(text(item, "status") == "in_progress", "an open item is in progress")?;
        let is_empty = |name: &str| match &item[name] {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(parts) => parts.is_empty(),
            _ => false,
        };
        let empty = ["content", "summary", "arguments", "input"].iter().all(|name| is_empty(name));
        ensure(empty, "an open item has no content yet")?;
        if kind.ends_with("_call") {
            ensure(
                !text(item, "call_id").is_empty() && !text(item, "name").is_empty(),
                "id and name of a call",
            )?;
        }
        Ok(Self {
            id: text(item, "id").to_owned(),
            kind: kind.to_owned(),
            parts: Vec::new(),
            arguments: String::new(),
            has_arguments_end: false,
            finished: None,
        })
    }

    /// Checks that an event about this item is allowed in its present state.
    pub(super) fn check_event(&mut self, name: &str, data: &Value) -> CheckResult {
        ensure(self.finished.is_none(), "the item is closed")?;
        if name == "response.output_item.done" {
            return self.check_done(&data["item"]);
        }
        ensure(text(data, "item_id") == self.id, "item_id differs")?;
        match name {
            "response.content_part.added" => self.open_part(data, "content_index"),
            "response.reasoning_summary_part.added" => self.open_part(data, "summary_index"),
            "response.content_part.done" => self.close_part(data, "content_index"),
            "response.reasoning_summary_part.done" => self.close_part(data, "summary_index"),
            "response.function_call_arguments.delta" => self.push_arguments("function_call", data),
            "response.custom_tool_call_input.delta" => self.push_arguments("custom_tool_call", data),
            "response.function_call_arguments.done" => {
                self.end_arguments("function_call", &data["arguments"])
            }
            "response.custom_tool_call_input.done" => self.end_arguments("custom_tool_call", &data["input"]),
            _ => {
                let (kind, is_end) = part_of_event(name).ok_or("unknown event")?;
                self.check_text(kind, is_end, data)
            }
        }
    }

    fn open_part(&mut self, data: &Value, position: &str) -> CheckResult {
        ensure(data[position].as_u64() == Some(self.parts.len() as u64), "position of the part")?;
        ensure(self.parts.last().is_none_or(|part| part.is_closed), "another part is open")?;
        let kind = text(&data["part"], "type");
        let fits = match self.kind.as_str() {
            "message" => matches!(kind, "output_text" | "refusal"),
            "reasoning" => matches!(kind, "reasoning_text" | "summary_text") && self.parts.is_empty(),
            _ => false,
        };
        ensure(fits, "the part does not fit the item")?;
        ensure(data["part"][text_member(kind)] == "", "a part starts empty")?;
        self.parts.push(CheckedPart {
            kind: kind.to_owned(),
            text: String::new(),
            has_text_end: false,
            is_closed: false,
        });
        Ok(())
    }

    fn check_text(&mut self, kind: &str, is_end: bool, data: &Value) -> CheckResult {
        let position = if kind == "summary_text" { "summary_index" } else { "content_index" };
        let last = self.parts.len().checked_sub(1).ok_or("no part is open")? as u64;
        ensure(data[position].as_u64() == Some(last), "position of the part")?;
        let part = self.parts.last_mut().ok_or("no part is open")?;
        ensure(part.kind == kind && !part.has_text_end, "the part is of another type, or closed")?;
        if kind == "output_text" {
            ensure(data["logprobs"].is_array(), "logprobs must be a list")?;
        }
        if is_end {
            part.has_text_end = true;
            return ensure(text(data, text_member(kind)) == part.text, "the text differs from its deltas");
        }
        part.text.push_str(data["delta"].as_str().ok_or("no delta")?);
        Ok(())
    }

    fn close_part(&mut self, data: &Value, position: &str) -> CheckResult {
        let last = self.parts.len().checked_sub(1).ok_or("no part is open")? as u64;
        ensure(data[position].as_u64() == Some(last), "position of the part")?;
        let part = self.parts.last_mut().ok_or("no part is open")?;
        ensure(part.has_text_end && !part.is_closed, "a part closes once, after its text")?;
        part.is_closed = true;
        ensure(text(&data["part"], "type") == part.kind, "the type of the part changes")?;
        ensure(text(&data["part"], text_member(&part.kind)) == part.text, "the part differs from its deltas")
    }

    fn push_arguments(&mut self, kind: &str, data: &Value) -> CheckResult {
        ensure(self.kind == kind && !self.has_arguments_end, "arguments of another item")?;
        let delta = data["delta"].as_str().ok_or("no delta")?;
        ensure(!delta.is_empty(), "an empty delta")?;
        self.arguments.push_str(delta);
        Ok(())
    }

    fn end_arguments(&mut self, kind: &str, value: &Value) -> CheckResult {
        ensure(self.kind == kind && !self.has_arguments_end, "arguments of another item")?;
        self.has_arguments_end = true;
        ensure(value.as_str() == Some(&self.arguments), "the arguments differ from their deltas")
    }

    fn check_done(&mut self, item: &Value) -> CheckResult {
        check_finished(item)?;
        ensure(text(item, "id") == self.id && text(item, "type") == self.kind, "id and type change")?;
        ensure(self.parts.iter().all(|part| part.is_closed), "a part is open")?;
        let parts = match self.kind.as_str() {
            "message" => item["content"].as_array().cloned(),
            "reasoning" => {
                let [content, summary] = ["content", "summary"].map(|name| item[name].as_array().cloned());
                content.filter(|parts| !parts.is_empty()).or(summary)
            }
            _ => {
                ensure(self.has_arguments_end, "the arguments have no end")?;
                let member = if self.kind == "function_call" { "arguments" } else { "input" };
                ensure(text(item, member) == self.arguments, "the arguments differ from their deltas")?;
                None
            }
        };
        if !self.kind.ends_with("_call") {
            let parts = parts.unwrap_or_default();
            ensure(!parts.is_empty() && parts.len() == self.parts.len(), "parts without events")?;
            let same = |(part, seen): (&Value, &CheckedPart)| {
                text(part, "type") == seen.kind && text(part, text_member(&seen.kind)) == seen.text
            };
            ensure(parts.iter().zip(&self.parts).all(same), "the parts differ from their events")?;
        }
        self.finished = Some(item.clone());
        Ok(())
    }
}
