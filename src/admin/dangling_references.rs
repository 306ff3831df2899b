//! Limits and permissions that match nothing: an operator set them, but they have no effect.

use super::openapi::answered;
use super::routes::{Route, Work};
use super::{input, openapi, request};
use crate::auth::account_json;
use crate::state::House;
use crate::storage::stores::Vault;
use penstock_auth::{Scope, Scopes};
use penstock_catalog::Catalog;
use penstock_contract::{Code, Refusal};
use penstock_storage::accounts::{AccountRecord, AccountStore};
use penstock_storage::keys::{KeyLimits, KeyRecord, KeyStore};
use penstock_storage::{Store, StoreError};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// Routes of the warnings.
pub const ROUTES: &[Route] = &[Route::get(
    "/admin/unmatched",
    "listUnmatched",
    "Lists limits and permissions that match nothing",
    Work::House(|house, _, _| Box::pin(listed(house.clone()))),
)
.answers(200, || openapi::list(answered(&["key", "account", "name", "warnings"])))];

/// Warnings about a key. `model` classifies a model name by the catalogue, if the catalogue is known.
pub fn of_key(
    key: &KeyRecord,
    account: Option<&AccountRecord>,
    model: Option<&dyn Fn(&str) -> Model>,
) -> Vec<String> {
    let mut warnings = Vec::new();
    let scopes = Scopes::lenient(key.scopes.iter().map(String::as_str));
    let limited: Vec<&str> = limited(&key.limits).map(|(name, _)| name).collect();
    let inference = Scope::ALL.into_iter().any(|scope| scope != Scope::Models && scopes.allows(scope));
    if !limited.is_empty() && !inference {
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
            Model::Known => None,
            Model::Alias(id) => Some(format!("models: {name} is an alias and matches nothing; write {id}.")),
            Model::Unknown => Some(format!("models: {name} matches no model of the catalogue.")),
        })),
        None => {}
    }
    let shared = account.map(|account| account.limits).unwrap_or_default();
    for (name, own) in self::limited(&key.limits) {
        let over = self::limited(&shared).find(|(other, most)| *other == name && *most < own);
        if let Some((_, most)) = over {
            let most =
                if name.starts_with("budget") { account_json::credits(most) } else { most.to_string() };
            warnings.push(format!("limits.{name} is never reached: the account's is {most}."));
        }
    }
    warnings
}

/// Classification of a name in a list of models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Model {
    /// Id of a model.
    Known,
    /// Alias of the model with this id.
    Alias(String),
    /// Unknown name.
    Unknown,
}

/// Classifies a model name by the catalogue.
pub fn model(catalog: &Catalog, name: &str) -> Model {
    match catalog.resolve(name) {
        None => Model::Unknown,
        Some(card) if card.id == name => Model::Known,
        Some(card) => Model::Alias(card.id.clone()),
    }
}

/// Limits that are set; budgets in micro-credits.
fn limited(limits: &KeyLimits) -> impl Iterator<Item = (&'static str, u64)> + use<> {
    let all = [
        limits.requests_per_minute,
        limits.tokens_per_minute,
        limits.concurrent.map(u64::from),
        limits.budget_per_day,
        limits.budget_per_month,
    ];
    input::LIMITS.into_iter().zip(all).filter_map(|(name, limit)| Some((name, limit?)))
}

async fn listed(house: Arc<House>) -> Result<Value, Refusal> {
    let found = tokio::task::spawn_blocking(move || list(&house, &house.vault));
    found.await.unwrap_or_else(|_| Err(Refusal::new(Code::Internal)))
}

/// `GET /admin/unmatched`: every key and account with a warning, or with limits that no request has met since the
/// gateway started.
///
/// # Errors
/// Returns the error of the store.
fn list(house: &House, vault: &Vault) -> Result<Value, Refusal> {
    let known = |name: &str| model(&house.live().catalog, name);
    let passed = |whose: Whose, id: &str| match whose {
        Whose::Key => house.keyring.grant(id).map(|grant| grant.tally().passed()),
        Whose::Account => house.keyring.account(id).map(|account| account.tally.passed()),
    };
    let passed = |whose: Whose, id: &str| Some(passed(whose, id).unwrap_or(0));
    let found =
        all(&vault.keys, &vault.accounts, house.clock.unix(), &known, &passed).map_err(request::failed)?;
    let told = |found: Found| {
        let whose = if found.whose == Whose::Key { "key" } else { "account" };
        json!({ whose: found.id, "name": found.name, "warnings": found.warnings })
    };
    Ok(json!({ "data": found.into_iter().map(told).collect::<Vec<_>>() }))
}

/// Warnings for a store that no gateway has open, as sentences. Warnings that need a running gateway are left out.
///
/// # Errors
/// Returns the error of the store.
pub fn at_rest(store: &Arc<dyn Store>, catalog: &Catalog, now: u64) -> Result<Vec<String>, StoreError> {
    let (keys, accounts) = (KeyStore::new(store.clone()), AccountStore::new(store.clone()));
    let found = all(&keys, &accounts, now, &|name| model(catalog, name), &|_, _| None)?;
    let told = |found: &Found| {
        let whose = if found.whose == Whose::Key { "Key" } else { "Account" };
        let told = |warning: &String| format!("{whose} {}: {warning}", found.id);
        found.warnings.iter().map(told).collect::<Vec<_>>()
    };
    Ok(found.iter().flat_map(told).collect())
}

/// Owner type of a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Key,
    Account,
}

/// A key or account with warnings.
struct Found {
    whose: Whose,
    id: String,
    name: String,
    warnings: Vec<String>,
}

/// Collects every key and account with a warning. `passed` returns the number of requests that have met its limits, if
/// known.
fn all(
    keys: &KeyStore,
    accounts: &AccountStore,
    now: u64,
    known: &dyn Fn(&str) -> Model,
    passed: &dyn Fn(Whose, &str) -> Option<u64>,
) -> Result<Vec<Found>, StoreError> {
    let mut found = Vec::new();
    let mut owners: HashMap<String, Option<AccountRecord>> = HashMap::new();
    let mut after: Option<String> = None;
    loop {
        let page = keys.list(None, after.as_deref(), request::PAGE)?;
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
            let mut warnings = of_key(key, account.as_ref(), Some(known));
            warnings.extend(unmet(&key.limits, passed(Whose::Key, &key.id)));
            if !warnings.is_empty() {
                found.push(Found { whose: Whose::Key, id: key.id.clone(), name: key.name.clone(), warnings });
            }
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let mut after: Option<String> = None;
    loop {
        let page = accounts.list(after.as_deref(), request::PAGE)?;
        for account in &page.accounts {
            let mut warnings = Vec::new();
            if limited(&account.limits).next().is_some() && !owners.contains_key(&account.id) {
                warnings.push("limits match nothing: no key belongs to this account.".to_owned());
            }
            warnings.extend(unmet(&account.limits, passed(Whose::Account, &account.id)));
            if !warnings.is_empty() {
                found.push(Found {
                    whose: Whose::Account,
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

fn unmet(limits: &KeyLimits, passed: Option<u64>) -> Option<String> {
    (passed == Some(0) && limited(limits).next().is_some())
        .then(|| "limits have met no request since the gateway started.".to_owned())
}

/// Warnings that are part of the answer to a change.
pub fn after_change(house: &House, vault: &Vault, effect: &request::Effect) -> Vec<String> {
    match effect {
        request::Effect::Key(key, _) => {
            let account = vault.accounts.get(&key.account).ok().flatten();
            of_key(key, account.as_ref(), Some(&|name| model(&house.live().catalog, name)))
        }
        request::Effect::Account(_) | request::Effect::None => Vec::new(),
    }
}
