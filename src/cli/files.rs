//! `penstock files`: files of all accounts, through the running gateway, or read from its store if no gateway runs.

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
pub struct FilesArgs {
    #[command(flatten)]
    reached: ConfigArgs,
    #[command(subcommand)]
    command: FilesCommand,
}

#[derive(Debug, Subcommand)]
enum FilesCommand {
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
    /// Deletes a file; an unfinished batch that reads it ends as failed first
    ///
    /// Requires a running gateway.
    Delete {
        /// The file's id
        id: String,
    },
}

/// Runs `penstock files`.
///
/// # Errors
/// Returns the error message of the gateway, or the reason why neither gateway nor store can be reached.
pub fn run(files: FilesArgs) -> Result<(), String> {
    let backend = AdminBackend::connect(&gateway_access(&files.reached.source()?)?, ExpectedStore::Existing)?;
    match files.command {
        FilesCommand::List { account, purpose, output } => {
            let account = account.as_deref().map(|account| ("account", account));
            let purpose = purpose.as_deref().map(|purpose| ("purpose", purpose));
            let query: Vec<(&str, &str)> = account.into_iter().chain(purpose).collect();
            let all = backend.read_all_rows("/admin/files", &query)?;
            let heading =
                ["ID", "ACCOUNT", "PURPOSE", "STATUS", "BYTES", "LINES", "CREATED", "EXPIRES", "NAME"];
            output.print(&Listing::new(&heading).with_rows(all.iter().map(row)), || json!({ "data": all }))
        }
        FilesCommand::Show { id } => print_json(&backend.send(&Method::GET, &path(&id), &[], None)?),
        FilesCommand::Delete { id } => {
            backend.send(&Method::DELETE, &path(&id), &[], None)?;
            print_stdout(&format!("File {id} is deleted.\n"))
        }
    }
}

fn path(id: &str) -> String {
    format!("/admin/files/{}", encode_segment(id))
}

fn row(file: &Value) -> Vec<String> {
    let time = |name: &str| file.get(name).and_then(Value::as_u64).map(format_rfc3339).unwrap_or_default();
    let mut row =
        ["id", "account", "purpose", "status", "bytes", "lines"].map(|name| table_cell(file, name)).to_vec();
    row.extend([time("created"), time("expires"), table_cell(file, "filename")]);
    row
}
