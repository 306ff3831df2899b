//! `POST /v1/audio/transcriptions`: a form with a sound goes to the relay.

use super::Endpoint;
use crate::exchange::{Ended, Exchange};
use crate::proxy::filters::RequestBody;
use crate::relay;
use async_trait::async_trait;
use http::Method;
use penstock_auth::Scope;
use penstock_contract::Refusal;

/// The endpoint.
pub struct Transcriptions;

#[async_trait]
impl Endpoint for Transcriptions {
    fn name(&self) -> &'static str {
        "transcriptions"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        "/v1/audio/transcriptions"
    }

    fn scope(&self) -> Scope {
        Scope::Audio
    }

    async fn handle(&self, x: &mut Exchange<'_>, _tail: &str) -> Result<Ended, Refusal> {
        let (model, task, sound) = x.sound().await?;
        relay::run(x, RequestBody::Form(model, task, sound)).await
    }
}
