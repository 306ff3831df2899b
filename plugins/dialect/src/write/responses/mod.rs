//! Writer of the responses dialect.
//!
//! Items are written in the order in which they start. A message or reasoning ends when another item starts; a call
//! remains open until its arguments are complete, so that parallel calls may be interleaved.

mod buffered;
mod call;
mod custom_input;
mod frame;
mod item;
mod item_memory;
mod item_text;
mod part;
mod replay;
#[cfg(test)]
mod tests;

pub(crate) use buffered::translate_buffered;
pub(crate) use frame::failure_code;
pub use replay::{LAST_PENDING_EVENT, ReplayPieces, ResponseReplay};

use crate::event::{AnswerEvent, EscapedText, MessagePhase};
use crate::write::{EventBuffer, ResponseIdentity};
use call::CallState;
use frame::{EVENT_END, EventSequence, ResponseMembers, ResponseStatus};
use item::{ItemBody, ItemStatus, OutputItem};
use penstock_core::{
    ApiError, AttemptTarget, FinishReason, InferenceRequest, ResponsesDetails, ThinkingDisplay, TokenUsage,
};

/// Returns the response object of a background response whose execution has not started.
#[must_use]
pub fn queued_response(ask: &InferenceRequest, identity: ResponseIdentity) -> Vec<u8> {
    let mut out = EventBuffer::with_capacity(1024);
    ResponseMembers::with_identity(ask, identity).write_object_head(ResponseStatus::Queued, &mut out);
    out.extend_from_slice(br#"[],"usage":null}"#);
    out.into_pieces().concat()
}

/// Writer of one streamed answer in the responses dialect.
pub struct ResponsesStreamWriter {
    frame: ResponseMembers,
    details: ResponsesDetails,
    events: EventSequence,
    has_started: bool,
    items: Vec<OutputItem>,
    /// Indices of the open items: the last item, and calls with incomplete arguments.
    open_items: Vec<usize>,
    /// Calls by their numbers in the answer, with the indices of their items.
    calls: Vec<(u32, usize)>,
    /// Bytes of memory of the closed items.
    closed_bytes: usize,
    /// Phase of the next message, if the next text starts one; the inner value is `None` for a message without a phase.
    next_message: Option<Option<MessagePhase>>,
    finish_reason: Option<FinishReason>,
    /// True if arguments arrived for a call that was closed, so that the response ends with an error.
    is_invalid: bool,
}

impl ResponsesStreamWriter {
    /// Creates a writer at the start of an answer.
    #[must_use]
    pub fn new(ask: &InferenceRequest, target: &AttemptTarget<'_>) -> Self {
        Self {
            frame: ResponseMembers::new(ask, target),
            details: ask.responses.as_deref().cloned().unwrap_or_default(),
            events: EventSequence::default(),
            has_started: false,
            items: Vec::new(),
            open_items: Vec::new(),
            calls: Vec::new(),
            closed_bytes: 0,
            next_message: None,
            finish_reason: None,
            is_invalid: false,
        }
    }

    fn write_created(&mut self, out: &mut EventBuffer) {
        if std::mem::replace(&mut self.has_started, true) {
            return;
        }
        for kind in ["response.created", "response.in_progress"] {
            self.events.write_event_start(kind, out);
            out.extend_from_slice(br#","response":"#);
            self.frame.write_object_head(ResponseStatus::InProgress, out);
            out.extend_from_slice(br#"[],"usage":null}"#);
            out.extend_from_slice(EVENT_END);
        }
    }

    /// Closes the items that do not remain open when another item starts.
    fn close_finished(&mut self, out: &mut EventBuffer) {
        let Self { items, open_items, closed_bytes, events, .. } = self;
        open_items.retain(|at| {
            let Some(item) = items.get_mut(*at).filter(|item| item.may_close()) else { return true };
            item.close(ItemStatus::Completed, true, events, out);
            *closed_bytes += item.buffered_bytes();
            false
        });
    }

    fn open_item(&mut self, body: ItemBody, out: &mut EventBuffer) {
        self.close_finished(out);
        let phase = match &body {
            ItemBody::Message(_) => self.next_message.take().flatten(),
            ItemBody::Reasoning { .. } | ItemBody::Call(_) => None,
        };
        let item = OutputItem::new(&self.frame.id, self.items.len(), body).with_phase(phase);
        item.write_added(&mut self.events, out);
        self.open_items.push(self.items.len());
        self.items.push(item);
    }

    /// Returns the last item if it is open and of this kind.
    fn open_last(&mut self, fits: fn(&ItemBody) -> bool) -> Option<&mut OutputItem> {
        self.items.last_mut().filter(|item| item.status == ItemStatus::Open && fits(&item.body))
    }

    fn write_text(
        &mut self,
        text: &EscapedText,
        logprobs: Option<&[u8]>,
        is_refusal: bool,
        out: &mut EventBuffer,
    ) {
        let fits = |body: &ItemBody| matches!(body, ItemBody::Message(_));
        if text.is_empty() && logprobs.is_none() {
            return;
        }
        if self.next_message.is_some() || self.open_last(fits).is_none() {
            self.open_item(ItemBody::Message(Vec::new()), out);
        }
        if let Some(item) = self.items.last_mut() {
            item.push_message_text(text, logprobs, is_refusal, &mut self.events, out);
        }
    }

    fn write_reasoning(&mut self, text: &EscapedText, out: &mut EventBuffer) {
        let fits = |body: &ItemBody| matches!(body, ItemBody::Reasoning { .. });
        if text.is_empty() {
            return;
        }
        if self.open_last(fits).is_none() {
            self.open_item(ItemBody::new_reasoning(&self.details), out);
        }
        if let Some(item) = self.items.last_mut() {
            item.push_reasoning(text, &mut self.events, out);
        }
    }

    fn start_call(&mut self, number: u32, id: &EscapedText, name: &EscapedText, out: &mut EventBuffer) {
        let tool = self.details.mapped_tool(&name.decoded());
        let call = CallState::new(id.clone(), name, tool);
        self.calls.push((number, self.items.len()));
        self.open_item(ItemBody::Call(call), out);
    }

    /// Writes arguments of a call. A call whose arguments are complete is closed when another item starts; afterwards
    /// only white space may follow. Arguments after the end of a custom tool's input are ignored, because the input
    /// ends before the arguments do.
    fn write_arguments(&mut self, number: u32, fragment: &EscapedText, out: &mut EventBuffer) {
        let call = self.calls.iter().rev().find(|(call, _)| *call == number);
        let Some(item) = call.and_then(|(_, at)| self.items.get_mut(*at)) else { return };
        if item.status == ItemStatus::Open {
            return item.push_arguments(fragment, &mut self.events, out);
        }
        let is_custom = matches!(&item.body, ItemBody::Call(call) if call.custom_input_reader.is_some());
        self.is_invalid |= !is_custom && !fragment.decoded().trim().is_empty();
    }

    /// Closes all open items. If the answer was cut, they get the status `incomplete`.
    fn close_items(&mut self, cut: bool, out: &mut EventBuffer) {
        let status = if cut { ItemStatus::Incomplete } else { ItemStatus::Completed };
        for at in std::mem::take(&mut self.open_items) {
            if let Some(item) = self.items.get_mut(at) {
                item.close(status, !cut, &mut self.events, out);
                self.closed_bytes += item.buffered_bytes();
            }
        }
    }

    /// Ends a started response with the event `response.failed`.
    fn write_failure(&mut self, refusal: &ApiError, objects: &[u8], out: &mut EventBuffer) {
        for at in std::mem::take(&mut self.open_items) {
            if let Some(item) = self.items.get_mut(at) {
                item.status = ItemStatus::Incomplete;
                item.share_text();
            }
        }
        let status = ResponseStatus::Failed(failure_code(refusal.code), &refusal.message);
        self.write_response(status, None, objects, out);
    }

    /// Writes the last event: the response with its whole output.
    fn write_response(
        &mut self,
        status: ResponseStatus<'_>,
        usage: Option<&TokenUsage>,
        objects: &[u8],
        out: &mut EventBuffer,
    ) {
        self.events.write_event_start(&format!("response.{}", status.name()), out);
        out.extend_from_slice(br#","response":"#);
        write_response(&self.frame, status, &self.items, usage, out);
        if !objects.is_empty() {
            out.push(b',');
            out.extend_from_slice(objects);
        }
        out.push(b'}');
        out.extend_from_slice(EVENT_END);
    }
}

/// Writes a response object without its last brace, so that members can be added.
fn write_response(
    frame: &ResponseMembers,
    status: ResponseStatus<'_>,
    items: &[OutputItem],
    usage: Option<&TokenUsage>,
    out: &mut EventBuffer,
) {
    frame.write_object_head(status, out);
    out.push(b'[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        item.write_item(out);
    }
    out.extend_from_slice(br#"],"usage":"#);
    match usage {
        Some(usage) => frame::write_usage(usage, out),
        None => out.extend_from_slice(b"null"),
    }
}

/// Returns the status of a response that ended for this reason.
const fn final_status(reason: FinishReason) -> ResponseStatus<'static> {
    match reason {
        FinishReason::Stop | FinishReason::ToolCalls => ResponseStatus::Completed,
        FinishReason::Length | FinishReason::ContextWindow => ResponseStatus::Incomplete("max_output_tokens"),
        FinishReason::ContentFilter => ResponseStatus::Incomplete("content_filter"),
    }
}

impl super::DialectWriter for ResponsesStreamWriter {
    fn write(&mut self, event: &AnswerEvent, out: &mut EventBuffer) {
        if event.choice().is_some_and(|choice| choice > 0) {
            return;
        }
        if event.is_content() {
            self.write_created(out);
        }
        match event {
            AnswerEvent::Reasoning { text, .. } => self.write_reasoning(text, out),
            AnswerEvent::Text { text, logprobs, .. } => {
                self.write_text(text, logprobs.as_deref(), false, out);
            }
            AnswerEvent::Refusal { text, .. } => self.write_text(text, None, true, out),
            AnswerEvent::ToolCallStart { tool, id, name, .. } => self.start_call(*tool, id, name, out),
            AnswerEvent::ToolCallArguments { tool, fragment, .. } => {
                self.write_arguments(*tool, fragment, out)
            }
            AnswerEvent::Finish { reason, .. } => self.finish_reason = Some(*reason),
            AnswerEvent::MessageStart { phase, .. } => self.next_message = Some(*phase),
            AnswerEvent::Start
            | AnswerEvent::Usage(_)
            | AnswerEvent::InterimUsage(_)
            | AnswerEvent::Energy(_)
            | AnswerEvent::SealedReasoning { .. }
            | AnswerEvent::Ping
            | AnswerEvent::EmptyFinish
            | AnswerEvent::End => {}
        }
    }

    fn write_start(&mut self, out: &mut EventBuffer) {
        self.write_created(out);
    }

    fn record_separate_choice_finish(&mut self, choice: u32, finish: FinishReason) {
        if choice == 0 {
            self.finish_reason = Some(finish);
        }
    }

    fn reasoning_display(&self) -> ThinkingDisplay {
        ThinkingDisplay::Shown
    }

    fn has_message_boundaries(&self) -> bool {
        true
    }

    fn buffered_bytes(&self) -> usize {
        let open = self.open_items.iter().filter_map(|at| self.items.get(*at));
        self.closed_bytes + open.map(OutputItem::buffered_bytes).sum::<usize>()
    }

    fn has_invalid_output(&self) -> bool {
        self.is_invalid
    }

    fn end_bytes(&self) -> usize {
        self.items.iter().map(OutputItem::end_bytes).sum()
    }

    fn write_end(&mut self, usage: &TokenUsage, objects: &[u8], out: &mut EventBuffer) {
        self.write_created(out);
        if self.is_invalid {
            return self.write_failure(&super::invalid_arguments_error(), objects, out);
        }
        if self.items.is_empty() {
            // Example code of clients reads `output[0].content[0].text`, so an answer without items gets an empty
            // message.
            self.open_item(ItemBody::Message(Vec::new()), out);
            if let Some(item) = self.items.last_mut() {
                item.open_part(false, &mut self.events, out);
            }
        }
        let status = final_status(self.finish_reason.unwrap_or(FinishReason::Stop));
        self.close_items(status != ResponseStatus::Completed, out);
        self.write_response(status, Some(usage), objects, out);
    }

    /// Ends a started response with the event `response.failed`. Before the start, writes the event `error` instead.
    fn write_error(&mut self, refusal: &ApiError, _request_id: &str, objects: &[u8], out: &mut EventBuffer) {
        if self.has_started {
            return self.write_failure(refusal, objects, out);
        }
        frame::write_error_event(&mut self.events, refusal, out);
    }
}
