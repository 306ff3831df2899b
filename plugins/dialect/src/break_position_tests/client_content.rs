//! Content of an answer as a client reads it from a stream.

use penstock_core::Dialect;
use serde_json::Value;

/// Kind and text of a part of an answer: `reasoning`, `text`, or the name of the called function.
pub(super) type Part = (String, String);

/// Returns the parts of an answer in their order. A part of a messages client is one content block.
pub(super) fn client_parts(client: Dialect, out: &str) -> Vec<Part> {
    let data = out.lines().filter_map(|line| line.strip_prefix("data: {"));
    let events: Vec<Value> = data.map(|data| serde_json::from_str(&format!("{{{data}")).unwrap()).collect();
    match client {
        Dialect::Chat => chat_parts(&events),
        Dialect::Messages => message_parts(&events),
        _ => response_parts(&events),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn chat_parts(events: &[Value]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut append = |kind: &str, text: &str| match parts.last_mut() {
        Some((last, all)) if last == kind => all.push_str(text),
        _ => parts.push((kind.to_owned(), text.to_owned())),
    };
    let mut function = String::new();
    for delta in events.iter().map(|event| &event["choices"][0]["delta"]) {
        for (member, kind) in [("reasoning_content", "reasoning"), ("content", "text")] {
            if let Some(text) = delta[member].as_str().filter(|text| !text.is_empty()) {
                append(kind, text);
            }
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            if let Some(name) = call["function"]["name"].as_str() {
                name.clone_into(&mut function);
            }
            append(&function, call["function"]["arguments"].as_str().unwrap_or_default());
        }
    }
    parts
}

fn message_parts(events: &[Value]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for event in events {
        let index = usize::try_from(event["index"].as_u64().unwrap_or_default()).unwrap();
        if event["type"] == "content_block_start" {
            let block = &event["content_block"];
            let kind = match text(&block["type"]).as_str() {
                "thinking" => "reasoning".to_owned(),
                "tool_use" => text(&block["name"]),
                kind => kind.to_owned(),
            };
            assert_eq!(index, parts.len(), "{event}");
            parts.push((kind, String::new()));
        }
        for member in ["text", "thinking", "partial_json"] {
            if let Some(text) = event["delta"][member].as_str() {
                parts[index].1.push_str(text);
            }
        }
    }
    parts
}

fn response_parts(events: &[Value]) -> Vec<Part> {
    let items = events.last().unwrap()["response"]["output"].as_array().unwrap();
    let joined =
        |parts: &Value| parts.as_array().into_iter().flatten().map(|part| text(&part["text"])).collect();
    let part = |item: &Value| match text(&item["type"]).as_str() {
        "reasoning" => ("reasoning".to_owned(), joined(&item["content"])),
        "message" => ("text".to_owned(), joined(&item["content"])),
        _ => (text(&item["name"]), text(&item["arguments"])),
    };
    items.iter().map(part).collect()
}
