//! Requests for no tokens (`max_tokens: 0`, which only the messages dialect admits): the gateway answers them itself.
//! No provider is called, nothing is reserved or charged. Such a request counts as one, and its model and key are
//! checked as for any other. The provider in its headers is the one that would have been asked.

use super::candidates::{model_of, select};
use super::request::{InferenceRequest, RequestFilter};
use crate::proxy::exchange::{Ended, Exchange, ended};
use crate::proxy::failover::FLAVOR;
use bytes::Bytes;
use penstock_contract::{Ask, Code, Refusal};
use penstock_dialect::write::Face;
use penstock_dialect::write::messages::nothing;
use penstock_limits::Cost;
use penstock_routing::split;
use std::ops::ControlFlow;

/// Filter that answers a request for no tokens, and breaks the chain.
pub struct AnswerZeroTokens;

impl RequestFilter for AnswerZeroTokens {
    const NAME: &'static str = "answer_zero_tokens";

    async fn check(request: &mut InferenceRequest<'_, '_>) -> Result<ControlFlow<Ended>, Refusal> {
        match &request.ask {
            Some(ask) if ask.max_tokens == Some(0) => Ok(ControlFlow::Break(answer(request.x, ask).await?)),
            _ => Ok(ControlFlow::Continue(())),
        }
    }
}

/// Answers with an empty message.
async fn answer(x: &mut Exchange<'_>, ask: &Ask) -> Result<Ended, Refusal> {
    model_of(x, ask, split(&ask.model).0)?;
    let (entry, _) = x.come_in()?;
    x.pass(entry, &Cost::default())?;
    let Some(chosen) = select(x, ask).await? else { return Ok(Ended::Left) };
    let first = chosen.entries.first().and_then(|first| x.live.offers.get(first.offer)).cloned();
    let offer = first.ok_or_else(|| Refusal::new(Code::Unavailable).retry_after(1))?;
    let now = x.house.clock.unix();
    let face = Face { id: x.id.unique().into(), model: ask.model.to_string(), created: now };
    let body =
        nothing(face, ask.stream, &offer.bill.nothing(now, x.live.settings.compatibility.amount_format()));
    x.record.status = 200;
    let head = x
        .head(200)
        .with("x-penstock-provider", &*offer.offer.provider.id)
        .with(FLAVOR, x.record.flavor.unwrap_or_default())
        .number("x-penstock-attempts", 0);
    if !ask.stream {
        return Ok(ended(head.json(&mut x.caller, vec![Bytes::from(body)]).await));
    }
    if head.stream(&mut x.caller).await.is_err() {
        return Ok(Ended::Left);
    }
    Ok(ended(x.caller.write_response_body(Bytes::from(body), true).await))
}
