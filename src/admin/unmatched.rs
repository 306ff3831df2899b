//! Limits and permissions that match nothing: what somebody wrote down, and
//! believes to be in force, and is not.

use super::{desk, fields};
use crate::house::House;
use crate::vault::Vault;
use penstock_auth::{Scope, Scopes};
use penstock_contract::Refusal;
use penstock_storage::accounts::AccountRecord;
use penstock_storage::keys::{KeyLimits, KeyRecord};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Warnings about a key. `model` says whether a name is the catalogue's id of a model, and which one it is an
/// alias of, where the catalogue is known.
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
        warnings
            .push(format!("{} match nothing: no scope of this key lets it ask a model.", limited.join(", ")));
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
            let most = if name.starts_with("budget") { fields::credits(most) } else { most.to_string() };
            warnings.push(format!("limits.{name} is never reached: the account's is {most}."));
        }
    }
    warnings
}

/// What a name in a list of models is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Model {
    /// The id of a model.
    Known,
    /// Another name of the model with this id.
    Alias(String),
    /// Nothing.
    Unknown,
}

/// What a name is in the catalogue at work.
pub fn model(house: &House, name: &str) -> Model {
    match house.live().catalog.resolve(name) {
        None => Model::Unknown,
        Some(card) if card.id == name => Model::Known,
        Some(card) => Model::Alias(card.id.clone()),
    }
}

/// The limits that are there, budgets in micro-credits.
fn limited(limits: &KeyLimits) -> impl Iterator<Item = (&'static str, u64)> + use<> {
    let all = [
        limits.requests_per_minute,
        limits.tokens_per_minute,
        limits.concurrent.map(u64::from),
        limits.budget_per_day,
        limits.budget_per_month,
    ];
    fields::LIMITS.into_iter().zip(all).filter_map(|(name, limit)| Some((name, limit?)))
}

/// `GET /admin/unmatched`: every key and account with a warning, or with limits that no request has met since
/// the gateway started.
///
/// # Errors
/// What the store says.
pub fn list(house: &House, vault: &Vault) -> Result<Value, Refusal> {
    let known = |name: &str| model(house, name);
    let now = house.clock.unix();
    let mut found = Vec::new();
    let mut owners: HashMap<String, Option<AccountRecord>> = HashMap::new();
    let mut after: Option<String> = None;
    loop {
        let page = vault.keys.list(None, after.as_deref(), desk::PAGE).map_err(desk::failed)?;
        for key in &page.keys {
            let account = match owners.get(&key.account) {
                Some(account) => account.clone(),
                None => {
                    let account = vault.accounts.get(&key.account).map_err(desk::failed)?;
                    owners.insert(key.account.clone(), account.clone());
                    account
                }
            };
            if key.revoked.is_some() || key.expires.is_some_and(|end| end <= now) {
                continue;
            }
            let mut warnings = of_key(key, account.as_ref(), Some(&known));
            let passed = house.keyring.grant(&key.id).map_or(0, |grant| grant.tally().passed());
            warnings.extend(unmet(&key.limits, passed));
            if !warnings.is_empty() {
                found.push(json!({ "key": key.id, "name": key.name, "warnings": warnings }));
            }
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let mut after: Option<String> = None;
    loop {
        let page = vault.accounts.list(after.as_deref(), desk::PAGE).map_err(desk::failed)?;
        for account in &page.accounts {
            let mut warnings = Vec::new();
            if limited(&account.limits).next().is_some() && !owners.contains_key(&account.id) {
                warnings.push("limits match nothing: no key belongs to this account.".to_owned());
            }
            let passed = house.keyring.account(&account.id).map_or(0, |account| account.tally.passed());
            warnings.extend(unmet(&account.limits, passed));
            if !warnings.is_empty() {
                found.push(json!({ "account": account.id, "name": account.name, "warnings": warnings }));
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(json!({ "data": found }));
        }
    }
}

fn unmet(limits: &KeyLimits, passed: u64) -> Option<String> {
    (passed == 0 && limited(limits).next().is_some())
        .then(|| "limits have met no request since the gateway started.".to_owned())
}

/// The warnings that go with the answer to a change.
pub fn after_change(house: &House, vault: &Vault, effect: &desk::Effect) -> Vec<String> {
    match effect {
        desk::Effect::Key(key, _) => {
            let account = vault.accounts.get(&key.account).ok().flatten();
            of_key(key, account.as_ref(), Some(&|name| model(house, name)))
        }
        desk::Effect::Account(_) | desk::Effect::None => Vec::new(),
    }
}
