//! Tests of halves of surrogate pairs in the answers of providers, for each pair of dialects, plain and streamed.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::stream_format_tests::sample_request;
use crate::{conformance, find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;
use serde_json::{Value, json};

const DIALECTS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];

/// Stands for the high half of a pair in the samples, which are built as valid text.
const HIGH: &str = "<high>";
/// Stands for the low half of a pair.
const LOW: &str = "<low>";

/// Returns the JSON text of a sample with the halves as escapes.
fn with_halves(sample: &Value) -> String {
    sample.to_string().replace(HIGH, "\\ud83d").replace(LOW, "\\ude00")
}

/// Returns the stream of a provider with these events; a chat provider's events have no names.
fn stream(provider: Dialect, events: &[Value]) -> String {
    let event = |event: &Value| match provider {
        Dialect::Chat => format!("data: {}\n\n", with_halves(event)),
        _ => format!("event: {}\ndata: {}\n\n", event["type"].as_str().unwrap(), with_halves(event)),
    };
    let end = if provider == Dialect::Chat { "data: [DONE]\n\n" } else { "" };
    events.iter().map(event).collect::<String>() + end
}

fn messages_message(content: &Value, stop_reason: &Value) -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "x", "content": content,
        "stop_reason": stop_reason, "stop_sequence": null, "usage": {"input_tokens": 3, "output_tokens": 3,
            "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}})
}

fn responses_response(output: &Value) -> Value {
    json!({"id": "resp_1", "object": "response", "status": "completed", "output": output,
        "usage": {"input_tokens": 3, "output_tokens": 3, "total_tokens": 6}})
}

/// Returns a plain answer that calls the function `f` with these arguments, which are JSON text.
fn plain_call(provider: Dialect, arguments: &str) -> Value {
    match provider {
        Dialect::Chat => json!({"id": "c", "object": "chat.completion", "choices": [{"index": 0,
            "finish_reason": "tool_calls", "message": {"role": "assistant", "content": null, "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": arguments}}]}}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}}),
        Dialect::Messages => {
            let input: Value = serde_json::from_str(&arguments.replace("\\ud83d", HIGH)).unwrap();
            messages_message(
                &json!([{"type": "tool_use", "id": "call_1", "name": "f", "input": input}]),
                &json!("tool_use"),
            )
        }
        _ => responses_response(&json!([{"type": "function_call", "id": "fc_1", "call_id": "call_1",
            "name": "f", "arguments": arguments, "status": "completed"}])),
    }
}

/// Returns a stream with a call whose arguments arrive in these fragments.
fn streamed_call(provider: Dialect, fragments: &[&str]) -> String {
    let mut events = Vec::new();
    match provider {
        Dialect::Chat => {
            let chunk = |delta: Value, finish: Value| {
                json!({"id": "c", "object": "chat.completion.chunk", "created": 1,
                "model": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
            };
            events.push(chunk(
                json!({"role": "assistant", "tool_calls": [{"index": 0, "id": "call_1", "type": "function",
                    "function": {"name": "f", "arguments": ""}}]}),
                Value::Null,
            ));
            events.extend(fragments.iter().map(|text| {
                let call = json!({"index": 0, "function": {"arguments": text}});
                chunk(json!({"tool_calls": [call]}), Value::Null)
            }));
            events.push(chunk(json!({}), json!("tool_calls")));
        }
        Dialect::Messages => {
            let block = json!({"type": "tool_use", "id": "call_1", "name": "f", "input": {}});
            let deltas =
                fragments.iter().map(|text| json!({"type": "input_json_delta", "partial_json": text}));
            events = messages_events(&block, &deltas.collect::<Vec<_>>(), "tool_use");
        }
        _ => {
            let item = |arguments: &str, status: &str| {
                json!({"type": "function_call", "id": "fc_1", "call_id": "call_1",
                "name": "f", "arguments": arguments, "status": status})
            };
            let whole = item(&fragments.concat(), "completed");
            events.push(json!({"type": "response.created", "response": {"id": "resp_1"}}));
            events.push(json!({"type": "response.output_item.added", "output_index": 0,
                "item": item("", "in_progress")}));
            events.extend(fragments.iter().map(|text| {
                json!({"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "fc_1",
                    "delta": text})
            }));
            events
                .push(json!({"type": "response.output_item.done", "output_index": 0, "item": whole.clone()}));
            events
                .push(json!({"type": "response.completed", "response": responses_response(&json!([whole]))}));
        }
    }
    stream(provider, &events)
}

/// Returns the events of a messages stream with one block.
fn messages_events(block: &Value, deltas: &[Value], stop_reason: &str) -> Vec<Value> {
    let mut events = vec![
        json!({"type": "message_start", "message": messages_message(&json!([]), &Value::Null)}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
    ];
    events.extend(
        deltas.iter().map(|delta| json!({"type": "content_block_delta", "index": 0, "delta": delta})),
    );
    events.extend([
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": stop_reason, "stop_sequence": null},
            "usage": {"output_tokens": 3}}),
        json!({"type": "message_stop"}),
    ]);
    events
}

/// Translates a stream at every split and returns the output, which must be a successful stream of the dialect.
fn translate_stream(client: Dialect, provider: Dialect, stream: &str) -> String {
    let ask = InferenceRequest { thinking: ThinkingDisplay::Shown, ..sample_request(client, true) };
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(provider, &abilities);
    let pair = find_translator(client, provider).unwrap();
    let run = test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), stream.as_bytes());
    let out = String::from_utf8(run.out).unwrap();
    assert_eq!(run.fault, None, "{client:?} {provider:?}: {stream}");
    assert_eq!(
        conformance::check_stream(client, out.as_bytes(), false),
        Ok(()),
        "{client:?} {provider:?}: {out}"
    );
    out
}

fn translate_plain(client: Dialect, provider: Dialect, body: &Value) -> Value {
    let ask = InferenceRequest { thinking: ThinkingDisplay::Shown, ..sample_request(client, false) };
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(provider, &abilities);
    let pair = find_translator(client, provider).unwrap();
    let answer = pair.translate_buffered(&ask, &target, Bytes::from(with_halves(body))).unwrap();
    serde_json::from_slice(&answer.body.concat()).unwrap()
}

/// Returns the arguments of the call in a plain answer.
fn plain_arguments(client: Dialect, answer: &Value) -> Value {
    let text = match client {
        Dialect::Chat => &answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"],
        Dialect::Messages => return answer["content"][0]["input"].clone(),
        _ => &answer["output"][0]["arguments"],
    };
    serde_json::from_str(text.as_str().unwrap()).unwrap()
}

/// Returns the data of the events of a stream.
fn events(out: &str) -> Vec<Value> {
    let data = out.lines().filter_map(|line| line.strip_prefix("data: {"));
    data.map(|data| serde_json::from_str(&format!("{{{data}")).unwrap()).collect()
}

/// Returns the arguments of the call in a stream.
fn streamed_arguments(client: Dialect, out: &str) -> Value {
    let events = events(out);
    let texts = events.iter().filter_map(|event| match client {
        Dialect::Chat => event["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].as_str(),
        Dialect::Messages => event["delta"]["partial_json"].as_str(),
        _ if event["type"] == "response.function_call_arguments.delta" => event["delta"].as_str(),
        _ => None,
    });
    serde_json::from_str(&texts.collect::<String>()).unwrap()
}

#[test]
fn half_a_pair_in_arguments_becomes_a_replacement_character() {
    for (arguments, expected) in [
        (r#"{"a":"x\ud83d"}"#, json!({"a": "x\u{fffd}"})),
        (r#"{"\ud83d":["\ud83d!"]}"#, json!({"\u{fffd}": ["\u{fffd}!"]})),
        (r#"{"a":"\ud83d\ude00 \\ud83d"}"#, json!({"a": "\u{1f600} \\ud83d"})),
    ] {
        for (client, provider) in DIALECTS.iter().flat_map(|one| DIALECTS.map(|other| (*one, other))) {
            // The helper for plain answers knows only lone high halves.
            if !arguments.contains("\\ude00") {
                let answer = translate_plain(client, provider, &plain_call(provider, arguments));
                assert_eq!(plain_arguments(client, &answer), expected, "{client:?} {provider:?}");
            }
            for size in [1, 2, 5, 100] {
                let letters: Vec<char> = arguments.chars().collect();
                let fragments: Vec<String> =
                    letters.chunks(size).map(|letters| letters.iter().collect()).collect();
                let fragments: Vec<&str> = fragments.iter().map(String::as_str).collect();
                let out = translate_stream(client, provider, &streamed_call(provider, &fragments));
                assert_eq!(streamed_arguments(client, &out), expected, "{client:?} {provider:?} {size}");
            }
        }
    }
}

/// Returns the text of a kind of delta in a messages stream.
fn messages_text(out: &str, name: &str) -> String {
    events(out).iter().filter_map(|event| event["delta"][name].as_str()).collect()
}

#[test]
fn a_pair_split_between_deltas_of_a_messages_provider_is_joined() {
    let cases: [(&[&str], &str); 6] = [
        (&["a<high>", "<low>b"], "a\u{1f600}b"),
        (&["<high>", "<low>b"], "\u{1f600}b"),
        (&["a", "<high>", "", "<low>"], "a\u{1f600}"),
        (&["a<high>b", "<low>c"], "a\u{fffd}b\u{fffd}c"),
        (&["a<high>", "<high><low>"], "a\u{fffd}\u{1f600}"),
        (&["a", "b<high>"], "ab\u{fffd}"),
    ];
    let blocks = [
        ("text", "text", json!({"type": "text", "text": ""})),
        ("thinking", "thinking", json!({"type": "thinking", "thinking": "", "signature": ""})),
    ];
    for ((deltas, expected), (kind, name, block)) in
        cases.iter().flat_map(|case| blocks.iter().map(move |block| (case, block)))
    {
        let delta = |text: &&str| json!({"type": format!("{kind}_delta"), *name: text});
        let deltas: Vec<Value> = deltas.iter().map(delta).collect();
        let stream = stream(Dialect::Messages, &messages_events(block, &deltas, "end_turn"));
        for client in DIALECTS {
            let out = translate_stream(client, Dialect::Messages, &stream);
            let events = events(&out);
            let texts = events.iter().filter_map(|event| match client {
                Dialect::Chat => {
                    let delta = &event["choices"][0]["delta"];
                    delta[if *kind == "text" { "content" } else { "reasoning_content" }].as_str()
                }
                Dialect::Messages => event["delta"][name].as_str(),
                _ if event["type"].as_str().unwrap().ends_with("_text.delta") => event["delta"].as_str(),
                _ => None,
            });
            assert_eq!(texts.collect::<String>(), **expected, "{client:?}: {out}");
        }
        // A plain answer with the same text.
        let whole: String = deltas.iter().map(|delta| delta[name].as_str().unwrap()).collect();
        let block = json!({"type": kind, *name: whole, "signature": "s"});
        let content = json!([block, {"type": "text", "text": "end"}]);
        let body = messages_message(&content, &json!("end_turn"));
        let answer = translate_plain(Dialect::Messages, Dialect::Messages, &body);
        assert_eq!(answer["content"][0][name], **expected, "{answer}");
        assert!(translate_plain(Dialect::Chat, Dialect::Messages, &body).to_string().contains(expected));
    }
}

#[test]
fn a_pair_split_between_fragments_of_an_input_is_joined() {
    let deltas = ["{\"a\":\"x<high>", "<low>y<high>\"}"]
        .map(|text| json!({"type": "input_json_delta", "partial_json": text}));
    let block = json!({"type": "tool_use", "id": "call_1", "name": "f", "input": {}});
    let stream = stream(Dialect::Messages, &messages_events(&block, &deltas, "tool_use"));
    for client in DIALECTS {
        let out = translate_stream(client, Dialect::Messages, &stream);
        assert_eq!(streamed_arguments(client, &out), json!({"a": "x\u{1f600}y\u{fffd}"}), "{client:?}");
    }
}

#[test]
fn half_a_pair_in_a_start_event_is_repaired() {
    let deltas = [json!({"type": "text_delta", "text": "<low>b"})];
    let block = json!({"type": "text", "text": "a<high>"});
    let first = stream(Dialect::Messages, &messages_events(&block, &deltas, "end_turn"));
    let block = json!({"type": "tool_use", "id": "call_1", "name": "f", "input": {"a": "<high>"}});
    let second = stream(Dialect::Messages, &messages_events(&block, &[], "tool_use"));
    for client in DIALECTS {
        let out = translate_stream(client, Dialect::Messages, &first);
        assert!(out.contains('\u{1f600}') || out.contains("\\ud83d\\ude00"), "{client:?}: {out}");
        let out = translate_stream(client, Dialect::Messages, &second);
        assert_eq!(streamed_arguments(client, &out), json!({"a": "\u{fffd}"}), "{client:?}");
    }
}

#[test]
fn whole_pairs_are_forwarded_unchanged() {
    let deltas = ["a<high><low>", "<high><low>"].map(|text| json!({"type": "text_delta", "text": text}));
    let block = json!({"type": "text", "text": ""});
    let stream = stream(Dialect::Messages, &messages_events(&block, &deltas, "end_turn"));
    let out = translate_stream(Dialect::Messages, Dialect::Messages, &stream);
    assert!(out.contains("\"a\\ud83d\\ude00\"") && out.contains("\"\\ud83d\\ude00\""), "{out}");
    assert_eq!(messages_text(&out, "text"), "a\u{1f600}\u{1f600}");
}
