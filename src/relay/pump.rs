//! A streamed answer: events flow to the client as they come. Its head goes out
//! with the first content token and not before; from then on a broken stream is
//! rescued or ends with an error event, never with what looks like success.

use super::attempt::{self, Answering, Stop};
use super::watch::{HEARTBEAT, Woken};
use super::{ResponseProgress, Run, settle};
use crate::clock;
use crate::exchange::{Ended, ended};
use crate::proxy::filters::{
    Metered, ResponseBodyFilterChain, ResponseBodyFilters, ResponseContext, StreamEnd, response_body_filter,
    response_filter,
};
use crate::reply::head::Head;
use crate::upstream::offer::OfferLive;
use crate::upstream::speech::Speech;
use bytes::{Bytes, BytesMut};
use penstock_contract::{
    Answer, Call, Code, Fault, FaultKind, Out, Progress, Refusal, Reply, Rescue, Usage, Whole,
};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a finished stream is waited for its usage and its last word.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Most bytes of a stream in a row without progress (comments, pings, empty deltas), those aside that wait for the rest
/// of their event. Real keep-alives are some bytes a second.
const BARREN: usize = 4 << 20;

/// The times of one attempt.
struct Times {
    asked: Instant,
    /// When a content token has to be there.
    token_by: Instant,
    /// The last progress: generated text, reasoning or a tool call, or a finish. Nothing else is a sign of life.
    progressed: Instant,
    /// When a finished stream is over, whatever still comes.
    over_by: Option<Instant>,
    first_token: Option<Duration>,
    /// What the reply has heard of the provider, and how far it was, at the last progress.
    heard: (usize, Progress),
    /// Bytes since then.
    barren: usize,
    /// What its client took of the time.
    delayed: Duration,
}

impl Times {
    /// The times of a stream whose head has come.
    fn new(asked: Instant, first_token: Duration, reply: Option<&dyn Reply>) -> Self {
        let now = clock::now();
        Self {
            asked,
            token_by: now + first_token,
            progressed: now,
            over_by: None,
            first_token: None,
            heard: reply.map_or((0, Progress::Waiting), |reply| (reply.generated(), reply.progress())),
            barren: 0,
            delayed: Duration::ZERO,
        }
    }

    /// Notes what so many bytes have brought.
    fn note(&mut self, reply: &dyn Reply, bytes: usize) {
        let heard = (reply.generated(), reply.progress());
        let now = clock::now();
        self.barren += bytes;
        if heard != self.heard {
            (self.heard, self.progressed, self.barren) = (heard, now, 0);
        }
        if heard.1 >= Progress::Committed && self.first_token.is_none() {
            self.first_token = Some(now.saturating_duration_since(self.asked));
        }
        if heard.1 >= Progress::Finished {
            self.over_by.get_or_insert(now + LAST_WORD);
        }
    }

    /// Nothing was read for so long, since the client took its time: that is no silence of the provider's.
    fn delay(&mut self, by: Duration) {
        self.delayed += by;
        self.token_by += by;
        self.progressed += by;
        self.over_by = self.over_by.map(|over| over + by);
    }
}

/// One attempt at a stream, or at the rest of one.
pub async fn attempt(run: &mut Run<'_, '_>, offer: &Arc<OfferLive>, number: u32) -> Result<Ended, Stop> {
    let asked = Instant::now();
    let created = run.at;
    let translator = attempt::translator(run, offer)?;
    let dialect = translator.provider();
    let (how, delivered) =
        if run.progress.has_content() { run.rescue_with(offer) } else { (Rescue::StartOver, None) };
    let mut target = attempt::target(run, offer, dialect, created);
    if let Some(text) = &delivered {
        // What the client has already is a part of what it allows.
        let had = run.ask.counted(text.len()).output;
        let cap = target.max_tokens.or(run.ask.max_tokens);
        target.max_tokens = cap.map(|cap| cap.saturating_sub(had).max(1));
    }
    let body = match &delivered {
        Some(text) => translator.continuation(run.ask, &target, text),
        None => translator.request(run.ask, &target),
    };
    let call = Call::json(body.map_err(Stop::Pass)?);
    let mut reply = match run.reply.take().filter(|_| run.progress.has_content()) {
        Some(reply) => reply,
        None => translator.reply(run.ask, &attempt::target(run, offer, dialect, created)),
    };
    // What nobody could tell from what the client has is asked of nobody.
    if run.progress.has_content() && !reply.rescue(&attempt::target(run, offer, dialect, created), how) {
        run.reply = Some(reply);
        return Err(Stop::Pass(Refusal::new(Code::Unavailable)));
    }
    let timeouts = offer.offer.provider.timeouts;
    let opened = attempt::open(run, offer, Speech::Dialects(translator), &call, timeouts.first_byte).await;
    run.reply = Some(reply);
    // It is not kept for as long as the answer takes.
    drop(call);
    let mut answering = opened?;
    run.current = Some(offer.clone());
    run.asked = Some(asked);
    let mut times = Times::new(asked, timeouts.first_token, run.reply.as_deref());
    pump(run, offer, &mut answering, &mut times, number).await?;
    close(run, offer, answering, &mut times).await
}

/// Reads, translates and writes until the provider has said its last word.
async fn pump(
    run: &mut Run<'_, '_>,
    offer: &Arc<OfferLive>,
    answering: &mut Answering,
    times: &mut Times,
    number: u32,
) -> Result<(), Stop> {
    let mut out = Out::default();
    loop {
        let progress = run.reply.as_ref().map_or(Progress::Ended, |reply| reply.progress());
        if progress == Progress::Ended {
            return Ok(());
        }
        let heard = hear(run, offer, answering, times, progress).await?;
        let over = heard.is_none();
        let mut response = StreamResponse { run, offer, times };
        let fault = response_body_filter(&mut response, heard, over, &mut out).err();
        let Some(reply) = run.reply.as_deref() else { return Ok(()) };
        let (kept, committed) = (reply.kept(), reply.progress() >= Progress::Committed);
        if run.progress.has_content() || (committed && fault.is_none()) {
            let before = clock::now();
            tell(run, offer, &mut out, number).await?;
            times.delay(clock::now().saturating_duration_since(before));
        }
        match fault.or_else(|| weigh(run, kept).err()) {
            Some(fault) => return Err(Stop::Fault(fault)),
            None if over => return Ok(()),
            None if times.barren > kept.saturating_add(BARREN) => {
                return barren(run, offer, times, out).await;
            }
            None => {}
        }
    }
}

/// Ends a stream whose provider sends much without progress. It is complete if it was finished before.
async fn barren(
    run: &mut Run<'_, '_>,
    offer: &Arc<OfferLive>,
    times: &mut Times,
    mut out: Out,
) -> Result<(), Stop> {
    if run.reply.as_ref().is_none_or(|reply| reply.progress() < Progress::Finished) {
        return Err(Stop::Fault(Fault::new(FaultKind::Malformed)));
    }
    response_body_filter(&mut StreamResponse { run, offer, times }, None, true, &mut out)?;
    if out.is_empty() { Ok(()) } else { write(run, joined(&mut out), false).await }
}

/// What a stream keeps is bounded like a plain answer, and counted like one.
fn weigh(run: &mut Run<'_, '_>, kept: usize) -> Result<(), Fault> {
    if kept > run.x.live.settings.limits.response_buffer {
        return Err(Fault::new(FaultKind::Malformed));
    }
    run.weight.set(run.x, kept)
}

/// The next bytes of the provider, `None` at its end. The time is compared before each read: one that is always ready
/// hears no alarm.
async fn hear(
    run: &mut Run<'_, '_>,
    offer: &OfferLive,
    answering: &mut Answering,
    times: &Times,
    progress: Progress,
) -> Result<Option<Bytes>, Stop> {
    let timeouts = &offer.offer.provider.timeouts;
    let (limit, silent) = match progress {
        Progress::Waiting => (times.token_by, FaultKind::FirstToken),
        Progress::Committed => (times.progressed + timeouts.idle, FaultKind::Idle),
        Progress::Finished | Progress::Ended => {
            (times.over_by.unwrap_or(times.progressed + LAST_WORD), FaultKind::Idle)
        }
    };
    let alarm = limit.min(answering.until);
    let woken = if clock::now() >= alarm {
        Woken::Alarm
    } else {
        let read = pin!(answering.way.read_body());
        run.watch.race(&mut run.x.caller, read, alarm).await
    };
    match woken {
        Woken::Done(Ok(piece)) => unpacked(answering, piece),
        // A finished answer needs no proper end.
        Woken::Done(Err(_)) | Woken::Alarm if progress == Progress::Finished => Ok(None),
        Woken::Done(Err(_)) => Err(Stop::Fault(Fault::new(FaultKind::Reset))),
        // The time for all is over, and its client took most of it: that is no fault of the provider's.
        Woken::Alarm if answering.until < limit && times.delayed > times.asked.elapsed() / 2 => {
            Err(Stop::Fault(Fault::new(FaultKind::Deadline)))
        }
        woken => Err(woken.stop(silent, run.deadline)),
    }
}

fn unpacked(answering: &mut Answering, piece: Option<Bytes>) -> Result<Option<Bytes>, Stop> {
    let broken = |_| Stop::Fault(Fault::new(FaultKind::Malformed));
    piece.map(|piece| answering.decoder.push(piece).map_err(broken)).transpose()
}

/// Sends what there is to send, the head first if it has not gone out yet.
async fn tell(run: &mut Run<'_, '_>, offer: &Arc<OfferLive>, out: &mut Out, number: u32) -> Result<(), Stop> {
    let had_head = run.progress.has_head();
    if !run.progress.has_content() {
        run.progress = ResponseProgress::ContentSent;
        run.x.caller.note_provider(&offer.offer.provider.id, number);
        run.x.record.first_token = Some(run.x.started.elapsed());
    }
    if !had_head {
        open(run, settle::head(run, offer, number)).await?;
    }
    if out.is_empty() {
        return run.x.caller.flush().await.map_err(|_| Stop::Left);
    }
    run.watch.told(clock::now());
    write(run, joined(out), false).await?;
    #[cfg(feature = "inject")]
    run.x.house.inject.at(crate::inject::At::Stream);
    Ok(())
}

pub(super) async fn open(run: &mut Run<'_, '_>, mut head: Head) -> Result<(), Stop> {
    run.progress = run.progress.max(ResponseProgress::HeadSent);
    run.watch.told(Instant::now());
    run.x.record.status = 200;
    response_filter(&mut head);
    head.stream(&mut run.x.caller).await.map_err(|_| Stop::Left)
}

/// A sign of life while nobody has been asked yet. The head that goes out with
/// the first one cannot name a provider.
pub async fn keep_alive(run: &mut Run<'_, '_>) -> Result<(), Stop> {
    let head = run.x.head(200).with(settle::FLAVOR, run.x.record.flavor.unwrap_or_default());
    open(run, head).await?;
    write(run, HEARTBEAT, false).await
}

pub(super) async fn write(run: &mut Run<'_, '_>, bytes: Bytes, end: bool) -> Result<(), Stop> {
    run.x.caller.write_response_body(bytes, end).await.map_err(|_| Stop::Left)
}

/// The pieces as one, so that they leave in one write.
pub(super) fn joined(out: &mut Out) -> Bytes {
    let mut pieces = std::mem::take(&mut out.0);
    if pieces.len() == 1 {
        return pieces.pop().unwrap_or_default();
    }
    let mut whole = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    for piece in &pieces {
        whole.extend_from_slice(piece);
    }
    whole.freeze()
}

/// Ends a good stream: the response body filters settle it, and the last event carries usage and both objects.
async fn close(
    run: &mut Run<'_, '_>,
    offer: &Arc<OfferLive>,
    answering: Answering,
    times: &mut Times,
) -> Result<Ended, Stop> {
    let end = ResponseBodyFilters::finish(&mut StreamResponse { run, offer, times });
    answering.way.release_soon();
    settle::written(run).await;
    Ok(write_end(run, &end).await)
}

/// Writes the last events of a stream.
pub(super) async fn write_end(run: &mut Run<'_, '_>, end: &StreamEnd) -> Ended {
    let Some(mut reply) = run.reply.take() else { return Ended::Left };
    let usage = end.usage.unwrap_or_else(|| reply.counted());
    let mut out = Out::default();
    reply.close(&usage, &end.members, &mut out);
    ended(run.x.caller.write_response_body(joined(&mut out), true).await)
}

/// Streamed response of an attempt, as the response body filters see it.
struct StreamResponse<'c, 'r, 'a> {
    run: &'c mut Run<'r, 'a>,
    offer: &'c Arc<OfferLive>,
    times: &'c mut Times,
}

impl ResponseContext for StreamResponse<'_, '_, '_> {
    type Error = Stop;

    fn translation(&mut self) -> Option<&mut (dyn Reply + 'static)> {
        self.run.reply.as_deref_mut()
    }

    fn note(&mut self, bytes: usize) {
        if let Some(reply) = self.run.reply.as_deref() {
            self.times.note(reply, bytes);
        }
    }

    async fn translate(&mut self, _: Vec<Answer>) -> Result<Whole, Stop> {
        Err(Fault::new(FaultKind::Malformed).into())
    }

    fn counted(&self, output_bytes: usize) -> Usage {
        self.run.ask.counted(output_bytes)
    }

    fn settle(&mut self, metered: Metered) -> Vec<u8> {
        let took = self.times.asked.elapsed();
        if metered.spoilt {
            self.run.x.record.broke(&Refusal::new(Code::Unavailable));
        }
        settle::succeeded(self.run, self.offer, metered, self.times.first_token, took)
    }
}

/// A reply that knows only the client's dialect, to say that nobody answered.
pub(super) fn unasked(run: &Run<'_, '_>) -> Option<Box<dyn Reply>> {
    let first = run.chosen.entries.first()?;
    let offer = run.x.live.offers.get(first.offer)?;
    let translator = attempt::translator(run, offer).ok()?;
    let dialect = translator.provider();
    let target = attempt::target(run, offer, dialect, run.at);
    Some(translator.reply(run.ask, &target))
}

/// The bad end of a stream that has begun: an error event and no success.
pub async fn fail(run: &mut Run<'_, '_>, refusal: &Refusal) -> Ended {
    run.x.record.broke(refusal);
    settle::broken(run);
    say(run, refusal).await
}

/// Says that a stream has failed.
pub(super) async fn say(run: &mut Run<'_, '_>, refusal: &Refusal) -> Ended {
    let Some(mut reply) = run.reply.take().or_else(|| unasked(run)) else { return Ended::Left };
    let mut out = Out::default();
    reply.fail(refusal, run.x.id.as_str(), &mut out);
    let written = run.x.caller.write_response_body(joined(&mut out), true).await;
    ended(written)
}
