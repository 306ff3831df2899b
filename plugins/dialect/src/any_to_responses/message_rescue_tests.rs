//! Tests of rescues of an answer that consists of several messages: a second provider repeats the delivered messages.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::conformance;
use crate::{find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;
use penstock_request_validation::{RequestLimits, ResponsesPurpose, validate_responses_request};
use serde_json::{Value, json};

/// Item of a response: reasoning, or a message with its phase.
type Item<'a> = (&'a str, &'a str);

const TWO_MESSAGES: [Item<'static>; 2] = [("commentary", "I will look."), ("final_answer", "Done.")];

fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// Returns the stream of a response with these items. Each text comes in two deltas.
fn stream(items: &[Item<'_>]) -> String {
    let mut stream = event(&json!({"type": "response.created", "response": {"status": "in_progress"}}));
    let mut output = Vec::new();
    for (index, (phase, text)) in items.iter().enumerate() {
        let (mut item, delta, part) = match *phase {
            "reasoning" => (
                json!({"type": "reasoning", "summary": []}),
                "reasoning_text",
                json!({"type": "reasoning_text"}),
            ),
            phase => {
                let phase = if phase.is_empty() { Value::Null } else { json!(phase) };
                (json!({"type": "message", "phase": phase}), "output_text", json!({"type": "output_text"}))
            }
        };
        item["content"] = json!([]);
        stream += &event(&json!({"type": "response.output_item.added", "output_index": index, "item": item}));
        for text in [&text[..1], &text[1..]] {
            stream += &event(&json!({"type": format!("response.{delta}.delta"), "output_index": index,
                "content_index": 0, "delta": text}));
        }
        item["content"] = json!([part]);
        item["content"][0]["text"] = json!(text);
        stream += &event(&json!({"type": "response.output_item.done", "output_index": index, "item": item}));
        output.push(item);
    }
    let response = json!({"object": "response", "status": "completed", "output": output});
    stream + &event(&json!({"type": "response.completed", "response": response}))
}

/// Returns the stream of [`stream`] up to and including the first delta or item with this text.
fn broken_stream(items: &[Item<'_>], last: &str) -> String {
    let stream = stream(items);
    let at = stream.find(&format!(r#""delta":"{last}""#)).unwrap();
    let end = at + stream[at..].find("\n\n").unwrap() + 2;
    stream[..end].to_owned()
}

fn chat_stream(text: &str) -> String {
    let chunk = |delta: Value, finish: Value| {
        event(&json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}))
    };
    chunk(json!({"content": text}), Value::Null) + &chunk(json!({}), json!("stop")) + "data: [DONE]\n\n"
}

/// Returns the translation of the stream of a responses provider, and an empty output.
fn new_translation(client: Dialect) -> (Box<dyn StreamTranslation>, OutputBuffer) {
    let abilities = OfferCapabilities::default();
    let ask = match client {
        Dialect::Responses => {
            let body = Bytes::from_static(br#"{"model":"m","stream":true,"input":"Hi"}"#);
            validate_responses_request(body, &RequestLimits::default(), ResponsesPurpose::Generate).unwrap()
        }
        _ => {
            let body =
                br#"{"model":"m","max_tokens":99,"stream":true,"messages":[{"role":"user","content":"Hi"}]}"#;
            test_support::sample_request(client, body)
        }
    };
    let target = test_support::sample_target(Dialect::Responses, &abilities);
    let reply = find_translator(client, Dialect::Responses).unwrap().translate_stream(&ask, &target);
    (reply, OutputBuffer::default())
}

/// Starts the answer with the stream of a responses provider, which breaks off. Returns the translation and its output;
/// `None` if no content was delivered, so that there is nothing to rescue.
fn start(client: Dialect, first: &str) -> Option<(Box<dyn StreamTranslation>, OutputBuffer)> {
    let (mut reply, mut out) = new_translation(client);
    reply.push(Bytes::copy_from_slice(first.as_bytes()), &mut out).unwrap();
    (reply.progress() > StreamProgress::Pending).then_some((reply, out))
}

/// Lets a second provider start the answer over, whose stream comes in these pieces. Returns the fault and the output.
fn start_over<'a>(
    (mut reply, out): (Box<dyn StreamTranslation>, OutputBuffer),
    provider: Dialect,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Option<UpstreamErrorKind>, String) {
    assert!(start_rescue(&mut *reply, provider, RescueMode::StartOver));
    run_rescue((reply, out), pieces)
}

fn start_rescue(reply: &mut dyn StreamTranslation, provider: Dialect, how: RescueMode) -> bool {
    let abilities = OfferCapabilities::default();
    reply.start_rescue(&test_support::sample_target(provider, &abilities), how)
}

/// Pushes the stream of the second provider in these pieces. Returns the fault and the output.
fn run_rescue<'a>(
    (mut reply, out): (Box<dyn StreamTranslation>, OutputBuffer),
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Option<UpstreamErrorKind>, String) {
    let run = test_support::run_stream(&mut *reply, pieces);
    (run.fault, String::from_utf8([out.0.concat(), run.out].concat()).unwrap())
}

/// Rescues an answer of a responses client. Returns the items of the response, or the fault.
fn rescued_items(
    first: &str,
    provider: Dialect,
    second: &str,
) -> Result<Vec<(String, String)>, UpstreamErrorKind> {
    let runs: Vec<_> = [1, 7, second.len()]
        .into_iter()
        .map(|size| {
            let started = start(Dialect::Responses, first).unwrap();
            start_over(started, provider, second.as_bytes().chunks(size))
        })
        .collect();
    assert!(runs.iter().all(|run| *run == runs[0]), "depends on the boundaries of pieces");
    let (fault, out) = &runs[0];
    fault.map_or_else(|| Ok(items(out)), Err)
}

/// Returns type or phase and text of each item in the last event of a stream for a responses client.
fn items(out: &str) -> Vec<(String, String)> {
    assert_eq!(conformance::check_responses_stream(out.as_bytes()), Ok(()), "{out}");
    let last = out.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    let name =
        |item: &Value| item["phase"].as_str().unwrap_or_else(|| item["type"].as_str().unwrap()).to_owned();
    let text = |item: &Value| {
        let parts = [&item["content"], &item["summary"]].into_iter().filter_map(Value::as_array).flatten();
        parts.map(|part| part["text"].as_str().unwrap()).collect()
    };
    last["response"]["output"].as_array().unwrap().iter().map(|item| (name(item), text(item))).collect()
}

fn expected(items: &[Item<'_>]) -> Result<Vec<(String, String)>, UpstreamErrorKind> {
    Ok(items.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect())
}

/// Returns the text of a stream for a chat or messages client.
fn streamed_text(client: Dialect, out: &str) -> String {
    let events =
        out.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    let text = |event: Value| match client {
        Dialect::Chat => event["choices"][0]["delta"]["content"].as_str().map(str::to_owned),
        _ => event["delta"]["text"].as_str().map(str::to_owned),
    };
    events.filter_map(text).collect()
}

#[test]
fn a_repeated_answer_keeps_its_messages_wherever_the_first_one_broke_off() {
    let stream = stream(&TWO_MESSAGES);
    let end = stream.find("response.completed").unwrap();
    for client in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
        let mut count = 0;
        for cut in 0..end {
            for size in [1, 7, stream.len()] {
                let Some(started) = start(client, &stream[..cut]) else { continue };
                let (fault, out) = start_over(started, Dialect::Responses, stream.as_bytes().chunks(size));
                assert_eq!(fault, None, "{client:?} {cut}: {out}");
                match client {
                    Dialect::Responses => assert_eq!(Ok(items(&out)), expected(&TWO_MESSAGES), "{cut}"),
                    _ => assert_eq!(streamed_text(client, &out), "I will look.\n\nDone.", "{client:?} {cut}"),
                }
                count += 1;
            }
        }
        assert!(count > 100, "{client:?}: {count}");
    }
}

#[test]
fn a_message_after_the_repeated_one_begins_wherever_the_stream_is_cut() {
    let (first, second) = (broken_stream(&TWO_MESSAGES, " will look."), stream(&TWO_MESSAGES));
    for cut in 0..=second.len() {
        let started = start(Dialect::Responses, &first).unwrap();
        let (one, other) = second.as_bytes().split_at(cut);
        let (fault, out) = start_over(started, Dialect::Responses, [one, other]);
        assert_eq!((fault, Ok(items(&out))), (None, expected(&TWO_MESSAGES)), "{cut}");
    }
}

#[test]
fn messages_after_repeated_reasoning_keep_their_phases() {
    let all = [("reasoning", "Hm, well."), TWO_MESSAGES[0], TWO_MESSAGES[1]];
    for last in ["H", "m, well."] {
        let first = broken_stream(&all, last).replace("m, well.", if last == "H" { "" } else { "m, " });
        assert_eq!(rescued_items(&first, Dialect::Responses, &stream(&all)), expected(&all), "{last}");
    }
}

#[test]
fn messages_keep_their_phases_if_the_output_was_started_without_any() {
    let second = stream(&TWO_MESSAGES);
    for size in [1, 7, second.len()] {
        let (mut reply, mut out) = new_translation(Dialect::Responses);
        reply.write_start(&mut out);
        let rescued = start_over((reply, out), Dialect::Responses, second.as_bytes().chunks(size));
        assert_eq!((rescued.0, Ok(items(&rescued.1))), (None, expected(&TWO_MESSAGES)), "{size}");
    }
}

#[test]
fn an_answer_with_other_boundaries_between_its_messages_has_diverged() {
    let joined = [("commentary", "I will look.Done."), ("final_answer", "More.")];
    let split = [TWO_MESSAGES[0], TWO_MESSAGES[1], ("final_answer", "More.")];
    let moved = [("commentary", "I will look.D"), ("final_answer", "one."), ("final_answer", "More.")];
    let joined_stream = broken_stream(&joined, " will look.Done.");
    let split_stream = broken_stream(&split, "one.");
    for (first, second) in [
        (&joined_stream, &split[..]),
        (&split_stream, &joined),
        (&split_stream, &moved),
        (&joined_stream, &moved),
    ] {
        let rescued = rescued_items(first, Dialect::Responses, &stream(second));
        assert_eq!(rescued, Err(UpstreamErrorKind::Diverged), "{second:?}");
    }
    assert_eq!(rescued_items(&split_stream, Dialect::Responses, &stream(&split)), expected(&split));
    assert_eq!(rescued_items(&joined_stream, Dialect::Responses, &stream(&joined)), expected(&joined));
}

#[test]
fn a_message_that_the_first_provider_only_announced_is_not_begun_by_other_text() {
    // The text of the announced message is empty: the event has only log probabilities, which were not requested.
    let announced = r#"data: {"type":"response.output_item.added","output_index":1,"item":{"type":"message","phase":"final_answer","content":[]}}

data: {"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"","logprobs":[{"token":"","logprob":-1,"bytes":[]}]}

"#;
    let first = broken_stream(&TWO_MESSAGES, " will look.") + announced;
    let longer = [("commentary", "I will look. Soon.")];
    assert_eq!(rescued_items(&first, Dialect::Responses, &stream(&longer)), expected(&longer));
    let rescued = rescued_items(&first, Dialect::Chat, &chat_stream("I will look. Soon."));
    assert_eq!(rescued, expected(&longer));
    assert_eq!(rescued_items(&first, Dialect::Responses, &stream(&TWO_MESSAGES)), expected(&TWO_MESSAGES));
}

#[test]
fn a_provider_without_messages_continues_the_delivered_one() {
    let first = broken_stream(&TWO_MESSAGES, " will look.");
    let rescued = rescued_items(&first, Dialect::Chat, &chat_stream("I will look. Soon."));
    assert_eq!(rescued, expected(&[("commentary", "I will look. Soon.")]));
}

#[test]
fn a_provider_without_messages_is_not_asked_to_repeat_two_messages() {
    let second = stream(&TWO_MESSAGES);
    for last in ["D", "one."] {
        let first = broken_stream(&TWO_MESSAGES, last);
        for cut in 0..=second.len() {
            let (mut reply, out) = start(Dialect::Responses, &first).unwrap();
            for provider in [Dialect::Chat, Dialect::Messages] {
                assert!(!start_rescue(&mut *reply, provider, RescueMode::StartOver), "{provider:?} {last}");
            }
            // The next candidate has messages, and rescues the answer.
            let (one, other) = second.as_bytes().split_at(cut);
            let (fault, out) = start_over((reply, out), Dialect::Responses, [one, other]);
            assert_eq!((fault, Ok(items(&out))), (None, expected(&TWO_MESSAGES)), "{last} {cut}");
        }
    }
    // For these clients, the messages are one text with a blank line, which any provider can repeat.
    for client in [Dialect::Chat, Dialect::Messages] {
        let started = start(client, &broken_stream(&TWO_MESSAGES, "D")).unwrap();
        let second = chat_stream("I will look.\n\nDone.");
        let (fault, out) = start_over(started, Dialect::Chat, second.as_bytes().chunks(7));
        assert_eq!((fault, &*streamed_text(client, &out)), (None, "I will look.\n\nDone."), "{client:?}");
    }
}

#[test]
fn a_provider_without_messages_continues_the_second_of_two() {
    let first = broken_stream(&TWO_MESSAGES, "one.");
    let longer = [TWO_MESSAGES[0], ("final_answer", "Done. Really.")];
    // The second provider continues the text, or repeats all of it first.
    for text in [" Really.", "I will look.\n\nDone. Really."] {
        let second = chat_stream(text);
        for cut in 0..=second.len() {
            let (mut reply, out) = start(Dialect::Responses, &first).unwrap();
            assert_eq!(reply.delivered_text().as_deref(), Some("I will look.\n\nDone."));
            assert!(start_rescue(&mut *reply, Dialect::Chat, RescueMode::Continue));
            let (one, other) = second.as_bytes().split_at(cut);
            let (fault, out) = run_rescue((reply, out), [one, other]);
            assert_eq!((fault, Ok(items(&out))), (None, expected(&longer)), "{text} {cut}");
        }
    }
}

#[test]
fn only_text_can_be_continued_and_several_messages_are_joined() {
    let delivered = |items: &[Item<'_>], last| {
        let (mut reply, _) = start(Dialect::Responses, &broken_stream(items, last)).unwrap();
        let delivered = reply.delivered_text();
        assert_eq!(start_rescue(&mut *reply, Dialect::Chat, RescueMode::Continue), delivered.is_some());
        delivered
    };
    assert_eq!(delivered(&TWO_MESSAGES, " will look.").as_deref(), Some("I will look."));
    assert_eq!(delivered(&TWO_MESSAGES, "D").as_deref(), Some("I will look.\n\nD"));
    let three = [TWO_MESSAGES[0], ("", "\"B\"\n"), ("final_answer", "More.")];
    assert_eq!(delivered(&three, "ore.").as_deref(), Some("I will look.\n\n\"B\"\n\n\nMore."));
    let separated = [TWO_MESSAGES[0], ("reasoning", "Hm."), TWO_MESSAGES[1]];
    assert_eq!(delivered(&separated, "one."), None);
}
