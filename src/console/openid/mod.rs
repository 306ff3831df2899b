//! Sign-in by OpenID Connect: authorization code flow with PKCE, state and nonce.
//!
//! ```text
//! GET sign-in/openid          cookie of the sign-in in progress, redirect to the provider
//! GET sign-in/openid/return   code → token endpoint → ID token → user → session, and a page that opens the site
//! ```
//! The session's cookie is `SameSite=Strict`: browsers do not send it with a navigation that another site started. So
//! the gateway answers the callback with a page of this site, which then opens the first page itself.

mod fetch;
mod pending;
mod person;
mod provider;

use super::Console;
use super::answer::{self, ConsoleAnswer};
use super::request::ConsoleRequest;
use super::session::{ActiveSession, run_blocking};
use super::sign_in::token_digest_hex;
use super::throttle::OPENID_NAME;
use crate::config::settings::OpenIdSettings;
use parking_lot::Mutex;
use pending::{PENDING_SECONDS, PendingSignIn};
use penstock_console::Text;
use penstock_core::{ApiError, ErrorCode, hex};
use penstock_openid::AuthorizationRequest;
use penstock_openid::OpenIdError;
use person::{OpenIdPerson, SignInContext};
use provider::{CodeExchangeParameters, OpenIdProvider, OpenIdProviderError};
use std::sync::Arc;
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;

/// Path at which a sign-in begins, below the root of a site.
pub const START_PATH: &str = "sign-in/openid";
/// Path to which the provider sends the browser, below the root of a site.
pub const CALLBACK_PATH: &str = "sign-in/openid/return";
/// Maximum number of sign-ins that are verified with the provider at the same time.
const CONCURRENT_EXCHANGES: usize = 8;
/// Age at which a provider whose CA certificates could not be read is created again.
const UNUSABLE_PROVIDER_AGE: Duration = Duration::from_secs(1);
/// Maximum length of an authorization code, in bytes.
const MAX_CODE_BYTES: usize = 4_096;

/// OpenID provider of a site, and the permits for sign-ins.
pub struct OpenIdState {
    /// Provider of the latest settings, and the time at which it was created.
    provider: Mutex<Option<(Instant, Arc<OpenIdProvider>)>>,
    permits: Semaphore,
}

impl Default for OpenIdState {
    fn default() -> Self {
        Self { provider: Mutex::default(), permits: Semaphore::new(CONCURRENT_EXCHANGES) }
    }
}

impl OpenIdState {
    /// Returns the provider of these settings; the provider of earlier settings is dropped. A provider whose CA
    /// certificates could not be read is created again after a second.
    fn provider(&self, settings: &OpenIdSettings) -> Arc<OpenIdProvider> {
        let (mut known, now) = (self.provider.lock(), Instant::now());
        let is_current = |created: Instant, provider: &OpenIdProvider| {
            provider.matches_settings(settings)
                && (provider.is_usable() || now.duration_since(created) < UNUSABLE_PROVIDER_AGE)
        };
        match known.as_ref().filter(|(created, provider)| is_current(*created, provider)) {
            Some((_, provider)) => provider.clone(),
            None => known.insert((now, Arc::new(OpenIdProvider::new(settings)))).1.clone(),
        }
    }
}

impl Console {
    /// Returns the settings of the provider; `None` if there is no provider.
    pub(super) fn openid_settings(&self) -> Option<OpenIdSettings> {
        self.app.config_snapshot().settings.console.openid.clone()
    }

    fn required_openid(&self) -> Result<OpenIdSettings, ApiError> {
        self.openid_settings().ok_or_else(|| ApiError::new(ErrorCode::NotFound))
    }

    /// Begins a sign-in: redirects to the provider.
    pub(super) async fn start_openid_sign_in(
        &self,
        request: &ConsoleRequest,
    ) -> Result<ConsoleAnswer, ApiError> {
        let settings = self.required_openid()?;
        let metadata =
            self.openid.provider(&settings).metadata(self.app.clock.steady_now()).await.map_err(refusal)?;
        let pending = PendingSignIn {
            state: random_text(),
            nonce: random_text(),
            verifier: random_text(),
            redirect_uri: format!("{}{}", self.base_url(request, &settings), self.site.path(CALLBACK_PATH)),
            created: self.app.clock.unix_seconds(),
            invitation: request.query_parameter("invitation").map(token_digest_hex),
            previous: request.session_id(),
            wanted: self.wanted_path(request).map(str::to_owned),
        };
        let url = AuthorizationRequest {
            client_id: &settings.client_id,
            redirect_uri: &pending.redirect_uri,
            scopes: &settings.scopes,
            state: &pending.state,
            nonce: &pending.nonce,
            verifier: &pending.verifier,
        };
        let url = url.url(&metadata.authorization_endpoint);
        let sealed = pending.to_cookie_value(&self.app.stores.pepper, self.site.root);
        let sealed = sealed.ok_or_else(|| ApiError::new(ErrorCode::TargetTooLong))?;
        Ok(answer::redirect_answer(&url).with_cookie(self.pending_cookie(&sealed, PENDING_SECONDS)))
    }

    /// Ends a sign-in: checks the provider's answer and starts a session.
    pub(super) async fn finish_openid_sign_in(
        &self,
        request: &ConsoleRequest,
    ) -> Result<ConsoleAnswer, ApiError> {
        let settings = self.required_openid()?;
        let answer = match self.handle_callback(request, &settings).await {
            Ok(answer) => answer,
            Err(refused) => self.sign_in_page(request, Some(&refused), None),
        };
        // The cookie is deleted, so that the provider's response is accepted only once.
        Ok(answer.with_cookie(self.pending_cookie("", 0)))
    }

    async fn handle_callback(
        &self,
        request: &ConsoleRequest,
        settings: &OpenIdSettings,
    ) -> Result<ConsoleAnswer, ApiError> {
        let now = self.app.clock.unix_seconds();
        let pending = request.cookie(&self.pending_name()).and_then(|cookie| {
            PendingSignIn::from_cookie_value(cookie, &self.app.stores.pepper, self.site.root, now)
        });
        let given = request.query_parameter("state").unwrap_or_default();
        let pending = pending.filter(|known| known.state.as_bytes().ct_eq(given.as_bytes()).into());
        let pending = pending.ok_or_else(|| {
            let message =
                "This sign-in was not begun in this browser, or took more than ten minutes; try again.";
            ApiError::with_message(ErrorCode::InvalidRequest, message)
        })?;
        let host = super::sign_in::address_without_port(&request.address);
        self.throttle.acquire_openid_attempt(&host, self.app.clock.steady_now())?;
        let person = self.verify_callback(request, settings, &pending).await?;
        // Only codes that the provider does not accept count, because many persons may share an address.
        self.throttle.record_success(OPENID_NAME, &host, self.app.clock.steady_now());
        let (stores, address) = (self.app.stores.clone(), request.address.clone());
        let context = SignInContext { address, now, invitation: pending.invitation };
        let user =
            run_blocking(move || person.find_or_create_user(&stores, &context)).await.map_err(logged)?;
        self.check_role(&user).map_err(logged)?;
        let cookie = self.replace_session(request, pending.previous, user, "user.sign_in").await?;
        let wanted = pending.wanted.as_deref().unwrap_or(self.site.root);
        let page = answer::self_redirecting_page(self.site, wanted, request.language, &settings.name);
        Ok(page.with_cookie(cookie))
    }

    /// Returns the person whom the provider names for the code in the query.
    async fn verify_callback(
        &self,
        request: &ConsoleRequest,
        settings: &OpenIdSettings,
        pending: &PendingSignIn,
    ) -> Result<OpenIdPerson, ApiError> {
        let provider = self.openid.provider(settings);
        let (now, unix) = (self.app.clock.steady_now(), self.app.clock.unix_seconds());
        let metadata = provider.metadata(now).await.map_err(refusal)?;
        let issuer = request.query_parameter("iss");
        if issuer.is_some_and(|issuer| issuer != &*settings.issuer)
            || (issuer.is_none() && metadata.sends_issuer)
        {
            return Err(refusal(OpenIdError::Issuer.into()));
        }
        if request.query_parameter("error").is_some() {
            let message = "The OpenID provider did not sign you in; try again there.";
            return Err(logged(ApiError::with_message(ErrorCode::InvalidKey, message)));
        }
        let code = request.query_parameter("code").filter(|code| code.len() <= MAX_CODE_BYTES);
        let code = code.ok_or_else(|| refusal(OpenIdError::Code.into()))?;
        let _permit = self.openid.permits.try_acquire().map_err(|_| {
            ApiError::with_message(ErrorCode::Overloaded, "Too many persons sign in at once; try again.")
                .with_retry_after(5)
        })?;
        let expected = CodeExchangeParameters {
            redirect_uri: &pending.redirect_uri,
            verifier: &pending.verifier,
            nonce: &pending.nonce,
        };
        let token = provider.exchange_code(code, &expected, now, unix).await.map_err(refusal)?;
        Ok(OpenIdPerson::new(&token, settings))
    }

    /// Returns the URL and the text of a link to the provider's page that ends the session at the provider, for a
    /// person who signed in there; `None` for any other person, and if the provider cannot be reached or names no such
    /// page.
    pub(super) async fn provider_sign_out_link(
        &self,
        request: &ConsoleRequest,
        active: &ActiveSession,
    ) -> Option<(String, Text)> {
        let settings = self.openid_settings()?;
        active.user.identity.as_ref().filter(|identity| identity.issuer == *settings.issuer)?;
        let metadata = self.openid.provider(&settings).metadata(self.app.clock.steady_now()).await.ok()?;
        let endpoint = metadata.end_session_endpoint.as_deref()?;
        let page = format!("{}{}", self.base_url(request, &settings), self.site.path("sign-in"));
        let encode = |text: &str| penstock_core::percent::encode(text, penstock_core::percent::PATH_SEGMENT);
        let joiner = if endpoint.contains('?') { '&' } else { '?' };
        let (client, page) = (encode(&settings.client_id), encode(&page));
        let url = format!("{endpoint}{joiner}client_id={client}&post_logout_redirect_uri={page}");
        Some((url, Text::with_values("Sign out of {0} too", [settings.name.to_string().into()])))
    }

    /// Returns scheme and host under which the browser reaches the site.
    fn base_url(&self, request: &ConsoleRequest, settings: &OpenIdSettings) -> String {
        let live = self.app.config_snapshot();
        let console = &live.settings.console;
        let (fixed, has_tls) = if self.is_dashboard() {
            (&console.public_url, self.app.dashboard_tls().is_some())
        } else {
            (&settings.operators_url, false)
        };
        match fixed {
            Some(url) => url.to_string(),
            None => format!("{}://{}", if has_tls { "https" } else { "http" }, request.host()),
        }
    }

    fn pending_name(&self) -> String {
        format!("{}_openid", self.site.cookie)
    }

    /// Returns the cookie of a sign-in in progress. It is `Lax`, because browsers must send it with the redirect from
    /// the provider.
    fn pending_cookie(&self, value: &str, seconds: u64) -> String {
        let (name, path) = (self.pending_name(), self.site.path(START_PATH));
        let secure = if self.is_secure() { "; Secure" } else { "" };
        format!("{name}={value}; Path={path}; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}")
    }
}

fn random_text() -> String {
    let mut bytes = [0_u8; 32];
    rand::fill(&mut bytes);
    hex::encode(bytes.iter())
}

/// Logs the refusal of a person, whose text has no details of the provider.
fn logged(refusal: ApiError) -> ApiError {
    tracing::warn!(name: "openid_sign_in_failed", reason = &*refusal.message);
    refusal
}

/// Returns the refusal for a failure of the provider; only the log has the details.
fn refusal(failure: OpenIdProviderError) -> ApiError {
    let (code, message, reason) = match failure {
        OpenIdProviderError::OpenId(error) => (ErrorCode::InvalidKey, error.to_string(), error.to_string()),
        OpenIdProviderError::Fetch(error) => (
            ErrorCode::Unavailable,
            "The OpenID provider does not answer as it should; try again shortly.".to_owned(),
            error.reason().to_owned(),
        ),
        OpenIdProviderError::Status => (
            ErrorCode::Unavailable,
            "The OpenID provider answers with an error; try again shortly.".to_owned(),
            "an error status".to_owned(),
        ),
    };
    tracing::warn!(name: "openid_sign_in_failed", reason);
    ApiError::with_message(code, message)
}
