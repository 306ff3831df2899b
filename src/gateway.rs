//! A running gateway: every listener and every worker, until it is told to
//! stop. The binary runs one; tests run many in one process.

use crate::admin;
use crate::batch::Batches;
use crate::config::settings::Settings;
use crate::house::House;
use crate::server::{Bound, Public, bind};
use crate::{simulators, worker};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long idle connections get to close after the last exchange.
const LINGER: Duration = Duration::from_millis(200);

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
}

/// Where a reload reads the configuration from.
pub type Source = Arc<dyn Fn() -> Result<Settings, String> + Send + Sync>;

impl Gateway {
    /// Binds every socket, opens the store, starts.
    ///
    /// # Errors
    /// One sentence that says what is in the way; nothing is left running.
    pub async fn start(mut settings: Settings, source: Source) -> Result<Self, String> {
        let public = Public::bind(&settings)?;
        let admin: Bound = bind("admin", settings.listen.admin)?;
        let (stop, stopped) = watch::channel(false);
        let simulated = simulators::start(&mut settings, stopped.clone()).await?;
        let house = tokio::task::spawn_blocking(move || House::build(settings))
            .await
            .map_err(|_| "The house could not be built.".to_owned())??;
        let (http, https, admin_address) = (public.http(), public.https(), admin.address);
        let mut tasks = simulated;
        tasks.extend(worker::start(&house, &stopped));
        tasks.push(admin::serve(admin, &house, source, stopped.clone()));
        worker::resolve(&house).await;
        Batches::start(&house).await?;
        tasks.extend(public.serve(&house, &stopped)?);
        Ok(Self { house, http, https, admin: admin_address, stop, tasks })
    }

    /// Stops in order: not ready, no new connection, the open exchanges end or
    /// `within` is over, then everything else. Returns how many were cut.
    pub async fn stop(self, within: Duration) -> usize {
        self.house.drain();
        self.stop.send_replace(true);
        // Batches do not take as long as requests may: what they have not done they go on with at the next start.
        let emptied = tokio::time::timeout(within, self.house.emptied());
        tokio::join!(emptied, self.house.batches.close()).0.ok();
        let cut = self.house.exchanges();
        if cut == 0 {
            tokio::time::sleep(LINGER).await;
        }
        for task in self.tasks {
            task.abort();
            task.await.ok();
        }
        let house = self.house;
        let noted = move || {
            house.keyring.note_uses(&house.vault.keys);
            house.keyring.note_spends(&house.vault.spends);
            house.ledger.close();
        };
        tokio::task::spawn_blocking(noted).await.ok();
        cut
    }
}
