//! Limit on the generated text of an answer, for providers that ignore `max_tokens`.

use crate::event::AnswerEvent;
use crate::generated_output::GeneratedOutput;
use penstock_core::{FinishReason, InferenceRequest, UsageBounds};

/// Limit on the bytes that one provider generates. It is far above what the allowed tokens can contain, so that only an
/// answer that ignores `max_tokens` reaches it.
#[derive(Clone, Debug)]
pub(crate) struct OutputLimit {
    max_bytes: usize,
    is_exceeded: bool,
}

impl OutputLimit {
    /// Creates the limit for a request with these bounds. An echo of the prompt is allowed in addition to the output.
    pub(crate) fn new(ask: &InferenceRequest, bounds: &UsageBounds) -> Self {
        let echo = if ask.echoes_prompt() {
            let generations = usize::try_from(ask.generation_count()).unwrap_or(usize::MAX);
            ask.prompt_bytes.saturating_mul(UsageBounds::MAX_TOKEN_BYTES).saturating_mul(generations)
        } else {
            0
        };
        Self { max_bytes: bounds.max_output_bytes().saturating_add(echo), is_exceeded: false }
    }

    /// Returns true if the output has exceeded the limit.
    pub(crate) const fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }

    /// Returns the part of an event that is within the limit; `None` if no part is. `output` is the output so far,
    /// including this event. After the limit, content is dropped, and finish reasons become `Length`.
    pub(crate) fn truncate_event(
        &mut self,
        event: AnswerEvent,
        output: &GeneratedOutput,
    ) -> Option<AnswerEvent> {
        let is_content = event.is_content();
        let is_first_excess = !self.is_exceeded && is_content && output.generated_bytes() > self.max_bytes;
        self.is_exceeded |= is_first_excess;
        match event {
            event if is_first_excess => {
                let excess = output.generated_bytes() - self.max_bytes;
                let length = event.generated_bytes();
                event.truncate_to(length.saturating_sub(excess))
            }
            AnswerEvent::Finish { choice, .. } if self.is_exceeded => {
                Some(AnswerEvent::Finish { choice, reason: FinishReason::Length, stop_sequence: None })
            }
            event => (!self.is_exceeded || !is_content).then_some(event),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::test_support;
    use bytes::Bytes;
    use penstock_core::{
        AttemptTarget, Dialect, OfferCapabilities, OutputBuffer, StreamProgress, UsageSource,
    };
    use serde_json::{Value, json};

    const MAX_TOKENS: u64 = 3;
    /// Bytes of text in an event.
    const STEP: usize = 1_000;

    fn ask(dialect: Dialect) -> InferenceRequest {
        let members = json!({"model": "m", "stream": true, "max_tokens": MAX_TOKENS,
            "messages": [{"role": "user", "content": "Hi"}]});
        let responses = json!({"model": "m", "stream": true, "max_tokens": MAX_TOKENS, "input": "Hi"});
        let body = if dialect == Dialect::Responses { responses } else { members };
        test_support::sample_request(dialect, body.to_string().as_bytes())
    }

    fn chat(delta: &Value) -> String {
        format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]}))
    }

    fn messages(kind: &str, members: &Value) -> String {
        let mut event = json!({"type": kind, "index": 0});
        event.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        format!("event: {kind}\ndata: {event}\n\n")
    }

    /// Returns the start of an endless stream, and the event that the stream repeats.
    fn endless(provider: Dialect, is_tool_call: bool) -> (String, String) {
        let text = "x".repeat(STEP);
        match (provider, is_tool_call) {
            (Dialect::Messages, _) => {
                let start = json!({"message": {"id": "a", "type": "message", "role": "assistant", "content": [],
                    "model": "m", "stop_reason": null, "usage": {"input_tokens": 5, "output_tokens": 1}}});
                let block = json!({"content_block": {"type": "text", "text": ""}});
                let delta = json!({"delta": {"type": "text_delta", "text": text}});
                (
                    messages("message_start", &start) + &messages("content_block_start", &block),
                    messages("content_block_delta", &delta),
                )
            }
            (_, false) => (String::new(), chat(&json!({"content": text}))),
            (_, true) => {
                let call = |function: Value| {
                    chat(&json!({"tool_calls": [{"index": 0, "id": "c", "function": function}]}))
                };
                let start = call(json!({"name": "f", "arguments": "{\"a\":\""}));
                (start, chat(&json!({"tool_calls": [{"index": 0, "function": {"arguments": text}}]})))
            }
        }
    }

    fn target<'t>(provider: Dialect, abilities: &'t OfferCapabilities) -> AttemptTarget<'t> {
        test_support::sample_target(provider, abilities)
    }

    #[test]
    fn an_endless_stream_ends_with_length_at_its_limit_wherever_it_is_split() {
        let abilities = OfferCapabilities::default();
        for client in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
            for (provider, is_tool_call) in
                [(Dialect::Chat, false), (Dialect::Chat, true), (Dialect::Messages, false)]
            {
                let (start, step) = endless(provider, is_tool_call);
                let stream = start + &step.repeat(30);
                let (ask, target) = (ask(client), target(provider, &abilities));
                let pair = crate::find_translator(client, provider).unwrap();
                let mut texts = Vec::new();
                for size in [1, 7, 64, 4_096, stream.len()] {
                    let (mut reply, mut out) =
                        (pair.translate_stream(&ask, &target), OutputBuffer::default());
                    for piece in stream.as_bytes().chunks(size) {
                        reply.push(Bytes::copy_from_slice(piece), &mut out).unwrap();
                    }
                    assert_eq!(reply.progress(), StreamProgress::Ended, "{client:?} {provider:?} {size}");
                    assert!(!reply.awaits_usage() && reply.offer_observation().exceeds_output_limit);
                    assert_eq!(reply.finish_reason(), Some(FinishReason::Length));
                    let usage = reply.usage().unwrap_or_else(|| reply.estimated_usage());
                    assert!(usage.output <= MAX_TOKENS, "{usage:?}");
                    reply.write_end(&usage, b"", &mut out);
                    let text = String::from_utf8(out.0.concat()).unwrap();
                    assert_eq!(reply.delivered_text_bytes(), 3 * 128 + (16 << 10), "{client:?} {provider:?}");
                    texts.push(text.clone());
                    let marker = match client {
                        Dialect::Messages => "\"max_tokens\"",
                        Dialect::Responses => "\"incomplete\"",
                        _ => "\"length\"",
                    };
                    assert!(text.contains(marker), "{client:?} {provider:?}: no {marker}");
                    assert_eq!(
                        text.matches("event: content_block_start").count(),
                        text.matches("event: content_block_stop").count()
                    );
                }
                assert!(texts.iter().all(|text| *text == texts[0]), "{client:?} {provider:?}");
            }
        }
    }

    #[test]
    fn a_plain_answer_is_cut_at_the_limit() {
        let abilities = OfferCapabilities::default();
        let body = json!({"id": "a", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop",
                "message": {"role": "assistant", "content": "é\n".repeat(50_000)}}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 30_000, "total_tokens": 30_005}});
        let pair = crate::find_translator(Dialect::Chat, Dialect::Chat).unwrap();
        let target = target(Dialect::Chat, &abilities);
        let whole =
            pair.translate_buffered(&ask(Dialect::Chat), &target, Bytes::from(body.to_string())).unwrap();
        assert!(whole.observation.exceeds_output_limit);
        let answer: Value = serde_json::from_slice(&whole.body.concat()).unwrap();
        let choice = &answer["choices"][0];
        assert_eq!(choice["finish_reason"], "length");
        let length = choice["message"]["content"].as_str().unwrap().len();
        assert!((16_384..17_000).contains(&length), "{length}");
        let usage = whole.work.unwrap();
        let usage = usage.usage().unwrap();
        assert_eq!((usage.output, usage.source), (MAX_TOKENS, UsageSource::Overstated));
    }

    #[test]
    fn an_answer_within_its_tokens_is_not_cut() {
        let abilities = OfferCapabilities::default();
        // The longest tokens of known vocabularies have 128 bytes.
        let text = " ".repeat(128 * 3);
        let stream = chat(&json!({"content": text}))
            + "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
        let pair = crate::find_translator(Dialect::Chat, Dialect::Chat).unwrap();
        let (ask, target) = (ask(Dialect::Chat), target(Dialect::Chat, &abilities));
        let mut reply = pair.translate_stream(&ask, &target);
        reply.push(Bytes::from(stream), &mut OutputBuffer::default()).unwrap();
        assert!(!reply.offer_observation().exceeds_output_limit);
        assert_eq!(
            (reply.delivered_text_bytes(), reply.finish_reason()),
            (text.len(), Some(FinishReason::Stop))
        );
    }
}
