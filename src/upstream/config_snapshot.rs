//! One configuration at work: what clients see of it, and its providers and
//! offers with what is known of them. A reload builds another beside it, which
//! shares what goes on: places, probes, figures.

use crate::config::settings::{BaseUrl, ModelSettings, OfferSettings, Settings};
use crate::upstream::connection_pool::ConnectionPools;
use crate::upstream::offer::OfferState;
use crate::upstream::pools::{self, ModelPool};
use crate::upstream::provider_state::{PreviousState, ProviderState};
use crate::upstream::sessions::SessionTable;
use parking_lot::Mutex;
use penstock_catalog::{Catalog, CatalogModel as Card};
use penstock_routing::{CircuitBreaker, ExplorationBudget, HourlyStats};
use std::collections::HashMap;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::available_parallelism;
use tokio::task::spawn_blocking;

/// Fewest offers that a thread is worth.
const PARALLEL_BUILD_THRESHOLD: usize = 1024;

/// One whole configuration at work.
pub struct ConfigSnapshot {
    /// Settings of the configuration.
    pub settings: Settings,
    /// Catalogue that clients see.
    pub catalog: Catalog,
    /// Limits of request validation.
    pub admission: penstock_request_validation::RequestLimits,
    /// Every offer; an offer's index is its place.
    pub offers: Vec<Arc<OfferState>>,
    /// Every provider; a provider's index is its place.
    pub providers: Vec<Arc<ProviderState>>,
    /// Recent sessions, which configurations share.
    pub sessions: Arc<SessionTable>,
    models: HashMap<Box<str>, Arc<ModelState>, ahash::RandomState>,
    /// Places of the offers of each provider.
    by_provider: Vec<Vec<usize>>,
}

/// A model at work.
pub struct ModelState {
    /// Settings of the model.
    pub model: Arc<ModelSettings>,
    /// Places of its offers in [`Live::offers`].
    pub offers: Vec<usize>,
    /// Statistics of the last hour, for the sort orders of the catalogue.
    pub hour: Arc<Mutex<HourlyStats>>,
    /// Stamp of the hour that was written down last.
    pub hour_kept: Arc<AtomicU64>,
    /// Requests that may explore its offers.
    explorations: Arc<Mutex<ExplorationBudget>>,
    /// Pool of its offers, ready to be ordered.
    pub pool: Arc<ModelPool>,
}

/// A model's page with the time when it was first listed, where the configuration names none.
fn with_creation_time(mut card: Card, old: Option<&ConfigSnapshot>, now: u64) -> Card {
    if card.created == 0 {
        let listed = old.and_then(|old| old.catalog.resolve(&card.id)).filter(|model| model.id == card.id);
        card.created = listed.map_or(now, |model| model.created);
    }
    card
}

impl ConfigSnapshot {
    /// Puts a configuration to work. What the old one knows of the same offers,
    /// providers and models is kept.
    ///
    /// Models that do not say when they came out are listed as of `now`, Unix seconds, or as of the time when the old
    /// configuration first listed them.
    ///
    /// # Errors
    /// One sentence that says what cannot be put to work.
    pub fn build(
        settings: Settings,
        old: Option<&Self>,
        connections: &ConnectionPools,
        now: u64,
    ) -> Result<Self, String> {
        let cards = settings.models.iter().map(|model| with_creation_time(model.card(), old, now)).collect();
        let catalog = Catalog::new(cards).map_err(|mistakes| mistakes.join(" "))?;
        let lines = settings.routing.batch_lines;
        let before = PreviousState::of(old.map_or(&[][..], |old| &old.providers));
        let providers: Vec<Arc<ProviderState>> = settings
            .providers
            .iter()
            .map(|provider| Arc::new(ProviderState::new(provider.clone(), connections, lines, &before)))
            .collect();
        let offers = build_offers(&settings, &providers, old)?;
        let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
        let mut by_provider = vec![Vec::new(); providers.len()];
        for offer in &settings.offers {
            places.entry(&offer.model.card.id).or_default().push(offer.index);
            if let Some(places) = by_provider.get_mut(offer.provider.index) {
                places.push(offer.index);
            }
        }
        let mut models = HashMap::default();
        for model in &settings.models {
            let known = old.and_then(|old| old.models.get(model.card.id.as_str()));
            let places = places.remove(model.card.id.as_str()).unwrap_or_default();
            let explorations: Arc<Mutex<ExplorationBudget>> =
                known.map(|known| known.explorations.clone()).unwrap_or_default();
            let own = places.iter().filter_map(|place| offers.get(*place)).cloned().collect();
            let live = ModelState {
                pool: ModelPool::new(own, &explorations),
                offers: places,
                // What still runs with the old one is counted here too.
                hour: known
                    .map_or_else(|| Arc::new(Mutex::new(HourlyStats::new())), |known| known.hour.clone()),
                hour_kept: known.map(|known| known.hour_kept.clone()).unwrap_or_default(),
                explorations,
                model: model.clone(),
            };
            models.insert(model.card.id.as_str().into(), Arc::new(live));
        }
        let limits = &settings.limits;
        let admission = penstock_request_validation::RequestLimits {
            max_body: limits.json_body,
            max_depth: limits.json_depth,
            ..penstock_request_validation::RequestLimits::default()
        };
        let sessions = old.map(|old| old.sessions.clone()).unwrap_or_default();
        Ok(Self { catalog, admission, offers, providers, sessions, models, by_provider, settings })
    }

    /// The model with this id of the catalogue.
    #[must_use]
    pub fn model(&self, id: &str) -> Option<&Arc<ModelState>> {
        self.models.get(id)
    }

    /// Every model.
    pub fn models(&self) -> impl Iterator<Item = &Arc<ModelState>> {
        self.models.values()
    }

    /// The offers of a provider, by its place.
    pub fn offers_of(&self, provider: usize) -> impl Iterator<Item = &Arc<OfferState>> {
        let places = self.by_provider.get(provider).map(Vec::as_slice).unwrap_or_default();
        places.iter().filter_map(|place| self.offers.get(*place))
    }

    /// Publishes the pool of each model: from then on requests find its offers.
    pub async fn publish(&self) {
        let all: Vec<Arc<ModelPool>> = self.models().map(|model| model.pool.clone()).collect();
        let own = all.clone();
        if !matches!(spawn_blocking(move || pools::publish(&own)).await, Ok(Ok(()))) {
            for pool in all {
                pool.publish().await;
            }
        }
    }

    /// From now on it counts, also for what is shared with the one before.
    pub fn begin_publish(&self) {
        let routing = &self.settings.routing;
        for provider in &self.providers {
            provider.concurrency.configure(provider.provider.max_in_flight, routing.batch_lines);
        }
        for offer in &self.offers {
            offer.breaker.lock().configure(routing.breaker.settings());
        }
    }

    /// Returns the offers by identity, by which an offer of another configuration is recognized.
    fn by_identity(&self) -> HashMap<OfferIdentity<'_>, &Arc<OfferState>> {
        // The first one counts.
        self.offers.iter().rev().map(|live| (identity(&live.offer), live)).collect()
    }
}

/// Offers of a configuration, in order. Thousands are made on several threads.
fn build_offers(
    settings: &Settings,
    providers: &[Arc<ProviderState>],
    old: Option<&ConfigSnapshot>,
) -> Result<Vec<Arc<OfferState>>, String> {
    let known = old.map(ConfigSnapshot::by_identity).unwrap_or_default();
    let make = |offer: &Arc<OfferSettings>| {
        let provider = providers
            .get(offer.provider.index)
            .ok_or_else(|| format!("The offer of provider {} is nobody's.", offer.provider.id))?;
        let breaker = CircuitBreaker::new(settings.routing.breaker.settings());
        let fresh = OfferState::new(offer.clone(), provider.clone(), breaker, &settings.billing)?;
        Ok(Arc::new(match known.get(&identity(offer)) {
            Some(known) => fresh.with_state_of(known),
            None => fresh,
        }))
    };
    let threads = available_parallelism().map_or(1, NonZero::get);
    let share = settings.offers.len().div_ceil(threads).max(PARALLEL_BUILD_THRESHOLD);
    let mut parts = settings.offers.chunks(share);
    let first = parts.next().unwrap_or_default();
    std::thread::scope(|scope| {
        let others: Vec<_> = parts
            .map(|part| scope.spawn(|| part.iter().map(make).collect::<Result<Vec<_>, String>>()))
            .collect();
        let mut all = first.iter().map(make).collect::<Result<Vec<_>, String>>()?;
        for other in others {
            all.extend(other.join().map_err(|_| "The offers could not be made.".to_owned())??);
        }
        Ok(all)
    })
}

/// Provider, its base URL, model, and the name of the model there.
type OfferIdentity<'a> = (&'a str, &'a BaseUrl, &'a str, &'a str);

fn identity(offer: &OfferSettings) -> OfferIdentity<'_> {
    (&offer.provider.id, &offer.provider.base_url, &offer.model.card.id, &offer.name)
}

#[cfg(test)]
mod tests;
