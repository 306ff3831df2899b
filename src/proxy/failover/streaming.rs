//! Streamed response: events, or bytes of audio, are sent to the client as they arrive. The head is sent together with
//! the first content token. From then on, a broken stream is rescued, ends with an error event, or is cut; it never
//! ends like a successful response.

mod body_end;
mod content;
mod ends;
mod times;

use super::attempt::{self, AttemptError, UpstreamResponse};
use super::wait::{HEARTBEAT_COMMENT, WaitOutcome};
use super::{FailoverRun, ResponseProgress, buffered, settle, upstream_headers};
use crate::proxy::exchange::WriteOutcome;
use crate::proxy::filters::{ResponseContext, ResponseUsage, remove_unlisted_fields, response_body_filter};
use crate::proxy::response::head::ResponseHead;
use crate::time::clock;
use crate::upstream::offer::OfferState;
use crate::upstream::wire_format::WireFormat;
pub use body_end::StreamedBodyEnd;
use bytes::Bytes;
pub(super) use content::{take_pieces, write_content, write_pieces};
use ends::finish_stream;
pub(super) use ends::{
    error_only_translation, fail_stream, stream_frame, write_error_event, write_stream_end,
};
use penstock_core::{
    ApiError, AttemptTarget, BufferedResponse, Dialect, ErrorCode, OutputBuffer, RescueMode, StreamProgress,
    StreamTranslation, TokenUsage, UpstreamAnswer, UpstreamError, UpstreamErrorKind, UpstreamRequest,
};
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;
use times::StreamDeadlines;

/// Maximum number of consecutive bytes of a stream without progress (comments, pings, empty deltas); the bytes of an
/// incomplete event do not count. The keep-alives of real providers are only a few bytes per second.
const MAX_BYTES_WITHOUT_PROGRESS: usize = 4 << 20;

/// Makes one attempt at a stream, or at the remainder of a broken one.
pub async fn attempt_stream(
    run: &mut FailoverRun<'_, '_>,
    offer: &Arc<OfferState>,
    number: u32,
) -> Result<WriteOutcome, AttemptError> {
    let asked = Instant::now();
    let created = run.received_at;
    let wire_format = attempt::wire_format(run, offer)?;
    let dialect = wire_format.dialect();
    let (how, delivered) =
        if run.progress.has_content() { prepare_rescue(run, offer) } else { (RescueMode::StartOver, None) };
    let mut target = attempt::translation_parameters(run, offer, dialect, created);
    if let Some(text) = &delivered {
        // The text that was delivered counts towards the client's cap on tokens.
        let delivered_tokens = run.request.estimate_unreported_usage(text.len()).output;
        let cap = target.max_tokens.or(run.request.max_tokens);
        target.max_tokens = cap.map(|cap| cap.saturating_sub(delivered_tokens).max(1));
    }
    let adjustment = target.adjustment;
    let call = build_call(run, wire_format, &target, delivered.as_deref())?;
    let mut reply = match run.translation.take().filter(|_| run.progress.has_content()) {
        Some(reply) => reply,
        None => wire_format
            .new_stream_translation(
                run.request,
                &attempt::translation_parameters(run, offer, dialect, created),
            )
            .ok_or(UpstreamError::new(UpstreamErrorKind::Malformed))?,
    };
    // A rescue fails here if the translation cannot compare the new output with the delivered text. No request is
    // sent then.
    if run.progress.has_content()
        && !reply.start_rescue(&attempt::translation_parameters(run, offer, dialect, created), how)
    {
        run.translation = Some(reply);
        return Err(AttemptError::Incompatible(ApiError::new(ErrorCode::Unavailable)));
    }
    let timeouts = offer.offer.provider.timeouts;
    let first_byte = match wire_format {
        WireFormat::Dialects(_) => timeouts.first_byte,
        // Some engines send the head only when the answer is complete.
        WireFormat::Adapter(_) => timeouts.plain,
    };
    let opened = attempt::send_and_read_head(run, offer, wire_format, &call, first_byte).await;
    run.translation = Some(reply);
    // Frees the request body before the response is read.
    drop(call);
    let mut answering = opened?;
    if is_sent_with_length(run, &answering) {
        run.translation = None;
        let sent = buffered::SentRequest { wire_format, adjustment, asked, number };
        return buffered::read_and_send_response(run, offer, sent, answering).await;
    }
    run.header_energy = upstream_headers::measured_energy(&answering.exchange);
    run.current_offer = Some(offer.clone());
    run.attempt_started = Some(asked);
    let mut times = StreamDeadlines::new(asked, timeouts.first_token, run.translation.as_deref());
    copy_stream(run, offer, &mut answering, &mut times, number).await?;
    finish_stream(run, offer, answering, &mut times).await
}

/// Returns the mode of a rescue by a provider. The provider continues the delivered text, which is then returned
/// too; if it cannot continue a text, or if there is none, it starts again.
fn prepare_rescue(run: &mut FailoverRun<'_, '_>, offer: &OfferState) -> (RescueMode, Option<String>) {
    if attempt::translation_parameters(run, offer, Dialect::Chat, run.received_at)
        .continuation_method()
        .is_none()
    {
        return (RescueMode::StartOver, None);
    }
    match run.translation.as_mut().and_then(|reply| reply.delivered_text()) {
        Some(text) => (RescueMode::Continue, Some(text)),
        None => (RescueMode::StartOver, None),
    }
}

/// Builds the request to the provider. If a part of the answer was `delivered`, the request continues that part.
fn build_call(
    run: &FailoverRun<'_, '_>,
    wire_format: WireFormat,
    target: &AttemptTarget<'_>,
    delivered: Option<&str>,
) -> Result<UpstreamRequest, AttemptError> {
    let call = match (wire_format, delivered) {
        (WireFormat::Dialects(translator), Some(text)) => {
            translator.build_continuation(run.request, target, text).map(UpstreamRequest::from_json)
        }
        _ => wire_format
            .build_requests(run.request, target)
            .and_then(|calls| calls.into_iter().next().ok_or_else(|| ApiError::new(ErrorCode::Internal))),
    };
    call.map_err(AttemptError::Incompatible)
}

/// Returns true if the answer is passed on as bytes, and the provider announces a length that fits the response buffer.
/// Such an answer is sent with its length, and its head contains `environment_impact` and `billing_cost`.
fn is_sent_with_length(run: &FailoverRun<'_, '_>, answering: &UpstreamResponse) -> bool {
    let length = upstream_headers::content_length(&answering.exchange);
    run.request.streamed_content_type().is_some()
        && length.is_some_and(|length| length <= run.exchange.config.settings.limits.response_buffer)
}

/// Reads, filters and writes events until the end of the provider's stream.
async fn copy_stream(
    run: &mut FailoverRun<'_, '_>,
    offer: &Arc<OfferState>,
    answering: &mut UpstreamResponse,
    times: &mut StreamDeadlines,
    number: u32,
) -> Result<(), AttemptError> {
    let mut out = OutputBuffer::default();
    loop {
        let Some(reply) = run.translation.as_deref() else { return Ok(()) };
        let progress = reply.progress();
        if progress == StreamProgress::Ended && !reply.awaits_usage() {
            return Ok(());
        }
        let deadline = times.read_deadline(reply, offer.offer.provider.timeouts.idle);
        let received = read_stream_bytes(run, answering, times, progress, deadline).await?;
        let over = received.is_none();
        let mut response = StreamResponse { run, offer, times };
        let fault = response_body_filter(&mut response, received, over, &mut out).err();
        let Some(reply) = run.translation.as_deref() else { return Ok(()) };
        let (buffered, committed) = (reply.buffered_bytes(), reply.progress() >= StreamProgress::Committed);
        // Events that cannot be counted are not written, since the client may be slow to read them.
        let refused = run.memory.try_resize(run.exchange, buffered + out.unshared_bytes()).err();
        if refused.is_none() && (run.progress.has_content() || (committed && fault.is_none())) {
            let before = clock::cached_now();
            write_events(run, offer, &mut out, number).await?;
            times.add_client_delay(clock::cached_now().saturating_duration_since(before));
        }
        match refused.or(fault).or_else(|| check_buffer_limit(run, buffered).err()) {
            // After its end event, the stream is complete except perhaps for its usage, so an error no longer
            // matters.
            Some(_) if progress == StreamProgress::Ended => return Ok(()),
            Some(fault) => return Err(AttemptError::Fault(fault)),
            None if over => return Ok(()),
            None if times.bytes_without_progress > buffered.saturating_add(MAX_BYTES_WITHOUT_PROGRESS) => {
                return end_without_progress(run, offer, times, out).await;
            }
            None => {}
        }
    }
}

/// Ends a stream whose provider sends too many bytes without progress. If the finish reason was received, the stream
/// counts as complete.
async fn end_without_progress(
    run: &mut FailoverRun<'_, '_>,
    offer: &Arc<OfferState>,
    times: &mut StreamDeadlines,
    mut out: OutputBuffer,
) -> Result<(), AttemptError> {
    if run.translation.as_ref().is_none_or(|reply| reply.progress() < StreamProgress::Finished) {
        return Err(AttemptError::Fault(UpstreamError::new(UpstreamErrorKind::Malformed)));
    }
    response_body_filter(&mut StreamResponse { run, offer, times }, None, true, &mut out)?;
    let pieces = take_pieces(run, &mut out);
    write_pieces(run, pieces).await
}

/// Checks the buffered bytes of a stream, which has the same limit as a buffered response.
fn check_buffer_limit(run: &FailoverRun<'_, '_>, buffered: usize) -> Result<(), UpstreamError> {
    match buffered > run.exchange.config.settings.limits.response_buffer {
        true => Err(UpstreamError::new(UpstreamErrorKind::Malformed)),
        false => Ok(()),
    }
}

/// Reads the next bytes of the provider; `None` at the end of the stream. The deadline is checked before each read,
/// since a timer does not fire while reads are always ready.
async fn read_stream_bytes(
    run: &mut FailoverRun<'_, '_>,
    answering: &mut UpstreamResponse,
    times: &StreamDeadlines,
    progress: StreamProgress,
    (limit, silent): (Instant, UpstreamErrorKind),
) -> Result<Option<Bytes>, AttemptError> {
    let alarm = limit.min(answering.until);
    let outcome = if clock::cached_now() >= alarm {
        WaitOutcome::Deadline
    } else {
        let read = pin!(answering.exchange.read_body());
        run.watch.wait_for_work(&mut run.exchange.caller, read, alarm).await
    };
    match outcome {
        // After the end event, bytes that cannot be decoded count as the end of the stream.
        WaitOutcome::Ready(Ok(piece)) if progress == StreamProgress::Ended => {
            Ok(decode_piece(answering, piece).unwrap_or_default())
        }
        WaitOutcome::Ready(Ok(piece)) => decode_piece(answering, piece),
        // A stream that has sent its finish reason is complete, even if its connection breaks or stays silent after
        // that.
        WaitOutcome::Ready(Err(_)) | WaitOutcome::Deadline if progress >= StreamProgress::Finished => {
            Ok(None)
        }
        // The client has the whole answer.
        _ if progress == StreamProgress::Ended => Ok(None),
        stopped => Err(stopped_stream_error(run, times, stopped, (answering.until <= limit, silent))),
    }
}

/// Returns the error of a stream that stopped before its finish reason: its connection broke, the attempt took longer
/// than its total time (`is_total`), or the provider was silent. The delivered part is charged if the client or the
/// gateway's own clock is the cause.
fn stopped_stream_error<T>(
    run: &mut FailoverRun<'_, '_>,
    times: &StreamDeadlines,
    stopped: WaitOutcome<T>,
    (is_total, silent): (bool, UpstreamErrorKind),
) -> AttemptError {
    let has_more = run.translation.as_deref().is_some_and(|reply| times.has_delivered(reply));
    let elapsed = times.started.elapsed();
    match stopped {
        WaitOutcome::Ready(_) => {
            run.settled.charges_delivered |= has_more && times.has_slow_client(elapsed);
            AttemptError::Fault(UpstreamError::new(UpstreamErrorKind::Reset))
        }
        WaitOutcome::Deadline if is_total => {
            run.settled.charges_delivered |= has_more;
            // The provider waited for the client most of the time, so it is not at fault.
            if times.client_delay > elapsed / 2 {
                return AttemptError::Fault(UpstreamError::new(UpstreamErrorKind::DeadlineExceeded));
            }
            stopped.into_attempt_error(silent, run.deadline)
        }
        stopped => stopped.into_attempt_error(silent, run.deadline),
    }
}

fn decode_piece(
    answering: &mut UpstreamResponse,
    piece: Option<Bytes>,
) -> Result<Option<Bytes>, AttemptError> {
    let broken = |_| AttemptError::Fault(UpstreamError::new(UpstreamErrorKind::Malformed));
    piece.map(|piece| answering.decoder.decode_next(piece).map_err(broken)).transpose()
}

/// Writes the events, and before them the head if it has not been sent.
async fn write_events(
    run: &mut FailoverRun<'_, '_>,
    offer: &Arc<OfferState>,
    out: &mut OutputBuffer,
    number: u32,
) -> Result<(), AttemptError> {
    let had_head = run.progress.has_head();
    if !run.progress.has_content() {
        run.record_first_content(offer, number, None)?;
        run.progress = ResponseProgress::ContentSent;
        run.exchange.record.first_token = Some(run.exchange.started.elapsed());
    }
    if !had_head {
        start_stream_response(run, settle::inference_response_head(run, offer, number)).await?;
    }
    if out.is_empty() {
        return run.exchange.caller.flush().await.map_err(|_| AttemptError::Disconnected);
    }
    run.watch.record_write(clock::cached_now());
    for piece in take_pieces(run, out) {
        write_content(run, piece).await?;
    }
    #[cfg(feature = "inject")]
    run.exchange.app.panic_injector.panic_if_armed(crate::net::panic_injection::PanicInjectionPoint::Stream);
    Ok(())
}

/// Starts a stream with the allowed header fields of `head`, and records status 200. The head is sent with the first
/// bytes.
///
/// # Errors
/// Returns an error if the client has disconnected.
pub(super) async fn start_stream_response(
    run: &mut FailoverRun<'_, '_>,
    mut head: ResponseHead,
) -> Result<(), AttemptError> {
    run.progress = run.progress.max(ResponseProgress::HeadSent);
    run.watch.record_write(Instant::now());
    run.exchange.record.status = 200;
    remove_unlisted_fields(&mut head);
    let detected = run.translation.as_ref().and_then(|reply| reply.content_type());
    let caller = &mut run.exchange.caller;
    let written = match run.request.streamed_content_type().map(|requested| detected.unwrap_or(requested)) {
        None => head.start_event_stream(caller).await,
        Some(kind) => head.start_byte_stream(caller, kind, settle::SETTLEMENT_TRAILER_NAMES).await,
    };
    written.map_err(|_| AttemptError::Disconnected)
}

/// Sends a heartbeat before any provider was called. The head that is sent with it therefore names no provider.
pub async fn write_heartbeat(run: &mut FailoverRun<'_, '_>) -> Result<(), AttemptError> {
    let head = run
        .exchange
        .new_response_head(200)
        .with_field(settle::FLAVOR_HEADER, run.exchange.record.flavor.unwrap_or_default());
    start_stream_response(run, head).await?;
    write_piece(run, HEARTBEAT_COMMENT, false).await
}

/// Sends a piece of a stream to the client; `end` is true for its last bytes.
///
/// # Errors
/// Returns an error if the client has disconnected.
pub(super) async fn write_piece(
    run: &mut FailoverRun<'_, '_>,
    bytes: Bytes,
    end: bool,
) -> Result<(), AttemptError> {
    run.exchange.caller.write_response_body(bytes, end).await.map_err(|_| AttemptError::Disconnected)
}

/// Streamed response of an attempt, as the response body filters see it.
struct StreamResponse<'c, 'r, 'a> {
    run: &'c mut FailoverRun<'r, 'a>,
    offer: &'c Arc<OfferState>,
    times: &'c mut StreamDeadlines,
}

impl ResponseContext for StreamResponse<'_, '_, '_> {
    type Error = AttemptError;

    fn translation(&mut self) -> Option<&mut (dyn StreamTranslation + 'static)> {
        self.run.translation.as_deref_mut()
    }

    fn record_progress(&mut self, bytes: usize) {
        if let Some(reply) = self.run.translation.as_deref() {
            self.times.record_progress(reply, bytes);
        }
    }

    async fn translate(&mut self, _: Vec<UpstreamAnswer>) -> Result<BufferedResponse, AttemptError> {
        Err(UpstreamError::new(UpstreamErrorKind::Malformed).into())
    }

    fn estimate_unreported_usage(&self, output_bytes: usize) -> TokenUsage {
        self.run.request.estimate_unreported_usage(output_bytes)
    }

    fn settle(&mut self, metered: ResponseUsage) -> Vec<u8> {
        let took = self.times.started.elapsed();
        if metered.is_malformed {
            self.run.exchange.record.record_broken_stream(&ApiError::new(ErrorCode::Unavailable));
        }
        let metered = ResponseUsage { measured: metered.measured.or(self.run.header_energy), ..metered };
        settle::settle_success(self.run, self.offer, metered, self.times.first_token, took)
    }
}
