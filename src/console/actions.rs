//! Forms of a site: one row for each form, with the roles that may send it and the request of the admin API that it
//! triggers.

use super::answer::{ConsoleAnswer, refusal_notice};
use super::pages::{self, forbidden, match_path};
use super::request::ConsoleRequest;
use super::session::ActiveSession;
use super::{BackendRequest, Console, ConsoleBackend};
use http::Method;
use penstock_console::{Block, Form, NoticeKind, Text};
use penstock_core::calendar::UtcDay;
use penstock_core::{ApiError, ErrorCode};
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
    /// Returns the path of the page that shows the result.
    pub page: fn(&ConsoleRequest, &str) -> String,
    /// Returns the blocks that show the result, from the response of the admin API.
    pub show: fn(&Value) -> Vec<Block>,
    /// Returns the form that is shown again after a refusal; `None` to show the refusal only.
    pub form: Option<fn(&ConsoleRequest, &str) -> Form>,
}

/// Request to the admin API that a form triggers.
pub struct AdminCall {
    method: Method,
    path: String,
    body: Value,
}

/// Creates a request of the admin API.
pub fn admin_call(method: Method, path: String, body: Value) -> AdminCall {
    AdminCall { method, path, body }
}

/// Handles a sent form.
///
/// # Errors
/// Returns 404 if there is no such form, 403 if the role may not send it.
pub async fn answer(
    console: &Console,
    backend: &dyn ConsoleBackend,
    request: &ConsoleRequest,
    active: &ActiveSession,
) -> Result<ConsoleAnswer, ApiError> {
    let found = console.site.actions.iter().find_map(|row| Some((row, match_path(row.path, &request.path)?)));
    let (row, id) = found.ok_or_else(|| ApiError::new(ErrorCode::NotFound))?;
    if !row.roles.contains(&active.user.role) {
        return Err(forbidden(active.user.role));
    }
    let id = crate::proxy::endpoint::decode_segment(id);
    let AdminCall { method, path, body } = (row.build)(request, &id);
    let actor = active.audit_actor(&request.address);
    let called = backend.call(BackendRequest { method, path, query: Vec::new(), body, actor: &actor }).await;
    let (status, blocks) = match called {
        Ok(value) => (200, (row.show)(&value)),
        Err(refusal) => {
            let mut blocks = vec![refusal_notice(&refusal)];
            if let Some(form) = row.form {
                let mut form = form(request, &id);
                let field = refusal.param.as_deref().map(form_field);
                form.restore_values(&request.form, field.map(|field| (field, &*refusal.message)));
                blocks.push(Block::Form(form));
            }
            (refusal.code.spec().status, blocks)
        }
    };
    let page = (row.page)(request, &id);
    // If the person may not see the page, or its account does not exist, only the result is shown.
    pages::render(console, backend, request, active, &page, status, blocks).await
}

/// Returns the name of the form field for a member of the admin API.
fn form_field(member: &str) -> &str {
    match member.strip_prefix("limits.").unwrap_or(member) {
        "expires" => "last_day",
        name => name,
    }
}

/// Returns a JSON object of those form fields that are not empty.
pub fn fields_json(request: &ConsoleRequest, names: &[&str]) -> Value {
    let filled =
        names.iter().map(|name| (*name, request.field(name).trim())).filter(|(_, value)| !value.is_empty());
    Value::Object(filled.map(|(name, value)| (name.to_owned(), value.into())).collect())
}

/// Returns the limits of a key as JSON, from its form. An empty field becomes `null`, which means no limit. The admin
/// API refuses a value that is not a number, and names the field.
pub fn limits_json(request: &ConsoleRequest) -> Value {
    let value = |name: &str| request.field(name).trim();
    let number = |name| match value(name) {
        "" => Value::Null,
        text => text.parse::<u64>().map_or_else(|_| Value::from(text), Value::from),
    };
    let amount = |name| match value(name) {
        "" => Value::Null,
        text => Value::from(text),
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

/// Returns a new key of an account as JSON, from its form.
pub fn new_key_json(request: &ConsoleRequest, account: &str) -> Value {
    let list = |name: &str| -> Vec<&str> {
        request.field(name).split(',').map(str::trim).filter(|item| !item.is_empty()).collect()
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
        let last_day = request.field("last_day").trim();
        if !last_day.is_empty() {
            // The admin API refuses an invalid day.
            let end = UtcDay::parse(last_day).map_or(json!(last_day), |day| day.next().start().into());
            members.insert("expires".to_owned(), end);
        }
    }
    body
}

/// Returns a member as text; empty if it is absent.
pub fn member_text(value: &Value, name: &str) -> String {
    match value.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

/// Returns the message about a completed action, with the values of its placeholders.
pub fn completion_message<const N: usize>(text: &'static str, values: [String; N]) -> Vec<Block> {
    vec![Block::Notice(NoticeKind::Done, Text::with(text, values.map(Text::Data)))]
}

/// Returns the block that shows the secret of a new key.
pub fn new_secret_blocks(answer: &Value, label: &'static str) -> Vec<Block> {
    vec![Block::Secret(label.into(), member_text(answer, "key"))]
}
