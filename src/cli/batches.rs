//! `penstock batches`: batches of all accounts, through the running gateway, or read from its store if no gateway runs.

use super::ConfigArgs;
use super::backend::{AdminBackend, ExpectedStore, encode_segment};
use super::client::gateway_access;
use super::listing::{Listing, OutputArgs};
use super::output::print_stdout;
use super::status::{print_json, table_cell};
use crate::time::format::format_rfc3339;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

/// Arguments of the command.
#[derive(Debug, Args)]
pub struct BatchesArgs {
    #[command(flatten)]
    reached: ConfigArgs,
    #[command(subcommand)]
    command: BatchesCommand,
}

#[derive(Debug, Subcommand)]
enum BatchesCommand {
    /// Lists batches with their progress
    List {
        /// Only batches of this account
        #[arg(long)]
        account: Option<String>,
        /// Only batches with this status: validating, in_progress, completed, failed or cancelled
        #[arg(long, value_name = "STATUS")]
        state: Option<String>,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Shows a batch as JSON, with the reasons if it failed
    Show {
        /// The batch's id
        id: String,
    },
    /// Cancels a batch; its finished results stay readable and are charged
    ///
    /// Requires a running gateway.
    Cancel {
        /// The batch's id
        id: String,
    },
}

/// Runs `penstock batches`.
///
/// # Errors
/// Returns the error message of the gateway, or the reason why neither gateway nor store can be reached.
pub fn run(batches: BatchesArgs) -> Result<(), String> {
    let backend =
        AdminBackend::connect(&gateway_access(&batches.reached.source()?)?, ExpectedStore::Existing)?;
    match batches.command {
        BatchesCommand::List { account, state, output } => {
            let account = account.as_deref().map(|account| ("account", account));
            let state = state.as_deref().map(|state| ("state", state));
            let query: Vec<(&str, &str)> = account.into_iter().chain(state).collect();
            let all = backend.read_all_rows("/admin/batches", &query)?;
            let heading =
                ["ID", "ACCOUNT", "ENDPOINT", "STATUS", "LINES", "DONE", "FAILED", "CREATED", "WINDOW ENDS"];
            output.print(&Listing::new(&heading).with_rows(all.iter().map(row)), || json!({ "data": all }))
        }
        BatchesCommand::Show { id } => print_json(&backend.send(&Method::GET, &path(&id, ""), &[], None)?),
        BatchesCommand::Cancel { id } => {
            let batch = backend.send(&Method::POST, &path(&id, "/cancel"), &[], None)?;
            let counts = batch.get("request_counts").cloned().unwrap_or_default();
            print_stdout(&format!(
                "Batch {id} is cancelled. Of {} lines, {} were completed and {} failed.\n",
                table_cell(&counts, "total"),
                table_cell(&counts, "completed"),
                table_cell(&counts, "failed")
            ))
        }
    }
}

fn path(id: &str, rest: &str) -> String {
    format!("/admin/batches/{}{rest}", encode_segment(id))
}

fn row(batch: &Value) -> Vec<String> {
    let counts = batch.get("request_counts").cloned().unwrap_or_default();
    let time = |name: &str| batch.get(name).and_then(Value::as_u64).map(format_rfc3339).unwrap_or_default();
    vec![
        table_cell(batch, "id"),
        table_cell(batch, "account"),
        table_cell(batch, "endpoint"),
        table_cell(batch, "status"),
        table_cell(&counts, "total"),
        table_cell(&counts, "completed"),
        table_cell(&counts, "failed"),
        time("created"),
        time("window_ends"),
    ]
}
