//! `POST /v1/embeddings`: embeddings of texts. Token IDs are decoded to text first.

use super::{Endpoint, EndpointFuture, boxed_handler};
use crate::proxy::endpoint::openapi::{EndpointWorkKind, JSON_CONTENT_TYPE, Operation};
use crate::proxy::exchange::Exchange;
use crate::proxy::failover;
use crate::proxy::filters::RequestBody;
use crate::upstream::config_snapshot::ConfigSnapshot;
use http::Method;
use penstock_auth::KeyScope;

/// Endpoint of embeddings.
pub struct EmbeddingsEndpoint;

impl Endpoint for EmbeddingsEndpoint {
    fn name(&self) -> &'static str {
        "embeddings"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        "/v1/embeddings"
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Embeddings
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Embeddings",
            EndpointWorkKind::Model,
            "Embeds texts",
            &[(200, &[(JSON_CONTENT_TYPE, "Embeddings")])],
        )
        .with_body(JSON_CONTENT_TYPE, "EmbeddingsRequest")
    }

    fn accepts_batch_lines(&self) -> bool {
        true
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, _tail: &'a str) -> EndpointFuture<'a> {
        boxed_handler(move || async move {
            let body = x.read_json_body().await?;
            let parse = |body, live: &ConfigSnapshot| {
                penstock_request_validation::validate_embeddings_request(body, &live.request_limits)
            };
            failover::serve_request(x, RequestBody::Json(body, parse)).await
        })
    }
}
