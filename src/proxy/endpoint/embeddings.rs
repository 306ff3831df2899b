//! `POST /v1/embeddings`: embeddings of texts. Token IDs are decoded to text first.

use super::Endpoint;
use crate::proxy::exchange::{Exchange, WriteOutcome};
use crate::proxy::failover;
use crate::proxy::filters::RequestBody;
use crate::upstream::config_snapshot::ConfigSnapshot;
use async_trait::async_trait;
use http::Method;
use penstock_auth::KeyScope;
use penstock_core::ApiError;

/// Endpoint of embeddings.
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

    fn scope(&self) -> KeyScope {
        KeyScope::Embeddings
    }

    fn accepts_batch_lines(&self) -> bool {
        true
    }

    async fn handle(&self, x: &mut Exchange<'_>, _tail: &str) -> Result<WriteOutcome, ApiError> {
        let body = x.json_body().await?;
        let parse = |body, live: &ConfigSnapshot| {
            penstock_request_validation::validate_embeddings(body, &live.admission)
        };
        failover::run(x, RequestBody::Json(body, parse)).await
    }
}
