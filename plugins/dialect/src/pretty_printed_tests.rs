//! Tests of answers with line breaks between JSON tokens: an event of a client's stream must not contain one.
#![allow(clippy::unwrap_used)]

use crate::stream_format_tests::sample_request;
use crate::{find_translator, test_support};
use penstock_core::*;
use serde_json::{Value, json};

const DIALECTS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];

/// Returns a whole answer of a provider, with text and a call.
fn answer(provider: Dialect) -> Value {
    let token = json!({"token": "Hi", "logprob": -0.1, "bytes": [72, 105], "engine": {"rank": 1},
        "top_logprobs": [{"token": "Hi", "logprob": -0.1, "bytes": [72, 105]}]});
    match provider {
        Dialect::Chat => json!({"id": "c", "object": "chat.completion", "created": 1, "model": "x",
            "choices": [{"index": 0, "finish_reason": "tool_calls",
                "logprobs": {"content": [token], "refusal": null},
                "message": {"role": "assistant", "content": "Hi", "tool_calls": [{"id": "call_1",
                    "type": "function", "function": {"name": "f", "arguments": "{\n\"a\": 1}"}}]}}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6,
                "prompt_tokens_details": {"cached_tokens": 1}}}),
        Dialect::Messages => json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "x",
            "content": [{"type": "text", "text": "Hi", "citations": [{"type": "web", "url": "u"}]},
                {"type": "tool_use", "id": "call_1", "name": "f", "input": {"a": [1, {"b": 2}]}}],
            "stop_reason": "tool_use", "stop_sequence": null, "container": {"id": "c"},
            "usage": {"input_tokens": 3, "output_tokens": 3, "cache_read_input_tokens": 1,
                "server_tool_use": {"web_search_requests": 1}}}),
        _ => json!({"id": "resp_1", "object": "response", "status": "completed", "output": [
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [
                {"type": "output_text", "text": "Hi", "annotations": [], "logprobs": [token]}]},
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}",
                "status": "completed"}],
            "usage": {"input_tokens": 3, "output_tokens": 3, "total_tokens": 6}}),
    }
}

/// Returns a request of a streaming client that shows log probabilities, if its dialect has them.
fn request(client: Dialect) -> InferenceRequest {
    let body = match client {
        Dialect::Chat => {
            json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": true,
            "logprobs": true, "top_logprobs": 1, "stream_options": {"include_usage": true}})
        }
        Dialect::Messages => return sample_request(client, true),
        _ => json!({"model": "m", "input": "Hi", "stream": true, "top_logprobs": 1,
            "include": ["message.output_text.logprobs"]}),
    };
    test_support::sample_request(client, body.to_string().as_bytes())
}

/// Returns the data of the events of a client's stream. Asserts that each line is complete.
fn events(out: Vec<u8>) -> Vec<Value> {
    let out = String::from_utf8(out).unwrap();
    let data = out.lines().filter_map(|line| {
        assert!(
            line.is_empty() || line.starts_with("event: ") || line.starts_with("data: "),
            "{line}: {out}"
        );
        line.strip_prefix("data: ").filter(|data| *data != "[DONE]")
    });
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[test]
fn an_answer_with_line_breaks_becomes_the_same_events() {
    let abilities = OfferCapabilities::default();
    for provider in DIALECTS {
        let (compact, pretty) =
            (answer(provider).to_string(), serde_json::to_string_pretty(&answer(provider)).unwrap());
        for client in DIALECTS {
            let target = test_support::sample_target(provider, &abilities);
            let pair = find_translator(client, provider).unwrap();
            let ask = request(client);
            let run = |body: &str| {
                let run =
                    test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), body.as_bytes());
                assert_eq!(run.fault, None, "{client:?} {provider:?}");
                events(run.out)
            };
            let expected = run(&compact);
            assert!(expected.len() > 2, "{client:?} {provider:?}");
            for body in [pretty.clone(), pretty.replace('\n', "\r\n"), pretty.replace('\n', "\r")] {
                assert_eq!(run(&body), expected, "{client:?} {provider:?}");
            }
        }
    }
}

#[test]
fn an_event_of_several_lines_becomes_one_of_one_line() {
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(Dialect::Chat, &abilities);
    let mut chunk = answer(Dialect::Chat);
    let choice = chunk.pointer_mut("/choices/0").unwrap().as_object_mut().unwrap();
    let message = choice.remove("message").unwrap();
    choice.insert("delta".to_owned(), message);
    let event = |text: String| {
        let lines: String = text.lines().map(|line| format!("data: {line}\n")).collect();
        lines + "\ndata: [DONE]\n\n"
    };
    for client in [Dialect::Chat, Dialect::Responses] {
        let pair = find_translator(client, Dialect::Chat).unwrap();
        let ask = request(client);
        let run = |body: String| {
            let run = test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), body.as_bytes());
            assert_eq!(run.fault, None, "{client:?}");
            events(run.out)
        };
        let expected = run(event(chunk.to_string()));
        assert_eq!(run(event(serde_json::to_string_pretty(&chunk).unwrap())), expected, "{client:?}");
    }
}

#[test]
fn a_request_with_line_breaks_is_repeated_in_one_line() {
    let abilities = OfferCapabilities::default();
    let body = json!({"model": "m", "input": "Hi", "stream": true, "metadata": {"a": "1", "b": "2"},
        "text": {"format": {"type": "json_schema", "name": "s", "schema": {"type": "object", "properties": {}}}},
        "reasoning": {"effort": "low"}, "instructions": "Be brief.", "tool_choice": {"type": "function", "name": "f"},
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}]});
    for provider in DIALECTS {
        let target = test_support::sample_target(provider, &abilities);
        let pair = find_translator(Dialect::Responses, provider).unwrap();
        let run = |body: String| {
            let ask = test_support::sample_request(Dialect::Responses, body.as_bytes());
            let answer = answer(provider).to_string();
            events(
                test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), answer.as_bytes()).out,
            )
        };
        let expected = run(body.to_string());
        let pretty = serde_json::to_string_pretty(&body).unwrap();
        for body in [pretty.clone(), pretty.replace('\n', "\r\n")] {
            assert_eq!(run(body), expected, "{provider:?}");
        }
    }
}
