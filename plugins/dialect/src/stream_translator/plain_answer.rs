//! Answer of a provider that streams it although the client did not request a stream. A [`StreamTranslator`] reads it,
//! so that both forms of an answer end in the same way.

use super::StreamTranslator;
use crate::answer::DecodedAnswer;
use crate::choices;
use crate::decode;
use crate::event::AnswerEvent;
use crate::write::{DialectWriter, EventBuffer};
use bytes::Bytes;
use penstock_core::{
    ApiError, AttemptTarget, Dialect, InferenceRequest, OutputBuffer, StreamTranslation, ThinkingDisplay,
    TokenUsage, UpstreamError,
};
use std::sync::mpsc;

/// Writer that collects the events of an answer instead of serializing them.
struct EventCollector {
    events: mpsc::Sender<AnswerEvent>,
    has_message_boundaries: bool,
}

impl DialectWriter for EventCollector {
    fn write(&mut self, event: &AnswerEvent, _out: &mut EventBuffer) {
        // The receiver is dropped only after the answer has ended.
        self.events.send(event.clone()).ok();
    }

    fn reasoning_display(&self) -> ThinkingDisplay {
        ThinkingDisplay::Shown
    }

    fn has_message_boundaries(&self) -> bool {
        self.has_message_boundaries
    }

    fn write_end(&mut self, _usage: &TokenUsage, _objects: &[u8], _out: &mut EventBuffer) {}

    fn write_error(
        &mut self,
        _refusal: &ApiError,
        _request_id: &str,
        _objects: &[u8],
        _out: &mut EventBuffer,
    ) {
    }
}

/// Decodes an answer whose `body` is a stream of events, and applies the constraints of the request.
///
/// # Errors
/// Returns the errors of [`StreamTranslation::push`] and [`StreamTranslation::end`], with the usage of the discarded
/// answer.
pub(crate) fn decode_streamed_answer(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    body: Bytes,
) -> Result<DecodedAnswer, UpstreamError> {
    let (sender, events) = mpsc::channel();
    let has_message_boundaries = ask.dialect == Dialect::Responses;
    let collector = EventCollector { events: sender, has_message_boundaries };
    let mut translator = StreamTranslator::new(ask, target, Box::new(collector));
    let mut out = OutputBuffer::default();
    let body = decode::without_byte_order_mark(body);
    translator.push(body, &mut out).and_then(|()| translator.end(&mut out)).map_err(|fault| {
        let has_work = translator.attempt_bytes > 0 || translator.reported_usage.is_some();
        let usage = has_work.then(|| Box::new(translator.attempt_usage()));
        UpstreamError { discarded_usage: usage.or(fault.discarded_usage), ..fault }
    })?;
    let mut answer = DecodedAnswer::from_events(events.try_iter(), ask.n);
    answer.reported_usage = translator.reported_usage;
    answer.measured_energy = translator.measured_energy;
    answer.set_usage(ask, &translator.current_bounds(), &translator.constraints);
    answer.observation = translator.offer_observation();
    if let Some(usage) = answer.usage.as_mut() {
        choices::correct_undercounted_output(usage, &translator.choice_sizes);
    }
    Ok(answer)
}
