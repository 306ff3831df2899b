//! Events decoded from a native stream and a native message.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use crate::decode::DialectDecoder as _;
use penstock_core::{Dialect, FinishReason, ReportedUsage};
use serde_json::{Value, json};

const STREAM: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_x","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":7,"cache_creation_input_tokens":2,"cache_read_input_tokens":3,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"sig"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: ping
data: {"type":"ping"}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":"A"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"\"b\" é 😀"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"f","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: content_block_start
data: {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_2","name":"g","input":{"k": "v"}}}

event: content_block_stop
data: {"type":"content_block_stop","index":3}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":20,"output_tokens_details":{"thinking_tokens":4}}}

event: message_stop
data: {"type":"message_stop"}

"#;

fn expected() -> Vec<AnswerEvent> {
    let usage = |output, reasoning| ReportedUsage { input: Some(12), cached: 3, output, reasoning };
    let text = EscapedText::new;
    vec![
        AnswerEvent::Start,
        AnswerEvent::Usage(usage(None, 0)),
        AnswerEvent::Reasoning { choice: 0, text: text("hm"), signature: None },
        AnswerEvent::Reasoning { choice: 0, text: text(""), signature: Some(text("sig")) },
        AnswerEvent::Ping,
        AnswerEvent::Text { choice: 0, text: text("A"), logprobs: None },
        AnswerEvent::Text { choice: 0, text: text("\"b\" é 😀"), logprobs: None },
        AnswerEvent::ToolCallStart { choice: 0, tool: 0, id: text("toolu_1"), name: text("f") },
        AnswerEvent::ToolCallArguments { choice: 0, tool: 0, fragment: text(r#"{"a":1}"#) },
        AnswerEvent::ToolCallStart { choice: 0, tool: 1, id: text("toolu_2"), name: text("g") },
        AnswerEvent::ToolCallArguments { choice: 0, tool: 1, fragment: text(r#"{"k":"v"}"#) },
        AnswerEvent::Usage(usage(Some(20), 4)),
        AnswerEvent::Finish { choice: 0, reason: FinishReason::ToolCalls, stop_sequence: None },
        AnswerEvent::End,
    ]
}

#[test]
fn a_stream_gives_the_same_events_however_it_is_cut() {
    for cut in 0..=STREAM.len() {
        let (mut decoder, mut events) = (MessagesDecoder::new("id"), Vec::new());
        for piece in [&STREAM.as_bytes()[..cut], &STREAM.as_bytes()[cut..]] {
            decoder.push(Bytes::copy_from_slice(piece), &mut events).unwrap();
        }
        decoder.end(&mut events).unwrap();
        assert_eq!(events, expected(), "cut at {cut}");
    }
}

#[test]
fn a_whole_message_gives_the_events_of_its_stream() {
    let body = r#" {"id":"msg_x","type":"message","role":"assistant","model":"m","content":[{"type":"thinking","thinking":"hm","signature":"sig"},
        {"type":"text","text":"A"},{"type":"tool_use","id":"toolu_1","name":"f","input":{ "a" : 1 }}],
        "stop_reason":"stop_sequence","stop_sequence":"END","usage":{"input_tokens":1,"output_tokens":2}} "#;
    let mut events = Vec::new();
    decode_message(Bytes::from(body), "id", &mut events).unwrap();
    assert_eq!(
        events[1],
        AnswerEvent::Reasoning {
            choice: 0,
            text: EscapedText::new("hm"),
            signature: Some(EscapedText::new("sig"))
        }
    );
    assert_eq!(
        events[4],
        AnswerEvent::ToolCallArguments { choice: 0, tool: 0, fragment: EscapedText::new(r#"{"a":1}"#) }
    );
    let stop_sequence = Some(EscapedText::new("END"));
    assert_eq!(events[6], AnswerEvent::Finish { choice: 0, reason: FinishReason::Stop, stop_sequence });
    assert_eq!(events.len(), 8);
}

#[test]
fn invalid_syntax_is_malformed_and_an_error_event_is_in_band() {
    let start = r#"{"type":"message_start","message":{"usage":{"input_tokens":1,"output_tokens":1}}}"#;
    let open = r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#;
    let cases: &[(&[&str], UpstreamErrorKind)] = &[
        (&[open], UpstreamErrorKind::Malformed),
        (&[start, start], UpstreamErrorKind::Malformed),
        (&["nonsense"], UpstreamErrorKind::Malformed),
        (&["[DONE]"], UpstreamErrorKind::Malformed),
        (
            &[start, r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}"#],
            UpstreamErrorKind::Malformed,
        ),
        (
            &[
                start,
                open,
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"x"}}"#,
            ],
            UpstreamErrorKind::Malformed,
        ),
        (
            &[
                start,
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":""}}"#,
            ],
            UpstreamErrorKind::ModelOutput,
        ),
        (
            &[start, r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#],
            UpstreamErrorKind::InBandError,
        ),
    ];
    for (stream, kind) in cases {
        let (mut decoder, mut events) = (MessagesDecoder::new("id"), Vec::new());
        let bytes: String = stream.iter().map(|data| format!("data: {data}\n\n")).collect();
        assert_eq!(decoder.push(Bytes::from(bytes), &mut events).unwrap_err().kind, *kind, "{stream:?}");
    }
}

#[test]
fn an_opening_states_no_output_and_no_input_of_nothing() {
    for (usage, stated) in [
        (r#"{"input_tokens":0,"output_tokens":1}"#, None),
        (r#"{"input_tokens":0,"output_tokens":0}"#, None),
        (r#"{"input_tokens":5,"output_tokens":1}"#, Some(5)),
        (r#"{"input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1}"#, Some(4)),
    ] {
        let start = format!("data: {{\"type\":\"message_start\",\"message\":{{\"usage\":{usage}}}}}\n\n");
        let (mut decoder, mut events) = (MessagesDecoder::new("id"), Vec::new());
        decoder.push(Bytes::from(start), &mut events).unwrap();
        let usage_event = events.iter().find_map(|event| match event {
            AnswerEvent::Usage(stated) => Some((stated.input, stated.output)),
            _ => None,
        });
        assert_eq!(usage_event.unwrap_or_default(), (stated, None), "{usage}");
    }
}

#[test]
fn unknown_blocks_and_events_do_no_harm() {
    let stream = r#"data: {"type":"message_start","message":{}}

data: {"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"s","name":"web"}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}

data: {"type":"content_block_stop","index":0}

data: {"type":"something_new"}

"#;
    let (mut decoder, mut events) = (MessagesDecoder::new("id"), Vec::new());
    decoder.push(Bytes::from(stream), &mut events).unwrap();
    assert_eq!(events, [AnswerEvent::Start]);
}

#[test]
fn an_answer_that_is_cut_is_none_wherever_that_is() {
    let message = r#"{"id":"m","type":"message","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","usage":{"input_tokens":6,"output_tokens":5,"later":"x"}}"#;
    let completion = r#"{"choices":[{"index":0,"message":{"content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":6,"later":"x"}}"#;
    for (dialect, body) in [(Dialect::Messages, message), (Dialect::Chat, completion)] {
        let read = |bytes: &[u8]| {
            crate::decode::decode_buffered(dialect, Bytes::copy_from_slice(bytes), "id", &mut Vec::new())
        };
        assert!(read(body.as_bytes()).is_ok());
        for end in 0..body.len() {
            assert!(read(&body.as_bytes()[..end]).is_err(), "cut at {end}");
        }
        let broken = body.replace("\"x\"", "\"\u{1}\"");
        assert!(read(broken.as_bytes()).is_err());
        let later = body.find("\"x\"").unwrap() + 1;
        let mut bytes = body.as_bytes().to_vec();
        bytes[later] = 0xff;
        assert!(read(&bytes).is_err(), "no UTF-8");
    }
}

/// Invalid events after `message_start`.
fn invalid_events() -> Vec<Vec<Value>> {
    let open = |block: Value| json!({"type":"content_block_start","index":0,"content_block":block});
    let delta = |delta: Value| json!({"type":"content_block_delta","index":0,"delta":delta});
    let end = |delta: Value| json!({"type":"message_delta","delta":delta,"usage":{"output_tokens":1}});
    let text = || open(json!({"type":"text","text":""}));
    let stop = || json!({"type":"content_block_stop","index":0});
    let mut streams = vec![
        vec![json!({"type":"content_block_start","index":"0","content_block":{"type":"text","text":""}})],
        vec![json!({"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}})],
        vec![json!({"type":"content_block_start","index":-1,"content_block":{"type":"text","text":""}})],
        vec![
            text(),
            json!({"type":"content_block_delta","index":5,"delta":{"type":"text_delta","text":"a"}}),
        ],
        vec![text(), json!({"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}})],
        vec![text(), stop(), delta(json!({"type":"text_delta","text":"a"}))],
        vec![text(), stop(), stop()],
        vec![delta(json!({"type":"text_delta","text":"a"})), text()],
        vec![text(), delta(json!({"type":"text_delta"}))],
        vec![text(), delta(json!({"text":"a"}))],
        vec![text(), delta(json!({"type":5,"text":"a"}))],
        vec![text(), delta(json!({"type":"text_delta","text":["a"]}))],
        vec![open(json!({"type":"thinking","thinking":5}))],
        vec![open(json!({"type":"tool_use","id":5,"name":"f","input":{}}))],
        vec![open(json!({"type":"tool_use","id":"a","name":["f"],"input":{}}))],
        vec![open(json!({"text":"a"}))],
        vec![json!({"type":5})],
        vec![json!([])],
    ];
    for invalid in [json!(5), json!("a"), json!(true), json!(["a"])] {
        streams.extend([
            vec![open(invalid.clone())],
            vec![text(), delta(invalid.clone())],
            vec![open(json!({"type":"tool_use","id":"a","name":"f","input":invalid}))],
            vec![end(invalid.clone())],
        ]);
    }
    for invalid in [json!(5), json!(true), json!(["a"]), json!({"a":1})] {
        streams.extend([
            vec![open(json!({"type":"text","text":invalid}))],
            vec![text(), delta(json!({"type":"text_delta","text":invalid}))],
            vec![end(json!({"stop_reason":invalid}))],
            vec![end(json!({"stop_reason":"stop_sequence","stop_sequence":invalid}))],
        ]);
    }
    streams
}

#[test]
fn invalid_types_indices_and_orders_are_malformed_at_every_split() {
    let data = |event: &Value| format!("data: {event}\n\n");
    for events in invalid_events() {
        let stream = data(&json!({"type":"message_start","message":{}}))
            + &events.iter().map(data).collect::<String>();
        for cut in 0..stream.len() {
            let mut decoder = MessagesDecoder::new("id");
            let (first, rest) = stream.as_bytes().split_at(cut);
            let result = decoder
                .push(Bytes::copy_from_slice(first), &mut Vec::new())
                .and_then(|()| decoder.push(Bytes::copy_from_slice(rest), &mut Vec::new()));
            assert_eq!(result.unwrap_err().kind, UpstreamErrorKind::Malformed, "{stream} cut at {cut}");
        }
    }
    for invalid in [json!(5), json!("a"), json!(["a"])] {
        let stream = data(&json!({"type":"message_start","message":invalid}));
        let result = MessagesDecoder::new("id").push(Bytes::from(stream), &mut Vec::new());
        assert_eq!(result.unwrap_err().kind, UpstreamErrorKind::Malformed, "{invalid}");
    }
}

#[test]
fn a_whole_message_with_an_invalid_type_is_malformed() {
    let message =
        |content: Value, reason: Value| json!({"type":"message","content":content,"stop_reason":reason});
    let block = |block: Value| message(json!([block]), json!("end_turn"));
    let mut bodies = vec![
        json!({"type":"message","stop_reason":"end_turn"}),
        json!({"type":"message","content":null,"stop_reason":"end_turn"}),
        block(json!({"text":"a"})),
        block(json!({"type":"tool_use","id":5,"name":"f","input":{}})),
    ];
    for invalid in [json!(5), json!(true), json!("a")] {
        bodies.extend([
            message(invalid.clone(), json!("end_turn")),
            block(invalid.clone()),
            block(json!({"type":"tool_use","id":"a","name":"f","input":invalid})),
        ]);
    }
    for invalid in [json!(5), json!(["a"]), json!({"a":1})] {
        bodies.extend([
            message(json!([]), invalid.clone()),
            block(json!({"type":"text","text":invalid})),
            block(json!({"type":"thinking","thinking":invalid})),
            block(json!({"type":invalid,"text":"a"})),
        ]);
    }
    for body in bodies {
        let fault = decode_message(Bytes::from(body.to_string()), "id", &mut Vec::new()).unwrap_err();
        assert_eq!(fault.kind, UpstreamErrorKind::Malformed, "{body}");
    }
}
