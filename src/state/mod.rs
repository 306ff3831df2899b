//! State of the process that requests share. It is built once at startup. A reload builds a new [`Live`] snapshot
//! beside the old one and swaps it in; exchanges in flight keep the snapshot with which they began.

pub mod latency_records;
mod scrape;

use crate::auth::key_cache::Keyring;
use crate::backup::schedule::Exports;
use crate::batch::{BatchContext, Batches};
use crate::billing::Ledger;
use crate::billing::handover::{Charged, Holds};
use crate::config::settings::{RestartOnlySettings, Settings};
use crate::config::{ConfigChange, diff_settings};
use crate::http::buffer_pool::Buffers;
use crate::http::tls::{self, Tls};
use crate::limits::admission_control::Overload;
use crate::limits::tokenizer_permits::CountingPermits;
use crate::net::lifecycle::{InFlightGuard, Lifecycle};
use crate::storage::files::{Files, When};
use crate::storage::image_cache::Shelf;
use crate::storage::spool::Spools;
use crate::storage::stores::Vault;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::off_thread::BlockingHandles;
use crate::telemetry::{Record, log};
use crate::time::clock::Clock;
use crate::upgrade::new_process::Predecessor;
use crate::upstream::config_snapshot::Live;
use crate::upstream::connection_pool::ConnectionPools;
use crate::upstream::pools::health::{HealthChecks, HealthContext};
use crate::upstream::provider_state::ProviderLive;
use crate::upstream::provider_state::resolve_all;
use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::{Mutex, RwLock};
use penstock_contract::MicroCredits;
use penstock_ledger::Wallet;
use penstock_routing::RetryBudget;
use penstock_storage::files::FileStore;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// State that lives as long as the process.
pub struct House {
    live: Arc<ArcSwap<Live>>,
    /// Settings that only a restart changes.
    pub fixed: RestartOnlySettings,
    /// TLS configuration of the public listener, if there is one.
    tls: ArcSwapOption<Tls>,
    /// Database, ledger and secrets.
    pub vault: Vault,
    /// API keys and accounts.
    pub keyring: Arc<Keyring>,
    /// Lock that is held while accounts and keys change, in the store and then in memory.
    pub desk: Mutex<()>,
    /// Ledger of credits and billed energy.
    pub ledger: Arc<Ledger>,
    /// Clock of the process.
    pub clock: Clock,
    /// Connections to providers.
    pub connection_pools: ConnectionPools,
    /// Active health checks of providers.
    pub health_checks: HealthChecks,
    /// Admission control: concurrent requests and memory of bodies.
    pub overload: Arc<Overload>,
    /// Permits to count tokens of long prompts.
    pub counting: Arc<CountingPermits>,
    /// Retry budget of the process.
    pub budget: Mutex<RetryBudget>,
    /// Metrics for Prometheus.
    pub metrics: Arc<Metrics>,
    /// Spooled uploads and images.
    pub spools: Spools,
    /// Cache of generated images that clients fetch by URL.
    pub shelf: Shelf,
    /// Buffer pool for large bodies.
    pub buffers: Arc<Buffers>,
    /// Uploaded files.
    pub files: Arc<Files>,
    /// Batches.
    pub batches: Arc<Batches>,
    /// Handles for blocking work.
    pub blocking: BlockingHandles,
    /// Handles for batches.
    pub batch: Arc<BatchContext>,
    /// Schedule of backups.
    pub exports: Exports,
    /// Replaced snapshots that exchanges still use. Dropping a snapshot of many offers takes milliseconds, so that no
    /// exchange may do it.
    retired: Mutex<Vec<Arc<Live>>>,
    /// Lock that is held during a reload.
    reloading: Mutex<()>,
    /// Notified after each reload.
    pub reloaded: Notify,
    /// Read lock that is held while a charge enters the budgets and the ledger's queue. The writer sees a charge in
    /// both or in neither.
    pub charging: RwLock<()>,
    /// Lock that orders writes of spends: the last write has the last values.
    noting: Mutex<()>,
    /// In service, draining, handed over.
    lifecycle: Arc<Lifecycle>,
    /// Processes before this one that still drain.
    predecessors: Mutex<Vec<Predecessor>>,
    /// Admin requests in flight.
    pub desks: AtomicUsize,
    /// Faults that tests inject.
    #[cfg(feature = "inject")]
    pub inject: Arc<crate::net::fault_injection::Inject>,
}

impl House {
    /// Builds the state.
    ///
    /// # Errors
    /// Returns a sentence that names the cause.
    pub fn build(settings: Settings) -> Result<Arc<Self>, String> {
        Self::begin(settings, false).map(|(house, _)| house)
    }

    /// Builds the state on the store of a process that still drains. Returns the reserves that process has open.
    ///
    /// # Errors
    /// Returns a sentence that names the cause.
    pub fn take_over(settings: Settings) -> Result<(Arc<Self>, Holds), String> {
        Self::begin(settings, true)
    }

    fn begin(settings: Settings, taken_over: bool) -> Result<(Arc<Self>, Holds), String> {
        let clock = Clock::start();
        let tls = certified(&settings, clock)?;
        let spool = &settings.spool;
        let spools = Spools::new(spool.path.clone(), spool.memory, spool.disk);
        let vault = Vault::open(&settings.storage)?;
        let keyring = Arc::new(Keyring::load(&vault, clock)?);
        let (kept, terms) = (vault.ledger.clone(), &settings.ledger);
        let (ledger, holds) = match taken_over {
            true => Ledger::take_over(kept, terms, clock)?,
            false => (Ledger::open(kept, terms, clock)?, Holds::default()),
        };
        let files = Files::open(&settings.files, FileStore::new(vault.store.clone()), taken_over)?;
        let batches = Arc::new(Batches::new(vault.store.clone()));
        files.run_by(batches.clone());
        let exports = Exports::open(&settings, clock.unix());
        files.archived_in(exports.folder().to_owned(), crate::backup::rotation::purge);
        let connection_pools = ConnectionPools::default();
        let overload = Overload::new(&settings.overload);
        let counting = CountingPermits::new(settings.overload.counting);
        let live = Live::build(settings, None, &connection_pools, clock.unix())?;
        latency_records::restore(&live, &vault.figures, clock);
        let fixed = live.settings.restart_only();
        let live = Arc::new(ArcSwap::from_pointee(live));
        let metrics = Arc::new(Metrics::new().map_err(|error| error.to_string())?);
        let (files, lifecycle) = (Arc::new(files), Arc::<Lifecycle>::default());
        #[cfg(feature = "inject")]
        let inject = Arc::<crate::net::fault_injection::Inject>::default();
        let blocking = BlockingHandles {
            metrics: metrics.clone(),
            #[cfg(feature = "inject")]
            inject: inject.clone(),
        };
        let batch = Arc::new(BatchContext {
            live: live.clone(),
            clock,
            ledger: ledger.clone(),
            keyring: keyring.clone(),
            overload: overload.clone(),
            metrics: metrics.clone(),
            files: files.clone(),
            batches: batches.clone(),
            lifecycle: lifecycle.clone(),
            executor: OnceLock::new(),
        });
        let house = Arc::new(Self {
            fixed,
            live,
            tls: ArcSwapOption::new(tls),
            vault,
            keyring,
            desk: Mutex::new(()),
            ledger,
            batches,
            batch,
            blocking,
            exports,
            clock,
            connection_pools,
            health_checks: HealthChecks::default(),
            overload,
            counting,
            budget: Mutex::new(RetryBudget::new()),
            spools,
            shelf: Shelf::default(),
            buffers: Arc::default(),
            files,
            metrics,
            lifecycle,
            retired: Mutex::default(),
            reloading: Mutex::default(),
            charging: RwLock::default(),
            noting: Mutex::default(),
            reloaded: Notify::new(),
            predecessors: Mutex::default(),
            desks: AtomicUsize::new(0),
            #[cfg(feature = "inject")]
            inject,
        });
        Ok((house, holds))
    }

    /// Returns the handles that health checks work with.
    pub fn health_context(&self) -> HealthContext {
        HealthContext { live: self.live.clone(), clock: self.clock, metrics: self.metrics.clone() }
    }

    /// Returns the configuration snapshot in use.
    pub fn live(&self) -> Arc<Live> {
        self.live.load_full()
    }

    /// Returns the TLS configuration in use.
    pub fn tls(&self) -> Option<Arc<Tls>> {
        self.tls.load_full()
    }

    /// Returns the present time and the retention of files, for checks of their expiry.
    pub fn when(&self) -> When {
        When { now: self.clock.unix(), retention: self.live().settings.files.retention }
    }

    /// Replaces the configuration snapshot after host names that are new in it were resolved. Returns the changes.
    /// Blocks.
    ///
    /// # Errors
    /// Returns a sentence that names the cause; the old snapshot stays in use.
    pub fn reload(
        &self,
        read: impl FnOnce() -> Result<Settings, String>,
        runtime: &Handle,
    ) -> Result<Vec<ConfigChange>, String> {
        // One reload at a time: the configuration that was read last must be the one that stays.
        let _turn = self.reloading.lock();
        self.drop_retired();
        let settings = read()?;
        let tls = certified(&settings, self.clock)?;
        let old = self.live();
        let fresh = Live::build(settings, Some(&old), &self.connection_pools, self.clock.unix())?;
        let unknown = |provider: &&Arc<ProviderLive>| provider.routes().any(|route| !route.is_known());
        // With thousands of offers each of the two takes a good part of a second.
        let changed = std::thread::scope(|scope| {
            let compared = scope.spawn(|| diff_settings(&old.settings, &fresh.settings));
            runtime.block_on(async {
                resolve_all(fresh.providers.iter().filter(unknown)).await;
                fresh.publish().await;
            });
            compared.join().map_err(|_| "The configurations could not be compared.".to_owned())
        })?;
        fresh.begin();
        self.ledger.configure(&fresh.settings.ledger);
        self.overload.configure(&fresh.settings.overload);
        self.counting.configure(fresh.settings.overload.counting);
        self.live.store(Arc::new(fresh));
        runtime.block_on(self.health_checks.publish(&self.live()));
        // Dropping thousands of offers takes a while; a background task does it.
        self.retired.lock().push(old);
        // A listener that is not in the new configuration stays until the next start, with its TLS configuration.
        if tls.is_some() {
            self.tls.store(tls);
        }
        self.reloaded.notify_waiters();
        Ok(changed)
    }

    /// Drops replaced snapshots that are no longer in use. Blocks.
    pub fn drop_retired(&self) {
        let (used, unused): (Vec<_>, Vec<_>) = {
            let mut retired = self.retired.lock();
            std::mem::take(&mut *retired).into_iter().partition(|live| Arc::strong_count(live) > 1)
        };
        self.retired.lock().extend(used);
        drop(unused);
    }

    /// Counts an exchange as in flight until the guard is dropped.
    pub fn open_exchange(&self) -> InFlightGuard<'_> {
        self.lifecycle.begin_exchange()
    }

    /// Returns the number of exchanges in flight.
    pub fn exchanges(&self) -> usize {
        self.lifecycle.in_flight()
    }

    /// Starts to drain: the process is not ready from now on, and takes no new connection.
    pub fn drain(&self) {
        self.lifecycle.drain();
    }

    /// Returns true while the process drains.
    pub fn is_draining(&self) -> bool {
        self.lifecycle.is_draining()
    }

    /// Notes that another process has the store, or does not have it after all.
    pub fn leave(&self, left: bool) {
        self.lifecycle.set_handed_over(left);
    }

    /// Returns true if another process has the store, or is about to.
    pub fn has_left(&self) -> bool {
        self.lifecycle.is_handed_over()
    }

    /// Registers a process before this one that still drains.
    pub fn follow(&self, predecessor: Predecessor) {
        self.predecessors.lock().push(predecessor);
    }

    /// Removes a process before this one that has ended.
    pub fn alone(&self, predecessor: &Predecessor) {
        self.predecessors.lock().retain(|known| !known.is(predecessor));
        self.lifecycle.notify();
    }

    /// Reports a changed key to the processes that still drain.
    pub fn key_changed(&self, id: &str) {
        self.predecessors.lock().iter().for_each(|predecessor| predecessor.key(id));
    }

    /// Reports a changed account to the processes that still drain.
    pub fn account_changed(&self, id: &str) {
        self.predecessors.lock().iter().for_each(|predecessor| predecessor.account(id));
    }

    /// Writes the spends since the last call to the store, unless another process counts them; blocks.
    pub fn note_spends(&self) {
        let _turn = self.noting.lock();
        if !self.has_left() {
            self.keyring.note_spends(&self.vault.spends);
        }
    }

    /// Writes the spends for the process that takes over; blocks. Returns the number up to which entries of the
    /// ledger's queue are included; the new process counts the rest.
    pub fn note_last_spends(&self) -> u64 {
        let _turn = self.noting.lock();
        let (spent, upto) = {
            let _still = self.charging.write();
            (self.keyring.spent(), self.ledger.ticket())
        };
        if self.keyring.write(spent, &self.vault.spends) { upto } else { 0 }
    }

    /// Counts a charge of a draining process in the budgets of this one.
    pub fn charged(&self, charged: &Charged) {
        let Some(grant) = self.keyring.grant(&charged.key) else { return };
        let money = match charged.wallet {
            Wallet::Credits => MicroCredits(charged.amount),
            Wallet::Energy => {
                let rate = self.live().settings.billing.eur_per_credit;
                let credits = charged.eur.checked_div(rate).and_then(MicroCredits::from_credits);
                credits.unwrap_or_default()
            }
        };
        crate::limits::rate_limit::charge(&grant, money, self.clock);
        self.keyring.charged(&grant);
    }

    /// Waits until the last exchange and every process before this one have ended.
    pub async fn emptied(&self) {
        loop {
            let emptied = self.lifecycle.changed().notified();
            tokio::pin!(emptied);
            emptied.as_mut().enable();
            if self.exchanges() == 0 && self.predecessors.lock().is_empty() {
                return;
            }
            emptied.await;
        }
    }

    /// Records an ended exchange: its log line and its metrics.
    pub fn observe(&self, record: &Record, started: Instant) {
        let took = started.elapsed();
        self.metrics.exchange(record, took);
        crate::telemetry::log::exchange(record, took);
    }
}

/// Loads the TLS configuration and checks every certificate file. Logs a warning for an expired certificate.
fn certified(settings: &Settings, clock: Clock) -> Result<Option<Arc<Tls>>, String> {
    for why in tls::prove(settings, clock.unix()).map_err(|mistakes| mistakes.join(" "))? {
        log::event(log::warn(), "certificate_over", &[("why", &why)]);
    }
    tls::of(settings)
}
