//! Tests of answers and errors whose members have other names or positions, for clients of every dialect.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use crate::stream_format_tests::sample_request;
use crate::{conformance, find_translator, test_support};
use bytes::Bytes;
use penstock_core::{Dialect, FinishReason, OfferCapabilities, UpstreamErrorKind};
use serde_json::{Value, json};

const CLIENTS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];

/// Translates a stream of these chunks; asserts that output and error are the same wherever the stream is split.
fn translate(client: Dialect, chunks: &[Value]) -> (String, Option<UpstreamErrorKind>, Option<FinishReason>) {
    let mut stream: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    stream.push_str("data: [DONE]\n\n");
    let (ask, abilities) = (sample_request(client, true), OfferCapabilities::default());
    let target = test_support::sample_target(Dialect::Chat, &abilities);
    let pair = find_translator(client, Dialect::Chat).unwrap();
    let run = test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), stream.as_bytes());
    let out = String::from_utf8(run.out).unwrap();
    if !out.is_empty() {
        assert_eq!(conformance::check_stream(client, out.as_bytes(), false), Ok(()), "{client:?}: {out}");
    }
    (out, run.fault, run.finish_reason)
}

/// Translates a buffered answer for a client; returns the body, or the kind of the error.
fn translate_plain(client: Dialect, body: &[u8]) -> Result<Value, UpstreamErrorKind> {
    let (ask, abilities) = (sample_request(client, false), OfferCapabilities::default());
    let target = test_support::sample_target(Dialect::Chat, &abilities);
    let pair = find_translator(client, Dialect::Chat).unwrap();
    let answer = pair.translate_buffered(&ask, &target, Bytes::copy_from_slice(body));
    answer.map(|answer| serde_json::from_slice(&answer.body.concat()).unwrap()).map_err(|error| error.kind)
}

fn delta(delta: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta}]})
}

fn finish(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn call(function: Value) -> Value {
    delta(json!({"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": function}]}))
}

fn message(message: Value, reason: &str) -> Vec<u8> {
    json!({"choices": [{"index": 0, "message": message, "finish_reason": reason}]}).to_string().into_bytes()
}

#[test]
fn an_error_without_the_member_error_ends_a_stream() {
    let errors = [
        json!({"code": 500, "message": "boom"}),
        json!({"detail": "boom"}),
        json!({"text": "boom", "error_code": 50001}),
        json!({"errors": [{"message": "boom"}]}),
        json!({"code": "1302", "msg": "boom", "success": false}),
        json!({"statusCode": 500, "message": "boom"}),
        json!({"status": 500, "title": "Internal"}),
        json!({"choices": [], "message": "boom"}),
        json!({"choices": null, "base_resp": {"status_code": 1002, "status_msg": "rate limit"}}),
        json!({"choices": [{"index": 0, "delta": {}, "error": {"code": 502, "message": "boom"}}]}),
        json!({"choices": [{"index": 0, "delta": {"content": ""}}], "x_groq": {"error": "boom"}}),
    ];
    for client in CLIENTS {
        for error in &errors {
            let (out, fault, _) =
                translate(client, &[delta(json!({"content": "Hel"})), error.clone(), finish("stop")]);
            assert_eq!(fault, Some(UpstreamErrorKind::InBandError), "{client:?}: {error}: {out}");
            let plain = translate_plain(client, error.to_string().as_bytes());
            assert_eq!(plain, Err(UpstreamErrorKind::InBandError), "{client:?}: {error}");
        }
        for harmless in [
            json!({}),
            json!({"choices": [], "code": 0, "message": "Success"}),
            json!({"choices": [], "status": 200, "message": "ok"}),
            json!({"choices": [], "detail": null, "errors": [], "message": ""}),
            json!({"choices": [{"index": 0, "delta": {}, "error": null}], "message": "note"}),
            json!({"choices": [], "base_resp": {"status_code": 0, "status_msg": ""}}),
        ] {
            let (out, fault, _) =
                translate(client, &[delta(json!({"content": "Hel"})), harmless.clone(), finish("stop")]);
            assert_eq!(fault, None, "{client:?}: {harmless}: {out}");
        }
    }
}

#[test]
fn calls_in_other_positions_and_under_other_names_are_calls() {
    let function = json!({"name": "f", "arguments": "{\"x\":1}"});
    let whole = json!({"tool_calls": [{"id": "a", "type": "function", "function": function}]});
    let last =
        json!({"choices": [{"index": 0, "delta": {}, "message": whole, "finish_reason": "tool_calls"}]});
    let flat = json!({"index": 0, "id": "a", "name": "f", "arguments": "{\"x\":1}"});
    let flat_rest = json!({"index": 0, "arguments": ":1}"});
    let flat_first = json!({"index": 0, "id": "a", "name": "f", "arguments": "{\"x\""});
    let end = finish("tool_calls");
    let snapshots = ["{\"x\"", "{\"x\":1", "{\"x\":1}", "{\"x\":1}"];
    let snapshots = snapshots.map(|text| call(json!({"name": "f", "arguments": text})));
    let cases = [
        vec![delta(json!({"content": "Text"})), last.clone()],
        // The last chunk has a message that repeats the call of the stream.
        vec![call(function.clone()), last],
        vec![delta(json!({"tool_calls": [flat]})), end.clone()],
        vec![
            delta(json!({"tool_calls": [flat_first]})),
            delta(json!({"tool_calls": [flat_rest]})),
            end.clone(),
        ],
        vec![call(json!({"name": "f", "parameters": {"x": 1}})), end.clone()],
        vec![call(json!({"name": "f", "arguments": "", "parameters": "{\"x\":1}"})), end.clone()],
        snapshots.into_iter().chain([end.clone()]).collect(),
        // The last chunk repeats the whole call.
        vec![
            call(json!({"name": "f", "arguments": "{\"x\""})),
            call(json!({"arguments": ":1}"})),
            call(function),
            end,
        ],
    ];
    for client in CLIENTS {
        for chunks in &cases {
            let (out, fault, reason) = translate(client, chunks);
            assert_eq!((fault, reason), (None, Some(FinishReason::ToolCalls)), "{chunks:?}: {out}");
            assert_eq!(arguments_of_calls(client, &out), ["{\"x\":1}"], "{client:?}: {chunks:?}");
        }
        let body = message(
            json!({"tool_calls": [{"id": "a", "function": {"name": "f", "parameters": {"x": 1}}}]}),
            "stop",
        );
        assert!(translate_plain(client, &body).unwrap().to_string().contains('x'), "{client:?}");
    }
}

/// Returns the arguments of each call in the output of a stream.
fn arguments_of_calls(client: Dialect, out: &str) -> Vec<String> {
    let mut calls: Vec<String> = Vec::new();
    let data = out.lines().filter_map(|line| line.strip_prefix("data: {"));
    for event in data.map(|data| serde_json::from_str::<Value>(&format!("{{{data}")).unwrap()) {
        let (is_start, piece) = match client {
            Dialect::Chat => {
                let call = &event["choices"][0]["delta"]["tool_calls"][0];
                (call["id"].is_string(), &call["function"]["arguments"])
            }
            Dialect::Messages => {
                (event["content_block"]["type"] == "tool_use", &event["delta"]["partial_json"])
            }
            _ => {
                let is_done = event["type"] == "response.function_call_arguments.done";
                (is_done, if is_done { &event["arguments"] } else { &Value::Null })
            }
        };
        if is_start {
            calls.push(String::new());
        }
        if let (Some(call), Some(piece)) = (calls.last_mut(), piece.as_str()) {
            call.push_str(piece);
        }
    }
    calls
}

#[test]
fn a_snapshot_behind_continuations_is_an_error_and_nested_arguments_are_none() {
    let stream = |texts: &[&str]| {
        let calls = texts.iter().map(|text| call(json!({"name": "f", "arguments": text})));
        calls.chain([finish("tool_calls")]).collect::<Vec<_>>()
    };
    for client in CLIENTS {
        // The second fragment may continue the arguments with a nested object. The third one proves that both are
        // snapshots.
        let (_, fault, _) = translate(client, &stream(&["{\"a\":", "{\"a\":1", "{\"a\":1}"]));
        assert_eq!(fault, Some(UpstreamErrorKind::ModelOutput), "{client:?}");
        let (out, fault, _) = translate(client, &stream(&["{\"a\":", "{\"a\":", "{\"a\":1", "}}}"]));
        assert_eq!(fault, None, "{client:?}");
        assert_eq!(arguments_of_calls(client, &out), ["{\"a\":{\"a\":{\"a\":1}}}"], "{client:?}");
    }
}

#[test]
fn reasoning_is_read_under_every_name_and_in_every_form() {
    let details =
        json!([{"type": "reasoning.text", "text": "Think"}, {"type": "reasoning.encrypted", "data": "x"}]);
    let cases = [
        json!({"thinking": "Think"}),
        json!({"reasoning_text": "Think"}),
        json!({"reasoning_details": details}),
        json!({"reasoning_details": [{"type": "reasoning.summary", "summary": "Think"}]}),
        json!({"reasoning": {"content": "Think"}}),
        json!({"reasoning_content": {"text": "Think"}}),
        json!({"reasoning_content": [{"type": "text", "text": "Think"}]}),
        json!({"reasoning": "Think", "reasoning_details": details}),
        json!({"thinking": {"thinking": "Think"}}),
    ];
    for members in cases {
        for client in [Dialect::Chat, Dialect::Responses] {
            let (out, fault, _) = translate(
                client,
                &[delta(members.clone()), delta(json!({"content": "Text"})), finish("stop")],
            );
            assert_eq!(fault, None, "{client:?}: {members}");
            let is_delta = |line: &&str| client == Dialect::Chat || line.contains(".delta\"");
            let count = out.lines().filter(is_delta).filter(|line| line.contains("Think")).count();
            assert_eq!(count, 1, "{client:?}: {members}: {out}");
            let mut whole = members.clone();
            whole["content"] = json!("Text");
            let plain = translate_plain(client, &message(whole, "stop")).unwrap();
            assert_eq!(plain.to_string().matches("Think").count(), 1, "{client:?}: {members}: {plain}");
        }
    }
    for ignored in [json!({"thinking": true}), json!({"reasoning": {}}), json!({"reasoning_details": []})] {
        let chunks = [delta(ignored.clone()), delta(json!({"content": "Text"})), finish("stop")];
        assert_eq!(translate(Dialect::Chat, &chunks).1, None, "{ignored}");
    }
}

#[test]
fn a_last_message_gives_only_what_its_stream_did_not() {
    let whole = json!({"content": "Text", "reasoning_content": "Think"});
    let last = json!({"choices": [{"index": 0, "delta": {}, "message": whole, "finish_reason": "stop"}]});
    let text = delta(json!({"content": "Text"}));
    let reasoning = delta(json!({"reasoning_content": "Think"}));
    for chunks in [vec![last.clone()], vec![text.clone(), last.clone()], vec![reasoning, text, last]] {
        let (out, fault, _) = translate(Dialect::Chat, &chunks);
        assert_eq!(fault, None);
        assert_eq!((out.matches("Text").count(), out.matches("Think").count()), (1, 1), "{out}");
    }
}

#[test]
fn an_empty_finish_reason_is_no_end_in_both_formats() {
    for client in CLIENTS {
        let (_, fault, _) = translate(client, &[delta(json!({"content": "Hel"})), finish("")]);
        assert_eq!(fault, Some(UpstreamErrorKind::Truncated), "{client:?}");
        let plain = translate_plain(client, &message(json!({"content": "Hel"}), ""));
        assert_eq!(plain, Err(UpstreamErrorKind::Truncated), "{client:?}");
    }
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_plain_answer() {
    for client in CLIENTS {
        let body = [b"\xef\xbb\xbf", &message(json!({"content": "Hello"}), "stop")[..]].concat();
        assert!(translate_plain(client, &body).unwrap().to_string().contains("Hello"), "{client:?}");
    }
}

#[test]
fn an_object_with_the_whole_answer_after_its_deltas_repeats_nothing() {
    let tools = json!([{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]);
    let whole = |message: Value, reason: &str| {
        json!({"object": "chat.completion", "usage": {"prompt_tokens": 3, "completion_tokens": 2},
            "choices": [{"index": 0, "message": message, "finish_reason": reason}]})
    };
    let (first, second) = (delta(json!({"content": "Hel"})), delta(json!({"content": "lo"})));
    let text = whole(json!({"role": "assistant", "content": "Hello"}), "stop");
    let with_call = whole(json!({"content": "Hello", "tool_calls": tools}), "tool_calls");
    let called = call(json!({"name": "f", "arguments": "{}"}));
    for client in CLIENTS {
        for (chunks, calls) in [
            (vec![first.clone(), second.clone(), text.clone()], false),
            (vec![first.clone(), second.clone(), finish("stop"), text.clone()], false),
            (vec![first.clone(), second.clone(), with_call.clone()], true),
            (vec![first.clone(), second.clone(), called.clone(), with_call.clone()], true),
        ] {
            let (out, fault, reason) = translate(client, &chunks);
            assert_eq!(fault, None, "{client:?}: {chunks:?}");
            let expected = if calls { FinishReason::ToolCalls } else { FinishReason::Stop };
            assert_eq!(reason, Some(expected), "{client:?}: {out}");
            let is_repeated = client != Dialect::Responses && out.contains("Hello");
            assert!(!is_repeated, "{client:?}: {out}");
        }
        let role = delta(json!({"role": "assistant"}));
        let (out, fault, _) = translate(client, &[role, text.clone()]);
        assert!(fault.is_none() && out.contains("Hello"), "the only text: {client:?}: {out}");
        let piece = json!({"choices": [{"index": 0, "message": {"content": "Hel"}}]});
        let last =
            json!({"choices": [{"index": 0, "message": {"content": "p me"}, "finish_reason": "stop"}]});
        let (out, fault, _) = translate(client, &[piece, last]);
        assert!(fault.is_none() && out.contains("p me"), "pieces in messages: {client:?}: {out}");
    }
}
