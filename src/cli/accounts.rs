//! `penstock accounts`: through the running gateway, or directly in its store when none runs.

use super::Reached;
use super::client::reach;
use super::limits::{Limits, shown, warnings};
use super::live::{cell, data, print};
use super::speak::{err, out};
use super::table::table;
use super::way::{Way, encoded};
use crate::civil::day;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value, json};

/// The command's arguments.
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
        /// Its id, which cannot be changed: letters, digits, `.`, `_` and `-`
        id: String,
        /// Its display name; by default the id
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        limits: Limits,
    },
    /// Lists accounts
    List {
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Shows an account as JSON: its limits and, while the gateway runs, what it has used and has left
    Show {
        /// Its id
        id: String,
    },
    /// Changes an account's name or limits
    Change {
        /// Its id
        id: String,
        /// Its display name
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        limits: Limits,
    },
    /// Disables all keys of an account until it is resumed, and cuts their open streams
    Suspend {
        /// Its id
        id: String,
    },
    /// Enables the keys of a suspended account again
    Resume {
        /// Its id
        id: String,
    },
    /// Lists limits, scopes and models of keys and accounts that match nothing; ends with 1 if there are any
    ///
    /// Only a running gateway can do this: it knows the catalogue, and which limits no request has met.
    Check {
        /// Print JSON instead of a list
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command.
pub fn run(accounts: Accounts) -> Result<(), String> {
    let way = Way::to(&reach(&accounts.reached.source())?)?;
    match accounts.command {
        Command::Create { id, name, limits } => {
            let mut body = members(name, &limits);
            body.insert("id".to_owned(), id.into());
            let made = way.ask(&Method::POST, "/admin/accounts", &[], Some(&Value::Object(body)))?;
            said(&made, "created")
        }
        Command::List { json } => list(&way, json),
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
        Command::Check { json } => check(&way, json),
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

fn list(way: &Way, json: bool) -> Result<(), String> {
    let all = way.every("/admin/accounts", &[])?;
    if json {
        return print(&json!({ "data": all }));
    }
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|account| {
            let made = account.get("created").and_then(Value::as_u64).map(day).unwrap_or_default();
            vec![cell(account, "id"), cell(account, "name"), made, cell(account, "state"), shown(account)]
        })
        .collect();
    out(&table(&["ID", "NAME", "CREATED", "STATE", "LIMITS"], &rows))
}

fn check(way: &Way, json: bool) -> Result<(), String> {
    let found = way.ask(&Method::GET, "/admin/unmatched", &[], None)?;
    if json {
        return print(&found);
    }
    let mut text = String::new();
    for item in data(&found) {
        let (kind, id) = match item.get("key") {
            Some(_) => ("key", cell(item, "key")),
            None => ("account", cell(item, "account")),
        };
        for warning in item.get("warnings").and_then(Value::as_array).into_iter().flatten() {
            text.push_str(&format!("{kind} {id}: {}\n", warning.as_str().unwrap_or_default()));
        }
    }
    if text.is_empty() {
        return out("All limits, scopes and models of keys and accounts match something.\n");
    }
    out(&text)?;
    Err(format!("{} of them match nothing.", text.lines().count()))
}
