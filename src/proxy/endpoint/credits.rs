//! `GET /v1/credits`: balance of the account. The key needs the scope `account.read`.

use super::{Endpoint, EndpointFuture};
use crate::billing::format;
use crate::proxy::endpoint::openapi::{EndpointWorkKind, JSON_CONTENT_TYPE, Operation};
use crate::proxy::exchange::Exchange;
use http::Method;
use penstock_auth::KeyScope;

/// Endpoint of the account's balance.
pub struct GetCreditsEndpoint;

impl Endpoint for GetCreditsEndpoint {
    fn name(&self) -> &'static str {
        "credits"
    }

    fn method(&self) -> Method {
        Method::GET
    }

    fn path(&self) -> &'static str {
        "/v1/credits"
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::AccountRead
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Account",
            EndpointWorkKind::Direct,
            "Balance of the account",
            &[(200, &[(JSON_CONTENT_TYPE, "Balance")])],
        )
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, _tail: &'a str) -> EndpointFuture<'a> {
        Box::pin(async move {
            let account = &x.principal.account.id;
            let mut answer = format::balances_to_json(account, &x.app.ledger.current_balance(account).await?);
            if let Some(members) = answer.as_object_mut() {
                members.insert("object".to_owned(), "balance".into());
            }
            Ok(x.send_json(200, answer.to_string().into_bytes()).await)
        })
    }
}
