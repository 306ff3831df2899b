//! `POST /v1/audio/transcriptions`: a multipart form with an audio file, handled by the relay.

use super::Endpoint;
use crate::proxy::exchange::{Exchange, WriteOutcome};
use crate::proxy::failover;
use crate::proxy::filters::RequestBody;
use async_trait::async_trait;
use http::Method;
use penstock_auth::KeyScope;
use penstock_core::ApiError;

/// Endpoint of transcriptions.
pub struct CreateTranscription;

#[async_trait]
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

    async fn handle(&self, x: &mut Exchange<'_>, _tail: &str) -> Result<WriteOutcome, ApiError> {
        let (model, task, sound) = x.read_audio_form().await?;
        failover::run(x, RequestBody::Form(model, task, sound)).await
    }
}
