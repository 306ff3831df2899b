//! Tests only: golden cases of every shape, and general rules.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod golden;
mod moderation;
mod reported_usage;
mod rules;

use bytes::Bytes;
use penstock_core::*;
use serde_json::Value;

/// Returns a request with this body, as admission creates it.
pub(super) fn ask(kind: ModelKind, body: &str) -> InferenceRequest {
    let value: Value = serde_json::from_str(body).unwrap();
    let bytes = Bytes::copy_from_slice(body.as_bytes());
    let fields = penstock_json_scan::json::members(body.as_bytes()).map(|member| BodyMember {
        name: body[member.key.start + 1..member.key.end - 1].into(),
        member_range: member.key.start..member.value.end,
        value_range: member.value,
        long_strings: Vec::new(),
    });
    let json = |value: &Value| Bytes::from(value.to_string());
    let list = |name: &str| match &value[name] {
        Value::Array(items) => items.iter().map(json).collect(),
        one => vec![json(one)],
    };
    let task = match kind {
        ModelKind::Embedding => InferenceTask::Embed(EmbeddingTask {
            inputs: match value["input"][0] {
                _ if mixed(&value["input"]) => EmbeddingInputs::Mixed(list("input")),
                Value::Array(_) => EmbeddingInputs::TokenIds(list("input")),
                Value::Number(_) => EmbeddingInputs::TokenIds(vec![json(&value["input"])]),
                _ => EmbeddingInputs::Texts(list("input")),
            },
            is_verbatim: true,
            as_base64: value["encoding_format"] == "base64",
            dimensions: value["dimensions"].as_u64().map(|length| u32::try_from(length).unwrap()),
        }),
        ModelKind::Rerank => InferenceTask::Rerank(RerankTask {
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
        // Requests for other kinds of models are forwarded unchanged.
        _ => InferenceTask::Passthrough(PassthroughTask {
            delivery: PassthroughDelivery::Complete,
            texts: list("input"),
            max_work: WorkDone::Tokens(TokenUsage { input: 1_000, ..TokenUsage::default() }),
            content_type: None,
        }),
    };
    let model = value["model"].as_str().unwrap().into();
    InferenceRequest {
        prompt_bytes: 40,
        ..InferenceRequest::from_non_chat_task(kind, bytes, BodyMembers(fields.collect()), model, task)
    }
}

/// Returns true if texts and token ids are in one list.
fn mixed(input: &Value) -> bool {
    let items = input.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().any(Value::is_string) && items.iter().any(Value::is_array)
}

/// Parses capabilities from JSON.
pub(super) fn abilities(value: &Value) -> OfferCapabilities {
    let parameters = value["supported_parameters"].as_array().cloned().unwrap_or_default();
    OfferCapabilities {
        parameters: parameters.iter().map(|name| name.as_str().unwrap().into()).collect(),
        max_inputs: value["max_inputs"].as_u64().map(|most| usize::try_from(most).unwrap()),
        score_transform: if value["score"] == "sigmoid" {
            RerankScoreTransform::Sigmoid
        } else {
            RerankScoreTransform::Identity
        },
        ..OfferCapabilities::default()
    }
}

/// Returns a target with these capabilities.
pub(super) fn target(abilities: &OfferCapabilities) -> AttemptTarget<'_> {
    AttemptTarget {
        model: "engine/model",
        dialect: Dialect::Chat,
        capabilities: abilities,
        preset: &[],
        max_tokens: None,
        adjustment: penstock_core::RequestAdjustment::default(),
        answer_model: "org/model",
        answer_id: "4b8e",
        answer_created: 1_763_650_000,
    }
}

/// Returns the shape of this kind and name.
pub(super) fn shape(kind: ModelKind, name: &str) -> &'static dyn ProviderAdapter {
    *crate::ADAPTERS.iter().find(|shape| shape.kind() == kind && shape.name() == name).unwrap()
}
