//! Operators' console: pages on the admin listener for persons who sign in. Every page and every form uses the admin API
//! ([`ConsoleBackend`]), so that both validate, audit and answer alike; the person is the author in the audit log.
//!
//! ```text
//! request ─▶ session of the cookie ─▶ row of the table in pages.rs or actions.rs ─▶ role ─▶ admin API ─▶ blocks ─▶ HTML
//! ```
//! - Sessions are on the server: the cookie holds a random id, the store its SHA-256 ([`session`]).
//! - A form is accepted from the console's own pages only: by `Sec-Fetch-Site`, or `Origin` where the browser does not
//!   send it, and by the token of the session ([`request`]).
//! - The content security policy allows files of this listener and nothing inline ([`answer`]).

mod actions;
mod answer;
mod pages;
mod request;
mod session;
mod sign_in;
#[cfg(test)]
mod tests;
mod throttle;

pub use answer::{ConsoleAnswer, HEADERS};

use crate::state::AppState;
use async_trait::async_trait;
use http::Method;
use penstock_core::{ApiError, ErrorCode};
use pingora_core::protocols::http::ServerSession;
use request::ConsoleRequest;
use serde_json::Value;
use session::ActiveSession;
use std::sync::Arc;
use throttle::SignInThrottle;
use tokio::sync::Semaphore;

/// Path of the console, with the slash.
pub const ROOT: &str = "/console/";
/// Number of passwords that are hashed at once; each takes 19 MiB.
const CONCURRENT_HASHES: usize = 2;

/// Admin API, as the console uses it.
#[async_trait]
pub trait ConsoleBackend: Send + Sync {
    /// Sends a request; `actor` is its author in the audit log.
    async fn call(&self, request: BackendRequest<'_>) -> Result<Value, ApiError>;
}

/// Request to the admin API.
#[derive(Debug)]
pub struct BackendRequest<'a> {
    /// HTTP method.
    pub method: Method,
    /// Path without the query.
    pub path: String,
    /// Names and values of the query.
    pub query: Vec<(String, String)>,
    /// JSON object.
    pub body: Value,
    /// Author.
    pub actor: &'a str,
}

/// State of the console.
pub struct Console {
    app: Arc<AppState>,
    throttle: SignInThrottle,
    hashes: Semaphore,
}

impl Console {
    /// Creates the console of a gateway.
    #[must_use]
    pub fn new(app: Arc<AppState>) -> Self {
        Self { app, throttle: SignInThrottle::default(), hashes: Semaphore::new(CONCURRENT_HASHES) }
    }

    /// Returns true if a path belongs to the console.
    #[must_use]
    pub fn has_path(path: &str) -> bool {
        path == "/console" || path.starts_with(ROOT)
    }

    /// Answers a request for a path of the console.
    pub async fn answer(&self, backend: &dyn ConsoleBackend, session: &mut ServerSession) -> ConsoleAnswer {
        let request = match request::read(session).await {
            Ok(request) => request,
            Err(refusal) => return answer::plain_refusal(&refusal),
        };
        match self.route(backend, &request).await {
            Ok(answer) => answer,
            Err(refusal) => answer::plain_refusal(&refusal),
        }
    }

    async fn route(
        &self,
        backend: &dyn ConsoleBackend,
        request: &ConsoleRequest,
    ) -> Result<ConsoleAnswer, ApiError> {
        let path = request.path.as_str();
        let is_post = request.method == Method::POST;
        if !is_post && request.method != Method::GET && request.method != Method::HEAD {
            return Err(ApiError::new(ErrorCode::MethodNotAllowed));
        }
        if let Some(name) = path.strip_prefix("/console/assets/") {
            return answer::asset(name);
        }
        if is_post {
            request.check_origin()?;
        }
        match path {
            "/console" => return Ok(answer::redirect(ROOT)),
            "/console/sign-in" if is_post => return self.sign_in(request).await,
            "/console/sign-in" => return Ok(sign_in::page(None)),
            _ => {}
        }
        if let Some(token) = path.strip_prefix("/console/invitation/") {
            return self.invitation(request, token).await;
        }
        let Some(active) = self.active_session(request).await? else {
            return Ok(answer::redirect("/console/sign-in"));
        };
        if is_post {
            request.check_form_token(&active.record.form_token)?;
            if path == "/console/sign-out" {
                return self.sign_out(&active).await;
            }
            return actions::answer(self, backend, request, &active).await;
        }
        pages::answer(self, backend, request, &active, Vec::new()).await
    }

    /// Session of the request's cookie, if it is valid.
    async fn active_session(&self, request: &ConsoleRequest) -> Result<Option<ActiveSession>, ApiError> {
        let Some(id) = request.session_id() else { return Ok(None) };
        let (stores, now) = (self.app.stores.clone(), self.app.clock.unix_seconds());
        let extends = !request.is_update;
        session::blocking(move || session::find(&stores, &id, now, extends)).await
    }
}
