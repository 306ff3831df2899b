//! Sign-in with a name and a password, invitations, and sign-out.

use super::Console;
use super::answer::{self, ConsoleAnswer};
use super::openid::START_PATH;
use super::request::ConsoleRequest;
use super::return_path::RETURN_FIELD;
use super::session::{self, ActiveSession, run_blocking};
use super::site::ConsoleSite;
use crate::auth::password;
use crate::http::field_errors::{combine_results, invalid_field_messages};
use crate::storage::stores::OpenStorage;
use http::Method;
use penstock_console::pages::{accept_invitation_form, percent_encode, sign_in_form};
use penstock_console::{Block, Field, Form, Language, NoticeKind, Page, Text};
use penstock_core::{ApiError, ErrorCode, hex};
use penstock_storage::audit::ChangeDescription;
use penstock_storage::users::UserRecord;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::net::SocketAddr;

/// Returns the `Set-Cookie` value of a session, valid for `seconds`; 0 removes it. Browsers send the cookie only to
/// paths of the site, only with requests that the site itself started, and with `is_secure` only over HTTPS; scripts
/// cannot read it.
fn cookie(site: &ConsoleSite, is_secure: bool, id: &str, seconds: u64) -> String {
    let (name, path) = (site.cookie, site.root.trim_end_matches('/'));
    let secure = if is_secure { "; Secure" } else { "" };
    format!("{name}={id}; Path={path}; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}")
}

/// Returns the address without its port, since the port differs in each connection.
pub fn address_without_port(address: &str) -> String {
    address.parse::<SocketAddr>().map_or_else(|_| address.to_owned(), |address| address.ip().to_string())
}

/// Returns the SHA-256 of a token, hexadecimal.
pub fn token_digest_hex(token: &str) -> String {
    hex::encode(Sha256::digest(token.as_bytes()).iter())
}

/// Name under which attempts with an invitation are limited; no user has it.
const INVITATION_NAME: &str = "(invitation)";

impl Console {
    /// Returns the sign-in page, with the reason of a refusal or the end of an earlier session if there is one.
    pub(super) fn sign_in_page(
        &self,
        request: &ConsoleRequest,
        refused: Option<&ApiError>,
        ended: Option<&'static str>,
    ) -> ConsoleAnswer {
        let mut form = restored_form(sign_in_form(self.site.root), request, refused);
        let wanted = self.wanted_path(request);
        let query = self.return_query(wanted);
        form.fields.extend(wanted.map(|path| Field::hidden(RETURN_FIELD, path)));
        let address = format!("{}{query}", form.action);
        let above = ended.map(|text| Block::Notice(NoticeKind::Warning, text.into()));
        self.form_page(request.language, &address, (above, form), &query, refused)
    }

    /// Returns a page with a form, below a message if there is one, and with the link to the OpenID provider if there
    /// is one; `query` is appended to that link.
    fn form_page(
        &self,
        language: Language,
        address: &str,
        (above, form): (Option<Block>, Form),
        query: &str,
        refused: Option<&ApiError>,
    ) -> ConsoleAnswer {
        let site = self.site;
        let link = self.openid_settings().map(|settings| {
            let path = format!("{}{query}", site.path(START_PATH));
            let text = Text::with_values("Sign in with {0}", [settings.name.to_string().into()]);
            Block::Links(vec![(path, text)])
        });
        let blocks = match refused {
            Some(refusal) => answer::refused_form_blocks(form, refusal),
            None => vec![Block::Form(form)],
        };
        let blocks = above.into_iter().chain(blocks).chain(link).collect();
        let page = Page::without_session(site.root, language, address, site.title, blocks);
        match refused {
            Some(refusal) => answer::page_answer(refusal.code.spec().status, &page).with_retry_after(refusal),
            None => answer::page_answer(200, &page),
        }
    }

    /// Signs a person in. An earlier session of the browser ends.
    pub(super) async fn sign_in(&self, request: &ConsoleRequest) -> Result<ConsoleAnswer, ApiError> {
        if let Err(refusal) = check_filled(request) {
            return Ok(self.sign_in_page(request, Some(&refusal), None));
        }
        let (name, given) =
            (request.form_field("name").to_owned(), request.form_field("password").to_owned());
        let host = address_without_port(&request.address);
        if let Err(refusal) = self.throttle.acquire_attempt(&name, &host, self.app.clock.steady_now()) {
            return Ok(self.sign_in_page(request, Some(&refusal), None));
        }
        let (stores, lookup) = (self.app.stores.clone(), name.clone());
        let user =
            run_blocking(move || stores.users.get(&lookup).map_err(session::store_error_response)).await?;
        let user = user.filter(|user| user.disabled.is_none());
        let known = user.as_ref().and_then(|user| user.password.clone());
        let _permit = self.hashes.acquire().await;
        let matches = run_blocking(move || Ok(password::verify(&given, known.as_deref()))).await?;
        let Some(user) = user.filter(|_| matches) else {
            let message = "This name and this password do not belong together.";
            let refusal = ApiError::with_message(ErrorCode::InvalidKey, message).with_param("password");
            return Ok(self.sign_in_page(request, Some(&refusal), None));
        };
        if let Err(refusal) = self.check_role(&user) {
            return Ok(self.sign_in_page(request, Some(&refusal), None));
        }
        self.throttle.record_success(&name, &host, self.app.clock.steady_now());
        self.start_session(request, user, "user.sign_in").await
    }

    /// Checks that a person may use this site.
    ///
    /// # Errors
    /// Returns 403 if the role of the person is not one of this site.
    pub(super) fn check_role(&self, user: &UserRecord) -> Result<(), ApiError> {
        if self.site.roles.contains(&user.role) {
            return Ok(());
        }
        Err(ApiError::with_message(ErrorCode::InsufficientScope, self.site.other_role_message))
    }

    async fn start_session(
        &self,
        request: &ConsoleRequest,
        user: UserRecord,
        action: &'static str,
    ) -> Result<ConsoleAnswer, ApiError> {
        let cookie = self.replace_session(request, request.session_id(), user, action).await?;
        let wanted = self.wanted_path(request).unwrap_or(self.site.root);
        Ok(answer::redirect_answer(wanted).with_cookie(cookie))
    }

    /// Starts a session with a new id and returns its cookie. The session `previous` ends. `action` is the
    /// name of the action in the audit log.
    pub(super) async fn replace_session(
        &self,
        request: &ConsoleRequest,
        previous: Option<String>,
        user: UserRecord,
        action: &'static str,
    ) -> Result<String, ApiError> {
        let (stores, now) = (self.app.stores.clone(), self.app.clock.unix_seconds());
        let entry = own_user_audit_entry(&user, &request.address, now, action);
        let id = run_blocking(move || {
            if let Some(previous) = previous {
                let digest = Sha256::digest(previous.as_bytes()).into();
                stores.sessions.remove(&digest).map_err(session::store_error_response)?;
            }
            let id = session::start_session(&stores, &user, now)?;
            let nothing = penstock_storage::Transaction::new();
            stores.audit.apply_with_entry(&nothing, &entry).map_err(session::store_error_response)?;
            Ok(id)
        })
        .await?;
        Ok(cookie(self.site, self.is_secure(), &id, session::MAX_AGE_SECONDS))
    }

    /// Returns the user with an open invitation whose token has this digest. The number of failed attempts is
    /// limited, because each attempt reads all users.
    ///
    /// # Errors
    /// Returns 404 if there is no such invitation, and 429 after too many failed attempts.
    async fn find_invited_user(
        &self,
        request: &ConsoleRequest,
        digest: &str,
        now: u64,
    ) -> Result<UserRecord, ApiError> {
        let host = address_without_port(&request.address);
        self.throttle.acquire_attempt(INVITATION_NAME, &host, self.app.clock.steady_now())?;
        let (stores, wanted) = (self.app.stores.clone(), digest.to_owned());
        let Some(user) = run_blocking(move || find_invited_user(&stores, &wanted, now)).await? else {
            let message = "This invitation was used, has expired or never existed; ask for a new one.";
            return Err(ApiError::with_message(ErrorCode::NotFound, message));
        };
        self.throttle.record_success(INVITATION_NAME, &host, self.app.clock.steady_now());
        Ok(user)
    }

    /// Shows the form of an invitation, or saves the chosen password and signs the person in.
    pub(super) async fn handle_invitation(
        &self,
        request: &ConsoleRequest,
        token: &str,
    ) -> Result<ConsoleAnswer, ApiError> {
        let (now, digest) = (self.app.clock.unix_seconds(), token_digest_hex(token));
        let user = self.find_invited_user(request, &digest, now).await?;
        self.check_role(&user)?;
        if request.method != Method::POST {
            let query = format!("?invitation={}", percent_encode(token));
            return Ok(self.form_page(
                request.language,
                &request.path,
                (None, accept_invitation_form(self.site.root, token)),
                &query,
                None,
            ));
        }
        let chosen = request.form_field("password").to_owned();
        let is_repeated = request.form_field("again") == chosen;
        let expected = || ApiError::invalid("again", "again: expected the same password");
        let checked =
            combine_results(password::check_length(&chosen), is_repeated.then_some(()).ok_or_else(expected));
        if let Err(refusal) = checked {
            let form = restored_form(accept_invitation_form(self.site.root, token), request, Some(&refusal));
            let query = format!("?invitation={}", percent_encode(token));
            return Ok(self.form_page(request.language, &request.path, (None, form), &query, Some(&refusal)));
        }
        let _permit = self.hashes.acquire().await;
        let entry = own_user_audit_entry(&user, &request.address, now, "user.password");
        let stores = self.app.stores.clone();
        let saved = run_blocking(move || {
            let hashed = password::hash(&chosen)?;
            let changed = stores.users.change(&user.name, |user| {
                let invitation = user.invitation.as_ref()?;
                if invitation.digest != digest || invitation.expires <= now || user.disabled.is_some() {
                    return None;
                }
                user.invitation = None;
                user.password = Some(hashed.clone());
                user.generation += 1;
                Some(entry.clone())
            });
            Ok(changed
                .map_err(session::store_error_response)?
                .filter(|(_, changed)| *changed)
                .map(|(user, _)| user))
        })
        .await?;
        match saved {
            Some(user) => self.start_session(request, user, "user.sign_in").await,
            None => Err(ApiError::with_message(ErrorCode::Conflict, "This invitation was used meanwhile.")),
        }
    }

    /// Ends a session. A person who signed in at the OpenID provider is offered a link to sign out there too.
    pub(super) async fn sign_out(
        &self,
        request: &ConsoleRequest,
        active: &ActiveSession,
    ) -> Result<ConsoleAnswer, ApiError> {
        let (stores, digest) = (self.app.stores.clone(), active.digest);
        run_blocking(move || stores.sessions.remove(&digest).map_err(session::store_error_response)).await?;
        let answer = match self.provider_sign_out_link(request, active).await {
            Some(link) => answer::signed_out_page(self.site, request.language, link),
            None => answer::redirect_answer(&self.site.path("sign-in")),
        };
        Ok(answer.with_cookie(cookie(self.site, self.is_secure(), "", 0)))
    }
}

/// Checks that a name and a password were sent.
///
/// # Errors
/// Returns 400 that names the empty fields.
fn check_filled(request: &ConsoleRequest) -> Result<(), ApiError> {
    let filled = |field: &'static str, expected: &'static str| {
        if request.form_field(field).is_empty() { Err(ApiError::invalid(field, expected)) } else { Ok(()) }
    };
    combine_results(filled("name", "Enter your name."), filled("password", "Enter your password."))?;
    Ok(())
}

/// Returns a form with the values that were sent, except passwords, and with the messages of a refusal at their fields.
fn restored_form(mut form: Form, request: &ConsoleRequest, refused: Option<&ApiError>) -> Form {
    let fields = refused.map(invalid_field_messages).unwrap_or_default();
    form.restore_values(&request.form, fields.iter().map(|(name, message)| (&**name, &**message)));
    form
}

/// Returns the user with an open invitation whose token has this digest.
pub fn find_invited_user(
    stores: &OpenStorage,
    digest: &str,
    now: u64,
) -> Result<Option<UserRecord>, ApiError> {
    let users = stores.users.list().map_err(session::store_error_response)?;
    Ok(users.into_iter().find(|user| {
        let invitation = user.invitation.as_ref();
        user.disabled.is_none()
            && invitation.is_some_and(|invitation| invitation.digest == digest && invitation.expires > now)
    }))
}

/// Returns the audit log entry of a change that a person made on their own user at `at`, in Unix seconds. `action` is
/// the name of the change.
pub fn own_user_audit_entry(user: &UserRecord, address: &str, at: u64, action: &str) -> ChangeDescription {
    ChangeDescription {
        at,
        who: format!("{} from {address}", user.name),
        what: action.to_owned(),
        target: user.name.clone(),
        change: json!({}),
    }
}
