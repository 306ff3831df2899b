//! Composition root: builds every component once and owns it. A reload builds a new [`Live`] and swaps it in as a
//! whole; exchanges that began with the previous one finish with it.

use crate::batch::Batches;
use crate::buffers::Buffers;
use crate::clock::Clock;
use crate::config::settings::{Fixed, Settings};
use crate::config::{Change, changes};
use crate::count::CountingPermits;
use crate::exports::Exports;
use crate::figures;
use crate::files::{Files, When};
use crate::handover::arrive::Predecessor;
use crate::keyring::Keyring;
use crate::ledger::Ledger;
use crate::ledger::handover::{Charged, Holds};
use crate::live::Live;
use crate::observe::metrics::Metrics;
use crate::observe::{Record, log};
use crate::overload::Overload;
use crate::proxy::{self, Proxy};
use crate::shelf::Shelf;
use crate::spool::Spools;
use crate::tls::{self, Tls};
use crate::upstream::connection_pool::ConnectionPools;
use crate::upstream::live::ProviderLive;
use crate::upstream::pools::health::HealthChecks;
use crate::vault::Vault;
use crate::worker;
use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::{Mutex, RwLock};
use penstock_contract::MicroCredits;
use penstock_ledger::Wallet;
use penstock_routing::RetryBudget;
use penstock_storage::files::FileStore;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// State shared by the whole process, from start to exit.
pub struct House {
    live: ArcSwap<Live>,
    /// Settings that a reload does not change.
    pub fixed: Fixed,
    /// TLS acceptor of the HTTPS listener, if the configuration has one.
    tls: ArcSwapOption<Tls>,
    /// Durable stores.
    pub vault: Vault,
    /// API keys and accounts, cached in memory.
    pub keyring: Keyring,
    /// Lock held while accounts and keys are changed, first in the store and then in memory.
    pub desk: Mutex<()>,
    /// Ledger of credits and billed energy.
    pub ledger: Arc<Ledger>,
    /// Steady clock and calendar.
    pub clock: Clock,
    /// Pooled connections to providers.
    pub connection_pools: ConnectionPools,
    /// Active health checks of providers.
    pub health_checks: HealthChecks,
    /// Admission control: limits on requests in flight and on memory.
    pub overload: Arc<Overload>,
    /// Permits for counting the tokens of long prompts.
    pub counting: Arc<CountingPermits>,
    /// Retry budget of the whole gateway.
    pub budget: Mutex<RetryBudget>,
    /// Prometheus metrics.
    pub metrics: Metrics,
    /// Spools that hold uploads and images while they are needed.
    pub spools: Spools,
    /// Generated images that wait for their client to fetch them.
    pub shelf: Shelf,
    /// Pool of buffers for large bodies.
    pub buffers: Arc<Buffers>,
    /// Files that clients have uploaded.
    pub files: Arc<Files>,
    /// Batches: files of requests that are processed in the background.
    pub batches: Arc<Batches>,
    /// Schedule of archives.
    pub exports: Exports,
    /// Previous configurations that exchanges still use. Dropping a configuration with many offers takes milliseconds,
    /// so no exchange does it.
    retired: Mutex<Vec<Arc<Live>>>,
    /// Lock held while another configuration is read and swapped in.
    reloading: Mutex<()>,
    /// Notified after each reload.
    pub reloaded: Notify,
    /// Shared while a charge enters the budgets and the ledger's queue: the holder of the exclusive lock sees each
    /// charge in both or in neither.
    pub charging: RwLock<()>,
    /// Lock held while spends are written, so that the last write has the latest figures.
    noting: Mutex<()>,
    draining: AtomicBool,
    /// True if another process has the store, or is about to take it.
    left: AtomicBool,
    /// Earlier processes that still drain.
    predecessors: Mutex<Vec<Predecessor>>,
    /// Number of admin requests in flight.
    pub desks: AtomicUsize,
    open: AtomicUsize,
    emptied: Notify,
    /// Pingora proxy that serves requests and lines of batches.
    proxy: OnceLock<Proxy>,
    /// Faults injected on purpose, for tests.
    #[cfg(feature = "inject")]
    pub inject: crate::inject::Inject,
}

impl House {
    /// Builds the state of a gateway.
    ///
    /// # Errors
    /// Returns one sentence that names the obstacle.
    pub fn build(settings: Settings) -> Result<Arc<Self>, String> {
        Self::begin(settings, false).map(|(house, _)| house)
    }

    /// Builds the state on the store of a process that still drains; also returns the holds of that process.
    ///
    /// # Errors
    /// Returns one sentence that names the obstacle.
    pub fn take_over(settings: Settings) -> Result<(Arc<Self>, Holds), String> {
        Self::begin(settings, true)
    }

    fn begin(settings: Settings, taken_over: bool) -> Result<(Arc<Self>, Holds), String> {
        let clock = Clock::start();
        let tls = certified(&settings, clock)?;
        let spool = &settings.spool;
        let spools = Spools::new(spool.path.clone(), spool.memory, spool.disk);
        let vault = Vault::open(&settings.storage)?;
        let keyring = Keyring::load(&vault, clock)?;
        let (kept, terms) = (vault.ledger.clone(), &settings.ledger);
        let (ledger, holds) = match taken_over {
            true => Ledger::take_over(kept, terms, clock)?,
            false => (Ledger::open(kept, terms, clock)?, Holds::default()),
        };
        let files = Files::open(&settings.files, FileStore::new(vault.store.clone()), taken_over)?;
        let batches = Arc::new(Batches::new(vault.store.clone()));
        files.run_by(batches.clone());
        let exports = Exports::open(&settings, clock.unix());
        files.archived_in(exports.folder().to_owned());
        let connection_pools = ConnectionPools::default();
        let overload = Overload::new(&settings.overload);
        let counting = CountingPermits::new(settings.overload.counting);
        let live = Live::build(settings, None, &connection_pools, clock.unix())?;
        figures::restore(&live, &vault.figures, clock);
        let house = Arc::new(Self {
            fixed: live.settings.fixed(),
            live: ArcSwap::from_pointee(live),
            tls: ArcSwapOption::new(tls),
            vault,
            keyring,
            desk: Mutex::new(()),
            ledger,
            batches,
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
            files: Arc::new(files),
            metrics: Metrics::new().map_err(|error| error.to_string())?,
            draining: AtomicBool::new(false),
            left: AtomicBool::new(false),
            retired: Mutex::default(),
            reloading: Mutex::default(),
            charging: RwLock::default(),
            noting: Mutex::default(),
            reloaded: Notify::new(),
            predecessors: Mutex::default(),
            desks: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            emptied: Notify::new(),
            proxy: OnceLock::new(),
            #[cfg(feature = "inject")]
            inject: crate::inject::Inject::default(),
        });
        house.proxy();
        Ok((house, holds))
    }

    /// Returns the Pingora proxy that serves requests and lines of batches.
    pub fn proxy(self: &Arc<Self>) -> &Proxy {
        self.proxy.get_or_init(|| proxy::start(Arc::downgrade(self)))
    }

    /// Returns the current configuration.
    pub fn live(&self) -> Arc<Live> {
        self.live.load_full()
    }

    /// Returns the current TLS acceptor of the HTTPS listener.
    pub fn tls(&self) -> Option<Arc<Tls>> {
        self.tls.load_full()
    }

    /// Returns the current time and the retention of files, to decide which files have expired.
    pub fn when(&self) -> When {
        When { now: self.clock.unix(), retention: self.live().settings.files.retention }
    }

    /// Swaps in another configuration once the new host names in it are resolved; returns the changes. Blocks.
    ///
    /// # Errors
    /// Returns one sentence; the previous configuration stays.
    pub fn reload(
        &self,
        read: impl FnOnce() -> Result<Settings, String>,
        runtime: &Handle,
    ) -> Result<Vec<Change>, String> {
        // Reloads run one at a time: the configuration that was read last must be the one that stays.
        let _turn = self.reloading.lock();
        let settings = read()?;
        let tls = certified(&settings, self.clock)?;
        let old = self.live();
        let changed = changes(&old.settings, &settings);
        let fresh = Live::build(settings, Some(&old), &self.connection_pools, self.clock.unix())?;
        let unknown = |provider: &&Arc<ProviderLive>| provider.routes().any(|route| !route.is_known());
        runtime.block_on(async {
            worker::look_up(fresh.providers.iter().filter(unknown)).await;
            fresh.publish().await;
        });
        fresh.begin();
        self.ledger.configure(&fresh.settings.ledger);
        self.overload.configure(&fresh.settings.overload);
        self.counting.configure(fresh.settings.overload.counting);
        self.live.store(Arc::new(fresh));
        runtime.block_on(self.health_checks.publish(self));
        self.retired.lock().push(old);
        self.drop_retired();
        // A listener that the new configuration lacks stays until the next start, with its certificate.
        if tls.is_some() {
            self.tls.store(tls);
        }
        self.reloaded.notify_waiters();
        Ok(changed)
    }

    /// Drops the replaced configurations that are no longer used. Blocks.
    pub fn drop_retired(&self) {
        let (used, unused): (Vec<_>, Vec<_>) = {
            let mut retired = self.retired.lock();
            std::mem::take(&mut *retired).into_iter().partition(|live| Arc::strong_count(live) > 1)
        };
        self.retired.lock().extend(used);
        drop(unused);
    }

    /// Counts an exchange as in flight until the guard is dropped.
    pub fn open_exchange(&self) -> OpenExchange<'_> {
        self.open.fetch_add(1, Ordering::AcqRel);
        OpenExchange { house: self }
    }

    /// Returns the number of exchanges in flight.
    pub fn exchanges(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    /// Starts draining: the gateway is no longer ready and accepts no new connection.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Returns true if the gateway drains.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Records that another process has the store, or that a hand-over failed.
    pub fn leave(&self, left: bool) {
        self.left.store(left, Ordering::Release);
    }

    /// Returns true if another process has the store, or is about to take it.
    pub fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    /// Registers an earlier process that drains.
    pub fn follow(&self, predecessor: Predecessor) {
        self.predecessors.lock().push(predecessor);
    }

    /// Removes an earlier process that has ended.
    pub fn alone(&self, predecessor: &Predecessor) {
        self.predecessors.lock().retain(|known| !known.is(predecessor));
        self.emptied.notify_waiters();
    }

    /// Reports a changed key to every earlier process that drains.
    pub fn key_changed(&self, id: &str) {
        self.predecessors.lock().iter().for_each(|predecessor| predecessor.key(id));
    }

    /// Reports a changed account to every earlier process that drains.
    pub fn account_changed(&self, id: &str) {
        self.predecessors.lock().iter().for_each(|predecessor| predecessor.account(id));
    }

    /// Writes the spends since the last write, unless another process counts them now. Blocks.
    pub fn note_spends(&self) {
        let _turn = self.noting.lock();
        if !self.has_left() {
            self.keyring.note_spends(&self.vault.spends);
        }
    }

    /// Writes the spends for the process that takes over; blocks. Returns the sequence number in the ledger's queue up
    /// to which they are included; the other process still has to count the rest of the queue.
    pub fn note_last_spends(&self) -> u64 {
        let _turn = self.noting.lock();
        let (spent, upto) = {
            let _still = self.charging.write();
            (self.keyring.spent(), self.ledger.ticket())
        };
        if self.keyring.write(spent, &self.vault.spends) { upto } else { 0 }
    }

    /// Adds a charge of a draining process to the budgets here.
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
        crate::gate::charge(&grant, money, self.clock);
        self.keyring.charged(&grant);
    }

    /// Completes when no exchange is in flight and every earlier process has ended.
    pub async fn emptied(&self) {
        loop {
            let emptied = self.emptied.notified();
            tokio::pin!(emptied);
            emptied.as_mut().enable();
            if self.exchanges() == 0 && self.predecessors.lock().is_empty() {
                return;
            }
            emptied.await;
        }
    }

    /// Writes the log line and the metrics of an ended exchange; called once for each.
    pub fn observe(&self, record: &Record, started: Instant) {
        let took = started.elapsed();
        self.metrics.exchange(record, took);
        crate::observe::log::exchange(record, took);
    }
}

/// Returns the TLS acceptor of the HTTPS listener. Checks every certificate file and logs a warning for each expired
/// certificate.
fn certified(settings: &Settings, clock: Clock) -> Result<Option<Arc<Tls>>, String> {
    for why in tls::prove(settings, clock.unix()).map_err(|mistakes| mistakes.join(" "))? {
        log::event(log::warn(), "certificate_over", &[("why", &why)]);
    }
    tls::of(settings)
}

/// Guard that counts an exchange as in flight.
pub struct OpenExchange<'a> {
    house: &'a House,
}

impl Drop for OpenExchange<'_> {
    fn drop(&mut self) {
        if self.house.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.house.emptied.notify_waiters();
        }
    }
}
