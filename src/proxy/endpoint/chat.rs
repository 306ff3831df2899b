//! `POST /v1/chat/completions`: a chat request, which the failover driver sends to a provider.

use super::{Endpoint, EndpointFuture, boxed_handler};
use crate::proxy::endpoint::openapi::{EVENTS, EndpointWork, JSON, Operation};
use crate::proxy::exchange::Exchange;
use crate::proxy::failover;
use crate::proxy::filters::RequestBody;
use crate::upstream::config_snapshot::ConfigSnapshot;
use bytes::Bytes;
use http::Method;
use penstock_auth::KeyScope;
use penstock_core::{ApiError, InferenceRequest};

/// Endpoint of chat completions.
pub struct ChatCompletions;

impl Endpoint for ChatCompletions {
    fn name(&self) -> &'static str {
        "chat"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        "/v1/chat/completions"
    }

    fn scope(&self) -> KeyScope {
        KeyScope::Chat
    }

    fn operation(&self) -> Operation {
        Operation::new(
            "Chat",
            EndpointWork::Model,
            "Answers a conversation",
            &[(200, &[(JSON, "ChatCompletion"), EVENTS])],
        )
        .with_body(JSON, "ChatRequest")
    }

    fn accepts_batch_lines(&self) -> bool {
        true
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, _tail: &'a str) -> EndpointFuture<'a> {
        boxed_handler(move || async move {
            let body = x.read_json_body().await?;
            failover::run(x, RequestBody::Json(body, parse_chat_request)).await
        })
    }
}

/// Parses the body of a chat request.
///
/// # Errors
/// Returns the refusal of the body, with the field's path.
pub fn parse_chat_request(body: Bytes, live: &ConfigSnapshot) -> Result<InferenceRequest, ApiError> {
    penstock_request_validation::validate_chat_request(body, &live.admission)
}
