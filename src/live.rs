//! One configuration at work: what clients see of it, and its providers and
//! offers with what is known of them. A reload builds another beside it, which
//! shares what goes on: places, probes, figures.

use crate::config::settings::{Model, Settings};
use crate::upstream::live::ProviderLive;
use crate::upstream::offer::OfferLive;
use crate::upstream::pools::Pools;
use parking_lot::Mutex;
use penstock_catalog::Catalog;
use penstock_routing::{Breaker, Hour};
use std::collections::HashMap;
use std::sync::Arc;

/// One whole configuration at work.
pub struct Live {
    /// What it says.
    pub settings: Settings,
    /// What clients see.
    pub catalog: Catalog,
    /// What admission allows.
    pub admission: penstock_admission::Limits,
    /// Every offer; an offer's index is its place.
    pub offers: Vec<Arc<OfferLive>>,
    /// Every provider; a provider's index is its place.
    pub providers: Vec<Arc<ProviderLive>>,
    models: HashMap<Box<str>, Arc<ModelLive>, ahash::RandomState>,
}

/// A model at work.
pub struct ModelLive {
    /// What the configuration says.
    pub model: Arc<Model>,
    /// Places of its offers in [`Live::offers`].
    pub offers: Vec<usize>,
    /// Its last hour, for the catalogue's sorts.
    pub hour: Mutex<Hour>,
}

impl Live {
    /// Puts a configuration to work. What the old one knows of the same offers,
    /// providers and models is kept.
    ///
    /// # Errors
    /// One sentence that says what cannot be put to work.
    pub fn build(settings: Settings, old: Option<&Self>, pools: &Pools) -> Result<Self, String> {
        let cards = settings.models.iter().map(|model| model.card()).collect();
        let catalog = Catalog::new(cards).map_err(|mistakes| mistakes.join(" "))?;
        let lines = settings.routing.batch_lines;
        let before = old.map_or(&[][..], |old| &old.providers);
        let providers: Vec<Arc<ProviderLive>> = settings
            .providers
            .iter()
            .map(|provider| Arc::new(ProviderLive::new(provider.clone(), pools, lines, before)))
            .collect();
        let mut offers = Vec::with_capacity(settings.offers.len());
        for offer in &settings.offers {
            let provider = providers
                .get(offer.provider.index)
                .ok_or_else(|| format!("The offer of provider {} is nobody's.", offer.provider.id))?;
            let breaker = Breaker::new(settings.routing.breaker.settings());
            let fresh = OfferLive::new(offer.clone(), provider.clone(), breaker, &settings.billing)?;
            let known = old.and_then(|old| old.same_offer(&fresh));
            offers.push(Arc::new(match known {
                Some(known) => fresh.after(known),
                None => fresh,
            }));
        }
        let mut models = HashMap::default();
        for model in &settings.models {
            let mine = offers.iter().filter(|offer| offer.offer.model.card.id == model.card.id);
            let known = old.and_then(|old| old.models.get(model.card.id.as_str()));
            let live = ModelLive {
                offers: mine.map(|offer| offer.offer.index).collect(),
                hour: Mutex::new(known.map_or_else(Hour::new, |known| known.hour.lock().clone())),
                model: model.clone(),
            };
            models.insert(model.card.id.as_str().into(), Arc::new(live));
        }
        let limits = &settings.limits;
        let admission = penstock_admission::Limits {
            max_body: limits.json_body,
            max_depth: limits.json_depth,
            ..penstock_admission::Limits::default()
        };
        Ok(Self { catalog, admission, offers, providers, models, settings })
    }

    /// The model with this id of the catalogue.
    #[must_use]
    pub fn model(&self, id: &str) -> Option<&Arc<ModelLive>> {
        self.models.get(id)
    }

    /// From now on it counts, also for what is shared with the one before.
    pub fn begin(&self) {
        let routing = &self.settings.routing;
        for provider in &self.providers {
            provider.seats.configure(provider.provider.seats, routing.batch_lines);
        }
        for offer in &self.offers {
            offer.breaker.lock().configure(routing.breaker.settings());
        }
    }

    fn same_offer(&self, other: &OfferLive) -> Option<&Arc<OfferLive>> {
        self.offers.iter().find(|offer| {
            offer.offer.provider.id == other.offer.provider.id
                && offer.offer.model.card.id == other.offer.model.card.id
                && offer.offer.provider.base == other.offer.provider.base
                && offer.offer.name == other.offer.name
        })
    }
}
