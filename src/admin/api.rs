//! In-process interface of the admin API, called by the admin listener, the console and the dashboard.

use super::dangling_references;
use super::request::{AdminRequest, AdminResponse, KeyCacheUpdate, LedgerReply};
use super::routes::{self, KeyChangeHandler, RouteHandler, StoreHandler};
use super::sending::check_head_limits;
use super::{runtime_fields, status};
use crate::config::ConfigLoader;
use crate::config::settings::Settings;
use crate::console::{BackendRequest, ConsoleBackend};
use crate::state::AppState;
use crate::state::admin_requests::StorePermitGroup;
use async_trait::async_trait;
use http::header;
use http::uri::Authority;
use penstock_core::{ApiError, ErrorCode};
use penstock_http_wire::host::{RequestHostKind, ServedHosts};
use pingora_http::RequestHeader;
use serde_json::Value;
use std::sync::Arc;

/// Admin API of a gateway.
#[derive(Clone)]
pub(super) struct AdminApi {
    /// State that all parts of the gateway share.
    pub app: Arc<AppState>,
    /// Function that loads the configuration, for reloads.
    pub source: ConfigLoader,
    /// Listener that the requests come from.
    pub store_permit_group: StorePermitGroup,
}

#[async_trait]
impl ConsoleBackend for AdminApi {
    async fn call(&self, request: BackendRequest<'_>) -> Result<Value, ApiError> {
        if request.path == "/status" {
            return Ok(status::status_json(&self.app));
        }
        let BackendRequest { method, path, query, body, actor } = request;
        let (route, id) = routes::find(&method, &path)?;
        route.check_query(&query)?;
        self.check_store_owned()?;
        let now = self.app.clock.unix_seconds();
        let file_retention = self.app.file_expiry_context().retention;
        let asked = AdminRequest { id, query, body, actor: actor.to_owned(), now, file_retention };
        match route.handler {
            RouteHandler::Runtime(work) => work(&self.app, &self.source, &asked).await,
            RouteHandler::Ledger(work) => match work(&self.app.stores, &self.app.ledger, &asked).await? {
                LedgerReply::Json(_, value) => Ok(value),
                LedgerReply::Lines(_) => Err(ApiError::new(ErrorCode::Unsupported)),
            },
            RouteHandler::Store(work) => {
                Ok(run_store_request(&self.app, self.store_permit_group, work, asked).await?.answer)
            }
            RouteHandler::KeyChange(work) => Ok(run_key_change(&self.app, work, asked).await?.answer),
        }
    }
}

impl AdminApi {
    /// Checks that this process still owns the store, which a restart hands over to the new process.
    ///
    /// # Errors
    /// Returns 503 while another process takes over.
    pub(super) fn check_store_owned(&self) -> Result<(), ApiError> {
        if self.app.is_store_handed_over() {
            let message = "Another process is taking over; try again.";
            return Err(ApiError::with_message(ErrorCode::Unavailable, message).with_retry_after(1));
        }
        Ok(())
    }
}

/// Checks the head of a request: its size, and its host name by [`check_host`].
///
/// # Errors
/// Returns 414, 431 or 421.
pub(super) fn check_head(
    settings: &Settings,
    (hosts, setting): (&ServedHosts, &str),
    head: &RequestHeader,
) -> Result<(), ApiError> {
    check_head_limits(&settings.limits, head)?;
    check_host(hosts, setting, head)
}

/// Protects against DNS rebinding: a foreign web site can let its own host name resolve to this machine. Its scripts
/// could then read all pages that need no token. Only IP addresses and known host names are accepted; `setting` is
/// the configuration key that adds a name, for the error message.
///
/// # Errors
/// Returns 421 for any other name.
fn check_host(hosts: &ServedHosts, setting: &str, head: &RequestHeader) -> Result<(), ApiError> {
    let known = |host: &str| !matches!(hosts.classify_request_host(host), RequestHostKind::Unknown);
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

/// Runs the handler of a request that needs only the store, and adds live data to the response. Takes no lock, so a
/// long read delays neither a heartbeat of the fleet nor the revocation of a key.
///
/// # Errors
/// Returns an error if the request is invalid, the error of the store, or a 503 if other requests use it for too long.
pub(super) async fn run_store_request(
    app: &Arc<AppState>,
    client: StorePermitGroup,
    work: StoreHandler,
    asked: AdminRequest,
) -> Result<AdminResponse, ApiError> {
    // The work continues if the caller disconnects, so guard and permit move into the work and end with it.
    let (app, guard) = (app.clone(), app.admin_requests.begin());
    let permit = app.admin_requests.acquire_store_permit(client).await?;
    run_blocking(move || {
        let _in_use = (guard, permit);
        let mut done = work(&app.stores, &asked)?;
        runtime_fields::add_runtime_fields(&app, &mut done.answer);
        Ok(done)
    })
    .await
}

/// Runs the handler of a request that changes a key or an account, updates the key cache, and adds live data and
/// warnings to the response. These handlers run one at a time; otherwise an older value could overwrite a newer one
/// in the key cache.
///
/// # Errors
/// Returns an error if the request is invalid, or the error of the store.
pub async fn run_key_change(
    app: &Arc<AppState>,
    work: KeyChangeHandler,
    asked: AdminRequest,
) -> Result<AdminResponse, ApiError> {
    let (app, guard) = (app.clone(), app.admin_requests.begin());
    run_blocking(move || {
        let _in_flight = guard;
        let (mut done, update) = {
            let _guard = app.key_write_lock.lock();
            let (done, update) = work(&app.stores, &asked)?;
            update_key_cache(&app, &update);
            (done, update)
        };
        runtime_fields::add_runtime_fields(&app, &mut done.answer);
        let warnings = dangling_references::change_warnings(&app, &app.stores, &update);
        if let Some(members) = done.answer.as_object_mut().filter(|_| !warnings.is_empty()) {
            members.insert("warnings".to_owned(), warnings.into());
        }
        Ok(done)
    })
    .await
}

/// Updates the key cache, and sends the change to the old processes of this gateway that are still draining.
fn update_key_cache(app: &AppState, update: &KeyCacheUpdate) {
    match update {
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
}

/// Runs work on a thread for blocking work; a panic becomes an internal error.
///
/// # Errors
/// Returns the error of the work.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(ApiError::new(ErrorCode::Internal)))
}
