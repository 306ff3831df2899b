//! `_meta`: capabilities and prices of a model in the form that integrations of other hosted services read.

use crate::model::{Model, Price};
use crate::object::Object;
use penstock_contract::Kind;
use rust_decimal::Decimal;

/// Level of detail of an item: with or without `_meta`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Item without `_meta`.
    #[default]
    Plain,
    /// Item with `_meta`.
    Meta,
}

/// Appends `_meta` to an item as its last member.
pub(crate) fn with_meta(item: &str, meta: &str) -> String {
    let open = item.strip_suffix('}').unwrap_or(item);
    format!("{open},\"_meta\":{meta}}}")
}

/// Serializes the `_meta` object of a model.
pub(crate) fn meta(model: &Model, display: &str, most: u64) -> String {
    let mut object = Object::new();
    object.text("type", kind(model.kind));
    object.text("display_name", display);
    object.list("input_modalities", &model.input_modalities);
    object.list("output_modalities", &model.output_modalities);
    object.raw("capabilities", &capabilities(model));
    object.raw("context_length", &model.context_length.to_string());
    object.raw("max_output_tokens", &most.to_string());
    match reasoning(model) {
        Some(kind) => object.text("reasoning_type", kind),
        None => object.raw("reasoning_type", "null"),
    }
    object.raw("pricing", &pricing(model.price.as_ref()));
    object.end()
}

const fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Chat => "chat",
        Kind::Embedding => "embeddings",
        Kind::Rerank => "rerank",
        Kind::Image => "image",
        Kind::Transcription => "audio",
    }
}

fn capabilities(model: &Model) -> String {
    let chat = model.kind == Kind::Chat;
    let takes = |name: &str| chat && model.supported_parameters.iter().any(|parameter| parameter == name);
    let reads = |name: &str| model.input_modalities.iter().any(|modality| modality == name);
    let formats = takes("response_format");
    let mut object = Object::new();
    object.flag("streaming", chat);
    object.flag("function_calling", takes("tools"));
    object.flag("vision", chat && reads("image"));
    object.flag("structured_output", formats || takes("structured_outputs"));
    object.flag("json_schema", formats || takes("structured_outputs"));
    object.flag("reasoning", reasoning(model).is_some());
    object.flag("audio_input", reads("audio"));
    object.end()
}

/// Control of a model's reasoning: `effort` (by `reasoning_effort`) or `always` (cannot be controlled). `None` for a
/// model that does not reason.
fn reasoning(model: &Model) -> Option<&'static str> {
    let takes = |name: &str| model.supported_parameters.iter().any(|parameter| parameter == name);
    if model.kind != Kind::Chat {
        None
    } else if takes("reasoning_effort") {
        Some("effort")
    } else if takes("reasoning") || takes("include_reasoning") || takes("thinking") {
        Some("always")
    } else {
        None
    }
}

/// Prices per million tokens; `null` for an unknown price.
fn pricing(price: Option<&Price>) -> String {
    let cost = |price: Option<Decimal>| {
        price.map_or_else(|| "null".to_owned(), |price| price.normalize().to_string())
    };
    let mut object = Object::new();
    object.raw("input_cost_per_million_eur", &cost(price.map(|price| price.input)));
    object.raw("output_cost_per_million_eur", &cost(price.map(|price| price.output)));
    object.raw("cache_read_cost_per_million_eur", &cost(price.map(|price| price.cached_input)));
    object.text("currency", "EUR");
    object.end()
}
