//! Tests of plain answers whose items are interleaved: their order is the same as in the provider's answer.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::find_translator;
use crate::stream_format_tests::sample_request;
use crate::test_support::{run_all_splits, sample_target};
use bytes::Bytes;
use penstock_core::{Dialect, InferenceRequest, OfferCapabilities, ThinkingDisplay};
use serde_json::{Value, json};

fn translate(client: Dialect, provider: Dialect, body: &Value) -> Value {
    let ask = sample_request(client, false);
    let abilities = OfferCapabilities::default();
    let target = sample_target(provider, &abilities);
    let answer = find_translator(client, provider)
        .unwrap()
        .translate_buffered(&ask, &target, Bytes::from(body.to_string()))
        .unwrap();
    serde_json::from_slice(&answer.body.concat()).unwrap()
}

/// Returns each item as its type and its text or name.
fn items(list: &Value) -> Vec<(String, String)> {
    let text = |item: &Value| {
        let part = |name: &str| item[name].as_str().map(str::to_owned);
        let inner = |name: &str| item[name][0]["text"].as_str().map(str::to_owned);
        part("text").or(part("name")).or(inner("content")).or(inner("summary")).unwrap_or_default()
    };
    let items = list.as_array().unwrap().iter();
    items.map(|item| (item["type"].as_str().unwrap().to_owned(), text(item))).collect()
}

fn expected(items: &[(&str, &str)]) -> Vec<(String, String)> {
    items.iter().map(|(kind, text)| ((*kind).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn blocks_of_a_message_become_items_in_their_order() {
    let body = json!({"type": "message", "role": "assistant", "model": "x", "stop_reason": "tool_use",
    "usage": {"input_tokens": 3, "output_tokens": 30},
    "content": [
        {"type": "text", "text": "First"},
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
        {"type": "text", "text": "Then"},
        {"type": "text", "text": " more"},
        {"type": "tool_use", "id": "toolu_2", "name": "g", "input": {}},
    ]});
    let answer = translate(Dialect::Responses, Dialect::Messages, &body);
    let order =
        [("message", "First"), ("function_call", "f"), ("message", "Then more"), ("function_call", "g")];
    assert_eq!(items(&answer["output"]), expected(&order), "{answer}");
}

#[test]
fn items_of_a_response_become_blocks_in_their_order() {
    let message = |text: &str| json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]});
    let call = |name: &str| json!({"type": "function_call", "call_id": format!("call_{name}"), "name": name, "arguments": "{}"});
    let body = json!({"object": "response", "status": "completed",
        "usage": {"input_tokens": 3, "output_tokens": 30, "total_tokens": 33},
        "output": [call("f"), message("Then"), call("g"), message("Last")]});
    let answer = translate(Dialect::Messages, Dialect::Responses, &body);
    let blocks: Vec<String> = items(&answer["content"]).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(blocks, ["tool_use", "text", "tool_use", "text"], "{answer}");
    let answer = translate(Dialect::Responses, Dialect::Responses, &body);
    let order = [("function_call", "f"), ("message", "Then"), ("function_call", "g"), ("message", "Last")];
    assert_eq!(items(&answer["output"]), expected(&order), "{answer}");
}

#[test]
fn an_answer_without_a_finish_reason_that_fills_its_cap_was_cut() {
    for (reason, tokens, expected) in
        [("null", 9, "length"), ("null", 8, "stop"), (r#""stop""#, 9, "stop"), (r#""length""#, 8, "length")]
    {
        let mut ask = sample_request(Dialect::Chat, false);
        ask.max_tokens = Some(9);
        let abilities = OfferCapabilities::default();
        let target = sample_target(Dialect::Chat, &abilities);
        let body = format!(
            r#"{{"object":"chat.completion","choices":[{{"index":0,"message":{{"role":"assistant","content":"One two three four five six seven eight nine"}},"finish_reason":{reason}}}],"usage":{{"prompt_tokens":3,"completion_tokens":{tokens}}}}}"#
        );
        let pair = find_translator(Dialect::Chat, Dialect::Chat).unwrap();
        let answer = pair.translate_buffered(&ask, &target, Bytes::from(body)).unwrap();
        let answer: Value = serde_json::from_slice(&answer.body.concat()).unwrap();
        assert_eq!(answer["choices"][0]["finish_reason"], expected, "{reason} {tokens}");
    }
}

#[test]
fn thinking_of_which_only_the_signature_came_is_in_every_answer() {
    let blocks = [
        json!({"type": "thinking", "thinking": "", "signature": "seal"}),
        json!({"type": "text", "text": "Hi"}),
        json!({"type": "thinking", "thinking": "Hm", "signature": "other"}),
        json!({"type": "thinking", "thinking": "", "signature": "last"}),
    ];
    let body = json!({"type": "message", "role": "assistant", "model": "x", "stop_reason": "end_turn",
        "usage": {"input_tokens": 3, "output_tokens": 30}, "content": blocks});
    let abilities = OfferCapabilities::default();
    let target = sample_target(Dialect::Messages, &abilities);
    let pair = find_translator(Dialect::Messages, Dialect::Messages).unwrap();
    for display in [ThinkingDisplay::Shown, ThinkingDisplay::Omitted, ThinkingDisplay::Off] {
        // The gateway writes the whole answer itself, because it may have to cut calls.
        for parallel_tools in [true, false] {
            let ask = sample_request(Dialect::Messages, false);
            let ask = InferenceRequest { thinking: display, parallel_tools, ..ask };
            let answer = pair.translate_buffered(&ask, &target, Bytes::from(body.to_string())).unwrap();
            let answer: Value = serde_json::from_slice(&answer.body.concat()).unwrap();
            let expected: Vec<Value> = match display {
                ThinkingDisplay::Shown => blocks.to_vec(),
                ThinkingDisplay::Omitted => {
                    let mut blocks = blocks.to_vec();
                    blocks[2]["thinking"] = json!("");
                    blocks
                }
                ThinkingDisplay::Off => vec![blocks[1].clone()],
            };
            assert_eq!(answer["content"], json!(expected), "{display:?} {parallel_tools}");
        }
    }
}

#[test]
fn streamed_and_plain_answers_have_the_same_thinking_blocks() {
    let event = |data: Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    let start = json!({"type": "message", "id": "msg_1", "role": "assistant", "model": "x", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 3, "output_tokens": 0}});
    let mut stream = event(json!({"type": "message_start", "message": start}));
    for (index, (thinking, signature)) in [("", "seal"), ("Hm", "other"), ("", "last")].iter().enumerate() {
        let block = json!({"type": "thinking", "thinking": "", "signature": ""});
        stream += &event(json!({"type": "content_block_start", "index": index, "content_block": block}));
        for delta in [
            json!({"type": "thinking_delta", "thinking": thinking}),
            json!({"type": "signature_delta", "signature": signature}),
        ] {
            stream += &event(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        stream += &event(json!({"type": "content_block_stop", "index": index}));
    }
    stream += &event(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
        "usage": {"output_tokens": 3}}));
    stream += &event(json!({"type": "message_stop"}));
    let abilities = OfferCapabilities::default();
    let target = sample_target(Dialect::Messages, &abilities);
    let pair = find_translator(Dialect::Messages, Dialect::Messages).unwrap();
    let ask = InferenceRequest {
        thinking: ThinkingDisplay::Shown,
        parallel_tools: false,
        ..sample_request(Dialect::Messages, true)
    };
    let run = run_all_splits(&|| pair.translate_stream(&ask, &target), stream.as_bytes());
    let out = String::from_utf8(run.out).unwrap();
    let plain = pair.translate_buffered(&ask, &target, Bytes::from(stream)).unwrap();
    let plain: Value = serde_json::from_slice(&plain.body.concat()).unwrap();
    let signatures = |name: &str| out.matches(&format!(r#""signature":"{name}""#)).count();
    let blocks = plain["content"].as_array().unwrap();
    assert_eq!((blocks.len(), out.matches("event: content_block_start").count()), (3, 3), "{plain} {out}");
    for (block, name) in blocks.iter().zip(["seal", "other", "last"]) {
        assert_eq!((&block["signature"], signatures(name)), (&json!(name), 1));
    }
}
