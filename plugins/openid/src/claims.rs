//! Claims of an ID token that contain roles, accounts and names of persons.

use serde_json::Value;

/// Maximum number of texts that are read from a claim.
pub const MAX_CLAIM_TEXTS: usize = 1_000;

/// Returns the texts of a claim: its string, or the strings of its list. A path such as `realm_access.roles` refers
/// to a member of an object, unless a claim has the whole path as its name.
#[must_use]
pub fn claim_texts<'v>(claims: &'v Value, path: &str) -> Vec<&'v str> {
    let nested = || path.split('.').try_fold(claims, |value, name| value.get(name));
    match claims.get(path).or_else(nested) {
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).take(MAX_CLAIM_TEXTS).collect(),
        _ => Vec::new(),
    }
}
