//! `POST /v1/completions`: text that continues a prompt without roles.

use super::Endpoint;
use crate::proxy::exchange::{Exchange, WriteOutcome};
use crate::proxy::failover;
use crate::proxy::filters::RequestBody;
use crate::upstream::config_snapshot::ConfigSnapshot;
use async_trait::async_trait;
use http::Method;
use penstock_auth::KeyScope;
use penstock_core::ApiError;

/// Endpoint of text completions.
pub struct TextCompletions;

#[async_trait]
impl Endpoint for TextCompletions {
    fn name(&self) -> &'static str {
        "completions"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        "/v1/completions"
    }

    fn scope(&self) -> KeyScope {
        KeyScope::Chat
    }

    async fn handle(&self, x: &mut Exchange<'_>, _tail: &str) -> Result<WriteOutcome, ApiError> {
        let body = x.json_body().await?;
        let parse = |body, live: &ConfigSnapshot| {
            penstock_request_validation::validate_completion(body, &live.admission)
        };
        failover::run(x, RequestBody::Json(body, parse)).await
    }
}
