//! Decoders of provider responses into events; one for each dialect of providers.

mod body_format;
pub mod chat;
mod finish_word;
pub mod messages;
pub mod responses;
mod text_channel;

pub use body_format::BodyStart;
pub(crate) use body_format::{BodyToSseConverter, is_event_stream};
pub(crate) use finish_word::parse_finish_word;

use crate::classify;
use crate::event::AnswerEvent;
use crate::providers::provider_dialect;
use bytes::Bytes;
use penstock_core::{Dialect, ReasoningName, UpstreamError, UpstreamErrorKind};
use penstock_http_wire::sse::SseEvent;
use penstock_http_wire::usage;
use penstock_json_scan::json;

/// Maximum bytes of a server-sent event from a provider.
pub const MAX_EVENT_BYTES: usize = 8 << 20;
/// Maximum number of tool calls of one choice.
pub const MAX_TOOL_CALLS: usize = 128;
/// Maximum bytes of a tool name or id.
pub const MAX_TOOL_NAME_BYTES: usize = 1024;

/// Decoder of a streamed answer. The events do not depend on chunk boundaries.
pub trait DialectDecoder: Send {
    /// Decodes bytes and appends the completed events. Events appended before an error are valid. A call after an error
    /// continues after the server-sent event with the error.
    ///
    /// # Errors
    /// Returns `Malformed` for an event that violates the dialect (not JSON, a member of an invalid type, an impossible
    /// index, an event out of order), `ModelOutput` for too many calls or too long names, and `InBandError` for a
    /// finish reason that states an abort. For an error object returns `Caller` if the client is at fault, `Status` if
    /// it states a timeout or a rate limit, and otherwise `InBandError`.
    fn push(&mut self, bytes: Bytes, events: &mut Vec<AnswerEvent>) -> Result<(), UpstreamError>;

    /// Appends the last events. Called after the provider has closed the stream; the caller checks that all choices
    /// have finished.
    ///
    /// # Errors
    /// Returns the errors of [`DialectDecoder::push`].
    fn end(&mut self, events: &mut Vec<AnswerEvent>) -> Result<(), UpstreamError>;

    /// Returns the member name under which the provider sent reasoning. `None` if no reasoning has arrived, or if the
    /// dialect has only one name for it.
    fn reasoning_name(&self) -> Option<ReasoningName> {
        None
    }

    /// Returns true if the last decoded finish reason came with text or a part of a tool call. Some engines mark each
    /// chunk as the last, so such a finish reason does not prove that the answer is complete.
    fn has_finish_with_output(&self) -> bool {
        false
    }

    /// Returns the number of bytes that the decoder stores: of an incomplete event, of a body that is not a stream, of
    /// tool calls, and of texts that are compared with later ones.
    fn buffered_bytes(&self) -> usize;
}

/// Function that decodes a buffered answer; its arguments are those of [`decode_buffered`] without the dialect.
pub(crate) type BufferedDecoder =
    fn(Bytes, &str, &mut Vec<AnswerEvent>) -> Result<Option<ReasoningName>, UpstreamError>;

/// Creates a decoder for a provider's dialect. `id` (unique, letters and digits) is the seed of generated tool call
/// ids.
#[must_use]
pub fn new_decoder(provider: Dialect, id: &str) -> Box<dyn DialectDecoder> {
    (provider_dialect(provider).new_decoder)(id)
}

/// Appends the events of a buffered answer, as its stream would give them (each text in one event; `Start` first, `End`
/// last). A body that is a stream of events is decoded as a stream. Returns the name of the reasoning member, if there
/// is one. `id` is the seed of generated tool call ids.
///
/// # Errors
/// Returns the errors of [`DialectDecoder::push`]; `Malformed` also if the body is no answer of the dialect. Events
/// before the error are appended nevertheless.
pub fn decode_buffered(
    provider: Dialect,
    body: Bytes,
    id: &str,
    events: &mut Vec<AnswerEvent>,
) -> Result<Option<ReasoningName>, UpstreamError> {
    let body = without_byte_order_mark(body);
    let document = json::trim(&body);
    // A truncated body must be detected separately, because the lookup of single members does not see its missing end.
    let is_single_value = json::value_end(document, 0) == Some(document.len());
    if !is_single_value && is_event_stream(&body) {
        let mut decoder = new_decoder(provider, id);
        decoder.push(body, events)?;
        decoder.end(events)?;
        return Ok(decoder.reasoning_name());
    }
    if !is_single_value || std::str::from_utf8(document).is_err() {
        return Err(UpstreamError::new(UpstreamErrorKind::Malformed));
    }
    (provider_dialect(provider).decode_buffered)(body, id, events)
}

/// Removes a byte order mark from the start of a body.
pub(crate) fn without_byte_order_mark(mut body: Bytes) -> Bytes {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    if body.starts_with(MARK) {
        return body.split_off(MARK.len());
    }
    body
}

/// Appends the events of a JSON object that a provider sent instead of a stream, like [`decode_buffered`]. Called after
/// the stream was closed.
///
/// # Errors
/// Returns the errors of [`decode_buffered`], and `Truncated` for an object that is cut.
pub(crate) fn decode_closed_object(
    provider: Dialect,
    object: Bytes,
    id: &str,
    events: &mut Vec<AnswerEvent>,
) -> Result<Option<ReasoningName>, UpstreamError> {
    let is_cut = json::value_end(&object, 0).is_none();
    decode_buffered(provider, object, id, events)
        .map_err(|fault| if is_cut { to_truncation_error(fault) } else { fault })
}

/// Returns the event for the comment of a server-sent event: energy that the provider states in the comment, or else a
/// keepalive. `None` for an event without a comment.
fn comment_event(event: &SseEvent) -> Option<AnswerEvent> {
    let comment = event.comment.as_ref()?;
    Some(usage::parse_energy_comment(comment).map_or(AnswerEvent::Ping, AnswerEvent::Energy))
}

/// Returns the error that an event reports, in its `error:` field or by the event name `error`. The event name is
/// ignored if the data has a type of the dialect (`has_known_type`).
pub(crate) fn event_error(event: &SseEvent, has_known_type: bool) -> Option<UpstreamError> {
    let data = event.error_data().filter(|_| event.error.is_some() || !has_known_type)?;
    Some(classify::classify_in_band_error(data))
}

/// Converts `Malformed` to `Truncated` for the error of the last event, which is incomplete if the stream was cut.
pub(crate) fn to_truncation_error(fault: UpstreamError) -> UpstreamError {
    match fault.kind {
        UpstreamErrorKind::Malformed => UpstreamError::new(UpstreamErrorKind::Truncated),
        _ => fault,
    }
}
