//! `_meta`: capabilities and prices of a model in the form that integrations of other hosted services read.

use crate::model::{CatalogModel, CatalogPrice};
use crate::object::JsonObjectBuilder;
use penstock_core::{ModelKind, WorkUnit};
use rust_decimal::Decimal;

/// Level of detail of an item: with or without `_meta`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ItemDetail {
    /// Item without `_meta`.
    #[default]
    Plain,
    /// Item with `_meta`.
    Meta,
}

/// Returns the item with `_meta` appended as its last member.
pub(crate) fn with_meta(item: &str, meta: &str) -> String {
    let open = item.strip_suffix('}').unwrap_or(item);
    format!("{open},\"_meta\":{meta}}}")
}

/// Serializes the `_meta` object of a model with these prices; `display` is the display name. `max_output_tokens`
/// becomes `null` if the model generates no tokens.
pub(crate) fn meta_json(
    model: &CatalogModel,
    display: &str,
    max_output_tokens: u64,
    price: Option<CatalogPrice>,
) -> String {
    let mut object = JsonObjectBuilder::new();
    object.add_text("type", model.kind.spec().catalog_type);
    object.add_text("display_name", display);
    object.add_strings("input_modalities", &model.input_modalities);
    object.add_strings("output_modalities", &model.output_modalities);
    object.add_json("capabilities", &capabilities(model));
    object.add_json("context_length", &model.context_length.to_string());
    let max_output_tokens =
        if model.kind.generates_tokens() { max_output_tokens.to_string() } else { "null".to_owned() };
    object.add_json("max_output_tokens", &max_output_tokens);
    match reasoning(model) {
        Some(kind) => object.add_text("reasoning_type", kind),
        None => object.add_json("reasoning_type", "null"),
    }
    object.add_json("pricing", &pricing(model.kind, price.as_ref()));
    object.finish()
}

fn capabilities(model: &CatalogModel) -> String {
    let chat = model.kind.generates_tokens();
    let takes = |name: &str| chat && model.supported_parameters.iter().any(|parameter| parameter == name);
    let reads = |name: &str| model.input_modalities.iter().any(|modality| modality == name);
    let formats = takes("response_format");
    let mut object = JsonObjectBuilder::new();
    object.add_bool("streaming", chat || model.kind == ModelKind::Speech);
    object.add_bool("function_calling", takes("tools"));
    object.add_bool("vision", chat && reads("image"));
    object.add_bool("structured_output", formats || takes("structured_outputs"));
    object.add_bool("json_schema", formats || takes("structured_outputs"));
    object.add_bool("reasoning", reasoning(model).is_some());
    object.add_bool("audio_input", reads("audio"));
    object.finish()
}

/// Returns how clients control the model's reasoning: `effort` (with `reasoning_effort`) or `always` (no control).
/// `None` for a model that does not reason. The other names in the list only show that a model reasons: the gateway
/// sends no control to a provider because of them.
fn reasoning(model: &CatalogModel) -> Option<&'static str> {
    let takes = |name: &str| model.supported_parameters.iter().any(|parameter| parameter == name);
    if !model.kind.generates_tokens() {
        None
    } else if takes("reasoning_effort") {
        Some("effort")
    } else if takes("reasoning") || takes("include_reasoning") || takes("thinking") {
        Some("always")
    } else {
        None
    }
}

/// Serializes the prices for the unit of work of this kind: tokens, images or minutes. A price is `null` if it is
/// unknown or if the tokens are not charged.
fn pricing(kind: ModelKind, price: Option<&CatalogPrice>) -> String {
    let cost = |price: Option<Decimal>| {
        price.map_or_else(|| "null".to_owned(), |price| price.normalize().to_string())
    };
    let unit = kind.spec().unit;
    let input = price.filter(|_| matches!(unit, WorkUnit::GeneratedTokens | WorkUnit::InputTokens));
    let output = price.filter(|_| unit == WorkUnit::GeneratedTokens);
    let mut object = JsonObjectBuilder::new();
    object.add_json("input_cost_per_million_eur", &cost(input.map(|price| price.input)));
    object.add_json("output_cost_per_million_eur", &cost(output.map(|price| price.output)));
    object.add_json("cache_read_cost_per_million_eur", &cost(input.map(|price| price.cached_input)));
    match unit {
        WorkUnit::GeneratedTokens | WorkUnit::InputTokens => {}
        WorkUnit::Images => object.add_json("cost_per_image_eur", &cost(price.and_then(|price| price.image))),
        WorkUnit::AudioSeconds => {
            object.add_json("cost_per_minute_eur", &cost(price.and_then(|price| price.minute)));
        }
    }
    object.add_text("currency", "EUR");
    object.finish()
}
