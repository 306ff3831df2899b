//! Tests only: golden cases of every shape, and the rules that no file of cases holds.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod golden;
mod rules;

use bytes::Bytes;
use penstock_contract::*;
use serde_json::Value;

/// An ask of this body, as admission makes it.
pub(super) fn ask(kind: Kind, body: &str) -> Ask {
    let value: Value = serde_json::from_str(body).unwrap();
    let bytes = Bytes::copy_from_slice(body.as_bytes());
    let fields = penstock_wire::json::members(body.as_bytes()).map(|member| Field {
        name: body[member.key.start + 1..member.key.end - 1].into(),
        member: member.key.start..member.value.end,
        value: member.value,
    });
    let json = |value: &Value| Bytes::from(value.to_string());
    let list = |name: &str| match &value[name] {
        Value::Array(items) => items.iter().map(json).collect(),
        one => vec![json(one)],
    };
    let task = match kind {
        Kind::Embedding => Task::Embed(Embed {
            inputs: match value["input"][0] {
                _ if mixed(&value["input"]) => Inputs::Mixed(list("input")),
                Value::Array(_) => Inputs::Ids(list("input")),
                Value::Number(_) => Inputs::Ids(vec![json(&value["input"])]),
                _ => Inputs::Texts(list("input")),
            },
            verbatim: true,
            base64: value["encoding_format"] == "base64",
            dimensions: value["dimensions"].as_u64().map(|length| u32::try_from(length).unwrap()),
        }),
        _ => Task::Rerank(Rerank {
            query: json(&value["query"]),
            documents: value["documents"]
                .as_array()
                .unwrap()
                .iter()
                .map(|document| json(document.get("text").unwrap_or(document)))
                .collect(),
            top_n: value["top_n"].as_u64().map(|most| usize::try_from(most).unwrap()),
            return_documents: value["return_documents"] == true,
        }),
    };
    let model = value["model"].as_str().unwrap().into();
    Ask { prompt_bytes: 40, ..Ask::plain(kind, bytes, Fields(fields.collect()), model, task) }
}

/// Whether texts and token ids stand in one list.
fn mixed(input: &Value) -> bool {
    let items = input.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().any(Value::is_string) && items.iter().any(Value::is_array)
}

/// Abilities from JSON.
pub(super) fn abilities(value: &Value) -> Abilities {
    let parameters = value["supported_parameters"].as_array().cloned().unwrap_or_default();
    Abilities {
        parameters: parameters.iter().map(|name| name.as_str().unwrap().into()).collect(),
        max_inputs: value["max_inputs"].as_u64().map(|most| usize::try_from(most).unwrap()),
        score: if value["score"] == "sigmoid" { Score::Sigmoid } else { Score::AsIs },
        ..Abilities::default()
    }
}

/// A target with these abilities.
pub(super) fn target(abilities: &Abilities) -> Target<'_> {
    Target {
        model: "engine/model",
        dialect: Dialect::Chat,
        abilities,
        preset: &[],
        max_tokens: None,
        adjust: penstock_contract::Adjust::default(),
        answer_model: "org/model",
        id: "4b8e",
        created: 1_763_650_000,
    }
}

/// The shape of this kind and name.
pub(super) fn shape(kind: Kind, name: &str) -> &'static dyn Shape {
    *crate::SHAPES.iter().find(|shape| shape.kind() == kind && shape.name() == name).unwrap()
}
