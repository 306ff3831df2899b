//! Whole answer that some engines repeat at the end of its stream.

use super::{ChoiceDecoder, ChoiceMembers, MessageMembers};
use crate::json_cursor;

impl ChoiceDecoder {
    /// Returns the delta of a chunk, and the message with the whole answer; members of an absent one are `None`. A
    /// message with a finish reason is the whole answer if the chunk has a delta too, or earlier output came in deltas:
    /// some engines end the stream with an object that repeats the answer.
    pub(super) fn split_whole<'a>(
        &self,
        parts: &ChoiceMembers<'a>,
        is_buffered: bool,
    ) -> (MessageMembers<'a>, MessageMembers<'a>) {
        let has_finish = parts.finish_reason.is_some();
        let is_repetition = !is_buffered && self.has_delta_output && !parts.has_delta && has_finish;
        let (delta, whole) =
            if is_repetition { (None, parts.message) } else { (parts.message, parts.whole_message) };
        (delta.unwrap_or_default(), whole.filter(|_| has_finish).unwrap_or_default())
    }

    /// Completes the delta of a chunk with a finish reason: some engines add a message with the whole answer to that
    /// chunk, or send it as the last object. From the message `whole` the decoder takes only channels (text,
    /// reasoning, refusal, tool calls) that have had no output so far, and `reasoning_details` only without reasoning
    /// text. Returns the members, and true if the tool calls come from the message.
    pub(super) fn complete_from_whole<'a>(
        &self,
        delta: MessageMembers<'a>,
        whole: MessageMembers<'a>,
    ) -> (MessageMembers<'a>, bool) {
        let mut merged = MessageMembers {
            content: delta.content.or(whole.content.filter(|_| !self.emitted.text)),
            reasoning: delta.reasoning.or(whole.reasoning.filter(|_| !self.emitted.reasoning)),
            refusal: delta.refusal.or(whole.refusal.filter(|_| !self.emitted.refusal)),
            ..delta
        };
        let has_calls = |members: &MessageMembers<'_>| members.tool_calls.or(members.function_call).is_some();
        let has_whole_calls = self.tool_calls.is_empty() && !has_calls(&delta) && has_calls(&whole);
        if has_whole_calls {
            (merged.tool_calls, merged.function_call) = (whole.tool_calls, whole.function_call);
        }
        if merged.reasoning.is_none() && !self.has_named_reasoning {
            let whole = whole.reasoning_details.filter(|_| !self.emitted.reasoning);
            merged.reasoning =
                delta.reasoning_details.or(whole).filter(|details| json_cursor::is_array(details));
        }
        (merged, has_whole_calls)
    }
}
