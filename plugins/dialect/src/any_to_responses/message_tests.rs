//! Tests of several messages in one answer, and of their phases in both directions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use crate::{find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;
use serde_json::{Value, json};

fn message(phase: &str, text: &str) -> Value {
    json!({"type": "message", "id": format!("msg_{phase}"), "role": "assistant", "status": "completed", "phase": phase,
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

/// Complete response with two messages: a commentary and the final answer.
fn response() -> Value {
    json!({"object": "response", "status": "completed",
        "output": [message("commentary", "I will look."), message("final_answer", "Done.")],
        "usage": {"input_tokens": 7, "output_tokens": 9}})
}

/// The same response as a stream with deltas.
fn stream() -> String {
    let event = |data: Value| format!("data: {data}\n\n");
    let mut stream = event(json!({"type": "response.created", "response": {"status": "in_progress"}}));
    for (index, item) in response()["output"].as_array().unwrap().iter().enumerate() {
        let mut open = item.clone();
        open["content"] = json!([]);
        stream += &event(json!({"type": "response.output_item.added", "output_index": index, "item": open}));
        for text in [
            &item["content"][0]["text"].as_str().unwrap()[..2],
            &item["content"][0]["text"].as_str().unwrap()[2..],
        ] {
            stream += &event(
                json!({"type": "response.output_text.delta", "output_index": index, "content_index": 0,
                "delta": text}),
            );
        }
        stream += &event(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
    }
    stream + &event(json!({"type": "response.completed", "response": response()}))
}

fn ask(client: Dialect) -> InferenceRequest {
    let body = br#"{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"Hi"}]}"#;
    test_support::sample_request(client, body)
}

/// Returns phase and text of each message.
fn messages(response: &Value) -> Vec<(Value, Value)> {
    let items = response["output"].as_array().unwrap().iter();
    items.map(|item| (item["phase"].clone(), item["content"][0]["text"].clone())).collect()
}

fn expected() -> Vec<(Value, Value)> {
    vec![(json!("commentary"), json!("I will look.")), (json!("final_answer"), json!("Done."))]
}

#[test]
fn each_message_keeps_its_phase_in_a_stream() {
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(Dialect::Responses, &abilities);
    for client in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
        let ask = ask(client);
        let translator = find_translator(client, Dialect::Responses).unwrap();
        let stream = stream();
        let run =
            test_support::run_all_splits(&|| translator.translate_stream(&ask, &target), stream.as_bytes());
        let out = String::from_utf8(run.out).unwrap();
        assert_eq!(run.fault, None, "{out}");
        let events: Vec<Value> =
            out.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect();
        if client == Dialect::Responses {
            let added = events.iter().filter(|event| event["type"] == "response.output_item.added");
            let phases: Vec<&Value> = added.map(|event| &event["item"]["phase"]).collect();
            assert_eq!(phases, ["commentary", "final_answer"]);
            assert_eq!(messages(&events.last().unwrap()["response"]), expected());
            continue;
        }
        let text = |event: &Value| {
            let delta = match client {
                Dialect::Chat => &event["choices"][0]["delta"]["content"],
                _ => &event["delta"]["text"],
            };
            delta.as_str().map(str::to_owned)
        };
        assert_eq!(events.iter().filter_map(text).collect::<String>(), "I will look.\n\nDone.");
    }
}

#[test]
fn each_message_keeps_its_phase_in_a_whole_answer() {
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(Dialect::Responses, &abilities);
    for client in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
        let translator = find_translator(client, Dialect::Responses).unwrap();
        let body = Bytes::from(response().to_string());
        let answer = translator.translate_buffered(&ask(client), &target, body).unwrap();
        let mut body = answer.body.concat();
        if body.last() != Some(&b'}') {
            body.push(b'}');
        }
        let got: Value = serde_json::from_slice(&body).unwrap();
        match client {
            Dialect::Chat => assert_eq!(got["choices"][0]["message"]["content"], "I will look.\n\nDone."),
            Dialect::Messages => assert_eq!(got["content"][0]["text"], "I will look.\n\nDone."),
            _ => assert_eq!(messages(&got), expected()),
        }
    }
}

#[test]
fn a_single_message_without_a_phase_is_written_as_before() {
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(Dialect::Responses, &abilities);
    let mut one = response();
    one["output"] =
        json!([{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A"}]}]);
    let translator = find_translator(Dialect::Responses, Dialect::Responses).unwrap();
    let answer = translator
        .translate_buffered(&ask(Dialect::Responses), &target, Bytes::from(one.to_string()))
        .unwrap();
    let text = String::from_utf8(answer.body.concat()).unwrap();
    assert!(!text.contains("phase") && text.contains(r#""role":"assistant","content":["#), "{text}");
}

#[test]
fn phases_of_earlier_messages_reach_the_provider() {
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(Dialect::Responses, &abilities);
    let translator = find_translator(Dialect::Responses, Dialect::Responses).unwrap();
    let body = br#"{"model":"m","messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"I \"look\".\n\nDone."},{"role":"user","content":"More"}]}"#;
    let mut ask = test_support::sample_request(Dialect::Responses, body);
    let input = |ask: &InferenceRequest| {
        let sent = translator.build_request(ask, &target).unwrap().concat();
        serde_json::from_slice::<Value>(&sent).unwrap()["input"].take()
    };
    let joined = |bytes: usize| {
        let of = |phase, bytes| EarlierAnswerMessage { phase: Some(phase), bytes };
        vec![vec![of("commentary", bytes), of("final_answer", 5)]]
    };
    for (bytes, expected) in [
        (
            11,
            json!([{"role": "assistant", "phase": "commentary", "content": "I \"look\"."},
                {"role": "assistant", "phase": "final_answer", "content": "Done."}]),
        ),
        // The recorded length does not match the text, for example because the client shortened it: the text is not
        // split.
        (12, json!([{"role": "assistant", "content": "I \"look\".\n\nDone."}])),
    ] {
        let earlier_messages = joined(bytes);
        ask.responses = Some(Box::new(ResponsesDetails { earlier_messages, ..ResponsesDetails::default() }));
        let items = input(&ask);
        let items: Vec<&Value> =
            items.as_array().unwrap().iter().filter(|item| item["role"] == "assistant").collect();
        assert_eq!(json!(items), expected);
    }
}
