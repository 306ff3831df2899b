//! Running gateway: all its listeners and background tasks, until it is stopped. The binary runs one; tests run many in
//! one process.

use crate::admin;
use crate::batch::Batches;
use crate::config::Loaded;
use crate::config::settings::Settings;
use crate::figures::{self, Extent};
use crate::front::PARTING_IDLE;
use crate::handover::arrive::Arrival;
use crate::handover::leave::{Program, Successor};
use crate::handover::link::{Link, News};
use crate::house::House;
use crate::ledger::handover::Holds;
use crate::server::{Bound, Public, bind_or_take};
use crate::simulators::{self, Simulators};
use crate::threads::Threads;
use crate::{watched, worker};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep};

/// Time for idle connections to close after the last moment at which they could begin a request.
const LINGER: Duration = Duration::from_millis(200);
/// Polling interval while waiting for the end of requests and connections.
const LOOK: Duration = Duration::from_millis(5);

/// Running gateway with its listeners, tasks and threads.
pub struct Gateway {
    /// State shared by all tasks of the gateway.
    pub house: Arc<House>,
    /// Addresses of the plain HTTP listeners.
    pub http: Vec<SocketAddr>,
    /// Address of the HTTPS listener.
    pub https: Option<SocketAddr>,
    /// Address of the admin listener.
    pub admin: SocketAddr,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    /// Simulated providers; stopped last, because requests in flight are still answered.
    simulators: Simulators,
    threads: Arc<Threads>,
    source: Source,
    /// Task of the admin listener; `desk_stop` stops it alone.
    desk: Option<JoinHandle<()>>,
    desk_stop: watch::Sender<bool>,
    /// Listening sockets for the next process, the admin listener's last.
    sockets: Vec<TcpListener>,
    link: Option<Arc<Link>>,
}

/// Function that reads the configuration for a reload.
pub type Source = Arc<dyn Fn() -> Result<Loaded, String> + Send + Sync>;

impl Gateway {
    /// Binds every socket, opens the store and starts the gateway.
    ///
    /// # Errors
    /// Returns one sentence that names the obstacle; nothing is left running.
    pub async fn start(settings: Settings, source: Source) -> Result<Self, String> {
        Self::begin(settings, source, None).await
    }

    /// Starts the gateway and, if `arrival` is given, takes over from the process that hands over.
    ///
    /// # Errors
    /// Same as for [`Gateway::start`]; the other process then continues.
    pub async fn begin(
        mut settings: Settings,
        source: Source,
        mut arrival: Option<Arrival>,
    ) -> Result<Self, String> {
        let public = Public::bind(&settings, &mut arrival)?;
        let admin: Bound = bind_or_take("admin", settings.listen.admin, &mut arrival)?;
        let (stop, stopped) = watch::channel(false);
        let simulators = simulators::start(&mut settings).await?;
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
        let mut tasks = worker::start(&house, &stopped);
        tasks.push(watched::start(&house, &source, &stopped));
        let (desk_stop, closed) = watch::channel(false);
        let desk = Some(admin::serve(admin, &house, source.clone(), closed));
        worker::resolve(&house).await;
        Batches::start(&house).await?;
        let (doors, threads) = public.serve(&house, &stopped)?;
        tasks.extend(doors);
        if let Some(arrival) = arrival {
            arrival.ready(&house, holds)?;
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

    /// Starts the program again and hands everything over to it. After this returns, this process only has to
    /// [`Gateway::stop`]. Returns the process ID of the new process.
    ///
    /// # Errors
    /// Returns one sentence that says why this process continues.
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
        // From here on admin requests wait for the other process; those in flight finish.
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
            // Writes one row per key; done before charges begin to wait.
            house.keyring.note_uses(&house.vault.keys);
            figures::note(&house, Extent::Everything);
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

    /// Resumes what was stopped for an upgrade that failed.
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
        Batches::start(&self.house).await
    }

    /// Stops in order: readiness is withdrawn, no new connection is accepted, exchanges in flight finish or the time
    /// `within` passes, then everything else stops. Returns the number of exchanges that were cut off.
    pub async fn stop(mut self, within: Duration) -> usize {
        self.house.drain();
        self.sockets.clear();
        self.stop.send_replace(true);
        // Batches may take less time than requests: the next start continues the lines that were not finished.
        let emptied = tokio::time::timeout(within, self.emptied());
        tokio::join!(emptied, self.house.batches.close()).0.ok();
        let cut = self.house.exchanges();
        // Up to here the admin listener has reported that the gateway drains.
        self.desk_stop.send_replace(true);
        for task in self.tasks.into_iter().chain(self.desk) {
            task.abort();
            task.await.ok();
        }
        // Exchanges that are cut off void their reservation.
        drop(self.threads);
        // Up to here requests in flight could reach their simulated providers.
        self.simulators.stop().await;
        let (house, link) = (self.house, self.link);
        let noted = move || {
            if !house.has_left() {
                house.keyring.note_uses(&house.vault.keys);
                figures::note(&house, Extent::Everything);
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

    /// Completes when the last exchange has ended and every connection that might still begin one has closed. The
    /// response of an exchange in flight at the signal may have announced keep-alive, so idle connections get their
    /// grace period from the end of the last exchange.
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

/// Applies news from the next process: sets keys and accounts to the state in the store. Each is read and set under one
/// lock, so that the value set last is the one read last, in whatever order the threads run.
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
