//! Conformance checker of a responses stream, as strict as the strictest client.
//!
//! The checker is a state machine over complete streams. Every examined client library accepts a stream that passes the
//! check. Only tests use the checker, so it is written for clarity and not for speed.
#![allow(clippy::indexing_slicing, reason = "an absent member of a JSON value reads as null")]

mod item;
#[cfg(test)]
mod tests;

use item::CheckedItem;
use serde_json::Value;

/// Members that every response object has.
const RESPONSE_MEMBERS: &[&str] = &[
    "background",
    "created_at",
    "error",
    "id",
    "incomplete_details",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "object",
    "output",
    "parallel_tool_calls",
    "previous_response_id",
    "reasoning",
    "service_tier",
    "status",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "usage",
];

type CheckResult = Result<(), String>;

fn ensure(holds: bool, rule: &str) -> CheckResult {
    if holds { Ok(()) } else { Err(rule.to_owned()) }
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum StreamStage {
    #[default]
    Before,
    /// State after `response.created` of a background response whose execution has not started.
    Waiting,
    Created,
    Output,
    Ended,
}

#[derive(Debug, Default)]
struct ResponsesStreamChecker {
    stage: StreamStage,
    events: u64,
    response_id: String,
    items: Vec<CheckedItem>,
}

/// Checks a complete client stream of the responses dialect.
///
/// Required: `event:` equal to `type`; numbers from 0 without gaps; `response.created` and `response.in_progress`
/// first, with `response.queued` between them for a background response that waits; items numbered from 0 in the order
/// in which they open, each of them closed; deltas that match their item and whose text is that of the closing events;
/// last one of `response.completed`, `response.incomplete` and `response.failed` (also for a cancelled background
/// response), with a complete response object whose output has the closed items. Alternatively one event `error` alone.
///
/// # Errors
/// Returns the first violated rule, with the number of the event.
pub fn check_responses_stream(stream: &[u8]) -> Result<(), String> {
    let stream = std::str::from_utf8(stream).map_err(|_| "the stream is not UTF-8".to_owned())?;
    let mut checker = ResponsesStreamChecker::default();
    let mut rest = stream;
    while let Some((event, after)) = rest.split_once("\n\n") {
        rest = after;
        if event.lines().all(|line| line.starts_with(':')) {
            continue;
        }
        let number = checker.events;
        checker.check_event(event).map_err(|why| format!("event {number}: {why}: {event}"))?;
    }
    ensure(rest.is_empty(), "the stream ends inside an event")?;
    ensure(checker.stage == StreamStage::Ended, "the stream has no last event")
}

/// Checks a response object of any status.
///
/// # Errors
/// Returns the first violated rule.
pub fn check_response(response: &Value) -> Result<(), String> {
    let missing = RESPONSE_MEMBERS.iter().find(|name| response.get(**name).is_none());
    if let Some(name) = missing {
        return Err(format!("the response has no {name}"));
    }
    ensure(text(response, "object") == "response", "object must be response")?;
    ensure(text(response, "id").starts_with("resp_"), "id must begin with resp_")?;
    ensure(!text(response, "model").is_empty(), "no model")?;
    ensure(response["created_at"].is_u64(), "created_at is no time")?;
    ensure(response["store"].is_boolean(), "store is true or false")?;
    let status = text(response, "status");
    ensure(response["error"].is_object() == (status == "failed"), "error belongs to a failed response")?;
    let is_incomplete = response["incomplete_details"].is_object();
    ensure(is_incomplete == (status == "incomplete"), "details belong to an incomplete response")?;
    if matches!(status, "completed" | "incomplete") {
        check_usage(&response["usage"])?;
        for item in response["output"].as_array().into_iter().flatten() {
            item::check_finished(item)?;
        }
    } else {
        ensure(response["usage"].is_null(), "usage of a response without its end")?;
    }
    Ok(())
}

fn check_usage(usage: &Value) -> CheckResult {
    let number = |path: &str| usage.pointer(path).and_then(Value::as_u64);
    let input = number("/input_tokens").ok_or("no input_tokens")?;
    let output = number("/output_tokens").ok_or("no output_tokens")?;
    ensure(number("/total_tokens") == Some(input + output), "total_tokens")?;
    ensure(number("/input_tokens_details/cached_tokens").is_some(), "no cached_tokens")?;
    ensure(number("/output_tokens_details/reasoning_tokens").is_some(), "no reasoning_tokens")
}

impl ResponsesStreamChecker {
    fn check_event(&mut self, event: &str) -> CheckResult {
        let (name, data) = event
            .strip_prefix("event: ")
            .and_then(|event| event.split_once("\ndata: "))
            .ok_or("not one event line and one data line")?;
        ensure(!data.contains('\n'), "data must be one line")?;
        let data: Value = serde_json::from_str(data).map_err(|error| format!("data is no JSON ({error})"))?;
        ensure(text(&data, "type") == name, "event and type differ")?;
        ensure(data["sequence_number"].as_u64() == Some(self.events), "sequence_number has a gap")?;
        self.events += 1;
        match (self.stage, name) {
            (StreamStage::Ended, _) => Err("something follows the last event".to_owned()),
            (StreamStage::Before, "response.created") => {
                let is_queued = text(&data["response"], "status") == "queued";
                self.stage = if is_queued { StreamStage::Waiting } else { StreamStage::Created };
                text(&data["response"], "id").clone_into(&mut self.response_id);
                self.check_unfinished(&data["response"], if is_queued { "queued" } else { "in_progress" })
            }
            (StreamStage::Waiting, "response.queued") => {
                self.stage = StreamStage::Created;
                self.check_unfinished(&data["response"], "queued")
            }
            (StreamStage::Created, "response.in_progress") => {
                self.stage = StreamStage::Output;
                self.check_unfinished(&data["response"], "in_progress")
            }
            (StreamStage::Before, "error") => {
                self.stage = StreamStage::Ended;
                ensure(
                    !text(&data, "message").is_empty() && data.get("param").is_some(),
                    "message and param",
                )?;
                ensure(!text(&data, "code").is_empty(), "an error needs its code")
            }
            (StreamStage::Output, "response.completed" | "response.incomplete" | "response.failed") => {
                self.stage = StreamStage::Ended;
                self.check_last(name.trim_start_matches("response."), &data["response"])
            }
            (StreamStage::Output, "response.output_item.added") => {
                let at = self.items.len() as u64;
                ensure(data["output_index"].as_u64() == Some(at), "output_index has a gap")?;
                let item = CheckedItem::open(&data["item"])?;
                ensure(self.items.iter().all(|other| other.id != item.id), "two items have one id")?;
                self.items.push(item);
                Ok(())
            }
            (StreamStage::Output, _) => {
                let at = data["output_index"].as_u64().and_then(|at| usize::try_from(at).ok());
                let item = at.and_then(|at| self.items.get_mut(at)).ok_or("no such item")?;
                item.check_event(name, &data)
            }
            _ => Err("an event out of order".to_owned()),
        }
    }

    fn check_unfinished(&self, response: &Value, status: &str) -> CheckResult {
        check_response(response)?;
        ensure(text(response, "status") == status, "status of an unfinished response")?;
        let is_background = response["background"] == Value::Bool(true);
        ensure(status != "queued" || is_background, "only background responses are queued")?;
        ensure(text(response, "id") == self.response_id, "the id changes")?;
        ensure(response["output"] == Value::Array(Vec::new()), "output must start empty")
    }

    fn check_last(&self, status: &str, response: &Value) -> CheckResult {
        check_response(response)?;
        ensure(text(response, "id") == self.response_id, "the id changes")?;
        if (status, text(response, "status")) == ("failed", "cancelled") {
            return ensure(
                response["background"] == Value::Bool(true),
                "only background responses are cancelled",
            );
        }
        ensure(text(response, "status") == status, "type and status differ")?;
        if status == "failed" {
            return ensure(!text(&response["error"], "message").is_empty(), "an error needs its message");
        }
        let done: Option<Vec<Value>> = self.items.iter().map(|item| item.finished.clone()).collect();
        let done = done.ok_or("an item is still open")?;
        ensure(!done.is_empty(), "a response has at least one item")?;
        ensure(response["output"] == Value::Array(done), "output differs from the items")
    }
}
