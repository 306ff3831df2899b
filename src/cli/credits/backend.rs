//! Access to the ledger: through the running gateway, or directly in its store when none runs. Requests and answers are
//! the same.

use crate::admin::request::{Asked, Told};
use crate::admin::routes::{self, Work};
use crate::billing::Ledger;
use crate::cli::backend::{actor, now, told_healed, written};
use crate::cli::client::{Client, Failure, reach};
use crate::cli::{Reached, configuration, drop_privileges};
use crate::config::{Reach, Report, settings};
use crate::storage::stores::Vault;
use crate::time::clock::Clock;
use penstock_contract::Refusal;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Access to the ledger.
pub enum Way {
    /// Access through the admin listener.
    Gateway(Client),
    /// Direct access, with a ledger opened in this process.
    Store(tokio::runtime::Runtime, Box<Vault>, Arc<Ledger>),
}

impl Way {
    /// Returns the running gateway, or opens the store.
    pub fn find(reached: &Reached) -> Result<Self, String> {
        let reach = reach(&reached.source()?)?;
        match Client::new(&reach) {
            Ok(client) => Ok(Self::Gateway(client)),
            Err(Failure::Other(why)) => Err(why),
            Err(Failure::NotRunning(_)) => {
                let storage = storage(&reach)?;
                drop_privileges::take(&storage.path)?;
                let vault = Vault::open(&storage)?;
                told_healed(&vault);
                let settings = settings::Ledger {
                    window: Duration::ZERO,
                    answers_wait: true,
                    debt: i64::MAX,
                    backlog: usize::MAX,
                    slow: Duration::from_secs(1),
                    // This process dates only grants and corrections. A wrong clock is reported by the gateway.
                    ahead: Duration::MAX,
                };
                let ledger = Ledger::open(vault.ledger.clone(), &settings, Clock::start())?;
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let runtime = runtime.map_err(|error| format!("A runtime cannot be started: {error}."))?;
                Ok(Self::Store(runtime, Box::new(vault), ledger))
            }
        }
    }

    /// Sends a GET request.
    pub fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, String> {
        self.json("GET", path, query, None)
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> Result<Value, String> {
        self.json("POST", path, &[], Some(body))
    }

    fn json(
        &self,
        method: &str,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Value, String> {
        match self {
            Self::Gateway(client) => Ok(client.ask(method, &format!("{path}{}", written(query)), body)?),
            Self::Store(..) => match self.direct(method, path, query, body)? {
                Told::Json(_, value) => Ok(value),
                Told::Lines(_) => Err("This request has no JSON answer.".to_owned()),
            },
        }
    }

    pub(super) fn lines(&self, after: u64) -> Result<Vec<u8>, String> {
        let (path, after) = ("/admin/ledger", after.to_string());
        let query = [("after", after.as_str())];
        match self {
            Self::Gateway(client) => Ok(client.text(&format!("{path}{}", written(&query)))?),
            Self::Store(..) => match self.direct("GET", path, &query, None)? {
                Told::Lines(lines) => Ok(lines),
                Told::Json(..) => Err("This request has no ledger lines as its answer.".to_owned()),
            },
        }
    }

    fn direct(
        &self,
        method: &str,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Told, String> {
        let Self::Store(runtime, vault, ledger) = self else { return Err("There is no store.".to_owned()) };
        let method = http::Method::from_bytes(method.as_bytes()).map_err(|error| error.to_string())?;
        let (route, id) = routes::find(&method, path).map_err(sentence)?;
        let Work::Ledger(work) = route.work else {
            return Err("This is not a ledger request.".to_owned());
        };
        let asked = Asked {
            id,
            query: query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            body: body.cloned().unwrap_or_else(|| json!({})),
            who: format!("{} on the store", actor()),
            now: now(),
        };
        runtime.block_on(work(vault, ledger, &asked)).map_err(sentence)
    }
}

pub(super) fn storage(reach: &Reach) -> Result<settings::Storage, String> {
    reach.storage.clone().map_err(|mistakes| {
        let report = Report { mistakes, warnings: Vec::new() };
        configuration::refusal(&report, "the store cannot be opened")
    })
}

fn sentence(refusal: Refusal) -> String {
    refusal.message.into_owned()
}
