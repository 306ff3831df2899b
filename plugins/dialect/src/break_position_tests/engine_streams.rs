//! Streams of engines that number the items and parts of a response in their own way.

use super::provider_streams::{AnswerShape, named_event};
use serde_json::{Value, json};

/// Engine with a responses endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// vLLM: the index of a part rises with each delta.
    Vllm,
    /// vLLM with gpt-oss: indexes of items start at 1, and the index of a text is 1.
    Harmony,
    /// Old vLLM with gpt-oss: the events that end a part or an item have the index of the next item.
    OldHarmony,
    /// llama.cpp: no indexes, and the complete call has no id.
    LlamaCpp,
    /// SGLang: no event that starts the response.
    Sglang,
    /// Engine without events that add items or end them.
    DeltasOnly,
    /// Engine that sends each text only once, at its end.
    EndsOnly,
    /// Engine that gives all items the index 0 and ends only texts.
    SameIndex,
}

impl Engine {
    pub(super) const ALL: [Self; 8] = [
        Self::Vllm,
        Self::Harmony,
        Self::OldHarmony,
        Self::LlamaCpp,
        Self::Sglang,
        Self::DeltasOnly,
        Self::EndsOnly,
        Self::SameIndex,
    ];

    /// Returns the events of a complete stream.
    pub(super) fn events(self, shape: AnswerShape) -> Vec<String> {
        let mut events = Vec::new();
        if self != Self::Sglang {
            let response = json!({"status": "in_progress", "output": []});
            events.push(json!({"type": "response.created", "response": response}));
        }
        let mut output = Vec::new();
        for (number, (kind, text)) in shape.parts().iter().enumerate() {
            events.extend(self.item_events(number, kind, text));
            let mut item = complete_item(number, kind, text);
            item["id"] = json!(format!("final_{number}"));
            output.push(item);
        }
        let response = json!({"object": "response", "status": "completed", "output": output});
        events.push(json!({"type": "response.completed", "response": response}));
        events.iter().map(named_event).collect()
    }

    fn item_events(self, number: usize, kind: &str, text: &str) -> Vec<Value> {
        let names = EventNames::of(kind);
        let complete = complete_item(number, kind, text);
        let id = complete.get("id").or(complete.get("call_id")).unwrap().clone();
        let mut added = complete.clone();
        added[names.list] = if names.is_call() { json!("") } else { json!([]) };
        let part = json!({"type": names.part, "text": ""});
        let mut events = vec![
            (EventRole::ItemAdded, "output_item.added".to_owned(), json!({"item": added})),
            (EventRole::PartAdded, "content_part.added".to_owned(), json!({"item_id": id, "part": part})),
        ];
        for delta in [&text[..1], &text[1..2], &text[2..]] {
            let data = json!({"item_id": id, "delta": delta});
            events.push((EventRole::Delta, format!("{}.delta", names.part), data));
        }
        let data = json!({"item_id": id, names.text: text});
        events.push((EventRole::TextDone, format!("{}.done", names.part), data));
        let part = json!({"type": names.part, "text": text});
        let data = json!({"item_id": id, "part": part});
        events.push((EventRole::PartDone, "content_part.done".to_owned(), data));
        events.push((EventRole::ItemDone, "output_item.done".to_owned(), json!({"item": complete})));
        let is_sent = |role: EventRole| self.sends(role, names.is_call());
        let mut indexes = self.content_indexes();
        let mut sent = Vec::new();
        for (role, name, mut data) in events.into_iter().filter(|(role, ..)| is_sent(*role)) {
            data["type"] = json!(format!("response.{name}"));
            if let Some(index) = self.output_index(number, role) {
                data["output_index"] = json!(index);
            }
            let is_of_part = !matches!(role, EventRole::ItemAdded | EventRole::ItemDone);
            if let Some(index) = indexes.next_if(|_| is_of_part && !names.is_call()) {
                data["content_index"] = json!(index);
            }
            if self == Self::LlamaCpp && role == EventRole::ItemDone && names.is_call() {
                data["item"].as_object_mut().unwrap().remove("id");
            }
            sent.push(data);
        }
        sent
    }

    fn sends(self, role: EventRole, is_call: bool) -> bool {
        let is_of_part = matches!(role, EventRole::PartAdded | EventRole::PartDone);
        match self {
            _ if is_call && is_of_part => false,
            Self::DeltasOnly => role == EventRole::Delta || is_call && role == EventRole::ItemDone,
            Self::EndsOnly if is_call => role == EventRole::ItemDone,
            Self::EndsOnly => role == EventRole::TextDone,
            Self::SameIndex if !is_call => role != EventRole::ItemDone,
            _ => true,
        }
    }

    fn output_index(self, number: usize, role: EventRole) -> Option<usize> {
        let is_end = matches!(role, EventRole::TextDone | EventRole::PartDone | EventRole::ItemDone);
        match self {
            Self::LlamaCpp => None,
            Self::SameIndex => Some(0),
            Self::Harmony => Some(number + 1),
            Self::OldHarmony => Some(number + 1 + usize::from(is_end)),
            _ => Some(number),
        }
    }

    /// Returns the content indexes of the events about one part.
    fn content_indexes(self) -> std::iter::Peekable<Box<dyn Iterator<Item = i64>>> {
        let indexes: Box<dyn Iterator<Item = i64>> = match self {
            Self::Vllm => Box::new(0..),
            Self::Harmony => Box::new(std::iter::repeat(1)),
            Self::OldHarmony => Box::new(std::iter::repeat(-1)),
            Self::LlamaCpp => Box::new(std::iter::empty()),
            _ => Box::new(std::iter::repeat(0)),
        };
        indexes.peekable()
    }
}

/// Role of an event of an item.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EventRole {
    ItemAdded,
    PartAdded,
    Delta,
    TextDone,
    PartDone,
    ItemDone,
}

/// Names in the events of an item.
struct EventNames {
    /// Type of the part and start of the names of its events.
    part: &'static str,
    /// Member of the item with the content.
    list: &'static str,
    /// Member with the complete text.
    text: &'static str,
}

impl EventNames {
    fn of(kind: &str) -> Self {
        match kind {
            "reasoning" => Self { part: "reasoning_text", list: "content", text: "text" },
            "text" => Self { part: "output_text", list: "content", text: "text" },
            _ => Self { part: "function_call_arguments", list: "arguments", text: "arguments" },
        }
    }

    fn is_call(&self) -> bool {
        self.list == "arguments"
    }
}

fn complete_item(number: usize, kind: &str, text: &str) -> Value {
    let id = format!("item_{number}");
    match kind {
        "reasoning" => {
            json!({"type": "reasoning", "id": id, "summary": [],
                "content": [{"type": "reasoning_text", "text": text}]})
        }
        "text" => {
            json!({"type": "message", "id": id, "role": "assistant",
                "content": [{"type": "output_text", "text": text, "annotations": []}]})
        }
        name => {
            json!({"type": "function_call", "id": id, "call_id": format!("call_{number}"), "name": name,
                "arguments": text})
        }
    }
}
