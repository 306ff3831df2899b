//! Offers: one model at one provider, with the settings of the pair.

use super::super::raw::{self, Raw};
use super::super::settings::{Model, Offer, Provider};
use super::key_path::Spot;
use super::{Proof, catalogue, provider};
use penstock_contract::{Abilities, Continuation, Prefill, ReasoningName};
use penstock_footprint::Prepared;
use penstock_pricing::{Billing, Tariff};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

impl Proof<'_> {
    /// Resolves all offers and numbers them. Warns about models without an offer.
    pub fn offers(
        &mut self,
        raw: &Raw,
        models: &[Option<Arc<Model>>],
        providers: &[Option<Arc<Provider>>],
        top: &Spot<'_>,
    ) -> Vec<Arc<Offer>> {
        let mut found: Vec<Arc<Offer>> = Vec::new();
        let by_id: HashMap<&str, &Arc<Model>> =
            models.iter().flatten().map(|model| (model.card.id.as_str(), model)).collect();
        for (place, (written, provider)) in raw.providers.iter().zip(providers).enumerate() {
            let list = top.key("providers").at(place).key("offers");
            let mut seen = HashMap::new();
            for (index, offer) in written.offers.iter().enumerate() {
                let spot = list.at(index);
                self.offer_once(&mut seen, offer, &spot);
                if !self.is_model(raw, &offer.model, &spot.key("model")) {
                    continue;
                }
                self.offer_dialects(written, offer, &spot);
                if let (Some(model), Some(provider)) = (by_id.get(offer.model.as_str()), provider) {
                    found.extend(self.offer(offer, found.len(), model, provider, &spot).map(Arc::new));
                }
            }
        }
        let offers = raw.providers.iter().flat_map(|provider| &provider.offers);
        let offered: HashSet<&str> = offers.map(|offer| offer.model.as_str()).collect();
        for (index, model) in raw.models.iter().enumerate() {
            let offered = offered.contains(model.id.as_str());
            if offered && model.lifecycle == raw::Lifecycle::Retired {
                let spot = top.key("models").at(index);
                self.warn(
                    &spot.key("lifecycle"),
                    "It is retired, and providers still offer it, so it is still served.",
                    "Take it out of their offers, or write \"deprecated\".",
                );
            }
            if !offered && model.fallbacks.is_empty() {
                let spot = top.key("models").at(index);
                self.warn(
                    &spot,
                    "No provider offers this model, so every request for it fails.",
                    "Add it to a provider's offers.",
                );
            }
        }
        found
    }

    fn offer_once<'r>(
        &mut self,
        seen: &mut HashMap<(&'r str, Option<&'r str>), String>,
        offer: &'r raw::Offer,
        spot: &Spot<'_>,
    ) {
        if let Some(place) = seen.insert((&offer.model, offer.name.as_deref()), spot.place()) {
            self.wrong(
                &spot.key("model"),
                format!("This provider offers the model already, under the same name, at {place}."),
                "Take one of the two out.",
            );
        }
    }

    fn offer_dialects(&mut self, provider: &raw::Provider, offer: &raw::Offer, spot: &Spot<'_>) {
        for dialect in offer.dialects.iter().flatten() {
            if !provider.dialects.contains(dialect) {
                self.wrong(
                    &spot.key("dialects"),
                    format!("The provider does not support {dialect:?}.")
                        .to_ascii_lowercase()
                        .replacen("the", "The", 1),
                    "Add it to the provider's `dialects`, or take it out here.",
                );
            }
        }
    }

    /// Tariffs after the first: one for each day on which the price of the model or of the offer changes.
    fn offer_later(&mut self, raw: &raw::Offer, model: &Model, spot: &Spot<'_>) -> Vec<(u64, Tariff)> {
        // This only checks the offer's own days; the tariffs are computed below.
        let own = self.later(&raw.price_changes, &spot.key("price_changes"), |_| model.tariff);
        let mut days: Vec<u64> = own.iter().chain(&model.later).map(|(day, _)| *day).collect();
        days.sort_unstable();
        days.dedup();
        let at = |day: u64| {
            let usual = catalogue::tariff_at(&model.tariff, &model.later, day);
            let first = catalogue::tariff(&raw.price, &usual);
            let begun = raw.price_changes.iter().zip(&own).take_while(|(_, (from, _))| *from <= day);
            begun.fold(first, |tariff, (change, _)| catalogue::tariff(&change.price, &tariff))
        };
        days.into_iter().map(|day| (day, at(day))).collect()
    }

    fn offer(
        &mut self,
        raw: &raw::Offer,
        index: usize,
        model: &Arc<Model>,
        provider: &Arc<Provider>,
        spot: &Spot<'_>,
    ) -> Option<Offer> {
        self.per_million(&raw.price, &spot.key("price"));
        self.parameters(raw.supported_parameters.as_deref(), model.kind, false, spot);
        let tariff = catalogue::tariff(&raw.price, &model.tariff);
        let later = self.offer_later(raw, model, spot);
        if let Some(price) = tariff.lacks(model.kind) {
            let fix =
                format!("Write `{price}` in the model's `price` or in the offer's; 0 if it is to be free.");
            self.warn(
                &spot.key("price"),
                format!("There is no price of `{price}`, so requests for this model are free here."),
                fix,
            );
        }
        let prepared = match Prepared::new(&model.energy, &provider.place.site) {
            Ok(prepared) => prepared,
            Err(mistakes) => {
                for mistake in mistakes {
                    self.wrong(spot, format!("{} must be {}.", mistake.field, mistake.expected), "");
                }
                return None;
            }
        };
        if tariff.billing == Billing::Energy && !prepared.has_list() {
            self.wrong(
                spot,
                format!("Model `{}` is billed by energy, and its energy use is unknown.", model.card.id),
                "Write `energy` in the model's block, or bill it in credits.",
            );
        }
        let shape = self.shape(raw, model, spot);
        let context_length = raw.context_length.unwrap_or(model.card.context_length);
        if context_length > model.card.context_length {
            let why = format!("It is more than the model's own window, {}.", model.card.context_length);
            self.wrong(&spot.key("context_length"), why, "Write less, or more in the model's block.");
        }
        let max_output = raw.max_output.or(model.card.max_output);
        Some(Offer {
            index,
            provider: Arc::clone(provider),
            model: Arc::clone(model),
            name: raw.name.as_deref().unwrap_or(&model.card.id).into(),
            tariff,
            later,
            prepared,
            abilities: Abilities {
                context_length: Some(context_length),
                max_output,
                ..abilities(raw, model, provider)
            },
            shape,
            dialects: raw
                .dialects
                .as_ref()
                .map_or_else(|| provider.dialects.clone(), |own| provider::dialects(own)),
            context_length,
            max_output,
            image_steps: raw.image_steps,
            throughput_tier: raw.throughput_tier,
        })
    }
}

fn abilities(raw: &raw::Offer, model: &Model, provider: &Provider) -> Abilities {
    let parameters = raw.supported_parameters.as_ref().unwrap_or(&model.card.supported_parameters);
    Abilities {
        parameters: parameters.iter().map(|name| name.as_str().into()).collect(),
        continuation: raw.continuation.map(|way| match way {
            raw::Continuation::ContinueFinalMessage => Continuation::ContinueFinalMessage,
            raw::Continuation::Prefill => Continuation::Prefill,
        }),
        prefill: match raw.prefill {
            raw::Prefill::None => Prefill::None,
            raw::Prefill::ContinueFinalMessage => Prefill::ContinueFinalMessage,
            raw::Prefill::Prefix => Prefill::Prefix,
            raw::Prefill::Automatic => Prefill::Automatic,
        },
        replay_reasoning: raw.replay_reasoning,
        reasoning_name: raw.reasoning_name.map(|name| match name {
            raw::ReasoningName::ReasoningContent => ReasoningName::Content,
            raw::ReasoningName::Reasoning => ReasoningName::Short,
        }),
        max_n: raw.max_n.or(provider.max_n).or(model.max_n),
        thinking_switch: raw.thinking_switch,
        short_tool_ids: raw.short_tool_ids,
        tool_images: raw.tool_images,
        system_anywhere: raw.system_anywhere,
        max_stop: raw.max_stop.and_then(|most| usize::try_from(most).ok()),
        max_images: raw.max_images,
        max_inputs: raw.max_inputs.and_then(|most| usize::try_from(most).ok()),
        score: raw.score.map_or(model.score, catalogue::score),
        ..Abilities::default()
    }
}
