//! Writes answers in the messages dialect, with every kind of event that the dialect has.

use super::answer::{SimulatedAnswer, SimulatedFinish};
use super::parsed_request::ParsedRequest;
use super::shaping::{AnswerOptions, EventKind, StreamEvent};
use serde_json::{Value, json};

/// Signature of simulated thinking. It is invalid but not empty, because clients require a signature.
const SIGNATURE: &str = "c2ltdWxhdGVk";

fn id(ask: &ParsedRequest) -> String {
    format!("msg_simulated_{:016x}", ask.prompt.hash)
}

fn usage(ask: &ParsedRequest, output: u64) -> Value {
    json!({
        "input_tokens": ask.prompt.tokens - ask.prompt.cached,
        "output_tokens": output,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": ask.prompt.cached,
    })
}

fn reason(finish: &SimulatedFinish) -> (Value, Value) {
    match finish {
        SimulatedFinish::Stop => (json!("end_turn"), Value::Null),
        SimulatedFinish::Sequence(stop) => (json!("stop_sequence"), json!(stop)),
        SimulatedFinish::Length => (json!("max_tokens"), Value::Null),
        SimulatedFinish::Calls => (json!("tool_use"), Value::Null),
    }
}

/// Writes an unstreamed answer.
pub(super) fn write_plain(ask: &ParsedRequest, answer: &SimulatedAnswer, options: AnswerOptions) -> String {
    let mut content = Vec::new();
    if !answer.reasoning.is_empty() {
        content.push(json!({
            "type": "thinking", "thinking": answer.reasoning.concat(), "signature": SIGNATURE,
        }));
    }
    if !answer.text.is_empty() {
        content.push(json!({ "type": "text", "text": answer.text.concat() }));
    }
    for call in &answer.calls {
        // Truncated arguments are not valid JSON; such a call has an empty object as its input.
        let input: Value = serde_json::from_str(&call.arguments.concat()).unwrap_or_else(|_| json!({}));
        content.push(json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input }));
    }
    let (stop_reason, stop_sequence) = reason(&answer.finish);
    let mut body = json!({
        "id": id(ask), "type": "message", "role": "assistant", "model": ask.model, "content": content,
    });
    if let Some(object) = body.as_object_mut() {
        object.insert("stop_reason".to_owned(), if options.finish { stop_reason } else { Value::Null });
        object.insert("stop_sequence".to_owned(), stop_sequence);
        if options.usage {
            object.insert("usage".to_owned(), usage(ask, answer.token_count()));
        }
    }
    body.to_string()
}

/// Writes the answer as events.
pub(super) fn write_stream(
    ask: &ParsedRequest,
    answer: &SimulatedAnswer,
    options: AnswerOptions,
) -> Vec<StreamEvent> {
    let mut writer = EventWriter { events: Vec::new(), tokens: 0, blocks: 0 };
    let mut message = json!({
        "id": id(ask), "type": "message", "role": "assistant", "model": ask.model, "content": [],
        "stop_reason": null, "stop_sequence": null,
    });
    if let (Some(object), true) = (message.as_object_mut(), options.usage) {
        object.insert("usage".to_owned(), usage(ask, 0));
    }
    writer.push("message_start", json!({ "message": message }), EventKind::Start);
    writer.push("ping", json!({}), EventKind::Other);
    if !answer.reasoning.is_empty() {
        writer.open(&json!({ "type": "thinking", "thinking": "", "signature": "" }));
        for token in &answer.reasoning {
            writer.delta(&json!({ "type": "thinking_delta", "thinking": token }));
        }
        let signature = json!({ "type": "signature_delta", "signature": SIGNATURE });
        writer.push(
            "content_block_delta",
            json!({ "index": writer.blocks, "delta": signature }),
            EventKind::Other,
        );
        writer.close();
    }
    if !answer.text.is_empty() {
        writer.open(&json!({ "type": "text", "text": "" }));
        for token in &answer.text {
            writer.delta(&json!({ "type": "text_delta", "text": token }));
        }
        writer.close();
    }
    for call in &answer.calls {
        writer.open(&json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": {} }));
        for part in &call.arguments {
            writer.delta(&json!({ "type": "input_json_delta", "partial_json": part }));
        }
        writer.close();
    }
    let (stop_reason, stop_sequence) = reason(&answer.finish);
    let mut end = json!({ "delta": { "stop_reason": stop_reason, "stop_sequence": stop_sequence } });
    if let (Some(object), true) = (end.as_object_mut(), options.usage) {
        object.insert("usage".to_owned(), usage(ask, answer.token_count()));
    }
    writer.push("message_delta", end, EventKind::Finish);
    writer.push("message_stop", json!({}), EventKind::Done);
    writer.events
}

struct EventWriter {
    events: Vec<StreamEvent>,
    tokens: u32,
    blocks: usize,
}

impl EventWriter {
    fn push(&mut self, name: &'static str, members: Value, kind: EventKind) {
        let mut body = serde_json::Map::new();
        body.insert("type".to_owned(), json!(name));
        if let Value::Object(members) = members {
            body.extend(members);
        }
        let body = Value::Object(body).to_string();
        self.events.push(StreamEvent { name: Some(name), body, tokens: self.tokens, kind });
    }

    fn open(&mut self, block: &Value) {
        let members = json!({ "index": self.blocks, "content_block": block });
        self.push("content_block_start", members, EventKind::Other);
    }

    fn delta(&mut self, delta: &Value) {
        self.tokens += 1;
        let members = json!({ "index": self.blocks, "delta": delta });
        self.push("content_block_delta", members, EventKind::Content);
    }

    fn close(&mut self) {
        self.push("content_block_stop", json!({ "index": self.blocks }), EventKind::Other);
        self.blocks += 1;
    }
}
