//! Tests of answers with fewer choices than requested.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::completions::completion_translator;
use crate::{find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;
use test_support::sample_target;

const DONE: &str = "data: [DONE]\n\n";

/// Returns the event of a chunk with this choice, without or with usage.
fn chunk(index: u32, text: &str, finish: &str, usage: &str) -> String {
    format!(
        "data: {{\"choices\":[{{\"index\":{index},\"delta\":{{\"content\":\"{text}\"}},\"text\":\"{text}\",\
         \"finish_reason\":{finish}}}]{usage}}}\n\n"
    )
}

/// Returns the number of complete choices that the answer shows of three requested ones, in a stream split at each byte
/// or as the body of a plain request. The answer is always an error.
fn completed_choices(stream: bool, is_completion: bool, answer: &str) -> Option<u32> {
    let body = format!(r#"{{"model":"m","prompt":"a","messages":[],"n":3,"stream":{stream}}}"#);
    let mut ask = test_support::sample_request(Dialect::Chat, body.as_bytes());
    if is_completion {
        ask.task = InferenceTask::Complete(CompletionTask {
            prompts: vec![Bytes::from_static(b"\"a\"")],
            has_token_ids: false,
            echo: false,
            choices_per_prompt: 3,
            generations_per_prompt: 3,
        });
    }
    let abilities = OfferCapabilities { completions: true, ..OfferCapabilities::default() };
    let target = sample_target(Dialect::Chat, &abilities);
    let translator = if is_completion {
        completion_translator(true)
    } else {
        find_translator(Dialect::Chat, Dialect::Chat).unwrap()
    };
    if !stream {
        let answer = translator.translate_buffered(&ask, &target, Bytes::from(answer.to_owned()));
        return answer.unwrap_err().completed_choices;
    }
    let counts: Vec<_> = (0..=answer.len())
        .map(|split| {
            let mut translation = translator.translate_stream(&ask, &target);
            let mut out = OutputBuffer::default();
            let parts = [&answer[..split], &answer[split..]];
            let pushed =
                parts.map(|part| translation.push(Bytes::from(part.to_owned()), &mut out)).into_iter();
            let fault = pushed.chain([translation.end(&mut out)]).find_map(Result::err).unwrap();
            assert_eq!(fault.kind, UpstreamErrorKind::Truncated);
            fault.completed_choices
        })
        .collect();
    assert!(counts.iter().all(|count| *count == counts[0]), "depends on the boundaries of chunks");
    counts[0]
}

#[test]
fn only_an_answer_that_its_provider_ended_shows_the_number_of_choices() {
    const USAGE: &str = ",\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}";
    let usage = format!("data: {{\"choices\":[]{USAGE}}}\n\n");
    let finish = |index| chunk(index, "", "\"stop\"", "");
    let text = |index| chunk(index, "word", "null", "");
    let first = [text(0), finish(0)].concat();
    let cases = [
        (first.clone(), None),
        ([&first, DONE].concat(), Some(1)),
        ([&*first, &*usage].concat(), Some(1)),
        ([&*first, &*usage, DONE].concat(), Some(1)),
        ([text(0), chunk(0, "", "\"stop\"", USAGE)].concat(), Some(1)),
        ([chunk(0, "word", "null", USAGE), finish(0)].concat(), None),
        ([&*first, &*text(1), &*finish(1)].concat(), None),
        ([&*first, &*text(1), &*finish(1), DONE].concat(), Some(2)),
        ([&*first, &*text(1), DONE].concat(), None),
        ([&*first, ": keepalive\n\n"].concat(), None),
    ];
    for (answer, expected) in &cases {
        for is_completion in [false, true] {
            for stream in [false, true] {
                let count = completed_choices(stream, is_completion, answer);
                assert_eq!(count, *expected, "{stream} {is_completion} {answer}");
            }
        }
    }
    let whole = "{\"choices\":[{\"index\":0,\"message\":{\"content\":\"word\"},\"text\":\"word\",\
                 \"finish_reason\":\"stop\"}]}";
    for is_completion in [false, true] {
        assert_eq!(completed_choices(false, is_completion, whole), Some(1), "{is_completion}");
        assert_eq!(completed_choices(true, is_completion, whole), Some(1), "{is_completion}");
    }
}
