//! A plain answer: read whole, translated, completed with both objects, sent
//! with its exact length.

use super::Run;
use super::attempt::{self, Answering, Stop};
use super::settle;
use crate::exchange::{Ended, ended};
use crate::upstream::offer::OfferLive;
use bytes::{Bytes, BytesMut};
use penstock_contract::{Fault, FaultKind};
use penstock_routing::{Outcome, Sample};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One attempt at a plain answer.
pub async fn attempt(run: &mut Run<'_, '_>, offer: &Arc<OfferLive>, number: u32) -> Result<Ended, Stop> {
    let asked = Instant::now();
    let created = run.x.house.clock.unix();
    let (translator, dialect) = attempt::translator(run, offer)?;
    let target = attempt::target(run, offer, dialect, created);
    let body = translator.request(run.ask, &target).map_err(Stop::Pass)?;
    // A plain answer's head comes when all of it is generated.
    let first_byte = offer.offer.provider.timeouts.plain;
    let mut answering = attempt::open(run, offer, dialect, &body, first_byte).await?;
    let idle = offer.offer.provider.timeouts.idle;
    let answer = whole(run, &mut answering, idle).await?;
    let target = attempt::target(run, offer, dialect, created);
    let whole = translator.whole(run.ask, &target, answer)?;
    answering.way.release().await;

    let now = run.now();
    let usage = whole.usage.unwrap_or_else(|| run.ask.counted(whole.output_bytes));
    let sample = Sample {
        prompt_tokens: usage.input,
        output_tokens: usage.output,
        first_token: None,
        total: asked.elapsed(),
    };
    offer.learn(now, Outcome::Good, Some(sample));
    let objects = settle::served(run, offer, usage, whole.measured, asked.elapsed(), Some(sample));
    let body = penstock_annotate::splice(whole.body, &objects);
    run.x.record.status = 200;
    let head = settle::head(run, offer, number).map_err(|_| Stop::Left)?;
    Ok(ended(head.json(run.x.session, body).await))
}

/// The whole body, within its cap.
async fn whole(run: &mut Run<'_, '_>, answering: &mut Answering, idle: Duration) -> Result<Bytes, Stop> {
    let cap = run.x.live.settings.limits.response_buffer;
    let mut body = BytesMut::new();
    let mut only: Option<Bytes> = None;
    while let Some(piece) = attempt::read(run, answering, Instant::now() + idle, FaultKind::Idle).await? {
        if body.len() + only.as_ref().map_or(0, Bytes::len) + piece.len() > cap {
            return Err(Stop::Fault(Fault::new(FaultKind::Malformed)));
        }
        // An answer that comes in one piece is not copied.
        match only.take() {
            None if body.is_empty() => only = Some(piece),
            first => {
                body.extend_from_slice(&first.unwrap_or_default());
                body.extend_from_slice(&piece);
            }
        }
    }
    Ok(only.unwrap_or_else(|| body.freeze()))
}
