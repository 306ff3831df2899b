//! Tests of log probabilities whose engine leaves out members, for the clients that get them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::{find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;
use serde_json::{Value, json};

fn ask(client: Dialect) -> InferenceRequest {
    let body = json!({"model": "m", "logprobs": true, "messages": [{"role": "user", "content": "Hi"}]});
    let mut ask = test_support::sample_request(Dialect::Chat, body.to_string().as_bytes());
    ask.dialect = client;
    ask
}

/// Returns the answer of a chat engine, as the body of a plain answer and as a stream.
fn answers(logprobs: &Value) -> (String, String) {
    let message = json!({"role": "assistant", "content": "ab"});
    let usage = json!({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5});
    let plain = json!({"id": "c", "object": "chat.completion", "created": 1, "model": "x", "usage": usage,
        "choices": [{"index": 0, "message": message, "logprobs": logprobs, "finish_reason": "stop"}]});
    let chunk = |delta: Value, logprobs: &Value, finish: Value| {
        let choice = json!({"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish});
        let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "x",
            "choices": [choice]});
        format!("data: {chunk}\n\n")
    };
    let stream = [
        chunk(message, logprobs, Value::Null),
        chunk(json!({}), &Value::Null, json!("stop")),
        "data: [DONE]\n\n".to_owned(),
    ];
    (plain.to_string(), stream.concat())
}

/// Returns the first list of log probabilities in an answer to a client.
fn find_list(value: &Value) -> Option<&Value> {
    match value {
        Value::Array(list) => list.iter().find_map(find_list),
        Value::Object(members) => {
            let own = members.get("logprobs").map(|own| own.get("content").unwrap_or(own));
            own.filter(|list| list[0].is_object()).or_else(|| members.values().find_map(find_list))
        }
        _ => None,
    }
}

/// Returns the tokens that a client gets in a plain answer and in each event of a stream that has them.
fn tokens(client: Dialect, logprobs: &Value) -> Vec<Value> {
    let capabilities = OfferCapabilities::default();
    let (ask, target) = (ask(client), test_support::sample_target(Dialect::Chat, &capabilities));
    let translator = find_translator(client, Dialect::Chat).unwrap();
    let (plain, stream) = answers(logprobs);
    let answer = translator.translate_buffered(&ask, &target, Bytes::from(plain)).unwrap();
    let mut found = vec![find_list(&serde_json::from_slice(&answer.body.concat()).unwrap()).unwrap().clone()];
    let run = test_support::run_all_splits(&|| translator.translate_stream(&ask, &target), stream.as_bytes());
    assert_eq!(run.fault, None);
    let text = String::from_utf8(run.out).unwrap();
    let events = text.lines().filter_map(|line| line.strip_prefix("data: {"));
    found.extend(
        events.filter_map(|event| find_list(&serde_json::from_str(&format!("{{{event}")).unwrap()).cloned()),
    );
    found
}

#[test]
fn clients_get_the_members_that_an_engine_leaves_out() {
    let engine = json!({"content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": null,
        "bytes": null, "top_logprobs": [{"token": "b", "logprob": -1}]}]});
    let token = |bytes: Value| {
        json!([{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []},
        {"token": "b", "logprob": -9999.0, "bytes": bytes,
            "top_logprobs": [{"token": "b", "logprob": -1, "bytes": [98]}]}])
    };
    let chat = tokens(Dialect::Chat, &engine);
    assert_eq!(chat, [token(Value::Null), token(Value::Null)]);
    let responses = tokens(Dialect::Responses, &engine);
    assert!(responses.len() > 4, "a delta, the ends of text, part and item, and the response");
    assert!(responses.iter().all(|list| *list == token(json!([98]))), "{responses:?}");
}
