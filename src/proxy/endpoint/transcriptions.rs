//! `POST /v1/audio/transcriptions`: a multipart form with an audio file, which the failover driver sends to a provider.

use super::{Endpoint, EndpointFuture};
use crate::proxy::endpoint::openapi::{EndpointWorkKind, FORM_CONTENT_TYPE, JSON_CONTENT_TYPE, Operation};
use crate::proxy::exchange::Exchange;
use crate::proxy::failover;
use crate::proxy::filters::RequestBody;
use http::Method;
use penstock_auth::KeyScope;

/// Endpoint of transcriptions.
pub struct CreateTranscriptionEndpoint;

impl Endpoint for CreateTranscriptionEndpoint {
    fn name(&self) -> &'static str {
        "transcriptions"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        "/v1/audio/transcriptions"
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Audio
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Audio",
            EndpointWorkKind::Model,
            "Transcribes speech",
            &[(
                200,
                &[
                    (JSON_CONTENT_TYPE, "Transcription"),
                    ("text/plain", "Text"),
                    ("application/x-subrip", "Text"),
                    ("text/vtt", "Text"),
                ],
            )],
        )
        .with_body(FORM_CONTENT_TYPE, "TranscriptionRequest")
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, _tail: &'a str) -> EndpointFuture<'a> {
        Box::pin(async move {
            let (model, task, sound) = x.read_audio_form().await?;
            failover::serve_request(x, RequestBody::Form(model, task, sound)).await
        })
    }
}
