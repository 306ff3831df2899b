//! Tests of rescues after a break at each event and at each byte of the first stream, for clients of every dialect. A
//! second provider repeats the answer, and the client must get each part of it once.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod client_content;
mod engine_streams;
mod provider_streams;

use crate::{conformance, find_translator, test_support};
use bytes::Bytes;
use client_content::{Part, client_parts};
use engine_streams::Engine;
use penstock_core::*;
use penstock_request_validation::{RequestLimits, ResponsesPurpose, validate_responses_request};
use provider_streams::{AnswerShape, provider_events};

/// Client and its display of thinking.
type Client = (Dialect, ThinkingDisplay);

/// Clients, each with its display of thinking, which only messages clients choose.
const CLIENTS: &[Client] = &[
    (Dialect::Chat, ThinkingDisplay::Off),
    (Dialect::Messages, ThinkingDisplay::Off),
    (Dialect::Messages, ThinkingDisplay::Omitted),
    (Dialect::Messages, ThinkingDisplay::Shown),
    (Dialect::Responses, ThinkingDisplay::Off),
];
const PROVIDERS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];

/// Manner in which a stream breaks.
#[derive(Clone, Copy, Debug)]
enum StreamBreak {
    /// End of the connection before the end of the answer.
    End,
    /// Error of the connection.
    Reset,
}

fn request((client, thinking): Client) -> InferenceRequest {
    if client == Dialect::Responses {
        let body = Bytes::from_static(br#"{"model":"m","stream":true,"input":"Hi"}"#);
        return validate_responses_request(body, &RequestLimits::default(), ResponsesPurpose::Generate)
            .unwrap();
    }
    let body = br#"{"model":"m","max_tokens":99,"stream":true,"messages":[{"role":"user","content":"Hi"}]}"#;
    InferenceRequest { thinking, ..test_support::sample_request(client, body) }
}

/// Returns the output for the client if the first stream breaks after `first`, and the second comes in these pieces.
/// Returns `None` if no content was delivered or the answer was complete, so that there is nothing to rescue.
fn rescued_output<'a>(
    client: Client,
    (provider, first, manner): (Dialect, &[u8], StreamBreak),
    (second_provider, pieces): (Dialect, impl IntoIterator<Item = &'a [u8]>),
) -> Option<String> {
    let (ask, abilities) = (request(client), OfferCapabilities::default());
    let target = |provider| test_support::sample_target(provider, &abilities);
    let mut reply = find_translator(client.0, provider).unwrap().translate_stream(&ask, &target(provider));
    let mut out = OutputBuffer::default();
    reply.push(Bytes::copy_from_slice(first), &mut out).unwrap();
    if matches!(manner, StreamBreak::End) && reply.end(&mut out).is_ok() {
        return None;
    }
    if reply.progress() != StreamProgress::Committed {
        return None;
    }
    let context = || format!("{client:?} {provider:?} {manner:?} {}", String::from_utf8_lossy(first));
    assert!(reply.start_rescue(&target(second_provider), RescueMode::StartOver), "{}", context());
    let run = test_support::run_stream(&mut *reply, pieces);
    let out = String::from_utf8([out.0.concat(), run.out].concat()).unwrap();
    assert_eq!(run.fault, None, "{}: {out}", context());
    Some(out)
}

/// Asserts that an output conforms to the dialect, and that the client gets each part of the answer once.
fn assert_complete(client: Client, shape: AnswerShape, out: &str) {
    let checked = conformance::check_stream(client.0, out.as_bytes(), false);
    assert_eq!(checked, Ok(()), "{client:?}: {out}");
    assert_eq!(client_parts(client.0, out), expected_parts(client, shape), "{client:?}: {out}");
}

/// Returns the parts of the answer that the client must get.
fn expected_parts((client, thinking): Client, shape: AnswerShape) -> Vec<Part> {
    let is_off = client == Dialect::Messages && thinking == ThinkingDisplay::Off;
    let is_omitted = client == Dialect::Messages && thinking == ThinkingDisplay::Omitted;
    let parts = shape.parts().iter().filter(|(kind, _)| !(is_off && *kind == "reasoning"));
    let text = |kind: &str, text: &str| if is_omitted && kind == "reasoning" { "" } else { text }.to_owned();
    parts.map(|(kind, content)| ((*kind).to_owned(), text(kind, content))).collect()
}

/// Breaks the first stream after each event, and lets a second provider repeat the answer.
fn check_event_breaks(client: Client, (provider, second_provider): (Dialect, Dialect), shape: AnswerShape) {
    let (events, second) =
        (provider_events(provider, shape), provider_events(second_provider, shape).concat());
    let mut count = 0;
    for cut in 0..=events.len() {
        let first = events[..cut].concat();
        for manner in [StreamBreak::End, StreamBreak::Reset] {
            let run = |size| {
                let first = (provider, first.as_bytes(), manner);
                rescued_output(client, first, (second_provider, second.as_bytes().chunks(size)))
            };
            let Some(out) = run(second.len()) else { continue };
            assert_complete(client, shape, &out);
            assert_eq!(run(1), Some(out), "{client:?} {provider:?} {second_provider:?} {cut}");
            count += 1;
        }
    }
    assert!(count >= 8, "{client:?} {provider:?} {second_provider:?}: {count}");
}

#[test]
fn an_answer_arrives_once_after_a_break_at_each_event() {
    for &client in CLIENTS {
        for shape in AnswerShape::ALL {
            for provider in PROVIDERS {
                PROVIDERS.iter().for_each(|second| check_event_breaks(client, (provider, *second), shape));
            }
        }
    }
}

#[test]
fn an_answer_arrives_once_after_two_breaks() {
    let shape = AnswerShape::Interleaved;
    let abilities = OfferCapabilities::default();
    for &client in CLIENTS {
        let ask = request(client);
        for provider in PROVIDERS {
            let events = provider_events(provider, shape);
            let target = test_support::sample_target(provider, &abilities);
            let translator = find_translator(client.0, provider).unwrap();
            let mut count = 0;
            for (first, second) in
                (0..events.len()).flat_map(|one| (0..events.len()).map(move |two| (one, two)))
            {
                let (mut reply, mut out) =
                    (translator.translate_stream(&ask, &target), OutputBuffer::default());
                reply.push(Bytes::from(events[..first].concat()), &mut out).unwrap();
                if reply.progress() != StreamProgress::Committed {
                    continue;
                }
                assert!(reply.start_rescue(&target, RescueMode::StartOver));
                reply.push(Bytes::from(events[..second].concat()), &mut out).unwrap();
                if reply.progress() != StreamProgress::Committed {
                    continue;
                }
                assert!(reply.start_rescue(&target, RescueMode::StartOver));
                let run = test_support::run_stream(&mut *reply, [events.concat().as_bytes()]);
                let out = String::from_utf8([out.0.concat(), run.out].concat()).unwrap();
                assert_eq!(run.fault, None, "{client:?} {provider:?} {first} {second}: {out}");
                assert_complete(client, shape, &out);
                count += 1;
            }
            assert!(count > 30, "{client:?} {provider:?}: {count}");
        }
    }
}

#[test]
fn an_answer_arrives_once_after_a_break_at_each_byte() {
    for &client in CLIENTS {
        for provider in PROVIDERS {
            let shape = AnswerShape::Calls;
            let stream = provider_events(provider, shape).concat();
            let (mut count, mut checked) = (0, String::new());
            for cut in 0..stream.len() {
                let first = (provider, &stream.as_bytes()[..cut], StreamBreak::End);
                let Some(out) = rescued_output(client, first, (provider, [stream.as_bytes()])) else {
                    continue;
                };
                count += 1;
                // Most breaks inside one event have the same output.
                if out != checked {
                    assert_complete(client, shape, &out);
                    checked = out;
                }
            }
            assert!(count > 300, "{client:?} {provider:?}: {count}");
        }
    }
}

#[test]
fn a_rescued_answer_is_the_same_at_each_split_of_the_second_stream() {
    for &client in CLIENTS {
        for provider in PROVIDERS {
            let events = provider_events(provider, AnswerShape::Text);
            let stream = events.concat();
            let first = events[..events.len() / 2].concat();
            let run = |cut: usize| {
                let (one, other) = stream.as_bytes().split_at(cut);
                let first = (provider, first.as_bytes(), StreamBreak::Reset);
                rescued_output(client, first, (provider, [one, other])).unwrap()
            };
            let whole = run(stream.len());
            assert_complete(client, AnswerShape::Text, &whole);
            for cut in 0..stream.len() {
                assert_eq!(run(cut), whole, "{client:?} {provider:?} {cut}");
            }
        }
    }
}

#[test]
fn an_answer_of_each_engine_arrives_once() {
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(Dialect::Responses, &abilities);
    for &client in CLIENTS {
        let ask = request(client);
        let translator = find_translator(client.0, Dialect::Responses).unwrap();
        for (engine, shape) in
            Engine::ALL.into_iter().flat_map(|engine| AnswerShape::ALL.map(|shape| (engine, shape)))
        {
            let stream = engine.events(shape).concat();
            let new = || translator.translate_stream(&ask, &target);
            let run = test_support::run_all_splits(&new, stream.as_bytes());
            let out = String::from_utf8(run.out).unwrap();
            assert_eq!(run.fault, None, "{engine:?} {stream}: {out}");
            assert_complete(client, shape, &out);
        }
    }
}

#[test]
fn an_answer_of_each_engine_arrives_once_after_a_break_at_each_event() {
    for &client in CLIENTS {
        for (engine, shape) in
            Engine::ALL.into_iter().flat_map(|engine| AnswerShape::ALL.map(|shape| (engine, shape)))
        {
            let events = engine.events(shape);
            let mut count = 0;
            let chat = provider_events(Dialect::Chat, shape);
            for cut in 0..events.len() {
                let first = events[..cut].concat();
                for (second, pieces) in [(Dialect::Chat, &chat), (Dialect::Responses, &events)] {
                    let first = (Dialect::Responses, first.as_bytes(), StreamBreak::Reset);
                    let pieces = pieces.iter().map(String::as_bytes);
                    let Some(out) = rescued_output(client, first, (second, pieces)) else { continue };
                    assert_complete(client, shape, &out);
                    count += 1;
                }
            }
            assert!(count >= 4, "{client:?} {engine:?}: {count}");
        }
    }
}

#[test]
fn omitted_reasoning_of_a_continuation_does_not_divide_the_text() {
    let client = (Dialect::Messages, ThinkingDisplay::Omitted);
    let (ask, abilities) = (request(client), OfferCapabilities::default());
    for (provider, second_provider) in PROVIDERS.iter().flat_map(|one| PROVIDERS.map(|two| (*one, two))) {
        let events = provider_events(provider, AnswerShape::Text);
        let second = [("Hel", "lo. "), ("lo.", "More."), ("Hello.", "lo. More.")]
            .iter()
            .fold(provider_events(second_provider, AnswerShape::Text).concat(), |stream, (old, new)| {
                stream.replace(&format!("\"{old}\""), &format!("\"{new}\""))
            });
        let run = |size: usize| {
            let target = |provider| test_support::sample_target(provider, &abilities);
            let translator = find_translator(client.0, provider).unwrap();
            let mut reply = translator.translate_stream(&ask, &target(provider));
            let mut out = OutputBuffer::default();
            let end = events.iter().position(|event| event.contains("\"Hel\"")).unwrap();
            reply.push(Bytes::from(events[..=end].concat()), &mut out).unwrap();
            assert!(reply.start_rescue(&target(second_provider), RescueMode::Continue));
            let run = test_support::run_stream(&mut *reply, second.as_bytes().chunks(size));
            String::from_utf8([out.0.concat(), run.out].concat()).unwrap()
        };
        let out = run(second.len());
        assert_eq!(conformance::check_messages_stream(out.as_bytes()), Ok(()), "{out}");
        let expected = [("reasoning", ""), ("text", "Hello. More.")];
        let expected = expected.map(|(kind, text)| (kind.to_owned(), text.to_owned()));
        assert_eq!(client_parts(client.0, &out), expected, "{provider:?} {second_provider:?}");
        for size in [1, 7] {
            assert_eq!(run(size), out);
        }
    }
}
