//! Parser of the reason for the end of a message.

use super::block_content::event_text;
use super::malformed_error;
use crate::decode::parse_finish_word;
use crate::event::AnswerEvent;
use crate::json_cursor;
use bytes::Bytes;
use penstock_core::UpstreamError;

/// Returns the finish event for the `stop_reason` and `stop_sequence` of an object in `data`; `None` if the reason is
/// absent, null or empty.
pub(super) fn finish_event(data: &Bytes, object: &[u8]) -> Result<Option<AnswerEvent>, UpstreamError> {
    let Some(reason) = json_cursor::member_value(object, "stop_reason") else { return Ok(None) };
    let word = json_cursor::parse_string(reason).ok_or_else(malformed_error)?;
    if word.is_empty() {
        return Ok(None);
    }
    let reason = parse_finish_word(&word)?;
    let stop = event_text(data, json_cursor::member_value(object, "stop_sequence"))?;
    let stop_sequence = (!stop.is_empty()).then_some(stop);
    Ok(Some(AnswerEvent::Finish { choice: 0, reason, stop_sequence }))
}
