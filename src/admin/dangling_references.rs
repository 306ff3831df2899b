//! Warnings about limits, scopes and models of keys and accounts that have no effect, because they match no request
//! or model.

use super::openapi::response_schema;
use super::routes::{AdminRoute, RouteHandler};
use super::{input, openapi, request};
use crate::auth::account_json;
use crate::state::AppState;
use crate::storage::stores::OpenStorage;
use penstock_auth::{KeyScope, KeyScopes};
use penstock_catalog::{Catalog, ModelMatch};
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::accounts::{AccountRecord, AccountStore};
use penstock_storage::keys::{KeyLimits, KeyRecord, KeyStore};
use penstock_storage::{Store, StoreError};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// Route of the admin API that lists limits, scopes and models of keys and accounts without effect.
pub const ROUTES: &[AdminRoute] = &[AdminRoute::get(
    "/admin/unmatched",
    "listUnmatched",
    "Lists limits, scopes and models of keys and accounts that match nothing",
    RouteHandler::Runtime(|app, _, _| Box::pin(handle_list(app.clone()))),
)
.with_response(200, || openapi::list_schema(response_schema(&["key", "account", "name", "warnings"])))];

/// Returns the warnings about a key of this account. `model` looks up a model name in the catalogue; `None` if the
/// catalogue is unknown.
pub fn key_warnings(
    key: &KeyRecord,
    account: Option<&AccountRecord>,
    model: Option<&dyn Fn(&str) -> ModelMatch>,
) -> Vec<String> {
    let mut warnings = Vec::new();
    let scopes = KeyScopes::parse_lenient(key.scopes.iter().map(String::as_str));
    let limited: Vec<&str> = set_limits(&key.limits).map(|(name, _)| name).collect();
    // Every inference scope also allows batches. So a key that does not allow batches allows no request to a model,
    // and its limits have no effect.
    if !limited.is_empty() && !scopes.allows(KeyScope::Batches) {
        warnings.push(format!(
            "{} match nothing: no scope of this key allows requests to a model.",
            limited.join(", ")
        ));
    }
    if key.scopes.is_empty() {
        warnings.push("scopes is empty: this key may do nothing.".to_owned());
    }
    match &key.models {
        Some(models) if models.is_empty() => {
            warnings.push("models is empty: this key may use no model.".to_owned());
        }
        Some(models) => warnings.extend(models.iter().filter_map(|name| match model?(name) {
            ModelMatch::ModelId => None,
            ModelMatch::Alias(id) => {
                Some(format!("models: {name} is an alias and matches nothing; write {id}."))
            }
            ModelMatch::Unknown => Some(format!("models: {name} matches no model of the catalogue.")),
        })),
        None => {}
    }
    let shared = account.map(|account| account.limits).unwrap_or_default();
    for (name, own) in self::set_limits(&key.limits) {
        let over = self::set_limits(&shared).find(|(other, most)| *other == name && *most < own);
        if let Some((_, most)) = over {
            let most = if name.starts_with("budget") {
                account_json::format_credits(most)
            } else {
                most.to_string()
            };
            warnings.push(format!("limits.{name} is never reached: the account's is {most}."));
        }
    }
    warnings
}

/// Returns the limits that are set; budgets in micro-credits.
fn set_limits(limits: &KeyLimits) -> impl Iterator<Item = (&'static str, u64)> + use<> {
    let all = [
        limits.requests_per_minute,
        limits.tokens_per_minute,
        limits.concurrent.map(u64::from),
        limits.budget_per_day,
        limits.budget_per_month,
    ];
    input::LIMIT_MEMBERS.into_iter().zip(all).filter_map(|(name, limit)| Some((name, limit?)))
}

async fn handle_list(app: Arc<AppState>) -> Result<Value, ApiError> {
    let found = tokio::task::spawn_blocking(move || list_unmatched(&app, &app.stores));
    found.await.unwrap_or_else(|_| Err(ApiError::new(ErrorCode::Internal)))
}

/// Handles `GET /admin/unmatched`: lists every key and account with a warning. Also warns about limits that have
/// applied to no request since this gateway started.
///
/// # Errors
/// Returns the error of the store.
fn list_unmatched(app: &AppState, stores: &OpenStorage) -> Result<Value, ApiError> {
    let known = |name: &str| app.config_snapshot().catalog.classify_name(name);
    let passed = |owner: WarningOwner, id: &str| match owner {
        WarningOwner::Key => {
            app.key_cache.find_principal(id).map(|grant| grant.limiter().admitted_request_count())
        }
        WarningOwner::Account => {
            app.key_cache.account(id).map(|account| account.limiter.admitted_request_count())
        }
    };
    let passed = |owner: WarningOwner, id: &str| Some(passed(owner, id).unwrap_or(0));
    let found = collect_warnings(&stores.keys, &stores.accounts, app.clock.unix_seconds(), &known, &passed)
        .map_err(request::store_error_response)?;
    let to_json = |found: OwnerWarnings| {
        let owner = if found.owner == WarningOwner::Key { "key" } else { "account" };
        json!({ owner: found.id, "name": found.name, "warnings": found.warnings })
    };
    Ok(json!({ "data": found.into_iter().map(to_json).collect::<Vec<_>>() }))
}

/// Returns the warnings about all keys and accounts of a store that no gateway has open, as sentences. Warnings that
/// need data of a running gateway are not included.
///
/// # Errors
/// Returns the error of the store.
pub fn offline_store_warnings(
    store: &Arc<dyn Store>,
    catalog: &Catalog,
    now: u64,
) -> Result<Vec<String>, StoreError> {
    let (keys, accounts) = (KeyStore::new(store.clone()), AccountStore::new(store.clone()));
    let found = collect_warnings(&keys, &accounts, now, &|name| catalog.classify_name(name), &|_, _| None)?;
    let sentences = |found: &OwnerWarnings| {
        let owner = if found.owner == WarningOwner::Key { "Key" } else { "Account" };
        let sentence = |warning: &String| format!("{owner} {}: {warning}", found.id);
        found.warnings.iter().map(sentence).collect::<Vec<_>>()
    };
    Ok(found.iter().flat_map(sentences).collect())
}

/// Kind of the object that a warning is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WarningOwner {
    Key,
    Account,
}

/// Key or account with warnings.
struct OwnerWarnings {
    owner: WarningOwner,
    id: String,
    name: String,
    warnings: Vec<String>,
}

/// Collects every key and account with a warning. `passed` returns the number of requests to which the limits of a
/// key or account have applied; `None` if unknown.
fn collect_warnings(
    keys: &KeyStore,
    accounts: &AccountStore,
    now: u64,
    match_model: &dyn Fn(&str) -> ModelMatch,
    passed: &dyn Fn(WarningOwner, &str) -> Option<u64>,
) -> Result<Vec<OwnerWarnings>, StoreError> {
    let mut owners = HashMap::new();
    let mut found = collect_key_warnings(keys, accounts, now, match_model, passed, &mut owners)?;
    found.extend(collect_account_warnings(accounts, &owners, passed)?);
    Ok(found)
}

/// Collects every valid key with a warning. Also collects the accounts of all keys in `owners`, with `None` for an
/// account that does not exist.
fn collect_key_warnings(
    keys: &KeyStore,
    accounts: &AccountStore,
    now: u64,
    match_model: &dyn Fn(&str) -> ModelMatch,
    passed: &dyn Fn(WarningOwner, &str) -> Option<u64>,
    owners: &mut HashMap<String, Option<AccountRecord>>,
) -> Result<Vec<OwnerWarnings>, StoreError> {
    let mut found = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = keys.list(None, after.as_deref(), request::MAX_PAGE_ROWS)?;
        for key in &page.keys {
            let account = match owners.get(&key.account) {
                Some(account) => account.clone(),
                None => {
                    let account = accounts.get(&key.account)?;
                    owners.insert(key.account.clone(), account.clone());
                    account
                }
            };
            if key.revoked.is_some() || key.expires.is_some_and(|end| end <= now) {
                continue;
            }
            let mut warnings = key_warnings(key, account.as_ref(), Some(match_model));
            warnings.extend(unused_limits_warning(&key.limits, passed(WarningOwner::Key, &key.id)));
            if !warnings.is_empty() {
                found.push(OwnerWarnings {
                    owner: WarningOwner::Key,
                    id: key.id.clone(),
                    name: key.name.clone(),
                    warnings,
                });
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(found);
        }
    }
}

/// Collects every account with a warning; `owners` has the accounts of keys.
fn collect_account_warnings(
    accounts: &AccountStore,
    owners: &HashMap<String, Option<AccountRecord>>,
    passed: &dyn Fn(WarningOwner, &str) -> Option<u64>,
) -> Result<Vec<OwnerWarnings>, StoreError> {
    let mut found = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = accounts.list(after.as_deref(), request::MAX_PAGE_ROWS)?;
        for account in &page.accounts {
            let mut warnings = Vec::new();
            if set_limits(&account.limits).next().is_some() && !owners.contains_key(&account.id) {
                warnings.push("limits match nothing: no key belongs to this account.".to_owned());
            }
            warnings
                .extend(unused_limits_warning(&account.limits, passed(WarningOwner::Account, &account.id)));
            if !warnings.is_empty() {
                found.push(OwnerWarnings {
                    owner: WarningOwner::Account,
                    id: account.id.clone(),
                    name: account.name.clone(),
                    warnings,
                });
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(found);
        }
    }
}

fn unused_limits_warning(limits: &KeyLimits, passed: Option<u64>) -> Option<String> {
    (passed == Some(0) && set_limits(limits).next().is_some())
        .then(|| "limits have met no request since the gateway started.".to_owned())
}

/// Returns the warnings that are added to the response to a change.
pub fn change_warnings(
    app: &AppState,
    stores: &OpenStorage,
    effect: &request::KeyCacheUpdate,
) -> Vec<String> {
    match effect {
        request::KeyCacheUpdate::Key(key, _) => {
            let account = stores.accounts.get(&key.account).ok().flatten();
            key_warnings(
                key,
                account.as_ref(),
                Some(&|name| app.config_snapshot().catalog.classify_name(name)),
            )
        }
        request::KeyCacheUpdate::Account(_) => Vec::new(),
    }
}
