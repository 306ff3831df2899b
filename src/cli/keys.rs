//! `penstock keys`: creates, lists, changes and revokes API keys, through the running gateway, or directly in
//! its store if no gateway runs.

use super::ConfigArgs;
use super::backend::{AdminBackend, ExpectedStore, unix_now};
use super::client::gateway_access;
use super::limits::{LimitArgs, format_limits, format_response_warnings};
use super::listing::{Listing, OutputArgs};
use super::output::{print_stderr, print_stdout, write_stdout};
use super::status::{print_json, table_cell};
use crate::config::{is_too_long_duration, parse_duration};
use crate::time::format::{format_day, format_rfc3339};
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Arguments of the command.
#[derive(Debug, Args)]
pub struct KeysArgs {
    #[command(flatten)]
    reached: ConfigArgs,
    #[command(subcommand)]
    command: KeysCommand,
}

#[derive(Debug, Subcommand)]
enum KeysCommand {
    /// Creates a key and prints it once; it cannot be shown again
    ///
    /// Only the key goes to standard output, so `KEY=$(penstock keys create)` works.
    Create(CreateKeyArgs),
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
    Change(ChangeKeyArgs),
    /// Gives a key a new secret and prints it once; the old one stays valid for a while
    ///
    /// Only the key goes to standard output.
    Rotate {
        /// Id of the key: the 16 characters after `sk-svc-`
        id: String,
        /// Time for which the old secret stays valid, at most 7d; 0s ends it at once
        #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = parse_overlap)]
        overlap: Duration,
        /// End at once a secret from before the last rotation that is still valid
        #[arg(long)]
        end_previous: bool,
    },
    /// Revokes a key at once, and cuts its open streams
    Revoke {
        /// Id of the key, as `keys list` shows it: the 16 characters after `sk-svc-`
        id: String,
    },
}

#[derive(Debug, Args)]
struct CreateKeyArgs {
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
    /// Store responses for requests with `store: true`
    #[arg(long)]
    store_responses: bool,
    /// Time until the key expires, such as 12h or 30d
    #[arg(long, value_name = "DURATION", value_parser = after)]
    expires: Option<Duration>,
    #[command(flatten)]
    limits: LimitArgs,
}

#[derive(Debug, Args)]
struct ChangeKeyArgs {
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
    /// Store responses for requests with `store: true`, or not
    #[arg(long, value_name = "BOOL")]
    store_responses: Option<bool>,
    /// Time from now until the key expires, such as 12h or 30d; or never
    #[arg(long, value_name = "DURATION", value_parser = after_or_never)]
    expires: Option<ExpiryArg>,
    #[command(flatten)]
    limits: LimitArgs,
}

/// Requested expiry of a key.
#[derive(Clone, Copy, Debug)]
enum ExpiryArg {
    After(Duration),
    Never,
}

fn after(text: &str) -> Result<Duration, String> {
    let sentence = match is_too_long_duration(text) {
        true => "The longest duration is 366d.",
        false => "This is not a duration above zero: write something like 12h or 30d.",
    };
    parse_duration(text).filter(|duration| !duration.is_zero()).ok_or_else(|| sentence.to_owned())
}

fn after_or_never(text: &str) -> Result<ExpiryArg, String> {
    if text == "never" { Ok(ExpiryArg::Never) } else { after(text).map(ExpiryArg::After) }
}

fn parse_overlap(text: &str) -> Result<Duration, String> {
    parse_duration(text)
        .ok_or_else(|| "This is not a duration: write something like 12h, 7d or 0s.".to_owned())
}

/// Runs `penstock keys`.
pub fn run(keys: KeysArgs) -> Result<(), String> {
    let reach = gateway_access(&keys.reached.source()?)?;
    let expected = match keys.command {
        KeysCommand::Create(_) => ExpectedStore::ExistingOrNew,
        _ => ExpectedStore::Existing,
    };
    let backend = AdminBackend::connect(&reach, expected)?;
    match keys.command {
        KeysCommand::Create(create) => create_key(&backend, &create),
        KeysCommand::List { account, output } => list(&backend, account.as_deref(), output),
        KeysCommand::Show { id } => print_json(&backend.send(&Method::GET, &path(&id, "")?, &[], None)?),
        KeysCommand::Change(change) => change_key(&backend, change),
        KeysCommand::Rotate { id, overlap, end_previous } => {
            let overlap = overlap.as_secs();
            let body = if end_previous {
                json!({ "overlap_seconds": overlap, "end_previous": true })
            } else {
                json!({ "overlap_seconds": overlap })
            };
            let key = backend.send(&Method::POST, &path(&id, "/rotate")?, &[], Some(&body))?;
            let until = key.get("previous_good_until").and_then(Value::as_u64).map(format_rfc3339);
            let old =
                until.map_or_else(|| "no longer valid".to_owned(), |until| format!("valid until {until}"));
            print_stderr(&format!(
                "Key {} has a new secret; the old one is {old}. The new one is shown only now:\n",
                table_cell(&key, "id")
            ));
            print_secret(&key)
        }
        KeysCommand::Revoke { id } => {
            let answer = backend.send(&Method::POST, &path(&id, "/revoke")?, &[], None)?;
            print_stdout(&if answer.get("already") == Some(&Value::Bool(true)) {
                format!("Key {id} was already revoked.\n")
            } else {
                format!("Key {id} is revoked.\n")
            })
        }
    }
}

fn path(id: &str, suffix: &str) -> Result<String, String> {
    if id.len() != 16 || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        // The argument may be a complete key with its secret, so the message does not repeat it.
        return Err("An id is 16 letters and digits, as `penstock keys list` shows it.".to_owned());
    }
    Ok(format!("/admin/keys/{id}{suffix}"))
}

fn create_key(backend: &AdminBackend, create: &CreateKeyArgs) -> Result<(), String> {
    let body = json!({
        "name": create.name,
        "account": create.account,
        "scopes": create.scopes,
        "models": if create.models.is_empty() { Value::Null } else { json!(create.models) },
        "store_responses": create.store_responses,
        "expires": create.expires.map(|after| unix_now().saturating_add(after.as_secs())),
        "limits": create.limits.to_json().unwrap_or_else(|| json!({})),
    });
    let key = backend.send(&Method::POST, "/admin/keys", &[], Some(&body))?;
    print_stderr(&format_response_warnings(&key));
    print_stderr(&format!(
        "Key {} of account {} may use {}. It is shown only now:\n",
        table_cell(&key, "id"),
        table_cell(&key, "account"),
        table_cell(&key, "scopes"),
    ));
    print_secret(&key)
}

/// Prints the secret of a new or rotated key, the only line on standard output.
///
/// # Errors
/// Returns how to continue if the secret could not be written, because it cannot be shown again.
fn print_secret(key: &Value) -> Result<(), String> {
    write_stdout(&format!("{}\n", table_cell(key, "key"))).map_err(|error| {
        let id = table_cell(key, "id");
        format!(
            "The secret of key {id} cannot be written to standard output: {error}. The key is valid, but nobody has its \
             secret: make a new one with `penstock keys rotate {id} --overlap 0s`, or revoke the key with `penstock keys \
             revoke {id}`."
        )
    })
}

fn change_key(backend: &AdminBackend, change: ChangeKeyArgs) -> Result<(), String> {
    let path = path(&change.id, "")?;
    let mut body = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        body.extend(value.map(|value| (name.to_owned(), value)));
    };
    put("name", change.name.map(Value::from));
    put("scopes", (!change.scopes.is_empty()).then(|| json!(change.scopes)));
    put("models", (!change.models.is_empty()).then(|| json!(change.models)));
    put("models", change.all_models.then_some(Value::Null));
    put("store_responses", change.store_responses.map(Value::from));
    put(
        "expires",
        change.expires.map(|expiry| match expiry {
            ExpiryArg::Never => Value::Null,
            ExpiryArg::After(after) => unix_now().saturating_add(after.as_secs()).into(),
        }),
    );
    put("limits", change.limits.to_json());
    if body.is_empty() {
        return Err(
            "No change was given; `penstock keys change --help` lists what can be changed.".to_owned()
        );
    }
    let key = backend.send(&Method::PATCH, &path, &[], Some(&Value::Object(body)))?;
    print_stderr(&format_response_warnings(&key));
    if key.get("revoked").is_some_and(Value::is_u64) {
        print_stderr("warning: The key is revoked, and a change does not make it valid again.\n");
    }
    let limits = format_limits(&key);
    let limits = if limits.is_empty() { "without limits".to_owned() } else { limits };
    print_stdout(&format!(
        "Key {} is changed: it may use {}, {limits}.\n",
        table_cell(&key, "id"),
        table_cell(&key, "scopes")
    ))
}

fn list(backend: &AdminBackend, account: Option<&str>, output: OutputArgs) -> Result<(), String> {
    let account = account.map(|account| ("account", account));
    let all = backend.read_all_rows("/admin/keys", &account.into_iter().collect::<Vec<_>>())?;
    let heading =
        ["ID", "NAME", "ACCOUNT", "SCOPES", "MODELS", "LIMITS", "STORES", "CREATED", "LAST USED", "STATE"];
    let listing = Listing::new(&heading).with_rows(all.iter().map(|key| row(key, unix_now())));
    output.print(&listing, || json!({ "data": all }))
}

fn row(key: &Value, now: u64) -> Vec<String> {
    let cell = |name: &str| table_cell(key, name);
    let at = |name: &str| key.get(name).and_then(Value::as_u64);
    let models =
        if key.get("models").is_some_and(Value::is_array) { cell("models") } else { "all".to_owned() };
    let state = match (at("revoked"), at("expires")) {
        (Some(_), _) => "revoked".to_owned(),
        (None, Some(end)) if end <= now => "expired".to_owned(),
        (None, Some(end)) => format!("valid until {}", format_day(end)),
        (None, None) => "valid".to_owned(),
    };
    let stores = match key.get("store_responses").and_then(Value::as_bool) {
        Some(true) => "responses",
        _ => "nothing",
    };
    vec![
        cell("id"),
        cell("name"),
        cell("account"),
        cell("scopes"),
        models,
        format_limits(key),
        stores.to_owned(),
        at("created").map(format_day).unwrap_or_default(),
        at("last_used").map_or_else(|| "never".to_owned(), format_day),
        state,
    ]
}
