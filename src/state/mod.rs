//! State of the process that all requests share. It is built once at startup. A reload builds a new [`ConfigSnapshot`],
//! which replaces the current one; exchanges in flight continue with the snapshot with which they began.

pub mod admin_requests;
mod exchange_records;
mod fleet;
pub mod grid_intensity;
pub mod latency_records;
mod persistent_state;
mod predecessors;
mod readiness;
mod scrape;
mod spending;

use crate::auth::key_cache::KeyCache;
use crate::backup::state::BackupState;
use crate::batch::{BatchContext, BatchManager};
use crate::billing::Ledger;
use crate::billing::handover::InheritedHolds;
use crate::config::settings::{RestartOnlySettings, Settings};
use crate::config::{ConfigChange, ParallelValue, diff_settings};
use crate::http::buffer_pool::BufferPool;
use crate::http::tls::{self, ListenerTlsConfigs, TlsConfig};
use crate::limits::admission_control::AdmissionControl;
use crate::limits::background_stream_permits::BackgroundStreamPermits;
use crate::limits::tokenizer_permits::TokenizerPermits;
use crate::net::lifecycle::{InFlightGuard, Lifecycle};
use crate::storage::files::{FileExpiryContext, FileManager};
use crate::storage::images::cache::GeneratedImageCache;
use crate::storage::responses::{ResponseLimits, ResponseStore};
use crate::storage::spool::SpoolFactory;
use crate::storage::stores::OpenStorage;
use crate::telemetry::blocking_tasks::BlockingContext;
use crate::telemetry::metrics::MetricsRegistry;
use crate::telemetry::request_history::RequestHistory;
use crate::time::clock::ProcessClock;
use crate::upgrade::new_process::Predecessor;
use crate::upstream::config_snapshot::ConfigSnapshot;
use crate::upstream::connection_pool::ConnectionPools;
use crate::upstream::pools::health::{HealthChecks, HealthContext};
use crate::upstream::provider_state::{ProviderState, resolve_host_names};
use admin_requests::AdminRequestTracker;
use arc_swap::ArcSwap;
use fleet::FleetSync;
use grid_intensity::GridRecords;
use latency_records::FlushCursor;
use parking_lot::{Mutex, RwLock};
use penstock_routing::RetryBudget;
use persistent_state::PersistentState;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// State that lives as long as the process.
pub struct AppState {
    live: Arc<ArcSwap<ConfigSnapshot>>,
    /// Settings that only a restart can change.
    pub restart_only_settings: RestartOnlySettings,
    /// TLS configurations of the listeners that use TLS.
    tls: ArcSwap<ListenerTlsConfigs>,
    /// Database, ledger and secrets.
    pub stores: OpenStorage,
    /// API keys and accounts.
    pub key_cache: Arc<KeyCache>,
    /// Lock that is held while accounts and keys change, in the store and then in memory.
    pub key_write_lock: Mutex<()>,
    /// Ledger of credits and billed energy.
    pub ledger: Arc<Ledger>,
    /// Clock of the process.
    pub clock: ProcessClock,
    /// Pools of connections to providers.
    pub connection_pools: ConnectionPools,
    /// Active health checks of providers.
    pub health_checks: HealthChecks,
    /// Admission control: concurrent requests and memory of bodies.
    pub admission: Arc<AdmissionControl>,
    /// Permits to count tokens of long prompts.
    pub tokenizer_permits: Arc<TokenizerPermits>,
    /// Permits of open streams of background responses.
    pub background_stream_permits: Arc<BackgroundStreamPermits>,
    /// Retry budget of the process.
    pub retry_budget: Mutex<RetryBudget>,
    /// Metrics for Prometheus.
    pub metrics: Arc<MetricsRegistry>,
    /// History of the ended exchanges.
    pub history: RequestHistory,
    /// Factory of the spools in which uploads and images are stored temporarily.
    pub spools: SpoolFactory,
    /// Cache of generated images that clients fetch by URL.
    pub image_cache: GeneratedImageCache,
    /// Buffer pool for large bodies.
    pub buffer_pool: Arc<BufferPool>,
    /// Manager of uploaded files.
    pub files: Arc<FileManager>,
    /// Store of responses.
    pub responses: Arc<ResponseStore>,
    /// Manager of batches.
    pub batches: Arc<BatchManager>,
    /// Handles that blocking work of requests needs.
    pub blocking_context: BlockingContext,
    /// Handles that the work of batches needs.
    pub batch_context: Arc<BatchContext>,
    /// Work of a fleet member; `None` without a fleet.
    fleet_work: Option<FleetSync>,
    /// Position at which the next write of measured latencies begins.
    latency_round: FlushCursor,
    /// Carbon intensity of the grids in the last hours.
    pub grid_records: GridRecords,
    /// Schedule of backups.
    pub backup_state: BackupState,
    /// Replaced snapshots that exchanges still use. Dropping a snapshot of many offers takes milliseconds, so a
    /// background task drops it, and never an exchange.
    retired_snapshots: Mutex<Vec<Arc<ConfigSnapshot>>>,
    /// Lock that is held during a reload.
    reload_lock: Mutex<()>,
    /// Signal that is sent after each successful reload of the configuration.
    pub reloaded: Notify,
    /// Lock whose read side is held while a charge is added to the budgets and to the ledger's queue. The write of
    /// spends takes the write side, so it sees a charge in both or in neither.
    pub charge_lock: RwLock<()>,
    /// Lock that orders the writes of spends, so that the last write has the newest values.
    spend_flush_lock: Mutex<()>,
    /// State of the process: in service, draining, or handed over.
    lifecycle: Arc<Lifecycle>,
    /// Earlier processes that still drain after a handover.
    predecessors: Mutex<Vec<Predecessor>>,
    /// Admin requests in flight.
    pub admin_requests: AdminRequestTracker,
    /// Panics that tests inject.
    #[cfg(feature = "inject")]
    pub panic_injector: Arc<crate::net::panic_injection::PanicInjector>,
}

impl AppState {
    /// Builds the state of the process, and opens its store.
    ///
    /// # Errors
    /// Returns a sentence that names the cause.
    pub fn build(settings: Settings) -> Result<Arc<Self>, String> {
        Self::build_state(settings, false).map(|(app, _)| app)
    }

    /// Builds the state on the store of a process that still drains. Also returns the reservations that are open in
    /// that process.
    ///
    /// # Errors
    /// Returns a sentence that names the cause.
    pub fn build_from_predecessor(settings: Settings) -> Result<(Arc<Self>, InheritedHolds), String> {
        Self::build_state(settings, true)
    }

    fn build_state(settings: Settings, taken_over: bool) -> Result<(Arc<Self>, InheritedHolds), String> {
        let clock = ProcessClock::start();
        let tls = load_tls(&settings, clock)?;
        let spools = SpoolFactory::from_settings(&settings.spool);
        let stores = OpenStorage::open(&settings.storage)?;
        let fleet_work = FleetSync::new(&stores)?;
        let (open, holds) = PersistentState::open(&settings, &stores, clock, taken_over)?;
        let connection_pools = ConnectionPools::default();
        let overload = AdmissionControl::new(&settings.overload);
        let tokenizer_permits = TokenizerPermits::new(settings.overload.counting);
        let live = build_snapshot(settings, &connection_pools, &stores, clock)?;
        let live = Arc::new(ArcSwap::from_pointee(live));
        let metrics = Arc::new(MetricsRegistry::new().map_err(|error| error.to_string())?);
        let blocking = blocking_handles(&metrics);
        let batch_context = Arc::new(open.batch_context(&live, clock, &overload, &metrics));
        let app = Arc::new(Self {
            grid_records: GridRecords::restore(&live.load(), &stores.measurements),
            restart_only_settings: live.load().settings.restart_only(),
            live,
            tls: ArcSwap::from_pointee(tls),
            image_cache: GeneratedImageCache::new(&stores.pepper, open.files.shared_contents()),
            stores,
            key_cache: open.key_cache,
            key_write_lock: Mutex::new(()),
            ledger: open.ledger,
            batches: open.batches,
            #[cfg(feature = "inject")]
            panic_injector: blocking.inject.clone(),
            blocking_context: blocking,
            fleet_work,
            latency_round: FlushCursor::default(),
            backup_state: open.backup_state,
            clock,
            connection_pools,
            health_checks: HealthChecks::default(),
            admission: overload,
            tokenizer_permits,
            background_stream_permits: Arc::default(),
            retry_budget: Mutex::new(RetryBudget::new()),
            spools,
            buffer_pool: Arc::default(),
            files: open.files,
            responses: open.responses,
            metrics,
            history: RequestHistory::default(),
            lifecycle: batch_context.lifecycle.clone(),
            batch_context,
            retired_snapshots: Mutex::default(),
            reload_lock: Mutex::default(),
            charge_lock: RwLock::default(),
            spend_flush_lock: Mutex::default(),
            reloaded: Notify::new(),
            predecessors: Mutex::default(),
            admin_requests: AdminRequestTracker::default(),
        });
        app.ledger.drain_replayed_charges(|charge| app.apply_charge_of_other_process(charge));
        Ok((app, holds))
    }

    /// Returns the handles that health checks need.
    pub fn health_context(&self) -> HealthContext {
        HealthContext { current_config: self.live.clone(), clock: self.clock, metrics: self.metrics.clone() }
    }

    /// Returns the configuration snapshot in use.
    pub fn config_snapshot(&self) -> Arc<ConfigSnapshot> {
        self.live.load_full()
    }

    /// Returns the configured limits on stored responses.
    pub fn stored_response_limits(&self) -> ResponseLimits {
        let live = self.config_snapshot();
        ResponseLimits { settings: live.settings.responses, keep_free: live.settings.files.keep_free }
    }

    /// Returns the TLS configuration that the public listener uses; `None` without TLS.
    pub fn public_tls(&self) -> Option<Arc<TlsConfig>> {
        self.tls.load().public.clone()
    }

    /// Returns the TLS configuration that the dashboard uses; `None` without TLS.
    pub fn dashboard_tls(&self) -> Option<Arc<TlsConfig>> {
        self.tls.load().dashboard.clone()
    }

    /// Returns the current time and the retention period of files, to check which files have expired.
    pub fn file_expiry_context(&self) -> FileExpiryContext {
        FileExpiryContext {
            now: self.clock.unix_seconds(),
            retention: self.config_snapshot().settings.files.retention,
        }
    }

    /// Calls `read_settings` for the new settings, and replaces the configuration snapshot and the TLS configurations;
    /// the DNS names of new hosts are resolved before that. Returns the changes. Reloads run one at a time. Blocks.
    ///
    /// # Errors
    /// Returns the error of `read_settings`, or a sentence that names the cause; the old configuration stays in use.
    pub fn reload<E: From<String>>(
        &self,
        read_settings: impl FnOnce() -> Result<Settings, E>,
        runtime: &Handle,
    ) -> Result<Vec<ConfigChange>, E> {
        // Reloads run one at a time, so that the configuration that was read last stays in use.
        let _guard = self.reload_lock.lock();
        self.drop_retired_snapshots();
        let settings = read_settings()?;
        let old = self.config_snapshot();
        check_removals(&old.settings, &settings)?;
        let tls = load_tls(&settings, self.clock)?;
        let fresh =
            ConfigSnapshot::build(settings, Some(&old), &self.connection_pools, self.clock.unix_seconds())?;
        let unknown = |provider: &&Arc<ProviderState>| provider.routes().any(|route| !route.is_resolved());
        // With thousands of offers, comparing the settings and resolving host names take long, so both run in
        // parallel.
        let changed = std::thread::scope(|scope| {
            let compared = ParallelValue::start(scope, || diff_settings(&old.settings, &fresh.settings));
            runtime.block_on(async {
                resolve_host_names(fresh.providers.iter().filter(unknown)).await;
                fresh.publish_pools().await;
            });
            compared.join()
        });
        fresh.configure_shared_state();
        self.ledger.configure(&fresh.settings.ledger);
        self.admission.configure(&fresh.settings.overload);
        self.tokenizer_permits.configure(fresh.settings.overload.counting);
        self.live.store(Arc::new(fresh));
        runtime.block_on(self.health_checks.publish_providers(&self.config_snapshot()));
        // Dropping thousands of offers takes time, so a background task drops the old snapshot.
        self.retired_snapshots.lock().push(old);
        // A listener that is no longer configured continues with its TLS configuration until the next start.
        let used = self.tls.load_full();
        self.tls.store(Arc::new(ListenerTlsConfigs {
            public: tls.public.or_else(|| used.public.clone()),
            // A dashboard that was started without TLS stays without TLS until the next start.
            dashboard: used.dashboard.clone().map(|used| tls.dashboard.unwrap_or(used)),
        }));
        self.reloaded.notify_waiters();
        Ok(changed)
    }

    /// Drops replaced snapshots that are no longer in use. Blocks.
    pub fn drop_retired_snapshots(&self) {
        let (used, unused): (Vec<_>, Vec<_>) = {
            let mut retired = self.retired_snapshots.lock();
            std::mem::take(&mut *retired).into_iter().partition(|live| Arc::strong_count(live) > 1)
        };
        self.retired_snapshots.lock().extend(used);
        drop(unused);
    }

    /// Counts an exchange as in flight until the guard is dropped.
    pub fn track_exchange(&self) -> InFlightGuard<'_> {
        self.lifecycle.begin_exchange()
    }

    /// Returns the number of exchanges in flight.
    pub fn in_flight_exchanges(&self) -> usize {
        self.lifecycle.in_flight_exchanges()
    }

    /// Ends the startup: from now on the process reports that it is ready.
    pub fn set_serving(&self) {
        self.lifecycle.set_serving();
    }

    /// Returns true once the process accepts requests.
    pub fn is_serving(&self) -> bool {
        self.lifecycle.is_serving()
    }

    /// Starts to drain: from now on the process reports that it is not ready, and accepts no new connection.
    pub fn start_draining(&self) {
        self.lifecycle.start_draining();
    }

    /// Returns true while the process drains.
    pub fn is_draining(&self) -> bool {
        self.lifecycle.is_draining()
    }

    /// Records that another process takes over the store (`true`), or that the takeover was cancelled (`false`).
    pub fn set_store_handed_over(&self, left: bool) {
        self.lifecycle.set_store_handed_over(left);
    }

    /// Returns true if another process has the store or is about to take it.
    pub fn is_store_handed_over(&self) -> bool {
        self.lifecycle.is_store_handed_over()
    }
}

/// Creates the handles that blocking work of requests needs.
fn blocking_handles(metrics: &Arc<MetricsRegistry>) -> BlockingContext {
    BlockingContext {
        metrics: metrics.clone(),
        #[cfg(feature = "inject")]
        inject: Arc::default(),
    }
}

/// Builds the first snapshot, with the latencies that earlier processes measured.
fn build_snapshot(
    settings: Settings,
    connection_pools: &ConnectionPools,
    stores: &OpenStorage,
    clock: ProcessClock,
) -> Result<ConfigSnapshot, String> {
    let snapshot = ConfigSnapshot::build(settings, None, connection_pools, clock.unix_seconds())?;
    latency_records::restore_latency_records(&snapshot, &stores.measurements, clock);
    Ok(snapshot)
}

/// Checks that a reload does not remove all models or all providers, as that of a file that is being written would.
///
/// # Errors
/// Returns a sentence for the operator.
fn check_removals(old: &Settings, new: &Settings) -> Result<(), String> {
    let counts = [
        ("models", old.models.len(), new.models.len()),
        ("providers", old.providers.len(), new.providers.len()),
    ];
    match counts.into_iter().find(|(_, old, new)| *old > 0 && *new == 0) {
        None => Ok(()),
        Some((what, count, _)) => Err(format!(
            "The configuration has no {what}, and the one in use has {count}: a reload does not remove all of them. The old \
             configuration stays active; to run without {what}, restart the gateway."
        )),
    }
}

/// Loads the TLS configuration and checks every certificate file. Logs a warning for an expired certificate.
fn load_tls(settings: &Settings, clock: ProcessClock) -> Result<ListenerTlsConfigs, String> {
    let checked = tls::check_certificate_files(settings, clock.unix_seconds());
    for why in checked.map_err(|mistakes| mistakes.join(" "))? {
        tracing::warn!(name: "certificate_expired", why);
    }
    tls::load_listener_tls_configs(settings)
}
