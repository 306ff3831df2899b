//! Tests of the streams of background responses, which are made from the response object. They follow the grammar of
//! live streams, can be continued after every event, and give the same events however their bytes are split.

use super::{admitted_request, event_types, events};
use crate::background_response::{
    BackgroundResponseState, ResponseFailure, ResponseReplay, with_background_state,
};
use crate::{conformance, find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;
use penstock_request_validation::{RequestLimits, ResponsesPurpose, validate_responses_request_with_storage};
use serde_json::{Value, json};
use std::path::Path;

fn background_request(more: &Value) -> InferenceRequest {
    let mut body = json!({"model": "m", "input": "Hi", "background": true, "stream": true});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let storage = StoredResponseAccess {
        store_permission: ResponseStorePermission::Allowed,
        ..StoredResponseAccess::default()
    };
    let body = Bytes::from(body.to_string());
    let ask = validate_responses_request_with_storage(
        body,
        &RequestLimits::default(),
        ResponsesPurpose::Generate,
        &storage,
    )
    .unwrap();
    assert!(ask.stream && ask.responses.as_ref().unwrap().in_background);
    ask
}

/// Response to a provider's buffered answer; `None` if the answer is refused.
fn response_of(ask: &InferenceRequest, provider: Dialect, answer: &[u8]) -> Option<Vec<u8>> {
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(provider, &abilities);
    let pair = find_translator(Dialect::Responses, provider).unwrap();
    let answer = pair.translate_buffered(ask, &target, Bytes::copy_from_slice(answer)).ok()?;
    let mut response = answer.body.concat();
    response.pop();
    response.extend_from_slice(br#","environment_impact":{"energy_kwh":1},"billing_cost":{"credits":1}}"#);
    Some(response)
}

/// Writes all pieces that a response has now.
fn write_all(replay: &mut ResponseReplay, response: &[u8], out: &mut Vec<u8>) {
    let mut pieces = replay.pieces(response);
    while pieces.write_next(out) {}
    assert!(!pieces.write_next(out), "it has ended");
}

fn replay(response: &[u8], after: Option<u64>) -> String {
    let (mut replay, mut out) = (ResponseReplay::new(after), Vec::new());
    write_all(&mut replay, response, &mut out);
    String::from_utf8(out).unwrap()
}

/// Checks the stream of an ended response, and its continuation after each event. Returns the events.
fn checked(response: &[u8]) -> Vec<Value> {
    let whole = replay(response, None);
    assert_eq!(conformance::check_responses_stream(whole.as_bytes()), Ok(()), "{whole}");
    let all = events(&whole);
    let object: Value = serde_json::from_slice(response).unwrap();
    assert_eq!(all.last().unwrap()["response"], object);
    let texts: Vec<&str> = whole.split_inclusive("\n\n").collect();
    for (number, event) in all.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
        assert_eq!(replay(response, Some(number as u64)), texts[number + 1..].concat());
    }
    assert_eq!(replay(response, Some(u64::MAX)), "");
    all
}

#[test]
fn the_stream_of_every_known_answer_follows_the_grammar_from_every_event() {
    let mut count = 0;
    let ask = background_request(&json!({}));
    for (pair, provider) in [
        ("chat_chat", Dialect::Chat),
        ("messages_chat", Dialect::Chat),
        ("chat_messages", Dialect::Messages),
        ("messages_messages", Dialect::Messages),
    ] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(pair);
        for entry in std::fs::read_dir(folder).unwrap() {
            let answer = std::fs::read(entry.unwrap().path().join("got.json"));
            if let Some(response) = answer.ok().and_then(|answer| response_of(&ask, provider, &answer)) {
                checked(&response);
                count += 1;
            }
        }
    }
    assert!(count > 30, "{count} answers");
}

fn chat_answer(message: Value, finish: &str) -> Vec<u8> {
    json!({"id": "c", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}})
    .to_string()
    .into_bytes()
}

#[test]
fn each_kind_of_item_has_the_events_of_a_live_stream() {
    let function = |name: &str| json!({"type": "function", "name": name, "parameters": {"type": "object"}});
    let tools = json!({"tools": [function("look"), {"type": "custom", "name": "run"}],
        "include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"}});
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    for (message, finish) in [
        (json!({"role": "assistant", "content": "Grüße \u{1f389} \"quoted\"\n"}), "stop"),
        (json!({"role": "assistant", "content": ""}), "stop"),
        (json!({"role": "assistant", "content": null, "refusal": "No."}), "stop"),
        (json!({"role": "assistant", "content": "Cut", "reasoning_content": "Think."}), "length"),
        (
            json!({"role": "assistant", "content": "Now", "reasoning_content": "Think.", "tool_calls": [
                call("call_1", "look", "{\"at\":\"π\"}"), call("call_2", "run", "{\"input\":\"ls \\\"x\\\"\"}"),
                call("call_3", "look", "")]}),
            "tool_calls",
        ),
    ] {
        for more in [&json!({}), &tools] {
            let (answer, ask) = (chat_answer(message.clone(), finish), background_request(more));
            let shown = checked(&response_of(&ask, Dialect::Chat, &answer).unwrap());
            // The same answer as a live stream, whose deltas may be cut elsewhere.
            let mut live = more.clone();
            live.as_object_mut()
                .unwrap()
                .extend(json!({"model": "m", "input": "Hi", "stream": true}).as_object().unwrap().clone());
            let mut delta = message.clone();
            for (index, call) in delta["tool_calls"].as_array_mut().into_iter().flatten().enumerate() {
                call["index"] = index.into();
            }
            let chunk = json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
            let usage = json!({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}});
            let stream = format!("data: {chunk}\n\ndata: {usage}\n\ndata: [DONE]\n\n");
            let live = super::stream_events(&admitted_request(&live), Dialect::Chat, stream.as_bytes());
            let mut expected = event_types(&live);
            expected.insert(1, "response.queued");
            assert_eq!(event_types(&shown), expected, "{message}");
            let done = |events: &[Value]| -> Vec<Value> {
                let ends = events.iter().filter(|event| event["type"] == "response.output_item.done");
                ends.map(|event| event["item"].clone()).collect()
            };
            assert_eq!(done(&shown), done(&live));
            let added = shown.iter().filter(|event| event["type"] == "response.output_item.added");
            assert!(added.clone().count() > 0);
            assert!(added.clone().all(|event| event["item"].get("encrypted_content").is_none()));
        }
    }
}

#[test]
fn a_response_without_an_answer_ends_after_its_start() {
    let ask = background_request(&json!({}));
    let answer = chat_answer(json!({"role": "assistant", "content": "Hi"}), "stop");
    let response = response_of(&ask, Dialect::Chat, &answer).unwrap();
    let failure = ResponseFailure::server_error("It broke.");
    for (state, expected) in [
        (BackgroundResponseState::Queued, &["response.created", "response.queued"][..]),
        (
            BackgroundResponseState::InProgress,
            &["response.created", "response.queued", "response.in_progress"],
        ),
        (
            BackgroundResponseState::Cancelled,
            &["response.created", "response.queued", "response.in_progress", "response.failed"],
        ),
        (
            BackgroundResponseState::Failed(failure),
            &["response.created", "response.queued", "response.in_progress", "response.failed"],
        ),
    ] {
        let is_ended = expected.len() == 4;
        let object = with_background_state(&response, &state);
        let shown = if is_ended { checked(&object) } else { events(&replay(&object, None)) };
        assert_eq!(event_types(&shown), expected);
        if state == BackgroundResponseState::Cancelled {
            assert_eq!(shown[3]["response"]["status"], "cancelled");
        }
    }
}

#[test]
fn a_replay_goes_on_when_the_state_changes() {
    let ask = background_request(&json!({}));
    let answer = chat_answer(json!({"role": "assistant", "content": "Hi"}), "stop");
    let ended = response_of(&ask, Dialect::Chat, &answer).unwrap();
    let (mut replay_in_steps, mut out) = (ResponseReplay::new(None), Vec::new());
    for response in [
        with_background_state(&ended, &BackgroundResponseState::Queued),
        with_background_state(&ended, &BackgroundResponseState::InProgress),
        ended.clone(),
    ] {
        write_all(&mut replay_in_steps, &response, &mut out);
    }
    assert_eq!(String::from_utf8(out).unwrap(), replay(&ended, None));
    let (mut replay_by_piece, mut out) = (ResponseReplay::new(None), Vec::new());
    while replay_by_piece.pieces(&ended).write_next(&mut out) {}
    assert_eq!(String::from_utf8(out).unwrap(), replay(&ended, None));
}

#[test]
fn an_error_has_the_number_of_the_last_event_that_the_client_has() {
    let ask = background_request(&json!({}));
    let answer = chat_answer(json!({"role": "assistant", "content": "Hi"}), "stop");
    let ended = response_of(&ask, Dialect::Chat, &answer).unwrap();
    let pending = with_background_state(&ended, &BackgroundResponseState::InProgress);
    for (after, number) in [(None, 2), (Some(1), 2), (Some(7), 7)] {
        let (mut replay, mut out) = (ResponseReplay::new(after), Vec::new());
        write_all(&mut replay, &pending, &mut out);
        out.clear();
        replay.write_error(&ApiError::new(ErrorCode::Internal), &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("event: error\ndata: ") && text.ends_with("}\n\n"), "{text}");
        let message = ErrorCode::Internal.spec().message;
        let expected = json!({"type": "error", "sequence_number": number, "code": "server_error",
            "message": message, "param": null});
        assert_eq!(events(&text), [expected]);
    }
}

#[test]
fn a_stream_is_read_alike_at_every_split() {
    let ask = background_request(&json!({}));
    let message = json!({"role": "assistant", "content": "Grüße \u{1f389}", "reasoning_content": "Think."});
    let stream = replay(&response_of(&ask, Dialect::Chat, &chat_answer(message, "stop")).unwrap(), None);
    let reader = admitted_request(&json!({"model": "m", "input": "Hi", "stream": true}));
    let read = super::stream_events(&reader, Dialect::Responses, stream.as_bytes());
    let output = &read.last().unwrap()["response"]["output"];
    assert_eq!(output[1]["content"][0]["text"], "Grüße \u{1f389}", "{output}");
}
