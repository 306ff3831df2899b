//! Start and stop of the process: threads, signals, and the help that the demo prints.

use crate::admin;
use crate::app::demo_history;
use crate::app::gateway::RunningGateway;
use crate::app::sd_notify;
use crate::auth::account_json::DEFAULT_ACCOUNT_ID;
use crate::config::ConfigLoader;
use crate::config::LoadedConfig;
use crate::config::settings::Settings;
use crate::state::AppState;
use crate::storage::stores::DEMO_MARKER_FILE;
use crate::telemetry::fd_limit;
use crate::telemetry::{log, panics};
use crate::upgrade::new_process::InheritedState;
use crate::upgrade::old_process::LaunchCommand;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Number of threads for background tasks; requests have threads of their own.
const BACKGROUND_THREADS: usize = 1;
/// Interval of the checks for a reason to restart.
const RESTART_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Runs a gateway until a signal stops it, until it has handed over to a new process, or until it has to be restarted.
///
/// # Errors
/// Returns a sentence that names the cause.
pub fn run(loaded: LoadedConfig, source: ConfigLoader) -> Result<(), String> {
    build_runtime(BACKGROUND_THREADS)?.block_on(async move {
        let LoadedConfig { settings, warnings } = loaded;
        let drain = settings.drain;
        log::apply_log_settings(settings.log);
        warnings.iter().for_each(admin::reload::log_warning);
        panics::install_hook();
        disable_core_dumps(settings.core_dumps)?;
        fd_limit::raise_limit();
        let mut signals = ProcessSignals::register()?;
        let program = LaunchCommand::from_current_process()?;
        let arrival = InheritedState::from_environment()?;
        let mut gateway = RunningGateway::start_or_take_over(settings, source.clone(), arrival).await?;
        log_listening(&gateway);
        fd_limit::log_if_insufficient(&gateway.app.config_snapshot().settings);
        sd_notify::notify_ready();
        let ended = loop {
            match signals.next_action(&gateway, &source).await {
                SignalAction::Stop => break Ok(()),
                SignalAction::Restart(reason) => {
                    tracing::error!(name: "restart_needed", why = reason);
                    break Err(format!("This gateway has ended because {reason}. Start it again."));
                }
                SignalAction::Upgrade => match gateway.upgrade(&program).await {
                    Ok(id) => {
                        sd_notify::notify_successor(id);
                        tracing::info!(name: "handed_over", to = %id);
                        break Ok(());
                    }
                    Err(why) => tracing::error!(name: "upgrade_failed", why),
                },
            }
        };
        if !gateway.app.is_store_handed_over() {
            sd_notify::notify_stopping();
        }
        let cut = gateway.stop(drain).await;
        tracing::info!(name: "stopped", %cut);
        log::flush_log();
        ended
    })
}

/// Runs the demo until a signal stops it: a gateway with simulated providers, a key, a week of simulated charges, and
/// an example command.
///
/// # Errors
/// Returns a sentence that names the cause.
pub fn run_demo(loaded: LoadedConfig, source: ConfigLoader) -> Result<(), String> {
    let LoadedConfig { settings, warnings } = loaded;
    build_runtime(settings.threads)?.block_on(async move {
        let drain = settings.drain;
        log::apply_log_settings(settings.log);
        warnings.iter().for_each(admin::reload::log_warning);
        panics::install_hook();
        disable_core_dumps(settings.core_dumps)?;
        fd_limit::raise_limit();
        let model = settings.models.first().map(|model| model.card.id.clone()).unwrap_or_default();
        let mut signals = ProcessSignals::register()?;
        let gateway = RunningGateway::start(settings, source.clone()).await?;
        fd_limit::log_if_insufficient(&gateway.app.config_snapshot().settings);
        let (key_id, key) = admin::keys::create_demo_key(&gateway.app).await?;
        demo_history::record_demo_history(&gateway.app, DEFAULT_ACCOUNT_ID, &key_id).await;
        admin::adjustments::grant_demo(&gateway.app.ledger).await?;
        let invitation = invite_demo_admin(&gateway.app).await?;
        mark_demo_folder(&gateway.app.config_snapshot().settings.storage.path)?;
        print_demo_help(&gateway, &key, &model, &invitation)?;
        while signals.next_action(&gateway, &source).await == SignalAction::Upgrade {
            tracing::error!(name: "upgrade_failed", why = "The demo cannot be upgraded.");
        }
        gateway.stop(drain).await;
        log::flush_log();
        Ok(())
    })
}

/// Runs one simulated provider as a server until a signal stops it.
///
/// # Errors
/// Returns a sentence that names the cause.
pub fn run_simulator(options: penstock_simulator::SimulatorOptions) -> Result<(), String> {
    build_runtime(options.threads)?.block_on(async move {
        fd_limit::raise_limit();
        let mut signals = ProcessSignals::register()?;
        let server = penstock_simulator::SimulatedServer::start(options).await?;
        print_stdout(&format!(
            "A simulated provider listens at http://{}/v1 (control: /control).\n",
            server.address
        ))?;
        signals.stop().await;
        server.stop().await;
        Ok(())
    })
}

/// Marks a storage folder as the folder of the demo. Commands that run without a configuration use only a marked
/// folder.
fn mark_demo_folder(folder: &Path) -> Result<(), String> {
    let path = folder.join(DEMO_MARKER_FILE);
    let text = "This folder was made by the demo (`penstock` without a command).\n";
    std::fs::write(&path, text).map_err(|error| format!("{} cannot be written: {error}.", path.display()))
}

fn build_runtime(threads: usize) -> Result<Runtime, String> {
    Builder::new_multi_thread()
        .worker_threads(threads.max(1))
        .thread_name("penstock")
        .enable_all()
        .build()
        .map_err(|error| format!("The worker threads cannot be started: {error}."))
}

/// Protects the memory of the process, which contains prompts, answers and keys: no core dump is written, and no
/// debugger of the same user may attach. Does nothing if `core_dumps` is true.
fn disable_core_dumps(core_dumps: bool) -> Result<(), String> {
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
struct ProcessSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    upgrade: Signal,
}

/// Action that a signal or the state of the gateway requires.
#[derive(PartialEq, Eq)]
enum SignalAction {
    Stop,
    Upgrade,
    /// Stop with an error for this reason, so that the service manager starts the gateway again.
    Restart(&'static str),
}

impl ProcessSignals {
    fn register() -> Result<Self, String> {
        let on = |kind| signal(kind).map_err(|error| format!("Signals cannot be listened to: {error}."));
        // Without a handler, a write beyond the limit on file sizes would end the process. With one, the write fails.
        drop(on(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
        Ok(Self {
            terminate: on(SignalKind::terminate())?,
            interrupt: on(SignalKind::interrupt())?,
            hangup: on(SignalKind::hangup())?,
            upgrade: on(SignalKind::user_defined2())?,
        })
    }

    /// Waits for a stop, an upgrade or a reason to restart; handles reloads meanwhile.
    async fn next_action(&mut self, gateway: &RunningGateway, source: &ConfigLoader) -> SignalAction {
        loop {
            tokio::select! {
                () = stop(&mut self.terminate, &mut self.interrupt) => return SignalAction::Stop,
                _ = self.upgrade.recv() => return SignalAction::Upgrade,
                reason = restart_needed(&gateway.app) => return SignalAction::Restart(reason),
                _ = self.hangup.recv() => {
                    admin::reload::reload(&gateway.app, source).await.ok();
                }
            }
        }
    }

    async fn stop(&mut self) {
        stop(&mut self.terminate, &mut self.interrupt).await;
    }
}

/// Waits until the gateway has to be restarted; returns the reason.
async fn restart_needed(app: &AppState) -> &'static str {
    loop {
        if let Some(reason) = app.forced_restart_reason() {
            return reason;
        }
        tokio::time::sleep(RESTART_CHECK_INTERVAL).await;
    }
}

async fn stop(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

fn log_listening(gateway: &RunningGateway) {
    let list =
        |addresses: &[SocketAddr]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let https = gateway.https_address.map(|address| address.to_string()).unwrap_or_default();
    tracing::info!(
        name: "listening",
        http = list(&gateway.http_addresses),
        https,
        admin = %gateway.admin_address,
        dashboard = list(&gateway.dashboard_addresses),
        process = %std::process::id(),
        version = env!("CARGO_PKG_VERSION"),
        config = gateway.app.config_snapshot().settings.version.0,
    );
}

/// Invites the demo's administrator to the console; returns the token.
async fn invite_demo_admin(app: &Arc<AppState>) -> Result<String, String> {
    let (stores, now) = (app.stores.clone(), app.clock.unix_seconds());
    let invite = move || admin::users::invite_demo_admin(&stores, now).map_err(|refusal| refusal.message);
    crate::storage::stores::run_blocking(invite).await
}

fn print_demo_help(gateway: &RunningGateway, key: &str, model: &str, invitation: &str) -> Result<(), String> {
    let address = gateway.http_addresses.first().map(ToString::to_string).unwrap_or_default();
    print_stdout(&format!(
        "Penstock {version}, the demo: every answer is simulated.\n\n\
         \x20 base URL   http://{address}/v1\n\
         \x20 API key    {key}\n\
         \x20 admin      http://{admin}/status\n\
         \x20 console    http://{admin}/console/invitation/{invitation}\n\n\
         Try it:\n\n\
         curl http://{address}/v1/chat/completions \\\n\
         \x20 -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' \\\n\
         \x20 -d '{{\"model\":\"{model}\",\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'\n\n",
        version = env!("CARGO_PKG_VERSION"),
        admin = gateway.admin_address,
    ))
}

fn print_stdout(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| error.to_string())
}

/// Returns a loader that always returns these settings, for gateways without a configuration file.
#[must_use]
pub fn fixed_config_loader(settings: Settings) -> ConfigLoader {
    Arc::new(move || Ok(LoadedConfig { settings: settings.clone(), warnings: Vec::new() }))
}
