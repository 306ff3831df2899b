//! Streams of providers: those of the other pairs' golden cases, and rules for single events.

use super::{admitted_request, event_types, stream_events};
use crate::{conformance, find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;
use serde_json::{Value, json};
use std::path::Path;

fn simple_request() -> InferenceRequest {
    admitted_request(&json!({"model": "m", "input": "Hi", "stream": true}))
}

fn chunk(delta: Value, finish: Option<&str>) -> String {
    format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}))
}

#[test]
fn every_known_provider_stream_follows_the_grammar_at_every_split() {
    let mut count = 0;
    for (pair, provider) in [
        ("chat_chat", Dialect::Chat),
        ("messages_chat", Dialect::Chat),
        ("chat_messages", Dialect::Messages),
        ("messages_messages", Dialect::Messages),
    ] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(pair);
        for entry in std::fs::read_dir(folder).unwrap() {
            let folder = entry.unwrap().path();
            let ask = simple_request();
            let abilities = OfferCapabilities::default();
            let target = test_support::sample_target(provider, &abilities);
            let translator = find_translator(Dialect::Responses, provider).unwrap();
            if let Ok(got) = std::fs::read(folder.join("got.sse")) {
                count += 1;
                let run = test_support::run_all_splits(&|| translator.translate_stream(&ask, &target), &got);
                let checked =
                    if run.out.is_empty() { Ok(()) } else { conformance::check_responses_stream(&run.out) };
                assert_eq!(checked, Ok(()), "{}: {}", folder.display(), String::from_utf8_lossy(&run.out));
            }
            if let Ok(got) = std::fs::read(folder.join("got.json"))
                && let Ok(answer) = translator.translate_buffered(&ask, &target, Bytes::from(got))
            {
                count += 1;
                let body = serde_json::from_slice(&answer.body.concat()).unwrap();
                assert_eq!(conformance::check_response(&body), Ok(()), "{}: {body}", folder.display());
            }
        }
    }
    assert!(count > 100, "{count} answers");
}

#[test]
fn the_last_event_has_the_objects_and_the_whole_output() {
    let stream = chunk(json!({"content": "Hel"}), None)
        + &chunk(json!({"content": "lo"}), None)
        + &chunk(json!({}), Some("stop"))
        + "data: [DONE]\n\n";
    let events = stream_events(&simple_request(), Dialect::Chat, stream.as_bytes());
    assert_eq!(
        event_types(&events),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    let response = &events.last().unwrap()["response"];
    assert_eq!(response["output"][0]["content"][0]["text"], "Hello");
    assert!(response["environment_impact"]["energy_kwh"].is_number(), "{response}");
    assert!(response["billing_cost"]["credits"].is_number());
}

#[test]
fn an_answer_cut_by_its_limit_is_incomplete() {
    for (finish, reason) in [("length", "max_output_tokens"), ("content_filter", "content_filter")] {
        let stream = chunk(json!({"content": "Hel"}), None) + &chunk(json!({}), Some(finish));
        let events = stream_events(&simple_request(), Dialect::Chat, stream.as_bytes());
        let last = events.last().unwrap();
        assert_eq!(last["type"], "response.incomplete");
        assert_eq!(last["response"]["incomplete_details"]["reason"], reason);
        assert_eq!(last["response"]["output"][0]["status"], "incomplete");
    }
}

#[test]
fn an_answer_without_content_has_an_empty_message() {
    let stream = chunk(json!({"content": ""}), None) + &chunk(json!({}), Some("stop")) + "data: [DONE]\n\n";
    let events = stream_events(&simple_request(), Dialect::Chat, stream.as_bytes());
    assert_eq!(events.last().unwrap()["response"]["output"][0]["content"][0]["text"], "");
}

#[test]
fn a_stream_that_breaks_fails_with_what_was_written() {
    let stream = chunk(json!({"content": "Hel"}), None);
    let events = stream_events(&simple_request(), Dialect::Chat, stream.as_bytes());
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["response"]["status"]), (&json!("response.failed"), &json!("failed")));
    assert_eq!(last["response"]["error"]["code"], "server_error");
    assert_eq!(last["response"]["output"][0]["content"][0]["text"], "Hel");
}

#[test]
fn a_failed_stream_whose_part_is_charged_states_its_cost_in_every_dialect() {
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(Dialect::Chat, &abilities);
    for dialect in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
        let body = br#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}"#;
        let ask = match dialect {
            Dialect::Responses => simple_request(),
            _ => test_support::sample_request(dialect, body),
        };
        let mut reply = find_translator(dialect, Dialect::Chat).unwrap().translate_stream(&ask, &target);
        let mut out = OutputBuffer::default();
        reply.push(chunk(json!({"content": "Hel"}), None).into(), &mut out).unwrap();
        let refusal = ApiError::new(ErrorCode::Unavailable);
        reply.write_error(&refusal, "req_1", test_support::SAMPLE_PENSTOCK_OBJECTS, &mut out);
        let text = String::from_utf8(out.0.concat()).unwrap().replace("data: [DONE]", "");
        let events = super::events(&text);
        let failed = events.last().unwrap();
        let holder = if dialect == Dialect::Responses { &failed["response"] } else { failed };
        assert_eq!(holder["billing_cost"]["credits"].to_string(), "0.034", "{dialect:?} {failed}");
        if dialect == Dialect::Responses {
            assert_eq!(failed["type"], "response.failed");
            assert_eq!(failed["sequence_number"], events.len() - 1);
        }
    }
}

#[test]
fn an_error_before_the_start_is_an_event_of_its_own() {
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(Dialect::Chat, &abilities);
    let mut reply = find_translator(Dialect::Responses, Dialect::Chat)
        .unwrap()
        .translate_stream(&simple_request(), &target);
    let mut out = OutputBuffer::default();
    reply.write_error(&ApiError::context_length_exceeded(10, 20), "req_1", b"", &mut out);
    let events = super::events(&String::from_utf8(out.0.concat()).unwrap());
    assert_eq!(events[0]["code"], "context_length_exceeded");
    assert_eq!(conformance::check_responses_stream(&out.0.concat()), Ok(()));
}

#[test]
fn reasoning_is_content_or_a_summary_and_is_sealed_on_request() {
    let stream = chunk(json!({"reasoning_content": "Hm "}), None)
        + &chunk(json!({"reasoning_content": "\u{1F600}"}), None)
        + &chunk(json!({"content": "Yes"}), None)
        + &chunk(json!({}), Some("stop"));
    for (summary, sealed) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut body = json!({"model": "m", "input": "Hi", "stream": true});
        if summary {
            body["reasoning"] = json!({"summary": "auto"});
        }
        if sealed {
            body["include"] = json!(["reasoning.encrypted_content"]);
        }
        let ask = admitted_request(&body);
        let events = stream_events(&ask, Dialect::Chat, stream.as_bytes());
        let item = &events.last().unwrap()["response"]["output"][0];
        let list = if summary { "summary" } else { "content" };
        assert_eq!(item[list][0]["text"], "Hm \u{1F600}");
        match item["encrypted_content"].as_str() {
            Some(text) => assert_eq!(decode_opaque_reasoning(text).as_deref(), Some("Hm \u{1F600}")),
            None => assert!(!sealed, "{item}"),
        }
        // The client sends the reasoning item back, and the provider receives its text.
        let again = json!({"model": "m", "input": [{"role": "user", "content": "Hi"}, item,
            events.last().unwrap()["response"]["output"][1], {"role": "user", "content": "More"}]});
        let again = admitted_request(&again);
        let messages: Value = serde_json::from_slice(again.member_value("messages").unwrap()).unwrap();
        let answer = json!({"role": "assistant", "content": "Yes", "reasoning_content": "Hm \u{1F600}"});
        assert_eq!(messages[1], answer);
    }
}

#[test]
fn a_custom_tool_gets_text_and_its_call_comes_back() {
    let arguments = json!({"input": "*** Begin \"Patch\"\n\u{e9}"}).to_string();
    let (first, second) = arguments.split_at(15);
    let call = |arguments: &str| json!({"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]});
    let start = json!({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "apply_patch", "arguments": ""}}]});
    let stream = chunk(start, None)
        + &chunk(call(first), None)
        + &chunk(call(second), None)
        + &chunk(json!({}), Some("tool_calls"));
    let tools = json!([{"type": "custom", "name": "apply_patch",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"x\"\n"}}]);
    let ask = admitted_request(&json!({"model": "m", "input": "Hi", "stream": true, "tools": tools}));
    let events = stream_events(&ask, Dialect::Chat, stream.as_bytes());
    let item = &events.last().unwrap()["response"]["output"][0];
    assert_eq!(item["type"], "custom_tool_call");
    assert_eq!(item["input"], "*** Begin \"Patch\"\n\u{e9}");
    assert!(event_types(&events).contains(&"response.custom_tool_call_input.delta"));
    let output = json!({"type": "custom_tool_call_output", "call_id": "c1", "output": "Done"});
    let again =
        json!({"model": "m", "tools": tools, "input": [{"role": "user", "content": "Hi"}, item, output]});
    let again = admitted_request(&again);
    let messages: Value = serde_json::from_slice(again.member_value("messages").unwrap()).unwrap();
    assert_eq!(messages[1]["tool_calls"][0]["function"]["arguments"], arguments);
    assert_eq!(messages[2], json!({"role": "tool", "tool_call_id": "c1", "content": "Done"}));
}

#[test]
fn a_tool_in_a_namespace_is_called_by_both_names() {
    let call = json!({"tool_calls": [{"index": 0, "id": "c1",
        "function": {"name": "files__read", "arguments": "{}"}}]});
    let stream = chunk(call, None) + &chunk(json!({}), Some("tool_calls"));
    let tools = json!([{"type": "namespace", "name": "files", "description": "Files",
        "tools": [{"type": "function", "name": "read", "parameters": {"type": "object"}}]}]);
    let ask = admitted_request(&json!({"model": "m", "input": "Hi", "stream": true, "tools": tools}));
    let events = stream_events(&ask, Dialect::Chat, stream.as_bytes());
    let item = &events.last().unwrap()["response"]["output"][0];
    assert_eq!((&item["namespace"], &item["name"]), (&json!("files"), &json!("read")));
}

#[test]
fn a_tool_with_a_long_name_has_a_short_one_at_the_provider() {
    let (namespace, name) =
        ("mcp__".to_owned() + &"server".repeat(12), "create_issue".to_owned() + &"s".repeat(60));
    let tools = json!([{"type": "namespace", "name": namespace, "description": "Issues",
        "tools": [{"type": "function", "name": "create_issue"}, {"type": "custom", "name": name}]},
        {"type": "function", "name": name, "parameters": {"type": "object"}}]);
    let earlier = json!([{"role": "user", "content": "Hi"},
        {"type": "function_call", "call_id": "c0", "namespace": namespace, "name": "create_issue", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c0", "output": "ok"}]);
    let choice = json!({"type": "function", "name": name});
    let body = json!({"model": "m", "input": earlier, "stream": true, "tools": tools, "tool_choice": choice});
    let ask = admitted_request(&body);
    let abilities = OfferCapabilities::default();
    for provider in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
        let target = test_support::sample_target(provider, &abilities);
        let sent =
            find_translator(Dialect::Responses, provider).unwrap().build_request(&ask, &target).unwrap();
        let sent = String::from_utf8(sent.concat()).unwrap();
        assert!(!sent.contains(&"server".repeat(12)) && !sent.contains(&"s".repeat(60)), "{sent}");
    }
    let sent: Value = serde_json::from_slice(&ask.body).unwrap();
    let names: Vec<&str> = (0..3).map(|at| sent["tools"][at]["function"]["name"].as_str().unwrap()).collect();
    assert!(names.iter().all(|name| name.len() <= 64), "{names:?}");
    assert_eq!(sent["messages"][1]["tool_calls"][0]["function"]["name"], names[0]);
    assert_eq!(sent["tool_choice"]["function"]["name"], names[2]);
    let expected = [
        (json!(namespace), "create_issue", "function_call"),
        (json!(namespace), &name, "custom_tool_call"),
        (Value::Null, &name, "function_call"),
    ];
    for (function, (namespace, name, kind)) in names.iter().zip(expected) {
        let call = json!({"tool_calls": [{"index": 0, "id": "c1",
            "function": {"name": function, "arguments": "{\"input\":\"x\"}"}}]});
        let stream = chunk(call, None) + &chunk(json!({}), Some("tool_calls"));
        let events = stream_events(&ask, Dialect::Chat, stream.as_bytes());
        let item = &events.last().unwrap()["response"]["output"][0];
        assert_eq!(
            (&item["namespace"], item["name"].as_str(), item["type"].as_str()),
            (&namespace, Some(name), Some(kind))
        );
    }
}

#[test]
fn log_probabilities_are_those_of_the_text() {
    let token = json!({"token": "Yes", "logprob": -0.1, "bytes": [89, 101, 115], "top_logprobs": []});
    let choice = json!({"index": 0, "delta": {"content": "Yes"}, "logprobs": {"content": [token]}});
    let stream = format!("data: {}\n\n", json!({"choices": [choice]})) + &chunk(json!({}), Some("stop"));
    let ask = admitted_request(&json!({"model": "m", "input": "Hi", "stream": true,
        "include": ["message.output_text.logprobs"]}));
    let events = stream_events(&ask, Dialect::Chat, stream.as_bytes());
    assert_eq!(events.last().unwrap()["response"]["output"][0]["content"][0]["logprobs"], json!([token]));
    let plain = stream_events(&simple_request(), Dialect::Chat, stream.as_bytes());
    assert_eq!(plain.last().unwrap()["response"]["output"][0]["content"][0]["logprobs"], json!([]));
}

#[test]
fn a_buffered_response_has_the_items_of_the_stream() {
    let call =
        json!({"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(Dialect::Chat, &abilities);
    let translator = find_translator(Dialect::Responses, Dialect::Chat).unwrap();
    for (message, finish) in [
        (json!({"content": "Hello"}), "stop"),
        (json!({"content": ""}), "stop"),
        (json!({"content": "Hel"}), "length"),
        (json!({"content": "No.", "refusal": "I cannot."}), "stop"),
        (json!({"reasoning_content": "Hm", "content": "Hello"}), "stop"),
        (json!({"reasoning_content": "Hm"}), "length"),
        (json!({"reasoning_content": "Hm", "content": "Call", "tool_calls": [call]}), "tool_calls"),
        (json!({"tool_calls": [call]}), "tool_calls"),
    ] {
        let mut stream = String::new();
        for member in ["reasoning_content", "content", "refusal", "tool_calls"] {
            if let Some(value) = message.get(member) {
                stream += &chunk(json!({ member: value }), None);
            }
        }
        stream += &chunk(json!({}), Some(finish));
        let streamed = stream_events(&simple_request(), Dialect::Chat, stream.as_bytes());
        let body = json!({"choices": [{"index": 0, "message": message, "finish_reason": finish}]});
        let whole =
            translator.translate_buffered(&simple_request(), &target, Bytes::from(body.to_string())).unwrap();
        let whole: Value = serde_json::from_slice(&whole.body.concat()).unwrap();
        assert_eq!(conformance::check_response(&whole), Ok(()), "{message}");
        assert_eq!(whole["output"], streamed.last().unwrap()["response"]["output"], "{message}");
        assert_eq!(whole["status"], streamed.last().unwrap()["response"]["status"], "{message}");
    }
}
