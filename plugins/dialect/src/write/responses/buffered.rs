//! Writer of a buffered response.

use super::call::CallState;
use super::frame::ResponseFrame;
use super::item::{ItemBody, ItemStatus, OutputItem};
use super::{EventSequence, final_status, write_response};
use crate::answer::{AnswerChoice, DecodedAnswer, MessageBoundary};
use crate::event::{EscapedText, MessagePhase};
use bytes::Bytes;
use penstock_core::{
    AttemptTarget, BufferedResponse, FinishReason, InferenceRequest, UpstreamError, UpstreamErrorKind,
    WorkDone,
};

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
    let frame = ResponseFrame::new(ask, target);
    let output_bytes = answer.output_bytes();
    let items = output_items(ask, &frame.id, choice, finish);
    let mut out = Vec::with_capacity(1024 + output_bytes * 9 / 8);
    write_response(&frame, final_status(finish), &items, answer.usage.as_ref(), &mut out);
    out.push(b'}');
    Ok(BufferedResponse {
        body: vec![Bytes::from(out)],
        work: answer.usage.map(WorkDone::Tokens),
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
    // Creating items also writes events, which a buffered response does not use.
    let (mut events, mut unused) = (EventSequence::default(), Vec::new());
    let details = ask.responses.as_deref().cloned().unwrap_or_default();
    let mut items: Vec<OutputItem> = Vec::with_capacity(2 + choice.tool_calls.len());
    let has_text = |texts: &[EscapedText]| texts.iter().any(|text| !text.is_empty());
    if has_text(&choice.reasoning) {
        let body = ItemBody::Reasoning {
            text: Vec::new(),
            display: details.reasoning,
            is_sealed: details.seals_reasoning,
        };
        let mut item = OutputItem::new(id, items.len(), body);
        choice.reasoning.iter().for_each(|text| item.push_reasoning(text, &mut events, &mut unused));
        items.push(item);
    }
    let has_message = has_text(&choice.text) || has_text(&choice.refusal);
    let is_silent = items.is_empty() && choice.tool_calls.is_empty() && !has_message;
    for message in if has_message || is_silent { choice_messages(choice) } else { Vec::new() } {
        let item = OutputItem::new(id, items.len(), ItemBody::Message(Vec::new()));
        let mut item = item.with_phase(message.phase);
        push_message(&message, is_silent, &mut item, &mut events, &mut unused);
        items.push(item);
    }
    for (number, call) in (0_u32..).zip(&choice.tool_calls) {
        let tool = details.mapped_tool(&call.name.decoded());
        let body = ItemBody::Call(CallState::new(number, call.id.clone(), &call.name, tool));
        let mut item = OutputItem::new(id, items.len(), body);
        call.arguments.iter().for_each(|fragment| item.push_arguments(fragment, &mut events, &mut unused));
        items.push(item);
    }
    let cut = !matches!(finish, FinishReason::Stop | FinishReason::ToolCalls);
    let last = items.len().saturating_sub(1);
    for (at, item) in items.iter_mut().enumerate() {
        unused.clear();
        let status = if cut && at == last { ItemStatus::Incomplete } else { ItemStatus::Completed };
        item.close(status, !cut, &mut events, &mut unused);
    }
    items
}

/// Message of an answer: fragments of its text and refusal, and log probabilities.
#[derive(Clone, Copy)]
struct MessageParts<'a> {
    phase: Option<MessagePhase>,
    text: &'a [EscapedText],
    refusal: &'a [EscapedText],
    logprobs: &'a [Bytes],
}

/// Returns the messages of a choice, at least one. Fragments before the first boundary are a message of their own.
fn choice_messages(choice: &AnswerChoice) -> Vec<MessageParts<'_>> {
    let end = MessageBoundary {
        phase: None,
        text: choice.text.len(),
        refusal: choice.refusal.len(),
        logprobs: choice.logprobs.len(),
    };
    let mut starts = vec![MessageBoundary::default()];
    starts.extend(&choice.messages);
    let ends = choice.messages.iter().chain([&end]);
    let all = starts.iter().zip(ends).map(|(from, to)| MessageParts {
        phase: from.phase,
        text: choice.text.get(from.text..to.text).unwrap_or_default(),
        refusal: choice.refusal.get(from.refusal..to.refusal).unwrap_or_default(),
        logprobs: choice.logprobs.get(from.logprobs..to.logprobs).unwrap_or_default(),
    });
    let has_content =
        |parts: &MessageParts<'_>| parts.text.iter().chain(parts.refusal).any(|text| !text.is_empty());
    let mut messages: Vec<_> = all.clone().filter(has_content).collect();
    if messages.is_empty() {
        messages.extend(all.take(1));
    }
    messages
}

/// Adds text, log probabilities and refusal to a message.
fn push_message(
    choice: &MessageParts<'_>,
    is_silent: bool,
    item: &mut OutputItem,
    events: &mut EventSequence,
    unused: &mut Vec<u8>,
) {
    // Fragments of text and log probabilities are separate lists. Only the concatenation of each list matters.
    let empty = EscapedText::default();
    for text in choice.text.iter().filter(|text| !text.is_empty()) {
        item.push_message_text(text, None, false, events, unused);
    }
    for logprobs in choice.logprobs {
        item.push_message_text(&empty, Some(logprobs), false, events, unused);
    }
    for text in choice.refusal.iter().filter(|text| !text.is_empty()) {
        item.push_message_text(text, None, true, events, unused);
    }
    if is_silent {
        item.open_part(false, events, unused);
    }
}
