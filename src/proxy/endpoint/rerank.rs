//! `POST /v1/rerank`: documents sorted by their relevance to a query. `/v2/rerank` is the same endpoint, for clients of
//! Cohere's API v2.

use super::{Endpoint, EndpointFuture, boxed_handler};
use crate::proxy::endpoint::openapi::{EndpointWorkKind, JSON_CONTENT_TYPE, Operation};
use crate::proxy::exchange::Exchange;
use crate::proxy::failover;
use crate::proxy::filters::RequestBody;
use crate::upstream::config_snapshot::ConfigSnapshot;
use http::Method;
use penstock_auth::KeyScope;

/// Endpoint of reranking, at one of its paths.
pub struct RerankDocumentsEndpoint(pub &'static str);

impl Endpoint for RerankDocumentsEndpoint {
    fn name(&self) -> &'static str {
        "rerank"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        self.0
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Rerank
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Rerank",
            EndpointWorkKind::Model,
            "Sorts documents by their relevance to a query",
            &[(200, &[(JSON_CONTENT_TYPE, "Ranking")])],
        )
        .with_body(JSON_CONTENT_TYPE, "RerankRequest")
    }

    /// Returns true for `/v1/rerank`. The second path exists only for clients with a fixed path.
    fn accepts_batch_lines(&self) -> bool {
        self.0 == "/v1/rerank"
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, _tail: &'a str) -> EndpointFuture<'a> {
        boxed_handler(move || async move {
            let body = x.read_json_body().await?;
            let parse = |body, live: &ConfigSnapshot| {
                penstock_request_validation::validate_rerank_request(body, &live.request_limits)
            };
            failover::serve_request(x, RequestBody::Json(body, parse)).await
        })
    }
}
