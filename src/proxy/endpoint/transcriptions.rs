//! `POST /v1/audio/transcriptions`: a multipart form with an audio file, which the failover driver sends to a provider.

use super::{Endpoint, EndpointFuture};
use crate::proxy::endpoint::openapi::{EndpointWork, FORM, JSON, Operation};
use crate::proxy::exchange::Exchange;
use crate::proxy::failover;
use crate::proxy::filters::RequestBody;
use http::Method;
use penstock_auth::KeyScope;

/// Endpoint of transcriptions.
pub struct CreateTranscription;

impl Endpoint for CreateTranscription {
    fn name(&self) -> &'static str {
        "transcriptions"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        "/v1/audio/transcriptions"
    }

    fn scope(&self) -> KeyScope {
        KeyScope::Audio
    }

    fn operation(&self) -> Operation {
        Operation::new(
            "Audio",
            EndpointWork::Model,
            "Transcribes speech",
            &[(
                200,
                &[
                    (JSON, "Transcription"),
                    ("text/plain", "Text"),
                    ("application/x-subrip", "Text"),
                    ("text/vtt", "Text"),
                ],
            )],
        )
        .with_body(FORM, "TranscriptionRequest")
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, _tail: &'a str) -> EndpointFuture<'a> {
        Box::pin(async move {
            let (model, task, sound) = x.read_audio_form().await?;
            failover::run(x, RequestBody::Form(model, task, sound)).await
        })
    }
}
