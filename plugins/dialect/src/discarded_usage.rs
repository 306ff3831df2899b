//! Usage of a buffered answer that cannot be delivered. Its energy counts, although nobody pays for it.

use crate::event::AnswerEvent;
use crate::generated_output::GeneratedOutput;
use penstock_core::{AttemptTarget, InferenceRequest, ReportedUsage, UpstreamError};

/// Adds the usage of the decoded `events` to the error that makes the rest of their answer unreadable: as reported
/// within its bounds, or else counted. An answer without events has no usage.
pub(crate) fn with_discarded_usage(
    fault: UpstreamError,
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    events: &[AnswerEvent],
) -> UpstreamError {
    if events.is_empty() {
        return fault;
    }
    let (mut sent, mut stated) = (GeneratedOutput::new(ask), ReportedUsage::default());
    for event in events {
        sent.add_event(event);
        if let AnswerEvent::Usage(reported) | AnswerEvent::InterimUsage(reported) = event {
            stated = stated.updated_by(*reported);
        }
    }
    let choices = usize::try_from(ask.n).unwrap_or(usize::MAX);
    let bounds = sent.usage_bounds(&ask.usage_bounds(target), choices);
    let counted = ask.estimate_unreported_usage(sent.bytes_without_echo());
    UpstreamError { discarded_usage: Some(Box::new(stated.to_plausible_usage(&bounds, &counted))), ..fault }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    #![allow(clippy::unwrap_used)]
    use crate::{find_translator, test_support};
    use bytes::Bytes;
    use penstock_core::{Dialect, OfferCapabilities, UpstreamError, UpstreamErrorKind, UsageSource};
    use serde_json::{Value, json};

    const CLIENTS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];

    fn refused(client: Dialect, provider: Dialect, n: u64, answer: &str) -> UpstreamError {
        let body = json!({"model": "m", "n": n, "max_tokens": 5_000, "input": "Hello there",
            "messages": [{"role": "user", "content": "Hello there"}]});
        let ask = test_support::sample_request(client, body.to_string().as_bytes());
        let abilities = OfferCapabilities::default();
        let target = test_support::sample_target(provider, &abilities);
        let pair = find_translator(client, provider).unwrap();
        pair.translate_buffered(&ask, &target, Bytes::from(answer.to_owned())).unwrap_err()
    }

    /// Returns the discarded input and output tokens, and true if the provider reported them.
    fn discarded(fault: &UpstreamError) -> Option<(u64, u64, bool)> {
        let usage = fault.discarded_usage.as_deref()?;
        Some((usage.input, usage.output, usage.source == UsageSource::Provider))
    }

    fn completion(choices: &Value, usage: Value) -> String {
        let mut answer = json!({"id": "c", "object": "chat.completion", "created": 1, "model": "t",
            "choices": choices});
        if !usage.is_null() {
            answer["usage"] = usage;
        }
        answer.to_string()
    }

    #[test]
    fn an_answer_with_fewer_choices_keeps_its_usage() {
        let text = "word ".repeat(500);
        let one =
            json!([{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]);
        let usage = json!({"prompt_tokens": 12, "completion_tokens": 1000});
        let fault = refused(Dialect::Chat, Dialect::Chat, 3, &completion(&one, usage));
        assert_eq!(fault.completed_choices, Some(1));
        assert_eq!(discarded(&fault), Some((12, 1_000, true)));
        let absurd = json!({"prompt_tokens": 12, "completion_tokens": 1_000_000});
        let fault = refused(Dialect::Chat, Dialect::Chat, 3, &completion(&one, absurd));
        assert_eq!(discarded(&fault), Some((12, 625, false)), "2,500 bytes");
        let fault = refused(Dialect::Chat, Dialect::Chat, 3, &completion(&one, Value::Null));
        assert_eq!(discarded(&fault).map(|(_, output, reported)| (output, reported)), Some((625, false)));
    }

    #[test]
    fn an_answer_that_breaks_off_or_cannot_be_written_keeps_its_usage() {
        let message = |message: Value, finish: Value| json!([{"index": 0, "message": message, "finish_reason": finish}]);
        let usage = json!({"prompt_tokens": 12, "completion_tokens": 20});
        let text = "word ".repeat(8);
        let cut = message(json!({"role": "assistant", "content": text}), json!("aborted"));
        let nameless = json!({"role": "assistant", "content": text,
            "tool_calls": [{"id": "t", "type": "function", "function": {"name": "", "arguments": "{}"}}]});
        let nameless = message(nameless, json!("tool_calls"));
        let unrequested = json!([{"index": 4, "message": {"content": text}, "finish_reason": "stop"}]);
        let streamed = format!(
            "data: {}\n\n",
            json!({"choices": [{"index": 0, "delta": {"content": text}}], "usage": usage})
        );
        for client in CLIENTS {
            for (answer, kind) in [
                (completion(&nameless, usage.clone()), UpstreamErrorKind::ModelOutput),
                (completion(&unrequested, usage.clone()), UpstreamErrorKind::Malformed),
                (completion(&cut, usage.clone()), UpstreamErrorKind::InBandError),
                (streamed.clone(), UpstreamErrorKind::Truncated),
            ] {
                let fault = refused(client, Dialect::Chat, 1, &answer);
                assert_eq!(fault.kind, kind, "{client:?} {answer}");
                let (_, output, _) = discarded(&fault).unwrap();
                assert!((10..=20).contains(&output), "{client:?} {kind:?} {output}");
            }
        }
    }

    #[test]
    fn a_body_that_is_no_answer_has_no_usage() {
        for client in CLIENTS {
            for provider in CLIENTS {
                for body in ["", "<html></html>", "{}", "[]", r#"{"error":{"message":"overloaded"}}"#] {
                    let fault = refused(client, provider, 1, body);
                    assert!(
                        discarded(&fault).is_none_or(|(_, output, _)| output == 0),
                        "{provider:?} {body}"
                    );
                }
            }
        }
    }
}
