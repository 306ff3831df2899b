//! Playground: a person sends a request to a chat model with one of the account's keys. The gateway runs the request as
//! a request of that key; the browser never gets the key's secret. Prompt and answer are not stored.

use super::HOLDERS;
use crate::auth::key_cache::Principal;
use crate::console::actions::ensure_single_submission;
use crate::console::answer::{ConsoleAnswer, refused_form_blocks};
use crate::console::invoice::MAX_KEY_LIST_PAGES;
use crate::console::pages::{self, PageContext, ROWS_PER_PAGE, forbidden_role_error};
use crate::console::request::ConsoleRequest;
use crate::console::session::ActiveSession;
use crate::console::{BackendRequest, Console, ConsoleBackend};
use crate::proxy::PlaygroundRequestExecutor;
use crate::proxy::local_request::PlaygroundResponse;
use crate::proxy::quote::RequestQuote;
use bytes::Bytes;
use http::Method;
use penstock_console::pages::{
    self as blocks, PlaygroundChoices, QUOTE_ACTION, QUOTED_REQUEST_FIELD, percent_encode,
};
use penstock_console::{Block, NoticeKind};
use penstock_core::{ApiError, ErrorCode, hex};
use penstock_routing::FLAVORS;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;

/// Path of the playground page and of its form.
pub const PLAYGROUND_PATH: &str = "/dashboard/playground";
/// Maximum length of a prompt, in bytes.
const MAX_PROMPT_BYTES: usize = 16 << 10;
/// Maximum value of the form's limit on generated tokens. It is low, so that an answer arrives in time.
const MAX_TOKENS: u64 = 2_048;
/// Default value of the form's limit on generated tokens.
const DEFAULT_TOKENS: u64 = 512;
/// Timeout of an answer, below the timeout of a request to the dashboard.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(50);
/// Number of decimal places of a reservation's amount in EUR.
const EUR_SCALE: u32 = 8;

/// Returns the blocks of the playground page: its form, with the previous input.
///
/// # Errors
/// Returns the refusal of the admin API.
pub async fn playground_page(page: &PageContext<'_>) -> Result<Vec<Block>, ApiError> {
    let keys = page.get_from_admin_api("/admin/keys", &[("limit", ROWS_PER_PAGE)]).await?;
    Ok(form_blocks(page.console, keys, page.request, None, None))
}

fn form_blocks(
    console: &Console,
    keys: Value,
    request: &ConsoleRequest,
    refused: Option<&ApiError>,
    quoted: Option<String>,
) -> Vec<Block> {
    let live = console.app.config_snapshot();
    let chat = live.catalog.models().filter(|model| model.kind.generates_tokens());
    let choices = PlaygroundChoices {
        keys,
        models: chat.map(|model| (model.id.clone(), model.name.clone())).collect(),
        flavors: FLAVORS.iter().map(|flavor| flavor.name()).collect(),
        now: console.app.clock.unix_seconds(),
        max_tokens: DEFAULT_TOKENS,
        quoted: quoted.clone(),
    };
    let Some(mut form) = blocks::playground_form(PLAYGROUND_PATH, &choices) else {
        let text = "A request needs a key: create one on the page Keys.";
        return vec![Block::Notice(NoticeKind::Warning, text.into())];
    };
    let field = refused.and_then(|refusal| Some((form_field(refusal.param.as_deref()?), &*refusal.message)));
    form.restore_values(&request.form, field);
    // The form contains the digest of this request, not that of an earlier request.
    if let Some(field) = form.fields.iter_mut().find(|field| field.name == QUOTED_REQUEST_FIELD) {
        field.value = quoted.unwrap_or_default();
    }
    match refused {
        Some(refusal) => refused_form_blocks(form, refusal),
        None => vec![Block::Form(form)],
    }
}

/// Returns the name of the form field for a member of a chat request.
fn form_field(member: &str) -> &str {
    match member {
        "max_tokens" | "max_completion_tokens" => "max_tokens",
        member if member.starts_with("messages") => "prompt",
        member => member,
    }
}

/// Returns a digest of the request that the form describes. The form gets this digest together with the quote, and the
/// gateway sends a request only if the form contains its digest.
fn request_digest(request: &ConsoleRequest) -> String {
    let mut digest = Sha256::new();
    for name in ["key", "model", "flavor", "prompt", "max_tokens"] {
        let value = request.form_field(name);
        digest.update(value.len().to_le_bytes());
        digest.update(value.as_bytes());
    }
    hex::encode(digest.finalize().iter())
}

/// Handles the form: answers with a quote or, once the quote of this request was shown, with the answer of the model
/// and its quote.
///
/// # Errors
/// Returns 403 for another role, and the refusal of the admin API.
pub async fn handle_playground_form(
    console: &Console,
    backend: &dyn ConsoleBackend,
    request: &ConsoleRequest,
    active: &ActiveSession,
) -> Result<ConsoleAnswer, ApiError> {
    if !HOLDERS.contains(&active.user.role) {
        return Err(forbidden_role_error(active.user.role));
    }
    let actor = active.audit_actor(&request.address);
    let query = vec![("limit".to_owned(), ROWS_PER_PAGE.to_owned())];
    let keys = backend.call(read_request("/admin/keys".to_owned(), query, &actor)).await?;
    let digest = request_digest(request);
    let quoted = request.form_field(QUOTED_REQUEST_FIELD);
    let is_quote = request.form_field(QUOTE_ACTION.0) == QUOTE_ACTION.1 || quoted != digest;
    // A reload of an answer must not send and charge the request again.
    let claimed = if is_quote { Ok(()) } else { ensure_single_submission(console, request, active).await };
    let outcome = match claimed {
        Ok(()) => quote_or_send(console, backend, request, (&actor, is_quote)).await,
        Err(refusal) => Err(refusal),
    };
    let (status, shown) = match outcome {
        Ok(shown) => {
            let form = form_blocks(console, keys, request, None, is_quote.then_some(digest));
            (200, shown.into_iter().chain(form).collect())
        }
        Err(refusal) => {
            let shown = form_blocks(console, keys, request, Some(&refusal), None);
            (refusal.code.spec().status, shown)
        }
    };
    pages::render_blocks(console, request, active, PLAYGROUND_PATH, status, shown).await
}

async fn quote_or_send(
    console: &Console,
    backend: &dyn ConsoleBackend,
    request: &ConsoleRequest,
    (actor, is_quote): (&str, bool),
) -> Result<Vec<Block>, ApiError> {
    let (executor, permits) =
        console.playground.as_ref().ok_or_else(|| ApiError::new(ErrorCode::NotFound))?;
    let _permit =
        permits.try_acquire().map_err(|_| ApiError::new(ErrorCode::Overloaded).with_retry_after(5))?;
    let body = chat_body(request)?;
    let principal = chosen_key(console, backend, request.form_field("key"), actor).await?;
    if is_quote {
        let quote = executor.quote_chat(principal, body).await?;
        return Ok(blocks::quote_blocks(&quote_value(&quote)));
    }
    ask(executor, principal, body).await
}

/// Sends the request. Its quote is computed first, so that the page can show both.
async fn ask(
    executor: &PlaygroundRequestExecutor,
    principal: Arc<Principal>,
    body: Bytes,
) -> Result<Vec<Block>, ApiError> {
    // If no quote can be computed, the request below is refused too, with the message of the API.
    let quote = executor.quote_chat(principal.clone(), body.clone()).await.ok();
    let response = executor.send_chat(principal, body, ANSWER_TIMEOUT).await?;
    let answer = read_response(&response)?;
    let mut shown = blocks::playground_answer_blocks(&answer);
    shown.extend(quote.map(|quote| blocks::quote_blocks(&quote_value(&quote))).unwrap_or_default());
    Ok(shown)
}

/// Returns the body of the chat request.
fn chat_body(request: &ConsoleRequest) -> Result<Bytes, ApiError> {
    let prompt = request.form_field("prompt");
    if prompt.trim().is_empty() || prompt.len() > MAX_PROMPT_BYTES {
        let expected = format!("prompt: expected 1 to {MAX_PROMPT_BYTES} bytes of text.");
        return Err(ApiError::invalid("prompt", expected));
    }
    let max_tokens = request.form_field("max_tokens").trim().parse::<u64>().ok();
    let max_tokens = max_tokens.filter(|number| (1..=MAX_TOKENS).contains(number)).ok_or_else(|| {
        ApiError::invalid(
            "max_tokens",
            format!("max_tokens: expected a whole number from 1 to {MAX_TOKENS}."),
        )
    })?;
    let model = match (request.form_field("model"), request.form_field("flavor")) {
        (model, "") => model.to_owned(),
        (model, flavor) => format!("{model}:{flavor}"),
    };
    let messages = [json!({ "role": "user", "content": prompt })];
    let body = json!({ "model": model, "max_tokens": max_tokens, "messages": messages });
    Ok(Bytes::from(body.to_string()))
}

/// Returns the principal of a key of the person's account. `text` is the id of the key, or a name that only this key
/// has.
async fn chosen_key(
    console: &Console,
    backend: &dyn ConsoleBackend,
    text: &str,
    actor: &str,
) -> Result<Arc<Principal>, ApiError> {
    let unknown = || {
        let refusal = ApiError::with_message(ErrorCode::NotFound, "key: expected a key of this account.");
        refusal.with_param("key")
    };
    let text = Some(text.trim()).filter(|text| !text.is_empty()).ok_or_else(unknown)?;
    // The admin API refuses keys of other accounts with 404.
    let path = format!("/admin/keys/{}", percent_encode(text));
    let id = match backend.call(read_request(path, Vec::new(), actor)).await {
        Ok(_) => text.to_owned(),
        Err(refusal) if refusal.code == ErrorCode::NotFound => {
            let now = console.app.clock.unix_seconds();
            find_key_by_name(backend, text, now, actor).await?.ok_or_else(unknown)?
        }
        Err(refusal) => return Err(refusal),
    };
    console.app.key_cache.find_principal(&id).ok_or_else(unknown)
}

const fn read_request(path: String, query: Vec<(String, String)>, actor: &str) -> BackendRequest<'_> {
    BackendRequest { method: Method::GET, path, query, body: Value::Null, actor }
}

/// Returns the id of the valid key with this name; `None` if there is none.
///
/// # Errors
/// Returns 400 if several keys have the name, or if there are too many keys to search, and the refusal of the admin
/// API.
async fn find_key_by_name(
    backend: &dyn ConsoleBackend,
    name: &str,
    now: u64,
    actor: &str,
) -> Result<Option<String>, ApiError> {
    let mut found: Option<String> = None;
    let mut after: Option<String> = None;
    for _ in 0..MAX_KEY_LIST_PAGES {
        let query = after.take().map(|after| ("after".to_owned(), after)).into_iter().collect();
        let page = backend.call(read_request("/admin/keys".to_owned(), query, actor)).await?;
        let keys = page.get("data").and_then(Value::as_array).into_iter().flatten();
        let is_named = |key: &&Value| {
            key.get("name").and_then(Value::as_str) == Some(name)
                && key.get("revoked").is_none_or(Value::is_null)
                && key.get("expires").and_then(Value::as_u64).is_none_or(|end| end > now)
        };
        for id in keys.filter(is_named).filter_map(|key| key.get("id")?.as_str()) {
            if found.replace(id.to_owned()).is_some() {
                let message = "key: several keys have this name; expected the id of one of them";
                return Err(ApiError::invalid("key", message));
            }
        }
        after = page.get("next").and_then(Value::as_str).map(str::to_owned);
        if after.is_none() {
            return Ok(found);
        }
    }
    Err(ApiError::invalid("key", "key: too many keys to search for a name; expected the id of the key"))
}

fn quote_value(quote: &RequestQuote) -> Value {
    json!({
        "expected": quote.expected,
        "expected_eur": quote.expected_eur.normalize().to_string(),
        "output_tokens": quote.output_tokens,
        "highest_eur": Decimal::new(quote.highest.eur, EUR_SCALE).normalize().to_string(),
    })
}

/// Returns the members of a response that the page shows, or the refusal that it contains.
fn read_response(response: &PlaygroundResponse) -> Result<Value, ApiError> {
    let mut body: Value =
        serde_json::from_slice(&response.body).map_err(|_| ApiError::new(ErrorCode::Internal))?;
    if let Some(error) = body.get("error") {
        return Err(build_api_error(response.status, error));
    }
    let choice = body.pointer("/choices/0").cloned().unwrap_or_default();
    let content = choice.pointer("/message/content").cloned().unwrap_or_default();
    let members = body.as_object_mut().ok_or_else(|| ApiError::new(ErrorCode::Internal))?;
    members.insert("text".to_owned(), content);
    members.insert("finish_reason".to_owned(), choice.get("finish_reason").cloned().unwrap_or_default());
    members.insert("eur".to_owned(), json!(response.eur.map(|eur| eur.normalize().to_string())));
    Ok(body)
}

/// Builds the error that the API returned, from its status and its `error` object. A code that is not in the catalogue
/// becomes `Internal`.
fn build_api_error(status: u16, error: &Value) -> ApiError {
    let code = ErrorCode::ALL.iter().find(|code| {
        let spec = code.spec();
        spec.status == status && error.get("code").and_then(Value::as_str) == Some(spec.code)
    });
    let message = error.get("message").and_then(Value::as_str).unwrap_or_default().to_owned();
    let refusal = ApiError::with_message(code.copied().unwrap_or(ErrorCode::Internal), message);
    match error.get("param").and_then(Value::as_str) {
        Some(param) => refusal.with_param(param.to_owned()),
        None => refusal,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use async_trait::async_trait;

    /// Admin API with this list of keys, which always has a next page if the flag is set.
    struct KeyList(Vec<Value>, bool);

    #[async_trait]
    impl ConsoleBackend for KeyList {
        async fn call(&self, _: BackendRequest<'_>) -> Result<Value, ApiError> {
            Ok(json!({ "data": self.0, "next": self.1.then_some("k9") }))
        }
    }

    #[tokio::test]
    async fn a_name_finds_only_a_valid_key_and_all_keys_are_searched() {
        let key = |id: &str, end: Option<u64>, revoked: Option<u64>| {
            let name = "ci";
            json!({ "id": id, "name": name, "expires": end, "revoked": revoked })
        };
        let keys = vec![key("k1", Some(100), None), key("k2", None, Some(1)), key("k3", Some(101), None)];
        let find = async |keys: &[Value], has_more| {
            find_key_by_name(&KeyList(keys.to_vec(), has_more), "ci", 100, "eve").await
        };
        assert_eq!(find(&keys, false).await.unwrap().as_deref(), Some("k3"));
        assert_eq!(find(&keys[..2], false).await.unwrap(), None);
        let both = [keys.clone(), vec![key("k4", None, None)]].concat();
        assert!(find(&both, false).await.unwrap_err().message.contains("several keys"));
        assert!(find(&[], true).await.unwrap_err().message.contains("expected the id of the key"));
    }
}
