//! Models: unique names, valid presets and tokenizers.

use super::super::raw::{self, ConfigFile, ModalityConfig};
use super::super::settings::{DefaultModelIds, ModelSettings, TokenIdPolicy};
use super::super::suggest;
use super::fallbacks::FallbackGraph;
use super::key_path::KeyPath;
use super::{SettingsResolver, parameters};
use penstock_catalog::{AliasPattern, CatalogModel as Card, LifecycleStage};
use penstock_core::{ImageSize, ModelKind, RerankScoreTransform, WorkUnit};
use penstock_ledger::UtcDay;
use penstock_pricing::{BillingMode, Tariff};
use penstock_tokens::PublishedEncoding;
use rust_decimal::Decimal;
use std::collections::HashMap;
use std::sync::Arc;

/// Message about an unknown model.
const UNKNOWN: &str = "The catalogue has no model with this id.";
/// Maximum number of unknown names for which a similar name is suggested; each suggestion compares the name with all
/// models.
const MAX_SUGGESTIONS: usize = 100;
/// Maximum number of patterns for which each pair is compared.
const MAX_COMPARED_PATTERNS: usize = 128;

impl SettingsResolver<'_> {
    /// Resolves all models, in document order; the result is `None` for a model with mistakes.
    pub fn resolve_models(&mut self, raw: &ConfigFile, top: &KeyPath<'_>) -> Vec<Option<Arc<ModelSettings>>> {
        let list = top.child("models");
        if self.names.models.is_empty() {
            self.report_warning(
                &list,
                "The catalogue is empty, so there are no models to request.",
                "Add a `[[models]]` block.",
            );
        }
        self.check_unique_names(raw, &list);
        self.check_overlapping_patterns(raw, &list);
        let by_id =
            raw.models.iter().enumerate().rev().map(|(index, model)| (model.id.as_str(), index)).collect();
        let fallbacks = FallbackGraph::from_config(raw, by_id);
        let eur_per_kwh = raw.billing.eur_per_kwh.0;
        let mut found = Vec::with_capacity(raw.models.len());
        for (index, model) in raw.models.iter().enumerate() {
            let spot = list.list_element(index);
            self.check_fallbacks(raw, &fallbacks, model, &spot);
            found.push(self.resolve_model(model, eur_per_kwh, &spot).map(Arc::new));
        }
        found
    }

    /// Checks that ids and aliases together are unique; patterns are compared without regard to case.
    fn check_unique_names(&mut self, raw: &ConfigFile, list: &KeyPath<'_>) {
        let mut seen: HashMap<String, (String, String)> = HashMap::new();
        for (index, model) in raw.models.iter().enumerate() {
            let spot = list.list_element(index);
            let aliases = model.aliases.iter().enumerate();
            let mut all = vec![(model.id.as_str(), spot.child("id"))];
            all.extend(aliases.map(|(i, alias)| (alias.as_str(), spot.child("aliases").list_element(i))));
            for (name, at) in all {
                match seen.get(&comparison_key(name)) {
                    Some((first, location)) => {
                        let why = format!(
                            "`{first}` at {location} has this name already, and a name stands for one model."
                        );
                        self.report_mistake(&at, why, "Take it out of one of the two.");
                    }
                    None => {
                        drop(seen.insert(comparison_key(name), (at.path().to_owned(), at.file_and_line())))
                    }
                }
            }
        }
    }

    /// Warns if patterns of two models match the same name: only one of the models is then used for it.
    fn check_overlapping_patterns(&mut self, raw: &ConfigFile, list: &KeyPath<'_>) {
        let aliases = |(index, model): (usize, &raw::ModelConfig)| {
            let patterns = model.aliases.iter().enumerate();
            patterns
                .filter_map(|(at, alias)| Some((AliasPattern::new(alias)?, index, at)))
                .collect::<Vec<_>>()
        };
        let mut all: Vec<_> =
            raw.models.iter().enumerate().flat_map(aliases).take(MAX_COMPARED_PATTERNS).collect();
        all.sort_by_key(|(pattern, ..)| pattern.rank());
        for (at, (pattern, index, alias)) in all.iter().enumerate() {
            for (first, other, _) in all.iter().take(at).filter(|(_, other, _)| other != index) {
                let Some(name) = first.common_matching_name(pattern).filter(|_| first != pattern) else {
                    continue;
                };
                let other = raw.models.get(*other).map_or("", |model| &model.id);
                let spot = list.list_element(*index).child("aliases").list_element(*alias);
                let why = format!(
                    "Names such as \"{name}\" also match \"{}\" of `{other}`, which takes precedence.",
                    first.normalized_text()
                );
                let fix = "Of two patterns the one with more characters other than `*` counts, then the one with fewer \
                           `*`, then the first. Make them fit different names, or write the names that you mean.";
                self.report_warning(&spot, why, fix);
            }
        }
    }

    fn resolve_model(
        &mut self,
        raw: &raw::ModelConfig,
        eur_per_kwh: Decimal,
        spot: &KeyPath<'_>,
    ) -> Option<ModelSettings> {
        let kind = convert_kind(raw.kind);
        let energy = self.resolve_energy(raw, kind, &spot.child("energy"));
        let tokenizer = match &raw.tokenizer {
            Some(tokenizer) => self.resolve_tokenizer(tokenizer, &spot.child("tokenizer")).map(Some),
            None => Some(None),
        };
        let presets = self.resolve_presets(&raw.presets, &spot.child("presets"));
        let image_sizes = self.resolve_image_sizes(raw, kind, &spot.child("image_sizes"));
        if raw.max_output.is_some_and(|most| most > raw.context_length) {
            let why = format!("It is more than the context window, {}.", raw.context_length);
            self.report_mistake(&spot.child("max_output"), why, "Write less, or leave it out.");
        }
        self.warn_per_token_prices(&raw.price, &spot.child("price"));
        self.check_parameter_names(raw.supported_parameters.as_deref(), kind, true, spot);
        let usual = Tariff { eur_per_kwh, billing: convert_billing(raw.billing), ..Tariff::default() };
        let tariff = merge_tariff(&raw.price, &usual);
        self.warn_implausible_model_entries(raw, &tariff, spot);
        let later = self.resolve_price_changes(&raw.price_changes, &spot.child("price_changes"), |_| tariff);
        Some(ModelSettings {
            card: catalog_model(raw, kind),
            kind,
            fallbacks: raw.fallbacks.iter().map(|id| id.as_str().into()).collect(),
            rescue: raw.rescue,
            affinity: raw.affinity,
            max_n: raw.max_n,
            score: convert_score_transform(raw.score),
            token_ids: convert_token_ids(raw.token_ids),
            presets: presets?,
            image_sizes: image_sizes?,
            energy: energy?,
            tokenizer: tokenizer?,
            tariff,
            later_tariffs: later,
        })
    }

    fn resolve_image_sizes(
        &mut self,
        raw: &raw::ModelConfig,
        kind: ModelKind,
        spot: &KeyPath<'_>,
    ) -> Option<Vec<ImageSize>> {
        if !raw.image_sizes.is_empty() && kind.spec().unit != WorkUnit::Images {
            self.report_mistake(spot, "Only models of kind `image` have image sizes.", "Take it out.");
            return None;
        }
        let mut found = Vec::with_capacity(raw.image_sizes.len());
        for (index, text) in raw.image_sizes.iter().enumerate() {
            match text.parse::<ImageSize>() {
                Ok(size) => found.push(size),
                Err(()) => {
                    let fix = "Write width and height in pixels, such as \"1024x1024\".";
                    self.report_mistake(&spot.list_element(index), "It is not the size of an image.", fix);
                }
            }
        }
        (found.len() == raw.image_sizes.len()).then_some(found)
    }

    /// Returns the tariffs of later price changes, each with the time from which it applies, in Unix seconds. Each
    /// tariff is based on the one before it. For the first change, `base` returns the tariff on which it is based, at
    /// the time of the change.
    pub fn resolve_price_changes(
        &mut self,
        changes: &[raw::DatedPriceConfig],
        spot: &KeyPath<'_>,
        base: impl Fn(u64) -> Tariff,
    ) -> Vec<(u64, Tariff)> {
        let mut later: Vec<(u64, Tariff)> = Vec::with_capacity(changes.len());
        for (index, change) in changes.iter().enumerate() {
            let at = spot.list_element(index).child("from");
            let Some(day) = UtcDay::parse(&change.from) else {
                self.report_mistake(&at, "It is not a day.", "Write a day like 2027-01-01.");
                continue;
            };
            if later.last().is_some_and(|(before, _)| *before >= day.start()) {
                self.report_mistake(
                    &at,
                    "It is not after the change before it.",
                    "Write the days in order, each once.",
                );
                continue;
            }
            self.warn_per_token_prices(&change.price, &spot.list_element(index).child("price"));
            let stands_on = later.last().map_or_else(|| base(day.start()), |(_, tariff)| *tariff);
            later.push((day.start(), merge_tariff(&change.price, &stands_on)));
        }
        later
    }

    /// Resolves the models for requests that name none.
    pub fn resolve_default_models(&mut self, raw: &ConfigFile, top: &KeyPath<'_>) -> DefaultModelIds {
        let spot = top.child("default_models");
        let defaults = &raw.default_models;
        let mut of = |id: &Option<String>, key: &str, kind: raw::ModelKindName| {
            let (id, at) = (id.as_ref()?, spot.child(key));
            if !self.check_model_id(raw, id, &at) {
                return None;
            }
            let model = raw.models.iter().find(|model| model.id == *id)?;
            if model.kind != kind && !self.has_placeholder_kind(id) {
                let why = format!("It is a model for {}.", super::catalogue::convert_kind(model.kind).name());
                let fix = format!("Write a model for {}.", super::catalogue::convert_kind(kind).name());
                self.report_mistake(&at, why, fix);
                return None;
            }
            Some(id.as_str().into())
        };
        DefaultModelIds {
            count_tokens: of(&defaults.count_tokens, "count_tokens", raw::ModelKindName(ModelKind::Chat)),
            images: of(&defaults.images, "images", raw::ModelKindName(ModelKind::Image)),
            moderations: of(&defaults.moderations, "moderations", raw::ModelKindName(ModelKind::Moderation)),
        }
    }

    /// Returns true if the written kind of this model is invalid and was replaced by a placeholder.
    pub(super) fn has_placeholder_kind(&self, id: &str) -> bool {
        self.names.guessed.contains(&format!("models.{id}.kind"))
    }

    /// Returns true if there is a model with this id; otherwise adds a mistake.
    pub fn check_model_id(&mut self, raw: &ConfigFile, id: &str, spot: &KeyPath<'_>) -> bool {
        if self.names.known.contains(id) {
            return true;
        }
        self.unknown_models += 1;
        if self.unknown_models > MAX_SUGGESTIONS {
            self.report_mistake(spot, UNKNOWN, "Add a `[[models]]` block with this id.");
            return false;
        }
        let aliased = raw.models.iter().find(|model| model.aliases.iter().any(|alias| alias == id));
        let fix = match aliased {
            Some(model) => format!("It is an alias; write the id, \"{}\".", model.id),
            None => match suggest::most_similar(id, self.names.models.iter().map(String::as_str)) {
                Some(meant) => format!("Did you mean \"{meant}\"?"),
                None if self.names.models.is_empty() => "Add a `[[models]]` block with this id.".to_owned(),
                None => {
                    let known: Vec<&str> = self.names.models.iter().take(12).map(String::as_str).collect();
                    format!("Add a `[[models]]` block with this id, or write one of: {}.", known.join(", "))
                }
            },
        };
        self.report_mistake(spot, UNKNOWN, fix);
        false
    }
}

/// Normalizes a name for the comparison with others: patterns without regard to case.
fn comparison_key(name: &str) -> String {
    AliasPattern::new(name).map_or_else(|| name.to_owned(), |pattern| pattern.normalized_text().to_owned())
}

/// Converts the written kind of a model.
pub const fn convert_kind(raw: raw::ModelKindName) -> ModelKind {
    raw.0
}

/// Converts the written scale of reranking scores to their transformation.
pub const fn convert_score_transform(raw: raw::RerankScoreConfig) -> RerankScoreTransform {
    match raw {
        raw::RerankScoreConfig::AsIs => RerankScoreTransform::Identity,
        raw::RerankScoreConfig::Sigmoid => RerankScoreTransform::Sigmoid,
    }
}

const fn convert_token_ids(raw: raw::TokenIdPolicyConfig) -> TokenIdPolicy {
    match raw {
        raw::TokenIdPolicyConfig::Cl100kBase => TokenIdPolicy::Text(PublishedEncoding::Cl100k),
        raw::TokenIdPolicyConfig::O200kBase => TokenIdPolicy::Text(PublishedEncoding::O200k),
        raw::TokenIdPolicyConfig::Native => TokenIdPolicy::Native,
        raw::TokenIdPolicyConfig::Refuse => TokenIdPolicy::Refuse,
    }
}

const fn convert_billing(raw: raw::ModelBilling) -> BillingMode {
    match raw {
        raw::ModelBilling::Credits => BillingMode::Credits,
        raw::ModelBilling::Energy => BillingMode::Energy,
    }
}

/// Returns the tariff of the written prices. Missing prices are taken from `other`; such a price of cached input is at
/// most the price of other input.
pub fn merge_tariff(raw: &raw::PriceConfig, other: &Tariff) -> Tariff {
    let price =
        |price: Option<raw::ExactDecimal>, other: Option<Decimal>| price.map(|price| price.0).or(other);
    let cached = match (other.cached_input, raw.input) {
        (Some(cached), Some(input)) => Some(cached.min(input.0)),
        (cached, _) => cached,
    };
    Tariff {
        input: price(raw.input, other.input),
        cached_input: price(raw.cached_input, cached),
        output: price(raw.output, other.output),
        image: price(raw.image, other.image),
        minute: price(raw.minute, other.minute),
        eur_per_kwh: raw.kwh.map_or(other.eur_per_kwh, |price| price.0),
        billing: other.billing,
    }
}

/// Returns the public part of a model, without its prices.
fn catalog_model(raw: &raw::ModelConfig, kind: ModelKind) -> Card {
    let spec = kind.spec();
    let names = |written: &Option<Vec<ModalityConfig>>, usual: &str| match written {
        Some(all) => all.iter().map(|modality| modality.name().to_owned()).collect(),
        None => vec![usual.to_owned()],
    };
    Card {
        price: None,
        price_changes: Vec::new(),
        kind,
        lifecycle: match raw.lifecycle {
            raw::LifecycleConfig::Active => LifecycleStage::Active,
            raw::LifecycleConfig::Deprecated => LifecycleStage::Deprecated,
            raw::LifecycleConfig::Retired => LifecycleStage::Retired,
        },
        id: raw.id.clone(),
        name: raw.name.clone().unwrap_or_else(|| raw.id.clone()),
        description: raw.description.clone(),
        aliases: raw.aliases.clone(),
        context_length: raw.context_length,
        max_output: raw.max_output,
        created: raw.created,
        owned_by: raw.owned_by.clone(),
        supported_parameters: parameters::model_parameters(raw, kind),
        input_modalities: names(&raw.input_modalities, spec.input_modality),
        output_modalities: names(&raw.output_modalities, spec.output_modality),
    }
}
