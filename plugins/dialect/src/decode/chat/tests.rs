//! Rules of the decoder that no golden case shows.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::Decoder;
use crate::decode::{Decoder as _, MAX_TOOLS};
use crate::event::{Event, Text};
use bytes::Bytes;
use penstock_contract::FaultKind;
use serde_json::json;

fn decode(stream: &str) -> (Vec<Event>, Option<FaultKind>) {
    let mut events = Vec::new();
    let result = Decoder::new("seed").push(Bytes::from(stream.to_owned()), &mut events);
    (events, result.err().map(|fault| fault.kind))
}

fn texts(events: &[Event]) -> Vec<String> {
    let text = |event: &Event| match event {
        Event::Text { text, .. } => Some(text.decoded().into_owned()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

#[test]
fn a_chunk_like_the_last_one_is_read_by_its_frame_and_others_are_not_taken_for_it() {
    let chunk = |inside: &str| {
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":{inside}}}}}]}}\n\n")
    };
    let stream: String = [
        "\"a\"",
        "\"b\"",
        "\"\\n\\u00e9\"",
        "\"c\",\"role\":\"assistant\"",
        "\"d\"",
        "\"\\\"\"",
        "null",
        "\"e\"",
        "\"f\",\"tool_calls\":[{\"index\":0,\"id\":\"i\",\"function\":{\"name\":\"n\"}}]",
        "\"\"",
        "\"g\"",
    ]
    .iter()
    .map(|inside| chunk(inside))
    .collect();
    let (events, fault) = decode(&stream);
    assert_eq!(fault, None);
    assert_eq!(texts(&events), ["a", "b", "\né", "c", "d", "\"", "e", "f", "g"]);
    assert_eq!(events.iter().filter(|event| matches!(event, Event::ToolStart { .. })).count(), 1);
}

#[test]
fn a_frame_does_not_make_bad_json_good() {
    let chunk = |inside: &str| {
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{inside}\"}}}}]}}\n\n")
    };
    for bad in ["a\"b", "a\\", "\\x", "\\u12", "tab\tinside"] {
        let (events, fault) = decode(&(chunk("fine") + &chunk("too") + &chunk(bad)));
        assert_eq!((texts(&events).len(), fault), (2, Some(FaultKind::Malformed)), "{bad}");
    }
    let mut bytes = (chunk("fine") + &chunk("x")).into_bytes();
    let at = bytes.len() - 8;
    assert_eq!(bytes[at], b'x');
    bytes[at] = 0xff;
    let result = Decoder::new("s").push(Bytes::from(bytes), &mut Vec::new());
    assert_eq!(result.unwrap_err().kind, FaultKind::Malformed);
}

#[test]
fn a_frame_that_ends_in_a_finish_is_not_kept() {
    let done =
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n";
    let (events, fault) = decode(&done.repeat(2));
    assert_eq!((texts(&events).len(), fault), (1, None));
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Finish { .. })).count(), 1);
}

#[test]
fn more_tools_or_candidates_than_anyone_needs_are_malformed() {
    let call = |index: usize| {
        let call = json!({"index": index, "id": format!("c{index}"), "function": {"name": "f"}});
        format!("data: {}\n\n", json!({"choices":[{"index":0,"delta":{"tool_calls":[call]}}]}))
    };
    let stream: String = (0..=MAX_TOOLS).map(call).collect();
    assert_eq!(decode(&stream).1, Some(FaultKind::Malformed));
    assert_eq!(decode("data: {\"choices\":[{\"index\":16,\"delta\":{}}]}\n\n").1, Some(FaultKind::Malformed));
    let long = "n".repeat(5000);
    let call = json!({"index": 0, "id": "c", "function": {"name": long}});
    let stream = format!("data: {}\n\n", json!({"choices":[{"index":0,"delta":{"tool_calls":[call]}}]}));
    assert_eq!(decode(&stream).1, Some(FaultKind::Malformed));
}

/// As many as an answer holds; were all arguments read again with each, it would take minutes.
const MANY: usize = 60_000;

#[test]
fn a_call_that_names_itself_with_every_fragment_is_read_once() {
    let call = |id: usize, arguments: &str| {
        let call = json!({"index":0,"id":format!("c{id}"),"function":{"name":"f","arguments":arguments}});
        format!("data: {}\n\n", json!({"choices":[{"index":0,"delta":{"tool_calls":[call]}}]}))
    };
    let middle: String = (1..=MANY).map(|id| call(id, "[1, \"}\"],")).collect();
    let begun = call(0, "{\"a\":[") + &middle + &call(MANY + 1, "2]}");
    let (events, fault) = decode(&(begun + &call(MANY + 2, "{}")));
    assert_eq!(fault, None);
    let fragments = |number: u32| {
        let of = |event: &&Event| matches!(event, Event::ToolArguments { tool, .. } if *tool == number);
        events.iter().filter(of).count()
    };
    assert_eq!((fragments(0), fragments(1)), (MANY + 2, 1), "the second begins where the first is whole");
}

#[test]
fn made_up_ids_differ_between_calls_and_answers() {
    let stream = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}},{\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}}]}\n\n";
    let ids = |seed: &str| {
        let mut events = Vec::new();
        Decoder::new(seed).push(Bytes::from(stream), &mut events).unwrap();
        let id = |event| match event {
            Event::ToolStart { id, .. } => Some(id),
            _ => None,
        };
        events.into_iter().filter_map(id).collect::<Vec<Text>>()
    };
    let (one, again, other) = (ids("x"), ids("x"), ids("y"));
    assert_eq!(one, again);
    assert!(one.len() == 2 && one[0] != one[1] && one[0] != other[0]);
    let id = one[0].decoded().into_owned();
    assert!(id.starts_with("call_") && id.len() == 29, "{id}");
}
