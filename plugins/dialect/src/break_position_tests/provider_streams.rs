//! Streams of one answer by providers of every dialect.

use penstock_core::Dialect;
use serde_json::{Value, json};

/// Answer of the provider.
#[derive(Clone, Copy, Debug)]
pub(super) enum AnswerShape {
    /// Reasoning, text, and two tool calls.
    Calls,
    /// Reasoning and text.
    Text,
    /// Reasoning between two tool calls.
    Interleaved,
}

impl AnswerShape {
    pub(super) const ALL: [Self; 3] = [Self::Calls, Self::Text, Self::Interleaved];

    /// Returns kind and text of the parts. A kind other than `reasoning` and `text` is the name of a called function.
    pub(super) const fn parts(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Calls => &[
                ("reasoning", "Hm, well."),
                ("text", "Hello, \"wörld\"."),
                ("f", r#"{"a":1}"#),
                ("g", r#"{"b":[2]}"#),
            ],
            Self::Text => &[("reasoning", "Hm, well."), ("text", "Hello.")],
            Self::Interleaved => {
                &[("reasoning", "Hm."), ("f", r#"{"a":1}"#), ("reasoning", "So."), ("g", r#"{"b":2}"#)]
            }
        }
    }

    pub(super) fn has_calls(self) -> bool {
        self.parts().iter().any(|(kind, _)| !matches!(*kind, "reasoning" | "text"))
    }
}

/// Returns the events of a complete stream. Each text comes in two deltas.
pub(super) fn provider_events(provider: Dialect, shape: AnswerShape) -> Vec<String> {
    match provider {
        Dialect::Chat => chat_events(shape),
        Dialect::Messages => message_events(shape),
        _ => response_events(shape),
    }
}

pub(super) fn named_event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())
}

fn chat_events(shape: AnswerShape) -> Vec<String> {
    let chunk = |delta: Value, finish: Option<&str>| {
        format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}))
    };
    let mut events = vec![chunk(json!({"role": "assistant", "content": ""}), None)];
    let mut calls = 0;
    for (kind, text) in shape.parts() {
        let (one, other) = text.split_at(3);
        match *kind {
            "reasoning" => {
                events.extend([one, other].map(|text| chunk(json!({"reasoning_content": text}), None)))
            }
            "text" => events.extend([one, other].map(|text| chunk(json!({"content": text}), None))),
            name => {
                let (id, index) = (format!("call_{calls}"), calls);
                let start = json!({"index": index, "id": id, "type": "function",
                    "function": {"name": name, "arguments": one}});
                let rest = json!({"index": index, "function": {"arguments": other}});
                events.extend([start, rest].map(|call| chunk(json!({"tool_calls": [call]}), None)));
                calls += 1;
            }
        }
    }
    events.push(chunk(json!({}), Some(if shape.has_calls() { "tool_calls" } else { "stop" })));
    events.push("data: [DONE]\n\n".to_owned());
    events
}

fn message_events(shape: AnswerShape) -> Vec<String> {
    let usage = json!({"input_tokens": 3, "output_tokens": 0, "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0});
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "x", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": usage});
    let mut events = vec![named_event(&json!({"type": "message_start", "message": message}))];
    for (index, (kind, text)) in shape.parts().iter().enumerate() {
        let (block, delta, member) = match *kind {
            "reasoning" => {
                (json!({"type": "thinking", "thinking": "", "signature": ""}), "thinking_delta", "thinking")
            }
            "text" => (json!({"type": "text", "text": ""}), "text_delta", "text"),
            name => {
                let id = format!("toolu_{index}");
                let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                (block, "input_json_delta", "partial_json")
            }
        };
        let (one, other) = text.split_at(3);
        events.push(named_event(
            &json!({"type": "content_block_start", "index": index, "content_block": block}),
        ));
        let mut deltas = vec![(delta, member, one), (delta, member, other)];
        if *kind == "reasoning" {
            deltas.push(("signature_delta", "signature", "seal"));
        }
        for (kind, member, text) in deltas {
            let delta = json!({"type": kind, member: text});
            events.push(named_event(&json!({"type": "content_block_delta", "index": index, "delta": delta})));
        }
        events.push(named_event(&json!({"type": "content_block_stop", "index": index})));
    }
    let reason = if shape.has_calls() { "tool_use" } else { "end_turn" };
    events.push(named_event(&json!({"type": "message_delta", "usage": {"output_tokens": 9},
        "delta": {"stop_reason": reason, "stop_sequence": null}})));
    events.push(named_event(&json!({"type": "message_stop"})));
    events
}

fn response_events(shape: AnswerShape) -> Vec<String> {
    let mut output = Vec::new();
    let created = json!({"type": "response.created", "response": {"status": "in_progress", "output": []}});
    let mut events = vec![named_event(&created)];
    for (index, (kind, text)) in shape.parts().iter().enumerate() {
        let (mut item, delta) = match *kind {
            "reasoning" => (json!({"type": "reasoning", "summary": [], "content": []}), "reasoning_text"),
            "text" => (json!({"type": "message", "role": "assistant", "content": []}), "output_text"),
            name => {
                let id = format!("call_{index}");
                let item = json!({"type": "function_call", "call_id": id, "name": name, "arguments": ""});
                (item, "function_call_arguments")
            }
        };
        let mut event = |kind: String, members: Value| {
            let mut data = json!({"type": format!("response.{kind}"), "output_index": index});
            data.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
            events.push(named_event(&data));
        };
        event("output_item.added".to_owned(), json!({"item": item}));
        let (one, other) = text.split_at(3);
        for text in [one, other] {
            event(format!("{delta}.delta"), json!({"content_index": 0, "delta": text}));
        }
        match *kind {
            "reasoning" | "text" => item["content"] = json!([{"type": delta, "text": text}]),
            _ => item["arguments"] = json!(text),
        }
        event("output_item.done".to_owned(), json!({"item": item}));
        output.push(item);
    }
    let response = json!({"object": "response", "status": "completed", "output": output});
    events.push(named_event(&json!({"type": "response.completed", "response": response})));
    events
}
