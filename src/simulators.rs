//! Simulated providers of a configuration, run in the gateway's own process.

use crate::config::settings::Settings;
use crate::simulate::{Options, Server};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Running simulated providers.
#[derive(Debug)]
pub struct Simulators {
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Simulators {
    /// Stops all servers; called after the last request that they may answer.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        for task in self.tasks {
            task.abort();
            task.await.ok();
        }
    }
}

/// Starts every simulated provider of the settings; each runs until it is stopped.
///
/// Replaces port 0 of an address by the port that was bound. Base URLs are not changed: providers that refer to a
/// simulated one need its port written out.
///
/// # Errors
/// Returns one sentence on the first server that cannot be started; those before it are stopped.
pub async fn start(settings: &mut Settings) -> Result<Simulators, String> {
    let (stop, stopped) = watch::channel(false);
    let mut servers = Vec::with_capacity(settings.simulators.len());
    let models: Vec<String> = settings.models.iter().map(|model| model.card.id.clone()).collect();
    for simulated in &mut settings.simulators {
        let server = Server::start(Options {
            name: simulated.name.to_string(),
            address: simulated.address,
            seed: simulated.seed,
            first_token: simulated.first_token,
            tokens_per_second: simulated.tokens_per_second,
            models: models.clone(),
            ..Options::default()
        })
        .await?;
        simulated.address = server.address;
        servers.push(server);
    }
    let tasks = servers.into_iter().map(|server| tokio::spawn(run(server, stopped.clone()))).collect();
    Ok(Simulators { stop, tasks })
}

/// Runs a server until the stop, or until its task is aborted.
async fn run(server: Server, mut stop: watch::Receiver<bool>) {
    // A dropped sender means the stop as well.
    stop.wait_for(|stop| *stop).await.ok();
    server.stop().await;
}
