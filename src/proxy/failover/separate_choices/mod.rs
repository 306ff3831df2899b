//! Several choices of an offer that returns one choice at a time: each choice is a separate request with its own
//! attempts, permits and rescue. All of them use the reservation of credits and limits that was made for the client's
//! request.
//!
//! Streams are interleaved, and each event has the index of its choice. The end (finish reasons, usage,
//! `environment_impact` and `billing_cost`) is sent once, when all choices are complete. If no provider answers one
//! of the choices, the request fails. The response names one model, so all choices are answered by the model of the
//! first content: content of another model is discarded, and another offer is asked. The usage is the sum of the usages
//! of the choices. The prompt therefore counts once for each choice, because it was processed that often.

mod choice;
mod joined;
mod sum;

use super::attempt::AttemptError;
use super::wait::HEARTBEAT_COMMENT;
use super::{FailoverRun, ResponseProgress, buffered, settle, streaming};
use crate::proxy::downstream::FirstContent;
use crate::proxy::exchange::WriteOutcome;
use crate::proxy::filters::{ResponseBodyFilterChain, ResponseBodyFilters};
use crate::upstream::offer::OfferState;
use bytes::Bytes;
use choice::{ChoiceOutcome, SharedChoiceState};
use joined::JoinedResponse;
use penstock_core::{
    AdjustableMember, AdjustableMemberSet, ApiError, ErrorCode, MicroCredits, OutputBuffer, RefusalScope,
    TokenUsage,
};
use penstock_limits::ActualCost;
use penstock_routing::RetryPlanner;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;
pub(crate) use sum::ChoiceUsage;
use tokio::sync::mpsc;

/// Maximum number of buffered stream pieces, of all choices together, that the client has not read yet.
const MAX_PENDING_PIECES: usize = 8;

/// Choices that are to be requested one by one.
pub(super) struct SeparateChoices {
    /// Index of the first requested choice; the choices before it are complete.
    from: u32,
    /// Offer that refused the request, perhaps because of its several choices, and the requests to which this refusal
    /// applies; `None` if no offer has refused it.
    refusal: Option<(Arc<OfferState>, RefusalScope)>,
}

impl SeparateChoices {
    /// Selects all choices.
    pub(super) const fn all_choices() -> Self {
        Self { from: 0, refusal: None }
    }

    /// Selects all choices, after this offer has refused the request, perhaps because of the number of choices.
    pub(super) const fn after_refusal(offer: Arc<OfferState>, scope: RefusalScope) -> Self {
        Self { from: 0, refusal: Some((offer, scope)) }
    }

    /// Selects the choices from this index on.
    pub(super) const fn starting_at(from: u32) -> Self {
        Self { from, refusal: None }
    }
}

/// Reason to request no more choices.
enum StopReason {
    /// The client has disconnected.
    Disconnected,
    /// No provider answered one of the choices; contains its refusal. `is_charged` is true if the delivered part is
    /// charged, because no provider is at fault.
    Refused { refusal: ApiError, is_charged: bool },
}

type ChoiceFuture<'s> = Pin<Box<dyn Future<Output = ChoiceOutcome> + Send + 's>>;

/// Event of a running choice or of the client.
enum ChoiceEvent {
    Piece(Bytes),
    End(Box<ChoiceOutcome>),
    Disconnected,
}

/// Sends one request for each choice (concurrently, as far as permits allow), joins the choices to one response, and
/// settles.
pub(super) async fn request_choices(
    run: &mut FailoverRun<'_, '_>,
    separate_choices: SeparateChoices,
    course: &RetryPlanner,
) -> Result<WriteOutcome, ApiError> {
    let failed = |offer: usize| course.failed_attempts().iter().any(|attempt| attempt.offer == offer);
    let seed = SharedChoiceState::from_run(run, failed);
    let mut parts: Vec<ChoiceUsage> = run
        .translation
        .as_deref()
        .and_then(|reply| ChoiceUsage::from_partial_stream(run, reply))
        .into_iter()
        .collect();
    if !run.progress.has_content() {
        (run.translation, run.attempt_started) =
            (streaming::error_only_translation(run).filter(|_| run.request.stream), None);
    }
    let waiting = (separate_choices.from..run.request.n).collect();
    let (mut ends, halt) = run_choices(run, &seed, waiting, separate_choices.refusal.is_some()).await;
    ends.sort_by_key(|end| end.index);
    parts.extend(ends.iter_mut().filter_map(|end| end.usage.take()));
    // A choice without content may be of another model. The price is that of the model which the response names.
    if let Some(first) = seed.first_content.get() {
        parts.sort_by_key(|part| *part.offer.offer.model.card.id != *first.model);
    }
    match halt {
        None => {
            if let Some((offer, RefusalScope::Offer)) = &separate_choices.refusal {
                offer.learned.record_refused_members(
                    AdjustableMemberSet::from_member(AdjustableMember::MultipleChoices),
                    None,
                    run.now(),
                );
            }
            finish_choices(run, &seed, ends, parts).await
        }
        Some(StopReason::Disconnected) => {
            if run.progress.has_delivered_content() && !parts.is_empty() {
                // A client whose key was revoked gets the members of the charge in the error event.
                run.settled.members = sum::settle_choices(run, parts);
            } else {
                parts.iter().for_each(|part| run.failed_energy.add_uncharged_work(part));
            }
            settle::void_disconnected(run);
            Ok(WriteOutcome::Disconnected)
        }
        Some(StopReason::Refused { refusal, is_charged }) => {
            fail_choices(run, parts, refusal, is_charged).await
        }
    }
}

/// Requests the choices, as many at a time as there are permits, and sends the pieces of their streams to the client.
/// Returns the choices that have ended, and the reason if no more are requested. With `first_alone`, the other choices
/// are requested only after the first has begun to answer.
async fn run_choices(
    run: &mut FailoverRun<'_, '_>,
    seed: &SharedChoiceState<'_>,
    mut waiting: VecDeque<u32>,
    mut first_alone: bool,
) -> (Vec<ChoiceOutcome>, Option<StopReason>) {
    let (sender, mut pieces) = mpsc::channel(MAX_PENDING_PIECES);
    let (mut active, mut ends, mut halt) = (Vec::<ChoiceFuture<'_>>::new(), Vec::new(), None);
    let mut width = if first_alone { 1 } else { seed.max_concurrent() };
    loop {
        while halt.is_none() && active.len() < width {
            let Some(index) = waiting.pop_front() else { break };
            active.push(choice::request_choice(seed, index, sender.clone()));
        }
        if active.is_empty() {
            return (ends, halt);
        }
        let event = tokio::select! {
            biased;
            Some(piece) = pieces.recv() => ChoiceEvent::Piece(piece),
            end = next_end(&mut active) => ChoiceEvent::End(Box::new(end)),
            () = run.exchange.caller.wait_for_disconnect(), if halt.is_none() => ChoiceEvent::Disconnected,
        };
        match event {
            ChoiceEvent::Piece(_) if halt.is_some() => {}
            ChoiceEvent::Piece(piece) => {
                if write_choice_piece(run, seed, piece).await.is_err() {
                    halt = Some(StopReason::Disconnected);
                }
                if std::mem::take(&mut first_alone) {
                    width = seed.max_concurrent();
                }
            }
            ChoiceEvent::Disconnected => halt = Some(StopReason::Disconnected),
            ChoiceEvent::End(mut end) => {
                if halt.is_none() && write_ready_pieces(run, seed, &mut pieces).await.is_err() {
                    halt = Some(StopReason::Disconnected);
                }
                end.merge_energy_and_record(run);
                // The other choices hold all permits, so this choice is requested again when a permit becomes free.
                if end.is_provider_full && halt.is_none() && !active.is_empty() {
                    width = active.len();
                    waiting.push_front(end.index);
                    continue;
                }
                if halt.is_none() {
                    halt = end.reason_to_stop_requesting();
                }
                if std::mem::take(&mut first_alone) {
                    width = seed.max_concurrent();
                }
                ends.push(*end);
            }
        }
        if halt.is_some() {
            seed.cancel.cancel();
        }
    }
}

/// Waits for the next choice that ends.
async fn next_end(active: &mut Vec<ChoiceFuture<'_>>) -> ChoiceOutcome {
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

/// Sends the pieces that are ready: a choice may have sent its last pieces just before its end.
async fn write_ready_pieces(
    run: &mut FailoverRun<'_, '_>,
    seed: &SharedChoiceState<'_>,
    pieces: &mut mpsc::Receiver<Bytes>,
) -> Result<(), AttemptError> {
    while let Ok(piece) = pieces.try_recv() {
        write_choice_piece(run, seed, piece).await?;
    }
    Ok(())
}

/// Sends a piece of a choice, and the head of the stream before the first one.
async fn write_choice_piece(
    run: &mut FailoverRun<'_, '_>,
    seed: &SharedChoiceState<'_>,
    piece: Bytes,
) -> Result<(), AttemptError> {
    if piece.is_empty() {
        return Ok(());
    }
    if !run.progress.has_head() {
        let head = match seed.first_content.get() {
            Some(FirstContent { provider, attempt, .. }) => {
                let head = run.exchange.new_response_head(200).with_field("x-penstock-provider", &**provider);
                head.with_field(settle::FLAVOR_HEADER, run.exchange.record.flavor.unwrap_or_default())
                    .with_numeric_field("x-penstock-attempts", seed.earlier_attempts + u64::from(*attempt))
            }
            None => run
                .exchange
                .new_response_head(200)
                .with_field(settle::FLAVOR_HEADER, run.exchange.record.flavor.unwrap_or_default()),
        };
        streaming::start_stream_response(run, head).await?;
    }
    if piece != HEARTBEAT_COMMENT && !run.progress.has_content() {
        run.progress = ResponseProgress::ContentSent;
        run.exchange.record.first_token = Some(run.exchange.started.elapsed());
        let mut out = OutputBuffer::default();
        if let Some(content) = seed.first_content.get() {
            run.translation = streaming::stream_frame(run, &content.model);
        }
        if let Some(reply) = run.translation.as_mut() {
            reply.write_start(&mut out);
        }
        let pieces = streaming::take_pieces(run, &mut out);
        streaming::write_pieces(run, pieces).await?;
    }
    if run.progress.has_content() {
        return streaming::write_content(run, piece).await;
    }
    streaming::write_piece(run, piece, false).await
}

/// Ends a request whose choices are all complete.
async fn finish_choices(
    run: &mut FailoverRun<'_, '_>,
    seed: &SharedChoiceState<'_>,
    ends: Vec<ChoiceOutcome>,
    parts: Vec<ChoiceUsage>,
) -> Result<WriteOutcome, ApiError> {
    let broken = || ApiError::new(ErrorCode::Internal);
    let primary = parts.first().map(|part| part.offer.clone()).ok_or_else(broken)?;
    let total = sum::total_usage(&parts);
    if run.request.stream {
        return Ok(finish_stream(run, &primary, ends, parts, total).await);
    }
    let bodies: Vec<Bytes> = ends.iter().map(|end| end.body.clone()).collect();
    let joined = penstock_dialect::join_completions(&bodies, &total).ok_or_else(broken)?;
    let body = {
        let mut response = JoinedResponse { run: &mut *run, total, parts, joined };
        ResponseBodyFilters::filter_buffered(&mut response, Vec::new()).await.map_err(|_| broken())?
    };
    run.exchange.record.status = 200;
    let number =
        seed.earlier_attempts + seed.first_content.get().map_or(1, |content| u64::from(content.attempt));
    let head = settle::inference_response_head(run, &primary, u32::try_from(number).unwrap_or(u32::MAX));
    settle::wait_for_ledger(run).await;
    Ok(buffered::send_buffered_response(run, head, "application/json", body.downstream).await)
}

/// Ends a stream: sends the finish reasons of all choices, then usage, `environment_impact` and `billing_cost`, and
/// then the last event.
async fn finish_stream(
    run: &mut FailoverRun<'_, '_>,
    primary: &Arc<OfferState>,
    ends: Vec<ChoiceOutcome>,
    parts: Vec<ChoiceUsage>,
    total: TokenUsage,
) -> WriteOutcome {
    if !run.progress.has_content() {
        run.translation = streaming::stream_frame(run, &primary.offer.model.card.id);
    }
    if let Some(reply) = run.translation.as_mut() {
        let finishes = ends.iter().filter_map(|end| Some((end.index, end.finish_reason?)));
        finishes.for_each(|(choice, finish)| reply.record_choice_finish(choice, finish));
    }
    let mut response = JoinedResponse { run: &mut *run, total, parts, joined: Vec::new() };
    let end = ResponseBodyFilters::finish_stream(&mut response);
    if !run.progress.has_head() {
        // No choice has sent anything, so the head of the stream is still missing.
        let head = settle::inference_response_head(run, primary, 1);
        if streaming::start_stream_response(run, head).await.is_err() {
            return WriteOutcome::Disconnected;
        }
    }
    settle::wait_for_ledger(run).await;
    streaming::write_stream_end(run, &end).await
}

/// Ends a failed request. Unless the delivered part is charged, nothing is charged and the energy is recorded.
async fn fail_choices(
    run: &mut FailoverRun<'_, '_>,
    parts: Vec<ChoiceUsage>,
    refusal: ApiError,
    is_charged: bool,
) -> Result<WriteOutcome, ApiError> {
    if is_charged && run.progress.has_content() {
        run.settled.members = sum::settle_choices(run, parts);
        run.exchange.record.record_broken_stream(&refusal);
        run.watch.record_write(Instant::now());
        return Ok(streaming::write_error_event(run, &refusal).await);
    }
    let total = sum::total_usage(&parts);
    parts.iter().for_each(|part| run.failed_energy.add_uncharged_work(part));
    settle::void_reservation(run, "failed");
    if !run.progress.has_head() {
        return Err(refusal);
    }
    if run.progress.has_content() {
        let (input, output) = (total.input, total.output);
        run.exchange.settle_limits(&ActualCost { input, output, money: MicroCredits(0) });
    }
    run.exchange.record.record_broken_stream(&refusal);
    run.watch.record_write(Instant::now());
    Ok(streaming::write_error_event(run, &refusal).await)
}
