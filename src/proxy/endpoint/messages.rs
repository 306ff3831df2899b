//! `POST /v1/messages`: a request in the messages dialect, which the failover driver sends to a provider.

use super::{Endpoint, EndpointFuture, boxed_handler};
use crate::proxy::endpoint::openapi::{EVENT_STREAM_CONTENT, EndpointWorkKind, JSON_CONTENT_TYPE, Operation};
use crate::proxy::exchange::Exchange;
use crate::proxy::failover;
use crate::proxy::filters::RequestBody;
use crate::upstream::config_snapshot::ConfigSnapshot;
use http::Method;
use penstock_auth::KeyScope;
use penstock_request_validation::MessagesPurpose;

/// Endpoint `POST /v1/messages`.
pub struct CreateMessageEndpoint;

impl Endpoint for CreateMessageEndpoint {
    fn name(&self) -> &'static str {
        "messages"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        "/v1/messages"
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Chat
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Messages",
            EndpointWorkKind::Model,
            "Answers a conversation, in the messages dialect",
            &[(200, &[(JSON_CONTENT_TYPE, "MessagesResponse"), EVENT_STREAM_CONTENT])],
        )
        .with_body(JSON_CONTENT_TYPE, "MessagesRequest")
    }

    fn accepts_batch_lines(&self) -> bool {
        true
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, _tail: &'a str) -> EndpointFuture<'a> {
        boxed_handler(move || async move {
            let body = x.read_json_body().await?;
            let parse = |body, live: &ConfigSnapshot| {
                penstock_request_validation::validate_messages_request(
                    body,
                    &live.request_limits,
                    MessagesPurpose::Generate,
                )
            };
            failover::serve_request(x, RequestBody::Json(body, parse)).await
        })
    }
}
