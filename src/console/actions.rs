//! Forms of a site: one row for each form, with the roles that may send it and the request of the admin API that it
//! triggers.

use super::amount::{check_amounts, normalize_amount};
use super::answer::{self, ConsoleAnswer, refusal_notice, refused_form_blocks};
use super::confirmation::{self, Confirmation};
use super::flash::FlashMessage;
use super::pages::{self, PageContext, forbidden_role_error, match_path};
use super::request::ConsoleRequest;
use super::session::{self, ActiveSession, run_blocking};
use super::{BackendRequest, Console, ConsoleBackend};
use crate::http::field_errors::{FieldErrors, combine_results, invalid_field_messages};
use http::Method;
use penstock_catalog::ModelMatch;
use penstock_console::{Block, Form};
use penstock_core::calendar::UtcDay;
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::sessions::SessionChangeOutcome;
use penstock_storage::users::UserRole;
use serde_json::{Map, Value, json};

/// Definition of a form of a console site: path, roles, and request to the admin API.
pub struct ActionDefinition {
    /// Path; `{id}` stands for one segment.
    pub path: &'static str,
    /// Roles that may send the form.
    pub roles: &'static [UserRole],
    /// Returns the request of the admin API for a sent form and the segment for `{id}`.
    pub build: fn(&ConsoleRequest, &str) -> AdminCall,
    /// Returns the path of the page that shows the result, with a query where the page needs one.
    pub page: fn(&ConsoleRequest, &str) -> String,
    /// Returns the result to show, from a successful response of the admin API.
    pub show: fn(&Value) -> ActionResult,
    /// Returns the form that is shown again after a refusal; `None` to show the refusal only.
    pub form: Option<fn(&ConsoleRequest, &str) -> Form>,
    /// Returns the question that the person has to confirm before the action; `None` if there is none.
    pub confirm: fn(&ConsoleRequest, &str) -> Option<Confirmation>,
}

/// Result of a completed action.
#[derive(Debug)]
pub enum ActionResult {
    /// Message. The browser is redirected to the page, which shows the message once. So a reload of the page does not
    /// repeat the action.
    Message(FlashMessage),
    /// Blocks that only this response shows, such as a secret. A reload sends the form again, and the gateway refuses
    /// it.
    Blocks(Vec<Block>),
}

/// Returns no confirmation, for actions that can be undone.
pub fn no_confirmation(_: &ConsoleRequest, _: &str) -> Option<Confirmation> {
    None
}

/// Request to the admin API that a form triggers.
pub struct AdminCall {
    method: Method,
    path: String,
    body: Value,
}

/// Creates a request of the admin API.
pub fn new_admin_call(method: Method, path: String, body: Value) -> AdminCall {
    AdminCall { method, path, body }
}

/// Handles a sent form.
///
/// # Errors
/// Returns 404 if there is no such form, 403 if the role may not send it.
pub async fn handle_form(
    console: &Console,
    backend: &dyn ConsoleBackend,
    request: &ConsoleRequest,
    active: &ActiveSession,
) -> Result<ConsoleAnswer, ApiError> {
    let found = console.site.actions.iter().find_map(|row| Some((row, match_path(row.path, &request.path)?)));
    let (row, id) = found.ok_or_else(|| ApiError::new(ErrorCode::NotFound))?;
    if !row.roles.contains(&active.user.role) {
        return Err(forbidden_role_error(active.user.role));
    }
    let id = crate::proxy::endpoint::decode_segment(id);
    let page = (row.page)(request, &id);
    if let Some(confirmation) = (row.confirm)(request, &id)
        && !confirmation::is_confirmed(request)
    {
        let context = PageContext::for_form_link(console, backend, request, active);
        let Err(refusal) = check_before_question(&confirmation, &context).await else {
            return Ok(answer::redirect_answer(&confirmation.question_path(request)));
        };
        let (status, blocks) = (refusal.code.spec().status, refusal_blocks(row, request, &id, &refusal));
        return pages::render_page(console, backend, request, active, &page, status, blocks).await;
    }
    if let Err(refusal) = ensure_single_submission(console, request, active).await {
        let (status, notice) = (refusal.code.spec().status, vec![refusal_notice(&refusal)]);
        return pages::render_page(console, backend, request, active, &page, status, notice).await;
    }
    let call = (row.build)(request, &id);
    let called = match combine_results(check_amounts(request), check_key(console, &call)).map(drop) {
        Ok(()) => send_call(backend, call, &active.audit_actor(&request.address)).await,
        Err(refusal) => Err(refusal),
    };
    let called = called.map(|mut value| {
        add_invitation_link(console, request, &mut value);
        (row.show)(&value)
    });
    let (status, blocks) = match called {
        Ok(ActionResult::Message(message)) => {
            let cookie = message.to_cookie(console.site, console.is_secure(), &active.record.form_token);
            let redirect = answer::redirect_answer(&page);
            return Ok(cookie.into_iter().fold(redirect, ConsoleAnswer::with_cookie));
        }
        Ok(ActionResult::Blocks(blocks)) => (200, blocks),
        Err(refusal) => (refusal.code.spec().status, refusal_blocks(row, request, &id, &refusal)),
    };
    // If the person may not see the page, or its account does not exist, only the result is shown.
    pages::render_page(console, backend, request, active, &page, status, blocks).await
}

/// Checks the amounts of a form and the object of its action, before the question is shown.
///
/// # Errors
/// Returns 400 with the invalid amounts, or the refusal for the object.
async fn check_before_question(
    confirmation: &Confirmation,
    context: &PageContext<'_>,
) -> Result<(), ApiError> {
    check_amounts(context.request)?;
    confirmation.check_confirmed_object(context).await.map(drop)
}

/// Sends a request to the admin API. Returns its response with the body of the request in the member `sent`, for the
/// message about the action.
///
/// # Errors
/// Returns the refusal of the admin API.
async fn send_call(backend: &dyn ConsoleBackend, call: AdminCall, actor: &str) -> Result<Value, ApiError> {
    let AdminCall { method, path, body } = call;
    let (sent, query) = (body.clone(), Vec::new());
    let mut value = backend.call(BackendRequest { method, path, query, body, actor }).await?;
    if let Some(members) = value.as_object_mut() {
        members.insert("sent".to_owned(), sent);
    }
    Ok(value)
}

/// Returns the form whose path the request has, and the path of the page that shows the form; `None` if there is no
/// such form.
pub fn find_form(console: &Console, request: &ConsoleRequest) -> Option<(String, Form)> {
    let mut rows = console.site.actions.iter();
    let (row, id) = rows.find_map(|row| Some((row, match_path(row.path, &request.path)?)))?;
    let id = crate::proxy::endpoint::decode_segment(id);
    Some(((row.page)(request, &id), (row.form?)(request, &id)))
}

/// Returns the form with the typed values, and with the refusal at the field that it concerns. If the action has no
/// form, returns the refusal alone.
fn refusal_blocks(
    row: &ActionDefinition,
    request: &ConsoleRequest,
    id: &str,
    refusal: &ApiError,
) -> Vec<Block> {
    let Some(form) = row.form else { return vec![refusal_notice(refusal)] };
    let mut form = form(request, id);
    let fields = invalid_field_messages(refusal);
    // A request by a link to the form has the values in its query.
    let values = if request.form.is_empty() { &request.query } else { &request.form };
    form.restore_values(values, fields.iter().map(|(name, message)| (form_field(name), message.as_str())));
    refused_form_blocks(form, refusal)
}

/// Checks the request for a new or changed key more strictly than the admin API does: its name and its scopes must
/// not be empty, and its models must be in the catalogue.
fn check_key(console: &Console, call: &AdminCall) -> Result<(), ApiError> {
    if !call.path.starts_with("/admin/keys") {
        return Ok(());
    }
    let list = |name: &str| call.body.get(name).and_then(Value::as_array);
    let has_name =
        call.body.get("name").is_none_or(|name| name.as_str().is_some_and(|name| !name.is_empty()));
    let mut errors = FieldErrors::default();
    if !has_name || call.path == "/admin/keys" && call.body.get("name").is_none() {
        errors.add(ApiError::invalid("name", "name: expected a name"));
    }
    if list("scopes").is_some_and(Vec::is_empty) {
        errors.add(ApiError::invalid("scopes", "scopes: expected at least one scope"));
    }
    let live = console.app.config_snapshot();
    for name in list("models").into_iter().flatten().filter_map(Value::as_str) {
        let message = match live.catalog.classify_name(name) {
            ModelMatch::ModelId => continue,
            ModelMatch::Alias(id) => format!("models: {name} is an alias and matches nothing; write {id}."),
            ModelMatch::Unknown => format!("models: {name} matches no model of the catalogue."),
        };
        errors.add(ApiError::invalid("models", message));
        break;
    }
    errors.into_result()
}

/// Adds the complete link of an invitation to the response that has its token.
fn add_invitation_link(console: &Console, request: &ConsoleRequest, value: &mut Value) {
    let is_holder = value.get("role").and_then(Value::as_str) == Some(UserRole::Account.name());
    let Some(token) = value.get("invitation").and_then(Value::as_str) else { return };
    let link = if is_holder {
        console.dashboard_url().map(|base| format!("{base}/dashboard/invitation/{token}"))
    } else {
        Some(format!("{}/console/invitation/{token}", console.own_url(request)))
    };
    let link = link.unwrap_or_else(|| format!("/dashboard/invitation/{token}"));
    if let Some(members) = value.as_object_mut() {
        members.insert("link".to_owned(), link.into());
    }
}

/// Records that a form was sent, so that a repetition has no effect. A form without an id is not recorded and always
/// accepted, but all forms of the pages have an id.
///
/// # Errors
/// Returns 409 if the form was sent before, and 401 if the session was ended meanwhile.
pub async fn ensure_single_submission(
    console: &Console,
    request: &ConsoleRequest,
    active: &ActiveSession,
) -> Result<(), ApiError> {
    let id = request.form_field("form_id");
    if id.is_empty() {
        return Ok(());
    }
    let (stores, digest) = (console.app.stores.clone(), active.digest);
    // The path is part of the key, because all forms of a page have the same id.
    let form = format!("{id} {}", request.path);
    let (code, message) = match run_blocking(move || session::record_form_submission(&stores, &digest, &form))
        .await?
    {
        SessionChangeOutcome::Changed => return Ok(()),
        SessionChangeOutcome::Unchanged => (
            ErrorCode::Conflict,
            "This form was sent already, and nothing was changed again. A secret is shown only once: if you have lost it, \
             create or rotate another one.",
        ),
        SessionChangeOutcome::Missing => {
            (ErrorCode::InvalidKey, "Your session has ended, and nothing was changed. Sign in again.")
        }
    };
    Err(ApiError::with_message(code, message))
}

/// Answers a GET request for the path of a form: with the question to confirm, or with a redirect to the page of the
/// form; `None` if there is no form with this path.
///
/// # Errors
/// Returns 403 if the role may not send the form, and the refusal of the admin API for the object of the question.
pub async fn handle_form_get(page: &PageContext<'_>) -> Result<Option<ConsoleAnswer>, ApiError> {
    let (request, active) = (page.request, page.active);
    let mut rows = page.console.site.actions.iter();
    let Some((row, id)) = rows.find_map(|row| Some((row, match_path(row.path, &request.path)?))) else {
        return Ok(None);
    };
    if !row.roles.contains(&active.user.role) {
        return Err(forbidden_role_error(active.user.role));
    }
    let id = crate::proxy::endpoint::decode_segment(id);
    let back = (row.page)(request, &id);
    match (row.confirm)(request, &id) {
        Some(confirmation) => match confirmation.question_page(page, &back).await {
            Err(refusal) if refusal.code != ErrorCode::NotFound => {
                let blocks = refusal_blocks(row, request, &id, &refusal);
                page.render_page(&back, refusal.code.spec().status, blocks).await.map(Some)
            }
            answered => answered.map(Some),
        },
        None => Ok(Some(answer::redirect_answer(&back))),
    }
}

/// Returns the name of the form field for a member of the admin API.
fn form_field(member: &str) -> &str {
    match member.strip_prefix("limits.").unwrap_or(member) {
        "expires" => "last_day",
        "kwh" => "credits",
        name => name,
    }
}

/// Returns a JSON object of those form fields that are not empty.
pub fn fields_json(request: &ConsoleRequest, names: &[&str]) -> Value {
    let filled = names
        .iter()
        .map(|name| (*name, request.form_field(name).trim()))
        .filter(|(_, value)| !value.is_empty());
    Value::Object(filled.map(|(name, value)| (name.to_owned(), value.into())).collect())
}

/// Returns the limits of a key as JSON, from its form. An empty field becomes `null`, which means no limit. The admin
/// API refuses a value that is not a number, and names the field.
pub fn limits_json(request: &ConsoleRequest) -> Value {
    let value = |name: &str| request.form_field(name).trim();
    let number = |name| match value(name) {
        "" => Value::Null,
        text => text.parse::<u64>().map_or_else(|_| Value::from(text), Value::from),
    };
    let amount = |name| match value(name) {
        "" => Value::Null,
        text => Value::from(normalize_amount(text, request.language)),
    };
    let mut limits = Map::new();
    for name in ["requests_per_minute", "tokens_per_minute", "concurrent"] {
        limits.insert(name.to_owned(), number(name));
    }
    for name in ["budget_per_day", "budget_per_month"] {
        limits.insert(name.to_owned(), amount(name));
    }
    limits.into()
}

/// Returns the request body for a new key of an account, from its form.
pub fn create_key_body(request: &ConsoleRequest, account: &str) -> Value {
    let list = |name: &str| -> Vec<&str> {
        request.form_field(name).split(',').map(str::trim).filter(|item| !item.is_empty()).collect()
    };
    let mut body = fields_json(request, &["name"]);
    if let Some(members) = body.as_object_mut() {
        members.insert("account".to_owned(), account.into());
        members.insert("scopes".to_owned(), list("scopes").into());
        members.insert("limits".to_owned(), limits_json(request));
        let models = list("models");
        if !models.is_empty() {
            members.insert("models".to_owned(), models.into());
        }
        let last_day = request.form_field("last_day").trim();
        if !last_day.is_empty() {
            // An invalid day is sent unchanged; the admin API refuses it.
            let end = UtcDay::parse(last_day).map_or(json!(last_day), |day| last_expiry(day).into());
            members.insert("expires".to_owned(), end);
        }
    }
    body
}

/// Returns the time at which a key expires whose last day is `day`, in Unix seconds. The year 9999 ends with the latest
/// time that the admin API accepts.
fn last_expiry(day: UtcDay) -> u64 {
    day.next().map_or(day.end().saturating_sub(1), UtcDay::start)
}

/// Returns a member as text; empty if it is absent.
pub fn json_member_text(value: &Value, name: &str) -> String {
    match value.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

/// Returns the result of a completed action: a message, with the values of its placeholders.
pub fn message_result<const N: usize>(text: &'static str, values: [String; N]) -> ActionResult {
    ActionResult::Message(FlashMessage { text, values: values.into() })
}

/// Returns the result of an action that created a secret: a block that shows it, with a label.
pub fn secret_result(answer: &Value, label: &'static str) -> ActionResult {
    ActionResult::Blocks(vec![Block::Secret(label.into(), json_member_text(answer, "key"))])
}
