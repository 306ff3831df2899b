//! Amount of output that one provider generated. It gives bounds for the usage that the provider may report.

use crate::echo::{BytesPerTokenId, EchoMeter};
use crate::event::AnswerEvent;
use penstock_core::{InferenceRequest, UsageBounds};

/// Amount of output that one provider generated: bytes of text, bytes of sealed reasoning, and tool calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct GeneratedOutput {
    bytes: usize,
    /// Bytes of reasoning that only the provider can read.
    sealed_bytes: usize,
    tool_calls: usize,
    echo: EchoMeter,
}

impl GeneratedOutput {
    /// Creates an empty amount at the start of an answer.
    pub(crate) fn new(ask: &InferenceRequest) -> Self {
        Self { echo: EchoMeter::new(ask, BytesPerTokenId::Least), ..Self::default() }
    }

    /// Adds the output of one event.
    pub(crate) fn add_event(&mut self, event: &AnswerEvent) {
        self.echo.add_event(event);
        self.bytes += event.generated_bytes();
        self.sealed_bytes = self.sealed_bytes.saturating_add(event.sealed_bytes());
        self.tool_calls += usize::from(matches!(event, AnswerEvent::ToolCallStart { .. }));
    }

    /// Returns the number of bytes of generated text (reasoning, text, refusals, tool names and arguments), including
    /// an echo of the prompt.
    pub(crate) const fn generated_bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of bytes of generated text without an echo of the prompt.
    pub(crate) fn bytes_without_echo(&self) -> usize {
        self.bytes - self.echo.echoed_bytes()
    }

    /// Returns the usage bounds of the request together with the bounds that follow from the output. `choice_count` is
    /// the number of choices.
    pub(crate) fn usage_bounds(&self, bounds: &UsageBounds, choice_count: usize) -> UsageBounds {
        let bytes = self.bytes_without_echo();
        let delivered = bytes.saturating_add(self.sealed_bytes);
        UsageBounds {
            max_delivered: UsageBounds::max_delivered_tokens(choice_count, delivered, self.tool_calls),
            least_output: UsageBounds::min_tokens(bytes),
            ..*bounds
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::test_support;
    use bytes::Bytes;
    use penstock_core::{Dialect, OfferCapabilities, OutputBuffer, TokenUsage, UsageSource};
    use serde_json::{Value, json};

    /// Returns an answer of 10 tokens of text and 900 tokens of reasoning, of which the provider sends only encrypted
    /// bytes: its buffered body, and the events of its stream.
    fn sealed_answer(provider: Dialect) -> (Value, Vec<Value>) {
        let sealed = "Q".repeat(4_000);
        if provider == Dialect::Responses {
            let item = json!({"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": sealed});
            let text = json!({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "One two three.", "annotations": []}]});
            let usage = json!({"input_tokens": 10, "output_tokens": 910, "total_tokens": 920,
                "output_tokens_details": {"reasoning_tokens": 900}});
            let response = |status: &str, output: Value| {
                json!({"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": status,
                    "output": output, "usage": usage})
            };
            let whole = response("completed", json!([item, text]));
            let event = |kind: &str, index: u64, item: &Value| json!({"type": kind, "output_index": index, "item": item});
            let events = vec![
                json!({"type": "response.created", "response": response("in_progress", json!([]))}),
                event("response.output_item.done", 0, &item),
                event("response.output_item.done", 1, &text),
                json!({"type": "response.completed", "response": whole}),
            ];
            return (whole, events);
        }
        let usage = json!({"input_tokens": 10, "output_tokens": 910});
        let thought = json!({"type": "redacted_thinking", "data": sealed});
        let text = json!({"type": "text", "text": "One two three."});
        let message = |content: Value, reason: Value| {
            json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content,
                "stop_reason": reason, "stop_sequence": null, "usage": usage})
        };
        let events = vec![
            json!({"type": "message_start", "message": message(json!([]), Value::Null)}),
            json!({"type": "content_block_start", "index": 0, "content_block": thought}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "content_block_start", "index": 1, "content_block": text}),
            json!({"type": "content_block_stop", "index": 1}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}),
            json!({"type": "message_stop"}),
        ];
        (message(json!([thought, text]), json!("end_turn")), events)
    }

    fn assert_reported(usage: &TokenUsage, what: &str) {
        assert_eq!((usage.input, usage.output, usage.source), (10, 910, UsageSource::Provider), "{what}");
    }

    #[test]
    fn reported_reasoning_is_plausible_if_its_encrypted_bytes_were_sent() {
        let abilities = OfferCapabilities::default();
        for client in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
            for provider in [Dialect::Responses, Dialect::Messages] {
                let body = json!({"model": "m", "stream": true, "max_tokens": 1_000, "input": "Hello there",
                    "messages": [{"role": "user", "content": "Hello there"}]});
                let ask = test_support::sample_request(client, body.to_string().as_bytes());
                let target = test_support::sample_target(provider, &abilities);
                let pair = crate::find_translator(client, provider).unwrap();
                let (whole, events) = sealed_answer(provider);
                let answer = pair.translate_buffered(&ask, &target, Bytes::from(whole.to_string())).unwrap();
                let what = format!("{client:?} {provider:?}");
                assert_reported(answer.work.unwrap().usage().unwrap(), &what);
                let name = |event: &Value| event["type"].as_str().unwrap().to_owned();
                let stream: String =
                    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", name(event))).collect();
                for size in [1, 7, stream.len()] {
                    let mut reply = pair.translate_stream(&ask, &target);
                    let mut out = OutputBuffer::default();
                    for piece in stream.as_bytes().chunks(size) {
                        reply.push(Bytes::copy_from_slice(piece), &mut out).unwrap();
                    }
                    reply.end(&mut out).unwrap();
                    assert_reported(&reply.usage().unwrap(), &what);
                    assert!(!String::from_utf8(out.0.concat()).unwrap().contains("QQ") || client == provider);
                }
            }
        }
    }
}
