//! Live data of keys and accounts that only a running gateway has: last use, requests in flight, remaining limits and
//! spending.

use crate::auth::account_json;
use crate::auth::usage_limiter::UsageLimiter;
use crate::state::AppState;
use penstock_storage::spend::{SpendOwner, SpendRecord};
use serde_json::{Value, json};
use std::time::Duration;

/// Adds live data to a response: to a single object, or to each object under `data`. In a fleet, reads the spending of all
/// members from the store; blocks.
pub fn add_runtime_fields(app: &AppState, answer: &mut Value) {
    let now = app.clock.calendar_now();
    let items: Vec<&mut Value> = match answer {
        Value::Object(members) if members.get("data").is_some_and(Value::is_array) => {
            members.get_mut("data").and_then(Value::as_array_mut).into_iter().flatten().collect()
        }
        one => vec![one],
    };
    let owners: Vec<Option<SpendOwner>> = items.iter().map(|item| spend_owner(item)).collect();
    let mut written = read_fleet_spends(app, owners.iter().flatten()).into_iter();
    for (item, owner) in items.into_iter().zip(owners) {
        let (Some(members), Some(owner)) = (item.as_object_mut(), owner) else { continue };
        let written = written.next().flatten();
        let figures = match &owner {
            SpendOwner::Key(id) => {
                let Some(principal) = app.key_cache.find_principal(id) else { continue };
                if let Some(used) = principal.last_used() {
                    members.insert("last_used".to_owned(), used.into());
                }
                usage_figures(principal.limiter(), written, now)
            }
            SpendOwner::Account(id) => {
                let Some(account) = app.key_cache.account(id) else { continue };
                usage_figures(&account.limiter, written, now)
            }
        };
        members.insert("now".to_owned(), figures);
    }
}

/// Returns the key or the account that an object of a response describes; `None` for any other object.
fn spend_owner(item: &Value) -> Option<SpendOwner> {
    let id = item.get("id").and_then(Value::as_str)?.to_owned();
    match item {
        item if item.get("scopes").is_some() => Some(SpendOwner::Key(id)),
        item if item.get("state").is_some() => Some(SpendOwner::Account(id)),
        _ => None,
    }
}

/// Reads the spending of all members of a fleet, in the order of the owners, each `None` without a record. Empty without a
/// fleet, or if the store cannot be read.
fn read_fleet_spends<'o>(
    app: &AppState,
    owners: impl Iterator<Item = &'o SpendOwner>,
) -> Vec<Option<SpendRecord>> {
    if app.stores.fleet.settings().is_none() {
        return Vec::new();
    }
    app.stores.spends.get_many(&owners.cloned().collect::<Vec<_>>()).unwrap_or_default()
}

/// Returns the live data of a key or an account. `written` is the spending of all members of a fleet in the store.
fn usage_figures(limiter: &UsageLimiter, written: Option<SpendRecord>, now: Duration) -> Value {
    let (working, debt, status) = limiter.current_status(now);
    let spent = written
        .map_or_else(|| limiter.spend_record(now), |written| limiter.with_unwritten_spending(written, now));
    json!({
        "requests_at_work": working,
        "requests_left": status.requests.map(|gauge| gauge.remaining),
        "tokens_left": status.tokens.map(|gauge| gauge.remaining),
        "tokens_owed": debt,
        "spent_today": account_json::format_credits(spent.day),
        "spent_this_month": account_json::format_credits(spent.month),
    })
}
