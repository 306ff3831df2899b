//! Running gateway: all listeners and background tasks, until it is stopped. The binary runs one; tests run many in one
//! process.

use super::predecessor;
use crate::admin;
use crate::app::background;
use crate::app::demo_providers::{self, SimulatedProviders};
use crate::app::file_watcher;
use crate::batch::BatchManager;
use crate::billing::handover::{ActionForwarder, InheritedHolds};
use crate::config::ConfigLoader;
use crate::config::settings::Settings;
use crate::net::executor::WorkerThreads;
use crate::proxy::{self, GatewayProxy};
use crate::server::DRAIN_IDLE_TIMEOUT;
use crate::server::listener::{BoundListener, PublicListeners, bind_or_inherit};
use crate::state::AppState;
use crate::state::admin_requests::AdminRequestTracker;
use crate::state::latency_records::{self, FlushScope};
use crate::upgrade::control_channel::{ControlChannel, SuccessorEvent};
use crate::upgrade::new_process::InheritedState;
use crate::upgrade::old_process::{LaunchCommand, Successor};

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Time before the end of the drain at which the requests in flight are interrupted, if a quarter of the drain is not
/// shorter.
const INTERRUPTION_NOTICE: Duration = Duration::from_secs(2);
/// Additional grace period for idle connections to close. It follows `DRAIN_IDLE_TIMEOUT`, within which they may
/// still begin a request.
const KEEPALIVE_GRACE: Duration = Duration::from_millis(200);
/// Interval of the checks whether exchanges and connections have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Maximum time for which an upgrade waits for admin requests in flight. Batches are stopped meanwhile.
const ADMIN_DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Running gateway: its shared state, bound addresses and stop signal.
pub struct RunningGateway {
    /// State that all parts of the gateway share.
    pub app: Arc<AppState>,
    /// Addresses of the HTTP listeners.
    pub http_addresses: Vec<SocketAddr>,
    /// Address of the TLS listener.
    pub https_address: Option<SocketAddr>,
    /// Address of the admin listener.
    pub admin_address: SocketAddr,
    /// Addresses of the account holders' dashboard.
    pub dashboard_addresses: Vec<SocketAddr>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    /// Simulated providers, stopped last: they still serve open requests.
    simulators: SimulatedProviders,
    threads: Arc<WorkerThreads>,
    source: ConfigLoader,
    /// Admin listener and dashboard, which share a stop signal; empty while they are stopped.
    admin_tasks: Vec<JoinHandle<()>>,
    admin_stop: watch::Sender<bool>,
    /// Sockets of the admin listeners, to serve them again after an upgrade that failed.
    admin_sockets: AdminSockets,
    /// Proxy that handles the requests of clients.
    proxy: GatewayProxy,
    /// Duplicates of the listening sockets, which an upgrade hands over to the next process.
    sockets: Vec<TcpListener>,
    /// Control channel to the next process; `None` before an upgrade has succeeded.
    link: Option<Arc<ControlChannel>>,
}

impl RunningGateway {
    /// Binds the sockets, opens the store and starts.
    ///
    /// # Errors
    /// Returns a sentence that names the cause; nothing is left running.
    pub async fn start(settings: Settings, source: ConfigLoader) -> Result<Self, String> {
        Self::start_or_take_over(settings, source, None).await
    }

    /// Starts like [`RunningGateway::start`]. With `arrival`, takes over the sockets, the store and the open reserves
    /// of the running process that sent it.
    ///
    /// # Errors
    /// Same as for [`RunningGateway::start`]; the other process then continues.
    pub async fn start_or_take_over(
        mut settings: Settings,
        source: ConfigLoader,
        mut arrival: Option<InheritedState>,
    ) -> Result<Self, String> {
        let public = PublicListeners::bind(&settings, &mut arrival)?;
        let admin: BoundListener = bind_or_inherit("listen.admin", settings.listen.admin, &mut arrival)?;
        let dashboard = settings.console.listen.iter();
        let dashboard: Vec<BoundListener> = dashboard
            .map(|address| bind_or_inherit("console.listen", *address, &mut arrival))
            .collect::<Result<_, _>>()?;
        let dashboard_addresses = dashboard.iter().map(|bound| bound.address).collect();
        let (stop, stopped) = watch::channel(false);
        let simulators = demo_providers::start(&mut settings).await?;
        let (app, holds, arrival) = build_state(settings, arrival).await?;
        let (http, https, admin_address) = (public.http_addresses(), public.https_address(), admin.address);
        let mut sockets = public.clone_sockets()?;
        let admin_sockets = AdminSockets::clone_of(&admin, &dashboard)?;
        sockets.extend(admin_sockets.clone_all()?);
        let mut tasks = background::start(&app, &stopped);
        tasks.push(file_watcher::start(&app, &source, &stopped));
        let (admin_stop, closed) = watch::channel(false);
        let proxy = proxy::start_proxy(&app);
        let mut admin_tasks = admin::serve_dashboard(dashboard, &app, &proxy, &source, &closed)?;
        admin_tasks.push(admin::serve(admin, &app, source.clone(), closed));
        background::resolve_providers(&app).await;
        BatchManager::start(&app.batch_context).await?;
        let (accepting, threads) = public.serve(&app, &proxy, &stopped)?;
        tasks.extend(accepting);
        app.set_serving();
        if let Some(arrival) = arrival {
            predecessor::serve_predecessor(arrival, &app, holds)?;
        }
        let admin = admin_address;
        Ok(Self {
            app,
            http_addresses: http,
            https_address: https,
            admin_address: admin,
            stop,
            tasks,
            simulators,
            threads,
            source,
            dashboard_addresses,
            proxy,
            admin_tasks,
            admin_stop,
            admin_sockets,
            sockets,
            link: None,
        })
    }

    /// Starts the program again as a new process and hands the store and the sockets over to it. After that, this
    /// process only has to be stopped with [`RunningGateway::stop`]. Returns the process id of the new process.
    ///
    /// # Errors
    /// Returns a sentence that states why this process continues.
    pub async fn upgrade(&mut self, program: &LaunchCommand) -> Result<u32, String> {
        if !self.app.config_snapshot().settings.simulators.is_empty() {
            return Err("A gateway with simulated providers cannot be upgraded.".to_owned());
        }
        let sockets = self.sockets.iter().map(TcpListener::try_clone).collect::<Result<Vec<_>, _>>();
        let sockets = sockets.map_err(|error| format!("The sockets cannot be handed over: {error}."))?;
        let (program, ledger) = (program.clone(), self.app.ledger.clone());
        let started = spawn_blocking(move || {
            let forwarder = ledger.start_action_forwarder()?;
            Ok::<_, String>((Successor::start(&program, &sockets)?, forwarder))
        });
        let started = started.await.map_err(|_| "The new process was not waited for.".to_owned())?;
        let (successor, forwarder) = started?;
        let id = successor.id();
        match self.hand_over(successor, forwarder).await {
            Ok(link) => {
                self.link = Some(link);
                Ok(id)
            }
            Err(why) => {
                self.resume().await.map_err(|worse| format!("{why} {worse}"))?;
                Err(why)
            }
        }
    }

    /// Hands the store over. No step may fail after the successor has the store, because this process must not write
    /// from then on.
    async fn hand_over(
        &mut self,
        successor: Successor,
        forwarder: ActionForwarder,
    ) -> Result<Arc<ControlChannel>, String> {
        if !self.app.batches.close().await || self.app.ledger.is_failing() {
            spawn_blocking(move || successor.cancel()).await.ok();
            return Err("The batches or the ledger did not stop; this process goes on.".to_owned());
        }
        // No admin request begins from here on; those in flight end.
        self.admin_stop.send_replace(true);
        if !drain_admin(&mut self.admin_tasks, &self.app.admin_requests).await {
            spawn_blocking(move || successor.cancel()).await.ok();
            return Err("An admin request did not end in time; this process goes on.".to_owned());
        }
        self.app.set_store_handed_over(true);
        let (app, runtime) = (self.app.clone(), Handle::current());
        let work = move || {
            // Writes one row for each key, which may take long. Therefore this precedes the stop of the ledger's
            // writer, after which charges have to wait.
            app.key_cache.flush_last_uses(&app.stores.keys);
            latency_records::flush_latency_records(&app, FlushScope::Everything);
            app.ledger.stop_writer();
            let counted = app.flush_final_spends();
            let heard = app.clone();
            let link = app.stores.hand_over(|| {
                successor.hand_over(move |news| apply_successor_event(&heard, &runtime, news))
            })?;
            let sender = link.clone();
            app.ledger.forward_actions(forwarder, counted, move |acts| sender.send_ledger_actions(acts));
            Ok(link)
        };
        spawn_blocking(work).await.unwrap_or_else(|_| Err("The hand-over broke off.".to_owned()))
    }

    /// Resumes the work that was paused for an upgrade that failed.
    async fn resume(&mut self) -> Result<(), String> {
        if self.app.is_store_handed_over() {
            let app = self.app.clone();
            let attached = spawn_blocking(move || app.ledger.restart_writer());
            attached.await.unwrap_or_else(|_| Err("The ledger was lost.".to_owned()))?;
            self.app.set_store_handed_over(false);
        }
        if self.admin_tasks.is_empty() {
            let (admin, dashboard) = self.admin_sockets.bound()?;
            let (stop, closed) = watch::channel(false);
            self.admin_tasks =
                admin::serve_dashboard(dashboard, &self.app, &self.proxy, &self.source, &closed)?;
            self.admin_tasks.push(admin::serve(admin, &self.app, self.source.clone(), closed));
            self.admin_stop = stop;
        }
        BatchManager::start(&self.app.batch_context).await
    }

    /// Stops in this order: the gateway reports that it is not ready, accepts no new connection, waits for open
    /// exchanges for at most `within`, and then stops all other parts. Shortly before the end of that time, requests in
    /// flight are interrupted. Returns their number.
    pub async fn stop(mut self, within: Duration) -> usize {
        self.app.start_draining();
        self.sockets.clear();
        self.stop.send_replace(true);
        // Batches get less time than requests, because their remaining lines continue at the next start.
        let end = Instant::now() + within;
        let notice = (within / 4).min(INTERRUPTION_NOTICE);
        let emptied = timeout(within.saturating_sub(notice), self.drained());
        tokio::join!(emptied, self.app.batches.close()).0.ok();
        let cut = self.app.in_flight_exchanges();
        if cut > 0 {
            timeout_at(end, self.interrupt_requests()).await.ok();
        }
        // The admin listener was still needed until now, to report the draining state.
        self.admin_stop.send_replace(true);
        for task in self.tasks.into_iter().chain(self.admin_tasks) {
            task.abort();
            task.await.ok();
        }
        drop(self.admin_sockets);
        // Dropping the threads ends the remaining exchanges, such as those of clients that do not read the error. It voids
        // the reservations that are not settled.
        drop(self.threads);
        // Open requests needed the simulated providers until now.
        self.simulators.stop().await;
        let (app, link) = (self.app, self.link);
        let noted = move || {
            if !app.is_store_handed_over() {
                app.key_cache.flush_last_uses(&app.stores.keys);
                latency_records::flush_latency_records(&app, FlushScope::Everything);
            }
            app.flush_spends();
            app.ledger.close();
            // A gateway with unwritten charges does not leave the fleet: the next process that uses this folder
            // continues the membership, and replays these charges.
            if !app.is_store_handed_over() && app.ledger.is_completely_written() {
                app.stores.fleet.leave_fleet();
            }
            if let Some(link) = link {
                link.close();
            }
        };
        spawn_blocking(noted).await.ok();
        cut
    }

    /// Interrupts the requests in flight until there are none: their clients get an error, and pay for the part of an
    /// answer that they received. The error is sent before the connections close.
    async fn interrupt_requests(&self) {
        while self.app.in_flight_exchanges() > 0 {
            self.app.interrupt_requests();
            sleep(POLL_INTERVAL).await;
        }
        self.drained().await;
    }

    /// Waits for the last exchange, and for every connection that might still begin an exchange. A response that was
    /// sent before the stop signal may have announced keep-alive, so idle connections get a grace period after the end
    /// of the last exchange.
    async fn drained(&self) {
        loop {
            self.app.wait_until_drained().await;
            let idle = Instant::now() + DRAIN_IDLE_TIMEOUT + KEEPALIVE_GRACE;
            while self.threads.open_connections() > 0
                && Instant::now() < idle
                && self.app.in_flight_exchanges() == 0
            {
                sleep(POLL_INTERVAL).await;
            }
            if self.app.in_flight_exchanges() == 0 {
                return;
            }
        }
    }
}

/// Waits until the stopped admin listeners have ended, and their requests with them. Returns false if requests are
/// still in flight after [`ADMIN_DRAIN_TIMEOUT`].
async fn drain_admin(tasks: &mut Vec<JoinHandle<()>>, requests: &AdminRequestTracker) -> bool {
    let drained = timeout(ADMIN_DRAIN_TIMEOUT, async {
        for task in &mut *tasks {
            task.await.ok();
        }
        while requests.in_flight() > 0 {
            sleep(POLL_INTERVAL).await;
        }
    });
    let drained = drained.await.is_ok();
    tasks.drain(..).for_each(|task| task.abort());
    drained
}

/// Duplicates of the sockets of the admin listener and the dashboard.
struct AdminSockets {
    admin: TcpListener,
    dashboard: Vec<TcpListener>,
}

impl AdminSockets {
    fn clone_of(admin: &BoundListener, dashboard: &[BoundListener]) -> Result<Self, String> {
        let dashboard = dashboard.iter().map(BoundListener::try_clone_socket).collect::<Result<_, _>>()?;
        Ok(Self { admin: admin.try_clone_socket()?, dashboard })
    }

    fn clone_all(&self) -> Result<Vec<TcpListener>, String> {
        let sockets = self.dashboard.iter().chain([&self.admin]).map(TcpListener::try_clone);
        sockets.collect::<Result<_, _>>().map_err(|error| format!("A socket cannot be duplicated: {error}."))
    }

    fn bound(&self) -> Result<(BoundListener, Vec<BoundListener>), String> {
        let dashboard = self.dashboard.iter().map(BoundListener::from_socket).collect::<Result<_, _>>()?;
        Ok((BoundListener::from_socket(&self.admin)?, dashboard))
    }
}

/// Applies the change of a key or an account that the next process reports. Each record is read from the store and set
/// in memory under one lock, so that memory has the newest record whatever the order of the threads.
fn apply_successor_event(app: &Arc<AppState>, runtime: &Handle, news: SuccessorEvent) {
    let app = app.clone();
    runtime.spawn_blocking(move || {
        let _guard = app.key_write_lock.lock();
        match news {
            SuccessorEvent::KeyChanged(id) => {
                if let Ok(Some(key)) = app.stores.keys.get(&id) {
                    app.key_cache.set_key(&key);
                    app.notify_key_changed(&id);
                }
            }
            SuccessorEvent::AccountChanged(id) => {
                if let Ok(Some(account)) = app.stores.accounts.get(&id) {
                    app.key_cache.set_account(&account);
                    app.notify_account_changed(&id);
                }
            }
        }
    });
}

/// Builds the state on a blocking thread: a new state, or the state that the previous process hands over.
///
/// # Errors
/// Returns a sentence that names the cause.
async fn build_state(
    settings: Settings,
    arrival: Option<InheritedState>,
) -> Result<(Arc<AppState>, InheritedHolds, Option<InheritedState>), String> {
    let build = move || match arrival {
        None => AppState::build(settings).map(|app| (app, InheritedHolds::default(), None)),
        Some(mut arrival) => {
            arrival.request_store()?;
            let (app, holds) = AppState::build_from_predecessor(settings)?;
            // The sockets accept connections during the whole handover.
            app.set_serving();
            Ok((app, holds, Some(arrival)))
        }
    };
    spawn_blocking(build).await.map_err(|_| "The gateway could not be built.".to_owned())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_upgrade_does_not_wait_for_an_admin_request_without_end() {
        let requests = AdminRequestTracker::default();
        let request = requests.begin();
        let start = Instant::now();
        assert!(!drain_admin(&mut vec![tokio::spawn(async {})], &requests).await);
        assert!((ADMIN_DRAIN_TIMEOUT..ADMIN_DRAIN_TIMEOUT * 2).contains(&start.elapsed()));
        let mut tasks = vec![tokio::spawn(std::future::pending())];
        drop(request);
        assert!(!drain_admin(&mut tasks, &requests).await, "a listener does not end");
        assert!(tasks.is_empty(), "the listeners are served again if the upgrade fails");
        assert!(drain_admin(&mut vec![tokio::spawn(async {})], &requests).await);
    }
}
