//! `GET /v1/usage`: usage of the account by day, model, key and other dimensions, from the hourly rollups. The key
//! needs the scope `account.read`.

use super::{Endpoint, EndpointFuture, query_parameters};
use crate::billing::rollups::answer::{UsageQuery, check_key_of_account, read_usage, usage_json};
use crate::http::query_names::check_query_names;
use crate::proxy::endpoint::openapi::{EndpointWorkKind, JSON_CONTENT_TYPE, Operation};
use crate::proxy::exchange::Exchange;
use http::Method;
use penstock_auth::KeyScope;
use penstock_core::{ApiError, ErrorCode};

/// Query parameters of the request; others are refused.
const QUERY_PARAMETERS: [&str; 4] = ["from", "to", "group_by", "key"];
/// Value of the query parameter `key` that selects the API key which sends the request.
const OWN_KEY: &str = "self";

/// Endpoint of the account's usage.
pub struct GetUsageEndpoint;

impl Endpoint for GetUsageEndpoint {
    fn name(&self) -> &'static str {
        "usage"
    }

    fn method(&self) -> Method {
        Method::GET
    }

    fn path(&self) -> &'static str {
        "/v1/usage"
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::AccountRead
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Account",
            EndpointWorkKind::Direct,
            "Usage of the account, or of one of its keys",
            &[(200, &[(JSON_CONTENT_TYPE, "Usage")])],
        )
        .with_query(&QUERY_PARAMETERS)
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, _tail: &'a str) -> EndpointFuture<'a> {
        Box::pin(async move {
            let pairs: Vec<_> = query_parameters(x.caller.query().unwrap_or_default()).collect();
            check_query_names(pairs.iter().map(|(name, _)| &**name), &QUERY_PARAMETERS)?;
            let value =
                |name: &str| pairs.iter().find(|(known, _)| *known == *name).map(|(_, value)| &**value);
            let mut query = UsageQuery::parse(value, x.app.clock.unix_seconds())?;
            if query.key.as_deref() == Some(OWN_KEY) {
                query.key = Some(x.principal.public_id.to_string());
            }
            let (app, account) = (x.app.clone(), x.principal.account.id.clone());
            let work = move || {
                check_key_of_account(&app.stores.keys, &account, &query)?;
                read_usage(&app.ledger.store, &account, &query).map(|report| usage_json(&query, &report))
            };
            let answer = tokio::task::spawn_blocking(work).await;
            let answer = answer.unwrap_or_else(|_| Err(ApiError::new(ErrorCode::Internal)));
            // The cause of a store failure is not sent to the client.
            let answer = answer.map_err(|refusal| match refusal.code {
                ErrorCode::Internal => ApiError::new(ErrorCode::Internal),
                _ => refusal,
            })?;
            Ok(x.send_json(200, answer.to_string().into_bytes()).await)
        })
    }
}
