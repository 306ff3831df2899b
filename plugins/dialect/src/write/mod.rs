//! Writers that serialize events for the client; one for each dialect of clients, and one for text completions.

pub mod chat;
pub mod completions;
pub(crate) mod event_buffer;
mod logprobs;
pub mod messages;
pub mod responses;

use crate::event::AnswerEvent;
pub use event_buffer::EventBuffer;
use penstock_core::{ApiError, AttemptTarget, ErrorCode, FinishReason, ThinkingDisplay, TokenUsage};

/// Id, model name and creation time of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseIdentity {
    /// Unique part of the id, letters and digits, without the dialect's prefix.
    pub id: String,
    /// Model name that the client used.
    pub model: String,
    /// Creation time in Unix seconds.
    pub created: u64,
}

impl ResponseIdentity {
    /// Returns the identity of the response to an attempt at this target.
    #[must_use]
    pub fn from_target(target: &AttemptTarget<'_>) -> Self {
        Self {
            id: target.answer_id.to_owned(),
            model: target.answer_model.to_owned(),
            created: target.answer_created,
        }
    }
}

/// Writer that serializes the events of an answer as server-sent events of a client's dialect.
///
/// The events have passed the response constraints: the index of each choice is below `n`, tool calls are reduced to
/// the allowed ones, and finish reasons match the content. Written output cannot be changed later.
pub trait DialectWriter: Send {
    /// Appends the serialized event. The last [`AnswerEvent::Finish`] is stored for [`DialectWriter::write_end`], and
    /// content may follow a finish. Events without content may produce no output; `Usage` before the first content may
    /// be used for the opening event.
    fn write(&mut self, event: &AnswerEvent, out: &mut EventBuffer);

    /// Appends the output that precedes the content of all choices.
    fn write_start(&mut self, _out: &mut EventBuffer) {}

    /// Records the finish reason of a choice that was requested separately, and whose output another writer has
    /// written.
    fn record_separate_choice_finish(&mut self, _choice: u32, _finish: FinishReason) {}

    /// Returns the part of [`AnswerEvent::Reasoning`] that the client sees. A rescue compares only visible text.
    fn reasoning_display(&self) -> ThinkingDisplay;

    /// Returns true if an answer of this dialect consists of messages, so that [`AnswerEvent::MessageStart`] is
    /// written. For other dialects it becomes a blank line.
    fn has_message_boundaries(&self) -> bool {
        false
    }

    /// Returns the number of content blocks that were started in the output; 0 for dialects without content blocks.
    fn started_blocks(&self) -> usize {
        0
    }

    /// Returns true if the dialect cannot express the answer, because the model wrote invalid tool arguments. Called
    /// at the end of the answer; [`DialectWriter::write_end`] then ends the answer with an error.
    fn has_invalid_output(&self) -> bool {
        false
    }

    /// Returns the number of bytes of text, unescaped, that were written to this writer and not yet to its output.
    fn undelivered_bytes(&self) -> usize {
        0
    }

    /// Returns the number of bytes of the answer that the writer keeps in memory.
    fn buffered_bytes(&self) -> usize {
        0
    }

    /// Returns an upper estimate of the bytes of the answer that [`DialectWriter::write_end`] copies in addition to the
    /// buffered bytes.
    fn end_bytes(&self) -> usize {
        0
    }

    /// Appends the end of a successful answer: buffered output, usage and `objects` (JSON members without braces, may
    /// be empty).
    fn write_end(&mut self, usage: &TokenUsage, objects: &[u8], out: &mut EventBuffer);

    /// Appends the end of a failed answer, with `objects` if its delivered part is charged.
    fn write_error(&mut self, refusal: &ApiError, request_id: &str, objects: &[u8], out: &mut EventBuffer);
}

/// Returns the error of an answer with tool arguments that no client can read, which are the model's fault, not the
/// provider's.
pub(crate) fn invalid_arguments_error() -> ApiError {
    let sentence = "The model called a tool with arguments that are no JSON object.";
    ApiError::with_message(ErrorCode::Unavailable, sentence).non_retryable()
}

/// Appends `objects`, JSON members without braces, to a JSON object.
pub(crate) fn append_members(mut object: Vec<u8>, objects: &[u8]) -> Vec<u8> {
    if let Some(end) = memchr::memrchr(b'}', &object).filter(|_| !objects.is_empty()) {
        object.splice(end..end, std::iter::once(b',').chain(objects.iter().copied()));
    }
    object
}
