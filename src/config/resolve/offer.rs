//! Offers: one model at one provider, with the settings of the pair.

use super::super::raw::{self, ConfigFile};
use super::super::settings::{ModelSettings, OfferSettings, Provider, tariff_at};
use super::key_path::KeyPath;
use super::{SettingsResolver, catalogue, provider};
use penstock_core::{ContinuationMethod, OfferCapabilities, PrefillMethod, ReasoningName};
use penstock_footprint::OfferFactors;
use penstock_pricing::{BillingMode, Tariff};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Remedy for an energy figure of an offer.
const FACTOR_REMEDY: &str = "Correct it in the block of the model or of the provider.";

impl SettingsResolver<'_> {
    /// Resolves all offers and numbers them. Warns about models without an offer.
    pub fn resolve_offers(
        &mut self,
        raw: &ConfigFile,
        models: &[Option<Arc<ModelSettings>>],
        providers: &[Option<Arc<Provider>>],
        top: &KeyPath<'_>,
    ) -> Vec<Arc<OfferSettings>> {
        let mut found: Vec<Arc<OfferSettings>> = Vec::new();
        let by_id: HashMap<&str, &Arc<ModelSettings>> =
            models.iter().flatten().map(|model| (model.card.id.as_str(), model)).collect();
        for (provider_index, (written, provider)) in raw.providers.iter().zip(providers).enumerate() {
            let list = top.child("providers").list_element(provider_index).child("offers");
            let mut seen = HashMap::new();
            for (index, offer) in written.offers.iter().enumerate() {
                let spot = list.list_element(index);
                self.check_unique_offer(&mut seen, offer, &spot);
                if !self.check_model_id(raw, &offer.model, &spot.child("model")) {
                    continue;
                }
                self.check_offer_dialects(written, offer, &spot);
                if let (Some(model), Some(provider)) = (by_id.get(offer.model.as_str()), provider) {
                    self.warn_unused_offer_settings(offer, model, provider, &spot);
                    found
                        .extend(self.resolve_offer(offer, found.len(), model, provider, &spot).map(Arc::new));
                }
            }
        }
        let offers = raw.providers.iter().flat_map(|provider| &provider.offers);
        let offered: HashSet<&str> = offers.map(|offer| offer.model.as_str()).collect();
        for (index, model) in raw.models.iter().enumerate() {
            let offered = offered.contains(model.id.as_str());
            if offered && model.lifecycle == raw::LifecycleConfig::Retired {
                let spot = top.child("models").list_element(index);
                self.report_warning(
                    &spot.child("lifecycle"),
                    "It is retired, and providers still offer it, so it is still served.",
                    "Take it out of their offers, or write \"deprecated\".",
                );
            }
            if !offered && model.fallbacks.is_empty() {
                let spot = top.child("models").list_element(index);
                self.report_warning(
                    &spot,
                    "No provider offers this model, so every request for it fails.",
                    "Add it to a provider's offers.",
                );
            }
        }
        found
    }

    fn check_unique_offer<'r>(
        &mut self,
        earlier_offers: &mut HashMap<(&'r str, Option<&'r str>), String>,
        offer: &'r raw::OfferConfig,
        spot: &KeyPath<'_>,
    ) {
        if let Some(location) =
            earlier_offers.insert((&offer.model, offer.name.as_deref()), spot.file_and_line())
        {
            self.report_mistake(
                &spot.child("model"),
                format!("This provider offers the model already, under the same name, at {location}."),
                "Take one of the two out.",
            );
        }
    }

    fn check_offer_dialects(
        &mut self,
        provider: &raw::ProviderConfig,
        offer: &raw::OfferConfig,
        spot: &KeyPath<'_>,
    ) {
        for dialect in offer.dialects.iter().flatten() {
            if !provider.dialects.contains(dialect) {
                self.report_mistake(
                    &spot.child("dialects"),
                    format!("The provider does not support {}.", dialect.0.name()),
                    "Add it to the provider's `dialects`, or take it out here.",
                );
            }
        }
    }

    /// Returns the tariffs after the first one, one for each day on which a price of the model or of the offer changes,
    /// each with the start of the day in Unix seconds.
    fn offer_tariff_changes(
        &mut self,
        raw: &raw::OfferConfig,
        model: &ModelSettings,
        spot: &KeyPath<'_>,
    ) -> Vec<(u64, Tariff)> {
        // This call only checks the days of the offer's own price changes; the code below computes the tariffs.
        let own =
            self.resolve_price_changes(&raw.price_changes, &spot.child("price_changes"), |_| model.tariff);
        let mut days: Vec<u64> = own.iter().chain(&model.later_tariffs).map(|(day, _)| *day).collect();
        days.sort_unstable();
        days.dedup();
        let at = |day: u64| {
            let usual = tariff_at(&model.tariff, &model.later_tariffs, day);
            let first = catalogue::merge_tariff(&raw.price, &usual);
            let begun = raw.price_changes.iter().zip(&own).take_while(|(_, (from, _))| *from <= day);
            begun.fold(first, |tariff, (change, _)| catalogue::merge_tariff(&change.price, &tariff))
        };
        days.into_iter().map(|day| (day, at(day))).collect()
    }

    /// Warns about an offer that lacks a price for the unit by which its model is sold, such as tokens or images.
    fn check_missing_price(&mut self, tariff: &Tariff, model: &ModelSettings, spot: &KeyPath<'_>) {
        if let Some(price) = tariff.missing_price(model.kind) {
            let fix =
                format!("Write `{price}` in the model's `price` or in the offer's; 0 if it is to be free.");
            self.report_warning(
                &spot.child("price"),
                format!("There is no price of `{price}`, so requests for this model are free here."),
                fix,
            );
        }
    }

    /// Returns the context window of an offer, by default that of its model. A window larger than that of the model
    /// is a mistake.
    fn resolve_context_length(
        &mut self,
        raw: &raw::OfferConfig,
        model: &ModelSettings,
        spot: &KeyPath<'_>,
    ) -> u64 {
        let context_length = raw.context_length.unwrap_or(model.card.context_length);
        if context_length > model.card.context_length {
            let why = format!("It is more than the model's own window, {}.", model.card.context_length);
            self.report_mistake(
                &spot.child("context_length"),
                why,
                "Write less, or more in the model's block.",
            );
        }
        if raw.max_output.is_some_and(|most| most > context_length) {
            let why = format!("It is more than the context window, {context_length}, so it limits nothing.");
            self.report_warning(&spot.child("max_output"), why, "Write less, or leave it out.");
        }
        context_length
    }

    fn resolve_offer(
        &mut self,
        raw: &raw::OfferConfig,
        index: usize,
        model: &Arc<ModelSettings>,
        provider: &Arc<Provider>,
        spot: &KeyPath<'_>,
    ) -> Option<OfferSettings> {
        self.warn_per_token_prices(&raw.price, &spot.child("price"));
        self.check_parameter_names(raw.supported_parameters.as_deref(), model.kind, false, spot);
        let tariff = catalogue::merge_tariff(&raw.price, &model.tariff);
        let later = self.offer_tariff_changes(raw, model, spot);
        self.check_missing_price(&tariff, model, spot);
        let prepared = match OfferFactors::new(&model.energy, &provider.location.site) {
            Ok(prepared) => prepared,
            Err(mistakes) => {
                for mistake in mistakes {
                    let why = format!("{} must be {}.", mistake.field, mistake.expected);
                    self.report_mistake(spot, why, FACTOR_REMEDY);
                }
                return None;
            }
        };
        if tariff.billing == BillingMode::Energy && !prepared.is_computable_from_work() {
            self.report_mistake(
                spot,
                format!("Model `{}` is billed by energy, and its energy use is unknown.", model.card.id),
                "Write `energy` in the model's block, or bill it in credits.",
            );
        }
        let shape = self.resolve_provider_adapter(raw, model, spot);
        let context_length = self.resolve_context_length(raw, model, spot);
        let max_output = raw.max_output.or(model.card.max_output);
        Some(OfferSettings {
            index,
            provider: Arc::clone(provider),
            model: Arc::clone(model),
            name: raw.name.as_deref().unwrap_or(&model.card.id).into(),
            tariff,
            later_tariffs: later,
            footprint_factors: prepared,
            capabilities: OfferCapabilities {
                context_length: Some(context_length),
                max_output,
                ..offer_abilities(raw, model, provider)
            },
            shape,
            dialects: raw
                .dialects
                .as_ref()
                .map_or_else(|| provider.dialects.clone(), |own| provider::unique_dialects(own)),
            context_length,
            max_output,
            image_steps: raw.image_steps,
            throughput_tier: raw.throughput_tier,
        })
    }
}

fn offer_abilities(raw: &raw::OfferConfig, model: &ModelSettings, provider: &Provider) -> OfferCapabilities {
    let parameters = raw.supported_parameters.as_ref().unwrap_or(&model.card.supported_parameters);
    OfferCapabilities {
        parameters: parameters.iter().map(|name| name.as_str().into()).collect(),
        continuation: raw.continuation.map(|method| match method {
            raw::ContinuationConfig::ContinueFinalMessage => ContinuationMethod::ContinueFinalMessage,
            raw::ContinuationConfig::Prefill => ContinuationMethod::Prefill,
        }),
        prefill: match raw.prefill {
            raw::PrefillConfig::None => PrefillMethod::None,
            raw::PrefillConfig::ContinueFinalMessage => PrefillMethod::ContinueFinalMessage,
            raw::PrefillConfig::Prefix => PrefillMethod::Prefix,
            raw::PrefillConfig::Automatic => PrefillMethod::Automatic,
        },
        replay_reasoning: raw.replay_reasoning,
        reasoning_name: raw.reasoning_name.map(|name| match name {
            raw::ReasoningFieldConfig::ReasoningContent => ReasoningName::ReasoningContent,
            raw::ReasoningFieldConfig::Reasoning => ReasoningName::Reasoning,
        }),
        max_n: raw.max_n.or(provider.max_n).or(model.max_n),
        thinking_switch: raw.thinking_switch,
        completions: raw.completions,
        short_tool_ids: raw.short_tool_ids,
        tool_images: raw.tool_images,
        system_anywhere: raw.system_anywhere,
        max_stop: raw.max_stop.and_then(|most| usize::try_from(most).ok()),
        max_images: raw.max_images,
        max_image_tokens: model.tokenizer.as_ref().and_then(|tokenizer| tokenizer.0.max_image_tokens()),
        max_inputs: raw.max_inputs.and_then(|most| usize::try_from(most).ok()),
        score_transform: raw.score.map_or(model.score, catalogue::convert_score_transform),
        ..OfferCapabilities::default()
    }
}
