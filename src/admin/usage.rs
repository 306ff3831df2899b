//! Admin requests for usage: sums of all accounts or of one, and the comparison of the rollups with the ledger.

use super::credits::{requested_account, run_blocking};
use super::openapi::response_schema;
use super::request::{AdminRequest, LedgerReply};
use super::routes::{AdminRoute, RouteHandler};
use crate::billing::Ledger;
use crate::billing::rollups::answer::{UsageQuery, check_key_of_account, read_usage, usage_json};
use crate::billing::rollups::rebuild;
use crate::storage::stores::OpenStorage;
use penstock_core::{ApiError, ErrorCode};

/// Query parameters of the request for usage sums.
pub const USAGE_QUERY_PARAMETERS: [&str; 5] = ["from", "to", "group_by", "account", "key"];
/// Response members of the request for usage sums.
pub const USAGE_MEMBERS: [&str; 6] = ["object", "from", "to", "group_by", "data", "total"];
/// Response members of the request that compares the usage rollups with the ledger.
pub const VERIFICATION_MEMBERS: [&str; 5] = ["good", "entries", "rollups", "left_out_from", "differences"];

/// Routes that read usage.
pub const ROUTES: &[AdminRoute] = &[
    AdminRoute::get(
        "/admin/usage",
        "usage",
        "Adds up usage by day, model, key and other dimensions, of all accounts or of one",
        RouteHandler::Ledger(|stores, ledger, asked| Box::pin(usage(stores, ledger, asked))),
    )
    .with_query_parameters(&USAGE_QUERY_PARAMETERS)
    .with_response(200, || response_schema(&USAGE_MEMBERS)),
    AdminRoute::get(
        "/admin/usage/verify",
        "verifyUsage",
        "Compares the usage rollups with the ledger",
        RouteHandler::Ledger(|_, ledger, _| Box::pin(verify(ledger))),
    )
    .with_response(200, || response_schema(&VERIFICATION_MEMBERS)),
];

async fn usage(stores: &OpenStorage, ledger: &Ledger, asked: &AdminRequest) -> Result<LedgerReply, ApiError> {
    let account =
        requested_account(stores, ledger, asked, &USAGE_QUERY_PARAMETERS).await?.unwrap_or_default();
    let value = |name: &str| asked.query_parameter(name, &USAGE_QUERY_PARAMETERS).ok().flatten();
    let query = UsageQuery::parse(value, asked.now)?;
    if account.is_empty() && (query.key.is_some() || query.groupings.iter().any(|by| by.name() == "key")) {
        let expected = "account: expected an account where the usage of keys is asked for";
        return Err(ApiError::invalid("account", expected));
    }
    let (keys, store) = (stores.keys.clone(), ledger.store.clone());
    let work = move || {
        check_key_of_account(&keys, &account, &query)?;
        read_usage(&store, &account, &query).map(|report| usage_json(&query, &report))
    };
    let answer = tokio::task::spawn_blocking(work).await;
    Ok(LedgerReply::Json(200, answer.unwrap_or_else(|_| Err(ApiError::new(ErrorCode::Internal)))?))
}

async fn verify(ledger: &Ledger) -> Result<LedgerReply, ApiError> {
    let store = ledger.store.clone();
    Ok(LedgerReply::Json(200, run_blocking(move || rebuild::verify(&store)).await?.to_json()))
}
