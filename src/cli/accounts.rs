//! `penstock accounts`: through the running gateway, or directly in its store when none runs.

use super::Reached;
use super::backend::{Way, encoded};
use super::client::reach;
use super::limits::{Limits, shown, warnings};
use super::listing::{Listing, OutputArgs, OutputFormat};
use super::output::{err, out};
use super::status::{cell, data, print};
use crate::time::format::day;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value, json};

/// Arguments of the command.
#[derive(Debug, Args)]
pub struct Accounts {
    #[command(flatten)]
    reached: Reached,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Creates an account
    Create {
        /// Id of the new account, which cannot be changed: letters, digits, `.`, `_` and `-`
        id: String,
        /// Display name; by default the id
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        limits: Limits,
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
        limits: Limits,
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
    /// Requires a running gateway, which knows the catalogue and the limits that no request has met.
    Check {
        #[command(flatten)]
        output: OutputArgs,
    },
}

/// Runs the command.
pub fn run(accounts: Accounts) -> Result<(), String> {
    let way = Way::to(&reach(&accounts.reached.source()?)?)?;
    match accounts.command {
        Command::Create { id, name, limits } => {
            let mut body = members(name, &limits);
            body.insert("id".to_owned(), id.into());
            let made = way.ask(&Method::POST, "/admin/accounts", &[], Some(&Value::Object(body)))?;
            said(&made, "created")
        }
        Command::List { output } => list(&way, output),
        Command::Show { id } => print(&way.ask(&Method::GET, &path(&id), &[], None)?),
        Command::Change { id, name, limits } => {
            let body = members(name, &limits);
            if body.is_empty() {
                return Err(
                    "No change was given; `penstock accounts change --help` lists what can be changed."
                        .to_owned(),
                );
            }
            said(&way.ask(&Method::PATCH, &path(&id), &[], Some(&Value::Object(body)))?, "changed")
        }
        Command::Suspend { id } => state(&way, &id, "suspended"),
        Command::Resume { id } => state(&way, &id, "active"),
        Command::Check { output } => check(&way, output),
    }
}

fn state(way: &Way, id: &str, state: &str) -> Result<(), String> {
    said(&way.ask(&Method::PATCH, &path(id), &[], Some(&json!({ "state": state })))?, state)
}

fn path(id: &str) -> String {
    format!("/admin/accounts/{}", encoded(id))
}

fn members(name: Option<String>, limits: &Limits) -> Map<String, Value> {
    let name = name.map(|name| ("name".to_owned(), name.into()));
    name.into_iter().chain(limits.written().map(|limits| ("limits".to_owned(), limits))).collect()
}

fn said(account: &Value, done: &str) -> Result<(), String> {
    err(&warnings(account));
    let limits = shown(account);
    let limits = if limits.is_empty() { "without limits".to_owned() } else { limits };
    out(&format!("Account {} is {done}: {limits}.\n", cell(account, "id")))
}

fn list(way: &Way, output: OutputArgs) -> Result<(), String> {
    let all = way.every("/admin/accounts", &[])?;
    let rows = all.iter().map(|account| {
        let created = account.get("created").and_then(Value::as_u64).map(day).unwrap_or_default();
        vec![cell(account, "id"), cell(account, "name"), created, cell(account, "state"), shown(account)]
    });
    let listing = Listing::new(&["ID", "NAME", "CREATED", "STATE", "LIMITS"]).with_rows(rows);
    output.print(&listing, || json!({ "data": all }))
}

fn check(way: &Way, output: OutputArgs) -> Result<(), String> {
    let found = way.ask(&Method::GET, "/admin/unmatched", &[], None)?;
    let mut rows = Vec::new();
    for item in data(&found) {
        let (kind, id) = match item.get("key") {
            Some(_) => ("key", cell(item, "key")),
            None => ("account", cell(item, "account")),
        };
        for warning in item.get("warnings").and_then(Value::as_array).into_iter().flatten() {
            let finding = warning.as_str().unwrap_or_default();
            rows.push(vec![kind.to_owned(), id.clone(), finding.to_owned()]);
        }
    }
    if rows.is_empty() && output.format() == OutputFormat::Table {
        return out("All limits, scopes and models of keys and accounts match something.\n");
    }
    let count = rows.len();
    output.print(&Listing::new(&["OF", "ID", "FINDING"]).with_rows(rows), || found.clone())?;
    if count == 0 { Ok(()) } else { Err(format!("{count} of them match nothing.")) }
}
