//! What the admin listener answers to the holder of its token: every route
//! once, for the listener, for the command line on a store, and for the
//! OpenAPI document.

use http::Method;
use penstock_contract::{Code, Refusal};

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Accounts, a page at a time.
    ListAccounts,
    /// A new account.
    CreateAccount,
    /// One account.
    GetAccount,
    /// Another name, state or limits.
    ChangeAccount,
    /// Keys, a page at a time.
    ListKeys,
    /// A new key.
    CreateKey,
    /// One key.
    GetKey,
    /// Other rights or limits.
    ChangeKey,
    /// A key's end.
    RevokeKey,
    /// A new secret for a key.
    RotateKey,
    /// The audit log, a page at a time.
    ListAudit,
    /// The audit log's chain, followed.
    VerifyAudit,
    /// Limits that match nothing.
    ListUnmatched,
    /// What accounts have.
    ListBalances,
    /// Credits or energy for an account.
    Grant,
    /// Another amount in the place of a charge or a grant.
    Correct,
    /// The whole ledger, recomputed.
    VerifyLedger,
    /// The charges of a day, computed again.
    RerateDay,
    /// The ledger's lines, a page at a time.
    ReadLedger,
    /// A month, added up.
    Statement,
    /// The configuration as it is written now.
    Reload,
    /// The catalogue.
    ListModels,
    /// Providers and their offers.
    ListProviders,
}

/// One method on one path; `{id}` stands for one segment.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// What it does.
    pub operation: Operation,
    /// Its method.
    pub method: &'static Method,
    /// Its path.
    pub path: &'static str,
    /// One line for the document.
    pub summary: &'static str,
}

const fn route(
    operation: Operation,
    method: &'static Method,
    path: &'static str,
    summary: &'static str,
) -> Route {
    Route { operation, method, path, summary }
}

/// Every route that needs the admin token.
#[rustfmt::skip]
pub const ROUTES: &[Route] = &[
    route(Operation::ListAccounts, &Method::GET, "/admin/accounts", "Lists accounts"),
    route(Operation::CreateAccount, &Method::POST, "/admin/accounts", "Makes an account"),
    route(Operation::GetAccount, &Method::GET, "/admin/accounts/{id}", "Shows an account"),
    route(Operation::ChangeAccount, &Method::PATCH, "/admin/accounts/{id}", "Changes an account: name, state, limits"),
    route(Operation::ListKeys, &Method::GET, "/admin/keys", "Lists keys"),
    route(Operation::CreateKey, &Method::POST, "/admin/keys", "Makes a key and shows it, this once"),
    route(Operation::GetKey, &Method::GET, "/admin/keys/{id}", "Shows a key, without its secret"),
    route(Operation::ChangeKey, &Method::PATCH, "/admin/keys/{id}", "Changes a key: name, scopes, models, limits, expiry"),
    route(Operation::RevokeKey, &Method::POST, "/admin/keys/{id}/revoke", "Revokes a key at once, and cuts the streams it has open"),
    route(Operation::RotateKey, &Method::POST, "/admin/keys/{id}/rotate", "Gives a key a new secret and shows it, this once; the old one stays good for a while"),
    route(Operation::ListAudit, &Method::GET, "/admin/audit", "Lists who changed what and when"),
    route(Operation::VerifyAudit, &Method::GET, "/admin/audit/verify", "Follows the chain of the audit log"),
    route(Operation::ListUnmatched, &Method::GET, "/admin/unmatched", "Lists limits and permissions that match nothing"),
    route(Operation::ListBalances, &Method::GET, "/admin/credits", "Lists what accounts have, and what is reserved of it"),
    route(Operation::Grant, &Method::POST, "/admin/credits/grant", "Gives an account credits or energy"),
    route(Operation::Correct, &Method::POST, "/admin/credits/correct", "Takes a charge or a grant back, and puts another amount in its place"),
    route(Operation::VerifyLedger, &Method::GET, "/admin/credits/verify", "Recomputes the ledger, and names the first entry that does not fit"),
    route(Operation::RerateDay, &Method::GET, "/admin/credits/rerate", "Computes every charge of a day again, from its usage and its terms"),
    route(Operation::ReadLedger, &Method::GET, "/admin/ledger", "Lines of the ledger behind an entry; none at its end"),
    route(Operation::Statement, &Method::GET, "/admin/statement", "Adds a month up: requests, tokens, energy, carbon, water, EUR, by account and key"),
    route(Operation::Reload, &Method::POST, "/admin/reload", "Swaps in the configuration as it is written now"),
    route(Operation::ListModels, &Method::GET, "/admin/models", "Lists the catalogue"),
    route(Operation::ListProviders, &Method::GET, "/admin/providers", "Lists providers and how they are"),
];

/// The operation of a method and a path, and what `{id}` stands for.
///
/// # Errors
/// Nothing at this path, or not with this method.
pub fn find(method: &Method, path: &str) -> Result<(Operation, String), Refusal> {
    let mut allowed = Vec::new();
    for route in ROUTES {
        let Some(id) = matches(route.path, path) else { continue };
        if route.method == method {
            return Ok((route.operation, crate::endpoint::decoded(id).into_owned()));
        }
        allowed.push(route.method.as_str());
    }
    if allowed.is_empty() {
        return Err(Refusal::new(Code::NotFound));
    }
    let allow = allowed.join(", ");
    let message = format!("This path takes {allow}, not {method}.");
    Err(Refusal::because(Code::MethodNotAllowed, message).with("allow", allow))
}

fn matches<'p>(pattern: &str, path: &'p str) -> Option<&'p str> {
    let Some((before, after)) = pattern.split_once("{id}") else { return (pattern == path).then_some("") };
    let id = path.strip_prefix(before)?.strip_suffix(after)?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_route_is_found_by_its_own_method_and_path() {
        for route in ROUTES {
            let path = route.path.replace("{id}", "one%2Ftwo");
            let (operation, id) = find(route.method, &path).unwrap();
            assert_eq!(operation, route.operation, "{path}");
            assert_eq!(id.is_empty(), !route.path.contains("{id}"));
            assert!(id.is_empty() || id == "one/two");
        }
    }

    #[test]
    fn a_wrong_method_names_the_right_ones_and_a_wrong_path_nothing() {
        let refusal = find(&Method::DELETE, "/admin/keys/0123456789abcdef").unwrap_err();
        assert_eq!(refusal.details.get("allow").unwrap(), "GET, PATCH");
        for path in ["/admin", "/admin/keys/", "/admin/keys//revoke", "/admin/keys/a/b", "/admin/nothing"] {
            assert_eq!(find(&Method::GET, path).unwrap_err().code, Code::NotFound, "{path}");
        }
    }
}
