//! `POST /v1/embeddings`: the vectors of texts.

use super::Endpoint;
use crate::exchange::{Ended, Exchange};
use crate::live::Live;
use crate::proxy::filters::RequestBody;
use crate::relay;
use async_trait::async_trait;
use http::Method;
use penstock_auth::Scope;
use penstock_contract::Refusal;

/// The endpoint.
pub struct Embeddings;

#[async_trait]
impl Endpoint for Embeddings {
    fn name(&self) -> &'static str {
        "embeddings"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        "/v1/embeddings"
    }

    fn scope(&self) -> Scope {
        Scope::Embeddings
    }

    fn takes_lines(&self) -> bool {
        true
    }

    async fn handle(&self, x: &mut Exchange<'_>, _tail: &str) -> Result<Ended, Refusal> {
        let body = x.json_body().await?;
        let parse = |body, live: &Live| penstock_admission::embeddings(body, &live.admission);
        relay::run(x, RequestBody::Json(body, parse)).await
    }
}
