//! One catalogue item in the form that the client libraries of both dialects read.
//!
//! It is the union of two model objects: `object`, `owned_by`, `created` for one family of libraries; `type`,
//! `display_name`, `created_at`, `lifecycle`, `max_input_tokens`, `max_tokens` for the other; and our own fields.
//! Prices are EUR per token, as exact JSON numbers and, under the names `prompt` and `completion`, as strings for
//! clients that expect these.

use crate::meta::{Detail, meta, with_meta};
use crate::model::{Model, Price};
use crate::object::Object;
use crate::pattern::Pattern;
use penstock_contract::calendar::rfc3339;
use rust_decimal::Decimal;

/// Serializes the item of a model under the requested name. If the name is an alias or matches a pattern, it becomes
/// the `id` of the item; any other name gives the item under the model's own id.
#[must_use]
pub fn one(model: &Model, name: &str, detail: Detail) -> Vec<u8> {
    let lower = name.to_lowercase();
    let fits = |alias: &String| match Pattern::new(alias) {
        Some(pattern) => pattern.fits(&lower),
        None => alias == name,
    };
    let alias = Some(name).filter(|_| !name.is_empty() && name != model.id && model.aliases.iter().any(fits));
    let item = item(model, alias);
    match detail {
        Detail::Plain => item,
        Detail::Meta => with_meta(&item, &meta_of(model, alias)),
    }
    .into_bytes()
}

/// `_meta` object of a model, or of one of its aliases.
pub(crate) fn meta_of(model: &Model, alias: Option<&str>) -> String {
    meta(model, &display(model, alias), most(model))
}

/// Display name.
fn display(model: &Model, alias: Option<&str>) -> String {
    match alias {
        Some(alias) => format!("{alias} ({})", model.name),
        None => model.name.clone(),
    }
}

/// Maximum number of generated tokens.
fn most(model: &Model) -> u64 {
    model.max_output.unwrap_or(model.context_length).min(model.context_length)
}

/// The item of a model, or of one of its aliases.
pub(crate) fn item(model: &Model, alias: Option<&str>) -> String {
    let id = alias.unwrap_or(&model.id);
    let (display, most) = (display(model, alias), most(model));
    let usual = || model.id.split_once('/').map_or("penstock", |(owner, _)| owner);
    let owner = model.owned_by.as_deref().unwrap_or_else(usual);
    let mut object = Object::new();
    object.text("id", id);
    object.text("object", "model");
    object.raw("created", &model.created.to_string());
    object.text("owned_by", owner);
    object.text("name", &display);
    object.text("description", &model.description);
    object.raw("context_length", &model.context_length.to_string());
    object.raw("pricing", &pricing(&model.price.unwrap_or_default()));
    object.list("supported_parameters", &model.supported_parameters);
    object.text("type", "model");
    object.text("display_name", &display);
    object.text("created_at", &rfc3339(model.created));
    object.text("lifecycle", model.lifecycle.name());
    object.raw("max_input_tokens", &model.context_length.to_string());
    object.raw("max_tokens", &most.to_string());
    object.text("kind", model.kind.name());
    if alias.is_some() {
        object.text("alias_of", &model.id);
    }
    let mut architecture = Object::new();
    architecture.list("input_modalities", &model.input_modalities);
    architecture.list("output_modalities", &model.output_modalities);
    object.raw("architecture", &architecture.end());
    let mut top = Object::new();
    top.raw("context_length", &model.context_length.to_string());
    top.raw("max_completion_tokens", &most.to_string());
    object.raw("top_provider", &top.end());
    object.end()
}

fn pricing(price: &Price) -> String {
    let (input, output) = (per_token(price.input), per_token(price.output));
    let mut object = Object::new();
    object.raw("input", &input);
    object.raw("output", &output);
    object.raw("cached_input", &per_token(price.cached_input));
    if let Some(image) = price.image {
        object.raw("image", &image.normalize().to_string());
    }
    if let Some(minute) = price.minute {
        object.raw("minute", &minute.normalize().to_string());
    }
    object.text("prompt", &input);
    object.text("completion", &output);
    object.text("currency", "EUR");
    object.end()
}

/// Price per token from the price per million tokens: exact, or rounded to 28 places if the price has more than 22.
fn per_token(per_million: Decimal) -> String {
    per_million.checked_mul(Decimal::new(1, 6)).unwrap_or_default().normalize().to_string()
}
