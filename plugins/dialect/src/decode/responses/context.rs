//! Source of an event of a streamed response, and destination of its content.

use super::part::LastParts;
use super::{event_text, malformed_error};
use crate::decode::text_channel::SplitSurrogate;
use crate::decode::{MAX_TOOL_CALLS, MAX_TOOL_NAME_BYTES};
use crate::event::AnswerEvent;
use crate::json_cursor;
use bytes::Bytes;
use penstock_core::UpstreamError;

/// Source of an event, and destination of its content.
pub(super) struct OutputContext<'a> {
    pub(super) source: &'a Bytes,
    pub(super) tool_count: &'a mut u32,
    pub(super) has_message: &'a mut bool,
    pub(super) split_surrogate: &'a mut SplitSurrogate,
    pub(super) texts: &'a mut LastParts,
    pub(super) stored_bytes: &'a mut usize,
    pub(super) events: &'a mut Vec<AnswerEvent>,
}

impl OutputContext<'_> {
    /// Subtracts bytes that are no longer stored.
    pub(super) fn subtract_stored_bytes(&mut self, bytes: usize) {
        *self.stored_bytes = self.stored_bytes.saturating_sub(bytes);
    }

    /// Starts a function call; returns its number among the calls of the answer.
    pub(super) fn start_call(&mut self, item: &[u8]) -> Result<u32, UpstreamError> {
        let text = |name| json_cursor::member_value(item, name).map(|value| event_text(self.source, value));
        let id = text("call_id").or_else(|| text("id")).ok_or_else(malformed_error)??;
        let name = text("name").ok_or_else(malformed_error)??;
        let tool = *self.tool_count;
        let is_named = (1..=MAX_TOOL_NAME_BYTES).contains(&name.escaped().len());
        if !is_named || usize::try_from(tool).is_ok_and(|tool| tool >= MAX_TOOL_CALLS) {
            return Err(UpstreamError::invalid_model_output());
        }
        if id.is_empty() || id.escaped().len() > MAX_TOOL_NAME_BYTES {
            return Err(malformed_error());
        }
        *self.tool_count += 1;
        self.events.push(AnswerEvent::ToolCallStart { choice: 0, tool, id, name });
        Ok(tool)
    }
}
