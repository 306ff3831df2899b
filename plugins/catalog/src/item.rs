//! Catalogue item of one model, in the form that the client libraries of both dialects read.
//!
//! It is the union of two model objects: `object`, `owned_by`, `created` for one family of libraries; `type`,
//! `display_name`, `created_at`, `lifecycle`, `max_input_tokens`, `max_tokens` for the other; and our own fields.
//! Prices are EUR per token, as exact JSON numbers and, under the names `prompt` and `completion`, as strings for
//! clients that expect these.

use crate::meta::{ItemDetail, meta_json, with_meta};
use crate::model::{CatalogModel, CatalogPrice};
use crate::object::JsonObject;
use crate::pattern::AliasPattern;
use penstock_core::calendar::format_rfc3339;
use rust_decimal::Decimal;

/// Serializes the item of a model under the requested name. If the name is an alias or matches a pattern, the item has
/// this name as its `id`; otherwise it has the model's own id.
#[must_use]
pub fn serialize_item(model: &CatalogModel, name: &str, detail: ItemDetail) -> Vec<u8> {
    let lower = name.to_lowercase();
    let fits = |alias: &String| match AliasPattern::new(alias) {
        Some(pattern) => pattern.matches(&lower),
        None => alias == name,
    };
    let alias = Some(name).filter(|_| !name.is_empty() && name != model.id && model.aliases.iter().any(fits));
    let item = item_json(model, alias);
    match detail {
        ItemDetail::Plain => item,
        ItemDetail::Meta => with_meta(&item, &meta_of(model, alias)),
    }
    .into_bytes()
}

/// Returns the `_meta` object of a model, or of one of its aliases.
pub(crate) fn meta_of(model: &CatalogModel, alias: Option<&str>) -> String {
    meta_json(model, &display_name(model, alias), max_output_tokens(model))
}

/// Returns the display name of a model, or of one of its aliases.
fn display_name(model: &CatalogModel, alias: Option<&str>) -> String {
    match alias {
        Some(alias) => format!("{alias} ({})", model.name),
        None => model.name.clone(),
    }
}

/// Returns the maximum number of generated tokens.
fn max_output_tokens(model: &CatalogModel) -> u64 {
    model.max_output.unwrap_or(model.context_length).min(model.context_length)
}

/// Returns the item of a model, or of one of its aliases.
pub(crate) fn item_json(model: &CatalogModel, alias: Option<&str>) -> String {
    let id = alias.unwrap_or(&model.id);
    let (display, most) = (display_name(model, alias), max_output_tokens(model));
    let usual = || model.id.split_once('/').map_or("penstock", |(owner, _)| owner);
    let owner = model.owned_by.as_deref().unwrap_or_else(usual);
    let mut object = JsonObject::new();
    object.text_member("id", id);
    object.text_member("object", "model");
    object.raw_member("created", &model.created.to_string());
    object.text_member("owned_by", owner);
    object.text_member("name", &display);
    object.text_member("description", &model.description);
    object.raw_member("context_length", &model.context_length.to_string());
    object.raw_member("pricing", &pricing(&model.price.unwrap_or_default()));
    object.list_member("supported_parameters", &model.supported_parameters);
    object.text_member("type", "model");
    object.text_member("display_name", &display);
    object.text_member("created_at", &format_rfc3339(model.created));
    object.text_member("lifecycle", model.lifecycle.name());
    object.raw_member("max_input_tokens", &model.context_length.to_string());
    object.raw_member("max_tokens", &most.to_string());
    object.text_member("kind", model.kind.name());
    if alias.is_some() {
        object.text_member("alias_of", &model.id);
    }
    let mut architecture = JsonObject::new();
    architecture.list_member("input_modalities", &model.input_modalities);
    architecture.list_member("output_modalities", &model.output_modalities);
    object.raw_member("architecture", &architecture.finish());
    let mut top = JsonObject::new();
    top.raw_member("context_length", &model.context_length.to_string());
    top.raw_member("max_completion_tokens", &most.to_string());
    object.raw_member("top_provider", &top.finish());
    object.finish()
}

fn pricing(price: &CatalogPrice) -> String {
    let (input, output) = (per_token(price.input), per_token(price.output));
    let mut object = JsonObject::new();
    object.raw_member("input", &input);
    object.raw_member("output", &output);
    object.raw_member("cached_input", &per_token(price.cached_input));
    if let Some(image) = price.image {
        object.raw_member("image", &image.normalize().to_string());
    }
    if let Some(minute) = price.minute {
        object.raw_member("minute", &minute.normalize().to_string());
    }
    object.text_member("prompt", &input);
    object.text_member("completion", &output);
    object.text_member("currency", "EUR");
    object.finish()
}

/// Returns the price per token for a price per million tokens: exact, or rounded to 28 decimal places if the price has
/// more than 22.
fn per_token(per_million: Decimal) -> String {
    per_million.checked_mul(Decimal::new(1, 6)).unwrap_or_default().normalize().to_string()
}
