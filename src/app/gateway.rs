//! Running gateway: all listeners and background tasks, until it is stopped. The binary runs one; tests run many in one
//! process.

use super::predecessor;
use crate::admin;
use crate::app::background;
use crate::app::demo_providers::{self, Simulators};
use crate::app::file_watcher;
use crate::batch::Batches;
use crate::billing::handover::Holds;
use crate::config::ConfigReader;
use crate::config::settings::Settings;
use crate::net::executor::Threads;
use crate::proxy;
use crate::server::PARTING_IDLE;
use crate::server::listener::{Bound, Public, bind_or_take};
use crate::state::House;
use crate::state::latency_records::{self, Extent};
use crate::upgrade::control_channel::{Link, News};
use crate::upgrade::new_process::Arrival;
use crate::upgrade::old_process::{Program, Successor};

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep};

/// Time in which idle connections may close after they could last begin a request.
const LINGER: Duration = Duration::from_millis(200);
/// Interval of the checks whether something has ended.
const LOOK: Duration = Duration::from_millis(5);

/// Running gateway.
pub struct Gateway {
    /// State of the process.
    pub house: Arc<House>,
    /// Addresses of the HTTP listeners.
    pub http: Vec<SocketAddr>,
    /// Address of the TLS listener.
    pub https: Option<SocketAddr>,
    /// Address of the admin listener.
    pub admin: SocketAddr,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    /// Simulated providers, stopped last: they still serve open requests.
    simulators: Simulators,
    threads: Arc<Threads>,
    source: ConfigReader,
    /// Admin listener, and its own stop signal.
    desk: Option<JoinHandle<()>>,
    desk_stop: watch::Sender<bool>,
    /// Sockets for the next process, the admin listener's last.
    sockets: Vec<TcpListener>,
    link: Option<Arc<Link>>,
}

impl Gateway {
    /// Binds the sockets, opens the store and starts.
    ///
    /// # Errors
    /// Returns a sentence that names the cause; nothing is left running.
    pub async fn start(settings: Settings, source: ConfigReader) -> Result<Self, String> {
        Self::begin(settings, source, None).await
    }

    /// Variant that takes over from a running process, if one hands over.
    ///
    /// # Errors
    /// Same as for [`Gateway::start`]; the other process then continues.
    pub async fn begin(
        mut settings: Settings,
        source: ConfigReader,
        mut arrival: Option<Arrival>,
    ) -> Result<Self, String> {
        let public = Public::bind(&settings, &mut arrival)?;
        let admin: Bound = bind_or_take("admin", settings.listen.admin, &mut arrival)?;
        let (stop, stopped) = watch::channel(false);
        let simulators = demo_providers::start(&mut settings).await?;
        let build = move || match arrival {
            None => House::build(settings).map(|house| (house, Holds::default(), None)),
            Some(mut arrival) => {
                arrival.prepared()?;
                House::take_over(settings).map(|(house, holds)| (house, holds, Some(arrival)))
            }
        };
        let built = spawn_blocking(build).await.map_err(|_| "The gateway could not be built.".to_owned())?;
        let (house, holds, arrival) = built?;
        let (http, https, admin_address) = (public.http(), public.https(), admin.address);
        let mut sockets = public.sockets()?;
        sockets.push(admin.socket()?);
        let mut tasks = background::start(&house, &stopped);
        tasks.push(file_watcher::start(&house, &source, &stopped));
        let (desk_stop, closed) = watch::channel(false);
        let desk = Some(admin::serve(admin, &house, source.clone(), closed));
        background::resolve(&house).await;
        let proxy = proxy::install(&house);
        Batches::start(&house.batch).await?;
        let (doors, threads) = public.serve(&house, &proxy, &stopped)?;
        tasks.extend(doors);
        if let Some(arrival) = arrival {
            predecessor::serve_predecessor(arrival, &house, holds)?;
        }
        let admin = admin_address;
        Ok(Self {
            house,
            http,
            https,
            admin,
            stop,
            tasks,
            simulators,
            threads,
            source,
            desk,
            desk_stop,
            sockets,
            link: None,
        })
    }

    /// Starts the program again and hands everything over to it. Afterwards this process only has to [`Gateway::stop`].
    /// Returns the process id of the new process.
    ///
    /// # Errors
    /// Returns a sentence that says why this process goes on.
    pub async fn upgrade(&mut self, program: &Program) -> Result<u32, String> {
        if !self.house.live().settings.simulators.is_empty() {
            return Err("A gateway with simulated providers cannot be upgraded.".to_owned());
        }
        let sockets = self.sockets.iter().map(TcpListener::try_clone).collect::<Result<Vec<_>, _>>();
        let sockets = sockets.map_err(|error| format!("The sockets cannot be handed over: {error}."))?;
        let program = program.clone();
        let successor = spawn_blocking(move || Successor::prepare(&program, &sockets));
        let successor = successor.await.map_err(|_| "The new process was not waited for.".to_owned())??;
        let id = successor.id();
        match self.hand_over(successor).await {
            Ok(link) => {
                self.link = Some(link);
                Ok(id)
            }
            Err(why) => {
                self.go_on().await.map_err(|worse| format!("{why} {worse}"))?;
                Err(why)
            }
        }
    }

    async fn hand_over(&mut self, successor: Successor) -> Result<Arc<Link>, String> {
        if !self.house.batches.close().await || self.house.ledger.failing() {
            spawn_blocking(move || successor.call_off()).await.ok();
            return Err("The batches or the ledger did not stop; this process goes on.".to_owned());
        }
        // No admin request begins from here on; those in flight end.
        self.desk_stop.send_replace(true);
        if let Some(desk) = self.desk.take() {
            desk.await.ok();
        }
        while self.house.desks.load(Ordering::Acquire) > 0 {
            sleep(LOOK).await;
        }
        self.house.leave(true);
        let (house, runtime) = (self.house.clone(), Handle::current());
        let work = move || {
            // One row per key: written before charges begin to wait.
            house.keyring.note_uses(&house.vault.keys);
            latency_records::note(&house, Extent::Everything);
            house.ledger.detach();
            let counted = house.note_last_spends();
            let heard = house.clone();
            let link =
                house.vault.hand_over(|| successor.take_over(move |news| hear(&heard, &runtime, news)))?;
            let sender = link.clone();
            house.ledger.forward(counted, move |acts| sender.send(acts))?;
            Ok(link)
        };
        spawn_blocking(work).await.unwrap_or_else(|_| Err("The hand-over broke off.".to_owned()))
    }

    /// Resumes what was paused for an upgrade that failed.
    async fn go_on(&mut self) -> Result<(), String> {
        if self.house.has_left() {
            let house = self.house.clone();
            let attached = spawn_blocking(move || house.ledger.attach());
            attached.await.unwrap_or_else(|_| Err("The ledger was lost.".to_owned()))?;
            self.house.leave(false);
        }
        if self.desk.is_none() {
            let socket = self.sockets.last().ok_or("There is no admin listener.")?;
            let (stop, closed) = watch::channel(false);
            self.desk = Some(admin::serve(Bound::again(socket)?, &self.house, self.source.clone(), closed));
            self.desk_stop = stop;
        }
        Batches::start(&self.house.batch).await
    }

    /// Stops in order: not ready, no new connection, wait for open exchanges for at most `within`, then everything
    /// else. Returns the number of exchanges that were cut.
    pub async fn stop(mut self, within: Duration) -> usize {
        self.house.drain();
        self.sockets.clear();
        self.stop.send_replace(true);
        // Batches get less time than requests: their remaining lines continue at the next start.
        let emptied = tokio::time::timeout(within, self.emptied());
        tokio::join!(emptied, self.house.batches.close()).0.ok();
        let cut = self.house.exchanges();
        // Reported draining until now.
        self.desk_stop.send_replace(true);
        for task in self.tasks.into_iter().chain(self.desk) {
            task.abort();
            task.await.ok();
        }
        // An exchange that is cut voids its reserve.
        drop(self.threads);
        // Open requests needed their providers until now.
        self.simulators.stop().await;
        let (house, link) = (self.house, self.link);
        let noted = move || {
            if !house.has_left() {
                house.keyring.note_uses(&house.vault.keys);
                latency_records::note(&house, Extent::Everything);
            }
            house.note_spends();
            house.ledger.close();
            if let Some(link) = link {
                link.bye();
            }
        };
        spawn_blocking(noted).await.ok();
        cut
    }

    /// Waits for the last exchange, and for every connection that might still begin one. The response of an exchange
    /// that was open at the signal may have announced keep-alive: idle connections get their grace period after the end
    /// of the last one.
    async fn emptied(&self) {
        loop {
            self.house.emptied().await;
            let idle = Instant::now() + PARTING_IDLE + LINGER;
            while self.threads.connections() > 0 && Instant::now() < idle && self.house.exchanges() == 0 {
                sleep(LOOK).await;
            }
            if self.house.exchanges() == 0 {
                return;
            }
        }
    }
}

/// Applies changes of keys and accounts that the next process reports. Each is read and set under one lock, so that the
/// last value set is the last value read, in whatever order the threads run.
fn hear(house: &Arc<House>, runtime: &Handle, news: News) {
    let house = house.clone();
    runtime.spawn_blocking(move || {
        let _turn = house.desk.lock();
        match news {
            News::Key(id) => {
                if let Ok(Some(key)) = house.vault.keys.get(&id) {
                    house.keyring.set_key(&key);
                    house.key_changed(&id);
                }
            }
            News::Account(id) => {
                if let Ok(Some(account)) = house.vault.accounts.get(&id) {
                    house.keyring.set_account(&account);
                    house.account_changed(&id);
                }
            }
        }
    });
}
