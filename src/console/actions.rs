//! Forms: one row for each, with the roles that may send it and the request of the admin API that it becomes.

use super::answer::ConsoleAnswer;
use super::pages::{self, forbidden, match_path};
use super::request::ConsoleRequest;
use super::session::{ActiveSession, blocking};
use super::{BackendRequest, Console, ConsoleBackend};
use crate::config::{ResolveEnv, diff_settings, load_text};
use http::Method;
use penstock_console::pages::{
    account_form, change_table, check_form, encode, grant_form, key_form, user_form,
};
use penstock_console::{Block, Form, NoticeKind};
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::users::UserRole::{self, Admin, Finance, Operator};
use serde_json::{Map, Value, json};

/// Form of the console.
pub struct ActionRow {
    /// Path; `{id}` stands for one segment.
    pub path: &'static str,
    /// Roles that may send it.
    pub roles: &'static [UserRole],
    /// Request of the admin API.
    build: fn(&ConsoleRequest, &str) -> AdminCall,
    /// Page that shows the result.
    page: fn(&ConsoleRequest, &str) -> String,
    /// Blocks that show the result.
    show: fn(&Value) -> Vec<Block>,
    /// Form that is shown again after a refusal.
    form: Option<fn(&ConsoleRequest, &str) -> Form>,
}

/// Request of the admin API.
struct AdminCall {
    method: Method,
    path: String,
    body: Value,
}

fn call(method: Method, path: String, body: Value) -> AdminCall {
    AdminCall { method, path, body }
}

/// Every form but those of the sign-in.
pub const ACTIONS: &[ActionRow] = &[
    ActionRow {
        path: "/console/accounts",
        roles: &[Admin],
        build: |request, _| call(Method::POST, "/admin/accounts".into(), fields(request, &["id", "name"])),
        page: |_, _| "/console/accounts".into(),
        show: |answer| done(format!("The account {} was created.", word(answer, "id"))),
        form: Some(|_, _| account_form()),
    },
    ActionRow {
        path: "/console/accounts/{id}/keys",
        roles: &[Admin],
        build: |request, id| call(Method::POST, "/admin/keys".into(), new_key(request, id)),
        page: |_, id| account_path(id),
        show: |answer| shown_key(answer, "The new key, shown only now:"),
        form: Some(|_, id| key_form(id)),
    },
    ActionRow {
        path: "/console/accounts/{id}/grant",
        roles: &[Admin, Finance],
        build: |request, id| {
            let mut body = fields(request, &["credits", "id", "note"]);
            if let Some(members) = body.as_object_mut() {
                members.insert("account".to_owned(), id.into());
            }
            call(Method::POST, "/admin/credits/grant".into(), body)
        },
        page: |_, id| account_path(id),
        show: |answer| {
            done(format!("The credits were granted by entry {} of the ledger.", word(answer, "entry")))
        },
        form: Some(|request, id| grant_form(id, request.field("id"))),
    },
    ActionRow {
        path: "/console/keys/{id}/revoke",
        roles: &[Admin],
        build: |_, id| call(Method::POST, format!("/admin/keys/{}/revoke", encode(id)), json!({})),
        page: |request, _| account_path(request.field("account")),
        show: |answer| done(format!("The key {} was revoked.", word(answer, "id"))),
        form: None,
    },
    ActionRow {
        path: "/console/keys/{id}/rotate",
        roles: &[Admin],
        build: |_, id| call(Method::POST, format!("/admin/keys/{}/rotate", encode(id)), json!({})),
        page: |request, _| account_path(request.field("account")),
        show: |answer| shown_key(answer, "The new secret, shown only now; the old one is valid for a day:"),
        form: None,
    },
    ActionRow {
        path: "/console/batches/{id}/cancel",
        roles: &[Admin, Operator],
        build: |_, id| call(Method::POST, format!("/admin/batches/{}/cancel", encode(id)), json!({})),
        page: |_, _| "/console/batches".into(),
        show: |answer| done(format!("The batch {} is cancelled.", word(answer, "id"))),
        form: None,
    },
    ActionRow {
        path: "/console/configuration/reload",
        roles: &[Admin, Operator],
        build: |_, _| call(Method::POST, "/admin/reload".into(), json!({})),
        page: |_, _| "/console/configuration".into(),
        show: |answer| {
            let mut blocks = done(format!("The configuration {} is running.", word(answer, "config")));
            blocks.push(Block::Table(change_table(answer)));
            blocks
        },
        form: None,
    },
    ActionRow {
        path: "/console/users",
        roles: &[Admin],
        build: |request, _| call(Method::POST, "/admin/users".into(), fields(request, &["name", "role"])),
        page: |_, _| "/console/users".into(),
        show: shown_invitation,
        form: Some(|_, _| user_form()),
    },
    ActionRow {
        path: "/console/users/{id}/invite",
        roles: &[Admin],
        build: |_, id| call(Method::POST, format!("/admin/users/{}/invite", encode(id)), json!({})),
        page: |_, _| "/console/users".into(),
        show: shown_invitation,
        form: None,
    },
    ActionRow {
        path: "/console/users/{id}/disable",
        roles: &[Admin],
        build: |_, id| {
            call(Method::PATCH, format!("/admin/users/{}", encode(id)), json!({ "disabled": "true" }))
        },
        page: |_, _| "/console/users".into(),
        show: |answer| done(format!("The user {} is disabled.", word(answer, "name"))),
        form: None,
    },
    ActionRow {
        path: "/console/users/{id}/enable",
        roles: &[Admin],
        build: |_, id| {
            call(Method::PATCH, format!("/admin/users/{}", encode(id)), json!({ "disabled": "false" }))
        },
        page: |_, _| "/console/users".into(),
        show: |answer| done(format!("The user {} is enabled.", word(answer, "name"))),
        form: None,
    },
];

/// Answers a form.
///
/// # Errors
/// Returns 404 if there is no such form, 403 if the role may not send it.
pub async fn answer(
    console: &Console,
    backend: &dyn ConsoleBackend,
    request: &ConsoleRequest,
    active: &ActiveSession,
) -> Result<ConsoleAnswer, ApiError> {
    if request.path == "/console/configuration/check" {
        return check_configuration(console, backend, request, active).await;
    }
    let found = ACTIONS.iter().find_map(|row| Some((row, match_path(row.path, &request.path)?)));
    let (row, id) = found.ok_or_else(|| ApiError::new(ErrorCode::NotFound))?;
    if !row.roles.contains(&active.user.role) {
        return Err(forbidden(active.user.role));
    }
    let id = crate::proxy::endpoint::decode_segment(id);
    let AdminCall { method, path, body } = (row.build)(request, &id);
    let actor = active.actor(&request.address);
    let called = backend.call(BackendRequest { method, path, query: Vec::new(), body, actor: &actor }).await;
    let (status, blocks) = match called {
        Ok(value) => (200, (row.show)(&value)),
        Err(refusal) => {
            let mut blocks = vec![Block::Notice(NoticeKind::Error, refusal.message.to_string())];
            if let Some(form) = row.form {
                let mut form = form(request, &id);
                form.restore(&request.form, refusal.param.as_deref().map(|field| (field, &*refusal.message)));
                blocks.push(Block::Form(form));
            }
            (refusal.code.spec().status, blocks)
        }
    };
    let page = (row.page)(request, &id);
    // The page may belong to another role, or to an account that does not exist: then only the result is shown.
    pages::render(console, backend, request, active, &page, status, blocks).await
}

/// Validates a pasted configuration and compares it with the running one.
async fn check_configuration(
    console: &Console,
    backend: &dyn ConsoleBackend,
    request: &ConsoleRequest,
    active: &ActiveSession,
) -> Result<ConsoleAnswer, ApiError> {
    if ![Admin, Operator].contains(&active.user.role) {
        return Err(forbidden(active.user.role));
    }
    let (text, live) = (request.field("text").to_owned(), console.app.live());
    let checked = blocking(move || {
        let loaded = load_text("pasted", &text, ResolveEnv { env: &|name| std::env::var(name).ok() });
        Ok(loaded.map(|loaded| (diff_settings(&live.settings, &loaded.settings), loaded.warnings)))
    });
    let (status, mut blocks) = match checked.await? {
        Ok((changes, warnings)) => {
            let changes: Vec<Value> = changes
                .iter()
                .map(|change| json!({ "key": change.key, "old": change.old, "new": change.new }))
                .collect();
            let mut blocks = done("The configuration is valid. Compared with the running one:".to_owned());
            blocks.push(Block::Table(change_table(&json!({ "changes": changes }))));
            blocks.extend(
                warnings.iter().map(|warning| Block::Notice(NoticeKind::Warning, warning.to_string())),
            );
            (200, blocks)
        }
        Err(report) => {
            let mistakes = report.mistakes.iter();
            (400, mistakes.map(|mistake| Block::Notice(NoticeKind::Error, mistake.to_string())).collect())
        }
    };
    let mut form = check_form();
    form.restore(&request.form, None);
    blocks.push(Block::Form(form));
    pages::render(console, backend, request, active, "/console/configuration", status, blocks).await
}

fn account_path(id: &str) -> String {
    format!("/console/accounts/{}", encode(id))
}

/// JSON object of the form fields that are not empty.
fn fields(request: &ConsoleRequest, names: &[&str]) -> Value {
    let filled =
        names.iter().map(|name| (*name, request.field(name).trim())).filter(|(_, value)| !value.is_empty());
    Value::Object(filled.map(|(name, value)| (name.to_owned(), value.into())).collect())
}

fn new_key(request: &ConsoleRequest, account: &str) -> Value {
    let mut body = fields(request, &["name"]);
    let scopes = request.field("scopes").split(',').map(str::trim).filter(|scope| !scope.is_empty());
    let mut limits = Map::new();
    let rate = request.field("requests_per_minute").trim();
    if !rate.is_empty() {
        // What is no number is refused by the admin API, which names the field.
        let value = rate.parse::<u64>().map_or_else(|_| Value::from(rate), Value::from);
        limits.insert("requests_per_minute".to_owned(), value);
    }
    let budget = request.field("budget_per_month").trim();
    if !budget.is_empty() {
        limits.insert("budget_per_month".to_owned(), budget.into());
    }
    if let Some(members) = body.as_object_mut() {
        members.insert("account".to_owned(), account.into());
        members.insert("scopes".to_owned(), scopes.collect());
        members.insert("limits".to_owned(), limits.into());
    }
    body
}

fn word(value: &Value, name: &str) -> String {
    match value.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

fn done(text: String) -> Vec<Block> {
    vec![Block::Notice(NoticeKind::Done, text)]
}

fn shown_key(answer: &Value, label: &str) -> Vec<Block> {
    vec![Block::Secret(label.to_owned(), word(answer, "key"))]
}

fn shown_invitation(answer: &Value) -> Vec<Block> {
    let label = format!(
        "Link for {}, valid once and for 72 hours, after the address of this console:",
        word(answer, "name")
    );
    vec![Block::Secret(label, format!("/console/invitation/{}", word(answer, "invitation")))]
}
