//! The command line. Every command exits with 0, with 1 and the reason on standard error, or with 2 and the usage if
//! the arguments are invalid. If the configuration is invalid, `run`, `check` and the demo report all mistakes and
//! exit with 78.

mod accounts;
mod audit;
mod backend;
mod batches;
mod client;
mod completions;
mod configuration;
mod credits;
mod drop_privileges;
mod files;
mod keys;
mod limits;
mod listing;
mod manual;
mod memory_estimate;
mod output;
mod password_prompt;
mod simulated;
mod statement;
mod status;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod usage;
mod users;

use crate::config::ConfigSource;
use clap::{Args, Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const ABOUT: &str = "A gateway in front of EU providers of open-weight models.";
const LONG: &str = "\
A gateway in front of EU providers of open-weight models: chat completions, messages, responses, completions, \
embeddings, rerank, images, audio and moderation, routed by price, speed or footprint. Clients do not see the failures of a provider, and every answer states its energy, carbon, \
water and cost.

Without a command, it starts the demo: a gateway on 127.0.0.1:8080 with three simulated providers, and an API \
key for it.";
const AFTER: &str = "\
First steps:
  penstock                                    starts the demo
  penstock check penstock.toml                reports every mistake of a configuration at once
  penstock run   --config penstock.toml       runs the gateway with it
  penstock keys create --config penstock.toml --name alice
  penstock credits grant --config penstock.toml default --credits 1000

Every key of the configuration is explained in conf/penstock.toml.";

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "penstock", version, about = ABOUT, long_about = LONG, after_help = AFTER)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<CliCommand>,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Runs the gateway with a configuration
    ///
    /// SIGTERM and SIGINT stop it: it accepts no new connections, and open requests may finish within `process.drain`.
    /// SIGHUP reloads the configuration; if there is a mistake, it is logged and the old configuration stays.
    Run(RunArgs),
    /// Reports every mistake of a configuration at once, or shows what it would run
    ///
    /// Reads the files and environment variables that it refers to, as at a real start; uses the network with `--reach`
    /// only. Ends with 78 if there is a mistake; with `--strict` also if there is a warning.
    Check(CheckArgs),
    /// Prints the JSON Schema of the configuration
    ///
    /// For completion and checks in editors.
    Schema,
    /// Creates, lists, changes and suspends accounts, and sets their limits
    ///
    /// Through the running gateway, or directly in its store if no gateway runs.
    Accounts(accounts::AccountsArgs),
    /// Creates, lists, changes, rotates and revokes API keys
    ///
    /// Through the running gateway, or directly in its store if no gateway runs.
    Keys(keys::KeysArgs),
    /// Lists, shows and cancels batches of all accounts
    ///
    /// Through the running gateway, or read from its store if no gateway runs.
    Batches(batches::BatchesArgs),
    /// Lists, shows and deletes files of all accounts
    ///
    /// Through the running gateway, or read from its store if no gateway runs.
    Files(files::FilesArgs),
    /// Lists changes of accounts, keys, users, credits, batches, files and invoices, with time and author
    ///
    /// Through the running gateway, or directly in its store if no gateway runs.
    Audit(audit::AuditArgs),
    /// Prints the OpenAPI document of the admin listener, or of the public one
    Openapi {
        /// The public document, as served at `GET /openapi.json`
        #[arg(long)]
        public: bool,
    },
    /// Grants, shows, corrects and verifies credits and energy; exports and rebuilds the ledger
    ///
    /// Through the running gateway, or directly in its store if no gateway runs.
    Credits(credits::CreditsArgs),
    /// Adds up a month or another period: requests, tokens, energy, carbon, water and EUR, by account, key and model
    ///
    /// Through the running gateway, or directly in its store if no gateway runs.
    Statement(statement::StatementArgs),
    /// Invites, creates, lists and disables the persons who may sign in to the console
    ///
    /// Through the running gateway, or directly in its store if no gateway runs.
    Users(users::UsersArgs),
    /// Adds up usage by day, model, key and other dimensions; verifies and rebuilds the sums of hours and days
    ///
    /// Through the running gateway, or directly in its store if no gateway runs.
    Usage(usage::UsageArgs),
    /// Verifies, exports, imports and repairs all stored data, while no gateway runs
    Store(store::StoreArgs),
    /// Lists the models of the running gateway and the providers that offer them
    Models(LiveArgs),
    /// Lists the providers of the running gateway and their state
    Providers(LiveArgs),
    /// Makes the running gateway read its configuration again
    ///
    /// The gateway validates all of it, and keeps the old configuration if there is a mistake. No request is lost.
    Reload(ConfigArgs),
    /// Runs a simulated provider as a separate server
    ///
    /// For load tests and for trying a configuration. It serves every endpoint. The same seed and request give the same
    /// answer, and its texts say that they are simulated.
    Simulate(simulated::SimulateArgs),
    /// Prints the completion script of a shell
    ///
    /// For example: penstock completions bash > ~/.local/share/bash-completion/completions/penstock
    Completions(completions::CompletionsArgs),
    /// Writes the manual pages
    ///
    /// Without a folder, the page of `penstock` goes to standard output: penstock manual | man -l -
    Manual(manual::ManualArgs),
}

/// Arguments of `penstock run`.
#[derive(Debug, Args)]
struct RunArgs {
    /// Configuration file
    #[arg(long, short, value_name = "FILE")]
    config: PathBuf,
}

/// Arguments of `penstock check`.
#[derive(Debug, Args)]
struct CheckArgs {
    /// Configuration file
    #[arg(value_name = "FILE", required_unless_present = "config", conflicts_with = "config")]
    file: Option<PathBuf>,
    /// Configuration file
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Fail on warnings, too
    #[arg(long)]
    strict: bool,
    /// Connect to the PostgreSQL database of the store and to the bucket of files, and check that both can be used
    #[arg(long)]
    reach: bool,
}

/// Argument of a command that reaches the gateway or opens its store: the configuration of the gateway.
#[derive(Debug, Args)]
struct ConfigArgs {
    /// Configuration file of the gateway; can be left out in the folder in which the demo was started
    #[arg(long, short, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

/// Arguments of a command that reads from the running gateway.
#[derive(Debug, Args)]
struct LiveArgs {
    #[command(flatten)]
    reached: ConfigArgs,
    #[command(flatten)]
    output: listing::OutputArgs,
}

impl ConfigArgs {
    /// Returns the configuration that the argument names, or that of the demo if the demo was started in this folder.
    fn source(&self) -> Result<ConfigSource, String> {
        match &self.config {
            Some(path) => Ok(ConfigSource::File(path.clone())),
            None => check_demo_folder(Path::new(".")).map(|()| ConfigSource::Demo),
        }
    }
}

/// Checks that the demo was started in this folder: without `--config`, a command must not create or change the store
/// of another folder.
fn check_demo_folder(folder: &Path) -> Result<(), String> {
    if folder.join(DEMO_STORAGE).join(crate::storage::stores::DEMO_MARKER_FILE).is_file() {
        return Ok(());
    }
    let usual_paths = ["penstock.toml", "conf/penstock.toml", "/etc/penstock/penstock.toml"];
    let config_file = usual_paths.into_iter().find(|name| folder.join(name).is_file()).unwrap_or("FILE");
    Err(format!(
        "No configuration is named, and the demo was not started in this folder (there is no {DEMO_STORAGE}/{}). Name \
         the configuration of the gateway: --config {config_file}.",
        crate::storage::stores::DEMO_MARKER_FILE
    ))
}

/// Storage folder of the demo, as in conf/demo.toml.
const DEMO_STORAGE: &str = "data";

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    // New files are readable by their owner only. This covers the files of the store's engine too, which sets no file
    // mode itself.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    crate::telemetry::log::install_subscriber();
    let result = run_cli(Cli::parse());
    crate::telemetry::log::flush_log();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::print_stderr(&format!("{}\n", failure.why.trim_end()));
            ExitCode::from(failure.code)
        }
    }
}

/// Error of a command, with its exit code.
#[derive(Debug)]
struct CommandError {
    why: String,
    code: u8,
}

/// `EX_CONFIG` of sysexits.h, for a configuration with mistakes: a service manager that knows this code does not
/// restart the gateway in vain.
const MISCONFIGURED: u8 = 78;

impl From<String> for CommandError {
    fn from(why: String) -> Self {
        Self { why, code: 1 }
    }
}

fn run_cli(cli: Cli) -> Result<(), CommandError> {
    match cli.command {
        None => configuration::run_demo()?,
        Some(CliCommand::Run(written)) => configuration::run_gateway(ConfigSource::File(written.config))?,
        Some(CliCommand::Check(checked)) => {
            // clap ensures that one of the two is given.
            let path = checked.config.or(checked.file).unwrap_or_default();
            configuration::check(&ConfigSource::File(path), checked.strict, checked.reach)?;
        }
        Some(CliCommand::Schema) => output::print_stdout(&crate::config::schema_json())?,
        Some(CliCommand::Accounts(accounts)) => accounts::run(accounts)?,
        Some(CliCommand::Keys(keys)) => keys::run(keys)?,
        Some(CliCommand::Audit(audit)) => audit::run(&audit)?,
        Some(CliCommand::Openapi { public: true }) => {
            output::print_stdout(crate::proxy::endpoint::openapi::document_text())?
        }
        Some(CliCommand::Openapi { public: false }) => {
            output::print_stdout(&crate::admin::openapi::document_text())?
        }
        Some(CliCommand::Credits(credits)) => credits::run(credits)?,
        Some(CliCommand::Statement(monthly)) => statement::run(&monthly)?,
        Some(CliCommand::Users(users)) => users::run(&users)?,
        Some(CliCommand::Usage(usage)) => usage::run(&usage)?,
        Some(CliCommand::Store(store)) => store::run(&store)?,
        Some(CliCommand::Models(asked)) => status::print_models(&asked.reached.source()?, asked.output)?,
        Some(CliCommand::Providers(asked)) => {
            status::print_providers(&asked.reached.source()?, asked.output)?
        }
        Some(CliCommand::Reload(reached)) => status::request_reload(&reached.source()?)?,
        Some(CliCommand::Batches(batches)) => batches::run(batches)?,
        Some(CliCommand::Files(files)) => files::run(files)?,
        Some(CliCommand::Completions(completions)) => completions::run(&completions)?,
        Some(CliCommand::Manual(manual)) => manual::run(&manual)?,
        Some(CliCommand::Simulate(simulate)) => simulated::run(simulate)?,
    }
    Ok(())
}
