//! Active health checks: inexpensive requests to providers that do not depend on the requests of clients. They detect
//! a recovered provider without risking a client's request, and a failed provider before a client notices the
//! failure.
//!
//! One registry serves the whole process. Its unit is the provider: a provider is checked once, however many offers
//! it has, and two providers with the same address have separate health. The registry stores the result of the last
//! check and reports changes. Each offer's circuit breaker gets every result, and ejects the offer when its threshold
//! is reached.
//!
//! `pingora_load_balancing` has one interval and one pair of thresholds per registry, and a pass over the providers
//! waits for all of its checks. Therefore passes are frequent and never wait for a provider: [`ProviderCheck`] starts
//! the request to a provider that is due in a separate task, and reports the result of the previous check.

use super::discovery::{HealthCheckDiscovery, HealthCheckTargets};
use super::update_breaker;
use crate::config::settings::HealthCheckSettings;
use crate::telemetry::metrics::MetricsRegistry;
use crate::time::clock::ProcessClock;
use crate::upstream::config_snapshot::ConfigSnapshot;
use crate::upstream::failure_log::connection_remedy;
use crate::upstream::http1::TransportError;
use crate::upstream::provider_state::ProviderState;
use crate::upstream::request_head;
use arc_swap::ArcSwap;
use async_trait::async_trait;
use bytes::Bytes;
use penstock_core::{Dialect, UpstreamErrorKind};
use pingora_error::{Error, ErrorType, Result};
use pingora_load_balancing::health_check::HealthCheck;
use pingora_load_balancing::{Backend, BackendView, HealthCheckService, HealthRegistry};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Interval of passes over the providers, and the minimum interval between two checks of a provider.
const CHECK_TICK: Duration = Duration::from_millis(250);
/// Maximum bytes of a check's answer that are read so that its connection can be reused.
const MAX_BODY: usize = 256 * 1024;
/// Remedy in the log event of a check that was answered, but failed.
const REMEDY: &str = "Check the provider's status, its `api_key`, and `health.path`.";

/// Handles that health checks need.
#[derive(Clone)]
pub struct HealthContext {
    /// Configuration snapshot in use.
    pub current_config: Arc<ArcSwap<ConfigSnapshot>>,
    /// Clock of the process.
    pub clock: ProcessClock,
    /// Metrics registry.
    pub metrics: Arc<MetricsRegistry>,
}

/// Health checks of the providers of the configuration in use.
pub struct HealthChecks {
    registry: Arc<HealthRegistry>,
    view: BackendView,
    providers: Arc<ArcSwap<HealthCheckTargets>>,
    /// Lock under which providers are published, one publication at a time.
    publishing: tokio::sync::Mutex<()>,
}

impl Default for HealthChecks {
    fn default() -> Self {
        let keys = ahash::RandomState::new();
        let provider_key =
            move |backend: &Backend| keys.hash_one(provider(backend).map(|known| &known.provider.id));
        let registry = Arc::new(HealthRegistry::with_equivalence(provider_key));
        let providers = Arc::<ArcSwap<HealthCheckTargets>>::default();
        let discovery = Box::new(HealthCheckDiscovery(providers.clone()));
        let view = BackendView::new_with_health_registry(discovery, registry.clone());
        Self { registry, view, providers, publishing: tokio::sync::Mutex::default() }
    }
}

impl HealthChecks {
    /// Starts to check the providers of this configuration, at the addresses that they have now.
    pub async fn publish_providers(&self, live: &ConfigSnapshot) {
        let _guard = self.publishing.lock().await;
        let known = self.providers.load_full();
        let checked = live.providers.iter().filter(|provider| provider.provider.health.is_some());
        let providers: Vec<Arc<ProviderState>> = checked.cloned().collect();
        let same = known.providers.len() == providers.len()
            && known.providers.iter().zip(&providers).all(|(old, new)| Arc::ptr_eq(old, new));
        if !same {
            let generation = known.generation.saturating_add(1);
            self.providers.store(Arc::new(HealthCheckTargets { generation, providers }));
        }
        // Discovery from memory cannot fail.
        self.view.update(|_| ()).await.ok();
    }

    /// Starts the service that makes the health checks; called once per process.
    pub fn start(&self, context: HealthContext, stop: &watch::Receiver<bool>) -> JoinHandle<()> {
        self.registry.set_health_check(Box::new(ProviderCheck(context)));
        let mut service = HealthCheckService::new(self.registry.clone());
        service.health_check_frequency = Some(CHECK_TICK);
        let stop = stop.clone();
        tokio::spawn(async move { service.run(stop, None).await })
    }

    /// Returns true if the last check of the provider passed; also true before the first check, and for a provider
    /// without checks.
    #[must_use]
    pub fn is_healthy(&self, id: &str) -> bool {
        let known = self.view.get_backend();
        let mut known =
            known.iter().filter(|backend| provider(backend).is_some_and(|one| &*one.provider.id == id));
        known.next().is_none_or(|backend| self.view.ready(backend))
    }
}

fn provider(backend: &Backend) -> Option<&Arc<ProviderState>> {
    backend.ext.get()
}

/// Health check by `GET base + path`, which a provider must answer with a status below 400.
struct ProviderCheck(HealthContext);

#[async_trait]
impl HealthCheck for ProviderCheck {
    async fn check(&self, target: &Backend) -> Result<()> {
        let Some(provider) = provider(target) else { return Ok(()) };
        if let Some(health) = &provider.provider.health
            && provider.is_check_due(self.0.clock.steady_now(), health.interval)
        {
            tokio::spawn(check(self.0.clone(), provider.clone(), health.clone()));
        }
        match *provider.check_failure.lock() {
            None => Ok(()),
            Some(kind) => Err(Error::explain(ErrorType::Custom("HealthCheckFailed"), kind.name())),
        }
    }

    /// Returns 1, so that every result counts, because the circuit breakers have the thresholds.
    fn health_threshold(&self, _success: bool) -> usize {
        1
    }

    /// Returns the provider's id, since an address may contain a secret.
    fn backend_summary(&self, target: &Backend) -> String {
        provider(target).map(|provider| provider.provider.id.to_string()).unwrap_or_default()
    }

    async fn health_status_change(&self, target: &Backend, healthy: bool) {
        let Some(provider) = provider(target) else { return };
        let id = &*provider.provider.id;
        if healthy {
            return tracing::info!(name: "health_check_passed", provider = id);
        }
        let failure = *provider.check_failure.lock();
        let kind = failure.map_or("", UpstreamErrorKind::name);
        let remedy = failure.and_then(connection_remedy).unwrap_or(REMEDY);
        tracing::error!(name: "health_check_failed", provider = id, kind, remedy);
    }
}

/// Checks a provider and records the result.
async fn check(context: HealthContext, provider: Arc<ProviderState>, health: HealthCheckSettings) {
    let found = timeout(health.timeout, probe(&provider, &health)).await;
    let found = found.unwrap_or(Err(UpstreamErrorKind::DeadlineExceeded));
    // Without a file descriptor no request was sent, so there is no result.
    if found == Err(UpstreamErrorKind::NoDescriptors) {
        return;
    }
    let (now, passed) = (context.clock.steady_now(), found.is_ok());
    provider.record_check(now, found);
    let live = context.current_config.load_full();
    // After a reload, another provider may have this index.
    let offers = live.offers_of_provider(provider.provider.index);
    for offer in offers.filter(|offer| Arc::ptr_eq(&offer.provider, &provider)) {
        update_breaker(offer, |breaker| breaker.on_health_check(now, passed));
    }
    context.metrics.count_health_check(&provider.provider.id, passed);
}

/// Classifies the status of a health check's answer: success below 400, otherwise the kind of failure.
pub(super) const fn classify_probe_status(status: u16) -> Result<(), UpstreamErrorKind> {
    match status {
        ..=399 => Ok(()),
        401..=404 => Err(UpstreamErrorKind::Credentials(status)),
        _ => Err(UpstreamErrorKind::Status(status)),
    }
}

/// Sends the request of a check and reads the answer.
async fn probe(provider: &ProviderState, health: &HealthCheckSettings) -> Result<(), UpstreamErrorKind> {
    let settings = &provider.provider;
    let path = format!("{}{}", settings.base_url.path_prefix, health.path);
    let dialect = settings.dialects.first().copied().unwrap_or(Dialect::Chat);
    let head = request_head::authenticated_head("GET", settings, dialect, &path)
        .map_err(|_| UpstreamErrorKind::Malformed)?;
    let mut upstream = provider.route.connect().await.map_err(|fault| fault.kind)?;
    // The read timeout is longer than the deadline of the check, so that the deadline ends the check.
    upstream.set_read_timeout(health.timeout * 2);
    let found = match upstream.send_for_status(head, Bytes::new()).await {
        Ok(status) => classify_probe_status(status),
        Err(TransportError::Malformed) => Err(UpstreamErrorKind::Malformed),
        Err(TransportError::Gone | TransportError::NotProcessed) => Err(UpstreamErrorKind::Reset),
    };
    // If the body is not long, it is read, so that the connection can serve a request afterwards.
    let mut read = 0;
    while let Ok(Some(piece)) = upstream.read_body().await {
        read += piece.len();
        if read > MAX_BODY {
            return found;
        }
    }
    if found.is_ok() {
        upstream.return_to_pool().await;
    }
    found
}

impl ProviderState {
    /// Returns true if a check is due, and schedules the next one an interval later.
    fn is_check_due(&self, now: Duration, interval: Duration) -> bool {
        let mut next = self.next_check.lock();
        if now < *next {
            return false;
        }
        *next = now + interval;
        true
    }

    /// Records the result of a health check, and the time of a failure.
    pub(super) fn record_check(&self, now: Duration, found: Result<(), UpstreamErrorKind>) {
        let failure = found.err();
        if let Some(kind) = failure {
            *self.last_error.lock() = Some((now, kind.name()));
        }
        *self.check_failure.lock() = failure;
        *self.last_check_passed.lock() = Some(failure.is_none());
    }
}
