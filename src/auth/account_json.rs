//! JSON of accounts and their limits, as the admin API shows them and the audit log records them.

use penstock_core::MicroCredits;
use penstock_storage::accounts::{AccountRecord, AccountState};
use penstock_storage::keys::KeyLimits;
use serde_json::{Value, json};

/// Id of the account of keys that are created without an account; it is created at the first start.
pub const DEFAULT_ACCOUNT_ID: &str = "default";
/// States of an account, each with its name in JSON.
pub const ACCOUNT_STATES: [(&str, AccountState); 2] =
    [("active", AccountState::Active), ("suspended", AccountState::Suspended)];

/// Returns an account as JSON.
#[must_use]
pub fn account_to_json(account: &AccountRecord) -> Value {
    let state = ACCOUNT_STATES.iter().find(|(_, state)| *state == account.state).map(|(word, _)| *word);
    json!({
        "id": account.id,
        "name": account.name,
        "created": account.created,
        "state": state,
        "limits": limits_to_json(&account.limits),
    })
}

/// Returns limits as JSON: credits as exact decimal strings, `null` where there is no limit.
#[must_use]
pub fn limits_to_json(limits: &KeyLimits) -> Value {
    json!({
        "requests_per_minute": limits.requests_per_minute,
        "tokens_per_minute": limits.tokens_per_minute,
        "concurrent": limits.concurrent,
        "budget_per_day": limits.budget_per_day.map(format_credits),
        "budget_per_month": limits.budget_per_month.map(format_credits),
    })
}

/// Formats micro-credits as an exact decimal number of credits.
#[must_use]
pub fn format_credits(micro: u64) -> String {
    MicroCredits(i64::try_from(micro).unwrap_or(i64::MAX)).credits().normalize().to_string()
}
