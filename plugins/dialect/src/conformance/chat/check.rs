//! Rules for each chunk of a chat-completions stream.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

const CHUNK_MEMBERS: &[&str] =
    &["id", "object", "created", "model", "choices", "usage", "environment_impact", "billing_cost"];
const DELTA_MEMBERS: &[&str] = &["role", "content", "reasoning_content", "refusal", "tool_calls"];
const FINISH_REASONS: &[&str] = &["stop", "length", "tool_calls", "content_filter"];

type RuleResult = Result<(), &'static str>;

/// Checker of a chat stream, with the state after the chunks so far.
pub(super) struct ChatStreamChecker {
    include_usage: bool,
    identity: Option<[Value; 3]>,
    choices: BTreeMap<u64, CheckedChoice>,
    has_usage: bool,
    has_penstock_objects: bool,
    has_error: bool,
    is_done: bool,
}

#[derive(Default)]
struct CheckedChoice {
    tool_calls: u64,
    finish_reason: Option<String>,
}

fn require(holds: bool, rule: &'static str) -> RuleResult {
    if holds { Ok(()) } else { Err(rule) }
}

fn is_integer(value: Option<&Value>) -> bool {
    value.is_some_and(Value::is_u64)
}

fn require_known(object: &Map<String, Value>, names: &[&str], rule: &'static str) -> RuleResult {
    require(object.keys().all(|key| names.contains(&key.as_str())), rule)
}

impl ChatStreamChecker {
    pub(super) fn new(include_usage: bool) -> Self {
        Self {
            include_usage,
            identity: None,
            choices: BTreeMap::new(),
            has_usage: false,
            has_penstock_objects: false,
            has_error: false,
            is_done: false,
        }
    }

    /// Checks that `[DONE]` has not occurred before, and records it.
    pub(super) fn check_done(&mut self) -> Result<(), String> {
        require(!self.is_done, "[DONE] comes twice")?;
        self.is_done = true;
        Ok(())
    }

    /// Checks at the end of the stream that `[DONE]`, all finish reasons and usage have occurred.
    pub(super) fn check_end(&self) -> Result<(), String> {
        require(self.is_done, "[DONE] is missing")?;
        if self.has_error {
            return Ok(());
        }
        require(!self.choices.is_empty(), "no choice has content")?;
        require(
            self.choices.values().all(|choice| choice.finish_reason.is_some()),
            "a finish reason is missing",
        )?;
        require(self.has_usage, "usage is missing")?;
        Ok(())
    }

    /// Checks the JSON value of one chunk, given the chunks before it.
    pub(super) fn check_event(&mut self, value: &Value) -> RuleResult {
        require(!self.is_done, "something follows [DONE]")?;
        require(!self.has_error, "something follows the error")?;
        let chunk = value.as_object().ok_or("a chunk is no object")?;
        if let Some(error) = chunk.get("error") {
            return self.check_error(error);
        }
        require(!self.has_usage && !self.has_penstock_objects, "something follows the last chunk")?;
        require_known(chunk, CHUNK_MEMBERS, "a chunk has an unknown key")?;
        self.face(chunk)?;
        let choices = chunk.get("choices").and_then(Value::as_array).ok_or("choices must be an array")?;
        if choices.is_empty() {
            require(self.include_usage, "a chunk without choices that was not requested")?;
            let finished = self.choices.values().all(|choice| choice.finish_reason.is_some());
            require(finished && !self.choices.is_empty(), "usage comes before a finish reason")?;
            require(chunk.contains_key("usage"), "the chunk without choices has no usage")?;
        }
        if let Some(usage) = chunk.get("usage").filter(|usage| !usage.is_null()) {
            require(choices.is_empty() == self.include_usage, "usage is on an unexpected chunk")?;
            require_usage(usage)?;
            self.has_usage = true;
        }
        for choice in choices {
            self.check_choice(choice)?;
        }
        if chunk.contains_key("environment_impact") || chunk.contains_key("billing_cost") {
            let finished = self.choices.values().all(|choice| choice.finish_reason.is_some());
            require(finished, "the objects come before the last chunk")?;
            require(choices.is_empty() == self.include_usage, "the objects are on an unexpected chunk")?;
            self.has_penstock_objects = true;
        }
        Ok(())
    }

    fn check_error(&mut self, error: &Value) -> RuleResult {
        let text = |name: &str| error.get(name).is_some_and(Value::is_string);
        require(text("message") && text("type") && text("code"), "message, type and code must be strings")?;
        let param = error.get("param").is_some_and(|param| param.is_null() || param.is_string());
        require(param, "param must be a string or null")?;
        require(
            !self.choices.values().any(|c| c.finish_reason.is_some()),
            "an error follows a finish reason",
        )?;
        self.has_error = true;
        Ok(())
    }

    /// Checks the members that identify the answer: `object`, and `id`, `created` and `model`, which are the same in
    /// all chunks.
    fn face(&mut self, chunk: &Map<String, Value>) -> RuleResult {
        let get = |name: &str| chunk.get(name).cloned().unwrap_or(Value::Null);
        let [id, created, model] = [get("id"), get("created"), get("model")];
        require(get("object") == "chat.completion.chunk", "object must be chat.completion.chunk")?;
        require(id.as_str().is_some_and(|id| id.starts_with("chatcmpl-")), "id must begin chatcmpl-")?;
        require(
            created.as_u64().is_some_and(|n| u32::try_from(n).is_ok()),
            "created must be a small integer",
        )?;
        require(model.is_string(), "model must be a string")?;
        let face = [id, created, model];
        let same = self.identity.get_or_insert_with(|| face.clone()) == &face;
        require(same, "id, created and model must stay the same")
    }

    fn check_choice(&mut self, value: &Value) -> RuleResult {
        let choice = value.as_object().ok_or("a choice is no object")?;
        require_known(
            choice,
            &["index", "delta", "logprobs", "finish_reason"],
            "a choice has an unknown key",
        )?;
        let index = choice.get("index").and_then(Value::as_u64).ok_or("a choice has no index")?;
        let delta = choice.get("delta").and_then(Value::as_object).ok_or("delta must be an object")?;
        require_known(delta, DELTA_MEMBERS, "a delta has an unknown key")?;
        let seen = self.choices.len() as u64;
        let first = !self.choices.contains_key(&index);
        require(!first || index == seen, "choices first appear out of order")?;
        require(first == delta.contains_key("role"), "the role must come first and once")?;
        let state = self.choices.entry(index).or_default();
        require(state.finish_reason.is_none(), "a choice continues after its finish reason")?;
        if first {
            require(delta.get("role").is_some_and(|role| role == "assistant"), "the role must be assistant")?;
        }
        for name in ["content", "reasoning_content", "refusal"] {
            require(delta.get(name).is_none_or(Value::is_string), "a text must be a string")?;
        }
        if let Some(calls) = delta.get("tool_calls") {
            let calls = calls.as_array().filter(|calls| !calls.is_empty());
            calls
                .ok_or("tool_calls must be a list with something in it")?
                .iter()
                .try_for_each(|call| state.check_tool_call(call))?;
        }
        match choice.get("finish_reason") {
            Some(Value::Null) => Ok(()),
            Some(Value::String(reason)) => {
                require(FINISH_REASONS.contains(&reason.as_str()), "an unknown finish reason")?;
                require(reason != "tool_calls" || state.tool_calls > 0, "tool_calls without a call")?;
                require(reason != "stop" || state.tool_calls == 0, "stop with tool calls")?;
                state.finish_reason = Some(reason.clone());
                Ok(())
            }
            _ => Err("finish_reason must be null or a word"),
        }
    }
}

impl CheckedChoice {
    fn check_tool_call(&mut self, call: &Value) -> RuleResult {
        let call = call.as_object().ok_or("a tool call is no object")?;
        let index = call.get("index").and_then(Value::as_u64).ok_or("a tool call has no index")?;
        let function =
            call.get("function").and_then(Value::as_object).ok_or("a tool call has no function")?;
        let arguments = function.get("arguments").is_some_and(Value::is_string);
        require(arguments, "arguments must be a string")?;
        if index < self.tool_calls {
            require_known(call, &["index", "function"], "id and type must come once")?;
            return require_known(function, &["arguments"], "the name must come once");
        }
        require(index == self.tool_calls, "tool indices must have no gaps")?;
        self.tool_calls += 1;
        require_known(call, &["index", "id", "type", "function"], "a tool call has an unknown key")?;
        require_known(function, &["name", "arguments"], "a function has an unknown key")?;
        let text = |value: Option<&Value>| value.and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        require(text(call.get("id")), "a call begins without id")?;
        require(text(function.get("name")), "a call begins without name")?;
        require(call.get("type").is_some_and(|kind| kind == "function"), "a call's type must be function")
    }
}

fn require_usage(usage: &Value) -> RuleResult {
    let whole = ["prompt_tokens", "completion_tokens", "total_tokens"];
    require(whole.iter().all(|name| is_integer(usage.get(name))), "usage counts must be whole numbers")?;
    let leaves = |value: &Value| match value {
        Value::Object(members) => members.values().all(Value::is_u64),
        other => other.is_u64(),
    };
    require(
        usage.as_object().is_some_and(|usage| usage.values().all(leaves)),
        "usage holds only whole numbers",
    )
}
