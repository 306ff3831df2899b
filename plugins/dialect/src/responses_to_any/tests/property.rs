//! Property tests: the texts of the response equal those of the provider, for any order of its deltas.

use super::{admitted_request, stream_events};
use penstock_core::*;
use proptest::prelude::*;
use serde_json::{Value, json};

#[derive(Clone, Debug)]
enum Delta {
    Text(String),
    Reasoning(String),
    Arguments(usize),
}

fn delta() -> impl Strategy<Value = Delta> {
    let text = "\\PC{0,8}|[\"\\\\\\n\u{1f600}\u{2028}é]{0,4}";
    prop_oneof![
        text.prop_map(Delta::Text),
        text.prop_map(Delta::Reasoning),
        (1_usize..12).prop_map(Delta::Arguments),
    ]
}

/// Texts by kind: reasoning, answer, arguments.
type Texts = [String; 3];

/// Builds the stream of a provider with one call, and its texts.
fn build_stream(deltas: &[Delta], arguments: &str) -> (String, Texts) {
    let mut stream = String::new();
    let mut texts = Texts::default();
    let mut rest: Vec<char> = arguments.chars().rev().collect();
    let mut has_call = false;
    let mut push = |delta: Value, finish: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        stream.push_str(&format!("data: {}\n\n", json!({"choices": [choice]})));
    };
    let mut call = |count: usize, texts: &mut Texts| {
        let piece: String = (0..count).map_while(|_| rest.pop()).collect();
        texts[2].push_str(&piece);
        let mut call = json!({"index": 0, "function": {"arguments": piece}});
        if !std::mem::replace(&mut has_call, true) {
            call["id"] = json!("c1");
            call["function"]["name"] = json!("f");
        }
        json!({"tool_calls": [call]})
    };
    for delta in deltas {
        match delta {
            Delta::Text(text) => {
                texts[1].push_str(text);
                push(json!({"content": text}), None);
            }
            Delta::Reasoning(text) => {
                texts[0].push_str(text);
                push(json!({"reasoning_content": text}), None);
            }
            Delta::Arguments(count) => push(call(*count, &mut texts), None),
        }
    }
    push(call(usize::MAX, &mut texts), None);
    push(json!({}), Some("tool_calls"));
    stream.push_str("data: [DONE]\n\n");
    (stream, texts)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_text_is_lost_or_changed(deltas in prop::collection::vec(delta(), 0..12), value in "\\PC{0,12}") {
        let arguments = json!({"a": value}).to_string();
        let (stream, texts) = build_stream(&deltas, &arguments);
        let ask = admitted_request(&json!({"model": "m", "input": "Hi", "stream": true}));
        let events = stream_events(&ask, Dialect::Chat, stream.as_bytes());
        let mut seen = Texts::default();
        for item in events.last().unwrap()["response"]["output"].as_array().unwrap() {
            let (kind, text) = match item["type"].as_str().unwrap() {
                "reasoning" => (0, &item["content"][0]["text"]),
                "message" => (1, &item["content"][0]["text"]),
                _ => (2, &item["arguments"]),
            };
            seen[kind].push_str(text.as_str().unwrap());
        }
        prop_assert_eq!(seen, texts);
    }
}
