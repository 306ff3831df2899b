//! Buffered response: it is read to its end, passes the response body filters, and is sent with its exact length. Long
//! lists may take several calls to one provider.

use super::Run;
use super::attempt::{self, Answering, Stop};
use super::{images, settle};
use crate::proxy::exchange::{Ended, ended};
use crate::proxy::filters::{
    Metered, ResponseBodyFilterChain, ResponseBodyFilters, ResponseContext, response_filter,
};
use crate::proxy::response::head::Head;
use crate::telemetry::off_thread::off_thread;
use crate::time::clock;
use crate::upstream::offer::OfferLive;
use crate::upstream::wire_format::Speech;
use bytes::{Bytes, BytesMut};
use penstock_contract::{Answer, Call, Fault, FaultKind, Reply, Target, Task, Usage, Whole};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Largest response of a shape that is translated on the thread of its request, bytes; longer ones are translated on
/// another.
const QUICK: usize = 256 * 1024;

/// Makes one attempt at a buffered response.
pub async fn attempt(run: &mut Run<'_, '_>, offer: &Arc<OfferLive>, number: u32) -> Result<Ended, Stop> {
    // Time before the attempt is not the provider's.
    let asked = Instant::now();
    let created = run.at;
    let speech = attempt::speech(run, offer)?;
    let target = attempt::target(run, offer, speech.dialect(), created);
    let calls = speech.calls(run.ask, &target).map_err(Stop::Pass)?;
    let answers = ask(run, offer, speech, &calls).await?;
    let mut response = BufferedResponse { run, offer, speech, asked, number };
    let body = ResponseBodyFilters::buffered(&mut response, answers).await?;
    run.x.record.status = 200;
    let mut head = settle::head(run, offer, number);
    if !body.head_members.is_empty() {
        head = settle::in_headers(head, &body.head_members);
    }
    settle::written(run).await;
    let kind = content_type(run);
    Ok(send(run, head, kind.unwrap_or("application/json"), body.downstream).await)
}

/// Sends a buffered response to the client.
pub async fn send(run: &mut Run<'_, '_>, mut head: Head, kind: &str, body: Vec<Bytes>) -> Ended {
    response_filter(&mut head);
    ended(head.whole(&mut run.x.caller, kind, body).await)
}

/// Type of a response that is no JSON.
fn content_type(run: &Run<'_, '_>) -> Option<&'static str> {
    match &run.ask.task {
        Task::Transcribe(task) => penstock_media::speech::content_type(task.script),
        Task::Talk | Task::Embed(_) | Task::Rerank(_) | Task::Draw(_) => None,
    }
}

/// Buffered response of an attempt, as the response body filters see it.
struct BufferedResponse<'c, 'r, 'a> {
    run: &'c mut Run<'r, 'a>,
    offer: &'c Arc<OfferLive>,
    speech: Speech,
    asked: Instant,
    number: u32,
}

impl ResponseContext for BufferedResponse<'_, '_, '_> {
    type Error = Stop;

    fn translation(&mut self) -> Option<&mut (dyn Reply + 'static)> {
        None
    }

    fn note(&mut self, _bytes: usize) {}

    async fn translate(&mut self, upstream: Vec<Answer>) -> Result<Whole, Stop> {
        let (run, offer) = (&mut *self.run, self.offer);
        let created = run.at;
        let mut whole = translate(run, offer, self.speech, created, upstream).await?;
        if let Task::Draw(draw) = &run.ask.task {
            whole.done = Some(settle::images(images::count(&whole), draw, run.ask, offer));
            let pictures = std::mem::take(&mut whole.pictures);
            whole.body = images::finish(run, offer, draw, pictures, created).await?;
        }
        Ok(whole)
    }

    fn counted(&self, output_bytes: usize) -> Usage {
        self.run.ask.counted(output_bytes)
    }

    fn settle(&mut self, metered: Metered) -> Vec<u8> {
        let took = clock::now().saturating_duration_since(self.asked);
        self.run.x.caller.note_provider(&self.offer.offer.provider.id, self.number);
        settle::succeeded(self.run, self.offer, metered, None, took)
    }

    fn is_json(&self) -> bool {
        content_type(self.run).is_none()
    }
}

/// Makes the calls one after the other: an attempt has one permit.
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
        // The head comes when the response is complete; some providers send white space until then.
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

/// Returns the response headers that the translation needs.
fn heard(answering: &Answering, speech: Speech) -> Vec<Option<Box<str>>> {
    let value = |name: &&str| answering.way.field(name).and_then(attempt::text).map(Into::into);
    speech.heeds().iter().map(value).collect()
}

/// Reads the body, at most `cap` bytes. The first byte other than white space must come before `due`; after that white
/// space does not count as progress.
pub async fn whole(
    run: &mut Run<'_, '_>,
    answering: &mut Answering,
    (due, idle): (Instant, Duration),
    cap: usize,
) -> Result<Bytes, Stop> {
    let mut body = BytesMut::new();
    let mut only: Option<Bytes> = None;
    let (mut begun, mut alarm) = (false, clock::now() + idle);
    // After a long wait for the head, the body still has the idle timeout.
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
        // A body that arrives in one piece is not copied.
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

/// Translates the response. Long vectors are read on a thread outside the async runtime, which has streams to serve.
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
