//! `_meta`: capabilities and prices of a model in the form that integrations of other hosted services read.

use crate::model::{CatalogModel, CatalogPrice};
use crate::object::JsonObject;
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

/// Appends `_meta` to an item as its last member.
pub(crate) fn with_meta(item: &str, meta: &str) -> String {
    let open = item.strip_suffix('}').unwrap_or(item);
    format!("{open},\"_meta\":{meta}}}")
}

/// Serializes the `_meta` object of a model.
pub(crate) fn meta_json(model: &CatalogModel, display: &str, most: u64) -> String {
    let mut object = JsonObject::new();
    object.text_member("type", model.kind.spec().catalog_type);
    object.text_member("display_name", display);
    object.list_member("input_modalities", &model.input_modalities);
    object.list_member("output_modalities", &model.output_modalities);
    object.raw_member("capabilities", &capabilities(model));
    object.raw_member("context_length", &model.context_length.to_string());
    object.raw_member("max_output_tokens", &most.to_string());
    match reasoning(model) {
        Some(kind) => object.text_member("reasoning_type", kind),
        None => object.raw_member("reasoning_type", "null"),
    }
    object.raw_member("pricing", &pricing(model.price.as_ref()));
    object.finish()
}

fn capabilities(model: &CatalogModel) -> String {
    let chat = model.kind.is_generator();
    let takes = |name: &str| chat && model.supported_parameters.iter().any(|parameter| parameter == name);
    let reads = |name: &str| model.input_modalities.iter().any(|modality| modality == name);
    let formats = takes("response_format");
    let mut object = JsonObject::new();
    object.bool_member("streaming", chat);
    object.bool_member("function_calling", takes("tools"));
    object.bool_member("vision", chat && reads("image"));
    object.bool_member("structured_output", formats || takes("structured_outputs"));
    object.bool_member("json_schema", formats || takes("structured_outputs"));
    object.bool_member("reasoning", reasoning(model).is_some());
    object.bool_member("audio_input", reads("audio"));
    object.finish()
}

/// Returns how clients control the model's reasoning: `effort` (with `reasoning_effort`) or `always` (no control).
/// `None` for a model that does not reason.
fn reasoning(model: &CatalogModel) -> Option<&'static str> {
    let takes = |name: &str| model.supported_parameters.iter().any(|parameter| parameter == name);
    if !model.kind.is_generator() {
        None
    } else if takes("reasoning_effort") {
        Some("effort")
    } else if takes("reasoning") || takes("include_reasoning") || takes("thinking") {
        Some("always")
    } else {
        None
    }
}

/// Returns the prices per million tokens; `null` for an unknown price.
fn pricing(price: Option<&CatalogPrice>) -> String {
    let cost = |price: Option<Decimal>| {
        price.map_or_else(|| "null".to_owned(), |price| price.normalize().to_string())
    };
    let mut object = JsonObject::new();
    object.raw_member("input_cost_per_million_eur", &cost(price.map(|price| price.input)));
    object.raw_member("output_cost_per_million_eur", &cost(price.map(|price| price.output)));
    object.raw_member("cache_read_cost_per_million_eur", &cost(price.map(|price| price.cached_input)));
    object.text_member("currency", "EUR");
    object.finish()
}
