//! `supported_parameters`: known names, and defaults by kind. Also detects prices that look like prices of a single
//! token.

use super::super::raw;
use super::super::suggest;
use super::SettingsResolver;
use super::key_path::KeyPath;
use penstock_core::task_parameters::{EMBEDDING_PARAMETERS, RERANK_PARAMETERS};
use penstock_core::{MODEL_KINDS, ModelKind};
use penstock_dialect::parameters::{ParameterEffect, find_engine_parameter};
use penstock_media::speech::OFFER_DEPENDENT_PARAMETERS;
use rust_decimal::Decimal;

/// Further parameter names that clients send or engines document.
const OTHER_PARAMETERS: &[&str] = &[
    "bad_words",
    "chat_template_kwargs",
    "dimensions",
    "enable_thinking",
    "grammar",
    "guided_choice",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "height",
    "ignore_eos",
    "include_reasoning",
    "length_penalty",
    "logit_bias",
    "max_completion_tokens",
    "min_p",
    "min_tokens",
    "mirostat",
    "modalities",
    "negative_prompt",
    "num_inference_steps",
    "prediction",
    "reasoning",
    "reasoning_effort",
    "repetition_penalty",
    "steps",
    "stop_token_ids",
    "stream_options",
    "structured_outputs",
    "suffix",
    "thinking",
    "timestamp_granularities",
    "top_a",
    "typical_p",
    "user",
    "verbosity",
    "web_search_options",
    "width",
];

/// Parameters that only models which generate text take.
const GENERATOR_PARAMETERS: &[&str] = &[
    "frequency_penalty",
    "include_reasoning",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "parallel_tool_calls",
    "presence_penalty",
    "reasoning",
    "reasoning_effort",
    "stop",
    "structured_outputs",
    "thinking",
    "tool_choice",
    "tools",
    "top_logprobs",
];

/// Price in EUR per million tokens below which the written price is probably the price of a single token.
pub(super) const MIN_PLAUSIBLE_PRICE: Decimal = Decimal::from_parts(1, 0, 0, false, 3);

/// Returns the parameters of a model: those that are written, or the usual ones of its kind.
pub fn model_parameters(raw: &raw::ModelConfig, kind: ModelKind) -> Vec<String> {
    let usual = || kind.spec().parameters.iter().map(|name| (*name).to_owned()).collect();
    raw.supported_parameters.clone().unwrap_or_else(usual)
}

fn known_parameters() -> impl Iterator<Item = &'static str> {
    let lists = [OTHER_PARAMETERS, OFFER_DEPENDENT_PARAMETERS, &["language"]];
    let names = MODEL_KINDS.iter().flat_map(|row| row.parameters).chain(lists.into_iter().flatten()).copied();
    names.chain(EMBEDDING_PARAMETERS.iter().chain(RERANK_PARAMETERS).map(|parameter| parameter.name))
}

impl SettingsResolver<'_> {
    /// Warns about parameters that are misspelled or have no effect. For a model (`model` is true), also warns if a
    /// chat model has no list of parameters.
    pub fn check_parameter_names(
        &mut self,
        written: Option<&[String]>,
        kind: ModelKind,
        model: bool,
        spot: &KeyPath<'_>,
    ) {
        let spot = spot.child("supported_parameters");
        let Some(written) = written else {
            if model && kind.generates_tokens() {
                let names = kind.spec().parameters.join(", ");
                let why = format!("It is left out, so what engines usually take is assumed: {names}.");
                self.report_warning(&spot, why, "List what this model's engine takes.");
            }
            return;
        };
        for (index, name) in written.iter().enumerate() {
            let engine = find_engine_parameter(name);
            if engine.is_some_and(|parameter| parameter.effect == ParameterEffect::Private) {
                let why = "This parameter is never sent to a provider, so the entry has no effect.";
                self.report_warning(&spot.list_element(index), why, "Remove it.");
                continue;
            }
            if !kind.generates_tokens() && GENERATOR_PARAMETERS.contains(&name.as_str()) {
                let why = format!("Models for {} do not take it, so the entry has no effect.", kind.name());
                self.report_warning(&spot.list_element(index), why, "Remove it.");
                continue;
            }
            if engine.is_some() || known_parameters().any(|known| known == name) {
                continue;
            }
            if let Some(meant) = suggest::most_similar(name, known_parameters()) {
                let why = "There is no parameter of this name, so the entry has no effect.";
                self.report_warning(&spot.list_element(index), why, format!("Did you mean \"{meant}\"?"));
            } else {
                let why = "The gateway does not know this parameter and never sends it, so the entry has no effect.";
                self.report_warning(&spot.list_element(index), why, "Remove it.");
            }
        }
    }

    /// Warns about prices that look like prices of a single token.
    pub fn warn_per_token_prices(&mut self, price: &raw::PriceConfig, spot: &KeyPath<'_>) {
        let prices = [("input", price.input), ("cached_input", price.cached_input), ("output", price.output)];
        for (name, price) in prices {
            let Some(price) =
                price.map(|price| price.0).filter(|price| !price.is_zero() && *price < MIN_PLAUSIBLE_PRICE)
            else {
                continue;
            };
            let million = price.saturating_mul(Decimal::from(1_000_000)).normalize();
            self.report_warning(
                &spot.child(name),
                "It is EUR per million tokens, and looks like the price of one token.",
                format!("Write {million} if it is the price of one token."),
            );
        }
    }
}
