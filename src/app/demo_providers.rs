//! Simulated providers of a configuration, in the gateway's process.

use crate::config::settings::Settings;
use penstock_simulator::{SimulatedServer, SimulatorOptions};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Simulated providers that run in this process.
#[derive(Debug)]
pub struct SimulatedProviders {
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl SimulatedProviders {
    /// Stops the providers. It must be called after the last request that they may have to serve.
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
/// An address with port 0 is replaced by the bound address. The base URLs in the settings do not change, so a provider
/// whose base URL names a simulated provider needs a fixed port.
///
/// # Errors
/// Returns one sentence about the first server that cannot be started; the servers that were already started are
/// stopped.
pub async fn start(settings: &mut Settings) -> Result<SimulatedProviders, String> {
    let (stop, stopped) = watch::channel(false);
    let mut servers = Vec::with_capacity(settings.simulators.len());
    let models: Vec<String> = settings.models.iter().map(|model| model.card.id.clone()).collect();
    for simulated in &mut settings.simulators {
        let server = SimulatedServer::start(SimulatorOptions {
            name: simulated.name.to_string(),
            address: simulated.address,
            seed: simulated.seed,
            first_token: simulated.first_token,
            tokens_per_second: simulated.tokens_per_second,
            models: models.clone(),
            ..SimulatorOptions::default()
        })
        .await?;
        simulated.address = server.address;
        servers.push(server);
    }
    let tasks =
        servers.into_iter().map(|server| tokio::spawn(run_until_stopped(server, stopped.clone()))).collect();
    Ok(SimulatedProviders { stop, tasks })
}

/// Runs a server until the stop signal, or until its task is aborted.
async fn run_until_stopped(server: SimulatedServer, mut stop: watch::Receiver<bool>) {
    // A dropped sender counts as the stop signal.
    stop.wait_for(|stop| *stop).await.ok();
    server.stop().await;
}
