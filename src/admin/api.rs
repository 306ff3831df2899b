//! Admin API inside the process, as the admin listener and the console's sites call it.

use super::dangling_references;
use super::request::{AdminRequest, AdminResponse, KeyCacheUpdate, LedgerReply};
use super::routes::{self, RouteHandler, StoreHandler};
use super::{runtime_fields, status};
use crate::config::ConfigLoader;
use crate::console::{BackendRequest, ConsoleBackend};
use crate::state::AppState;
use async_trait::async_trait;
use http::header;
use http::uri::Authority;
use penstock_core::{ApiError, ErrorCode};
use penstock_http_wire::host::{HostKind, ServedHosts};
use pingora_http::RequestHeader;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Admin API of a gateway.
#[derive(Clone)]
pub(super) struct AdminApi {
    /// State that all parts of the gateway share.
    pub app: Arc<AppState>,
    /// Function that loads the configuration, for reloads.
    pub source: ConfigLoader,
}

/// Guard of an admin request in flight: while a guard exists, the store is not handed over to another process.
pub(super) struct AdminRequestGuard<'a>(&'a AppState);

impl<'a> AdminRequestGuard<'a> {
    /// Counts one more admin request in flight and returns its guard.
    pub(super) fn new(app: &'a AppState) -> Self {
        app.admin_in_flight.fetch_add(1, Ordering::AcqRel);
        Self(app)
    }
}

impl Drop for AdminRequestGuard<'_> {
    fn drop(&mut self) {
        self.0.admin_in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

#[async_trait]
impl ConsoleBackend for AdminApi {
    async fn call(&self, request: BackendRequest<'_>) -> Result<Value, ApiError> {
        if request.path == "/status" {
            return Ok(status::status_json(&self.app));
        }
        let BackendRequest { method, path, query, body, actor } = request;
        let (route, id) = routes::find(&method, &path)?;
        self.check_store()?;
        let now = self.app.clock.unix_seconds();
        let file_retention = self.app.expiry_check().retention;
        let asked = AdminRequest { id, query, body, actor: actor.to_owned(), now, file_retention };
        match route.handler {
            RouteHandler::Runtime(work) => work(&self.app, &self.source, &asked).await,
            RouteHandler::Ledger(work) => match work(&self.app.stores, &self.app.ledger, &asked).await? {
                LedgerReply::Json(_, value) => Ok(value),
                LedgerReply::Lines(_) => Err(ApiError::new(ErrorCode::Unsupported)),
            },
            RouteHandler::Store(work) => Ok(run_store_request(&self.app, work, asked).await?.answer),
        }
    }
}

impl AdminApi {
    /// Checks that the store was not handed over to another process.
    ///
    /// # Errors
    /// Returns 503 while another process takes over.
    pub(super) fn check_store(&self) -> Result<(), ApiError> {
        if self.app.is_store_handed_over() {
            let message = "Another process is taking over; try again.";
            return Err(ApiError::with_message(ErrorCode::Unavailable, message).with_retry_after(1));
        }
        Ok(())
    }
}

/// Protects against DNS rebinding: a web page of another site can point its own host name to this machine, and its
/// scripts could then read everything that needs no token. Only IP addresses and known host names are accepted;
/// `setting` is the configuration key that adds a name, for the error message.
///
/// # Errors
/// Returns 421 for any other name.
pub(super) fn check_host(hosts: &ServedHosts, setting: &str, head: &RequestHeader) -> Result<(), ApiError> {
    let known = |host: &str| !matches!(hosts.classify(host), HostKind::Unknown);
    let fields = head.headers.get_all(header::HOST).iter();
    let mut given = fields
        .map(|host| host.to_str().unwrap_or("\u{0}"))
        .chain(head.uri.authority().map(Authority::as_str));
    if given.all(known) {
        return Ok(());
    }
    let message = format!("host: expected an IP address, localhost or a name in {setting}.");
    Err(ApiError::with_message(ErrorCode::Misdirected, message))
}

/// Runs the handler of a request that needs the store only, updates the key cache, and adds live data and warnings to
/// the response. Handlers run one at a time, so that the key cache always has the latest stored values.
///
/// # Errors
/// Returns an error if the request is invalid, or the error of the store.
pub async fn run_store_request(
    app: &Arc<AppState>,
    work: StoreHandler,
    asked: AdminRequest,
) -> Result<AdminResponse, ApiError> {
    let app = app.clone();
    let task = move || {
        let mut done = {
            let _guard = app.key_write_lock.lock();
            let done = work(&app.stores, &asked)?;
            match &done.cache_update {
                KeyCacheUpdate::None => {}
                KeyCacheUpdate::Key(key, account) => {
                    if let Some(account) = account {
                        app.key_cache.set_account(account);
                        app.notify_account_changed(&account.id);
                    }
                    app.key_cache.set_key(key);
                    app.notify_key_changed(&key.id);
                }
                KeyCacheUpdate::Account(account) => {
                    app.key_cache.set_account(account);
                    app.notify_account_changed(&account.id);
                }
            }
            done
        };
        runtime_fields::add_runtime_fields(&app, &mut done.answer);
        let warnings = dangling_references::change_warnings(&app, &app.stores, &done.cache_update);
        if let Some(members) = done.answer.as_object_mut().filter(|_| !warnings.is_empty()) {
            members.insert("warnings".to_owned(), warnings.into());
        }
        Ok(done)
    };
    tokio::task::spawn_blocking(task).await.unwrap_or_else(|_| Err(ApiError::new(ErrorCode::Internal)))
}
