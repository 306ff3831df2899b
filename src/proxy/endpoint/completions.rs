//! `POST /v1/completions`: text that continues a prompt without roles.

use super::{Endpoint, EndpointFuture, boxed_handler};
use crate::proxy::endpoint::openapi::{EVENT_STREAM_CONTENT, EndpointWorkKind, JSON_CONTENT_TYPE, Operation};
use crate::proxy::exchange::Exchange;
use crate::proxy::failover;
use crate::proxy::filters::RequestBody;
use crate::upstream::config_snapshot::ConfigSnapshot;
use http::Method;
use penstock_auth::KeyScope;

/// Endpoint of text completions.
pub struct TextCompletionsEndpoint;

impl Endpoint for TextCompletionsEndpoint {
    fn name(&self) -> &'static str {
        "completions"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        "/v1/completions"
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Chat
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Chat",
            EndpointWorkKind::Model,
            "Continues a prompt without roles",
            &[(200, &[(JSON_CONTENT_TYPE, "Completion"), EVENT_STREAM_CONTENT])],
        )
        .with_body(JSON_CONTENT_TYPE, "CompletionRequest")
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, _tail: &'a str) -> EndpointFuture<'a> {
        boxed_handler(move || async move {
            let body = x.read_json_body().await?;
            let parse = |body, live: &ConfigSnapshot| {
                penstock_request_validation::validate_text_completion_request(body, &live.request_limits)
            };
            failover::serve_request(x, RequestBody::Json(body, parse)).await
        })
    }
}
