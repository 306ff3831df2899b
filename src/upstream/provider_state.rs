//! Run-time state of a provider: its routes, concurrency limit, last error and health checks.

use super::concurrency_limit::ConcurrencyLimit;
use super::connect::UpstreamRoute;
use super::connection_pool::ConnectionPools;
use super::failure_log::FailureLogs;
use crate::config::settings::Provider;
use parking_lot::Mutex;
use penstock_core::UpstreamErrorKind;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Lookup of the providers of the previous configuration.
#[derive(Default)]
pub struct PreviousProviders<'a> {
    providers: HashMap<&'a str, &'a ProviderState>,
    /// Resolved routes by host and port. If several routes have the same host and port, the last one is used.
    routes: HashMap<(&'a str, u16), &'a UpstreamRoute>,
}

impl<'a> PreviousProviders<'a> {
    /// Indexes the providers of the previous configuration by id, and their resolved routes.
    #[must_use]
    pub fn from_providers(providers: &'a [Arc<ProviderState>]) -> Self {
        let routes =
            providers.iter().flat_map(|provider| provider.routes()).filter(|route| route.is_resolved());
        Self {
            routes: routes.map(|route| ((&*route.base_url().host, route.base_url().port), route)).collect(),
            // If several providers have the same id, the first one is used.
            providers: providers.iter().rev().map(|provider| (&*provider.provider.id, &**provider)).collect(),
        }
    }
}

/// Provider with its run-time state.
pub struct ProviderState {
    /// Settings of the provider.
    pub provider: Arc<Provider>,
    /// Route to the provider.
    pub route: UpstreamRoute,
    /// Routes to further hosts, from which images of the provider are downloaded.
    pub image_routes: Vec<UpstreamRoute>,
    /// Time of the provider's last failure, by the steady clock, and its kind; `None` without a failure.
    pub last_error: Arc<Mutex<Option<(Duration, &'static str)>>>,
    /// True if the last active check passed; `None` before the first check.
    pub last_check_passed: Arc<Mutex<Option<bool>>>,
    /// Kind of the failure that the last active check found; `None` if it found none, and before the first check.
    pub(super) check_failure: Arc<Mutex<Option<UpstreamErrorKind>>>,
    /// Log throttles for failures of the provider.
    pub(super) failure_logs: Arc<FailureLogs>,
    /// Time of the steady clock from which on the next health check is due.
    pub(super) next_check: Mutex<Duration>,
    /// Limit on concurrent requests to the provider.
    pub concurrency: Arc<ConcurrencyLimit>,
}

impl ProviderState {
    /// Creates the state of a provider from its settings and from its state in the previous configuration.
    /// `batch_lines` limits the number of batch lines if the provider has no concurrency limit. The state of the
    /// concurrency limit is shared with the previous configuration, so that its exchanges are counted too.
    ///
    /// # Errors
    /// Returns a sentence if a certificate file of the provider cannot be used.
    pub fn new(
        provider: Arc<Provider>,
        pools: &ConnectionPools,
        batch_lines: usize,
        old: &PreviousProviders<'_>,
    ) -> Result<Self, String> {
        let unusable = |why: String| format!("Provider {}: {why}", provider.id);
        let known = old.providers.get(&*provider.id);
        let concurrency = match known {
            Some(known) => known.concurrency.clone(),
            None => ConcurrencyLimit::new(provider.max_in_flight, batch_lines),
        };
        let fresh = Self {
            route: UpstreamRoute::new(&provider, pools).map_err(unusable)?,
            image_routes: provider
                .image_hosts
                .iter()
                .map(|base| UpstreamRoute::with_base_url(base, &provider, pools))
                .collect::<Result<_, _>>()
                .map_err(unusable)?,
            concurrency,
            last_error: known.map(|known| known.last_error.clone()).unwrap_or_default(),
            failure_logs: known.map(|known| known.failure_logs.clone()).unwrap_or_default(),
            last_check_passed: known.map(|known| known.last_check_passed.clone()).unwrap_or_default(),
            check_failure: known.map(|known| known.check_failure.clone()).unwrap_or_default(),
            next_check: Mutex::new(Duration::ZERO),
            provider,
        };
        for route in fresh.routes() {
            if let Some(old) = old.routes.get(&(&*route.base_url().host, route.base_url().port)) {
                route.inherit_addresses(&fresh.provider, old);
            }
        }
        Ok(fresh)
    }

    /// Returns the route to the provider and those to its image hosts.
    pub fn routes(&self) -> impl Iterator<Item = &UpstreamRoute> {
        std::iter::once(&self.route).chain(&self.image_routes)
    }

    /// Resolves the host names of the provider's routes.
    pub async fn resolve_routes(&self) {
        for route in self.routes() {
            route.refresh_addresses(&self.provider).await;
        }
    }

    /// Returns the number of requests in flight.
    pub fn in_flight(&self) -> u32 {
        self.concurrency.in_flight()
    }
}

/// Resolves the host names of these providers concurrently, so that a slow lookup does not delay the others.
pub async fn resolve_host_names(providers: impl Iterator<Item = &Arc<ProviderState>>) {
    let mut all: JoinSet<()> =
        providers.cloned().map(|provider| async move { provider.resolve_routes().await }).collect();
    while all.join_next().await.is_some() {}
}
