//! Repetition of a prefill: some providers that are told by `prefix` to continue a message of the assistant begin the
//! answer with that message again. The answer for the client has only the continuation.

use crate::event::AnswerEvent;
use crate::json_cursor;
use crate::repeated_text::RepetitionFilter;
use penstock_core::{AttemptTarget, InferenceRequest, PrefillMethod, RequestBodyFormat};
use penstock_json_scan::json;

/// Filter that removes the prefill from the start of each choice.
#[derive(Debug, Default)]
pub(crate) struct PrefillFilter {
    /// Filter of each choice; `None` once its answer has proved to repeat the prefill, or not to.
    choices: Vec<Option<RepetitionFilter>>,
}

impl PrefillFilter {
    /// Creates the filter of an answer of `count` choices whose provider got `prefill` with the mark `prefix`. An empty
    /// prefill is never removed.
    pub(crate) fn new(prefill: &str, target: &AttemptTarget<'_>, count: usize) -> Self {
        let has_mark = target.dialect.request_body_format() == RequestBodyFormat::Chat
            && target.prefill_method() == PrefillMethod::Prefix;
        if prefill.is_empty() || !has_mark {
            return Self::default();
        }
        let filter = || RepetitionFilter::from_prefill(prefill.to_owned());
        Self { choices: std::iter::repeat_with(filter).take(count).collect() }
    }

    /// Returns the number of bytes that are held back.
    pub(crate) fn held_bytes(&self) -> usize {
        self.choices.iter().flatten().map(RepetitionFilter::held_bytes).sum()
    }

    /// Replaces events by those for the client.
    pub(crate) fn filter_all(&mut self, events: &mut Vec<AnswerEvent>) {
        if self.choices.iter().any(Option::is_some) {
            for event in std::mem::take(events) {
                self.filter(event, events);
            }
        }
    }

    /// Passes an event through, and appends the events that follow from it.
    fn filter(&mut self, event: AnswerEvent, out: &mut Vec<AnswerEvent>) {
        if matches!(event, AnswerEvent::End) {
            for (choice, filter) in (0..).zip(&mut self.choices) {
                out.extend(filter.take().into_iter().flat_map(|mut filter| filter.release_held(choice)));
            }
        }
        let slot = event.choice().and_then(|choice| self.choices.get_mut(choice as usize));
        let Some(slot) = slot else { return out.push(event) };
        let Some(filter) = slot else { return out.push(event) };
        let (events, has_ended) = filter.filter(event);
        out.extend(events);
        if has_ended {
            *slot = None;
        }
    }
}

/// Returns the events of a buffered answer without a prefill that it repeats.
pub(crate) fn without_prefill(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    mut events: Vec<AnswerEvent>,
) -> Vec<AnswerEvent> {
    PrefillFilter::new(&prefill_text(ask), target, ask.n as usize).filter_all(&mut events);
    events
}

/// Returns the prefill of a request, as providers get it: the text of the last messages, all of the assistant, without
/// white space at its end. Returns an empty string if the request has no prefill.
pub(crate) fn prefill_text(ask: &InferenceRequest) -> String {
    if !ask.required.prefill {
        return String::new();
    }
    let messages: Vec<&[u8]> =
        json_cursor::elements(ask.member_value("messages").unwrap_or_default()).collect();
    let is_answer = |message: &&&[u8]| {
        json_cursor::member_value(message, "role")
            .is_some_and(|role| json::json_string_equals(role, "assistant"))
    };
    let is_merged = ask.dialect.request_body_format() == RequestBodyFormat::Messages;
    let most = if is_merged { usize::MAX } else { 1 };
    let mut texts: Vec<String> =
        messages.iter().rev().take_while(is_answer).take(most).map(|message| message_text(message)).collect();
    texts.retain(|text| !text.is_empty());
    texts.reverse();
    let text = texts.join("\n\n");
    if is_merged { text.trim_end().to_owned() } else { text }
}

/// Returns the text of a message: its string, or the texts of its parts.
fn message_text(message: &[u8]) -> String {
    let content = json_cursor::member_value(message, "content").unwrap_or_default();
    if let Some(text) = json_cursor::parse_string(content) {
        return text.into_owned();
    }
    let text = |part| json_cursor::member_value(part, "text").and_then(json_cursor::parse_string);
    json_cursor::elements(content).filter_map(text).collect()
}
