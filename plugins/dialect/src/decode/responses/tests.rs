//! Tests of the decoder: splits, invalid events, and bodies that are cut.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::*;
use crate::decode::DialectDecoder;
use crate::{FailedRequest, reclassify_in_band_error};
use penstock_core::{FinishReason, ReportedUsage, UpstreamErrorKind};
use serde_json::{Value, json};

fn data(event: &Value) -> String {
    format!("data: {event}\n\n")
}

fn created() -> Value {
    json!({"type": "response.created", "response": {"object": "response", "status": "in_progress"}})
}

fn added(index: u64, item: &Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": index, "item": item})
}

fn message() -> Value {
    json!({"type": "message", "id": "msg_1", "role": "assistant", "content": []})
}

fn call() -> Value {
    json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": ""})
}

fn delta(kind: &str, index: u64, text: &str) -> Value {
    json!({"type": format!("response.{kind}.delta"), "output_index": index, "content_index": 0, "delta": text})
}

fn decode(stream: &str) -> Result<Vec<AnswerEvent>, UpstreamError> {
    let (mut decoder, mut events) = (ResponsesDecoder::new(), Vec::new());
    decoder.push(Bytes::from(stream.to_owned()), &mut events)?;
    decoder.end(&mut events)?;
    Ok(events)
}

fn texts(events: &[AnswerEvent]) -> String {
    let text = |event: &AnswerEvent| match event {
        AnswerEvent::Text { text, .. } | AnswerEvent::Reasoning { text, .. } => {
            Some(text.decoded().into_owned())
        }
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

#[test]
fn a_stream_gives_the_same_events_however_it_is_cut() {
    let end = json!({"type": "response.completed", "response": {"status": "completed", "output": [],
        "usage": {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 7,
            "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 16}}});
    let events = [
        created(),
        added(0, &message()),
        delta("output_text", 0, "Zürich \u{1F600}\n"),
        added(1, &call()),
        delta("function_call_arguments", 1, "{\"a\":1}"),
        end,
    ];
    let stream: String = events.iter().map(data).collect();
    let whole = decode(&stream).unwrap();
    let usage = ReportedUsage { input: Some(9), cached: 4, output: Some(7), reasoning: 2 };
    let text = |text: &str| EscapedText::new(text);
    assert_eq!(
        whole,
        [
            AnswerEvent::Start,
            AnswerEvent::Text { choice: 0, text: text("Zürich \u{1F600}\n"), logprobs: None },
            AnswerEvent::ToolCallStart { choice: 0, tool: 0, id: text("c"), name: text("f") },
            AnswerEvent::ToolCallArguments { choice: 0, tool: 0, fragment: text("{\"a\":1}") },
            AnswerEvent::Usage(usage),
            AnswerEvent::Finish { choice: 0, reason: FinishReason::ToolCalls, stop_sequence: None },
            AnswerEvent::End,
        ]
    );
    for cut in 0..=stream.len() {
        let (mut decoder, mut found) = (ResponsesDecoder::new(), Vec::new());
        for piece in [&stream.as_bytes()[..cut], &stream.as_bytes()[cut..]] {
            decoder.push(Bytes::copy_from_slice(piece), &mut found).unwrap();
        }
        decoder.end(&mut found).unwrap();
        assert_eq!(found, whole, "cut at {cut}");
    }
}

#[test]
fn a_surrogate_pair_split_between_deltas_is_joined() {
    let half = |escape: &str| {
        format!(
            "data: {{\"type\":\"response.output_text.delta\",\"output_index\":0,\"content_index\":0,\"delta\":\"{escape}\"}}\n\n"
        )
    };
    let stream = data(&created()) + &data(&added(0, &message())) + &half("a\\ud83d") + &half("\\ude00b");
    assert_eq!(texts(&decode(&stream).unwrap()), "a\u{1F600}b");
}

#[test]
fn reasoning_and_its_summary_are_not_both_given() {
    let item = json!({"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Long."}],
        "summary": [{"type": "summary_text", "text": "Short."}]});
    let done = json!({"type": "response.output_item.done", "output_index": 0, "item": item});
    let stream = data(&created()) + &data(&done);
    assert_eq!(texts(&decode(&stream).unwrap()), "Long.");
    let summary = json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0,
        "delta": "Short."});
    let stream =
        data(&created()) + &data(&added(0, &json!({"type": "reasoning"}))) + &data(&summary) + &data(&done);
    assert_eq!(texts(&decode(&stream).unwrap()), "Short.");
}

/// Invalid events after `response.created`.
fn invalid_events() -> Vec<Vec<Value>> {
    let (text, open) = (|| delta("output_text", 0, "a"), || added(0, &message()));
    let with = |mut event: Value, name: &str, value: Value| {
        event[name] = value;
        event
    };
    let mut all = vec![
        vec![open(), open()],
        vec![delta("function_call_arguments", 0, "a"), json!({"type": "response.completed", "response": {}})],
        vec![open(), delta("function_call_arguments", 0, "a")],
        vec![open(), delta("reasoning_text", 0, "a")],
        vec![added(0, &call()), text()],
        vec![added(0, &json!({"type": "function_call", "call_id": "c"}))],
        vec![added(0, &json!({"type": "function_call", "call_id": "", "name": "f"}))],
        vec![added(0, &json!({"type": "function_call", "name": "f"}))],
        vec![added(0, &json!({}))],
        vec![json!({"type": "response.output_item.added", "output_index": 0})],
        vec![json!({"type": "response.output_item.done", "output_index": 0})],
        vec![open(), with(added(0, &json!({"type": "message"})), "type", json!("response.output_item.done"))],
        vec![json!({"type": "response.completed"})],
        vec![json!([])],
        vec![json!({})],
        vec![json!({"type": 5})],
    ];
    for invalid in [json!(5), json!(null), json!(["a"]), json!({})] {
        all.push(vec![open(), with(text(), "delta", invalid.clone())]);
        all.push(vec![open(), with(text(), "output_index", json!("0"))]);
        all.push(vec![open(), with(text(), "content_index", json!("-1"))]);
        all.push(vec![
            json!({"type": "response.completed", "response": invalid == json!({}) || invalid == json!(5)}),
        ]);
        all.push(vec![with(
            open(),
            "item",
            json!({"type": "function_call", "call_id": invalid, "name": "f"}),
        )]);
    }
    all
}

#[test]
fn invalid_types_indexes_and_orders_are_malformed_at_every_split() {
    for events in invalid_events() {
        let stream = data(&created()) + &events.iter().map(data).collect::<String>();
        for cut in 0..stream.len() {
            let mut decoder = ResponsesDecoder::new();
            let (first, rest) = stream.as_bytes().split_at(cut);
            let result = decoder
                .push(Bytes::copy_from_slice(first), &mut Vec::new())
                .and_then(|()| decoder.push(Bytes::copy_from_slice(rest), &mut Vec::new()));
            assert_eq!(result.unwrap_err().kind, UpstreamErrorKind::Malformed, "{stream} cut at {cut}");
        }
    }
    let early = json!({"type": "response.completed", "response": {}});
    assert_eq!(decode(&data(&early)).unwrap_err().kind, UpstreamErrorKind::Malformed);
}

#[test]
fn failures_are_in_band_errors_and_the_window_is_the_client_s() {
    let failed = |code: &str, message: &str| {
        json!({"type": "response.failed", "response": {"object": "response", "status": "failed",
            "instructions": "The context_length of everything.", "error": {"code": code, "message": message}}})
    };
    for event in [
        failed("server_error", "It broke."),
        json!({"type": "error", "code": "server_error", "message": "It broke.", "param": null}),
        json!({"type": "error", "error": {"code": "server_error", "message": "It broke."}}),
        json!({"error": {"message": "It broke."}}),
        json!({"type": "response.completed", "response": {"status": "cancelled"}}),
    ] {
        let error = decode(&(data(&created()) + &data(&event))).unwrap_err();
        assert_eq!(error.kind, UpstreamErrorKind::InBandError, "{event}");
    }
    let message =
        "Your input exceeds the context window of this model. Please adjust your input and try again.";
    let code = "context_length_exceeded";
    let window = failed(code, message);
    let read = |body: &[u8]| {
        let body = Bytes::copy_from_slice(body);
        crate::decode::decode_buffered(Dialect::Responses, body, "id", &mut Vec::new())
    };
    let plain = [&window["response"], &json!({"error": {"code": code, "message": message}})]
        .map(|body| read(body.to_string().as_bytes()).unwrap_err());
    let streamed = [
        window.clone(),
        json!({"type": "error", "code": code, "message": message, "param": "input"}),
        json!({"type": "error", "error": {"code": code, "message": message}}),
    ]
    .map(|event| decode(&(data(&created()) + &data(&event))).unwrap_err());
    for error in plain.into_iter().chain(streamed) {
        assert_eq!(error.kind, UpstreamErrorKind::Caller);
        let request = FailedRequest { sent: b"{}", client: b"{}", max_input_tokens: 5 };
        let error = reclassify_in_band_error(error, 131_072, request);
        assert_eq!(error.kind, UpstreamErrorKind::Caller);
        assert_eq!(error.api_error.unwrap().code, penstock_core::ErrorCode::ContextLength);
    }
}

#[test]
fn too_many_items_calls_and_parts_are_output_of_the_model() {
    let many = |count: usize, event: &dyn Fn(u64) -> Value| {
        let events: String = (0..count as u64).map(|index| data(&event(index))).collect();
        let error = decode(&(data(&created()) + &events)).unwrap_err();
        let message = error.api_error.unwrap().message;
        assert!(
            message.contains("too many items, parts or tool calls, or a tool call with a name"),
            "{message}"
        );
        error.kind
    };
    let done = |item: Value| move |index| json!({"type": "response.output_item.done", "output_index": index, "item": item});
    let items = many(MAX_ITEMS + 1, &done(message()));
    let calls = many(crate::decode::MAX_TOOL_CALLS + 1, &done(call()));
    assert_eq!((items, calls), (UpstreamErrorKind::ModelOutput, UpstreamErrorKind::ModelOutput));
    let parts = many(
        MAX_ITEMS + 1,
        &|part| json!({"type": "response.output_text.done", "output_index": 0, "content_index": part, "text": format!("{part}.")}),
    );
    assert_eq!(parts, UpstreamErrorKind::ModelOutput);
    let mut long = call();
    long["name"] = json!("f".repeat(crate::decode::MAX_TOOL_NAME_BYTES + 1));
    assert_eq!(many(1, &done(long)), UpstreamErrorKind::ModelOutput);
    let mut empty = call();
    empty["name"] = json!("");
    assert_eq!(many(1, &done(empty)), UpstreamErrorKind::ModelOutput);
}

#[test]
fn a_body_that_is_cut_is_no_answer_wherever_that_is() {
    let body = r#"{"object":"response","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"Hi"}]}],"usage":{"input_tokens":6,"output_tokens":5}}"#;
    let read = |bytes: &[u8]| {
        crate::decode::decode_buffered(
            Dialect::Responses,
            Bytes::copy_from_slice(bytes),
            "id",
            &mut Vec::new(),
        )
    };
    assert!(read(body.as_bytes()).is_ok());
    for end in 0..body.len() {
        assert!(read(&body.as_bytes()[..end]).is_err(), "cut at {end}");
    }
    for invalid in [
        json!({"object": "response", "status": "completed"}),
        json!({"object": "response", "status": "completed", "output": {}}),
        json!({"object": "response", "status": 5, "output": []}),
        json!({"object": "response", "output": [5]}),
        json!({"object": "response", "output": [{"type": "message"}]}),
        json!({"object": "response", "output": [{"type": "message", "content": "Hi"}]}),
        json!({"object": "response", "output": [{"type": "message", "content": [{"type": "output_text"}]}]}),
        json!({"object": "chat.completion", "choices": []}),
    ] {
        let error = read(invalid.to_string().as_bytes()).unwrap_err();
        assert_eq!(error.kind, UpstreamErrorKind::Malformed, "{invalid}");
    }
}

#[test]
fn a_delta_without_the_event_that_adds_its_item_opens_the_item() {
    let output = json!([{"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "message", "content": [{"type": "output_text", "text": "Hello!"}]}]);
    let end = json!({"type": "response.completed", "response": {"status": "completed", "output": output}});
    let events = [
        created(),
        delta("reasoning_text", 0, "Hm."),
        delta("output_text", 1, "Hel"),
        delta("output_text", 1, "lo"),
        end,
    ];
    let stream: String = events.iter().map(data).collect();
    let whole = decode(&stream).unwrap();
    assert_eq!(texts(&whole), "Hm.Hello!");
    for cut in 0..stream.len() {
        let (mut decoder, mut events) = (ResponsesDecoder::new(), Vec::new());
        for piece in [&stream.as_bytes()[..cut], &stream.as_bytes()[cut..]] {
            decoder.push(Bytes::copy_from_slice(piece), &mut events).unwrap();
        }
        decoder.end(&mut events).unwrap();
        assert_eq!(texts(&events), "Hm.Hello!", "{cut}");
    }
}

#[test]
fn a_response_that_ends_with_a_failure_is_not_a_truncated_answer() {
    use FinishReason::{ContentFilter, ContextWindow, Length, Stop};
    let message = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "Hi", "annotations": []}]});
    let finish = |status: &str, reason: Value| {
        let response = json!({"object": "response", "status": status, "output": [message],
            "incomplete_details": {"reason": reason}});
        let end = json!({"type": "response.incomplete", "response": response});
        let streamed = decode(&[data(&created()), data(&end)].concat());
        let mut events = Vec::new();
        let buffered = decode_response(Bytes::from(response.to_string()), &mut events).map(|()| events);
        let [streamed, buffered] = [streamed, buffered].map(|events| {
            events.map_err(|error| error.kind).map(|events| {
                events.iter().find_map(|event| match event {
                    AnswerEvent::Finish { reason, .. } => Some(*reason),
                    _ => None,
                })
            })
        });
        assert_eq!(streamed, buffered, "{status} {reason}");
        streamed.map(Option::unwrap)
    };
    for (reason, expected) in [
        (json!("max_output_tokens"), Length),
        (json!("content_filter"), ContentFilter),
        (json!("safety"), ContentFilter),
        (json!("max_context_length"), ContextWindow),
        (json!("stop"), Length),
        (json!("new"), Length),
        (json!(null), Length),
    ] {
        assert_eq!(finish("incomplete", reason.clone()), Ok(expected), "{reason}");
    }
    for reason in ["error", "abort", "timeout", "cancelled", "server_error", "OutOfMemory"] {
        assert_eq!(finish("incomplete", json!(reason)), Err(UpstreamErrorKind::InBandError), "{reason}");
    }
    for (status, expected) in [("completed", Stop), ("truncated", Length), ("new", Stop)] {
        assert_eq!(finish(status, Value::Null), Ok(expected), "{status}");
    }
    for status in ["failed", "cancelled", "canceled", "expired", "aborted", "error"] {
        assert_eq!(finish(status, Value::Null), Err(UpstreamErrorKind::InBandError), "{status}");
    }
}
