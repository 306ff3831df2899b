//! Complete answer of a provider, built from its events.

use crate::answer_sections::AnswerSection;
use crate::charged_usage::usage_without_removed_output;
use crate::choices::{self, ChoiceSize};
use crate::decode;
use crate::discarded_usage::with_discarded_usage;
use crate::echo::{BytesPerTokenId, EchoMeter};
use crate::event::{AnswerEvent, EscapedText};
use crate::generated_output::GeneratedOutput;
use crate::json_cursor;
use crate::output_limit::OutputLimit;
use crate::prefill_repetition::without_prefill;
use crate::response_constraints::ResponseConstraints;
use crate::stream_translator::decode_streamed_answer;
use crate::token_cap::TokenCap;
use bytes::Bytes;
use penstock_core::{
    AttemptTarget, Dialect, FinishReason, InferenceRequest, MeasuredEnergy, OfferObservation, ReportedUsage,
    TokenUsage, UpstreamError, UpstreamErrorKind, UsageBounds,
};
use penstock_json_scan::json;

/// Tool call of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// Id of the call.
    pub id: EscapedText,
    /// Name of the function.
    pub name: EscapedText,
    /// JSON text of the arguments, escaped as in a JSON string; may be empty.
    pub arguments: Vec<EscapedText>,
}

/// Choice of an answer. Each text is a list of consecutive fragments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnswerChoice {
    /// Reasoning text.
    pub reasoning: Vec<EscapedText>,
    /// Text of the answer.
    pub text: Vec<EscapedText>,
    /// Text that declines to answer.
    pub refusal: Vec<EscapedText>,
    /// Tool calls in order.
    pub tool_calls: Vec<ToolCall>,
    /// Log probabilities as the provider wrote them, one JSON object for each fragment that has them.
    pub logprobs: Vec<Bytes>,
    /// Reasoning, messages and tool calls, in the order in which the model wrote them.
    pub sections: Vec<AnswerSection>,
    /// Finish reason.
    pub finish_reason: Option<FinishReason>,
    /// Matched stop sequence.
    pub stop_sequence: Option<EscapedText>,
}

impl AnswerChoice {
    /// Returns the number of bytes of generated text: reasoning, text, refusals, tool names and arguments.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        let length = |texts: &[EscapedText]| texts.iter().map(EscapedText::decoded_len).sum::<usize>();
        let tools: usize =
            self.tool_calls.iter().map(|call| call.name.decoded_len() + length(&call.arguments)).sum();
        length(&self.reasoning) + length(&self.text) + length(&self.refusal) + tools
    }
}

/// Decoded answer with all its choices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DecodedAnswer {
    /// Choices in order.
    pub choices: Vec<AnswerChoice>,
    /// Token usage that the client is charged for, set only by [`DecodedAnswer::decode`]: the provider's counts,
    /// corrected if they are implausible, with the gateway's estimates for absent ones, and without output that the
    /// constraints of the request removed.
    pub usage: Option<TokenUsage>,
    /// Token usage of the provider, set like `usage`, with the removed output; `None` if nothing was removed.
    pub provider_usage: Option<TokenUsage>,
    /// Usage reported by the provider.
    pub reported_usage: Option<ReportedUsage>,
    /// Energy measured by the provider.
    pub measured_energy: Option<MeasuredEnergy>,
    /// Observations about the behaviour of the offer.
    pub observation: OfferObservation,
}

impl DecodedAnswer {
    /// Decodes a buffered answer of a provider and applies the constraints of the request.
    ///
    /// # Errors
    /// Returns `Malformed` if the body is no answer or has a choice that was not requested, the error that
    /// [`decode::decode_buffered`] returns for an error object, and `Truncated` if a choice has no finish reason. A
    /// choice that has reached the token limit needs no finish reason. A body that is a stream of events is read like a
    /// streamed answer.
    pub fn decode(
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
        body: Bytes,
    ) -> Result<Self, UpstreamError> {
        if decode::is_event_stream(&body) {
            return decode_streamed_answer(ask, target, body);
        }
        let (mut events, mut constrained) = (Vec::new(), Vec::new());
        let discard = |fault, events: &[AnswerEvent]| with_discarded_usage(fault, ask, target, events);
        let read = decode::decode_buffered(target.dialect, body.clone(), target.answer_id, &mut events);
        let reasoning = read.map_err(|fault| discard(fault, &events))?;
        let mut constraints = ResponseConstraints::new(ask, target);
        // If the provider sent a choice that was not requested, the indices of the requested choices are unreliable
        // too.
        let unknown = |event: &AnswerEvent| {
            event.choice().is_some_and(|choice| choice as usize >= constraints.choice_count())
        };
        if events.iter().any(unknown) {
            return Err(discard(UpstreamError::new(UpstreamErrorKind::Malformed), &events));
        }
        let mut sent = GeneratedOutput::new(ask);
        let usage_bounds = ask.usage_bounds(target);
        let mut limit = OutputLimit::new(ask, &usage_bounds);
        for event in without_prefill(ask, target, events) {
            sent.add_event(&event);
            let has_messages = ask.dialect == Dialect::Responses;
            let event = if has_messages { Some(event) } else { event.flatten_message_start() };
            if let Some(event) = event.and_then(|event| limit.truncate_event(event, &sent)) {
                constraints.apply(event, &mut constrained);
            }
        }
        let sizes = choice_sizes(ask, &constrained);
        let mut answer = Self::from_events(constrained, ask.n);
        answer.set_usage(ask, &sent.usage_bounds(&usage_bounds, answer.choices.len()), &constraints);
        let usage = answer.provider_usage.or(answer.usage);
        if TokenCap::new(ask, target).is_reached(usage.as_ref()) {
            answer.finish_at_cap(&choices_without_finish_reason(&body));
        }
        if answer.choices.iter().any(|candidate| candidate.finish_reason.is_none()) {
            return Err(answer.truncation_error(ask));
        }
        answer.observation =
            OfferObservation { reasoning_name: reasoning, exceeds_output_limit: limit.is_exceeded() };
        if let Some(usage) = answer.usage.as_mut() {
            choices::correct_undercounted_output(usage, &sizes);
        }
        Ok(answer)
    }

    /// Returns the error of an answer in which a choice has no finish reason.
    fn truncation_error(&self, ask: &InferenceRequest) -> UpstreamError {
        UpstreamError {
            completed_choices: self.completed_choices().filter(|_| ask.n > 1),
            discarded_usage: self.provider_usage.or(self.usage).map(Box::new),
            ..UpstreamError::new(UpstreamErrorKind::Truncated)
        }
    }

    /// Sets the usage from the provider's report. Clients read the usage of a buffered answer without checking that it
    /// exists, so it is estimated if it is missing. `bounds` follow from the output of the provider, including removed
    /// output.
    pub(crate) fn set_usage(
        &mut self,
        ask: &InferenceRequest,
        bounds: &UsageBounds,
        constraints: &ResponseConstraints,
    ) {
        let delivered = self.output_bytes() - self.echoed_bytes(ask);
        let counted = ask.estimate_unreported_usage(delivered);
        let stated = self.reported_usage.unwrap_or_default();
        let usage = stated.to_plausible_usage(bounds, &counted);
        if constraints.has_discarded_output() {
            self.provider_usage = Some(usage);
            self.usage = Some(usage_without_removed_output(stated, bounds, &counted, delivered));
        } else {
            self.usage = Some(usage);
        }
    }

    /// Builds an answer of `n` choices from events. Events with a choice index of `n` or above are dropped.
    #[must_use]
    pub fn from_events(events: impl IntoIterator<Item = AnswerEvent>, n: u32) -> Self {
        let mut answer = Self::default();
        answer.choices.resize(n as usize, AnswerChoice::default());
        events.into_iter().for_each(|event| answer.apply_event(event));
        answer
    }

    fn apply_event(&mut self, event: AnswerEvent) {
        let Some(choice) = event.choice() else {
            match event {
                AnswerEvent::Usage(stated) | AnswerEvent::InterimUsage(stated) => {
                    self.reported_usage = Some(self.reported_usage.unwrap_or_default().updated_by(stated));
                }
                AnswerEvent::Energy(measured) => self.measured_energy = Some(measured),
                AnswerEvent::MessageStart { phase, .. } => {
                    if let Some(choice) = self.choices.first_mut() {
                        choice.begin_message(phase);
                    }
                }
                _ => {}
            }
            return;
        };
        let Some(candidate) = self.choices.get_mut(choice as usize) else { return };
        match event {
            AnswerEvent::Reasoning { text, signature, .. } => candidate.push_reasoning(text, signature),
            AnswerEvent::Text { text, logprobs, .. } => candidate.push_text(text, logprobs),
            AnswerEvent::Refusal { text, .. } => candidate.push_refusal(text),
            AnswerEvent::ToolCallStart { id, name, .. } => {
                candidate.sections.push(AnswerSection::Call(candidate.tool_calls.len()));
                candidate.tool_calls.push(ToolCall { id, name, arguments: Vec::new() });
            }
            AnswerEvent::ToolCallArguments { tool, fragment, .. } => {
                if let Some(call) = candidate.tool_calls.get_mut(tool as usize) {
                    call.arguments.push(fragment);
                }
            }
            AnswerEvent::Finish { reason, stop_sequence, .. } => {
                candidate.finish_reason = Some(reason);
                candidate.stop_sequence = stop_sequence;
            }
            _ => {}
        }
    }

    /// Returns the number of bytes of generated text in all choices.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        self.choices.iter().map(AnswerChoice::output_bytes).sum()
    }

    /// Returns the number of bytes by which the texts repeat the prompt (`echo`).
    fn echoed_bytes(&self, ask: &InferenceRequest) -> usize {
        let mut echo = EchoMeter::new(ask, BytesPerTokenId::Typical);
        for (number, choice) in (0..).zip(&self.choices) {
            echo.add_text(number, choice.text.iter().map(EscapedText::decoded_len).sum());
        }
        echo.echoed_bytes()
    }

    /// Sets the finish reason `Length`, because the token limit was reached: for choices with output and without a
    /// finish reason, and for the choices with the indices `assumed`, whose finish reason `Stop` the decoder has only
    /// assumed.
    fn finish_at_cap(&mut self, assumed: &[u64]) {
        for (number, choice) in (0..).zip(&mut self.choices) {
            let is_open = match choice.finish_reason {
                None => choice.output_bytes() > 0,
                Some(reason) => reason == FinishReason::Stop && assumed.contains(&number),
            };
            if is_open {
                choice.finish_reason = Some(FinishReason::Length);
            }
        }
    }

    /// Returns the number of complete choices, if at least one is complete and none of the choices after them has
    /// started; `None` otherwise, also if all are complete.
    fn completed_choices(&self) -> Option<u32> {
        let choices = self.choices.iter().map(|one| (one.finish_reason.is_some(), one.output_bytes()));
        choices::complete_choice_count(choices)
    }
}

/// Returns the bytes and words of the generated text of each choice, by index; an empty list if the texts repeat the
/// prompt (`echo`), because the prompt is not generated.
fn choice_sizes(ask: &InferenceRequest, events: &[AnswerEvent]) -> Vec<ChoiceSize> {
    let mut sizes = vec![ChoiceSize::default(); if ask.echoes_prompt() { 0 } else { ask.n as usize }];
    for event in events {
        if let Some(size) = event.choice().and_then(|choice| sizes.get_mut(choice as usize)) {
            size.add_event(event);
        }
    }
    sizes
}

/// Returns the indices of those choices in the body of a buffered chat answer whose `finish_reason` is missing, null or
/// empty.
fn choices_without_finish_reason(body: &[u8]) -> Vec<u64> {
    let choices = json_cursor::member_value(json::trim(body), "choices").unwrap_or_default();
    let is_empty = |reason: &[u8]| json_cursor::is_null(reason) || reason == b"\"\"";
    let lacks_reason =
        |choice: &[u8]| json_cursor::member_value(choice, "finish_reason").is_none_or(is_empty);
    (0..)
        .zip(json_cursor::elements(choices))
        .filter(|(_, choice)| lacks_reason(choice))
        .map(|(position, choice)| {
            json_cursor::member_value(choice, "index").and_then(json_cursor::parse_index).unwrap_or(position)
        })
        .collect()
}
