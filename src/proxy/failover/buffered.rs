//! A plain answer: read whole, translated, completed with both objects, sent
//! with its exact length. Long lists may take several calls to one provider.

use super::Run;
use super::attempt::{self, Answering, Stop};
use super::{images, settle};
use crate::proxy::exchange::{Ended, ended};
use crate::telemetry::off_thread::off_thread;
use crate::time::clock;
use crate::upstream::offer::OfferLive;
use crate::upstream::wire_format::Speech;
use bytes::{Bytes, BytesMut};
use penstock_contract::{Answer, Call, Done, Fault, FaultKind, Target, Task, Whole};
use penstock_routing::{Outcome, Sample};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Answers of a shape up to this size are translated where they are; longer
/// ones on a thread that may take its time.
const QUICK: usize = 256 * 1024;

/// One attempt at a plain answer.
pub async fn attempt(run: &mut Run<'_, '_>, offer: &Arc<OfferLive>, number: u32) -> Result<Ended, Stop> {
    // Read itself: what went before is not the provider's time.
    let asked = Instant::now();
    let created = run.at;
    let speech = attempt::speech(run, offer)?;
    let target = attempt::target(run, offer, speech.dialect(), created);
    let calls = speech.calls(run.ask, &target).map_err(Stop::Pass)?;
    let answers = ask(run, offer, speech, &calls).await?;
    let mut whole = translate(run, offer, speech, created, answers).await?;
    if let Task::Draw(draw) = &run.ask.task {
        whole.done = Some(settle::images(images::count(&whole), draw, run.ask, offer));
        whole.body = images::finish(run, offer, draw, std::mem::take(&mut whole.pictures), created).await?;
    }

    let now = run.now();
    let took = clock::now().saturating_duration_since(asked);
    let done = whole.done.unwrap_or_else(|| Done::Tokens(run.ask.counted(whole.output_bytes)));
    let sample = Sample {
        prompt_tokens: done.usage().map_or(0, |usage| usage.input),
        output_tokens: done.usage().map_or(0, |usage| usage.output),
        first_token: None,
        total: took,
    };
    offer.learn(now, Outcome::Good, Some(run.x.grant.client), Some(sample));
    run.noticed(offer, whole.noticed);
    run.x.caller.note_finish(Some(whole.finish));
    run.x.caller.note_provider(&offer.offer.provider.id, number);
    let objects = settle::served(run, offer, done, done, whole.measured, took, Some(sample));
    run.x.record.status = 200;
    let head = settle::head(run, offer, number);
    settle::written(run).await;
    if let Task::Transcribe(task) = &run.ask.task
        && let Some(kind) = penstock_media::speech::content_type(task.script)
    {
        let head = settle::in_headers(head, &objects);
        return Ok(ended(head.whole(&mut run.x.caller, kind, whole.body).await));
    }
    let body = penstock_annotate::splice(whole.body, &objects);
    Ok(ended(head.json(&mut run.x.caller, body).await))
}

/// Makes the calls one after the other: an attempt has one seat.
async fn ask(
    run: &mut Run<'_, '_>,
    offer: &Arc<OfferLive>,
    speech: Speech,
    calls: &[Call],
) -> Result<Vec<Answer>, Stop> {
    let timeouts = offer.offer.provider.timeouts;
    let mut answers = Vec::with_capacity(calls.len());
    let mut room = run.x.live.settings.limits.response_buffer;
    for call in calls {
        // A plain answer's head comes when all of it is generated; with some providers only white space does until then.
        let due = clock::now() + timeouts.plain;
        let mut answering = attempt::open(run, offer, speech, call, timeouts.plain).await?;
        let body = whole(run, &mut answering, (due, timeouts.idle), room).await?;
        room = room.saturating_sub(body.len());
        let headers = heard(&answering, speech);
        answering.way.release().await;
        answers.push(Answer { body, headers });
    }
    Ok(answers)
}

/// The headers that the answer is read with.
fn heard(answering: &Answering, speech: Speech) -> Vec<Option<Box<str>>> {
    let value = |name: &&str| answering.way.field(name).and_then(attempt::text).map(Into::into);
    speech.heeds().iter().map(value).collect()
}

/// The whole body, within its cap. Its first byte other than white space is waited for until `due`; after that
/// white space does not count as progress.
pub async fn whole(
    run: &mut Run<'_, '_>,
    answering: &mut Answering,
    (due, idle): (Instant, Duration),
    cap: usize,
) -> Result<Bytes, Stop> {
    let mut body = BytesMut::new();
    let mut only: Option<Bytes> = None;
    let (mut begun, mut alarm) = (false, clock::now() + idle);
    // What has waited for its head as long as it may is given a moment for its body.
    let due = due.max(alarm);
    loop {
        let until = if begun { alarm } else { alarm.min(due) };
        let Some(piece) = attempt::read(run, answering, until, FaultKind::Idle).await? else { break };
        let says = piece.iter().any(|byte| !byte.is_ascii_whitespace());
        if says || !begun {
            alarm = clock::now() + idle;
        }
        begun |= says;
        if body.len() + only.as_ref().map_or(0, Bytes::len) + piece.len() > cap {
            return Err(Stop::Fault(Fault::new(FaultKind::Malformed)));
        }
        run.weight.add(run.x, piece.len())?;
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

/// The answer for the client. Millions of numbers are read away from the async
/// threads, which have streams to serve.
async fn translate(
    run: &mut Run<'_, '_>,
    offer: &Arc<OfferLive>,
    speech: Speech,
    created: u64,
    answers: Vec<Answer>,
) -> Result<Whole, Stop> {
    let size: usize = answers.iter().map(|answer| answer.body.len()).sum();
    let target = attempt::target(run, offer, speech.dialect(), created);
    if size <= QUICK || matches!(speech, Speech::Dialects(_)) {
        return Ok(speech.whole(run.ask, &target, answers)?);
    }
    let (ask, offer) = (run.ask.clone(), offer.clone());
    let (answer_model, id): (Box<str>, Box<str>) = (target.answer_model.into(), target.id.into());
    let adjust = target.adjust;
    let work = move || {
        let target = Target {
            model: &offer.offer.name,
            dialect: speech.dialect(),
            abilities: &offer.offer.abilities,
            preset: &[],
            max_tokens: None,
            adjust,
            answer_model: &answer_model,
            id: &id,
            created,
        };
        speech.whole(&ask, &target, answers)
    };
    Ok(off_thread(&run.x.house.blocking, work).await.map_err(Stop::Own)??)
}
