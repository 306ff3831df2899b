//! Snapshot of a configuration in use: the catalogue that clients see, and the run-time state of its models, providers
//! and offers. A reload builds a new snapshot, which shares permits, circuit breakers, sessions and statistics with the
//! old one.

use crate::config::ParallelValue;
use crate::config::settings::{BaseUrl, ModelSettings, OfferSettings, Settings};
use crate::upstream::connection_pool::ConnectionPools;
use crate::upstream::offer::OfferState;
use crate::upstream::pools::{self, ModelPool};
use crate::upstream::provider_state::{PreviousProviders, ProviderState};
use crate::upstream::sessions::SessionTable;
use parking_lot::Mutex;
use penstock_catalog::{Catalog, CatalogModel as Card};
use penstock_request_validation::RequestLimits;
use penstock_routing::{CircuitBreaker, ExplorationBudgets, LastHourStats};
use std::collections::HashMap;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::available_parallelism;
use tokio::task::spawn_blocking;

/// Minimum number of offers that a thread builds, except for the last thread; up to this number one thread builds all.
const PARALLEL_BUILD_THRESHOLD: usize = 1024;

/// Snapshot of a configuration in use.
pub struct ConfigSnapshot {
    /// Settings of the configuration.
    pub settings: Settings,
    /// Catalogue that clients see.
    pub catalog: Catalog,
    /// Limits that the validation of requests applies.
    pub request_limits: RequestLimits,
    /// Offers; the offer with index `i` is `offers[i]`.
    pub offers: Vec<Arc<OfferState>>,
    /// Providers; the provider with index `i` is `providers[i]`.
    pub providers: Vec<Arc<ProviderState>>,
    /// Recent sessions and the offers that answered them last, which all snapshots share.
    pub sessions: Arc<SessionTable>,
    models: HashMap<Box<str>, Arc<ModelState>, ahash::RandomState>,
    /// Indexes of the offers of each provider.
    by_provider: Vec<Vec<usize>>,
}

/// Model and its run-time state.
pub struct ModelState {
    /// Settings of the model.
    pub model: Arc<ModelSettings>,
    /// Indexes of the model's offers in [`ConfigSnapshot::offers`].
    pub offers: Vec<usize>,
    /// Statistics of the last hour, by which the catalogue can be sorted.
    pub hourly_stats: Arc<Mutex<LastHourStats>>,
    /// Revision of the hourly statistics that were stored last, see [`LastHourStats::revision`]; 0 for none.
    pub stored_hourly_stats_revision: Arc<AtomicU64>,
    /// Budgets of requests that may be sent to offers of the model with too few measurements.
    explorations: Arc<Mutex<ExplorationBudgets>>,
    /// Pool that orders the offers of the model.
    pub pool: Arc<ModelPool>,
}

/// Sets the creation time of a catalogue entry to the time at which the model was first listed, if the configuration
/// states no creation time.
fn with_creation_time(mut card: Card, old: Option<&ConfigSnapshot>, now: u64) -> Card {
    if card.created == 0 {
        let listed = old.and_then(|old| old.catalog.resolve(&card.id)).filter(|model| model.id == card.id);
        card.created = listed.map_or(now, |model| model.created);
    }
    card
}

impl ConfigSnapshot {
    /// Builds the snapshot of a configuration. Offers, providers and models that the old snapshot also has share their
    /// state with it.
    ///
    /// Models without a configured creation time get the creation time that they have in the old snapshot, or `now`,
    /// Unix seconds, if they are new.
    ///
    /// # Errors
    /// Returns a sentence that names the invalid part of the configuration.
    pub fn build(
        settings: Settings,
        old: Option<&Self>,
        connections: &ConnectionPools,
        now: u64,
    ) -> Result<Self, String> {
        let cards =
            settings.catalog_models().into_iter().map(|card| with_creation_time(card, old, now)).collect();
        let catalog = Catalog::new(cards).map_err(|mistakes| mistakes.join(" "))?;
        let batch_lines = settings.routing.batch_lines;
        let before = PreviousProviders::from_providers(old.map_or(&[][..], |old| &old.providers));
        let providers: Vec<Arc<ProviderState>> = settings
            .providers
            .iter()
            .map(|provider| {
                ProviderState::new(provider.clone(), connections, batch_lines, &before).map(Arc::new)
            })
            .collect::<Result<_, _>>()?;
        let offers = build_offers(&settings, &providers, old)?;
        let mut indexes: HashMap<&str, Vec<usize>> = HashMap::new();
        let mut by_provider = vec![Vec::new(); providers.len()];
        for offer in &settings.offers {
            indexes.entry(&offer.model.card.id).or_default().push(offer.index);
            if let Some(indexes) = by_provider.get_mut(offer.provider.index) {
                indexes.push(offer.index);
            }
        }
        let mut models = HashMap::default();
        for model in &settings.models {
            let known = old.and_then(|old| old.models.get(model.card.id.as_str()));
            let indexes = indexes.remove(model.card.id.as_str()).unwrap_or_default();
            let explorations: Arc<Mutex<ExplorationBudgets>> =
                known.map(|known| known.explorations.clone()).unwrap_or_default();
            let own = indexes.iter().filter_map(|index| offers.get(*index)).cloned().collect();
            let live = ModelState {
                pool: ModelPool::new(own, &explorations),
                offers: indexes,
                // Both snapshots share the statistics, so exchanges that still use the old snapshot are counted too.
                hourly_stats: known.map_or_else(
                    || Arc::new(Mutex::new(LastHourStats::new())),
                    |known| known.hourly_stats.clone(),
                ),
                stored_hourly_stats_revision: known
                    .map_or_else(Default::default, |known| known.stored_hourly_stats_revision.clone()),
                explorations,
                model: model.clone(),
            };
            models.insert(model.card.id.as_str().into(), Arc::new(live));
        }
        let request_limits = RequestLimits {
            max_body: settings.limits.json_body,
            max_depth: settings.limits.json_depth,
            ..RequestLimits::default()
        };
        let sessions = old.map(|old| old.sessions.clone()).unwrap_or_default();
        Ok(Self { catalog, request_limits, offers, providers, sessions, models, by_provider, settings })
    }

    /// Returns the model with this catalogue id.
    #[must_use]
    pub fn model(&self, id: &str) -> Option<&Arc<ModelState>> {
        self.models.get(id)
    }

    /// Returns all models of the configuration.
    pub fn models(&self) -> impl Iterator<Item = &Arc<ModelState>> {
        self.models.values()
    }

    /// Returns the offers of the provider with this index.
    pub fn offers_of_provider(&self, provider: usize) -> impl Iterator<Item = &Arc<OfferState>> {
        let indexes = self.by_provider.get(provider).map(Vec::as_slice).unwrap_or_default();
        indexes.iter().filter_map(|index| self.offers.get(*index))
    }

    /// Publishes the pool of each model with the resolved addresses, so that requests find its offers.
    pub async fn publish_pools(&self) {
        let all: Vec<Arc<ModelPool>> = self.models().map(|model| model.pool.clone()).collect();
        let own = all.clone();
        if !matches!(spawn_blocking(move || pools::publish_pools(&own)).await, Ok(Ok(()))) {
            for pool in all {
                pool.publish().await;
            }
        }
    }

    /// Applies the settings of this snapshot to the concurrency limits and breakers that it shares with the old
    /// snapshot.
    pub fn configure_shared_state(&self) {
        let routing = &self.settings.routing;
        for provider in &self.providers {
            provider.concurrency.configure(provider.provider.max_in_flight, routing.batch_lines);
        }
        for offer in &self.offers {
            offer.breaker.lock().configure(routing.breaker.breaker_settings());
        }
    }

    /// Returns the offers in a map with their identities as keys. An offer with the same identity in another
    /// configuration counts as the same offer.
    fn by_identity(&self) -> HashMap<OfferIdentity<'_>, &Arc<OfferState>> {
        // If several offers have the same identity, the first one is used.
        self.offers.iter().rev().map(|live| (identity(&live.offer), live)).collect()
    }
}

/// Builds the offers of a configuration in order, on several threads if there are thousands.
fn build_offers(
    settings: &Settings,
    providers: &[Arc<ProviderState>],
    old: Option<&ConfigSnapshot>,
) -> Result<Vec<Arc<OfferState>>, String> {
    let known = old.map(ConfigSnapshot::by_identity).unwrap_or_default();
    let make = |offer: &Arc<OfferSettings>| {
        let provider = providers
            .get(offer.provider.index)
            .ok_or_else(|| format!("The provider {} of an offer is unknown.", offer.provider.id))?;
        let breaker = CircuitBreaker::new(settings.routing.breaker.breaker_settings());
        let fresh = OfferState::new(offer.clone(), provider.clone(), breaker, &settings.billing)?;
        Ok(Arc::new(match known.get(&identity(offer)) {
            Some(known) => fresh.with_previous_state(known),
            None => fresh,
        }))
    };
    let threads = available_parallelism().map_or(1, NonZero::get);
    let share = settings.offers.len().div_ceil(threads).max(PARALLEL_BUILD_THRESHOLD);
    let mut parts = settings.offers.chunks(share);
    let first = parts.next().unwrap_or_default();
    std::thread::scope(|scope| {
        let make_all =
            |part: &[Arc<OfferSettings>]| part.iter().map(make).collect::<Result<Vec<_>, String>>();
        let others: Vec<_> = parts.map(|part| ParallelValue::start(scope, move || make_all(part))).collect();
        let mut all = make_all(first)?;
        for other in others {
            all.extend(other.join()?);
        }
        Ok(all)
    })
}

/// Identity of an offer: provider, its base URL, model, and the provider's name of the model.
type OfferIdentity<'a> = (&'a str, &'a BaseUrl, &'a str, &'a str);

fn identity(offer: &OfferSettings) -> OfferIdentity<'_> {
    (&offer.provider.id, &offer.provider.base_url, &offer.model.card.id, &offer.name)
}

#[cfg(test)]
mod tests;
