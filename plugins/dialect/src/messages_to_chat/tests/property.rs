//! Property tests: the client receives the text of the provider, for any split of the stream and any order of its
//! blocks.

use super::admitted_request;
use crate::messages_to_chat::TRANSLATOR;
use crate::{conformance, test_support};
use penstock_core::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Content of one chunk of an engine.
#[derive(Clone, Debug)]
enum StreamItem {
    Text(String),
    Reasoning(String),
    /// Call number, and number of further characters of its arguments.
    Arguments(usize, usize),
}

fn stream_item() -> impl Strategy<Value = StreamItem> {
    let text = "\\PC{0,8}|[\"\\\\\\n\u{1f600}\u{2028}é]{0,4}";
    prop_oneof![
        text.prop_map(StreamItem::Text),
        text.prop_map(StreamItem::Reasoning),
        (0_usize..3, 1_usize..12).prop_map(|(call, more)| StreamItem::Arguments(call, more)),
    ]
}

/// Texts of an answer by kind.
#[derive(Debug, Default, PartialEq)]
struct ReceivedOutput {
    text: String,
    reasoning: String,
    inputs: BTreeMap<String, Value>,
}

/// Builds the engine's stream with interleaved calls; returns it with its expected texts.
fn build_stream(says: &[StreamItem], arguments: &[Value; 3]) -> (String, ReceivedOutput) {
    let spelled: Vec<Vec<char>> = arguments.iter().map(|value| value.to_string().chars().collect()).collect();
    let (mut out, mut heard) = (String::new(), ReceivedOutput::default());
    let mut done: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    let mut chunk = |delta: Value, finish: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        out.push_str(&format!("data: {}\n\n", json!({"choices": [choice]})));
    };
    let call = |order: usize, call: usize, text: String, first: bool| {
        let mut delta = json!({"index": order, "function": {"arguments": text}});
        if first {
            delta["id"] = json!(format!("call_{call}"));
            delta["function"]["name"] = json!(format!("f{call}"));
        }
        json!({"tool_calls": [delta]})
    };
    for say in says {
        match say {
            StreamItem::Text(text) => {
                heard.text += text;
                chunk(json!({"content": text}), None);
            }
            StreamItem::Reasoning(text) => {
                heard.reasoning += text;
                chunk(json!({"reasoning_content": text}), None);
            }
            StreamItem::Arguments(number, more) => {
                let next = done.len();
                let first = !done.contains_key(number);
                let (order, at) = done.entry(*number).or_insert((next, 0));
                let text: String = spelled[*number].iter().skip(*at).take(*more).collect();
                *at += more;
                chunk(call(*order, *number, text, first), None);
            }
        }
    }
    for (number, (order, at)) in &done {
        heard.inputs.insert(format!("call_{number}"), arguments[*number].clone());
        chunk(call(*order, *number, spelled[*number].iter().skip(*at).collect(), false), None);
    }
    chunk(json!({}), Some(if done.is_empty() { "stop" } else { "tool_calls" }));
    (out + "data: [DONE]\n\n", heard)
}

/// Parses the texts that the client receives.
fn parse_output(out: &[u8]) -> ReceivedOutput {
    let mut heard = ReceivedOutput::default();
    let (mut id, mut input) = (String::new(), String::new());
    for event in std::str::from_utf8(out).unwrap().split("\n\n").filter(|event| !event.is_empty()) {
        let data: Value = serde_json::from_str(event.split_once("\ndata: ").unwrap().1).unwrap();
        let delta = &data["delta"];
        match data["type"].as_str().unwrap() {
            "content_block_start" if data["content_block"]["type"] == "tool_use" => {
                (id, input) = (data["content_block"]["id"].as_str().unwrap().to_owned(), String::new());
            }
            "content_block_delta" => {
                heard.text += delta["text"].as_str().unwrap_or_default();
                heard.reasoning += delta["thinking"].as_str().unwrap_or_default();
                input += delta["partial_json"].as_str().unwrap_or_default();
            }
            "content_block_stop" if !id.is_empty() => {
                heard.inputs.insert(std::mem::take(&mut id), serde_json::from_str(&input).unwrap());
            }
            _ => {}
        }
    }
    heard
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nothing_is_lost_at_block_switches(
        says in prop::collection::vec(stream_item(), 1..24),
        words in prop::collection::vec("\\PC{0,10}", 3),
        cut in 1_usize..40,
        shown in any::<bool>(),
    ) {
        let thinking = if shown { r#","thinking":{"type":"adaptive"}"# } else { "" };
        let ask = admitted_request(Dialect::Messages, format!(r#"{{"model":"m","max_tokens":9,"messages":[],"stream":true{thinking}}}"#).as_bytes());
        let abilities = OfferCapabilities::default();
        let target = test_support::sample_target(Dialect::Chat, &abilities);
        let arguments = [json!({"a": words[0]}), json!({"b": [words[1], 1.5, null]}), json!({})];
        let (stream, mut expected) = build_stream(&says, &arguments);
        let run = test_support::run_stream(&mut *TRANSLATOR.translate_stream(&ask, &target), stream.as_bytes().chunks(cut));
        prop_assert_eq!(run.fault, None);
        prop_assert_eq!(conformance::check_messages_stream(&run.out), Ok(()));
        if !shown {
            expected.reasoning.clear();
        }
        prop_assert_eq!(parse_output(&run.out), expected);
    }
}
