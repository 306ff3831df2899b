//! `penstock files`: files of all accounts, through the running gateway, or read from its store when none runs.

use super::Reached;
use super::backend::{Way, encoded};
use super::client::reach;
use super::listing::{Listing, OutputArgs};
use super::output::out;
use super::status::{cell, print};
use crate::time::format::rfc3339;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

/// Arguments of the command.
#[derive(Debug, Args)]
pub struct Files {
    #[command(flatten)]
    reached: Reached,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists files, the oldest first; contents are not shown
    List {
        /// Only files of this account
        #[arg(long)]
        account: Option<String>,
        /// Only files with this purpose: batch or batch_output
        #[arg(long)]
        purpose: Option<String>,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Shows a file as JSON, without its contents
    Show {
        /// The file's id
        id: String,
    },
    /// Deletes a file; a batch that reads it is cancelled first
    ///
    /// Requires a running gateway.
    Delete {
        /// The file's id
        id: String,
    },
}

/// Runs the command.
///
/// # Errors
/// Returns the error message of the gateway, or the reason why neither gateway nor store can be reached.
pub fn run(files: Files) -> Result<(), String> {
    let way = Way::to(&reach(&files.reached.source()?)?)?;
    match files.command {
        Command::List { account, purpose, output } => {
            let account = account.as_deref().map(|account| ("account", account));
            let purpose = purpose.as_deref().map(|purpose| ("purpose", purpose));
            let query: Vec<(&str, &str)> = account.into_iter().chain(purpose).collect();
            let all = way.every("/admin/files", &query)?;
            let heading =
                ["ID", "ACCOUNT", "PURPOSE", "STATUS", "BYTES", "LINES", "CREATED", "EXPIRES", "NAME"];
            output.print(&Listing::new(&heading).with_rows(all.iter().map(row)), || json!({ "data": all }))
        }
        Command::Show { id } => print(&way.ask(&Method::GET, &path(&id), &[], None)?),
        Command::Delete { id } => {
            way.ask(&Method::DELETE, &path(&id), &[], None)?;
            out(&format!("File {id} is deleted.\n"))
        }
    }
}

fn path(id: &str) -> String {
    format!("/admin/files/{}", encoded(id))
}

fn row(file: &Value) -> Vec<String> {
    let time = |name: &str| file.get(name).and_then(Value::as_u64).map(rfc3339).unwrap_or_default();
    let mut row =
        ["id", "account", "purpose", "status", "bytes", "lines"].map(|name| cell(file, name)).to_vec();
    row.extend([time("created"), time("expires"), cell(file, "filename")]);
    row
}
