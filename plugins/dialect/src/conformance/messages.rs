//! Conformance checker of a messages stream, as strict as the strictest client.
//!
//! The checker is a state machine over complete streams. Every examined client library accepts a stream that passes the
//! check. Only tests use the checker, so it is written for clarity and not for speed.

use penstock_json_scan::json;
use serde_json::Value;
use std::str;

/// Event types that clients know.
const EVENTS: [&str; 8] = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "ping",
    "error",
];

/// Checks a complete client stream of the messages dialect.
///
/// Required: `event:` equal to `type`; `message_start` first (pings may precede it); blocks numbered from 0 without
/// gaps, one open at a time, at least one of them; deltas that match their block; a signature as the last delta of
/// thinking; tool inputs that are complete JSON objects (truncated ones only if `stop_reason` allows it); one
/// `message_delta` with both stop members and numeric usage; `message_stop` last. Alternatively an `error` event last,
/// at any point.
///
/// # Errors
/// Returns the first violated rule, with the number of the event.
pub fn check_messages_stream(stream: &[u8]) -> Result<(), String> {
    let text = str::from_utf8(stream).map_err(|_| "the stream is not UTF-8".to_owned())?;
    let mut checker = MessagesStreamChecker::default();
    let mut rest = text;
    let mut number = 0;
    while let Some((event, after)) = rest.split_once("\n\n") {
        rest = after;
        number += 1;
        checker.check_event(event).map_err(|why| format!("event {number}: {why}: {event}"))?;
    }
    if !rest.is_empty() {
        return Err(format!("the stream ends inside an event: {rest}"));
    }
    match checker.stage {
        StreamStage::Stopped | StreamStage::Failed => Ok(()),
        _ => Err("the stream ends without message_stop or error".to_owned()),
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum StreamStage {
    #[default]
    Before,
    Content,
    Delta,
    Stopped,
    Failed,
}

#[derive(Debug)]
struct CheckedBlock {
    kind: String,
    json: String,
    is_signed: bool,
}

#[derive(Debug, Default)]
struct MessagesStreamChecker {
    stage: StreamStage,
    open_block: Option<CheckedBlock>,
    blocks: u64,
    /// True after a tool input that is no JSON object, which is allowed only if the answer was truncated.
    has_truncated_input: bool,
    has_tool_call: bool,
}

type CheckResult = Result<(), String>;

/// Returns true if the text is a JSON object. Numbers that exceed a double are not errors, because they are valid JSON,
/// and clients read them as infinite.
fn is_object(text: &str) -> bool {
    match serde_json::from_str::<Value>(text) {
        Ok(value) => value.is_object(),
        // Such a number ends the parser, so the rest is only scanned for the end of the object.
        Err(error) if error.to_string().starts_with("number out of range") => {
            text.starts_with('{') && json::value_end(text.as_bytes(), 0) == Some(text.trim_end().len())
        }
        Err(_) => false,
    }
}

fn ensure(holds: bool, rule: &str) -> CheckResult {
    if holds { Ok(()) } else { Err(rule.to_owned()) }
}

impl MessagesStreamChecker {
    fn check_event(&mut self, event: &str) -> CheckResult {
        if event.lines().all(|line| line.starts_with(':')) {
            return Ok(());
        }
        let (name, data) = event
            .strip_prefix("event: ")
            .and_then(|event| event.split_once("\ndata: "))
            .ok_or("not one event line and one data line")?;
        ensure(!data.contains('\n'), "data must be one line")?;
        let data: Value = serde_json::from_str(data).map_err(|error| format!("data is no JSON ({error})"))?;
        ensure(data.get("type").and_then(Value::as_str) == Some(name), "event and type differ")?;
        ensure(EVENTS.contains(&name), "unknown event")?;
        ensure(
            !matches!(self.stage, StreamStage::Stopped | StreamStage::Failed),
            "something follows the last event",
        )?;
        match name {
            "ping" => ensure_members(&data, &["type"]),
            "error" => self.check_error(&data),
            "message_start" => self.check_message_start(&data),
            "content_block_start" => self.check_block_start(&data),
            "content_block_delta" => self.check_block_delta(&data),
            "content_block_stop" => self.check_block_stop(&data),
            "message_delta" => self.check_message_delta(&data),
            _ => {
                ensure(self.stage == StreamStage::Delta, "message_stop without message_delta")?;
                self.stage = StreamStage::Stopped;
                ensure_members(&data, &["type"])
            }
        }
    }

    fn check_error(&mut self, data: &Value) -> CheckResult {
        self.stage = StreamStage::Failed;
        let text =
            |path: &str| data.pointer(path).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        ensure(text("/error/type") && text("/error/message"), "an error needs type and message")?;
        ensure(text("/error/code") && text("/error/details/error_code"), "an error needs its code, twice")
    }

    fn check_message_start(&mut self, data: &Value) -> CheckResult {
        ensure(self.stage == StreamStage::Before, "a second message_start")?;
        self.stage = StreamStage::Content;
        let message = data.get("message").ok_or("no message")?;
        let text = |key: &str| message.get(key).and_then(Value::as_str).unwrap_or_default();
        ensure(text("id").starts_with("msg_") && text("id").len() > 4, "id must begin with msg_")?;
        ensure(text("type") == "message" && text("role") == "assistant", "type and role")?;
        ensure(!text("model").is_empty(), "no model")?;
        ensure(message.get("content") == Some(&Value::Array(Vec::new())), "content must start empty")?;
        ensure(
            is_null_member(message, "stop_reason") && is_null_member(message, "stop_sequence"),
            "stop members must be null",
        )?;
        ensure_usage(message.get("usage"))
    }

    fn check_block_start(&mut self, data: &Value) -> CheckResult {
        ensure(self.stage == StreamStage::Content, "a block outside the content")?;
        ensure(self.open_block.is_none(), "a block opens while another is open")?;
        ensure(block_index(data) == Some(self.blocks), "index has a gap")?;
        self.blocks += 1;
        let block = data.get("content_block").ok_or("no content_block")?;
        let kind = block.get("type").and_then(Value::as_str).unwrap_or_default();
        let empty = |key: &str| block.get(key).and_then(Value::as_str) == Some("");
        let named = |key: &str| block.get(key).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        match kind {
            "text" => {
                ensure_members(block, &["type", "text"])?;
                ensure(empty("text"), "text must start empty")?;
            }
            "thinking" => {
                ensure_members(block, &["type", "thinking", "signature"])?;
                ensure(empty("thinking") && empty("signature"), "thinking must start empty")?;
            }
            // Block `redacted_thinking` of the vendor's own API: encrypted reasoning, complete in its start event.
            "redacted_thinking" => ensure_members(block, &["type", "data"])?,
            "tool_use" => {
                self.has_tool_call = true;
                ensure_members(block, &["type", "id", "name", "input"])?;
                ensure(named("id") && named("name"), "a tool needs id and name")?;
                ensure(
                    block.get("input") == Some(&Value::Object(serde_json::Map::new())),
                    "input must start as {}",
                )?;
            }
            _ => return Err("unknown block type".to_owned()),
        }
        self.open_block = Some(CheckedBlock { kind: kind.to_owned(), json: String::new(), is_signed: false });
        Ok(())
    }

    fn check_block_delta(&mut self, data: &Value) -> CheckResult {
        let last = self.blocks.checked_sub(1);
        let open = self.open_block.as_mut().ok_or("a delta without an open block")?;
        ensure(block_index(data) == last, "a delta for another block")?;
        ensure(!open.is_signed, "something follows the signature")?;
        let delta = data.get("delta").ok_or("no delta")?;
        let kind = delta.get("type").and_then(Value::as_str).unwrap_or_default();
        let (home, key) = match kind {
            "text_delta" => ("text", "text"),
            "thinking_delta" => ("thinking", "thinking"),
            "signature_delta" => ("thinking", "signature"),
            "input_json_delta" => ("tool_use", "partial_json"),
            _ => return Err("unknown delta type".to_owned()),
        };
        ensure_members(delta, &["type", key])?;
        ensure(open.kind == home, "a delta of another kind than its block")?;
        let text = delta.get(key).and_then(Value::as_str).ok_or("a delta without its text")?;
        ensure(!text.is_empty(), "an empty delta")?;
        open.is_signed = kind == "signature_delta";
        if kind == "input_json_delta" {
            open.json.push_str(text);
        }
        Ok(())
    }

    fn check_block_stop(&mut self, data: &Value) -> CheckResult {
        let open = self.open_block.take().ok_or("a stop without an open block")?;
        ensure(block_index(data) == self.blocks.checked_sub(1), "a stop for another block")?;
        ensure(open.kind != "thinking" || open.is_signed, "thinking without a signature")?;
        if open.kind == "tool_use" && !open.json.is_empty() {
            self.has_truncated_input |= !is_object(&open.json);
        }
        ensure_members(data, &["type", "index"])
    }

    fn check_message_delta(&mut self, data: &Value) -> CheckResult {
        ensure(self.stage == StreamStage::Content, "message_delta outside the content")?;
        ensure(self.open_block.is_none(), "message_delta while a block is open")?;
        ensure(self.blocks > 0, "a message without any block")?;
        self.stage = StreamStage::Delta;
        let delta = data.get("delta").ok_or("no delta")?;
        let reason = delta.get("stop_reason").and_then(Value::as_str).unwrap_or_default();
        let sequence = delta.get("stop_sequence").ok_or("no stop_sequence")?;
        match reason {
            "stop_sequence" => ensure(sequence.is_string(), "stop_sequence is missing")?,
            "end_turn" | "max_tokens" | "tool_use" | "refusal" | "model_context_window_exceeded" => {
                ensure(sequence.is_null(), "a stop sequence without that reason")?;
            }
            _ => return Err("unknown stop_reason".to_owned()),
        }
        ensure(reason != "tool_use" || self.has_tool_call, "tool_use without a tool_use block")?;
        ensure(reason != "end_turn" || !self.has_tool_call, "end_turn after a tool_use block")?;
        let cut = matches!(reason, "max_tokens" | "refusal" | "model_context_window_exceeded");
        ensure(cut || !self.has_truncated_input, "a tool input is no JSON object")?;
        for key in data.as_object().into_iter().flat_map(|data| data.keys()) {
            let known =
                ["type", "delta", "usage", "environment_impact", "billing_cost"].contains(&key.as_str());
            ensure(known, "an unknown member")?;
        }
        ensure_usage(data.get("usage"))
    }
}

fn block_index(data: &Value) -> Option<u64> {
    data.get("index").and_then(Value::as_u64)
}

fn is_null_member(object: &Value, key: &str) -> bool {
    object.get(key).is_some_and(Value::is_null)
}

/// Checks that an object has exactly these members.
fn ensure_members(object: &Value, expected: &[&str]) -> CheckResult {
    let Some(object) = object.as_object() else {
        return Err("not an object".to_owned());
    };
    ensure(
        object.len() == expected.len() && expected.iter().all(|key| object.contains_key(*key)),
        "members differ",
    )
}

/// Checks that usage has all four counts and that they are integers: clients sum them.
fn ensure_usage(usage: Option<&Value>) -> CheckResult {
    let usage = usage.and_then(Value::as_object).ok_or("no usage")?;
    for key in ["input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"] {
        ensure(usage.get(key).is_some_and(Value::is_u64), "a count is missing or no whole number")?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "messages/tests.rs"]
mod tests;
