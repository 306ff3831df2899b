//! Writes answers in the responses dialect, with every kind of event that the dialect has.

use super::answer::{SimulatedAnswer, SimulatedFinish};
use super::chat::{self, CREATED};
use super::parsed_request::ParsedRequest;
use super::shaping::{AnswerOptions, EventKind, StreamEvent};
use super::tools::ToolInvocation;
use serde_json::{Value, json};

fn id(ask: &ParsedRequest) -> String {
    format!("resp_simulated_{:016x}", ask.prompt.hash)
}

fn usage(ask: &ParsedRequest, answer: &SimulatedAnswer) -> Value {
    let output = answer.token_count();
    json!({
        "input_tokens": ask.prompt.tokens,
        "input_tokens_details": { "cached_tokens": ask.prompt.cached },
        "output_tokens": output,
        "output_tokens_details": { "reasoning_tokens": answer.reasoning.len() },
        "total_tokens": ask.prompt.tokens + output,
    })
}

/// Returns the response object.
fn response(ask: &ParsedRequest, status: &str, output: &[Value], usage: Value) -> Value {
    let details = if status == "incomplete" { json!({ "reason": "max_output_tokens" }) } else { Value::Null };
    json!({
        "id": id(ask), "object": "response", "created_at": CREATED, "status": status, "model": ask.model,
        "error": null, "incomplete_details": details, "instructions": null, "metadata": {}, "output": output,
        "parallel_tool_calls": ask.parallel, "store": false, "usage": usage,
    })
}

fn status(answer: &SimulatedAnswer, options: AnswerOptions) -> &'static str {
    match answer.finish {
        _ if !options.finish => "in_progress",
        SimulatedFinish::Length => "incomplete",
        SimulatedFinish::Stop | SimulatedFinish::Sequence(_) | SimulatedFinish::Calls => "completed",
    }
}

fn reasoning_item(text: &str) -> Value {
    json!({
        "type": "reasoning", "id": "rs_simulated", "status": "completed", "summary": [],
        "content": [{ "type": "reasoning_text", "text": text }],
    })
}

fn text_part(ask: &ParsedRequest, tokens: &[String]) -> Value {
    let logprobs: Vec<Value> = ask
        .logprobs
        .map(|top| tokens.iter().map(|token| chat::logprob(token, top)).collect())
        .unwrap_or_default();
    json!({ "type": "output_text", "text": tokens.concat(), "annotations": [], "logprobs": logprobs })
}

fn message_item(content: &Value) -> Value {
    json!({
        "type": "message", "id": "msg_simulated", "status": "completed", "role": "assistant", "content": content,
    })
}

fn call_item(call: &ToolInvocation, arguments: &str) -> Value {
    json!({
        "type": "function_call", "id": format!("fc_{}", call.id), "status": "completed", "call_id": call.id,
        "name": call.name, "arguments": arguments,
    })
}

/// Returns the items of an answer.
fn items(ask: &ParsedRequest, answer: &SimulatedAnswer) -> Vec<Value> {
    let mut items = Vec::new();
    if !answer.reasoning.is_empty() {
        items.push(reasoning_item(&answer.reasoning.concat()));
    }
    if !answer.text.is_empty() {
        items.push(message_item(&json!([text_part(ask, &answer.text)])));
    }
    items.extend(answer.calls.iter().map(|call| call_item(call, &call.arguments.concat())));
    items
}

/// Writes an unstreamed answer.
pub(super) fn write_plain(ask: &ParsedRequest, answer: &SimulatedAnswer, options: AnswerOptions) -> String {
    let usage = if options.usage { usage(ask, answer) } else { Value::Null };
    response(ask, status(answer, options), &items(ask, answer), usage).to_string()
}

/// Writes the answer as events.
pub(super) fn write_stream(
    ask: &ParsedRequest,
    answer: &SimulatedAnswer,
    options: AnswerOptions,
) -> Vec<StreamEvent> {
    let mut writer = EventWriter { events: Vec::new(), tokens: 0, items: 0 };
    let start = json!({ "response": response(ask, "in_progress", &[], Value::Null) });
    writer.push("response.created", start.clone(), EventKind::Start);
    writer.push("response.in_progress", start, EventKind::Other);
    if !answer.reasoning.is_empty() {
        writer.reasoning(answer);
    }
    if !answer.text.is_empty() {
        writer.message(ask, answer);
    }
    answer.calls.iter().for_each(|call| writer.call(call));
    if options.finish {
        let usage = if options.usage { usage(ask, answer) } else { Value::Null };
        let status = status(answer, options);
        let end = json!({ "response": response(ask, status, &items(ask, answer), usage) });
        let name = if status == "incomplete" { "response.incomplete" } else { "response.completed" };
        writer.push(name, end, EventKind::Finish);
    }
    writer.events
}

struct EventWriter {
    events: Vec<StreamEvent>,
    tokens: u32,
    items: usize,
}

impl EventWriter {
    fn push(&mut self, name: &'static str, members: Value, kind: EventKind) {
        let mut body = serde_json::Map::new();
        body.insert("type".to_owned(), json!(name));
        body.insert("sequence_number".to_owned(), json!(self.events.len()));
        if let Value::Object(members) = members {
            body.extend(members);
        }
        let body = Value::Object(body).to_string();
        self.events.push(StreamEvent { name: Some(name), body, tokens: self.tokens, kind });
    }

    fn added(&mut self, mut item: Value) {
        if let Some(status) = item.get_mut("status") {
            *status = json!("in_progress");
        }
        let members = json!({ "output_index": self.items, "item": item });
        self.push("response.output_item.added", members, EventKind::Other);
    }

    fn done(&mut self, item: &Value) {
        let members = json!({ "output_index": self.items, "item": item });
        self.push("response.output_item.done", members, EventKind::Other);
        self.items += 1;
    }

    /// Writes an event of a part of the current item.
    fn part(&mut self, name: &'static str, item: &str, members: Value, kind: EventKind) {
        let mut all = json!({ "item_id": item, "output_index": self.items, "content_index": 0 });
        if let (Some(all), Value::Object(members)) = (all.as_object_mut(), members) {
            all.extend(members);
        }
        self.push(name, all, kind);
    }

    fn reasoning(&mut self, answer: &SimulatedAnswer) {
        let mut open = reasoning_item("");
        if let Some(content) = open.get_mut("content") {
            *content = json!([]);
        }
        self.added(open);
        for token in &answer.reasoning {
            self.tokens += 1;
            let delta = json!({ "delta": token });
            self.part("response.reasoning_text.delta", "rs_simulated", delta, EventKind::Content);
        }
        let text = answer.reasoning.concat();
        let done = json!({ "text": text });
        self.part("response.reasoning_text.done", "rs_simulated", done, EventKind::Other);
        self.done(&reasoning_item(&text));
    }

    fn message(&mut self, ask: &ParsedRequest, answer: &SimulatedAnswer) {
        const ID: &str = "msg_simulated";
        self.added(message_item(&json!([])));
        let empty = json!({ "part": text_part(ask, &[]) });
        self.part("response.content_part.added", ID, empty, EventKind::Other);
        for token in &answer.text {
            self.tokens += 1;
            let part = text_part(ask, std::slice::from_ref(token));
            let delta = json!({ "delta": token, "logprobs": part.get("logprobs") });
            self.part("response.output_text.delta", ID, delta, EventKind::Content);
        }
        let part = text_part(ask, &answer.text);
        let done = json!({ "text": part.get("text"), "logprobs": part.get("logprobs") });
        self.part("response.output_text.done", ID, done, EventKind::Other);
        self.part("response.content_part.done", ID, json!({ "part": part }), EventKind::Other);
        self.done(&message_item(&json!([part])));
    }

    fn call(&mut self, call: &ToolInvocation) {
        let item = format!("fc_{}", call.id);
        self.added(call_item(call, ""));
        for fragment in &call.arguments {
            self.tokens += 1;
            let delta = json!({ "delta": fragment });
            self.part("response.function_call_arguments.delta", &item, delta, EventKind::Content);
        }
        let arguments = call.arguments.concat();
        let done = json!({ "arguments": arguments });
        self.part("response.function_call_arguments.done", &item, done, EventKind::Other);
        self.done(&call_item(call, &arguments));
    }
}
