//! Tests of blocks with an index or an id that clients do not accept, for clients of every dialect.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use crate::{conformance, find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;
use penstock_request_validation::{RequestLimits, ResponsesPurpose, validate_responses_request};
use serde_json::{Value, json};
use std::collections::HashSet;

const CLIENTS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];

fn request(client: Dialect) -> InferenceRequest {
    if client == Dialect::Responses {
        let body = Bytes::from_static(br#"{"model":"m","input":"Hi","stream":true}"#);
        return validate_responses_request(body, &RequestLimits::default(), ResponsesPurpose::Generate)
            .unwrap();
    }
    let body = br#"{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"Hi"}]}"#;
    test_support::sample_request(client, body)
}

/// Returns a stream of a text block and two tool calls. `indices` are the indices of the three blocks, and `ids` are
/// the ids of the calls.
fn stream(indices: [usize; 3], ids: &[Value]) -> String {
    let event = |data: Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "x", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 3, "output_tokens": 0,
            "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}});
    let mut stream = event(json!({"type": "message_start", "message": message}));
    let call = |name: &str, id: &Value| {
        let mut block = json!({"type": "tool_use", "name": name, "input": {}});
        if *id != "absent" {
            block["id"] = id.clone();
        }
        block
    };
    let json_delta = |text: &str| json!({"type": "input_json_delta", "partial_json": text});
    let blocks = [
        (json!({"type": "text", "text": ""}), json!({"type": "text_delta", "text": "Hello"})),
        (call("f", &ids[0]), json_delta("{\"x\":1}")),
        (call("f", &ids[1]), json_delta("{\"y\":2}")),
    ];
    for (index, (block, delta)) in indices.into_iter().zip(blocks) {
        stream += &event(json!({"type": "content_block_start", "index": index, "content_block": block}));
        stream += &event(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        stream += &event(json!({"type": "content_block_stop", "index": index}));
    }
    stream += &event(json!({"type": "message_delta", "usage": {"output_tokens": 3},
        "delta": {"stop_reason": "tool_use", "stop_sequence": null}}));
    stream + &event(json!({"type": "message_stop"}))
}

/// Runs the stream through the translator at every split and returns the ids of the calls.
fn streamed_ids(client: Dialect, stream: &str) -> Vec<String> {
    let (ask, abilities) = (request(client), OfferCapabilities::default());
    let target = test_support::sample_target(Dialect::Messages, &abilities);
    let pair = find_translator(client, Dialect::Messages).unwrap();
    let run = test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), stream.as_bytes());
    let out = String::from_utf8(run.out).unwrap();
    assert_eq!((run.fault, run.finish_reason), (None, Some(FinishReason::ToolCalls)), "{out}");
    let checked = conformance::check_stream(client, out.as_bytes(), false);
    assert_eq!(checked, Ok(()), "{client:?}: {out}");
    let data = out.lines().filter_map(|line| line.strip_prefix("data: {"));
    let events = data.map(|data| serde_json::from_str::<Value>(&format!("{{{data}")).unwrap());
    let mut ids = Vec::new();
    for event in events {
        let id = match client {
            Dialect::Chat => &event["choices"][0]["delta"]["tool_calls"][0]["id"],
            Dialect::Messages => &event["content_block"]["id"],
            Dialect::Responses if event["type"] == "response.output_item.added" => &event["item"]["call_id"],
            _ => &Value::Null,
        };
        ids.extend(id.as_str().map(str::to_owned));
    }
    assert!(out.contains("Hello") && out.contains("x") && out.contains("y"), "{out}");
    ids
}

#[test]
fn a_block_that_starts_after_the_end_of_another_is_new_whatever_its_index() {
    let ids = [json!("toolu_1"), json!("toolu_2")];
    for client in CLIENTS {
        for indices in [[0, 1, 2], [0, 0, 0], [0, 0, 1], [0, 5, 2], [0, 1, 1]] {
            let found = streamed_ids(client, &stream(indices, &ids));
            assert_eq!(found, ["toolu_1", "toolu_2"], "{client:?} {indices:?}");
        }
    }
}

#[test]
fn calls_without_an_id_get_one() {
    for client in CLIENTS {
        for id in [json!(""), Value::Null, json!("absent")] {
            let found = streamed_ids(client, &stream([0, 1, 2], &[id.clone(), id.clone()]));
            let unlike: HashSet<&String> = found.iter().collect();
            assert_eq!((found.len(), unlike.len()), (2, 2), "{client:?} {id}");
            assert!(found.iter().all(|id| id.len() > 8), "{found:?}");
            let mut call = json!({"type": "tool_use", "name": "f", "input": {}});
            if id != "absent" {
                call["id"] = id.clone();
            }
            let body = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "x",
                "content": [call, call], "stop_reason": "tool_use", "stop_sequence": null,
                "usage": {"input_tokens": 3, "output_tokens": 3}});
            let (ask, abilities) = (request(client), OfferCapabilities::default());
            let target = test_support::sample_target(Dialect::Messages, &abilities);
            let pair = find_translator(client, Dialect::Messages).unwrap();
            let answer = pair.translate_buffered(&ask, &target, Bytes::from(body.to_string())).unwrap();
            let answer = String::from_utf8(answer.body.concat()).unwrap();
            assert!(found.iter().all(|id| answer.contains(id.as_str())), "{client:?}: {answer} {found:?}");
        }
    }
}

#[test]
fn a_call_with_an_id_that_is_no_text_is_malformed_and_one_without_a_name_is_the_models_fault() {
    let start = r#"data: {"type":"message_start","message":{}}"#;
    for (mut block, kind) in [
        (json!({"id": 5, "name": "f"}), UpstreamErrorKind::Malformed),
        (json!({"id": "a"}), UpstreamErrorKind::ModelOutput),
        (json!({"id": "a", "name": ""}), UpstreamErrorKind::ModelOutput),
    ] {
        block["type"] = json!("tool_use");
        let event = json!({"type": "content_block_start", "index": 0, "content_block": block});
        let stream = format!("{start}\n\ndata: {event}\n\n");
        let mut decoder = crate::decode::new_decoder(Dialect::Messages, "id");
        let error = decoder.push(Bytes::from(stream), &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind, kind, "{block}");
    }
}
