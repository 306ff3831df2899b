//! Tests of indexes, ids and events that engines state in other ways than the specification.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::missing_text_tests::{Decoded, call, completed, decode_all, item, message, texts, with_part};
use super::*;
use crate::decode::DialectDecoder;
use serde_json::{Value, json};

const MALFORMED: Decoded = Err(UpstreamErrorKind::Malformed);

fn expected(texts: &[(&'static str, &str)]) -> Decoded {
    Ok(texts.iter().map(|(channel, text)| (*channel, (*text).to_owned())).collect())
}

fn created() -> Value {
    json!({"type": "response.created", "response": {"status": "in_progress"}})
}

/// Returns an event about a part; negative indexes are left out.
fn part_event(name: &str, (output, content): (i64, i64), member: &str, value: &Value) -> Value {
    let mut event = json!({"type": format!("response.{name}"), member: value});
    for (name, index) in [("output_index", output), ("content_index", content)] {
        if index >= 0 {
            event[name] = json!(index);
        }
    }
    event
}

fn delta(at: (i64, i64), text: &str) -> Value {
    part_event("output_text.delta", at, "delta", &json!(text))
}

fn text_done(at: (i64, i64), text: &str) -> Value {
    part_event("output_text.done", at, "text", &json!(text))
}

fn part(stage: &str, at: (i64, i64), text: &str) -> Value {
    part_event(&format!("content_part.{stage}"), at, "part", &json!({"type": "output_text", "text": text}))
}

fn parts(texts: &[&str]) -> Value {
    let parts: Vec<Value> = texts.iter().map(|text| json!({"type": "output_text", "text": text})).collect();
    json!({"type": "message", "content": parts})
}

fn with(mut event: Value, name: &str, value: &str) -> Value {
    event[name] = json!(value);
    event
}

/// Asserts the texts of a stream, and that the buffered form of its last response has the same ones.
fn assert_texts(events: &[Value], texts_of_answer: &[(&'static str, &str)]) {
    assert_eq!(decode_all(events), expected(texts_of_answer), "{events:?}");
    let mut response = events.last().unwrap()["response"].clone();
    if response["output"] == json!([]) {
        return;
    }
    response["object"] = json!("response");
    let mut buffered = Vec::new();
    decode_response(Bytes::from(response.to_string()), &mut buffered).unwrap();
    assert_eq!(Ok(texts(&buffered)), expected(texts_of_answer), "{response}");
}

#[test]
fn a_single_text_is_sent_once_whatever_its_indexes() {
    let added = item("added", 0, &parts(&[]));
    for first in [0, 1, 7] {
        for step in [0, 1] {
            let mut indexes = (0..).map(|number| (0, first + step * number));
            let mut next = || indexes.next().unwrap();
            let deltas = [delta(next(), "Hello"), delta(next(), " big"), delta(next(), " W")];
            let done = [text_done(next(), "Hello big W"), part("done", next(), "Hello big W")];
            let end = [item("done", 0, &message("Hello big W")), completed(&[message("Hello big W")])];
            for (from, until) in [(0, 2), (0, 0), (1, 1), (2, 2), (1, 2)] {
                for end in [&end[..], &end[1..]] {
                    let events =
                        [&[created(), added.clone(), part("added", (0, 0), "")], &deltas[..]].concat();
                    let events = [&events[..], &done[from..until], end].concat();
                    assert_texts(&events, &[("text", "Hello big W")]);
                }
            }
        }
    }
}

#[test]
fn a_missing_end_is_taken_whatever_the_indexes() {
    let start = [created(), item("added", 0, &parts(&[])), delta((0, 1), "Hel"), delta((0, 2), "lo")];
    let end = completed(&[message("Hello W")]);
    for middle in [
        vec![],
        vec![text_done((0, 3), "Hello W")],
        vec![text_done((0, 0), "Hello W")],
        vec![text_done((0, -1), "Hello W"), part("done", (0, 5), "Hello W")],
        vec![part("done", (0, 3), "Hello W")],
        vec![text_done((0, 3), "Hello"), item("done", 0, &message("Hello W"))],
    ] {
        assert_texts(&[&start[..], &middle, std::slice::from_ref(&end)].concat(), &[("text", "Hello W")]);
    }
    for middle in [
        vec![text_done((0, 3), "Help")],
        vec![text_done((1, 0), "Help")],
        vec![part("done", (0, 3), "Help")],
        vec![item("done", 0, &message("Help"))],
        vec![item("done", 0, &parts(&["Help", "Hello"]))],
    ] {
        assert_eq!(decode_all(&[&start[..], &middle].concat()), MALFORMED, "{middle:?}");
    }
    assert_eq!(decode_all(&[&start[..], &[completed(&[message("Help")])]].concat()), MALFORMED);
}

#[test]
fn several_parts_are_each_sent_once() {
    let end = |texts: &[&str]| [item("done", 0, &parts(texts)), completed(&[parts(texts)])];
    let added = |index| part("added", (0, index), "");
    for (middle, texts, answer) in [
        (vec![delta((0, 0), "A"), delta((0, 1), "B")], vec!["A", "B"], "AB"),
        (vec![delta((0, 0), "A"), delta((0, 1), "B")], vec!["A", "B", "C"], "ABC"),
        (vec![delta((0, 0), "A"), delta((0, 1), "B")], vec!["A", "BC"], "ABC"),
        (vec![delta((0, 1), "A"), delta((0, 2), "B")], vec!["A", "BC", "D"], "ABCD"),
        (vec![added(0), delta((0, 0), "A"), added(1), delta((0, 1), "A")], vec!["A", "A"], "AA"),
        (vec![delta((0, 0), "A"), text_done((0, 0), "A")], vec!["A", "A"], "AA"),
        (vec![delta((0, 0), "A"), text_done((0, 0), "A"), text_done((0, 1), "B")], vec!["A", "B"], "AB"),
        (vec![text_done((0, 0), "A"), text_done((0, 1), "A")], vec!["A", "A"], "AA"),
        (
            vec![delta((0, 0), "A"), delta((0, 1), "B"), text_done((0, 0), "A"), text_done((0, 1), "B")],
            vec!["A", "B"],
            "AB",
        ),
        (vec![delta((0, 1), "B"), delta((0, 0), "A")], vec!["A", "B"], "BA"),
    ] {
        let events = [&[created(), item("added", 0, &parts(&[]))], &middle[..], &end(&texts)].concat();
        assert_eq!(decode_all(&events), expected(&[("text", answer)]), "{middle:?}");
    }
}

#[test]
fn paragraphs_of_reasoning_are_separate_and_raised_indexes_are_not() {
    let rd = |index, text: &str| part_event("reasoning_text.delta", (0, index), "delta", &json!(text));
    let added = |index| {
        let part = json!({"type": "reasoning_text", "text": ""});
        part_event("reasoning_part.added", (0, index), "part", &part)
    };
    let item_of = |texts: &[&str]| {
        let parts: Vec<Value> =
            texts.iter().map(|text| json!({"type": "reasoning_text", "text": text})).collect();
        json!({"type": "reasoning", "summary": [], "content": parts})
    };
    for (middle, texts, answer) in [
        (vec![rd(1, "I"), rd(2, " am"), rd(3, " here")], vec!["I am here"], "I am here"),
        (vec![added(0), rd(0, "A"), added(1), rd(1, "B")], vec!["A", "B"], "A\n\nB"),
        (vec![rd(0, "A"), rd(0, "a"), rd(1, "B")], vec!["Aa", "B"], "Aa\n\nB"),
        (vec![added(0), rd(1, "A"), rd(2, "B")], vec!["AB", "C"], "AB\n\nC"),
    ] {
        let end = [item("done", 0, &item_of(&texts)), completed(&[item_of(&texts)])];
        let events = [&[created(), item("added", 0, &item_of(&[]))], &middle[..], &end].concat();
        assert_texts(&events, &[("reasoning", answer)]);
    }
}

#[test]
fn deltas_with_raised_indexes_have_no_maximum_number() {
    let mut stream = format!("data: {}\n\n", created());
    for index in 1..=3000 {
        stream += &format!("data: {}\n\n", delta((0, index), "ab "));
    }
    stream += &format!("data: {}\n\n", completed(&[message(&"ab ".repeat(3000))]));
    let (mut decoder, mut events) = (ResponsesDecoder::new(), Vec::new());
    decoder.push(Bytes::from(stream), &mut events).unwrap();
    assert!(decoder.buffered_bytes() < 2000, "{}", decoder.buffered_bytes());
    assert_eq!(Ok(texts(&events)), expected(&[("text", &"ab ".repeat(3000))]));
}

#[test]
fn an_initial_text_is_sent_once_whatever_its_index() {
    for initial in ["Hello", "Hel", "Hello W"] {
        for middle in
            [vec![delta((0, 1), "Hello"), delta((0, 2), " W")], vec![text_done((0, 3), "Hello W")], vec![]]
        {
            let events = [
                &[created(), item("added", 0, &parts(&[])), part("added", (0, 0), initial)],
                &middle[..],
                &[item("done", 0, &message("Hello W")), completed(&[message("Hello W")])],
            ]
            .concat();
            assert_texts(&events, &[("text", "Hello W")]);
        }
    }
}

#[test]
fn items_without_indexes_are_found_by_their_ids_or_are_the_last_ones() {
    let id = |event: Value, id: &str| with(event, "item_id", id);
    let no_index = |mut event: Value| {
        event.as_object_mut().unwrap().remove("output_index");
        event
    };
    let arguments = |text: &str| part_event("function_call_arguments.delta", (-1, -1), "delta", &json!(text));
    let own_call = |id: &str, arguments: &str| with(call(arguments), "call_id", id);
    let calls = ["call_1", "call_2"].map(|id| no_index(item("added", 0, &own_call(id, ""))));
    let done = |id, text: &str| no_index(item("done", 0, &own_call(id, text)));
    let answer = [("call", "f"), ("arguments", r#"{"a":1}"#), ("call", "f"), ("arguments", r#"{"b":2}"#)];
    let (one, two) = (r#"{"a":1}"#, r#"{"b":2}"#);
    let end = completed(&[own_call("call_1", one), own_call("call_2", two)]);
    for (first, second) in
        [(id(arguments(one), "call_1"), id(arguments(two), "call_2")), (arguments(one), arguments(two))]
    {
        let events = [created(), calls[0].clone(), first, calls[1].clone(), second];
        for dones in [vec![], vec![done("call_1", one), done("call_2", two)], vec![done("call_2", two)]] {
            assert_texts(&[&events[..], &dones, std::slice::from_ref(&end)].concat(), &answer);
        }
    }
    // The deltas come after both starts, and the ends have no id of a call that is known.
    let start = [created(), calls[0].clone(), calls[1].clone()];
    let deltas = [id(arguments(one), "call_1"), id(arguments(two), "call_2")];
    let events = [&start[..], &deltas, &[done("x", one), done("y", two), completed(&[])]].concat();
    let of_both = [("call", "f"), ("call", "f"), ("arguments", r#"{"a":1}{"b":2}"#)];
    assert_texts(&events, &of_both);
    let text = [delta((-1, -1), "Hel"), delta((-1, -1), "lo")];
    let events = [&[created()], &text[..], &[no_index(item("done", 0, &message("Hello W")))]].concat();
    let events = [&events[..], &[completed(&[message("Hello W")])]].concat();
    assert_texts(&events, &[("text", "Hello W")]);
    let other = json!({"type": "mcp_call", "id": "x"});
    let events = [&[created(), no_index(item("added", 0, &other))], &events[1..]].concat();
    assert_eq!(decode_all(&events), expected(&[("text", "Hello W")]), "an unknown item has no text");
    let events = [created(), delta((-1, 0), "Hel"), no_index(item("done", 0, &message("No")))];
    assert_eq!(decode_all(&events), MALFORMED);
}

#[test]
fn calls_without_the_event_that_adds_them_wait_for_their_names() {
    let fragment = |text: &str| part_event("function_call_arguments.delta", (0, -1), "delta", &json!(text));
    let whole = r#"{"a": 1}"#;
    let answer = [("call", "f"), ("arguments", whole)];
    let done = part_event("function_call_arguments.done", (0, -1), "arguments", &json!(whole));
    let null = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": null});
    let deltas = [created(), fragment("{\"a\""), fragment(": 1}")];
    for end in [
        vec![item("done", 0, &call(whole)), completed(&[call(whole)])],
        vec![completed(&[call(whole)])],
        vec![done, completed(&[call(whole)])],
        vec![item("done", 0, &null), completed(&[call(whole)])],
        vec![item("done", 3, &call(whole)), completed(&[])],
    ] {
        assert_texts(&[&deltas[..], &end].concat(), &answer);
    }
    for end in [
        vec![completed(&[])],
        vec![completed(&[message("Hello")])],
        vec![item("done", 0, &call(r#"{"b":1}"#))],
        vec![item("done", 0, &json!({"type": "function_call", "call_id": "c", "arguments": whole}))],
    ] {
        assert_eq!(decode_all(&[&deltas[..], &end].concat()), MALFORMED, "{end:?}");
    }
    // Nothing of the call is emitted, and its arguments count as memory.
    let (mut decoder, mut events) = (ResponsesDecoder::new(), Vec::new());
    decoder.push(Bytes::from(format!("data: {}\n\n", created())), &mut events).unwrap();
    for _ in 0..12 {
        let data = format!("data: {}\n\n", fragment(&"a".repeat(100_000)));
        let before = decoder.buffered_bytes();
        decoder.push(Bytes::from(data), &mut events).unwrap();
        assert!(decoder.buffered_bytes() >= before + 100_000 || decoder.buffered_bytes() < 2000);
    }
    assert_eq!(events, [AnswerEvent::Start]);
}

#[test]
fn an_item_without_content_at_its_end_has_that_of_its_deltas() {
    let added = item("added", 0, &parts(&[]));
    for content in [json!({"type": "message", "content": null}), json!({"type": "message"})] {
        let events =
            [created(), added.clone(), delta((0, 0), "Hello"), item("done", 0, &content), completed(&[])];
        assert_texts(&events, &[("text", "Hello")]);
        assert_eq!(decode_all(&[created(), added.clone(), item("done", 0, &content)]), MALFORMED);
    }
    let reasoning = json!({"type": "reasoning", "summary": [], "content": null});
    let hm = part_event("reasoning_text.delta", (0, 0), "delta", &json!("Hm."));
    assert_texts(&[created(), hm, item("done", 0, &reasoning), completed(&[])], &[("reasoning", "Hm.")]);
}

#[test]
fn a_response_may_start_with_any_of_its_events() {
    let end = completed(&[message("Hello")]);
    for start in [
        vec![item("added", 0, &parts(&[])), delta((0, 0), "Hello")],
        vec![json!({"type": "response.in_progress", "response": {}}), delta((0, 0), "Hello")],
        vec![json!({"type": "response.queued", "response": {}}), text_done((0, 0), "Hello")],
        vec![part("added", (0, 0), ""), delta((0, 0), "Hello")],
        vec![text_done((0, 0), "Hello")],
        vec![item("done", 0, &message("Hello"))],
        vec![],
    ] {
        assert_texts(&[&start[..], std::slice::from_ref(&end)].concat(), &[("text", "Hello")]);
    }
    for start in [json!({"type": "message_start"}), json!({"type": "response.completed", "response": {}})] {
        assert_eq!(decode_all(&[start]), MALFORMED);
    }
}

#[test]
fn another_item_may_take_the_index_of_one_that_was_not_ended() {
    let own_call = |arguments: &str| with(call(arguments), "id", "f1");
    let first = [created(), item("added", 0, &with(parts(&[]), "id", "m1")), delta((0, 0), "Hello")];
    let arguments = part_event("function_call_arguments.delta", (0, -1), "delta", &json!("{}"));
    let end = completed(&[message("Hello"), own_call("{}")]);
    let answer = [("text", "Hello"), ("call", "f"), ("arguments", "{}")];
    for middle in [
        vec![text_done((0, 0), "Hello"), item("added", 0, &own_call("")), arguments.clone()],
        vec![item("added", 0, &own_call("")), arguments, item("done", 0, &own_call("{}"))],
        vec![item("done", 0, &own_call("{}"))],
    ] {
        assert_texts(&[&first[..], &middle, std::slice::from_ref(&end)].concat(), &answer);
    }
}

#[test]
fn items_of_the_last_event_are_matched_by_content_where_indexes_are_shifted() {
    let own_call = |number: u32| with(call(&format!("{{\"a\":{number}}}")), "call_id", &format!("c{number}"));
    let other_id = |number: u32| with(own_call(number), "call_id", &format!("x{number}"));
    let reasoning = with_part("reasoning", "content", "reasoning_text", "Hm.");
    let items = [reasoning, own_call(1), own_call(2)];
    let done = |shift: usize| (0..).zip(&items).map(move |(at, one)| item("done", at + shift as u64, one));
    let answer = [
        ("reasoning", "Hm."),
        ("call", "f"),
        ("arguments", r#"{"a":1}"#),
        ("call", "f"),
        ("arguments", r#"{"a":2}"#),
    ];
    for shift in [0, 1, 5] {
        let last = completed(&[items[0].clone(), other_id(1), other_id(2)]);
        let events: Vec<Value> = [created()].into_iter().chain(done(shift)).chain([last]).collect();
        assert_texts(&events, &answer);
    }
    // Without a known start, the index decides.
    let events = [created(), delta((1, 0), "B"), completed(&[message("A"), message("BC")])];
    assert_eq!(decode_all(&events), MALFORMED, "a text before the delivered one cannot be sent");
}
