//! Several choices at an offer that gives one at a time: each is a request of its own, with its own attempts, permits
//! and rescue, under the one reservation of credits and limits of the client's request.
//!
//! Streams are interleaved, each event with the number of its choice; the end (finish reasons, usage, both objects)
//! comes once, when all choices are complete. A choice that no provider answers fails the request. The usage is the
//! sum, so the prompt counts once for each choice, as it was computed.

mod choice;
mod joined;
mod sum;

use super::attempt::Stop;
use super::wait::HEARTBEAT;
use super::{ResponseProgress, Run, buffered, settle, streaming};
use crate::proxy::exchange::Ended;
use crate::proxy::filters::{ResponseBodyFilterChain, ResponseBodyFilters};
use crate::upstream::offer::OfferLive;
use bytes::Bytes;
use choice::{End, Seed};
use joined::JoinedResponse;
use penstock_contract::{Code, Extra, Extras, MicroCredits, Out, Refusal, Usage};
use penstock_limits::Used;
use penstock_routing::Course;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;
pub(crate) use sum::Part;
use tokio::sync::mpsc;

/// Most pieces of all choices that wait for the client.
const PIECES: usize = 8;

/// Choices that are to be requested one by one.
pub(super) struct OneByOne {
    /// First of them; those before it are complete.
    from: u32,
    /// Offer that refused several choices, if that is not yet known of it.
    suspect: Option<Arc<OfferLive>>,
}

impl OneByOne {
    /// Returns all choices; `suspect` may have refused them due to their number.
    pub(super) const fn all(suspect: Option<Arc<OfferLive>>) -> Self {
        Self { from: 0, suspect }
    }

    /// Returns the choices from this one on.
    pub(super) const fn from(from: u32) -> Self {
        Self { from, suspect: None }
    }
}

/// Reason to request no more choices.
enum Halt {
    /// Client that has left.
    Left,
    /// Choice that no provider answers.
    Refused(Refusal),
}

type Asking<'s> = Pin<Box<dyn Future<Output = End> + Send + 's>>;

/// Event of the running choices.
enum Heard {
    Piece(Bytes),
    End(Box<End>),
    Gone,
}

/// Requests choices one by one, answers with all of them, and settles.
pub(super) async fn run(run: &mut Run<'_, '_>, wanted: OneByOne, course: &Course) -> Result<Ended, Refusal> {
    let failed = |offer: usize| course.attempts().iter().any(|attempt| attempt.offer == offer);
    let seed = Seed::of(run, failed);
    let mut parts: Vec<Part> =
        run.reply.as_deref().and_then(|reply| Part::begun(run, reply)).into_iter().collect();
    if !run.progress.has_content() {
        (run.reply, run.asked) = (streaming::unasked(run).filter(|_| run.ask.stream), None);
    }
    let waiting = (wanted.from..run.ask.n).collect();
    let (mut ends, halt) = gather(run, &seed, waiting, wanted.suspect.is_some()).await;
    ends.sort_by_key(|end| end.index);
    parts.extend(ends.iter_mut().filter_map(|end| end.part.take()));
    match halt {
        None => {
            if let Some(offer) = &wanted.suspect {
                offer.learned.refuses(Extras::of(Extra::Many), None, run.now());
            }
            finish(run, &seed, ends, parts).await
        }
        Some(Halt::Left) => {
            if run.progress.has_content() && !parts.is_empty() {
                sum::settle(run, parts);
            }
            settle::void(run, "left");
            Ok(Ended::Left)
        }
        Some(Halt::Refused(refusal)) => fail(run, parts, refusal).await,
    }
}

/// Requests the choices, as many at a time as there are permits, and sends their pieces. Returns those that ended. With
/// `first_alone` the others follow once one has begun to answer.
async fn gather(
    run: &mut Run<'_, '_>,
    seed: &Seed<'_>,
    mut waiting: VecDeque<u32>,
    mut first_alone: bool,
) -> (Vec<End>, Option<Halt>) {
    let (sender, mut pieces) = mpsc::channel(PIECES);
    let (mut active, mut ends, mut halt) = (Vec::<Asking<'_>>::new(), Vec::new(), None);
    let mut width = if first_alone { 1 } else { seed.width() };
    loop {
        while halt.is_none() && active.len() < width {
            let Some(index) = waiting.pop_front() else { break };
            active.push(choice::ask(seed, index, sender.clone()));
        }
        if active.is_empty() {
            return (ends, halt);
        }
        let heard = tokio::select! {
            biased;
            Some(piece) = pieces.recv() => Heard::Piece(piece),
            end = next(&mut active) => Heard::End(Box::new(end)),
            () = run.x.caller.gone(), if halt.is_none() => Heard::Gone,
        };
        match heard {
            Heard::Piece(_) if halt.is_some() => {}
            Heard::Piece(piece) => {
                if tell(run, seed, piece).await.is_err() {
                    halt = Some(Halt::Left);
                }
                if std::mem::take(&mut first_alone) {
                    width = seed.width();
                }
            }
            Heard::Gone => halt = Some(Halt::Left),
            Heard::End(mut end) => {
                // The choice may have sent its last pieces just before its end.
                while let (None, Ok(piece)) = (&halt, pieces.try_recv()) {
                    if tell(run, seed, piece).await.is_err() {
                        halt = Some(Halt::Left);
                    }
                }
                end.leave(run);
                // The other choices have the permits: it takes the next that is free.
                if end.crowded && halt.is_none() && !active.is_empty() {
                    width = active.len();
                    waiting.push_front(end.index);
                    continue;
                }
                if halt.is_none() {
                    halt = end.halts();
                }
                if std::mem::take(&mut first_alone) {
                    width = seed.width();
                }
                ends.push(*end);
            }
        }
        if halt.is_some() {
            seed.cancel.cancel();
        }
    }
}

/// Waits for the first choice that ends.
async fn next(active: &mut Vec<Asking<'_>>) -> End {
    poll_fn(|cx| {
        for at in 0..active.len() {
            let Some(asking) = active.get_mut(at) else { break };
            if let Poll::Ready(end) = asking.as_mut().poll(cx) {
                drop(active.swap_remove(at));
                return Poll::Ready(end);
            }
        }
        Poll::Pending
    })
    .await
}

/// Sends a piece of a choice, and the head of the stream before the first one.
async fn tell(run: &mut Run<'_, '_>, seed: &Seed<'_>, piece: Bytes) -> Result<(), Stop> {
    if piece.is_empty() {
        return Ok(());
    }
    if !run.progress.has_head() {
        let head = match seed.told.get() {
            Some((provider, number)) => {
                let head = run.x.head(200).with("x-penstock-provider", &**provider);
                head.with(settle::FLAVOR, run.x.record.flavor.unwrap_or_default())
                    .number("x-penstock-attempts", seed.before + u64::from(*number))
            }
            None => run.x.head(200).with(settle::FLAVOR, run.x.record.flavor.unwrap_or_default()),
        };
        streaming::open(run, head).await?;
    }
    if piece != HEARTBEAT && !run.progress.has_content() {
        run.progress = ResponseProgress::ContentSent;
        run.x.record.first_token = Some(run.x.started.elapsed());
        let mut out = Out::default();
        if let Some(reply) = run.reply.as_mut() {
            reply.open(&mut out);
        }
        streaming::write(run, streaming::joined(&mut out), false).await?;
    }
    streaming::write(run, piece, false).await
}

/// Ends a request whose choices are all complete.
async fn finish(
    run: &mut Run<'_, '_>,
    seed: &Seed<'_>,
    ends: Vec<End>,
    parts: Vec<Part>,
) -> Result<Ended, Refusal> {
    let broken = || Refusal::new(Code::Internal);
    let primary = parts.first().map(|part| part.offer.clone()).ok_or_else(broken)?;
    let total = sum::usage(&parts);
    if run.ask.stream {
        return Ok(close(run, &primary, ends, parts, total).await);
    }
    let bodies: Vec<Bytes> = ends.iter().map(|end| end.body.clone()).collect();
    let joined = penstock_dialect::join(&bodies, &total).ok_or_else(broken)?;
    let body = {
        let mut response = JoinedResponse { run: &mut *run, total, parts, joined };
        ResponseBodyFilters::buffered(&mut response, Vec::new()).await.map_err(|_| broken())?
    };
    run.x.record.status = 200;
    let number = seed.before + seed.told.get().map_or(1, |(_, number)| u64::from(*number));
    let head = settle::head(run, &primary, u32::try_from(number).unwrap_or(u32::MAX));
    settle::written(run).await;
    Ok(buffered::send(run, head, "application/json", body.downstream).await)
}

/// Ends a stream: the finish reasons of all choices, usage, both objects, the last event.
async fn close(
    run: &mut Run<'_, '_>,
    primary: &Arc<OfferLive>,
    ends: Vec<End>,
    parts: Vec<Part>,
    total: Usage,
) -> Ended {
    if let Some(reply) = run.reply.as_mut() {
        let finishes = ends.iter().filter_map(|end| Some((end.index, end.finish?)));
        finishes.for_each(|(choice, finish)| reply.adopt(choice, finish));
    }
    let mut response = JoinedResponse { run: &mut *run, total, parts, joined: Vec::new() };
    let end = ResponseBodyFilters::finish(&mut response);
    if !run.progress.has_head() {
        // No choice has sent anything.
        let head = settle::head(run, primary, 1);
        if streaming::open(run, head).await.is_err() {
            return Ended::Left;
        }
    }
    settle::written(run).await;
    streaming::write_end(run, &end).await
}

/// Ends a failed request: nothing is charged, and the energy is recorded.
async fn fail(run: &mut Run<'_, '_>, parts: Vec<Part>, refusal: Refusal) -> Result<Ended, Refusal> {
    let total = sum::usage(&parts);
    parts.iter().for_each(|part| run.spent.add_part(part));
    settle::void(run, "failed");
    if !run.progress.has_head() {
        return Err(refusal);
    }
    if run.progress.has_content() {
        let (input, output) = (total.input, total.output);
        run.x.used(&Used { input, output, money: MicroCredits(0) });
    }
    run.x.record.broke(&refusal);
    run.watch.told(Instant::now());
    Ok(streaming::say(run, &refusal).await)
}
