//! Access to the ledger: through the running gateway, or directly in its store if no gateway runs. Both take the same
//! requests and return the same answers.

use crate::admin::request::{AdminRequest, LedgerReply};
use crate::admin::routes::{self, RouteHandler};
use crate::billing::Ledger;
use crate::cli::backend::{ExpectedStore, cli_actor, query_string, unix_now, warn_repaired_replica};
use crate::cli::client::{AdminClient, AdminClientError, gateway_access};
use crate::cli::{ConfigArgs, drop_privileges};
use crate::config::{Diagnostics, GatewayAccess, settings};
use crate::storage::stores::OpenStorage;
use crate::time::clock::ProcessClock;
use penstock_core::ApiError;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Access to the ledger.
pub enum LedgerBackend {
    /// Access through the admin listener.
    Gateway(AdminClient),
    /// Direct access, with a ledger opened in this process.
    Store(tokio::runtime::Runtime, Box<OpenStorage>, Arc<Ledger>),
}

impl LedgerBackend {
    /// Connects to the running gateway, or opens the store for writing if none runs. Then the reservations that a crash
    /// left open are voided, and the second copy of the ledger is completed.
    pub fn connect(reached: &ConfigArgs, expected: ExpectedStore) -> Result<Self, String> {
        let reach = gateway_access(&reached.source()?)?;
        match AdminClient::connect(&reach) {
            Ok(client) => Ok(Self::Gateway(client)),
            Err(AdminClientError::Other(why)) => Err(why),
            Err(AdminClientError::NotRunning(_)) => {
                let storage = ledger_storage_settings(&reach)?;
                drop_privileges::become_folder_owner(&storage.path)?;
                expected.check(&storage)?;
                let stores = OpenStorage::open(&storage)?;
                warn_repaired_replica(&stores);
                let settings = settings::LedgerSettings {
                    window: Duration::ZERO,
                    answers_wait_for_disk: true,
                    debt: i64::MAX,
                    backlog: usize::MAX,
                    slow: Duration::from_secs(1),
                    // The clock is not checked here. Only grants and corrections get their time from this process,
                    // and the gateway itself reports an incorrect clock.
                    max_clock_lead: Duration::MAX,
                };
                let ledger = Ledger::open(stores.ledger.clone(), &settings, ProcessClock::start())?;
                Ok(Self::Store(start_runtime()?, Box::new(stores), ledger))
            }
        }
    }

    /// Connects to the running gateway, or opens the store for reading if none runs: nothing is changed, also if a
    /// crash left reservations open.
    pub fn connect_for_reading(reached: &ConfigArgs) -> Result<Self, String> {
        let reach = gateway_access(&reached.source()?)?;
        match AdminClient::connect(&reach) {
            Ok(client) => Ok(Self::Gateway(client)),
            Err(AdminClientError::Other(why)) => Err(why),
            Err(AdminClientError::NotRunning(_)) => {
                let storage = ledger_storage_settings(&reach)?;
                drop_privileges::become_folder_owner(&storage.path)?;
                let stores = OpenStorage::open_for_reading(&storage)?;
                let ledger = Ledger::open_for_reading(stores.ledger.clone(), ProcessClock::start())?;
                Ok(Self::Store(start_runtime()?, Box::new(stores), Arc::new(ledger)))
            }
        }
    }

    /// Checks that the usage rollups have every entry, if this process reads the store itself.
    ///
    /// # Errors
    /// Returns the command that completes them.
    pub fn check_complete_rollups(&self) -> Result<(), String> {
        let Self::Store(_, stores, _) = self else { return Ok(()) };
        match stores.ledger.has_complete_rollups() {
            Ok(true) => Ok(()),
            Ok(false) => Err("The usage rollups are incomplete: run `penstock usage rebuild`.".to_owned()),
            Err(error) => Err(format!("The ledger cannot be used: {error}.")),
        }
    }

    /// Sends a GET request.
    pub fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, String> {
        self.request_json("GET", path, query, None)
    }

    /// Sends a POST request with a JSON body.
    pub(super) fn post(&self, path: &str, body: &Value) -> Result<Value, String> {
        self.request_json("POST", path, &[], Some(body))
    }

    fn request_json(
        &self,
        method: &str,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Value, String> {
        match self {
            Self::Gateway(client) => {
                Ok(client.send(method, &format!("{path}{}", query_string(query)), body)?)
            }
            Self::Store(..) => match self.call_store(method, path, query, body)? {
                LedgerReply::Json(_, value) => Ok(value),
                LedgerReply::Lines(_) => Err("This request has no JSON answer.".to_owned()),
            },
        }
    }

    /// Returns a page of the ledger's lines after a position.
    pub(super) fn read_ledger_lines(&self, after: &str) -> Result<Vec<u8>, String> {
        let path = "/admin/ledger";
        let query = [("after", after)];
        match self {
            Self::Gateway(client) => Ok(client.get_bytes(&format!("{path}{}", query_string(&query)))?),
            Self::Store(..) => match self.call_store("GET", path, &query, None)? {
                LedgerReply::Lines(lines) => Ok(lines),
                LedgerReply::Json(..) => Err("This request has no ledger lines as its answer.".to_owned()),
            },
        }
    }

    fn call_store(
        &self,
        method: &str,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<LedgerReply, String> {
        let Self::Store(runtime, stores, ledger) = self else { return Err("There is no store.".to_owned()) };
        let method = http::Method::from_bytes(method.as_bytes()).map_err(|error| error.to_string())?;
        let (route, id) = routes::find(&method, path).map_err(refusal_message)?;
        let RouteHandler::Ledger(work) = route.handler else {
            return Err("This is not a ledger request.".to_owned());
        };
        let asked = AdminRequest {
            id,
            query: query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            body: body.cloned().unwrap_or_else(|| json!({})),
            actor: format!("{} on the store", cli_actor()),
            now: unix_now(),
            file_retention: None,
        };
        runtime.block_on(work(stores, ledger, &asked)).map_err(refusal_message)
    }
}

fn start_runtime() -> Result<tokio::runtime::Runtime, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| format!("A runtime cannot be started: {error}."))
}

/// Returns the settings of the store, or the mistakes in them as text.
pub fn ledger_storage_settings(reach: &GatewayAccess) -> Result<settings::StorageSettings, String> {
    reach.storage.clone().map_err(|mistakes| {
        let report = Diagnostics { mistakes, warnings: Vec::new() };
        report.format_mistakes("the store cannot be opened")
    })
}

fn refusal_message(refusal: ApiError) -> String {
    refusal.message.into_owned()
}
