//! Asks for no tokens (`max_tokens: 0`, which only the messages dialect admits):
//! answered here. No provider is called, nothing is reserved or charged; it
//! counts as a request, and the name, the model and the key are looked at as ever.
//! The place that it names is that of the provider that would have been asked.

use super::{select, settle};
use crate::proxy::exchange::{Ended, Exchange, ended};
use bytes::Bytes;
use penstock_contract::{Ask, Code, Refusal};
use penstock_dialect::write::Face;
use penstock_dialect::write::messages::nothing;
use penstock_limits::Cost;
use penstock_routing::split;

/// Answers with an empty message.
///
/// # Errors
/// No such model for this key, nobody who could be asked, or a limit is reached.
pub async fn answer(x: &mut Exchange<'_>, ask: &Ask) -> Result<Ended, Refusal> {
    select::model_of(x, ask, split(&ask.model).0)?;
    let (entry, _) = x.come_in()?;
    x.pass(entry, &Cost::default())?;
    let Some(chosen) = select::select(x, ask).await? else { return Ok(Ended::Left) };
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
        .with(settle::FLAVOR, x.record.flavor.unwrap_or_default())
        .number("x-penstock-attempts", 0);
    if !ask.stream {
        return Ok(ended(head.json(&mut x.caller, vec![Bytes::from(body)]).await));
    }
    if head.stream(&mut x.caller).await.is_err() {
        return Ok(Ended::Left);
    }
    Ok(ended(x.caller.write_response_body(Bytes::from(body), true).await))
}
