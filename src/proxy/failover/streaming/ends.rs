//! Ends of a stream: the last events of a complete one, and the error event or the cut of a failed one.

use super::super::attempt::{self, UpstreamResponse};
use super::super::{FailoverRun, settle, store_response};
use super::content::{take_pieces, write_last_pieces};
use super::times::StreamDeadlines;
use super::{AttemptError, StreamResponse};
use crate::proxy::exchange::{WriteOutcome, write_outcome};
use crate::proxy::filters::{ResponseBodyFilterChain, ResponseBodyFilters, StreamEnd};
use crate::upstream::offer::OfferState;
use penstock_core::{ApiError, OutputBuffer, StreamTranslation};
use std::sync::Arc;

/// Number of copies of a response while it is stored: of its object, and of its document.
const STORED_COPIES: usize = 2;

/// Ends a complete stream: the response body filters settle it, and the last event carries the usage,
/// `environment_impact` and `billing_cost`.
pub(super) async fn finish_stream(
    run: &mut FailoverRun<'_, '_>,
    offer: &Arc<OfferState>,
    answering: UpstreamResponse,
    times: &mut StreamDeadlines,
) -> Result<WriteOutcome, AttemptError> {
    reserve_end_memory(run)?;
    let end = ResponseBodyFilters::finish_stream(&mut StreamResponse { run, offer, times });
    let is_cut =
        run.translation.as_deref().is_some_and(|reply| reply.offer_observation().exceeds_output_limit);
    // The rest of an answer that was cut is not read: the connection closes, and the provider stops.
    if is_cut {
        drop(answering)
    } else {
        answering.exchange.drain_in_background()
    }
    settle::wait_for_ledger(run).await;
    Ok(write_stream_end(run, &end).await)
}

/// Counts the memory of the last events and of the copies that are stored, before the stream is settled: the client may
/// be slow to read them.
fn reserve_end_memory(run: &mut FailoverRun<'_, '_>) -> Result<(), AttemptError> {
    let Some(reply) = run.translation.as_deref() else { return Ok(()) };
    let buffered = reply.buffered_bytes();
    let stored = store_response::input_to_store(run).map_or(0, |_| buffered * STORED_COPIES);
    let bytes = buffered + reply.end_bytes() + stored;
    Ok(run.memory.try_resize(run.exchange, bytes)?)
}

/// Writes the last events of a stream.
pub(in super::super) async fn write_stream_end(
    run: &mut FailoverRun<'_, '_>,
    end: &StreamEnd,
) -> WriteOutcome {
    let Some(mut reply) = run.translation.take() else { return WriteOutcome::Disconnected };
    let usage = end.usage.unwrap_or_else(|| reply.estimated_usage());
    let mut out = OutputBuffer::default();
    reply.write_end(&usage, &end.members, &mut out);
    let pieces = take_pieces(run, &mut out);
    if let Some(input) = store_response::input_to_store(run) {
        store_response::store_response(run, input, &pieces).await;
    }
    if run.request.streamed_content_type().is_some() {
        let trailers = settle::settlement_trailers(&end.members);
        let piece = pieces.concat().into();
        return write_outcome(run.exchange.caller.write_end_with_trailers(piece, trailers).await);
    }
    write_last_pieces(run, pieces).await
}

/// Creates a translation that is used only to write an error in the client's dialect, if no provider answered; `None`
/// if the first candidate has none.
pub(in super::super) fn error_only_translation(
    run: &FailoverRun<'_, '_>,
) -> Option<Box<dyn StreamTranslation>> {
    let first = run.candidates.entries.first()?;
    frame_of_offer(run, run.exchange.config.offers.get(first.offer)?)
}

/// Creates a translation that writes the start and the end of a stream whose content consists of choices of this model;
/// `None` if no candidate is an offer of the model.
pub(in super::super) fn stream_frame(
    run: &FailoverRun<'_, '_>,
    model: &str,
) -> Option<Box<dyn StreamTranslation>> {
    let mut offers =
        run.candidates.entries.iter().filter_map(|entry| run.exchange.config.offers.get(entry.offer));
    frame_of_offer(run, offers.find(|offer| *offer.offer.model.card.id == *model)?)
}

fn frame_of_offer(run: &FailoverRun<'_, '_>, offer: &OfferState) -> Option<Box<dyn StreamTranslation>> {
    let wire_format = attempt::wire_format(run, offer).ok()?;
    let target = attempt::translation_parameters(run, offer, wire_format.dialect(), run.received_at);
    wire_format.new_stream_translation(run.request, &target)
}

/// Ends a failed stream with an error event; a stream of bytes is cut.
pub(in super::super) async fn fail_stream(run: &mut FailoverRun<'_, '_>, refusal: &ApiError) -> WriteOutcome {
    run.exchange.record.record_broken_stream(refusal);
    settle::count_delivered_in_limits(run);
    if run.request.streamed_content_type().is_some() {
        return WriteOutcome::Disconnected;
    }
    write_error_event(run, refusal).await
}

/// Writes the error event of a failed stream, with the cost of its delivered part if that is charged.
pub(in super::super) async fn write_error_event(
    run: &mut FailoverRun<'_, '_>,
    refusal: &ApiError,
) -> WriteOutcome {
    let Some(mut reply) = run.translation.take().or_else(|| error_only_translation(run)) else {
        return WriteOutcome::Disconnected;
    };
    settle::wait_for_ledger(run).await;
    let mut out = OutputBuffer::default();
    reply.write_error(refusal, run.exchange.id.as_str(), &run.settled.members, &mut out);
    let pieces = take_pieces(run, &mut out);
    write_last_pieces(run, pieces).await
}
