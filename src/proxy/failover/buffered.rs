//! Buffered response: it is read completely, passes the response body filters, and is sent with its exact length. A
//! request with more inputs than the provider accepts at once is sent as several calls, one after the other.

use super::FailoverRun;
use super::attempt::{self, AttemptError, UpstreamResponse};
use super::image_work::delivered_image_work;
use super::streaming::StreamedBodyEnd;
use super::{images, settle, single_images, store_response, upstream_headers};
use crate::proxy::exchange::{WriteOutcome, write_outcome};
use crate::proxy::filters::{
    ResponseBodyFilterChain, ResponseBodyFilters, ResponseContext, ResponseUsage, remove_unlisted_fields,
};
use crate::proxy::response::head::ResponseHead;
use crate::telemetry::blocking_tasks::run_on_blocking_thread;
use crate::time::clock;
use crate::upstream::offer::OfferState;
use crate::upstream::wire_format::WireFormat;
use bytes::{Bytes, BytesMut};
use penstock_core::{
    AttemptTarget, BufferedResponse, InferenceTask, RequestAdjustment, StreamTranslation, TokenUsage,
    UpstreamAnswer, UpstreamError, UpstreamErrorKind, UpstreamRequest,
};
use penstock_http_wire::usage::sum_energy;
use penstock_media::speech::generated_audio_type;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum size in bytes of a response of a provider adapter that is translated on the thread of its request; longer
/// responses are translated on a blocking thread.
const MAX_INLINE_TRANSLATION: usize = 256 * 1024;

/// Makes one attempt at a buffered response, up to its last byte for the client.
pub async fn attempt_buffered(
    run: &mut FailoverRun<'_, '_>,
    offer: &Arc<OfferState>,
    number: u32,
) -> Result<WriteOutcome, AttemptError> {
    // Time before the attempt does not count as the provider's.
    let asked = Instant::now();
    let created = run.received_at;
    let wire_format = attempt::wire_format(run, offer)?;
    let target = attempt::translation_parameters(run, offer, wire_format.dialect(), created);
    let calls = wire_format.build_requests(run.request, &target).map_err(AttemptError::Incompatible)?;
    let sent = SentRequest { wire_format, adjustment: target.adjustment, asked, number };
    let mut answers = Vec::with_capacity(calls.len());
    match call_provider(run, offer, wire_format, &calls, &mut answers).await {
        // The refusal of a further image leaves the images so far.
        Err(fault) if single_images::may_deliver_fewer(run.request, &fault, &answers) => {}
        called => {
            called.map_err(|fault| run.record_completed_calls(offer, fault, &answers, calls.len()))?;
            single_images::request_missing_images(run, offer, wire_format, &mut answers).await?;
        }
    }
    run.record_images(offer, &answers);
    deliver(run, offer, sent, answers).await
}

/// Request of an attempt whose response is read.
#[derive(Clone, Copy)]
pub struct SentRequest {
    /// Format of the request and of its response.
    pub wire_format: WireFormat,
    /// Adjustment with which the request was built. It is stored here, because other requests may change the
    /// adjustment of the offer before the response arrives.
    pub adjustment: RequestAdjustment,
    /// Start time of the attempt, before the request was built and sent.
    pub asked: Instant,
    /// Number of the attempt.
    pub number: u32,
}

/// Reads a response whose length the provider announced, and sends it.
pub async fn read_and_send_response(
    run: &mut FailoverRun<'_, '_>,
    offer: &Arc<OfferState>,
    sent: SentRequest,
    mut answering: UpstreamResponse,
) -> Result<WriteOutcome, AttemptError> {
    let timeouts = offer.offer.provider.timeouts;
    let cap = run.exchange.config.settings.limits.response_buffer;
    let due = clock::cached_now() + timeouts.first_token;
    let mut end = StreamedBodyEnd::none();
    let body = read_complete_body(run, &mut answering, (due, timeouts.idle), cap, &mut end).await?;
    let answer = upstream_headers::answer_with_headers(body, &answering.exchange, sent.wire_format);
    answering.exchange.return_to_pool().await;
    deliver(run, offer, sent, vec![answer]).await
}

/// Translates, settles and sends the responses of a provider.
async fn deliver(
    run: &mut FailoverRun<'_, '_>,
    offer: &Arc<OfferState>,
    sent: SentRequest,
    answers: Vec<UpstreamAnswer>,
) -> Result<WriteOutcome, AttemptError> {
    let mut response = BufferedDelivery { run, offer, sent };
    let body = ResponseBodyFilters::filter_buffered(&mut response, answers).await?;
    run.exchange.record.status = 200;
    let mut head = settle::inference_response_head(run, offer, sent.number);
    if !body.head_members.is_empty() {
        head = settle::add_settlement_headers(head, &body.head_members);
    }
    settle::wait_for_ledger(run).await;
    if let Some(input) = store_response::input_to_store(run) {
        store_response::store_response(run, input, &body.downstream).await;
    }
    let kind = content_type(run).map(|kind| match (&run.request.task, body.downstream.first()) {
        (InferenceTask::Passthrough(_), Some(audio)) => generated_audio_type(audio, kind),
        _ => kind,
    });
    Ok(send_buffered_response(run, head, kind.unwrap_or("application/json"), body.downstream).await)
}

/// Sends a buffered response to the client.
pub async fn send_buffered_response(
    run: &mut FailoverRun<'_, '_>,
    mut head: ResponseHead,
    kind: &str,
    body: Vec<Bytes>,
) -> WriteOutcome {
    remove_unlisted_fields(&mut head);
    write_outcome(head.send_body(&mut run.exchange.caller, kind, body).await)
}

/// Returns the content type of a response that is not JSON; `None` for JSON.
fn content_type(run: &FailoverRun<'_, '_>) -> Option<&'static str> {
    match &run.request.task {
        InferenceTask::Transcribe(task) => penstock_media::speech::transcript_content_type(task.format),
        InferenceTask::Passthrough(task) => task.content_type,
        InferenceTask::Chat
        | InferenceTask::Complete(_)
        | InferenceTask::Embed(_)
        | InferenceTask::Rerank(_)
        | InferenceTask::GenerateImages(_) => None,
    }
}

/// Buffered response of an attempt, as the response body filters see it.
struct BufferedDelivery<'c, 'r, 'a> {
    run: &'c mut FailoverRun<'r, 'a>,
    offer: &'c Arc<OfferState>,
    sent: SentRequest,
}

impl ResponseContext for BufferedDelivery<'_, '_, '_> {
    type Error = AttemptError;

    fn translation(&mut self) -> Option<&mut (dyn StreamTranslation + 'static)> {
        None
    }

    fn record_progress(&mut self, _bytes: usize) {}

    async fn translate(&mut self, upstream: Vec<UpstreamAnswer>) -> Result<BufferedResponse, AttemptError> {
        let (run, offer) = (&mut *self.run, self.offer);
        let created = run.received_at;
        let header_energy = sum_energy(upstream.iter().map(|answer| answer.measured_energy));
        let mut whole = translate(run, offer, self.sent, created, upstream).await?;
        whole.measured_energy = whole.measured_energy.or(header_energy);
        let usage = whole.provider_work.or(whole.work).and_then(|work| work.usage().copied());
        let usage = usage.unwrap_or_else(|| run.request.estimate_unreported_usage(whole.output_bytes));
        run.record_first_content(offer, self.sent.number, Some(usage))?;
        if let InferenceTask::GenerateImages(draw) = &run.request.task {
            let pictures = std::mem::take(&mut whole.images);
            let response = images::build_image_response(run, offer, draw, pictures, created).await?;
            whole.work = Some(delivered_image_work(&response.pixels, draw, run.request, offer));
            whole.body = response.body;
        }
        Ok(whole)
    }

    fn estimate_unreported_usage(&self, output_bytes: usize) -> TokenUsage {
        self.run.request.estimate_unreported_usage(output_bytes)
    }

    fn settle(&mut self, metered: ResponseUsage) -> Vec<u8> {
        let took = clock::cached_now().saturating_duration_since(self.sent.asked);
        settle::settle_success(self.run, self.offer, metered, None, took)
    }

    fn is_json(&self) -> bool {
        content_type(self.run).is_none()
    }
}

/// Makes the calls one after the other, since an attempt has one permit. Adds the responses to `answers`.
pub async fn call_provider(
    run: &mut FailoverRun<'_, '_>,
    offer: &Arc<OfferState>,
    wire_format: WireFormat,
    calls: &[UpstreamRequest],
    answers: &mut Vec<UpstreamAnswer>,
) -> Result<(), AttemptError> {
    let timeouts = offer.offer.provider.timeouts;
    let received: usize = answers.iter().map(|answer| answer.body.len()).sum();
    let cap = run.exchange.config.settings.limits.response_buffer;
    let mut remaining_bytes = cap.saturating_sub(received);
    for call in calls {
        // Most providers send the head only when the response is complete. Others send the head early, and then white
        // space until the response is complete.
        let due = clock::cached_now() + timeouts.plain;
        let mut answering =
            attempt::send_and_read_head(run, offer, wire_format, call, timeouts.plain).await?;
        let mut end = StreamedBodyEnd::of_answer(offer, wire_format);
        let times = (due, timeouts.idle);
        let body = read_complete_body(run, &mut answering, times, remaining_bytes, &mut end).await?;
        remaining_bytes = remaining_bytes.saturating_sub(body.len());
        answers.push(upstream_headers::answer_with_headers(body, &answering.exchange, wire_format));
        if end.is_answer_over() {
            answering.exchange.drain_in_background();
        } else {
            answering.exchange.return_to_pool().await;
        }
    }
    Ok(())
}

/// Reads a complete body of at most `cap` bytes. The first byte that is not white space must arrive before `due`.
/// `idle` is the longest pause between two reads. After that first byte, white space does not end a pause. A stream of
/// events is complete at its `end`.
pub async fn read_complete_body(
    run: &mut FailoverRun<'_, '_>,
    answering: &mut UpstreamResponse,
    (due, idle): (Instant, Duration),
    cap: usize,
    end: &mut StreamedBodyEnd,
) -> Result<Bytes, AttemptError> {
    let mut body = BytesMut::new();
    let mut only: Option<Bytes> = None;
    let (mut begun, mut alarm) = (false, clock::cached_now() + idle);
    // Even after a long wait for the head, the body gets the complete idle timeout.
    let due = due.max(alarm);
    loop {
        let until = end.read_deadline(if begun { alarm } else { alarm.min(due) }, idle);
        let read = attempt::read_body_piece(run, answering, until, UpstreamErrorKind::IdleTimeout).await;
        let Some(piece) = end.accept_failure(read)? else { break };
        let says = piece.iter().any(|byte| !byte.is_ascii_whitespace());
        if says || !begun {
            alarm = clock::cached_now() + idle;
        }
        begun |= says;
        if body.len() + only.as_ref().map_or(0, Bytes::len) + piece.len() > cap {
            return Err(AttemptError::Fault(UpstreamError::new(UpstreamErrorKind::Malformed)));
        }
        let held_before = end.buffered_bytes();
        end.push(run, &piece);
        let held = end.buffered_bytes().saturating_sub(held_before);
        run.memory.try_grow(run.exchange, piece.len() + held)?;
        // A body that arrives in one piece is not copied.
        match only.take() {
            None if body.is_empty() => only = Some(piece),
            first => {
                body.extend_from_slice(&first.unwrap_or_default());
                body.extend_from_slice(&piece);
            }
        }
        if end.is_answer_over() {
            break;
        }
    }
    Ok(only.unwrap_or_else(|| body.freeze()))
}

/// Translates the response. A response of a provider adapter above [`MAX_INLINE_TRANSLATION`] is translated on a
/// blocking thread, so that the threads of the async runtime stay free for streams. A response in a dialect is always
/// translated on the current thread.
async fn translate(
    run: &mut FailoverRun<'_, '_>,
    offer: &Arc<OfferState>,
    SentRequest { wire_format, adjustment, .. }: SentRequest,
    created: u64,
    answers: Vec<UpstreamAnswer>,
) -> Result<BufferedResponse, AttemptError> {
    let size: usize = answers.iter().map(|answer| answer.body.len()).sum();
    let target = attempt::translation_parameters(run, offer, wire_format.dialect(), created);
    let target = AttemptTarget { adjustment, ..target };
    if size <= MAX_INLINE_TRANSLATION || matches!(wire_format, WireFormat::Dialects(_)) {
        return Ok(wire_format.translate_buffered(run.request, &target, answers)?);
    }
    let (ask, offer) = (run.request.clone(), offer.clone());
    let (answer_model, id): (Box<str>, Box<str>) = (target.answer_model.into(), target.answer_id.into());
    let work = move || {
        let target = AttemptTarget {
            model: &offer.offer.name,
            dialect: wire_format.dialect(),
            capabilities: &offer.offer.capabilities,
            preset: &[],
            max_tokens: None,
            adjustment,
            answer_model: &answer_model,
            answer_id: &id,
            answer_created: created,
        };
        wire_format.translate_buffered(&ask, &target, answers)
    };
    Ok(run_on_blocking_thread(&run.exchange.app.blocking_context, work)
        .await
        .map_err(AttemptError::Internal)??)
}
