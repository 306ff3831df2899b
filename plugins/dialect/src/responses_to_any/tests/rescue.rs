//! Rescue tests: a second provider of either dialect continues the answer after the first stream breaks.

use super::{admitted_request, events};
use crate::{conformance, find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;
use serde_json::{Value, json};

fn chat_stream(texts: &[&str], is_complete: bool) -> String {
    let chunk = |delta: Value, finish: Option<&str>| {
        format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}))
    };
    let mut stream: String = texts.iter().map(|text| chunk(json!({"content": text}), None)).collect();
    if is_complete {
        stream += &(chunk(json!({}), Some("stop")) + "data: [DONE]\n\n");
    }
    stream
}

fn messages_stream(texts: &[&str], is_complete: bool) -> String {
    let event = |data: Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "x", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 3, "output_tokens": 0}});
    let mut stream = event(json!({"type": "message_start", "message": message}));
    stream += &event(json!({"type": "content_block_start", "index": 0,
        "content_block": {"type": "text", "text": ""}}));
    for text in texts {
        let delta = json!({"type": "text_delta", "text": text});
        stream += &event(json!({"type": "content_block_delta", "index": 0, "delta": delta}));
    }
    if is_complete {
        stream += &event(json!({"type": "content_block_stop", "index": 0}));
        stream += &event(json!({"type": "message_delta", "usage": {"output_tokens": 3},
            "delta": {"stop_reason": "end_turn", "stop_sequence": null}}));
        stream += &event(json!({"type": "message_stop"}));
    }
    stream
}

fn responses_stream(texts: &[&str], is_complete: bool) -> String {
    let event = |data: Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    let response =
        |status: &str| json!({"id": "resp_1", "object": "response", "status": status, "output": []});
    let item = json!({"type": "message", "id": "msg_1", "role": "assistant", "content": []});
    let mut stream = event(json!({"type": "response.created", "response": response("in_progress")}));
    stream += &event(json!({"type": "response.output_item.added", "output_index": 0, "item": item}));
    for text in texts {
        stream += &event(json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0,
            "delta": text}));
    }
    if is_complete {
        stream += &event(json!({"type": "response.completed", "response": response("completed")}));
    }
    stream
}

fn stream_of(provider: Dialect, texts: &[&str], is_complete: bool) -> String {
    match provider {
        Dialect::Chat => chat_stream(texts, is_complete),
        Dialect::Messages => messages_stream(texts, is_complete),
        _ => responses_stream(texts, is_complete),
    }
}

#[test]
fn a_broken_stream_is_continued_or_repeated_by_any_provider() {
    const PROVIDERS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];
    for first in PROVIDERS {
        for second in PROVIDERS {
            for (how, texts) in [
                (RescueMode::StartOver, &["Hello, world", ". More."][..]),
                (RescueMode::Continue, &["orld. More."][..]),
            ] {
                let abilities = OfferCapabilities::default();
                let ask = admitted_request(&json!({"model": "m", "input": "Hi", "stream": true}));
                let target = test_support::sample_target(first, &abilities);
                let mut reply =
                    find_translator(Dialect::Responses, first).unwrap().translate_stream(&ask, &target);
                let mut out = OutputBuffer::default();
                reply.push(Bytes::from(stream_of(first, &["Hello, ", "w"], false)), &mut out).unwrap();
                assert_eq!(reply.end(&mut out).unwrap_err().kind, UpstreamErrorKind::Truncated);
                assert!(reply.start_rescue(&test_support::sample_target(second, &abilities), how));
                let next = stream_of(second, texts, true);
                let run = test_support::run_stream(&mut *reply, next.as_bytes().chunks(7));
                let all = [out.0.concat(), run.out].concat();
                assert_eq!(conformance::check_responses_stream(&all), Ok(()));
                let events = events(&String::from_utf8(all).unwrap());
                let last = &events.last().unwrap();
                assert_eq!(last["type"], "response.completed");
                assert_eq!(last["response"]["output"][0]["content"][0]["text"], "Hello, world. More.");
                assert_eq!(last["response"]["output"].as_array().unwrap().len(), 1);
            }
        }
    }
}
