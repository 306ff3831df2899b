//! Requests with `max_tokens: 0` in the messages dialect. (Of the other requests, only a text completion with `echo`
//! may have this value; a provider answers it.) The gateway answers them itself: no provider is called, and nothing is
//! reserved or charged. Such a request counts towards the request limits, and its model and key are checked as usual.
//! Its response headers name the provider that would have been called.

use super::candidates::{model_for_request, select_candidates};
use super::request::{InferenceContext, RequestFilter};
use crate::proxy::exchange::{Exchange, WriteOutcome, write_outcome};
use crate::proxy::failover::FLAVOR_HEADER;
use bytes::Bytes;
use penstock_core::{ApiError, ErrorCode, InferenceRequest};
use penstock_dialect::write::ResponseIdentity;
use penstock_dialect::write::messages::write_empty_message;
use penstock_limits::CostEstimate;
use penstock_routing::split_flavor;
use std::ops::ControlFlow;

/// Filter that answers a request for zero tokens; the filters after it do not run.
pub struct AnswerZeroTokens;

impl RequestFilter for AnswerZeroTokens {
    const NAME: &'static str = "answer_zero_tokens";

    async fn check(request: &mut InferenceContext<'_, '_>) -> Result<ControlFlow<WriteOutcome>, ApiError> {
        match &request.ask {
            Some(ask) if ask.max_tokens == Some(0) && !ask.echoes_prompt() => {
                Ok(ControlFlow::Break(answer_empty(request.exchange, ask).await?))
            }
            _ => Ok(ControlFlow::Continue(())),
        }
    }
}

/// Answers a request for zero tokens with an empty message.
async fn answer_empty(x: &mut Exchange<'_>, ask: &InferenceRequest) -> Result<WriteOutcome, ApiError> {
    model_for_request(x, ask, split_flavor(&ask.model).0)?;
    let (entry, _) = x.acquire_provisional_limits_permit()?;
    x.reserve_limits(entry, &CostEstimate::default())?;
    let Some(chosen) = select_candidates(x, ask).await? else { return Ok(WriteOutcome::Disconnected) };
    let first = chosen.entries.first().and_then(|first| x.config.offers.get(first.offer)).cloned();
    let offer = first.ok_or_else(|| ApiError::new(ErrorCode::Unavailable).with_retry_after(1))?;
    let now = x.app.clock.unix_seconds();
    let face = ResponseIdentity { id: x.id.random_part().into(), model: ask.model.to_string(), created: now };
    let body = write_empty_message(
        face,
        ask.stream,
        &offer.pricing.zero_settlement_members(now, x.config.settings.compatibility.amount_format()),
    );
    x.record.status = 200;
    let head = x
        .new_response_head(200)
        .with_field("x-penstock-provider", &*offer.offer.provider.id)
        .with_field(FLAVOR_HEADER, x.record.flavor.unwrap_or_default())
        .with_numeric_field("x-penstock-attempts", 0);
    if !ask.stream {
        return Ok(write_outcome(head.send_json(&mut x.caller, vec![Bytes::from(body)]).await));
    }
    if head.start_event_stream(&mut x.caller).await.is_err() {
        return Ok(WriteOutcome::Disconnected);
    }
    Ok(write_outcome(x.caller.write_response_body(Bytes::from(body), true).await))
}
