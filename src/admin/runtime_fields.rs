//! Live data of keys and accounts that only a running gateway has: last use, requests in flight, remaining limits and
//! spending.

use crate::auth::account_json;
use crate::auth::usage_limiter::UsageLimiter;
use crate::state::AppState;
use serde_json::{Value, json};
use std::time::Duration;

/// Adds live data to a response: to a single object, or to each object under `data`.
pub fn add_runtime_fields(app: &AppState, answer: &mut Value) {
    let now = app.clock.calendar_now();
    let one = |item: &mut Value| {
        let Some(id) = item.get("id").and_then(Value::as_str).map(str::to_owned) else { return };
        let Some(members) = item.as_object_mut() else { return };
        let tally = if members.contains_key("scopes") {
            let Some(grant) = app.key_cache.find_principal(&id) else { return };
            if let Some(used) = grant.last_used() {
                members.insert("last_used".to_owned(), used.into());
            }
            usage_figures(grant.limiter(), now)
        } else if members.contains_key("state") {
            let Some(account) = app.key_cache.account(&id) else { return };
            usage_figures(&account.limiter, now)
        } else {
            return;
        };
        members.insert("now".to_owned(), tally);
    };
    match answer.get_mut("data").and_then(Value::as_array_mut) {
        Some(items) => items.iter_mut().for_each(one),
        None => one(answer),
    }
}

fn usage_figures(tally: &UsageLimiter, now: Duration) -> Value {
    let (working, debt, status) = tally.current_status(now);
    let spent = tally.spend_record(now);
    json!({
        "requests_at_work": working,
        "requests_left": status.requests.map(|gauge| gauge.remaining),
        "tokens_left": status.tokens.map(|gauge| gauge.remaining),
        "tokens_owed": debt,
        "spent_today": account_json::format_credits(spent.day),
        "spent_this_month": account_json::format_credits(spent.month),
    })
}
