//! Writer of a buffered response.

use super::call::CallState;
use super::frame::ResponseMembers;
use super::item::{ItemBody, ItemStatus, OutputItem};
use super::{EventSequence, final_status, write_response};
use crate::answer::{AnswerChoice, DecodedAnswer};
use crate::answer_sections::{AnswerSection, MessageSection};
use crate::event::EscapedText;
use crate::write::EventBuffer;
use bytes::Bytes;
use penstock_core::{
    AttemptTarget, BufferedResponse, FinishReason, InferenceRequest, ResponsesDetails, UpstreamError,
    UpstreamErrorKind, WorkDone,
};
use std::ops::Range;

/// Decodes a provider's buffered answer and writes it in the responses dialect.
///
/// # Errors
/// Returns the error of an answer that cannot be decoded.
pub(crate) fn translate_buffered(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    body: Bytes,
) -> Result<BufferedResponse, UpstreamError> {
    let answer = DecodedAnswer::decode(ask, target, body)?;
    let choice = answer.choices.first().ok_or(UpstreamError::new(UpstreamErrorKind::Malformed))?;
    let finish = choice.finish_reason.unwrap_or(FinishReason::Stop);
    let frame = ResponseMembers::new(ask, target);
    let output_bytes = answer.output_bytes();
    let items = output_items(ask, &frame.id, choice, finish);
    let copied: usize = items.iter().map(OutputItem::end_bytes).sum();
    let mut out = EventBuffer::with_capacity(1024 + copied * 9 / 8);
    write_response(&frame, final_status(finish), &items, answer.usage.as_ref(), &mut out);
    out.push(b'}');
    Ok(BufferedResponse {
        body: out.into_pieces(),
        work: answer.usage.map(WorkDone::Tokens),
        provider_work: answer.provider_usage.map(WorkDone::Tokens),
        measured_energy: answer.measured_energy,
        finish_reason: finish,
        output_bytes,
        images: Vec::new(),
        observation: answer.observation,
    })
}

/// Returns the output items of an answer, the same as in its stream. If the answer was cut, the last item is
/// incomplete.
fn output_items(
    ask: &InferenceRequest,
    id: &str,
    choice: &AnswerChoice,
    finish: FinishReason,
) -> Vec<OutputItem> {
    let details = ask.responses.as_deref().cloned().unwrap_or_default();
    let mut items = ItemList {
        id,
        items: Vec::with_capacity(2 + choice.tool_calls.len()),
        unused: EventBuffer::default(),
    };
    for section in &choice.sections {
        match section {
            AnswerSection::Reasoning { fragments, .. } => items.push_reasoning(choice, fragments, &details),
            AnswerSection::Message(message) => items.push_message(choice, message),
            AnswerSection::Call(number) => items.push_call(choice, *number, &details),
        }
    }
    if items.items.is_empty() {
        items.push_empty_message();
    }
    items.close(finish)
}

/// Output items under construction.
struct ItemList<'a> {
    id: &'a str,
    items: Vec<OutputItem>,
    /// Events of the items, which a buffered response does not have.
    unused: EventBuffer,
}

impl ItemList<'_> {
    fn new_item(&self, body: ItemBody) -> OutputItem {
        OutputItem::new(self.id, self.items.len(), body)
    }

    fn push_reasoning(
        &mut self,
        choice: &AnswerChoice,
        fragments: &Range<usize>,
        details: &ResponsesDetails,
    ) {
        let mut item = self.new_item(ItemBody::new_reasoning(details));
        let mut texts = choice.reasoning_texts(fragments).peekable();
        if texts.peek().is_none() {
            return;
        }
        texts.for_each(|text| item.push_reasoning(text, &mut EventSequence::default(), &mut self.unused));
        self.items.push(item);
    }

    /// Adds a message that is not empty.
    fn push_message(&mut self, choice: &AnswerChoice, message: &MessageSection) {
        if choice.message_texts(message).next().is_none() {
            return;
        }
        let mut events = EventSequence::default();
        let mut item = self.new_item(ItemBody::Message(Vec::new())).with_phase(message.phase);
        let texts = choice.text.get(message.text.clone()).unwrap_or_default();
        for text in texts.iter().filter(|text| !text.is_empty()) {
            item.push_message_text(text, None, false, &mut events, &mut self.unused);
        }
        // Fragments of text and log probabilities are separate lists. Only the concatenation of each list matters.
        for logprobs in choice.logprobs.get(message.logprobs.clone()).unwrap_or_default() {
            let empty = EscapedText::default();
            item.push_message_text(&empty, Some(logprobs), false, &mut events, &mut self.unused);
        }
        let refusals = choice.refusal.get(message.refusal.clone()).unwrap_or_default();
        for text in refusals.iter().filter(|text| !text.is_empty()) {
            item.push_message_text(text, None, true, &mut events, &mut self.unused);
        }
        self.items.push(item);
    }

    fn push_call(&mut self, choice: &AnswerChoice, number: usize, details: &ResponsesDetails) {
        let Some(call) = choice.tool_calls.get(number) else { return };
        let tool = details.mapped_tool(&call.name.decoded());
        let mut item = self.new_item(ItemBody::Call(CallState::new(call.id.clone(), &call.name, tool)));
        let mut events = EventSequence::default();
        call.arguments
            .iter()
            .for_each(|fragment| item.push_arguments(fragment, &mut events, &mut self.unused));
        self.items.push(item);
    }

    /// Adds the message of an answer without output.
    fn push_empty_message(&mut self) {
        let mut item = self.new_item(ItemBody::Message(Vec::new()));
        item.open_part(false, &mut EventSequence::default(), &mut self.unused);
        self.items.push(item);
    }

    fn close(mut self, finish: FinishReason) -> Vec<OutputItem> {
        let cut = !matches!(finish, FinishReason::Stop | FinishReason::ToolCalls);
        let last = self.items.len().saturating_sub(1);
        for (at, item) in self.items.iter_mut().enumerate() {
            self.unused.clear_all();
            let status = if cut && at == last { ItemStatus::Incomplete } else { ItemStatus::Completed };
            item.close(status, !cut, &mut EventSequence::default(), &mut self.unused);
        }
        self.items
    }
}
