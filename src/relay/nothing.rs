//! Asks for no tokens (`max_tokens: 0`, which only the messages dialect admits):
//! answered here. No provider is called, nothing is reserved or charged; it
//! counts as a request, and the name, the model and the key are looked at as ever.

use super::select;
use crate::exchange::{Ended, Exchange, ended};
use bytes::Bytes;
use penstock_annotate::NOTHING;
use penstock_contract::{Ask, Refusal};
use penstock_dialect::write::Face;
use penstock_dialect::write::messages::nothing;
use penstock_limits::Cost;
use penstock_routing::split;

/// Answers with an empty message.
///
/// # Errors
/// No such model for this key, or a limit is reached.
pub async fn answer(x: &mut Exchange<'_>, ask: &Ask) -> Result<Ended, Refusal> {
    select::model_of(x, ask, split(&ask.model).0)?;
    let (entry, _) = x.come_in()?;
    x.pass(entry, &Cost::default())?;
    let face = Face { id: x.id.unique().into(), model: ask.model.to_string(), created: x.house.clock.unix() };
    let body = nothing(face, ask.stream, NOTHING);
    if !ask.stream {
        return Ok(x.answer(200, body).await);
    }
    x.record.status = 200;
    let head = x.head(200);
    if head.stream(&mut x.caller).await.is_err() {
        return Ok(Ended::Left);
    }
    Ok(ended(x.caller.write_response_body(Bytes::from(body), true).await))
}
