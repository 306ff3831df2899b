//! Admin listener: metrics, health and status without authentication, the admin API with the admin token, and the
//! operators' console. Bound to loopback by default.

pub mod accounts;
pub mod adjustments;
mod api;
mod audit;
mod auth_throttle;
mod batches;
mod body;
mod carbon;
pub mod corrections;
mod credit_note_draft;
mod credit_notes;
mod credits;
pub mod dangling_references;
mod dashboard;
mod files;
mod grid;
pub mod input;
mod invoice;
mod issued_invoices;
pub mod keys;
mod latency;
mod ledger_export;
pub mod openapi;
mod pages;
pub mod reload;
pub mod request;
mod request_head;
pub mod routes;
mod routing;
mod runtime_fields;
mod schema;
mod sending;
mod status;
#[cfg(test)]
mod tests;
mod usage;
pub mod users;
mod version;

use crate::config::ConfigLoader;
use crate::console::live::stream_response_head;
use crate::console::operators::OPERATORS;
use crate::console::{AnswerStream, Console};
use crate::http::route_table::method_not_allowed_error;
use crate::proxy::downstream::Downstream;
use crate::proxy::response::cors::CrossOrigin;
use crate::proxy::response::head::ResponseHead;
use crate::proxy::response::send_refusal;
use crate::server::listener::BoundListener;
use crate::state::AppState;
use crate::state::admin_requests::{StorePermitGroup, too_many_requests};
use crate::telemetry::request_id::RequestId;
pub use api::run_key_change;
use api::{AdminApi, check_head, run_store_request};
use async_trait::async_trait;
use bytes::BytesMut;
pub use dashboard::serve as serve_dashboard;
use http::{Method, header};
use penstock_core::{ApiError, Dialect, ErrorCode};
use pingora_core::apps::{HttpServerApp, ReusedHttpStream};
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::ShutdownWatch;
use request::{AdminRequest, LedgerReply};
use request_head::{accepts_gzip, caller_name, has_bearer_token, query_pairs};
use routes::RouteHandler;
use sending::{ListenerPermits, READ_TIMEOUT, close_connection, send_response};
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Maximum size of an admin request body, in bytes.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// Starts the task that serves the admin listener until `stop` is true.
pub fn serve(
    bound: BoundListener,
    app: &Arc<AppState>,
    source: ConfigLoader,
    stop: watch::Receiver<bool>,
) -> JoinHandle<()> {
    let api = AdminApi { app: app.clone(), source, store_permit_group: StorePermitGroup::Admin };
    crate::server::listener::serve_app(bound, "admin", AdminListener::new(api), stop)
}

struct AdminListener {
    api: AdminApi,
    failed_auth: auth_throttle::FailedAuthThrottle,
    console: Console,
    permits: ListenerPermits,
}

/// Request header that names the person on whose behalf a client acts, for the audit log.
pub const ACTOR_HEADER: &str = "x-penstock-actor";
/// Maximum length of the name in the `x-penstock-actor` header, in bytes.
const MAX_ACTOR_BYTES: usize = 64;

/// HTTP response: status, content type, body.
struct HttpAnswer(u16, &'static str, Vec<u8>);

const JSON: &str = "application/json";
const JSON_LINES: &str = "application/jsonl";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// Paths that are exempt from the limit on requests in flight.
const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

#[async_trait]
impl HttpServerApp for AdminListener {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        let connection = self.permits.read_request_head(&mut session).await?;
        session.set_keepalive(None);
        let permit = self.permits.admit_request(self.is_change(&session));
        let is_admitted = permit.is_some() || PROBES.contains(&session.req_header().uri.path());
        let admitted = if is_admitted { Ok(()) } else { Err(too_many_requests()) };
        let served = self.api.app.admin_requests.begin();
        let id = RequestId::random();
        if self.console.is_path_below_root(session.req_header().uri.path()) {
            let live = self.api.app.config_snapshot();
            let hosts = (&live.settings.listen.hosts, "listen.hosts");
            let host = admitted.and(check_head(&live.settings, hosts, session.req_header()));
            let mut answer = pages::answer_site_page(&self.console, &self.api, host, &mut session).await;
            drop(served);
            match answer.stream.take() {
                Some(AnswerStream::Live(stream)) => {
                    drop((connection, permit));
                    stream.send(stream_response_head(&id), &mut session, shutdown).await;
                }
                Some(AnswerStream::File(file)) => {
                    drop((connection, permit));
                    file.send(&mut session, &id).await;
                }
                None => pages::send_site_page(answer, &mut session, &id).await,
            }
        } else {
            let answer = match admitted {
                Ok(()) => self.answer(&mut session).await,
                Err(refusal) => Err(refusal),
            };
            // The guard is dropped before the response is sent, because a slow client must not delay the handover of
            // the store.
            drop(served);
            send_answer(answer, &mut session, &id).await;
        }
        close_connection(session).await;
        None
    }
}

async fn send_answer(answer: Result<HttpAnswer, ApiError>, session: &mut ServerSession, id: &RequestId) {
    match answer {
        Ok(HttpAnswer(status, kind, body)) => {
            let accepts = accepts_gzip(session.get_header_bytes(header::ACCEPT_ENCODING));
            send_response(session, ResponseHead::new(status, id), kind, body, accepts).await;
        }
        Err(refusal) => {
            let caller = &mut Downstream::new(session, None);
            let sent = send_refusal(caller, Dialect::Chat, id, &refusal, None, &CrossOrigin::None);
            timeout(READ_TIMEOUT, sent).await.ok();
        }
    }
}

impl AdminListener {
    fn new(api: AdminApi) -> Self {
        let console = Console::new(api.app.clone(), &OPERATORS, None);
        Self {
            console: console.with_live_figure_source(Arc::new(api.clone())),
            api,
            failed_auth: auth_throttle::FailedAuthThrottle::default(),
            permits: ListenerPermits::default(),
        }
    }

    /// Returns true if the request changes keys or accounts and has the admin token.
    fn is_change(&self, session: &ServerSession) -> bool {
        let head = session.req_header();
        let given = session.get_header_bytes(header::AUTHORIZATION);
        has_bearer_token(given, &self.api.app.stores.admin_token)
            && routes::find(&head.method, head.uri.path())
                .is_ok_and(|(route, _)| matches!(route.handler, RouteHandler::KeyChange(_)))
    }

    async fn answer(&self, session: &mut ServerSession) -> Result<HttpAnswer, ApiError> {
        let head = session.req_header();
        let live = self.api.app.config_snapshot();
        check_head(&live.settings, (&live.settings.listen.hosts, "listen.hosts"), head)?;
        let (method, path) = (head.method.clone(), head.uri.path().to_owned());
        let Some(answer) = self.open_answer(&path) else {
            self.verify_admin_token(session)?;
            return self.administer(session, &method, &path).await;
        };
        if ![Method::GET, Method::HEAD].contains(&method) {
            return Err(method_not_allowed_error(&method, &[Method::GET]));
        }
        Ok(answer())
    }

    /// Returns the function that answers a path that needs no token; `None` for any other path.
    fn open_answer(&self, path: &str) -> Option<Box<dyn Fn() -> HttpAnswer + Send + '_>> {
        let app = &self.api.app;
        Some(match path {
            "/metrics" => Box::new(|| HttpAnswer(200, METRICS, app.metrics_text())),
            "/healthz" => Box::new(|| HttpAnswer(200, TEXT, b"ok\n".to_vec())),
            "/readyz" => Box::new(|| self.readiness()),
            "/admin/openapi.json" => Box::new(|| json_answer(200, &openapi::document())),
            "/status" => Box::new(|| json_answer(200, &status::status_json(app))),
            _ => return None,
        })
    }

    /// Reports readiness: the gateway is not draining, and its store works. Other problems are reported in the text
    /// only; they do not take the gateway out of a load balancer.
    fn readiness(&self) -> HttpAnswer {
        let (status, text) = match (self.api.app.not_ready_reason(), status::degraded_reason(&self.api.app)) {
            (Some(why), _) => (503, format!("{why}\n")),
            (None, Some(why)) => (200, format!("ready, but {why}\n")),
            (None, None) => (200, "ready\n".to_owned()),
        };
        HttpAnswer(status, TEXT, text.into_bytes())
    }

    /// Checks the admin token in constant time. Failed attempts have their own rate limit, which never delays requests
    /// with the valid token.
    fn verify_admin_token(&self, session: &ServerSession) -> Result<(), ApiError> {
        let given = session.get_header_bytes(header::AUTHORIZATION);
        if has_bearer_token(given, &self.api.app.stores.admin_token) {
            return Ok(());
        }
        Err(self.failed_auth.record_failed_attempt(self.api.app.clock.steady_now()))
    }

    async fn administer(
        &self,
        session: &mut ServerSession,
        method: &Method,
        path: &str,
    ) -> Result<HttpAnswer, ApiError> {
        let (route, id) = routes::find(method, path)?;
        route.check_query(&query_pairs(session))?;
        let app = &self.api.app;
        self.api.check_store_owned()?;
        match route.handler {
            RouteHandler::Runtime(work) => {
                let asked = self.read_request(session, id).await?;
                Ok(json_answer(200, &work(app, &self.api.source, &asked).await?))
            }
            RouteHandler::Ledger(work) => {
                match work(&app.stores, &app.ledger, &self.read_request(session, id).await?).await? {
                    LedgerReply::Json(status, value) => Ok(json_answer(status, &value)),
                    LedgerReply::Lines(lines) => Ok(HttpAnswer(200, JSON_LINES, lines)),
                }
            }
            RouteHandler::Store(work) => {
                let asked = self.read_request(session, id).await?;
                let done = run_store_request(app, self.api.store_permit_group, work, asked).await?;
                Ok(json_answer(done.status, &done.answer))
            }
            RouteHandler::KeyChange(work) => {
                let done = run_key_change(app, work, self.read_request(session, id).await?).await?;
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
            now: self.api.app.clock.unix_seconds(),
            file_retention: self.api.app.file_expiry_context().retention,
        })
    }
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
    body::parse_object(&body)
}
