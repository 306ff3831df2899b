//! Endpoints whose JSON body is passed to the provider without translation, one constant for each.

use super::{Endpoint, EndpointFuture, boxed_handler};
use crate::proxy::endpoint::openapi::{EVENT_STREAM_CONTENT, EndpointWorkKind, JSON_CONTENT_TYPE, Operation};
use crate::proxy::exchange::Exchange;
use crate::proxy::failover;
use crate::proxy::filters::RequestBody;
use crate::upstream::config_snapshot::ConfigSnapshot;
use http::Method;
use penstock_auth::KeyScope;
use penstock_core::{ApiError, InferenceRequest, ModelKind};
use penstock_request_validation as validation;

/// Endpoint whose JSON body is passed to the provider without translation; its work is metered by the kind of its
/// models.
pub struct PassthroughEndpoint {
    name: &'static str,
    path: &'static str,
    kind: ModelKind,
    operation: Operation,
    parse: fn(bytes::Bytes, &ConfigSnapshot) -> Result<InferenceRequest, ApiError>,
}

/// `POST /v1/audio/speech`: speech from a text.
pub const SPEECH: PassthroughEndpoint = PassthroughEndpoint {
    name: "speech",
    path: "/v1/audio/speech",
    kind: ModelKind::Speech,
    operation: Operation::new(
        "Audio",
        EndpointWorkKind::Model,
        "Speaks a text",
        &[(
            200,
            &[
                ("audio/mpeg", "Bytes"),
                ("audio/ogg", "Bytes"),
                ("audio/webm", "Bytes"),
                ("audio/aac", "Bytes"),
                ("audio/mp4", "Bytes"),
                ("audio/flac", "Bytes"),
                ("audio/wav", "Bytes"),
                ("audio/pcm", "Bytes"),
                EVENT_STREAM_CONTENT,
            ],
        )],
    )
    .with_body(JSON_CONTENT_TYPE, "SpeechRequest"),
    parse: |body, live| validation::validate_speech_request(body, &live.request_limits),
};

/// `POST /v1/moderations`: classification of texts.
pub const MODERATIONS: PassthroughEndpoint = PassthroughEndpoint {
    name: "moderations",
    path: "/v1/moderations",
    kind: ModelKind::Moderation,
    operation: Operation::new(
        "Moderation",
        EndpointWorkKind::Model,
        "Classifies texts by the harm that they may do",
        &[(200, &[(JSON_CONTENT_TYPE, "Moderation")])],
    )
    .with_body(JSON_CONTENT_TYPE, "ModerationRequest"),
    parse: |body, live| {
        let default = live.settings.default_models.moderations.as_deref();
        validation::validate_text_input_request(body, &live.request_limits, ModelKind::Moderation, default)
    },
};

impl Endpoint for PassthroughEndpoint {
    fn name(&self) -> &'static str {
        self.name
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        self.path
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::from_name(self.kind.spec().scope).unwrap_or(KeyScope::Chat)
    }

    fn openapi_operation(&self) -> Operation {
        self.operation
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, _tail: &'a str) -> EndpointFuture<'a> {
        boxed_handler(move || async move {
            let body = x.read_json_body().await?;
            failover::serve_request(x, RequestBody::Json(body, self.parse)).await
        })
    }
}
