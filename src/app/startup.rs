//! Start and stop of the process: threads, signals, the greeting of the demo.

use crate::admin;
use crate::app::gateway::Gateway;
use crate::app::sd_notify;
use crate::config::ConfigReader;
use crate::config::LoadedConfig;
use crate::config::settings::Settings;
use crate::storage::stores::DEMO;
use crate::telemetry::fd_limit;
use crate::telemetry::{log, panics};
use crate::upgrade::new_process::Arrival;
use crate::upgrade::old_process::Program;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Threads for background tasks; requests have threads of their own.
const HOUSE: usize = 1;

/// Runs a gateway until it is stopped.
///
/// # Errors
/// Returns a sentence that names the cause.
pub fn run(settings: Settings, source: ConfigReader) -> Result<(), String> {
    runtime(HOUSE)?.block_on(async move {
        let drain = settings.drain;
        log::set(settings.log);
        panics::tell();
        keep_to_itself(settings.core_dumps)?;
        fd_limit::raise();
        let mut signals = Signals::listen()?;
        let program = Program::this()?;
        let arrival = Arrival::here()?;
        let mut gateway = Gateway::begin(settings, source.clone(), arrival).await?;
        announce(&gateway);
        fd_limit::tell(&gateway.house.live().settings);
        sd_notify::ready();
        while signals.until_told(&gateway, &source).await == Order::Upgrade {
            match gateway.upgrade(&program).await {
                Ok(id) => {
                    sd_notify::successor(id);
                    log::event(log::info(), "handed_over", &[("to", &id.to_string())]);
                    break;
                }
                Err(why) => log::event(log::error(), "upgrade_failed", &[("why", &why)]),
            }
        }
        if !gateway.house.has_left() {
            sd_notify::stopping();
        }
        let cut = gateway.stop(drain).await;
        log::event(log::info(), "stopped", &[("cut", &cut.to_string())]);
        log::flush();
        Ok(())
    })
}

/// Runs the demo: a gateway with simulated providers, a key, and an example command.
///
/// # Errors
/// Returns a sentence that names the cause.
pub fn demo(settings: Settings, source: ConfigReader) -> Result<(), String> {
    runtime(settings.threads)?.block_on(async move {
        let drain = settings.drain;
        log::set(settings.log);
        panics::tell();
        keep_to_itself(settings.core_dumps)?;
        fd_limit::raise();
        let model = settings.models.first().map(|model| model.card.id.clone()).unwrap_or_default();
        let mut signals = Signals::listen()?;
        let gateway = Gateway::start(settings, source.clone()).await?;
        fd_limit::tell(&gateway.house.live().settings);
        let key = admin::keys::create_demo(&gateway.house).await?;
        admin::adjustments::grant_demo(&gateway.house.ledger).await?;
        mark(&gateway.house.live().settings.storage.path)?;
        greet(&gateway, &key, &model)?;
        while signals.until_told(&gateway, &source).await == Order::Upgrade {
            log::event(log::error(), "upgrade_failed", &[("why", "The demo cannot be upgraded.")]);
        }
        gateway.stop(drain).await;
        log::flush();
        Ok(())
    })
}

/// Runs one simulated provider as a server.
///
/// # Errors
/// Returns a sentence that names the cause.
pub fn simulate(options: penstock_simulator::Options) -> Result<(), String> {
    runtime(options.threads)?.block_on(async move {
        fd_limit::raise();
        let mut signals = Signals::listen()?;
        let server = penstock_simulator::Server::start(options).await?;
        say(&format!("A simulated provider listens at http://{}/v1 (control: /control).\n", server.address))?;
        signals.stop().await;
        server.stop().await;
        Ok(())
    })
}

/// Marks a storage folder as the demo's: commands without a configuration use no other.
fn mark(folder: &Path) -> Result<(), String> {
    let path = folder.join(DEMO);
    let text = "This folder was made by the demo (`penstock` without a command).\n";
    std::fs::write(&path, text).map_err(|error| format!("{} cannot be written: {error}.", path.display()))
}

fn runtime(threads: usize) -> Result<Runtime, String> {
    Builder::new_multi_thread()
        .worker_threads(threads.max(1))
        .thread_name("penstock")
        .enable_all()
        .build()
        .map_err(|error| format!("The worker threads cannot be started: {error}."))
}

/// Protects the memory of the process, which holds prompts, answers and keys: no core dump, no debugger of the same
/// user.
fn keep_to_itself(core_dumps: bool) -> Result<(), String> {
    if core_dumps {
        return Ok(());
    }
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none)
        .and_then(|()| set_dumpable_behavior(DumpableBehavior::NotDumpable))
        .map_err(|error| {
            format!("Core dumps cannot be turned off: {error}. Allow them with process.core_dumps.")
        })
}

/// Signals of the process.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    upgrade: Signal,
}

/// Order from a signal.
#[derive(PartialEq, Eq)]
enum Order {
    Stop,
    Upgrade,
}

impl Signals {
    fn listen() -> Result<Self, String> {
        let on = |kind| signal(kind).map_err(|error| format!("Signals cannot be listened to: {error}."));
        Ok(Self {
            terminate: on(SignalKind::terminate())?,
            interrupt: on(SignalKind::interrupt())?,
            hangup: on(SignalKind::hangup())?,
            upgrade: on(SignalKind::user_defined2())?,
        })
    }

    /// Waits for a stop or an upgrade; handles reloads meanwhile.
    async fn until_told(&mut self, gateway: &Gateway, source: &ConfigReader) -> Order {
        loop {
            tokio::select! {
                () = stop(&mut self.terminate, &mut self.interrupt) => return Order::Stop,
                _ = self.upgrade.recv() => return Order::Upgrade,
                _ = self.hangup.recv() => {
                    admin::reload::reload(&gateway.house, source).await.ok();
                }
            }
        }
    }

    async fn stop(&mut self) {
        stop(&mut self.terminate, &mut self.interrupt).await;
    }
}

async fn stop(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

fn announce(gateway: &Gateway) {
    let list =
        |addresses: &[SocketAddr]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let https = gateway.https.map(|address| address.to_string()).unwrap_or_default();
    log::event(
        log::info(),
        "listening",
        &[
            ("http", &list(&gateway.http)),
            ("https", &https),
            ("admin", &gateway.admin.to_string()),
            ("process", &std::process::id().to_string()),
            ("version", env!("CARGO_PKG_VERSION")),
            ("config", &gateway.house.live().settings.version.0),
        ],
    );
}

fn greet(gateway: &Gateway, key: &str, model: &str) -> Result<(), String> {
    let address = gateway.http.first().map(ToString::to_string).unwrap_or_default();
    say(&format!(
        "Penstock {version}, the demo: every answer is simulated.\n\n\
         \x20 base URL   http://{address}/v1\n\
         \x20 API key    {key}\n\
         \x20 admin      http://{admin}/status\n\n\
         Try it:\n\n\
         curl http://{address}/v1/chat/completions \\\n\
         \x20 -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' \\\n\
         \x20 -d '{{\"model\":\"{model}\",\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'\n\n",
        version = env!("CARGO_PKG_VERSION"),
        admin = gateway.admin,
    ))
}

fn say(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| error.to_string())
}

/// Configuration source that never changes, for gateways without a file.
#[must_use]
pub fn fixed(settings: Settings) -> ConfigReader {
    Arc::new(move || Ok(LoadedConfig { settings: settings.clone(), warnings: Vec::new() }))
}
