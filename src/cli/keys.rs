//! `penstock keys`: through the running gateway, or directly in its store when none runs.

use super::Reached;
use super::backend::{Way, now};
use super::client::reach;
use super::limits::{Limits, shown, warnings};
use super::listing::{Listing, OutputArgs};
use super::output::{err, out};
use super::status::{cell, print};
use crate::config::duration;
use crate::time::format::{day, rfc3339};
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Arguments of the command.
#[derive(Debug, Args)]
pub struct Keys {
    #[command(flatten)]
    reached: Reached,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Creates a key and prints it once; it cannot be shown again
    ///
    /// Only the key goes to standard output, so `KEY=$(penstock keys create)` works.
    Create(Create),
    /// Lists keys; their secrets are not stored and not shown
    List {
        /// Only the keys of this account
        #[arg(long)]
        account: Option<String>,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Shows a key as JSON: its permissions and limits and, while the gateway runs, what it has used and has left
    Show {
        /// Id of the key: the 16 characters after `sk-svc-`
        id: String,
    },
    /// Changes a key's name, permissions, limits or expiry
    Change(Change),
    /// Gives a key a new secret and prints it once; the old one stays valid for a while
    ///
    /// Only the key goes to standard output.
    Rotate {
        /// Id of the key: the 16 characters after `sk-svc-`
        id: String,
        /// Time for which the old secret stays valid, at most 7d; 0s ends it at once
        #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = span)]
        overlap: Duration,
    },
    /// Revokes a key at once, and cuts its open streams
    Revoke {
        /// Id of the key, as `keys list` shows it: the 16 characters after `sk-svc-`
        id: String,
    },
}

#[derive(Debug, Args)]
struct Create {
    /// Display name
    #[arg(long, default_value = "", hide_default_value = true)]
    name: String,
    /// Account of the key
    #[arg(long, default_value = "default")]
    account: String,
    /// Scope to allow; repeatable: inference.chat, inference.models, inference.* …
    #[arg(long = "scope", value_name = "SCOPE", default_value = "inference.*")]
    scopes: Vec<String>,
    /// Model to allow; repeatable; by default all
    #[arg(long = "model", value_name = "MODEL")]
    models: Vec<String>,
    /// Time until the key expires, such as 12h or 30d
    #[arg(long, value_name = "DURATION", value_parser = after)]
    expires: Option<Duration>,
    #[command(flatten)]
    limits: Limits,
}

#[derive(Debug, Args)]
struct Change {
    /// Id of the key: the 16 characters after `sk-svc-`
    id: String,
    /// Display name
    #[arg(long)]
    name: Option<String>,
    /// Scope to allow, replacing the current scopes; repeatable
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<String>,
    /// Model to allow, replacing the current models; repeatable
    #[arg(long = "model", value_name = "MODEL", conflicts_with = "all_models")]
    models: Vec<String>,
    /// Allow every model
    #[arg(long)]
    all_models: bool,
    /// Time from now until the key expires, such as 12h or 30d; or never
    #[arg(long, value_name = "DURATION", value_parser = after_or_never)]
    expires: Option<Expiry>,
    #[command(flatten)]
    limits: Limits,
}

/// Requested expiry of a key.
#[derive(Clone, Copy, Debug)]
enum Expiry {
    After(Duration),
    Never,
}

fn after(text: &str) -> Result<Duration, String> {
    let sentence = "This is not a duration above zero: write something like 12h or 30d.";
    duration(text).filter(|duration| !duration.is_zero()).ok_or_else(|| sentence.to_owned())
}

fn after_or_never(text: &str) -> Result<Expiry, String> {
    if text == "never" { Ok(Expiry::Never) } else { after(text).map(Expiry::After) }
}

fn span(text: &str) -> Result<Duration, String> {
    duration(text).ok_or_else(|| "This is not a duration: write something like 12h, 7d or 0s.".to_owned())
}

/// Runs the command.
pub fn run(keys: Keys) -> Result<(), String> {
    let reach = reach(&keys.reached.source()?)?;
    let way = Way::to(&reach)?;
    match keys.command {
        Command::Create(create) => make(&way, &create),
        Command::List { account, output } => list(&way, account.as_deref(), output),
        Command::Show { id } => print(&way.ask(&Method::GET, &path(&id, "")?, &[], None)?),
        Command::Change(change) => alter(&way, change),
        Command::Rotate { id, overlap } => {
            let body = json!({ "overlap_seconds": overlap.as_secs() });
            let key = way.ask(&Method::POST, &path(&id, "/rotate")?, &[], Some(&body))?;
            let until = key.get("previous_good_until").and_then(Value::as_u64).map(rfc3339);
            let old =
                until.map_or_else(|| "no longer valid".to_owned(), |until| format!("valid until {until}"));
            err(&format!(
                "Key {} has a new secret; the old one is {old}. The new one is shown only now:\n",
                cell(&key, "id")
            ));
            out(&format!("{}\n", cell(&key, "key")))
        }
        Command::Revoke { id } => {
            let answer = way.ask(&Method::POST, &path(&id, "/revoke")?, &[], None)?;
            out(&if answer.get("already") == Some(&Value::Bool(true)) {
                format!("Key {id} was already revoked.\n")
            } else {
                format!("Key {id} is revoked.\n")
            })
        }
    }
}

fn path(id: &str, what: &str) -> Result<String, String> {
    if id.len() != 16 || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        // The argument may be a complete key with its secret, so the message does not repeat it.
        return Err("An id is 16 letters and digits, as `penstock keys list` shows it.".to_owned());
    }
    Ok(format!("/admin/keys/{id}{what}"))
}

fn make(way: &Way, create: &Create) -> Result<(), String> {
    let body = json!({
        "name": create.name,
        "account": create.account,
        "scopes": create.scopes,
        "models": if create.models.is_empty() { Value::Null } else { json!(create.models) },
        "expires": create.expires.map(|after| now().saturating_add(after.as_secs())),
        "limits": create.limits.written().unwrap_or_else(|| json!({})),
    });
    let key = way.ask(&Method::POST, "/admin/keys", &[], Some(&body))?;
    err(&warnings(&key));
    err(&format!(
        "Key {} of account {} may use {}. It is shown only now:\n",
        cell(&key, "id"),
        cell(&key, "account"),
        cell(&key, "scopes"),
    ));
    out(&format!("{}\n", cell(&key, "key")))
}

fn alter(way: &Way, change: Change) -> Result<(), String> {
    let path = path(&change.id, "")?;
    let mut body = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        body.extend(value.map(|value| (name.to_owned(), value)));
    };
    put("name", change.name.map(Value::from));
    put("scopes", (!change.scopes.is_empty()).then(|| json!(change.scopes)));
    put("models", (!change.models.is_empty()).then(|| json!(change.models)));
    put("models", change.all_models.then_some(Value::Null));
    put(
        "expires",
        change.expires.map(|expiry| match expiry {
            Expiry::Never => Value::Null,
            Expiry::After(after) => now().saturating_add(after.as_secs()).into(),
        }),
    );
    put("limits", change.limits.written());
    if body.is_empty() {
        return Err(
            "No change was given; `penstock keys change --help` lists what can be changed.".to_owned()
        );
    }
    let key = way.ask(&Method::PATCH, &path, &[], Some(&Value::Object(body)))?;
    err(&warnings(&key));
    let limits = shown(&key);
    let limits = if limits.is_empty() { "without limits".to_owned() } else { limits };
    out(&format!("Key {} is changed: it may use {}, {limits}.\n", cell(&key, "id"), cell(&key, "scopes")))
}

fn list(way: &Way, account: Option<&str>, output: OutputArgs) -> Result<(), String> {
    let account = account.map(|account| ("account", account));
    let all = way.every("/admin/keys", &account.into_iter().collect::<Vec<_>>())?;
    let heading = ["ID", "NAME", "ACCOUNT", "SCOPES", "MODELS", "LIMITS", "CREATED", "LAST USED", "STATE"];
    let listing = Listing::new(&heading).with_rows(all.iter().map(|key| row(key, now())));
    output.print(&listing, || json!({ "data": all }))
}

fn row(key: &Value, now: u64) -> Vec<String> {
    let cell = |name: &str| cell(key, name);
    let at = |name: &str| key.get(name).and_then(Value::as_u64);
    let models =
        if key.get("models").is_some_and(Value::is_array) { cell("models") } else { "all".to_owned() };
    let state = match (at("revoked"), at("expires")) {
        (Some(_), _) => "revoked".to_owned(),
        (None, Some(end)) if end <= now => "expired".to_owned(),
        (None, Some(end)) => format!("valid until {}", day(end)),
        (None, None) => "valid".to_owned(),
    };
    vec![
        cell("id"),
        cell("name"),
        cell("account"),
        cell("scopes"),
        models,
        shown(key),
        at("created").map(day).unwrap_or_default(),
        at("last_used").map_or_else(|| "never".to_owned(), day),
        state,
    ]
}
