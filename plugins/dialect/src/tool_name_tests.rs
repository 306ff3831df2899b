//! Tests of tool names that the provider does not accept: each reaches the provider in another form, everywhere in the
//! request, and the client gets its own name back. Tests of call ids that a later turn uses again.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::{find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;
use penstock_request_validation::{
    MessagesPurpose, RequestLimits, ResponsesPurpose, validate_chat_request, validate_messages_request,
    validate_responses_request,
};
use serde_json::{Value, json};

const CLIENTS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];

fn validated(client: Dialect, body: &Value) -> InferenceRequest {
    let (limits, body) = (RequestLimits::default(), Bytes::from(body.to_string()));
    match client {
        Dialect::Chat => validate_chat_request(body, &limits),
        Dialect::Messages => validate_messages_request(body, &limits, MessagesPurpose::Generate),
        _ => validate_responses_request(body, &limits, ResponsesPurpose::Generate),
    }
    .unwrap()
}

/// Returns a request with a tool of this name, an earlier call of it, and the choice of it.
fn request(client: Dialect, name: &str, stream: bool) -> InferenceRequest {
    let schema = json!({"type": "object"});
    validated(
        client,
        &match client {
            Dialect::Chat => json!({"model": "m", "stream": stream,
                "messages": [
                    {"role": "user", "content": "Hi"},
                    {"role": "assistant", "tool_calls": [
                        {"id": "a", "type": "function", "function": {"name": name, "arguments": "{}"}}]},
                    {"role": "tool", "tool_call_id": "a", "content": "r"}],
                "tools": [{"type": "function", "function": {"name": name, "parameters": schema}},
                    {"type": "function", "function": {"name": "other", "parameters": schema}}],
                "tool_choice": {"type": "function", "function": {"name": name}}}),
            Dialect::Messages => json!({"model": "m", "stream": stream, "max_tokens": 99,
                "messages": [
                    {"role": "user", "content": "Hi"},
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": name, "input": {}}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "r"}]}],
                "tools": [{"name": name, "input_schema": schema}, {"name": "other", "input_schema": schema}],
                "tool_choice": {"type": "tool", "name": name}}),
            _ => json!({"model": "m", "stream": stream,
                "input": [
                    {"role": "user", "content": "Hi"},
                    {"type": "function_call", "call_id": "a", "name": name, "arguments": "{}"},
                    {"type": "function_call_output", "call_id": "a", "output": "r"}],
                "tools": [{"type": "function", "name": name, "parameters": schema},
                    {"type": "function", "name": "other", "parameters": schema}],
                "tool_choice": {"type": "function", "name": name}}),
        },
    )
}

fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// Returns a buffered answer of a provider that calls this tool, and the same answer as a stream.
fn answers(provider: Dialect, name: &str) -> (String, String) {
    match provider {
        Dialect::Chat => {
            let call = json!({"index": 0, "id": "b", "type": "function", "function": {"name": name, "arguments": "{}"}});
            let choice = |key: &str| json!({"choices": [{"index": 0, "finish_reason": "tool_calls", key: {"role": "assistant", "tool_calls": [call]}}]});
            (choice("message").to_string(), format!("data: {}\n\ndata: [DONE]\n\n", choice("delta")))
        }
        Dialect::Messages => {
            let block = json!({"type": "tool_use", "id": "b", "name": name, "input": {}});
            let usage = json!({"input_tokens": 5, "output_tokens": 9});
            let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "x", "content": [block],
                "stop_reason": "tool_use", "stop_sequence": null, "usage": usage});
            let mut start = message.clone();
            (start["content"], start["stop_reason"]) = (json!([]), Value::Null);
            let stream = event("message_start", &json!({"type": "message_start", "message": start}))
                + &event(
                    "content_block_start",
                    &json!({"type": "content_block_start", "index": 0, "content_block": block}),
                )
                + &event("content_block_stop", &json!({"type": "content_block_stop", "index": 0}))
                + &event(
                    "message_delta",
                    &json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": usage}),
                )
                + &event("message_stop", &json!({"type": "message_stop"}));
            (message.to_string(), stream)
        }
        _ => {
            let item = json!({"type": "function_call", "id": "fc_1", "call_id": "b", "name": name, "arguments": "{}", "status": "completed"});
            let mut open = item.clone();
            open["arguments"] = json!("");
            let response = json!({"id": "resp_1", "object": "response", "status": "completed", "model": "x", "output": [item],
                "usage": {"input_tokens": 5, "output_tokens": 9, "total_tokens": 14}});
            let of = |kind: &str, rest: Value| {
                let mut data = json!({"type": kind});
                data.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
                event(kind, &data)
            };
            let stream = of("response.created", json!({"response": {"status": "in_progress"}}))
                + &of("response.output_item.added", json!({"output_index": 0, "item": open}))
                + &of("response.function_call_arguments.delta", json!({"output_index": 0, "delta": "{}"}))
                + &of("response.output_item.done", json!({"output_index": 0, "item": item}))
                + &of("response.completed", json!({"response": response}));
            (response.to_string(), stream)
        }
    }
}

/// Returns all values of members `name` in a JSON document that are names of the tools in these tests.
fn tool_names(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(key, value)| match value.as_str() {
            Some(name) if key == "name" && name != "other" => found.push(name.to_owned()),
            _ => tool_names(value, found),
        }),
        Value::Array(items) => items.iter().for_each(|item| tool_names(item, found)),
        _ => {}
    }
}

fn names_in(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let lines = text.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
    lines
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .for_each(|value| tool_names(&value, &mut found));
    found
}

/// Returns true if providers of this dialect accept the name of a client of the other dialect.
fn is_accepted(client: Dialect, provider: Dialect, name: &str) -> bool {
    let most = match (client, provider) {
        (Dialect::Messages, Dialect::Messages) | (Dialect::Chat, Dialect::Chat) => return true,
        (_, Dialect::Chat) => return name.len() <= 64,
        (_, Dialect::Messages) => 128,
        _ => 64,
    };
    name.len() <= most && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

#[test]
fn each_name_reaches_the_provider_in_an_accepted_form_and_comes_back() {
    let abilities = OfferCapabilities {
        parameters: vec!["tools".into(), "tool_choice".into()],
        ..OfferCapabilities::default()
    };
    let long = "n".repeat(129);
    for name in ["look", "server.tool", "caf\u{e9} \"b\"", &long[..64], &long[..65], &long[..128], &long] {
        for (client, provider) in
            CLIENTS.into_iter().flat_map(|client| CLIENTS.map(|provider| (client, provider)))
        {
            let about = format!("{client:?} {provider:?} {name}");
            let target = test_support::sample_target(provider, &abilities);
            let pair = find_translator(client, provider).unwrap();
            let ask = request(client, name, true);
            let sent = String::from_utf8(pair.build_request(&ask, &target).unwrap().concat()).unwrap();
            let names = names_in(&sent);
            assert_eq!(names.len(), 3, "{about}: {sent}");
            assert!(names.iter().all(|sent| *sent == names[0]), "{about}: {sent}");
            assert!(is_accepted(client, provider, &names[0]), "{about}: {sent}");
            if is_accepted(client, provider, name) && client != Dialect::Responses {
                assert_eq!(names[0], name, "{about}");
            }
            let (whole, stream) = answers(provider, &names[0]);
            let run =
                test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), stream.as_bytes());
            let out = String::from_utf8(run.out).unwrap();
            let streamed = names_in(&out);
            assert_eq!(run.fault, None, "{about}: {out}");
            assert!(!streamed.is_empty() && streamed.iter().all(|own| own == name), "{about}: {out}");
            let ask = request(client, name, false);
            let mut body = pair.translate_buffered(&ask, &target, Bytes::from(whole)).unwrap().body.concat();
            if body.last() != Some(&b'}') {
                body.push(b'}');
            }
            let plain = names_in(&String::from_utf8(body.clone()).unwrap());
            assert!(!plain.is_empty() && plain.iter().all(|own| own == name), "{about}: {plain:?}");
        }
    }
}

#[test]
fn allowed_tools_have_the_names_of_the_declared_ones() {
    let abilities = OfferCapabilities {
        parameters: vec!["tools".into(), "tool_choice".into()],
        ..OfferCapabilities::default()
    };
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    let allowed = json!({"mode": "required", "tools": [{"type": "function", "function": {"name": "a.b"}}]});
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [tool("a.b"), tool("other")],
        "tool_choice": {"type": "allowed_tools", "allowed_tools": allowed}});
    let ask = validated(Dialect::Chat, &body);
    for provider in [Dialect::Messages, Dialect::Responses] {
        let target = test_support::sample_target(provider, &abilities);
        let pair = find_translator(Dialect::Chat, provider).unwrap();
        let sent = String::from_utf8(pair.build_request(&ask, &target).unwrap().concat()).unwrap();
        let names = names_in(&sent);
        assert_eq!(names.len(), 1, "{sent}");
        assert!(
            names.iter().all(|name| *name == names[0] && is_accepted(Dialect::Chat, provider, name)),
            "{sent}"
        );
    }
}

#[test]
fn an_id_that_a_later_turn_uses_again_is_unique_at_the_provider() {
    let abilities = OfferCapabilities { parameters: vec!["tools".into()], ..OfferCapabilities::default() };
    let call = json!({"role": "assistant", "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]});
    let result = |text: &str| json!({"role": "tool", "tool_call_id": "call_1", "content": text});
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"},
        call, result("1"), call, result("2"), {"role": "user", "content": "Ho"}, call, result("3")]});
    let ask = validated(Dialect::Chat, &body);
    for (provider, call_id, result_id) in
        [(Dialect::Messages, "id", "tool_use_id"), (Dialect::Responses, "call_id", "call_id")]
    {
        let target = test_support::sample_target(provider, &abilities);
        let pair = find_translator(Dialect::Chat, provider).unwrap();
        let sent: Value =
            serde_json::from_slice(&pair.build_request(&ask, &target).unwrap().concat()).unwrap();
        let items: Vec<Value> = match provider {
            Dialect::Messages => {
                let messages = sent["messages"].as_array().unwrap().iter();
                messages.filter_map(|message| message["content"].as_array()).flatten().cloned().collect()
            }
            _ => sent["input"].as_array().unwrap().clone(),
        };
        let ids = |kinds: [&str; 2], member: &str| -> Vec<String> {
            let of_kind = items.iter().filter(|item| kinds.iter().any(|kind| item["type"] == *kind));
            of_kind.map(|item| item[member].as_str().unwrap().to_owned()).collect()
        };
        let calls = ids(["tool_use", "function_call"], call_id);
        assert_eq!(calls, ids(["tool_result", "function_call_output"], result_id), "{sent}");
        assert_eq!((calls.len(), &*calls[0]), (3, "call_1"));
        assert!(calls[0] != calls[1] && calls[1] != calls[2] && calls[0] != calls[2], "{calls:?}");
    }
}
