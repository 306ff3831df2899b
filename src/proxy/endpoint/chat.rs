//! `POST /v1/chat/completions`: a chat request, which the failover driver sends to a provider.

use super::{Endpoint, EndpointFuture, boxed_handler};
use crate::proxy::endpoint::openapi::{EVENT_STREAM_CONTENT, EndpointWorkKind, JSON_CONTENT_TYPE, Operation};
use crate::proxy::exchange::Exchange;
use crate::proxy::failover;
use crate::proxy::filters::RequestBody;
use crate::upstream::config_snapshot::ConfigSnapshot;
use bytes::Bytes;
use http::Method;
use penstock_auth::KeyScope;
use penstock_core::{ApiError, InferenceRequest};

/// Endpoint of chat completions.
pub struct ChatCompletionsEndpoint;

impl Endpoint for ChatCompletionsEndpoint {
    fn name(&self) -> &'static str {
        "chat"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        "/v1/chat/completions"
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Chat
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Chat",
            EndpointWorkKind::Model,
            "Answers a conversation",
            &[(200, &[(JSON_CONTENT_TYPE, "ChatCompletion"), EVENT_STREAM_CONTENT])],
        )
        .with_body(JSON_CONTENT_TYPE, "ChatRequest")
    }

    fn accepts_batch_lines(&self) -> bool {
        true
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, _tail: &'a str) -> EndpointFuture<'a> {
        boxed_handler(move || async move {
            let body = x.read_json_body().await?;
            failover::serve_request(x, RequestBody::Json(body, parse_chat_request)).await
        })
    }
}

/// Parses the body of a chat request.
///
/// # Errors
/// Returns the refusal of the body, with the field's path.
pub fn parse_chat_request(body: Bytes, live: &ConfigSnapshot) -> Result<InferenceRequest, ApiError> {
    penstock_request_validation::validate_chat_request(body, &live.request_limits)
}
