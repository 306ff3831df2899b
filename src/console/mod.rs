//! Pages for persons who sign in: the operators' console on the admin listener, and the account holders' dashboard on
//! its own listener. Each of them is a [`ConsoleSite`]. Every page and every form uses the admin API
//! ([`ConsoleBackend`]), so that validation, audit and errors are the same; the person is the author in the audit log.
//! Requests of an account holder pass through [`dashboard::scope`], which admits only objects of the account.
//!
//! ```text
//! request ─▶ session of the cookie ─▶ row of the site's tables ─▶ role ─▶ scope of the account ─▶ admin API ─▶ HTML
//! ```
//! - Sessions are on the server: the cookie holds a random id, the store its SHA-256 ([`session`]).
//! - A form is accepted only from the site's own pages: this is checked by `Sec-Fetch-Site`, or by `Origin` if the
//!   browser does not send it, and by the token of the session ([`request`]).
//! - The content security policy allows files of this listener and nothing inline ([`answer`]).

mod actions;
mod amount;
mod answer;
mod batches;
mod confirmation;
mod credit_note;
pub mod dashboard;
mod download_permits;
mod exports;
mod file_deletion;
mod file_download;
mod flash;
mod invoice;
mod key_list;
mod language_switch;
pub mod live;
mod navigation;
mod openid;
pub mod operators;
mod pages;
mod reference;
mod request;
mod return_path;
mod rotation;
mod session;
mod sign_in;
pub mod site;
#[cfg(test)]
mod tests;
mod throttle;
mod usage;

pub use answer::{AnswerStream, ConsoleAnswer, RESPONSE_HEADERS};
pub use file_download::max_send_time;

use crate::http::route_table::method_not_allowed_error;
use crate::proxy::PlaygroundRequestExecutor;
use crate::state::AppState;
use async_trait::async_trait;
use dashboard::scope::AccountBackend;
use download_permits::DownloadPermits;
use http::Method;
use live::{FigureRenderOptions, LiveFigureSource, LiveStream, StreamSession};
use openid::OpenIdState;
use penstock_console::Language;
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::users::{UserRecord, UserRole};
use pingora_core::protocols::http::ServerSession;
use request::ConsoleRequest;
use serde_json::Value;
use session::ActiveSession;
use site::ConsoleSite;
use std::sync::Arc;
use throttle::SignInThrottle;
use tokio::sync::Semaphore;

/// Maximum number of passwords that are hashed at the same time; each takes 19 MiB.
const CONCURRENT_HASHES: usize = 2;
/// Path of the event stream with live figures, below the root of a site.
const EVENTS_PATH: &str = "events";
/// Time for which a browser remembers the chosen language, in seconds.
const LANGUAGE_SECONDS: u64 = 365 * 86_400;
/// Maximum number of requests of the playground in flight, so that connections remain for the pages.
const CONCURRENT_PLAYGROUND: usize = 32;

/// Admin API, as called by the console.
#[async_trait]
pub trait ConsoleBackend: Send + Sync {
    /// Sends a request to the admin API; returns the JSON of its response. The `actor` of the request is its author in
    /// the audit log.
    async fn call(&self, request: BackendRequest<'_>) -> Result<Value, ApiError>;
}

/// Request to the admin API.
#[derive(Debug)]
pub struct BackendRequest<'a> {
    /// HTTP method of the admin request.
    pub method: Method,
    /// Path without the query.
    pub path: String,
    /// Names and values of the query.
    pub query: Vec<(String, String)>,
    /// JSON body of the admin request.
    pub body: Value,
    /// Author of the request in the audit log.
    pub actor: &'a str,
}

/// One console site: its state and the handler of its requests.
pub struct Console {
    app: Arc<AppState>,
    site: &'static ConsoleSite,
    throttle: SignInThrottle,
    hashes: Semaphore,
    openid: OpenIdState,
    /// Executor of the playground's requests, and the permits for them; `None` if the site has no playground.
    playground: Option<(PlaygroundRequestExecutor, Semaphore)>,
    /// Permits for downloads of files.
    downloads: DownloadPermits,
    /// Source of the live figures; `None` if the site has none.
    live: Option<Arc<LiveFigureSource>>,
}

impl Console {
    /// Creates the state of a site; with an executor, the site has a playground.
    #[must_use]
    pub fn new(
        app: Arc<AppState>,
        site: &'static ConsoleSite,
        executor: Option<PlaygroundRequestExecutor>,
    ) -> Self {
        let throttle = SignInThrottle::new(site.attempts_per_minute);
        Self {
            app,
            site,
            throttle,
            hashes: Semaphore::new(CONCURRENT_HASHES),
            openid: OpenIdState::default(),
            playground: executor.map(|executor| (executor, Semaphore::new(CONCURRENT_PLAYGROUND))),
            downloads: DownloadPermits::default(),
            live: None,
        }
    }

    /// Adds live figures, which are read from the admin API.
    #[must_use]
    pub fn with_live_figure_source(self, backend: Arc<dyn ConsoleBackend>) -> Self {
        let live = Some(LiveFigureSource::new(backend, self.app.clock));
        Self { live, ..self }
    }

    /// Returns the path of the event stream with the live figures of a page; `None` if the page has none.
    fn events_path(&self, page: &str) -> Option<String> {
        (page == self.site.root && self.live.is_some()).then(|| self.site.path(EVENTS_PATH))
    }

    /// Responds with a stream of live figures.
    fn stream_figures(
        &self,
        request: &ConsoleRequest,
        active: &ActiveSession,
    ) -> Result<ConsoleAnswer, ApiError> {
        let figures = self.live.as_ref().ok_or_else(|| ApiError::new(ErrorCode::NotFound))?;
        let id = request.session_id().unwrap_or_default();
        let session = StreamSession { id, stores: self.app.stores.clone(), clock: self.app.clock };
        let with_money = pages::can_see_amounts(active.user.role);
        let view = FigureRenderOptions { language: request.language, with_money };
        Ok(answer::stream_answer(LiveStream::open(figures, view, session)?))
    }

    /// Returns true if the path is the root of the site or below it, whether or not a page has this path.
    #[must_use]
    pub fn is_path_below_root(&self, path: &str) -> bool {
        self.site.is_path_below_root(path)
    }

    /// Returns a page with a refusal, for a request that was not routed.
    #[must_use]
    pub fn refusal_answer(&self, refusal: &ApiError) -> ConsoleAnswer {
        answer::refusal_page(self.site, Language::English, refusal)
    }

    /// Returns true if browsers reach the site over TLS only, so that its cookies are `Secure`.
    fn is_secure(&self) -> bool {
        let live = self.app.config_snapshot();
        let console = &live.settings.console;
        if self.is_dashboard() {
            return self.app.dashboard_tls().is_some() || console.has_https_public_url();
        }
        let url = console.openid.as_ref().and_then(|openid| openid.operators_url.as_deref());
        url.is_some_and(|url| url.starts_with("https://"))
    }

    /// Returns the base URL of the dashboard: the configured public URL, or the scheme, host and port of its first
    /// listening address. Returns `None` if there is no public URL and the dashboard is off, or listens on all
    /// addresses and no host name is known.
    fn dashboard_url(&self) -> Option<String> {
        let live = self.app.config_snapshot();
        let console = &live.settings.console;
        if let Some(url) = &console.public_url {
            return Some(url.to_string());
        }
        let scheme = if self.app.dashboard_tls().is_some() { "https" } else { "http" };
        let address = console.listen.first()?;
        if !address.ip().is_unspecified() {
            return Some(format!("{scheme}://{address}"));
        }
        let host = console.hosts.first_host_name()?;
        Some(format!("{scheme}://{host}:{}", address.port()))
    }

    /// Returns scheme and host under which the browser reaches the operators' console.
    fn own_url(&self, request: &ConsoleRequest) -> String {
        let live = self.app.config_snapshot();
        let url = live.settings.console.openid.as_ref().and_then(|openid| openid.operators_url.as_deref());
        url.map_or_else(|| format!("http://{}", request.host()), str::to_owned)
    }

    fn is_dashboard(&self) -> bool {
        std::ptr::eq(self.site, &raw const dashboard::DASHBOARD)
    }

    /// Answers a request for a path of the site.
    pub async fn handle_request(
        &self,
        backend: &dyn ConsoleBackend,
        session: &mut ServerSession,
    ) -> ConsoleAnswer {
        let mut request = request::request_from_head(session, self.site.cookie);
        if self.takes_form(&request) {
            let limit = self.max_form_bytes(&request).await;
            match request::read_form(session, limit).await {
                Ok(form) => request.form = form,
                Err(refusal) => return self.refusal_answer(&refusal),
            }
        }
        let routed = self.route(backend, &request);
        let answered =
            if request.path == dashboard::playground::PLAYGROUND_PATH && request.method == Method::POST {
                tokio::select! {
                    biased;
                    answered = routed => answered,
                    // If the person disconnects, the request is cancelled; nobody receives this error.
                    _ = session.read_body_or_idle(true) => Err(ApiError::new(ErrorCode::RequestTimeout)),
                }
            } else {
                routed.await
            };
        answered.unwrap_or_else(|refusal| answer::refusal_page(self.site, request.language, &refusal))
    }

    /// Returns true if the gateway has to read the form of a request, because the head alone is no reason to refuse
    /// the request.
    fn takes_form(&self, request: &ConsoleRequest) -> bool {
        request.method == Method::POST
            && request.path.starts_with(self.site.root)
            && self.site.allowed_methods(&request.path).contains(&Method::POST)
            && request.check_origin().is_ok()
    }

    /// Returns the maximum size of a form, in bytes. Only persons who have signed in may send a long form: to
    /// validate a configuration, or to choose a language on a page with a typed configuration.
    async fn max_form_bytes(&self, request: &ConsoleRequest) -> usize {
        let root = operators::OPERATORS.root;
        let is_long = std::ptr::eq(self.site, &raw const operators::OPERATORS)
            && (request.path == operators::actions::CONFIGURATION_CHECK_PATH
                || request.path.strip_prefix(root) == Some("language"));
        match is_long && self.active_session(request).await.is_ok_and(|active| active.is_some()) {
            true => request::MAX_CONFIGURATION_FORM_BYTES,
            false => request::MAX_FORM_BYTES,
        }
    }

    async fn route(
        &self,
        backend: &dyn ConsoleBackend,
        request: &ConsoleRequest,
    ) -> Result<ConsoleAnswer, ApiError> {
        let Some(path) = request.path.strip_prefix(self.site.root) else {
            return Ok(answer::redirect_answer(self.site.root));
        };
        let is_post = request.method == Method::POST;
        let allowed = self.site.allowed_methods(&request.path);
        if !allowed.contains(&request.method) {
            return Err(method_not_allowed_error(&request.method, &allowed));
        }
        if let Some(name) = path.strip_prefix("assets/") {
            return answer::asset_answer(name);
        }
        if is_post {
            request.check_origin()?;
        }
        match path {
            "language" if is_post => return self.choose_language(backend, request).await,
            "language" => return Ok(answer::redirect_answer(self.site.root)),
            "sign-in" if is_post => return self.sign_in(request).await,
            "sign-in" => {
                let ended = self.end_of_session(request).await;
                return Ok(self.sign_in_page(request, None, ended));
            }
            openid::START_PATH if !is_post => return self.start_openid_sign_in(request).await,
            openid::CALLBACK_PATH if !is_post => return self.finish_openid_sign_in(request).await,
            _ => {}
        }
        if let Some(token) = path.strip_prefix("invitation/") {
            return self.handle_invitation(request, token).await;
        }
        let Some(active) = self.active_session(request).await? else {
            // An update would follow the redirect and put the sign-in form into the page of the ended session.
            return Ok(match request.is_update && path != EVENTS_PATH {
                true => answer::reload_answer(),
                false if path == EVENTS_PATH => answer::redirect_answer(&self.site.path("sign-in")),
                false => self.sign_in_redirect(request),
            });
        };
        if is_post {
            request.check_form_token(&active.record.form_token)?;
            if path == "sign-out" {
                return self.sign_out(request, &active).await;
            }
        }
        if path == EVENTS_PATH && request.method == Method::GET {
            return self.stream_figures(request, &active);
        }
        let shown = match &active.user.account {
            Some(account) => self.show(&AccountBackend { backend, account }, request, &active).await,
            None => self.show(backend, request, &active).await,
        };
        Ok(shown.unwrap_or_else(|refusal| pages::refusal_page(self, request, &active, &refusal)))
    }

    async fn show(
        &self,
        backend: &dyn ConsoleBackend,
        request: &ConsoleRequest,
        active: &ActiveSession,
    ) -> Result<ConsoleAnswer, ApiError> {
        if request.method != Method::POST {
            match request.path.strip_prefix(self.site.root) {
                Some("sign-out") => return Ok(answer::redirect_answer(self.site.root)),
                _ if request.path == operators::actions::CONFIGURATION_CHECK_PATH => {
                    return Ok(answer::redirect_answer(operators::actions::CONFIGURATION_PATH));
                }
                _ => {}
            }
            return pages::handle_page_request(self, backend, request, active).await;
        }
        if request.path == operators::actions::CONFIGURATION_CHECK_PATH {
            return operators::configuration_check::check_configuration(self, backend, request, active).await;
        }
        if request.path == dashboard::playground::PLAYGROUND_PATH {
            return dashboard::playground::handle_playground_form(self, backend, request, active).await;
        }
        actions::handle_form(self, backend, request, active).await
    }

    /// Returns the session of the request's cookie, if it is valid and its person may use this site.
    async fn active_session(&self, request: &ConsoleRequest) -> Result<Option<ActiveSession>, ApiError> {
        let Some(id) = request.session_id() else { return Ok(None) };
        let (stores, now) = (self.app.stores.clone(), self.app.clock.unix_seconds());
        let extends = !request.is_update;
        let found = session::run_blocking(move || session::find_session(&stores, &id, now, extends)).await?;
        let is_admitted = |user: &UserRecord| {
            self.site.roles.contains(&user.role) && (user.role == UserRole::Account) == user.account.is_some()
        };
        Ok(found.filter(|active| is_admitted(&active.user)))
    }
}
