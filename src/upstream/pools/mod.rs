//! Pools of offers, built on `pingora_load_balancing`: one [`LoadBalancerGroup`] per model, whose backends are the
//! model's offers, with one selector per flavor. The pools belong to one configuration and are published before that
//! configuration is used.
//!
//! - `discovery.rs`: offers and providers of the configuration, with resolved addresses, as backends;
//! - `selection.rs`: the order of the offers for a flavor, as a selection of `pingora_load_balancing`;
//! - `health.rs`: active health checks of providers, in one registry for the process.
//!
//! Readiness of a backend follows the circuit breaker of its offer: an ejection disables the backend in every pool that
//! has it, a closed breaker enables it again. The breaker receives the results of attempts and active checks. A
//! half-open offer is not ready, but the plan accepts it as long as the breaker has a free probe.

mod discovery;
pub mod health;
mod selection;

pub use selection::{ExplorationMode, PlanRequest};

use super::offer::OfferState;
use discovery::{OfferDiscovery, offer_index};
use parking_lot::Mutex;
use penstock_routing::{
    BreakerState, CircuitBreaker, ExplorationBudgets, FLAVORS, Flavor, OfferHealth, PlannedOffer,
};
use pingora_core::services::ServiceReadyNotifier;
use pingora_load_balancing::{Backend, Backends, LoadBalancerGroup};
use selection::{FlavorConfig, FlavorSelector, take_last_order};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Pool of the offers of one model, which can order them for a request.
pub struct ModelPool {
    group: LoadBalancerGroup<FlavorSelector>,
    /// Offers in ascending order of their index.
    offers: Vec<Arc<OfferState>>,
    /// Lock under which the pool is published, one publication at a time.
    publishing: tokio::sync::Mutex<()>,
}

/// Candidates of one request in the order of its flavor.
#[derive(Debug)]
pub struct OfferPlan {
    /// The candidates, best first.
    pub entries: Vec<PlannedOffer>,
    /// True if every candidate is ejected; the first candidate is then called nevertheless.
    pub all_ejected: bool,
}

impl ModelPool {
    /// Creates a pool of these offers, which are in the order of their indexes. The pool is empty until it is
    /// published.
    #[must_use]
    pub fn new(offers: Vec<Arc<OfferState>>, explorations: &Arc<Mutex<ExplorationBudgets>>) -> Arc<Self> {
        let backends = Backends::new(Box::new(OfferDiscovery::new(offers.clone())));
        let configs = FLAVORS
            .iter()
            .map(|flavor| Some(FlavorConfig { flavor: *flavor, explorations: explorations.clone() }));
        let group = LoadBalancerGroup::from_backends_with_configs(backends, configs);
        let pool = Arc::new(Self { group, offers, publishing: tokio::sync::Mutex::default() });
        for offer in &pool.offers {
            offer.memberships.add(&pool, offer.offer.index);
        }
        pool
    }

    /// Discovers the offers and their addresses; returns when every selector serves them.
    pub async fn publish(&self) {
        let _guard = self.publishing.lock().await;
        let (_running, shutdown) = watch::channel(false);
        let (ready, _) = watch::channel(false);
        // Without an update frequency, `run` updates the group only once, and returns when the selectors are rebuilt.
        self.group.run(shutdown, Some(ServiceReadyNotifier::new(ready))).await;
        // A breaker may have changed after discovery read it.
        let backends = self.group.backends();
        for backend in backends.get_backend().iter() {
            if let Some(offer) = self.offer(backend) {
                let breaker = offer.breaker.lock();
                backends.set_enable(backend, is_closed(&breaker));
            }
        }
    }

    /// Returns the candidates of a request in the order of the flavor.
    #[must_use]
    pub fn plan_candidates(&self, flavor: &'static dyn Flavor, request: &PlanRequest<'_>) -> OfferPlan {
        let selector = FLAVORS.iter().position(|known| *known == flavor).unwrap_or(0);
        let accept = |backend: &Backend, ready: bool| {
            ready || self.offer(backend).is_some_and(|offer| is_callable(offer, request.now))
        };
        let accepted = self.group.select_with(selector, &request.encode(), usize::MAX, accept);
        // The selection accepts no candidate only if all candidates are ejected.
        OfferPlan { entries: take_last_order(), all_ejected: accepted.is_none() }
    }

    /// Returns true if the offer is enabled, which means that its breaker is closed.
    #[must_use]
    pub fn is_offer_ready(&self, offer: usize) -> bool {
        let backends = self.group.backends();
        let known = backends.get_backend();
        known
            .iter()
            .find(|backend| offer_index(backend) == offer)
            .is_some_and(|backend| backends.ready(backend))
    }

    fn offer(&self, backend: &Backend) -> Option<&Arc<OfferState>> {
        let index = offer_index(backend);
        let at = self.offers.binary_search_by_key(&index, |offer| offer.offer.index).ok()?;
        self.offers.get(at)
    }

    fn set_enabled(&self, offer: usize, enabled: bool) {
        let backends = self.group.backends();
        for backend in backends.get_backend().iter().filter(|backend| offer_index(backend) == offer) {
            backends.set_enable(backend, enabled);
        }
    }
}

/// Publishes several pools at once. Blocks.
///
/// `pingora_load_balancing` builds each selector on a blocking thread, and drops the previous selector on another.
/// The runtime that is created here has a single blocking thread. With thousands of selectors, this thread is always
/// busy; this saves the cost of waking a thread for each selector.
///
/// # Errors
/// Returns an error if the runtime cannot be built; no pool is published then.
pub fn publish_pools(pools: &[Arc<ModelPool>]) -> std::io::Result<()> {
    let runtime = Builder::new_current_thread().enable_time().max_blocking_threads(1).build()?;
    runtime.block_on(async {
        let mut publications: JoinSet<()> = JoinSet::new();
        for pool in pools {
            let pool = pool.clone();
            publications.spawn(async move { pool.publish().await });
        }
        publications.join_all().await;
    });
    Ok(())
}

/// Pools that contain an offer: those of the current configuration, and of earlier configurations that are still in
/// use.
#[derive(Default)]
pub struct OfferPools(Mutex<Vec<(Weak<ModelPool>, usize)>>);

impl OfferPools {
    fn add(&self, pool: &Arc<ModelPool>, index: usize) {
        let mut pools = self.0.lock();
        pools.retain(|(pool, _)| pool.strong_count() > 0);
        pools.push((Arc::downgrade(pool), index));
    }

    /// Enables or disables the offer in each pool. The caller has to hold the lock of the breaker, so that the last
    /// change takes effect.
    fn set_enabled(&self, enabled: bool) {
        for (pool, index) in self.0.lock().iter() {
            if let Some(pool) = pool.upgrade() {
                pool.set_enabled(*index, enabled);
            }
        }
    }
}

/// Changes the breaker of an offer, and updates the readiness of the offer in its pools.
pub(super) fn update_breaker<T>(offer: &OfferState, change: impl FnOnce(&mut CircuitBreaker) -> T) -> T {
    let mut breaker = offer.breaker.lock();
    let before = is_closed(&breaker);
    let changed = change(&mut breaker);
    let after = is_closed(&breaker);
    if before != after {
        offer.memberships.set_enabled(after);
    }
    changed
}

/// Returns true if a request may be sent to the offer at this time: its breaker is closed, or half open with a free
/// probe.
fn is_callable(offer: &OfferState, now: Duration) -> bool {
    !matches!(offer.breaker.lock().health(now), OfferHealth::Ejected { .. })
}

/// Returns true if the breaker is closed, which does not depend on the time.
fn is_closed(breaker: &CircuitBreaker) -> bool {
    breaker.state(Duration::ZERO) == BreakerState::Closed
}

#[cfg(test)]
mod tests;
