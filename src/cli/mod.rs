//! The command line. Every command ends with 0, or with 1 and one clear sentence on standard error; with 78 and all
//! mistakes if it is the configuration that is wrong.

mod accounts;
mod audit;
mod client;
mod configuration;
mod credits;
mod keys;
mod limits;
mod live;
mod memory;
mod owner;
mod simulated;
mod speak;
mod statement;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod way;

use crate::config::Source;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

const ABOUT: &str = "A gateway in front of EU providers of open-weight models.";
const LONG: &str = "\
A gateway in front of EU providers of open-weight models: chat completions and messages, routed by price, \
speed or footprint, with failover that clients do not see, and with energy, carbon, water and cost on every \
answer.

Without a command it starts the demo: a gateway on 127.0.0.1:8080 with three simulated providers, and a key \
to try it with.";
const AFTER: &str = "\
First steps:
  penstock                                    the demo
  penstock check --config penstock.toml       every mistake of a configuration at once
  penstock run   --config penstock.toml       the real thing
  penstock keys create --config penstock.toml --name alice
  penstock credits grant --config penstock.toml default --credits 1000

Every key of the configuration is explained in conf/penstock.toml.";

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "penstock", version, about = ABOUT, long_about = LONG, after_help = AFTER)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the gateway of a configuration
    ///
    /// SIGTERM and SIGINT end it in order: no new connection, open requests may end within `process.drain`.
    /// SIGHUP swaps in a changed configuration, or keeps the old one and says why.
    Run(Written),
    /// Tells every mistake of a configuration at once, or what it would run
    ///
    /// Files and environment variables that it refers to are read as at a real start; nothing is asked over
    /// the network. Ends with 78 if there is a mistake; warnings do not count.
    Check(Written),
    /// Prints the JSON Schema of the configuration
    ///
    /// For editors that complete and check while one writes.
    Schema,
    /// Makes, lists, changes and suspends accounts, and their limits
    ///
    /// Through the running gateway, or directly in its store when none runs.
    Accounts(accounts::Accounts),
    /// Makes, lists, changes, rotates and revokes API keys
    ///
    /// Through the running gateway, or directly in its store when none runs.
    Keys(keys::Keys),
    /// Lists who changed which account or key, and when
    ///
    /// Through the running gateway, or directly in its store when none runs.
    Audit(audit::Audit),
    /// Prints the OpenAPI document of the admin listener
    Openapi,
    /// Grants, shows, corrects and proves credits and energy; exports the ledger
    ///
    /// Through the running gateway, or directly in its store when none runs.
    Credits(credits::Credits),
    /// Adds a month up: requests, tokens, energy, carbon, water and EUR, by account and key
    ///
    /// Through the running gateway, or directly in its store when none runs.
    Statement(statement::Monthly),
    /// Proves, saves, restores and salvages everything that lasts, while no gateway runs
    Store(store::Store),
    /// Lists the models of the running gateway, and who offers them
    Models(Live),
    /// Lists the providers of the running gateway, and how they are
    Providers(Live),
    /// Swaps in the configuration as it is written now
    ///
    /// The running gateway checks it as a whole, and keeps the old one if there is a mistake. No request is
    /// lost.
    Reload(Reached),
    /// Runs a simulated provider as a server of its own
    ///
    /// For load tests and for trying a configuration. It answers every endpoint, the same for the same seed
    /// and request, and its texts say that they are simulated.
    Simulate(simulated::Simulate),
}

/// A configuration to read whole.
#[derive(Debug, Args)]
struct Written {
    /// The configuration
    #[arg(long, short, value_name = "FILE")]
    config: PathBuf,
}

/// A configuration that says where the gateway is.
#[derive(Debug, Args)]
struct Reached {
    /// The configuration that the gateway runs; without it the demo's
    #[arg(long, short, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

/// A question to the running gateway.
#[derive(Debug, Args)]
struct Live {
    #[command(flatten)]
    reached: Reached,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

impl Reached {
    fn source(&self) -> Source {
        self.config.clone().map_or(Source::Demo, Source::File)
    }
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            speak::err(&format!("{}\n", failure.why.trim_end()));
            ExitCode::from(failure.code)
        }
    }
}

/// Why a command failed.
#[derive(Debug)]
struct Failure {
    why: String,
    code: u8,
}

/// `EX_CONFIG` of sysexits.h, for a configuration with mistakes: a service manager that knows it does not start again
/// what cannot start.
const MISCONFIGURED: u8 = 78;

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self { why, code: 1 }
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        None => configuration::demo()?,
        Some(Command::Run(written)) => configuration::run(Source::File(written.config))?,
        Some(Command::Check(written)) => configuration::check(&Source::File(written.config))?,
        Some(Command::Schema) => speak::out(&crate::config::schema_text())?,
        Some(Command::Accounts(accounts)) => accounts::run(accounts)?,
        Some(Command::Keys(keys)) => keys::run(keys)?,
        Some(Command::Audit(audit)) => audit::run(&audit)?,
        Some(Command::Openapi) => speak::out(&crate::admin::openapi::text())?,
        Some(Command::Credits(credits)) => credits::run(credits)?,
        Some(Command::Statement(monthly)) => statement::run(&monthly)?,
        Some(Command::Store(store)) => store::run(&store)?,
        Some(Command::Models(asked)) => live::models(&asked.reached.source(), asked.json)?,
        Some(Command::Providers(asked)) => live::providers(&asked.reached.source(), asked.json)?,
        Some(Command::Reload(reached)) => live::reload(&reached.source())?,
        Some(Command::Simulate(simulate)) => simulated::run(simulate)?,
    }
    Ok(())
}
