//! `POST /v1/rerank`: documents in the order of a query. Clients made for
//! Cohere's second API find it at `/v2/rerank` too.

use super::Endpoint;
use crate::exchange::{Ended, Exchange};
use crate::live::Live;
use crate::proxy::filters::RequestBody;
use crate::relay;
use async_trait::async_trait;
use http::Method;
use penstock_auth::Scope;
use penstock_contract::Refusal;

/// The endpoint, at one of its paths.
pub struct Rerank(pub &'static str);

#[async_trait]
impl Endpoint for Rerank {
    fn name(&self) -> &'static str {
        "rerank"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        self.0
    }

    fn scope(&self) -> Scope {
        Scope::Rerank
    }

    /// At its second path it is for clients that cannot ask elsewhere; a file of lines can.
    fn takes_lines(&self) -> bool {
        self.0 == "/v1/rerank"
    }

    async fn handle(&self, x: &mut Exchange<'_>, _tail: &str) -> Result<Ended, Refusal> {
        let body = x.json_body().await?;
        let parse = |body, live: &Live| penstock_admission::rerank(body, &live.admission);
        relay::run(x, RequestBody::Json(body, parse)).await
    }
}
