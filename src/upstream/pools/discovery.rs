//! Service discovery for `pingora_load_balancing`: offers and providers as its backends.
//!
//! `pingora_load_balancing` identifies a backend by its address and weight, and ignores `ext`. It would not notice
//! another price or key at the same address. The selections here do not use weights, so the weight encodes what
//! distinguishes backends: the index of an offer, since two providers may have the same address. For providers, whose
//! pool continues to exist after a reload, the weight also encodes the generation of the configuration.

use super::is_closed;
use crate::upstream::offer::OfferState;
use crate::upstream::provider_state::ProviderState;
use arc_swap::ArcSwap;
use async_trait::async_trait;
use pingora_core::protocols::l4::socket::SocketAddr;
use pingora_error::Result;
use pingora_load_balancing::discovery::ServiceDiscovery;
use pingora_load_balancing::{Backend, Extensions};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Maximum number of providers that the weight can encode in one generation.
const MAX_PROVIDERS: usize = 1 << 24;

/// Discovery of the offers of one model in one configuration.
pub(super) struct OfferDiscovery(Vec<Arc<OfferState>>);

impl OfferDiscovery {
    pub(super) const fn new(offers: Vec<Arc<OfferState>>) -> Self {
        Self(offers)
    }
}

#[async_trait]
impl ServiceDiscovery for OfferDiscovery {
    async fn discover(&self) -> Result<(BTreeSet<Backend>, HashMap<u64, bool>)> {
        let mut enabled = HashMap::with_capacity(self.0.len());
        let backends = self.0.iter().map(|offer| {
            let backend = backend(&offer.provider, offer.offer.index.saturating_add(1), offer.clone());
            enabled.insert(enablement_key(&backend), is_closed(&offer.breaker.lock()));
            backend
        });
        Ok((backends.collect(), enabled))
    }
}

/// Returns the index of the offer behind a backend.
pub(super) const fn offer_index(backend: &Backend) -> usize {
    backend.weight.saturating_sub(1)
}

/// Providers with active health checks, of one configuration.
#[derive(Default)]
pub(super) struct HealthCheckTargets {
    pub(super) generation: usize,
    pub(super) providers: Vec<Arc<ProviderState>>,
}

/// Discovery of the providers with active health checks, in the configuration in use.
pub(super) struct HealthCheckDiscovery(pub(super) Arc<ArcSwap<HealthCheckTargets>>);

#[async_trait]
impl ServiceDiscovery for HealthCheckDiscovery {
    async fn discover(&self) -> Result<(BTreeSet<Backend>, HashMap<u64, bool>)> {
        let HealthCheckTargets { generation, providers } = &**self.0.load();
        let weight = |provider: &ProviderState| {
            generation.saturating_mul(MAX_PROVIDERS).saturating_add(provider.provider.index).saturating_add(1)
        };
        let backends = providers.iter().map(|provider| backend(provider, weight(provider), provider.clone()));
        Ok((backends.collect(), HashMap::new()))
    }
}

fn backend(provider: &ProviderState, weight: usize, ext: impl Clone + Send + Sync + 'static) -> Backend {
    let mut extensions = Extensions::new();
    extensions.insert(ext);
    // A host that is not resolved has no address. The offer is still part of the plan, and attempts at it fail.
    let unresolved =
        || std::net::SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), provider.route.base_url().port);
    let address = provider.route.first_address().unwrap_or_else(unresolved);
    Backend { addr: SocketAddr::Inet(address), weight, ext: extensions }
}

/// Returns the key of a backend in the map of enabled backends, as `pingora_load_balancing` defines it.
fn enablement_key(backend: &Backend) -> u64 {
    let mut hasher = DefaultHasher::new();
    backend.hash(&mut hasher);
    hasher.finish()
}
