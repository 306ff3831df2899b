//! Catalogue item of one model, in the form that the client libraries of both dialects read.
//!
//! The item unites two model objects: `object`, `owned_by`, `created` for one family of libraries; `type`,
//! `display_name`, `created_at`, `lifecycle`, `max_input_tokens`, `max_tokens` for the other; and our own fields.
//! Prices of tokens are EUR per token, as exact JSON numbers and, under the names `prompt` and `completion`, as strings
//! for clients that expect these; other prices are EUR per image and per minute.

use crate::meta::{ItemDetail, meta_json, with_meta};
use crate::model::{CatalogModel, CatalogPrice};
use crate::object::JsonObjectBuilder;
use crate::pattern::AliasPattern;
use penstock_core::calendar::format_rfc3339;
use rust_decimal::Decimal;

/// Serializes the item of a model under the requested name. If the name is an alias or matches a pattern, the item has
/// this name as its `id`; otherwise it has the model's own id. The item has the prices of the time `now`, Unix seconds.
#[must_use]
pub fn serialize_item(model: &CatalogModel, name: &str, detail: ItemDetail, now: u64) -> Vec<u8> {
    let lower = name.to_lowercase();
    let fits = |alias: &String| match AliasPattern::new(alias) {
        Some(pattern) => pattern.matches(&lower),
        None => alias == name,
    };
    let alias = Some(name).filter(|_| !name.is_empty() && name != model.id && model.aliases.iter().any(fits));
    let price = model.price_at(now);
    let item = item_json(model, alias, price);
    match detail {
        ItemDetail::Plain => item,
        ItemDetail::Meta => with_meta(&item, &meta_json_for_alias(model, alias, price)),
    }
    .into_bytes()
}

/// Returns the `_meta` object of a model, or of one of its aliases.
pub(crate) fn meta_json_for_alias(
    model: &CatalogModel,
    alias: Option<&str>,
    price: Option<CatalogPrice>,
) -> String {
    meta_json(model, &display_name(model, alias), max_output_tokens(model), price)
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

/// Returns the item of a model, or of one of its aliases, with these prices.
pub(crate) fn item_json(model: &CatalogModel, alias: Option<&str>, price: Option<CatalogPrice>) -> String {
    let id = alias.unwrap_or(&model.id);
    let (display, most) = (display_name(model, alias), max_output_tokens(model));
    let usual = || model.id.split_once('/').map_or("penstock", |(owner, _)| owner);
    let owner = model.owned_by.as_deref().unwrap_or_else(usual);
    let mut object = JsonObjectBuilder::new();
    object.add_text("id", id);
    object.add_text("object", "model");
    object.add_json("created", &model.created.to_string());
    object.add_text("owned_by", owner);
    object.add_text("name", &display);
    object.add_text("description", &model.description);
    object.add_json("context_length", &model.context_length.to_string());
    object.add_json("pricing", &pricing(&price.unwrap_or_default()));
    object.add_strings("supported_parameters", &model.supported_parameters);
    object.add_text("type", "model");
    object.add_text("display_name", &display);
    object.add_text("created_at", &format_rfc3339(model.created));
    object.add_text("lifecycle", model.lifecycle.name());
    object.add_json("max_input_tokens", &model.context_length.to_string());
    object.add_json("max_tokens", &most.to_string());
    object.add_text("kind", model.kind.name());
    if alias.is_some() {
        object.add_text("alias_of", &model.id);
    }
    let mut architecture = JsonObjectBuilder::new();
    architecture.add_strings("input_modalities", &model.input_modalities);
    architecture.add_strings("output_modalities", &model.output_modalities);
    object.add_json("architecture", &architecture.finish());
    let mut top = JsonObjectBuilder::new();
    top.add_json("context_length", &model.context_length.to_string());
    top.add_json("max_completion_tokens", &most.to_string());
    object.add_json("top_provider", &top.finish());
    object.finish()
}

fn pricing(price: &CatalogPrice) -> String {
    let (input, output) = (per_token(price.input), per_token(price.output));
    let mut object = JsonObjectBuilder::new();
    object.add_json("input", &input);
    object.add_json("output", &output);
    object.add_json("cached_input", &per_token(price.cached_input));
    if let Some(image) = price.image {
        object.add_json("image", &image.normalize().to_string());
    }
    if let Some(minute) = price.minute {
        object.add_json("minute", &minute.normalize().to_string());
    }
    object.add_text("prompt", &input);
    object.add_text("completion", &output);
    object.add_text("currency", "EUR");
    object.finish()
}

/// Returns the price per token for a price per million tokens: exact, or rounded to 28 decimal places if the price has
/// more than 22.
fn per_token(per_million: Decimal) -> String {
    per_million.checked_mul(Decimal::new(1, 6)).unwrap_or_default().normalize().to_string()
}
