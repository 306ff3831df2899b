//! `penstock keys`: through the running gateway, or directly in its store when none runs.

use super::client::{Client, Failure, reach};
use super::live::{cell, data, print};
use super::speak::{err, out};
use super::table::table;
use super::{Reached, configuration};
use crate::admin::keys::{Wanted, every, make, told};
use crate::config::{Reach, Report, duration};
use crate::vault::Vault;
use clap::{Args, Subcommand};
use penstock_storage::keys::Revocation;
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// The command's arguments.
#[derive(Debug, Args)]
pub struct Keys {
    #[command(flatten)]
    reached: Reached,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Makes a key and prints it, this once
    ///
    /// Standard output is the key alone, so that `KEY=$(penstock keys create)` holds it.
    Create(Create),
    /// Lists keys; the secret part is nowhere to be shown
    List {
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Revokes a key at once, and cuts the streams it has open
    Revoke {
        /// The key's id, as `keys list` shows it: the 16 characters after `sk-svc-`
        id: String,
    },
}

#[derive(Debug, Args)]
struct Create {
    /// What its owner calls it
    #[arg(long, default_value = "", hide_default_value = true)]
    name: String,
    /// The account it belongs to
    #[arg(long, default_value = "default")]
    account: String,
    /// What it may do; may be given several times: inference.chat, inference.models, inference.* …
    #[arg(long = "scope", value_name = "SCOPE", default_value = "inference.*")]
    scopes: Vec<String>,
    /// A model it may use; may be given several times; without it all
    #[arg(long = "model", value_name = "MODEL")]
    models: Vec<String>,
    /// After this long it is good no more, such as 12h or 30d
    #[arg(long, value_name = "DURATION", value_parser = after)]
    expires: Option<std::time::Duration>,
}

fn after(text: &str) -> Result<std::time::Duration, String> {
    let sentence = "It is not a duration of more than nothing: write something like 12h or 30d.";
    duration(text).filter(|duration| !duration.is_zero()).ok_or_else(|| sentence.to_owned())
}

/// Runs the command.
pub fn run(keys: Keys) -> Result<(), String> {
    let reach = reach(&keys.reached.source())?;
    let way = match Client::new(&reach) {
        Ok(client) => Way::Gateway(client),
        Err(Failure::NotRunning(_)) => Way::Store(Box::new(store(&reach)?)),
        Err(Failure::Other(why)) => return Err(why),
    };
    match keys.command {
        Command::Create(create) => way.create(&create),
        Command::List { json } => way.list(json),
        Command::Revoke { id } => way.revoke(&id),
    }
}

/// How keys are got at.
enum Way {
    /// Through the admin listener.
    Gateway(Client),
    /// Directly.
    Store(Box<Vault>),
}

fn store(reach: &Reach) -> Result<Vault, String> {
    match &reach.storage {
        Ok(storage) => Vault::open(storage),
        Err(mistakes) => {
            let report = Report { mistakes: mistakes.clone(), warnings: Vec::new() };
            Err(configuration::refusal(&report, "the store cannot be opened"))
        }
    }
}

impl Way {
    fn create(&self, create: &Create) -> Result<(), String> {
        let now = now();
        let body = json!({
            "name": create.name,
            "account": create.account,
            "scopes": create.scopes,
            "models": if create.models.is_empty() { Value::Null } else { json!(create.models) },
            "expires": create.expires.map(|after| now.saturating_add(after.as_secs())),
        });
        let (record, key) = match self {
            Self::Gateway(client) => {
                let answer = client.ask("POST", "/admin/keys", Some(&body))?;
                let key = cell(&answer, "key");
                (answer, key)
            }
            Self::Store(vault) => {
                let wanted = Wanted::read(&body, now).map_err(|refusal| refusal.message.into_owned())?;
                let (record, key) = make(&vault.keys, &vault.pepper.0, wanted, now)?;
                (told(&record), key)
            }
        };
        err(&format!(
            "Key {} of account {} may use {}. It is shown this once:\n",
            cell(&record, "id"),
            cell(&record, "account"),
            cell(&record, "scopes"),
        ));
        out(&format!("{key}\n"))
    }

    fn list(&self, json: bool) -> Result<(), String> {
        let answer = match self {
            Self::Gateway(client) => client.ask("GET", "/admin/keys", None)?,
            Self::Store(vault) => json!({ "data": every(&vault.keys)?.iter().map(told).collect::<Vec<_>>() }),
        };
        if json {
            return print(&answer);
        }
        let rows: Vec<Vec<String>> = data(&answer).iter().map(|key| row(key, now())).collect();
        out(&table(&["ID", "NAME", "ACCOUNT", "SCOPES", "MODELS", "CREATED", "LAST USED", "STATE"], &rows))
    }

    fn revoke(&self, id: &str) -> Result<(), String> {
        if id.len() != 16 || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            // What was given may be a whole key: it is not repeated.
            return Err("An id is 16 letters and digits, as `penstock keys list` shows it.".to_owned());
        }
        let already = match self {
            Self::Gateway(client) => {
                let answer = client.ask("POST", &format!("/admin/keys/{id}/revoke"), None)?;
                answer.get("already") == Some(&Value::Bool(true))
            }
            Self::Store(vault) => match vault.keys.revoke(id, now()).map_err(|error| error.to_string())? {
                Revocation::Unknown => return Err("There is no key with this id.".to_owned()),
                found => found == Revocation::Already,
            },
        };
        out(&if already {
            format!("Key {id} was revoked before.\n")
        } else {
            format!("Key {id} is revoked.\n")
        })
    }
}

fn row(key: &Value, now: u64) -> Vec<String> {
    let cell = |name: &str| cell(key, name);
    let at = |name: &str| key.get(name).and_then(Value::as_u64);
    let models =
        if key.get("models").is_some_and(Value::is_array) { cell("models") } else { "all".to_owned() };
    let state = match (at("revoked"), at("expires")) {
        (Some(_), _) => "revoked".to_owned(),
        (None, Some(end)) if end <= now => "expired".to_owned(),
        (None, Some(end)) => format!("good until {}", day(end)),
        (None, None) => "good".to_owned(),
    };
    vec![
        cell("id"),
        cell("name"),
        cell("account"),
        cell("scopes"),
        models,
        at("created").map(day).unwrap_or_default(),
        at("last_used").map_or_else(|| "never".to_owned(), day),
        state,
    ]
}

/// A Unix time as a day, UTC.
pub fn day(seconds: u64) -> String {
    // Days to a civil date, after H. Hinnant's chrono-compatible algorithms.
    let days = i64::try_from(seconds / 86_400).unwrap_or(0) + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
