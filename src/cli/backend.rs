//! Access to accounts, keys, users, batches, files and the audit log: through the running gateway, or directly in its
//! store if no gateway runs. Both use the same routes and bodies.

use super::client::{AdminClient, AdminClientError};
use super::drop_privileges;
use super::output::print_stderr;
use crate::admin::request::AdminRequest;
use crate::admin::routes::{self, RouteHandler};
use crate::config::settings::StorageSettings;
use crate::config::{Diagnostics, GatewayAccess};
use crate::storage::stores::{OpenStorage, require_store};
use http::Method;
use penstock_core::percent;
use penstock_storage::ledger::FoundReplica;
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// Access to the routes of the admin API, except those of the ledger.
pub enum AdminBackend {
    /// Access through the admin listener.
    Gateway(AdminClient),
    /// Direct access to the store; the number is the retention time of files in seconds, `None` without a limit.
    Store(Box<OpenStorage>, Option<u64>),
}

/// Store that a command uses while no gateway runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedStore {
    /// Existing store, because the command reads or changes something in it.
    Existing,
    /// Existing store or a new one, because the command creates something.
    ExistingOrNew,
}

impl ExpectedStore {
    /// Checks that there is a store if one has to exist, so that a mistyped path is noticed and nothing is created there.
    ///
    /// # Errors
    /// Returns an error if there is no store.
    pub fn check(self, storage: &StorageSettings) -> Result<(), String> {
        match self {
            Self::Existing => require_store(storage),
            Self::ExistingOrNew => Ok(()),
        }
    }
}

impl AdminBackend {
    /// Connects to the running gateway, or opens the store if no process listens at its address.
    ///
    /// # Errors
    /// Returns an error if the gateway cannot be reached, or the store cannot be opened.
    pub fn connect(reach: &GatewayAccess, expected: ExpectedStore) -> Result<Self, String> {
        match AdminClient::connect(reach) {
            Ok(client) => Ok(Self::Gateway(client)),
            Err(AdminClientError::NotRunning(_)) => {
                open_stores(reach, expected).map(|stores| Self::Store(Box::new(stores), reach.file_retention))
            }
            Err(AdminClientError::Other(why)) => Err(why),
        }
    }

    /// Sends a request and returns its answer.
    ///
    /// # Errors
    /// Returns the error message of the gateway, or an error if the request needs a running gateway and none runs.
    pub fn send(
        &self,
        method: &Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Value, String> {
        match self {
            Self::Gateway(client) => {
                Ok(client.send(method.as_str(), &format!("{path}{}", query_string(query)), body)?)
            }
            Self::Store(stores, file_retention) => {
                let to_message = |refusal: penstock_core::ApiError| refusal.message.into_owned();
                let (route, id) = routes::find(method, path).map_err(to_message)?;
                let query: Vec<_> = query.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
                route.check_query(&query).map_err(to_message)?;
                let asked = AdminRequest {
                    id,
                    query,
                    body: body.cloned().unwrap_or_else(|| json!({})),
                    actor: format!("{} on the store", cli_actor()),
                    now: unix_now(),
                    file_retention: *file_retention,
                };
                let done = match route.handler {
                    RouteHandler::Store(work) => work(stores, &asked),
                    RouteHandler::KeyChange(work) => work(stores, &asked).map(|(done, _)| done),
                    RouteHandler::Ledger(_) | RouteHandler::Runtime(_) => {
                        return Err("This requires a running gateway.".to_owned());
                    }
                };
                done.map(|done| done.answer).map_err(to_message)
            }
        }
    }

    /// Reads every row of a list, page after page.
    ///
    /// # Errors
    /// Same as [`AdminBackend::send`].
    pub fn read_all_rows(&self, path: &str, query: &[(&str, &str)]) -> Result<Vec<Value>, String> {
        let mut all = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let mut query = query.to_vec();
            query.extend(after.as_deref().map(|after| ("after", after)));
            let mut page = self.send(&Method::GET, path, &query, None)?;
            if let Some(Value::Array(items)) = page.get_mut("data").map(Value::take) {
                all.extend(items);
            }
            after = match page.get("next") {
                Some(Value::String(next)) => Some(next.clone()),
                Some(Value::Number(next)) => Some(next.to_string()),
                _ => return Ok(all),
            };
        }
    }
}

fn open_stores(reach: &GatewayAccess, expected: ExpectedStore) -> Result<OpenStorage, String> {
    match &reach.storage {
        Ok(storage) => {
            drop_privileges::become_folder_owner(&storage.path)?;
            expected.check(storage)?;
            let stores = OpenStorage::open(storage)?;
            warn_repaired_replica(&stores);
            Ok(stores)
        }
        Err(mistakes) => {
            let report = Diagnostics { mistakes: mistakes.clone(), warnings: Vec::new() };
            Err(report.format_mistakes("the store cannot be opened"))
        }
    }
}

/// Warns about parts of the ledger's second copy that differed from the store and were written again.
pub(super) fn warn_repaired_replica(stores: &OpenStorage) {
    // An incomplete file is the result of a crash or a full disk, and no reason for a warning.
    let repairs = stores.ledger.take_replica_repairs().into_iter();
    for healed in repairs.filter(|repair| repair.found == FoundReplica::Different) {
        print_stderr(&format!("warning: the second copy of the ledger was repaired: {}.\n", healed.what));
    }
}

/// Returns the author of changes for the audit log: `cli:` and the user name from the environment variable `USER`
/// (`LOGNAME` if `USER` is not set), or `cli:somebody` without a name.
pub fn cli_actor() -> String {
    let user = ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    let plain = |letter: &char| letter.is_ascii_alphanumeric() || "._-".contains(*letter);
    let user: String = user.unwrap_or_default().chars().filter(plain).take(40).collect();
    format!("cli:{}", if user.is_empty() { "somebody" } else { &user })
}

/// Returns the current time in Unix seconds.
pub fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Percent-encodes an id as one path segment.
pub fn encode_segment(text: &str) -> String {
    percent::encode(text, percent::PATH_SEGMENT)
}

/// Formats a query string with its `?`.
pub fn query_string(query: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = query
        .iter()
        .map(|(name, value)| format!("{}={}", encode_segment(name), encode_segment(value)))
        .collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}
