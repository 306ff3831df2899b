//! `POST /v1/messages/count_tokens`: counts tokens without a charge.

use super::Endpoint;
use crate::proxy::context_window;
use crate::proxy::exchange::{Ended, Exchange, ended};
use crate::proxy::filters::model_of;
use async_trait::async_trait;
use bytes::Bytes;
use http::Method;
use penstock_auth::KeyScope;
use penstock_contract::Refusal;
use penstock_limits::Cost;

/// Endpoint of token counts.
pub struct CountTokens;

#[async_trait]
impl Endpoint for CountTokens {
    fn name(&self) -> &'static str {
        "count_tokens"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        "/v1/messages/count_tokens"
    }

    fn scope(&self) -> KeyScope {
        KeyScope::Chat
    }

    async fn handle(&self, x: &mut Exchange<'_>, _tail: &str) -> Result<Ended, Refusal> {
        let body = x.json_body().await?;
        let ask = penstock_admission::count(
            body,
            &x.live.admission,
            x.live.settings.default_models.count_tokens.as_deref(),
        )?;
        let (entry, _) = x.come_in()?;
        let (name, _) = penstock_routing::split(&ask.model);
        let model = model_of(x, &ask, name)?;
        // It counts for the request limits of its key and account, and uses none of their tokens.
        x.pass(entry, &Cost::default())?;
        let counting = x.counting();
        let count = tokio::select! {
            biased;
            count = context_window::count(&counting, &model, &ask) => count?,
            () = x.caller.gone() => return Ok(Ended::Left),
        };
        x.record.status = 200;
        let head = x.head(200).with("x-token-count-method", count.method.name());
        let body = format!("{{\"input_tokens\":{}}}", count.tokens);
        Ok(ended(head.json(&mut x.caller, vec![Bytes::from(body)]).await))
    }
}
