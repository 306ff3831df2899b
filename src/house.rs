//! The composition root: every room is built once, here. A reload builds a new
//! [`Live`] beside the old one and swaps it in whole; exchanges that began with
//! the old one end with it.

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

/// Everything that lives as long as the process.
pub struct House {
    live: ArcSwap<Live>,
    /// What no reload changes.
    pub fixed: Fixed,
    /// What its TLS listener does, if it has one.
    tls: ArcSwapOption<Tls>,
    /// What lasts.
    pub vault: Vault,
    /// Who may ask.
    pub keyring: Keyring,
    /// Held while accounts and keys are changed, in the store and then in memory.
    pub desk: Mutex<()>,
    /// Credits and billed energy.
    pub ledger: Arc<Ledger>,
    /// What time it is.
    pub clock: Clock,
    /// Connections to providers.
    pub connection_pools: ConnectionPools,
    /// Active checks of providers.
    pub health_checks: HealthChecks,
    /// How much it takes on.
    pub overload: Arc<Overload>,
    /// Permits to count long prompts.
    pub counting: Arc<CountingPermits>,
    /// Retries that the house can afford.
    pub budget: Mutex<RetryBudget>,
    /// Counters for Prometheus.
    pub metrics: Metrics,
    /// Uploads and images while they are needed.
    pub spools: Spools,
    /// Images that wait for their client.
    pub shelf: Shelf,
    /// Memory for large bodies.
    pub buffers: Arc<Buffers>,
    /// What clients keep.
    pub files: Arc<Files>,
    /// Files of requests, worked off in their own time.
    pub batches: Arc<Batches>,
    /// When the next archive is due.
    pub exports: Exports,
    /// Configurations that were replaced, while exchanges still use them: dropping one of many offers takes
    /// milliseconds, and is no exchange's work.
    retired: Mutex<Vec<Arc<Live>>>,
    /// Held while another configuration is read and swapped in.
    reloading: Mutex<()>,
    /// Told when it was.
    pub reloaded: Notify,
    /// Shared while a charge gets into the budgets and the ledger's queue, so that it is in both or in neither for
    /// whoever has it alone.
    pub charging: RwLock<()>,
    /// Held while spends are written down: what is written last was read last.
    noting: Mutex<()>,
    draining: AtomicBool,
    /// Another process has the store, or is about to.
    left: AtomicBool,
    /// Processes before this one that still drain.
    predecessors: Mutex<Vec<Predecessor>>,
    /// Administrators being served.
    pub desks: AtomicUsize,
    open: AtomicUsize,
    emptied: Notify,
    /// Pingora's proxy, which serves requests and lines of batches.
    proxy: OnceLock<Proxy>,
    /// Mistakes on purpose.
    #[cfg(feature = "inject")]
    pub inject: crate::inject::Inject,
}

impl House {
    /// Builds the house.
    ///
    /// # Errors
    /// One sentence that says what is in the way.
    pub fn build(settings: Settings) -> Result<Arc<Self>, String> {
        Self::begin(settings, false).map(|(house, _)| house)
    }

    /// Builds it on the store of a process that still drains; returns what that has reserved.
    ///
    /// # Errors
    /// One sentence that says what is in the way.
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

    /// Pingora's proxy, which serves requests and lines of batches.
    pub fn proxy(self: &Arc<Self>) -> &Proxy {
        self.proxy.get_or_init(|| proxy::start(Arc::downgrade(self)))
    }

    /// The configuration at work now.
    pub fn live(&self) -> Arc<Live> {
        self.live.load_full()
    }

    /// What the TLS listener does now.
    pub fn tls(&self) -> Option<Arc<Tls>> {
        self.tls.load_full()
    }

    /// This moment, for files that may be over by it.
    pub fn when(&self) -> When {
        When { now: self.clock.unix(), retention: self.live().settings.files.retention }
    }

    /// Swaps another configuration in, once the names that are new in it were looked up; returns what it changes. Blocks.
    ///
    /// # Errors
    /// One sentence; the old one stays.
    pub fn reload(
        &self,
        read: impl FnOnce() -> Result<Settings, String>,
        runtime: &Handle,
    ) -> Result<Vec<Change>, String> {
        // One after the other: what was read last has to be what stays.
        let _turn = self.reloading.lock();
        self.drop_retired();
        let settings = read()?;
        let tls = certified(&settings, self.clock)?;
        let old = self.live();
        let fresh = Live::build(settings, Some(&old), &self.connection_pools, self.clock.unix())?;
        let unknown = |provider: &&Arc<ProviderLive>| provider.routes().any(|route| !route.is_known());
        // With thousands of offers each of the two takes a good part of a second.
        let changed = std::thread::scope(|scope| {
            let compared = scope.spawn(|| changes(&old.settings, &fresh.settings));
            runtime.block_on(async {
                worker::look_up(fresh.providers.iter().filter(unknown)).await;
                fresh.publish().await;
            });
            compared.join().map_err(|_| "The configurations could not be compared.".to_owned())
        })?;
        fresh.begin();
        self.ledger.configure(&fresh.settings.ledger);
        self.overload.configure(&fresh.settings.overload);
        self.counting.configure(fresh.settings.overload.counting);
        self.live.store(Arc::new(fresh));
        runtime.block_on(self.health_checks.publish(self));
        // Thousands of offers take a while to drop, which nobody has to wait for: a worker does it.
        self.retired.lock().push(old);
        // A listener that the new configuration lacks stays until the next start, and what it does.
        if tls.is_some() {
            self.tls.store(tls);
        }
        self.reloaded.notify_waiters();
        Ok(changed)
    }

    /// Drops the configurations that nobody uses any more. Blocks.
    pub fn drop_retired(&self) {
        let (used, unused): (Vec<_>, Vec<_>) = {
            let mut retired = self.retired.lock();
            std::mem::take(&mut *retired).into_iter().partition(|live| Arc::strong_count(live) > 1)
        };
        self.retired.lock().extend(used);
        drop(unused);
    }

    /// Notes that an exchange has begun, until the guard is dropped.
    pub fn open_exchange(&self) -> OpenExchange<'_> {
        self.open.fetch_add(1, Ordering::AcqRel);
        OpenExchange { house: self }
    }

    /// Exchanges that have begun and not ended.
    pub fn exchanges(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    /// From now on the house is not ready, and takes no new connection.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Whether it drains.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Another process has the store, or not after all.
    pub fn leave(&self, left: bool) {
        self.left.store(left, Ordering::Release);
    }

    /// Whether another process has the store, or is about to.
    pub fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    /// A process before this one drains.
    pub fn follow(&self, predecessor: Predecessor) {
        self.predecessors.lock().push(predecessor);
    }

    /// It has ended.
    pub fn alone(&self, predecessor: &Predecessor) {
        self.predecessors.lock().retain(|known| !known.is(predecessor));
        self.emptied.notify_waiters();
    }

    /// A key is not what it was; whoever drains before this process is told.
    pub fn key_changed(&self, id: &str) {
        self.predecessors.lock().iter().for_each(|predecessor| predecessor.key(id));
    }

    /// The same for an account.
    pub fn account_changed(&self, id: &str) {
        self.predecessors.lock().iter().for_each(|predecessor| predecessor.account(id));
    }

    /// Writes down what was spent since, unless another process counts it now; blocks.
    pub fn note_spends(&self) {
        let _turn = self.noting.lock();
        if !self.has_left() {
            self.keyring.note_spends(&self.vault.spends);
        }
    }

    /// Writes down what was spent for the process that takes over, and returns up to which number the ledger's queue
    /// is in that; blocks. The rest of the queue is still to be counted there.
    pub fn note_last_spends(&self) -> u64 {
        let _turn = self.noting.lock();
        let (spent, upto) = {
            let _still = self.charging.write();
            (self.keyring.spent(), self.ledger.ticket())
        };
        if self.keyring.write(spent, &self.vault.spends) { upto } else { 0 }
    }

    /// A process that drains has charged something: it counts in the budgets here.
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

    /// Ends when the last exchange has, and every process before this one.
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

    /// Tells an ended exchange once: its log line and its metrics.
    pub fn observe(&self, record: &Record, started: Instant) {
        let took = started.elapsed();
        self.metrics.exchange(record, took);
        crate::observe::log::exchange(record, took);
    }
}

/// What the TLS listener does; every file of a certificate is proven, and one that is over told.
fn certified(settings: &Settings, clock: Clock) -> Result<Option<Arc<Tls>>, String> {
    for why in tls::prove(settings, clock.unix()).map_err(|mistakes| mistakes.join(" "))? {
        log::event(log::warn(), "certificate_over", &[("why", &why)]);
    }
    tls::of(settings)
}

/// An exchange that has begun.
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
