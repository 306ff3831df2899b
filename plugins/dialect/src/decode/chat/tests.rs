//! Decoder rules that no golden case covers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::ChatDecoder;
use crate::decode::{DialectDecoder as _, MAX_TOOL_CALLS, MAX_TOOL_NAME_BYTES};
use crate::event::{AnswerEvent, EscapedText};
use bytes::Bytes;
use penstock_core::{FinishReason, UpstreamErrorKind};
use serde_json::{Value, json};

fn decode(stream: &str) -> (Vec<AnswerEvent>, Option<UpstreamErrorKind>) {
    let mut events = Vec::new();
    let result = ChatDecoder::new("seed").push(Bytes::from(stream.to_owned()), &mut events);
    (events, result.err().map(|fault| fault.kind))
}

fn texts(events: &[AnswerEvent]) -> Vec<String> {
    let text = |event: &AnswerEvent| match event {
        AnswerEvent::Text { text, .. } => Some(text.decoded().into_owned()),
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
    assert_eq!(events.iter().filter(|event| matches!(event, AnswerEvent::ToolCallStart { .. })).count(), 1);
}

#[test]
fn a_frame_does_not_make_bad_json_good() {
    let chunk = |inside: &str| {
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{inside}\"}}}}]}}\n\n")
    };
    for bad in ["a\"b", "a\\", "\\x", "\\u12", "tab\tinside"] {
        let (events, fault) = decode(&(chunk("fine") + &chunk("too") + &chunk(bad)));
        assert_eq!((texts(&events).len(), fault), (2, Some(UpstreamErrorKind::Malformed)), "{bad}");
    }
    let mut bytes = (chunk("fine") + &chunk("x")).into_bytes();
    let at = bytes.len() - 8;
    assert_eq!(bytes[at], b'x');
    bytes[at] = 0xff;
    let result = ChatDecoder::new("s").push(Bytes::from(bytes), &mut Vec::new());
    assert_eq!(result.unwrap_err().kind, UpstreamErrorKind::Malformed);
}

#[test]
fn a_frame_that_ends_in_a_finish_is_read_anew_each_time() {
    let done =
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n";
    let (events, fault) = decode(&done.repeat(2));
    assert_eq!((texts(&events).len(), fault), (2, None));
    assert_eq!(events.iter().filter(|event| matches!(event, AnswerEvent::Finish { .. })).count(), 2);
}

#[test]
fn more_candidates_are_malformed_and_more_tools_or_longer_names_the_models_words() {
    let call = |index: usize| {
        let call = json!({"index": index, "id": format!("c{index}"), "function": {"name": "f"}});
        format!("data: {}\n\n", json!({"choices":[{"index":0,"delta":{"tool_calls":[call]}}]}))
    };
    let stream: String = (0..=MAX_TOOL_CALLS).map(call).collect();
    assert_eq!(decode(&stream).1, Some(UpstreamErrorKind::ModelOutput));
    let stream: String = (0..MAX_TOOL_CALLS).map(call).collect();
    assert_eq!(decode(&stream).1, None);
    assert_eq!(
        decode("data: {\"choices\":[{\"index\":1024,\"delta\":{}}]}\n\n").1,
        Some(UpstreamErrorKind::Malformed)
    );
    for (length, fault) in
        [(MAX_TOOL_NAME_BYTES, None), (MAX_TOOL_NAME_BYTES + 1, Some(UpstreamErrorKind::ModelOutput))]
    {
        let call = json!({"index": 0, "id": "c", "function": {"name": "n".repeat(length)}});
        let stream = format!("data: {}\n\n", json!({"choices":[{"index":0,"delta":{"tool_calls":[call]}}]}));
        assert_eq!(decode(&stream).1, fault, "{length}");
    }
}

#[test]
fn an_empty_or_missing_name_is_output_of_the_model() {
    let stream = |function: serde_json::Value| {
        let text = json!({"choices":[{"index":0,"delta":{"content":"Hello"}}]});
        let call = json!({"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":function}]}}]});
        let end = json!({"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]});
        format!("data: {text}\n\ndata: {call}\n\ndata: {end}\n\ndata: [DONE]\n\n")
    };
    let fault = |function: serde_json::Value| decode(&stream(function)).1;
    assert_eq!(fault(json!({"name": "", "arguments": "{}"})), Some(UpstreamErrorKind::ModelOutput));
    assert_eq!(fault(json!({"arguments": "{}"})), Some(UpstreamErrorKind::ModelOutput));
    assert_eq!(fault(json!({"name": null, "arguments": "{}"})), Some(UpstreamErrorKind::ModelOutput));
    assert_eq!(fault(json!({"name": "", "arguments": ""})), None);
    assert_eq!(fault(json!({"name": "f", "arguments": "{}"})), None);
}

#[test]
fn an_answer_of_unknown_content_alone_is_malformed() {
    let chunk = |choices: Value| format!("data: {}\n\n", json!({"choices": choices}));
    let delta = |delta: Value| chunk(json!([{"index": 0, "delta": delta}]));
    let end = chunk(json!([{"index": 0, "delta": {}, "finish_reason": "stop"}])) + "data: [DONE]\n\n";
    let fault = |chunk: &str, beside: &str| decode(&format!("{beside}{chunk}{end}")).1;
    let text = delta(json!({"content": "Hello"}));
    for unknown in [
        json!({"content": [{"type": "zzz"}]}),
        json!({"content": [{"type": "zzz", "text": null}]}),
        json!({"tool_calls": [{}]}),
    ] {
        let part = delta(unknown.clone());
        assert_eq!(fault(&part, ""), Some(UpstreamErrorKind::Malformed), "{unknown}");
        assert_eq!(fault(&part, &text), None, "a part beside text: {unknown}");
        let whole = json!({"choices": [{"index": 0, "message": unknown, "finish_reason": "stop"}]});
        let result = super::decode_completion(Bytes::from(whole.to_string()), "s", &mut Vec::new());
        assert_eq!(result.unwrap_err().kind, UpstreamErrorKind::Malformed);
    }
    // Keepalive chunks and chunks with empty content are valid.
    for harmless in [
        json!({}),
        json!([null]),
        json!([{}]),
        json!(null),
        json!([]),
        json!([{"index": 0, "delta": {"content": []}}]),
        json!([{"index": 0, "delta": {"content": [{"type": "text", "text": ""}]}}]),
        json!([{"index": 0, "delta": {"content": [{"type": "thinking", "thinking": []}]}}]),
        json!([{"index": 0, "delta": {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": ""}]}]}}]),
    ] {
        assert_eq!(fault(&chunk(harmless.clone()), ""), None, "{harmless}");
        assert_eq!(decode(&chunk(harmless)).0.len(), 1, "the start alone, so that the stream is truncated");
    }
    for arguments in [json!(5), json!(true)] {
        let call = json!({"index": 0, "id": "c", "function": {"name": "f", "arguments": arguments}});
        assert_eq!(fault(&delta(json!({"tool_calls": [call]})), ""), Some(UpstreamErrorKind::Malformed));
    }
    let call = json!({"index": 0, "id": "c", "function": {"name": "f", "arguments": {"a": 5}}});
    assert_eq!(fault(&delta(json!({"tool_calls": [call]})), ""), None);
}

/// Number of fragments that fit into one answer. If each fragment parsed all arguments again, the test would take
/// minutes.
const MANY: usize = 60_000;

#[test]
fn a_call_that_names_itself_with_every_fragment_is_read_once() {
    let call = |id: usize, arguments: &str| {
        let call = json!({"index":0,"id":format!("c{id}"),"function":{"name":"f","arguments":arguments}});
        format!("data: {}\n\n", json!({"choices":[{"index":0,"delta":{"tool_calls":[call]}}]}))
    };
    let middle: String = (1..=MANY).map(|id| call(id, "[1, \"}\"],")).collect();
    let begun = call(0, "{\"a\":[") + &middle + &call(MANY + 1, "2]}");
    let (events, fault) = decode(&(begun + &call(MANY + 2, "{\"b\":1}")));
    assert_eq!(fault, None);
    let fragments = |number: u32| {
        let of = |event: &&AnswerEvent| matches!(event, AnswerEvent::ToolCallArguments { tool, .. } if *tool == number);
        events.iter().filter(of).count()
    };
    assert_eq!((fragments(0), fragments(1)), (MANY + 2, 1), "the second begins where the first is whole");
}

#[test]
fn made_up_ids_differ_between_calls_and_answers() {
    let stream = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}},{\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}}]}\n\n";
    let ids = |seed: &str| {
        let mut events = Vec::new();
        ChatDecoder::new(seed).push(Bytes::from(stream), &mut events).unwrap();
        let id = |event| match event {
            AnswerEvent::ToolCallStart { id, .. } => Some(id),
            _ => None,
        };
        events.into_iter().filter_map(id).collect::<Vec<EscapedText>>()
    };
    let (one, again, other) = (ids("x"), ids("x"), ids("y"));
    assert_eq!(one, again);
    assert!(one.len() == 2 && one[0] != one[1] && one[0] != other[0]);
    let id = one[0].decoded().into_owned();
    assert!(id.starts_with("call_") && id.len() == 29, "{id}");
}

#[test]
fn usage_is_read_from_a_chunk_without_a_choice_however_that_is_written() {
    let content = r#"{"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}"#;
    for none in ["[]", "{}", "null", r#""""#, "[null]", "[ null , null ]"] {
        let last = format!(r#"{{"choices":{none},"usage":{{"prompt_tokens":7,"completion_tokens":3}}}}"#);
        let stream = format!("data: {content}\n\ndata: {last}\n\ndata: [DONE]\n\n");
        for cut in 0..stream.len() {
            let (mut decoder, mut events) = (ChatDecoder::new("id"), Vec::new());
            for piece in [&stream.as_bytes()[..cut], &stream.as_bytes()[cut..]] {
                decoder.push(Bytes::copy_from_slice(piece), &mut events).unwrap();
            }
            let usage = events.iter().find_map(|event| match event {
                AnswerEvent::Usage(usage) => Some((usage.input, usage.output)),
                _ => None,
            });
            assert_eq!(usage, Some((Some(7), Some(3))), "{last} cut at {cut}");
        }
    }
    let alone = format!("data: {}\n\n", r#"{"choices":"x"}"#);
    assert_eq!(decode(&alone).1, Some(UpstreamErrorKind::Malformed));
}

/// Choices with a member of an invalid type, in the format of a stream and of a buffered answer.
fn invalid_choices() -> Vec<serde_json::Value> {
    let choice = |message| json!({"index": 0, "delta": message, "message": message, "finish_reason": "stop"});
    let call = |call| choice(json!({"content": null, "tool_calls": [call]}));
    let invalid_values = [json!(5), json!(true), json!({"a": 1})];
    let mut choices = vec![
        json!("text"),
        json!([]),
        json!({"index": "x", "delta": {"content": "a"}, "message": {"content": "a"}}),
        json!({"index": -1, "delta": {"content": "a"}, "message": {"content": "a"}}),
        json!({"index": 0.5, "delta": {"content": "a"}, "message": {"content": "a"}}),
        json!({"index": 0, "delta": "a", "message": "a", "finish_reason": "stop"}),
        json!({"index": 0, "delta": ["a"], "message": ["a"], "finish_reason": "stop"}),
        json!({"index": 0, "text": 5, "finish_reason": "stop"}),
        choice(json!({"content": ["a"]})),
        choice(json!({"content": [{"type": "text", "text": 5}]})),
        choice(json!({"content": [{"type": "thinking", "thinking": 5}]})),
        choice(json!({"content": [{"type": "thinking", "thinking": [5]}]})),
        choice(json!({"reasoning_content": ["a"]})),
        choice(json!({"refusal": ["a"]})),
        call(json!("f")),
        call(json!({"index": "x", "id": "c", "function": {"name": "f"}})),
        call(json!({"index": -1, "id": "c", "function": {"name": "f"}})),
        call(json!({"index": 0, "id": 7, "function": {"name": "f"}})),
        call(json!({"index": 0, "id": "c", "function": "f"})),
        call(json!({"index": 0, "id": "c", "function": {"name": ["f"]}})),
        choice(json!({"function_call": "f"})),
        choice(json!({"function_call": {"name": 5}})),
    ];
    for invalid in invalid_values {
        choices.extend([
            choice(json!({"content": invalid})),
            choice(json!({"reasoning": invalid})),
            choice(json!({"refusal": invalid})),
            choice(json!({"tool_calls": invalid})),
            json!({"index": 0, "delta": {}, "message": {}, "finish_reason": invalid}),
        ]);
    }
    choices.extend([json!(5), json!("a"), json!([{"token": "a"}])].map(
        |invalid| json!({"index": 0, "delta": {"content": "a"}, "message": {"content": "a"}, "logprobs": invalid}),
    ));
    choices
}

#[test]
fn a_member_of_an_invalid_type_is_malformed() {
    for choice in invalid_choices() {
        let body = json!({"choices": [choice]}).to_string();
        let stream = format!("data: {body}\n\n");
        for cut in 0..stream.len() {
            let mut decoder = ChatDecoder::new("seed");
            let (first, rest) = stream.as_bytes().split_at(cut);
            let result = decoder
                .push(Bytes::copy_from_slice(first), &mut Vec::new())
                .and_then(|()| decoder.push(Bytes::copy_from_slice(rest), &mut Vec::new()));
            assert_eq!(result.unwrap_err().kind, UpstreamErrorKind::Malformed, "{body} cut at {cut}");
        }
        let fault = super::decode_completion(Bytes::from(body.clone()), "seed", &mut Vec::new()).unwrap_err();
        assert_eq!(fault.kind, UpstreamErrorKind::Malformed, "{body}");
    }
    for body in [json!({"choices": "a"}), json!({"choices": {"index": 0}}), json!([]), json!("a")] {
        assert_eq!(decode(&format!("data: {body}\n\n")).1, Some(UpstreamErrorKind::Malformed), "{body}");
        let fault =
            super::decode_completion(Bytes::from(body.to_string()), "seed", &mut Vec::new()).unwrap_err();
        assert_eq!(fault.kind, UpstreamErrorKind::Malformed, "{body}");
    }
    // A buffered answer must have a message; a chunk of a stream may lack it.
    let silent = json!({"choices": [{"index": 0, "finish_reason": "stop"}]});
    assert_eq!(decode(&format!("data: {silent}\n\n")).1, None);
    let fault =
        super::decode_completion(Bytes::from(silent.to_string()), "seed", &mut Vec::new()).unwrap_err();
    assert_eq!(fault.kind, UpstreamErrorKind::Malformed);
}

#[test]
fn null_and_absent_members_are_not_malformed() {
    for choice in [
        json!({"delta": {"content": "a"}}),
        json!({"index": null, "delta": {"content": "a", "refusal": null, "tool_calls": null}, "logprobs": null}),
        json!({"index": 0, "delta": {"content": "a", "tool_calls": []}, "logprobs": [], "finish_reason": null}),
        json!({"index": 0, "delta": {"content": [{"type": "text", "text": "a"}, {"type": "reference"}]}}),
        json!({"index": 0, "delta": {"content": "a"}, "stop_reason": 2, "finish_reason": ""}),
    ] {
        let body = json!({"choices": [choice], "usage": null}).to_string();
        let (events, fault) = decode(&format!("data: {body}\n\n"));
        assert_eq!((texts(&events), fault), (vec!["a".to_owned()], None), "{body}");
    }
}

#[test]
fn a_repeated_index_of_a_buffered_answer_is_malformed() {
    let choice = |index: u32| json!({"index": index, "finish_reason": "stop", "message": {"role": "assistant", "content": "a"}});
    let read = |choices: serde_json::Value| {
        let body = Bytes::from(json!({ "choices": choices }).to_string());
        let mut events = Vec::new();
        let read = crate::decode::decode_buffered(penstock_core::Dialect::Chat, body, "seed", &mut events);
        (texts(&events).len(), read.err().map(|fault| fault.kind))
    };
    assert_eq!(read(json!([choice(0), choice(0)])).1, Some(UpstreamErrorKind::Malformed));
    assert_eq!(read(json!([choice(0), choice(1), choice(0)])).1, Some(UpstreamErrorKind::Malformed));
    assert_eq!(read(json!([choice(1), choice(0)])), (2, None));
}

#[test]
fn a_later_stop_without_output_does_not_hide_that_the_answer_was_cut() {
    let chunk = |text: &str, reason: &str| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":{reason}}}]}}\n\n"
        )
    };
    for (chunks, expected) in [
        ([chunk("a", "\"length\""), chunk("", "\"stop\"")], FinishReason::Length),
        ([chunk("a", "\"content_filter\""), chunk("", "\"stop\"")], FinishReason::ContentFilter),
        ([chunk("a", "\"length\""), chunk("b", "\"stop\"")], FinishReason::Stop),
        ([chunk("a", "\"stop\""), chunk("", "\"length\"")], FinishReason::Length),
        ([chunk("a", "\"length\""), chunk("", "\"tool_calls\"")], FinishReason::ToolCalls),
    ] {
        let (events, fault) = decode(&chunks.concat());
        assert_eq!(fault, None);
        let reasons = events.iter().filter_map(|event| match event {
            AnswerEvent::Finish { reason, .. } => Some(*reason),
            _ => None,
        });
        assert_eq!(reasons.last(), Some(expected), "{chunks:?}");
    }
}
