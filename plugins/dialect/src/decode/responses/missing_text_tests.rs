//! Tests of texts of which the deltas contain only a part, or nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::*;
use crate::decode::DialectDecoder;
use serde_json::{Value, json};

pub(super) type Decoded = Result<Vec<(&'static str, String)>, UpstreamErrorKind>;

/// Returns the texts of a stream by channel; asserts that they are the same wherever the stream is split.
fn decode(events: &[Value]) -> Decoded {
    let created = json!({"type": "response.created", "response": {"status": "in_progress"}});
    decode_all(&[&[created], events].concat())
}

/// Returns the texts of a whole stream as [`decode`] does.
pub(super) fn decode_all(events: &[Value]) -> Decoded {
    let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    let whole = decode_pieces(&[stream.as_bytes()]);
    for cut in 1..stream.len() {
        let (first, rest) = stream.as_bytes().split_at(cut);
        assert_eq!(decode_pieces(&[first, rest]), whole, "{stream} cut at {cut}");
    }
    whole
}

fn decode_pieces(pieces: &[&[u8]]) -> Decoded {
    let (mut decoder, mut events) = (ResponsesDecoder::new(), Vec::new());
    for piece in pieces {
        decoder.push(Bytes::copy_from_slice(piece), &mut events).map_err(|error| error.kind)?;
    }
    decoder.end(&mut events).map_err(|error| error.kind)?;
    assert_eq!(events.last(), Some(&AnswerEvent::End));
    Ok(texts(&events))
}

/// Returns the texts of events by channel.
pub(super) fn texts(events: &[AnswerEvent]) -> Vec<(&'static str, String)> {
    let mut texts: Vec<(&'static str, String)> = Vec::new();
    for event in events {
        let (channel, text) = match event {
            AnswerEvent::Text { text, .. } => ("text", text),
            AnswerEvent::Refusal { text, .. } => ("refusal", text),
            AnswerEvent::Reasoning { text, .. } => ("reasoning", text),
            AnswerEvent::ToolCallStart { name, .. } => ("call", name),
            AnswerEvent::ToolCallArguments { fragment, .. } => ("arguments", fragment),
            _ => continue,
        };
        match texts.last_mut() {
            Some((last, so_far)) if *last == channel && channel != "call" => so_far.push_str(&text.decoded()),
            _ => texts.push((channel, text.decoded().into_owned())),
        }
    }
    texts
}

pub(super) fn item(stage: &str, index: u64, item: &Value) -> Value {
    json!({"type": format!("response.output_item.{stage}"), "output_index": index, "item": item})
}

pub(super) fn call(arguments: &str) -> Value {
    json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments})
}

/// Item with one part of this type.
pub(super) fn with_part(item_type: &str, list: &str, part_type: &str, text: &str) -> Value {
    let member = if part_type == "refusal" { "refusal" } else { "text" };
    json!({"type": item_type, list: [{"type": part_type, member: text}]})
}

pub(super) fn message(text: &str) -> Value {
    with_part("message", "content", "output_text", text)
}

fn event(name: &str, member: &str, text: &str) -> Value {
    json!({"type": format!("response.{name}"), "output_index": 0, member: text})
}

pub(super) fn completed(output: &[Value]) -> Value {
    json!({"type": "response.completed", "response": {"status": "completed", "output": output}})
}

/// Kind of text: item without the text, function that adds the complete text to the item, name of the events, name of
/// the member with the complete text, name of the channel, a prefix of the text, and the complete text.
type Kind = (Value, fn(&str) -> Value, &'static str, &'static str, &'static str, &'static str, &'static str);

fn kinds() -> Vec<Kind> {
    let empty = |name: &str| json!({"type": name, "content": [], "summary": []});
    let (half, whole) = ("Hel", "Hello \u{1F600}");
    vec![
        (empty("message"), message, "output_text", "text", "text", half, whole),
        (
            empty("message"),
            |text| with_part("message", "content", "refusal", text),
            "refusal",
            "refusal",
            "refusal",
            half,
            whole,
        ),
        (
            empty("reasoning"),
            |text| with_part("reasoning", "content", "reasoning_text", text),
            "reasoning_text",
            "text",
            "reasoning",
            half,
            whole,
        ),
        (
            empty("reasoning"),
            |text| with_part("reasoning", "summary", "summary_text", text),
            "reasoning_summary_text",
            "text",
            "reasoning",
            half,
            whole,
        ),
        (
            call(""),
            call,
            "function_call_arguments",
            "arguments",
            "arguments",
            r#"{"x""#,
            "{\"x\": \"\u{1F600}\"}",
        ),
    ]
}

/// Returns the possible endings of a text: the event that ends the text, the part, the item or the response, and
/// combinations of them.
fn ends(whole: fn(&str) -> Value, name: &str, member: &str, text: &str) -> Vec<Vec<Value>> {
    let done = event(&format!("{name}.done"), member, text);
    let item_done = item("done", 0, &whole(text));
    let mut ends = vec![
        vec![done.clone(), completed(&[])],
        vec![item_done.clone(), completed(&[])],
        vec![completed(&[whole(text)])],
        vec![done, item_done, completed(&[whole(text)])],
    ];
    if name != "function_call_arguments" {
        let of = whole(text);
        let list = if name == "reasoning_summary_text" { "summary" } else { "content" };
        let part = if list == "summary" { "reasoning_summary_part" } else { "content_part" };
        let done = json!({"type": format!("response.{part}.done"), "output_index": 0, "part": of[list][0]});
        ends.push(vec![done, completed(&[])]);
    }
    ends
}

fn expected(channel: &'static str, text: &str) -> Decoded {
    let call = (channel == "arguments").then(|| ("call", "f".to_owned()));
    Ok(call.into_iter().chain([(channel, text.to_owned())]).collect())
}

#[test]
fn what_the_deltas_lack_is_taken_from_each_end() {
    for (open, whole_item, name, member, channel, half, whole) in kinds() {
        for end in ends(whole_item, name, member, whole) {
            let delta = event(&format!("{name}.delta"), "delta", half);
            for deltas in [vec![], vec![delta]] {
                let events = [vec![item("added", 0, &open)], deltas, end.clone()].concat();
                assert_eq!(decode(&events), expected(channel, whole), "{events:?}");
            }
        }
    }
}

#[test]
fn an_end_that_contradicts_the_deltas_is_malformed() {
    for (open, whole_item, name, member, channel, half, _) in kinds() {
        for end in ends(whole_item, name, member, if channel == "arguments" { r#"{"y":1}"# } else { "No" }) {
            let delta = event(&format!("{name}.delta"), "delta", half);
            let events = [vec![item("added", 0, &open), delta], end].concat();
            assert_eq!(decode(&events), Err(UpstreamErrorKind::Malformed), "{events:?}");
        }
    }
}

#[test]
fn an_end_that_is_only_written_otherwise_adds_nothing() {
    for (open, whole_item, name, member, channel, value, ending) in [
        (message(""), message as fn(&str) -> Value, "output_text", "text", "text", " Hello\n", "Hello"),
        (message(""), message, "output_text", "text", "text", "Hello", ""),
        (
            call(""),
            call,
            "function_call_arguments",
            "arguments",
            "arguments",
            r#"{"a": "Zürich", "b": [1]}"#,
            r#"{"b":[1],"a":"Z\u00fcrich"}"#,
        ),
    ] {
        for end in ends(whole_item, name, member, ending) {
            let delta = event(&format!("{name}.delta"), "delta", value);
            let events = [vec![item("added", 0, &open), delta], end].concat();
            assert_eq!(decode(&events), expected(channel, value), "{events:?}");
        }
    }
}

#[test]
fn a_text_at_the_beginning_counts_where_nothing_repeats_it() {
    for (_, whole_item, name, _, channel, half, whole) in kinds() {
        let delta = event(&format!("{name}.delta"), "delta", whole);
        for deltas in [vec![], vec![delta]] {
            for end in [vec![completed(&[])], vec![completed(&[whole_item(whole)])]] {
                let events = [vec![item("added", 0, &whole_item(whole))], deltas.clone(), end].concat();
                assert_eq!(decode(&events), expected(channel, whole), "{events:?}");
            }
        }
        // The deltas continue the text.
        let rest = whole.strip_prefix(half).unwrap();
        let delta = event(&format!("{name}.delta"), "delta", rest);
        for end in [vec![completed(&[])], vec![completed(&[whole_item(whole)])]] {
            let events = [vec![item("added", 0, &whole_item(half)), delta.clone()], end].concat();
            assert_eq!(decode(&events), expected(channel, whole), "{events:?}");
        }
    }
    let part = json!({"type": "response.content_part.added", "output_index": 0, "content_index": 0,
        "part": {"type": "output_text", "text": "Hello"}});
    let events = [item("added", 0, &message("")), part, completed(&[])];
    assert_eq!(decode(&events), expected("text", "Hello"));
    let events = [
        item("added", 0, &call("{}")),
        event("function_call_arguments.delta", "delta", r#"{"x":1}"#),
        completed(&[]),
    ];
    assert_eq!(decode(&events), expected("arguments", r#"{"x":1}"#), "a placeholder is no beginning");
}

#[test]
fn items_that_no_event_announced_are_taken_from_the_response() {
    let events = [
        item("added", 0, &json!({"type": "reasoning"})),
        event("reasoning_text.delta", "delta", "Hm"),
        completed(&[
            with_part("reasoning", "content", "reasoning_text", "Hm."),
            message("Hello"),
            call("{}"),
        ]),
    ];
    let texts =
        |texts: &[(&'static str, &str)]| Ok(texts.iter().map(|(a, b)| (*a, (*b).to_owned())).collect());
    assert_eq!(
        decode(&events),
        texts(&[("reasoning", "Hm."), ("text", "Hello"), ("call", "f"), ("arguments", "{}")])
    );
    // Either all items have the same index, or the index of the call differs from its position in the final response
    // object.
    for index in [0, 3] {
        let events = [
            item("added", 0, &json!({"type": "reasoning"})),
            item("done", 0, &with_part("reasoning", "content", "reasoning_text", "Hm.")),
            item("added", index, &call("")),
            completed(&[with_part("reasoning", "content", "reasoning_text", "Hm."), call(r#"{"x":1}"#)]),
        ];
        let decoded = texts(&[("reasoning", "Hm."), ("call", "f"), ("arguments", r#"{"x":1}"#)]);
        assert_eq!(decode(&events), decoded, "{index}");
    }
}

#[test]
fn an_end_that_is_missing_before_other_text_is_malformed() {
    let second = json!({"type": "response.output_text.delta", "output_index": 1, "delta": "World"});
    let events = [
        item("added", 0, &message("")),
        event("output_text.delta", "delta", "Hel"),
        item("added", 1, &message("")),
        second,
        completed(&[message("Hello"), message("World")]),
    ];
    assert_eq!(decode(&events), Err(UpstreamErrorKind::Malformed));
}

#[test]
fn a_surrogate_pair_that_is_cut_at_the_last_delta_is_completed() {
    let half =
        "data: {\"type\":\"response.output_text.delta\",\"output_index\":0,\"delta\":\"a\\ud83d\"}\n\n";
    let stream = |end: &Value| {
        let open = [json!({"type": "response.created", "response": {}}), item("added", 0, &message(""))];
        let open: String = open.iter().map(|event| format!("data: {event}\n\n")).collect();
        format!("{open}{half}data: {end}\n\n")
    };
    for end in [completed(&[message("a\u{1F600}b")]), completed(&[message("a\u{1F600}")])] {
        let text = end["response"]["output"][0]["content"][0]["text"].as_str().unwrap();
        assert_eq!(decode_pieces(&[stream(&end).as_bytes()]), expected("text", text));
    }
}
