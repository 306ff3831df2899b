//! `penstock accounts`: creates, lists and changes accounts, through the running gateway, or directly in
//! its store if no gateway runs.

use super::ConfigArgs;
use super::backend::{AdminBackend, ExpectedStore, encode_segment};
use super::client::gateway_access;
use super::limits::{LimitArgs, format_limits, format_response_warnings};
use super::listing::{Listing, OutputArgs, OutputFormat};
use super::output::{print_stderr, print_stdout};
use super::status::{print_json, response_rows, table_cell};
use crate::time::format::format_day;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value, json};

/// Arguments of the command.
#[derive(Debug, Args)]
pub struct AccountsArgs {
    #[command(flatten)]
    reached: ConfigArgs,
    #[command(subcommand)]
    command: AccountsCommand,
}

#[derive(Debug, Subcommand)]
enum AccountsCommand {
    /// Creates an account
    Create {
        /// Id of the new account, which cannot be changed: letters, digits, `.`, `_` and `-`
        id: String,
        /// Display name; by default the id
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        limits: LimitArgs,
    },
    /// Lists accounts
    List {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Shows an account as JSON: its limits and, while the gateway runs, what it has used and has left
    Show {
        /// Id of the account
        id: String,
    },
    /// Changes an account's name or limits
    Change {
        /// Id of the account
        id: String,
        /// Display name
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        limits: LimitArgs,
    },
    /// Disables all keys of an account until it is resumed, and cuts their open streams
    Suspend {
        /// Id of the account
        id: String,
    },
    /// Enables the keys of a suspended account again
    Resume {
        /// Id of the account
        id: String,
    },
    /// Lists limits, scopes and models of keys and accounts that match nothing; ends with 1 if there are any
    ///
    /// Requires a running gateway: it has the catalogue, and counts to how many requests each limit has applied.
    Check {
        #[command(flatten)]
        output: OutputArgs,
    },
}

/// Runs `penstock accounts`.
pub fn run(accounts: AccountsArgs) -> Result<(), String> {
    let expected = match accounts.command {
        AccountsCommand::Create { .. } => ExpectedStore::ExistingOrNew,
        _ => ExpectedStore::Existing,
    };
    let backend = AdminBackend::connect(&gateway_access(&accounts.reached.source()?)?, expected)?;
    match accounts.command {
        AccountsCommand::Create { id, name, limits } => {
            let mut body = body_members(name, &limits);
            body.insert("id".to_owned(), id.into());
            let made = backend.send(&Method::POST, "/admin/accounts", &[], Some(&Value::Object(body)))?;
            print_account(&made, "created")
        }
        AccountsCommand::List { output } => list(&backend, output),
        AccountsCommand::Show { id } => print_json(&backend.send(&Method::GET, &path(&id), &[], None)?),
        AccountsCommand::Change { id, name, limits } => {
            let body = body_members(name, &limits);
            if body.is_empty() {
                return Err(
                    "No change was given; `penstock accounts change --help` lists what can be changed."
                        .to_owned(),
                );
            }
            print_account(
                &backend.send(&Method::PATCH, &path(&id), &[], Some(&Value::Object(body)))?,
                "changed",
            )
        }
        AccountsCommand::Suspend { id } => set_state(&backend, &id, "suspended"),
        AccountsCommand::Resume { id } => set_state(&backend, &id, "active"),
        AccountsCommand::Check { output } => check(&backend, output),
    }
}

fn set_state(backend: &AdminBackend, id: &str, state: &str) -> Result<(), String> {
    print_account(&backend.send(&Method::PATCH, &path(id), &[], Some(&json!({ "state": state })))?, state)
}

fn path(id: &str) -> String {
    format!("/admin/accounts/{}", encode_segment(id))
}

fn body_members(name: Option<String>, limits: &LimitArgs) -> Map<String, Value> {
    let name = name.map(|name| ("name".to_owned(), name.into()));
    name.into_iter().chain(limits.to_json().map(|limits| ("limits".to_owned(), limits))).collect()
}

fn print_account(account: &Value, done: &str) -> Result<(), String> {
    print_stderr(&format_response_warnings(account));
    let limits = format_limits(account);
    let limits = if limits.is_empty() { "without limits".to_owned() } else { limits };
    print_stdout(&format!("Account {} is {done}: {limits}.\n", table_cell(account, "id")))
}

fn list(backend: &AdminBackend, output: OutputArgs) -> Result<(), String> {
    let all = backend.read_all_rows("/admin/accounts", &[])?;
    let rows = all.iter().map(|account| {
        let created = account.get("created").and_then(Value::as_u64).map(format_day).unwrap_or_default();
        vec![
            table_cell(account, "id"),
            table_cell(account, "name"),
            created,
            table_cell(account, "state"),
            format_limits(account),
        ]
    });
    let listing = Listing::new(&["ID", "NAME", "CREATED", "STATE", "LIMITS"]).with_rows(rows);
    output.print(&listing, || json!({ "data": all }))
}

fn check(backend: &AdminBackend, output: OutputArgs) -> Result<(), String> {
    let found = backend.send(&Method::GET, "/admin/unmatched", &[], None)?;
    let mut rows = Vec::new();
    for item in response_rows(&found) {
        let (kind, id) = match item.get("key") {
            Some(_) => ("key", table_cell(item, "key")),
            None => ("account", table_cell(item, "account")),
        };
        for warning in item.get("warnings").and_then(Value::as_array).into_iter().flatten() {
            let finding = warning.as_str().unwrap_or_default();
            rows.push(vec![kind.to_owned(), id.clone(), finding.to_owned()]);
        }
    }
    if rows.is_empty() && output.output_format() == OutputFormat::Table {
        return print_stdout("All limits, scopes and models of keys and accounts match something.\n");
    }
    let count = rows.len();
    output.print(&Listing::new(&["OF", "ID", "FINDING"]).with_rows(rows), || found.clone())?;
    if count == 0 { Ok(()) } else { Err(format!("Limits, scopes or models that match nothing: {count}.")) }
}
