//! Admin listener: metrics, health and status without authentication; accounts, keys and reloads with the admin token.
//! Bound to loopback by default.

pub mod accounts;
pub mod adjustments;
mod audit;
mod auth_throttle;
mod batches;
pub mod credits;
pub mod dangling_references;
mod files;
pub mod input;
pub mod keys;
pub mod openapi;
pub mod reload;
pub mod request;
mod request_head;
pub mod routes;
mod runtime_fields;
mod schema;
mod status;
mod usage;
pub mod users;

use crate::config::ConfigReader;
use crate::console::{BackendRequest, Console, ConsoleAnswer, ConsoleBackend};
use crate::proxy::downstream::Downstream;
use crate::proxy::response::cors::CrossOrigin;
use crate::proxy::response::head::ResponseHead;
use crate::server::listener::BoundListener;
use crate::state::AppState;
use crate::telemetry::request_id::RequestId;
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::uri::Authority;
use http::{Method, header};
use penstock_core::{ApiError, Dialect, ErrorCode};
use penstock_http_wire::host::HostKind;
use pingora_core::apps::{HttpServerApp, ReusedHttpStream};
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::ShutdownWatch;
use pingora_http::RequestHeader;
use request::{AdminRequest, AdminResponse, CacheUpdate, LedgerReply};
use request_head::{accepts_gzip, caller_name, gzip, has_token, query_pairs};
use routes::{RouteHandler, StoreHandler};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Timeout of a request head, and of a request body.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of an admin request body, in bytes.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// Serves the admin listener until `stop`.
pub fn serve(
    bound: BoundListener,
    app: &Arc<AppState>,
    source: ConfigReader,
    stop: watch::Receiver<bool>,
) -> JoinHandle<()> {
    crate::server::listener::serve_app(
        bound,
        "admin",
        AdminListener {
            app: app.clone(),
            source,
            failed_auth: auth_throttle::FailedAuthThrottle::default(),
            console: Console::new(app.clone()),
        },
        stop,
    )
}

struct AdminListener {
    app: Arc<AppState>,
    source: ConfigReader,
    failed_auth: auth_throttle::FailedAuthThrottle,
    console: Console,
}

/// Request header that names the person on whose behalf a client acts, for the audit log.
pub const ACTOR: &str = "x-penstock-actor";
/// Maximum length of that name, in bytes.
const ACTOR_BYTES: usize = 64;

/// HTTP response: status, content type, body.
struct HttpAnswer(u16, &'static str, Vec<u8>);

/// Minimum body size for compression, in bytes.
const COMPRESSIBLE: usize = 1024;

const JSON: &str = "application/json";
const JSON_LINES: &str = "application/jsonl";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

#[async_trait]
impl HttpServerApp for AdminListener {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        _shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        timeout(READ_TIMEOUT, session.read_request()).await.ok()?.ok()?.then_some(())?;
        session.set_keepalive(None);
        let _served = AdminRequestGuard::new(&self.app);
        let id = RequestId::random();
        let accepts = accepts_gzip(session.get_header_bytes(header::ACCEPT_ENCODING));
        if Console::has_path(session.req_header().uri.path()) {
            self.answer_console(&mut session, &id, accepts).await;
            session.finish().await.ok();
            return None;
        }
        let answer = self.answer(&mut session).await;
        let caller = &mut Downstream::new(&mut session, None);
        match answer {
            Ok(HttpAnswer(status, kind, body)) => {
                let head = ResponseHead::new(status, &id).with("vary", "accept-encoding");
                let (head, body) =
                    match (accepts && body.len() >= COMPRESSIBLE).then(|| gzip(&body)).flatten() {
                        Some(compressed) => (head.with("content-encoding", "gzip"), compressed),
                        None => (head, body),
                    };
                head.send_body(caller, kind, vec![Bytes::from(body)]).await.ok();
            }
            Err(refusal) => {
                crate::proxy::response::send_refusal(
                    caller,
                    Dialect::Chat,
                    &id,
                    &refusal,
                    None,
                    &CrossOrigin::None,
                )
                .await
                .ok();
            }
        }
        session.finish().await.ok();
        None
    }
}

/// Guard of an admin request in flight: the store is not handed over while one exists.
struct AdminRequestGuard<'a>(&'a AppState);

impl<'a> AdminRequestGuard<'a> {
    fn new(app: &'a AppState) -> Self {
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
impl ConsoleBackend for AdminListener {
    async fn call(&self, request: BackendRequest<'_>) -> Result<Value, ApiError> {
        if request.path == "/status" {
            return Ok(status::status(&self.app));
        }
        let BackendRequest { method, path, query, body, actor } = request;
        let (route, id) = routes::find(&method, &path)?;
        self.check_store()?;
        let now = self.app.clock.unix_seconds();
        let asked = AdminRequest { id, query, body, actor: actor.to_owned(), now };
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

impl AdminListener {
    /// Answers a request for a page of the console.
    async fn answer_console(&self, session: &mut ServerSession, id: &RequestId, accepts: bool) {
        let answer = match self.check_host(session.req_header()).and_then(|()| self.check_store()) {
            Ok(()) => self.console.answer(self, session).await,
            Err(refusal) => ConsoleAnswer::refusal(&refusal),
        };
        let ConsoleAnswer { status, kind, cache, location, cookie, body } = answer;
        let mut head =
            ResponseHead::new(status, id).with("vary", "accept-encoding").with("cache-control", cache);
        for (name, value) in crate::console::HEADERS {
            head = head.with(name, value);
        }
        if let Some(location) = location {
            head = head.with("location", location);
        }
        if let Some(cookie) = cookie {
            head = head.with("set-cookie", cookie);
        }
        let (head, body) = match (accepts && body.len() >= COMPRESSIBLE).then(|| gzip(&body)).flatten() {
            Some(compressed) => (head.with("content-encoding", "gzip"), compressed),
            None => (head, body),
        };
        head.send_body(&mut Downstream::new(session, None), kind, vec![Bytes::from(body)]).await.ok();
    }

    /// Checks that the store belongs to this process.
    fn check_store(&self) -> Result<(), ApiError> {
        if self.app.is_store_handed_over() {
            let message = "Another process is taking over; try again.";
            return Err(ApiError::with_message(ErrorCode::Unavailable, message).retry_after(1));
        }
        Ok(())
    }

    async fn answer(&self, session: &mut ServerSession) -> Result<HttpAnswer, ApiError> {
        let head = session.req_header();
        self.check_host(head)?;
        let (method, path) = (head.method.clone(), head.uri.path().to_owned());
        match (&method, path.as_str()) {
            (&Method::GET, "/metrics") => Ok(HttpAnswer(200, METRICS, self.app.metrics_text())),
            (&Method::GET, "/healthz") => Ok(HttpAnswer(200, TEXT, b"ok\n".to_vec())),
            (&Method::GET, "/readyz") => Ok(self.readiness()),
            (&Method::GET, "/admin/openapi.json") => Ok(json_answer(200, &openapi::document())),
            (&Method::GET, "/status") => Ok(json_answer(200, &status::status(&self.app))),
            _ => {
                self.authorise(session)?;
                self.administer(session, &method, &path).await
            }
        }
    }

    /// Protects against DNS rebinding: a page of another site can point its own name to this machine, and its scripts
    /// could read everything that needs no token. Only IP addresses and known names are accepted.
    fn check_host(&self, head: &RequestHeader) -> Result<(), ApiError> {
        let live = self.app.live();
        let known = |host: &str| !matches!(live.settings.listen.hosts.classify(host), HostKind::Unknown);
        let fields = head.headers.get_all(header::HOST).iter();
        let mut hosts = fields
            .map(|host| host.to_str().unwrap_or("\u{0}"))
            .chain(head.uri.authority().map(Authority::as_str));
        if hosts.all(known) {
            return Ok(());
        }
        let message = "host: expected an IP address, localhost or a name in listen.hosts.";
        Err(ApiError::with_message(ErrorCode::Misdirected, message))
    }

    /// Readiness: the gateway is not draining, and its store works. Other problems are reported in the text, but do not
    /// take the gateway out of a load balancer.
    fn readiness(&self) -> HttpAnswer {
        let (status, text) = match (status::not_ready(&self.app), status::degraded(&self.app)) {
            (Some(why), _) => (503, format!("{why}\n")),
            (None, Some(why)) => (200, format!("ready, but {why}\n")),
            (None, None) => (200, "ready\n".to_owned()),
        };
        HttpAnswer(status, TEXT, text.into_bytes())
    }

    /// Checks the admin token in constant time. Failed attempts have a rate limit of their own, which never delays the
    /// right token.
    fn authorise(&self, session: &ServerSession) -> Result<(), ApiError> {
        let given = session.get_header_bytes(header::AUTHORIZATION);
        if has_token(given, &self.app.stores.admin_token) {
            return Ok(());
        }
        Err(self.failed_auth.refusal(self.app.clock.steady_now()))
    }

    async fn administer(
        &self,
        session: &mut ServerSession,
        method: &Method,
        path: &str,
    ) -> Result<HttpAnswer, ApiError> {
        let (route, id) = routes::find(method, path)?;
        let app = &self.app;
        self.check_store()?;
        match route.handler {
            RouteHandler::Runtime(work) => {
                let asked = self.read_request(session, id).await?;
                Ok(json_answer(200, &work(app, &self.source, &asked).await?))
            }
            RouteHandler::Ledger(work) => {
                match work(&app.stores, &app.ledger, &self.read_request(session, id).await?).await? {
                    LedgerReply::Json(status, value) => Ok(json_answer(status, &value)),
                    LedgerReply::Lines(lines) => Ok(HttpAnswer(200, JSON_LINES, lines)),
                }
            }
            RouteHandler::Store(work) => {
                let done = run_store_request(app, work, self.read_request(session, id).await?).await?;
                Ok(json_answer(done.status, &done.answer))
            }
        }
    }

    async fn read_request(&self, session: &mut ServerSession, id: String) -> Result<AdminRequest, ApiError> {
        let (who, query) = (caller_name(session), query_pairs(session));
        Ok(AdminRequest {
            id,
            query,
            body: read_body(session).await?,
            actor: who,
            now: self.app.clock.unix_seconds(),
        })
    }
}

/// Runs a request about accounts and keys, and updates the key cache. Requests run one at a time, so that the key cache
/// always holds the latest stored values.
///
/// # Errors
/// Returns an error if the request is invalid, or the error of the store.
pub async fn run_store_request(
    app: &Arc<AppState>,
    work: StoreHandler,
    asked: AdminRequest,
) -> Result<AdminResponse, ApiError> {
    let app = app.clone();
    let turn = move || {
        let mut done = {
            let _turn = app.key_write_lock.lock();
            let done = work(&app.stores, &asked)?;
            match &done.cache_update {
                CacheUpdate::None => {}
                CacheUpdate::Key(key, account) => {
                    if let Some(account) = account {
                        app.key_cache.set_account(account);
                        app.notify_account_changed(&account.id);
                    }
                    app.key_cache.set_key(key);
                    app.notify_key_changed(&key.id);
                }
                CacheUpdate::Account(account) => {
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
    tokio::task::spawn_blocking(turn).await.unwrap_or_else(|_| Err(ApiError::new(ErrorCode::Internal)))
}

fn json_answer(status: u16, value: &Value) -> HttpAnswer {
    let mut body = serde_json::to_vec_pretty(value).unwrap_or_default();
    body.push(b'\n');
    HttpAnswer(status, JSON, body)
}

/// Reads the JSON object of a request body; an empty body is an empty object.
async fn read_body(session: &mut ServerSession) -> Result<Value, ApiError> {
    let read = async {
        let mut body = BytesMut::new();
        let cut = |_| ApiError::with_message(ErrorCode::InvalidRequest, "The body ended before its length.");
        while let Some(piece) = session.read_request_body().await.map_err(cut)? {
            if body.len() + piece.len() > MAX_BODY_BYTES {
                return Err(ApiError::new(ErrorCode::TooLarge));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body.freeze())
    };
    let body = timeout(READ_TIMEOUT, read).await.map_err(|_| ApiError::new(ErrorCode::RequestTimeout))??;
    if body.is_empty() {
        return Ok(json!({}));
    }
    serde_json::from_slice(&body)
        .ok()
        .filter(Value::is_object)
        .ok_or_else(|| ApiError::with_message(ErrorCode::InvalidRequest, "The body has to be a JSON object."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_used_where_the_client_takes_it() {
        for accepted in ["gzip", "deflate, GZIP;q=0.5", "*", "gzip;q=1.0", "br;q=1, *;q=0.1"] {
            assert!(accepts_gzip(accepted.as_bytes()), "{accepted}");
        }
        for refused in ["", "identity", "gzip;q=0", "gzip;q=0.0, *", "*;q=0", "br", "gzip;q=x", "xgzip"] {
            assert!(!accepts_gzip(refused.as_bytes()), "{refused}");
        }
    }

    #[test]
    fn no_token_and_an_empty_one_open_nothing() {
        for token in ["", "0123456789abcdef0123456789abcdef"] {
            for nothing in ["", "Bearer", "Bearer ", "Basic ", token] {
                assert!(!has_token(nothing.as_bytes(), token), "{nothing:?} for {token:?}");
            }
        }
        assert!(has_token(b"Bearer s3cret", "s3cret"));
        assert!(!has_token(b"Bearer s3cre", "s3cret"));
    }
}
