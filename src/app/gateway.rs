//! A running gateway: every listener and every worker, until it is told to
//! stop. The binary runs one; tests run many in one process.

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

/// How long idle connections get to close after they could last begin a request.
const LINGER: Duration = Duration::from_millis(200);
/// How often it is looked whether something has ended.
const LOOK: Duration = Duration::from_millis(5);

/// A gateway at work.
pub struct Gateway {
    /// What it is made of.
    pub house: Arc<House>,
    /// Where it listens for plain HTTP.
    pub http: Vec<SocketAddr>,
    /// Where it listens for TLS.
    pub https: Option<SocketAddr>,
    /// Where it is administered.
    pub admin: SocketAddr,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    /// Stopped last: open requests are still answered.
    simulators: Simulators,
    threads: Arc<Threads>,
    source: ConfigReader,
    /// The admin listener, and what stops it alone.
    desk: Option<JoinHandle<()>>,
    desk_stop: watch::Sender<bool>,
    /// Its sockets, the admin listener's last: for the process after this one.
    sockets: Vec<TcpListener>,
    link: Option<Arc<Link>>,
}

impl Gateway {
    /// Binds every socket, opens the store, starts.
    ///
    /// # Errors
    /// One sentence that says what is in the way; nothing is left running.
    pub async fn start(settings: Settings, source: ConfigReader) -> Result<Self, String> {
        Self::begin(settings, source, None).await
    }

    /// The same in the place of a process that runs, if one hands over.
    ///
    /// # Errors
    /// As [`Gateway::start`]; the other process goes on then.
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
        let built = spawn_blocking(build).await.map_err(|_| "The house could not be built.".to_owned())?;
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

    /// Starts the program again and hands everything over to it. When this returns, this process only has to
    /// [`Gateway::stop`]. Returns the number of the other.
    ///
    /// # Errors
    /// One sentence that says why this process goes on.
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
        // Administration waits for the other process from here on, what has begun ends.
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
            // A row for each key: before charges begin to wait.
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

    /// Takes up again what was laid down for an upgrade that is not.
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

    /// Stops in order: not ready, no new connection, the open exchanges end or
    /// `within` is over, then everything else. Returns how many were cut.
    pub async fn stop(mut self, within: Duration) -> usize {
        self.house.drain();
        self.sockets.clear();
        self.stop.send_replace(true);
        // Batches do not take as long as requests may: what they have not done they go on with at the next start.
        let emptied = tokio::time::timeout(within, self.emptied());
        tokio::join!(emptied, self.house.batches.close()).0.ok();
        let cut = self.house.exchanges();
        // Until now it told that the house drains.
        self.desk_stop.send_replace(true);
        for task in self.tasks.into_iter().chain(self.desk) {
            task.abort();
            task.await.ok();
        }
        // What is cut voids its reserve.
        drop(self.threads);
        // Until now open requests had their providers.
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

    /// Ends when the last exchange has, and every connection that might still begin one. The answer of an exchange
    /// that was open at the signal may have said that its connection goes on: idle connections have their moment
    /// from the end of the last one.
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

/// What the process after this one tells: keys and accounts are as they are there. Each is read and set in one turn:
/// what is set last was read last, whatever order the threads come in.
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
