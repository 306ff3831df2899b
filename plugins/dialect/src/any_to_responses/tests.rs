//! Tests of the request: each request for a chat provider can be converted to a valid request of the responses dialect.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use crate::{find_translator, test_support};
use penstock_core::*;
use serde_json::{Value, json};
use std::path::Path;

/// Members of the chat dialect that the responses dialect does not have.
const CHAT_ONLY: [&str; 9] = [
    "messages",
    "max_tokens",
    "max_completion_tokens",
    "stop",
    "n",
    "response_format",
    "reasoning_effort",
    "logprobs",
    "stream_options",
];

#[test]
fn no_request_has_members_of_chat_alone() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/chat_chat");
    let mut sent_count = 0;
    for case in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let Ok(ask) = std::fs::read(case.join("ask.json")) else { continue };
        let target = std::fs::read(case.join("target.json")).unwrap_or_else(|_| b"{}".to_vec());
        let ask = test_support::sample_request(Dialect::Chat, ask.trim_ascii());
        let abilities = test_support::parse_capabilities(&serde_json::from_slice(&target).unwrap());
        let target = test_support::sample_target(Dialect::Responses, &abilities);
        let translator = find_translator(Dialect::Chat, Dialect::Responses).unwrap();
        let Ok(sent) = translator.build_request(&ask, &target) else { continue };
        sent_count += 1;
        let sent: Value = serde_json::from_slice(&sent.concat()).unwrap();
        for name in CHAT_ONLY {
            assert!(sent.get(name).is_none(), "{name}: {}", case.display());
        }
        assert_eq!((&sent["model"], &sent["store"]), (&json!("engine/model"), &json!(false)));
        assert!(sent["input"].is_array(), "{}", case.display());
    }
    assert!(sent_count > 20, "{sent_count} requests");
}

#[test]
fn an_answer_is_not_continued() {
    let abilities = OfferCapabilities {
        continuation: Some(ContinuationMethod::ContinueFinalMessage),
        prefill: PrefillMethod::Automatic,
        ..OfferCapabilities::default()
    };
    let target = test_support::sample_target(Dialect::Responses, &abilities);
    assert_eq!((target.continuation_method(), target.prefill_method()), (None, PrefillMethod::None));
    for client in [Dialect::Chat, Dialect::Messages] {
        let ask = test_support::sample_request(
            client,
            br#"{"model":"m","messages":[{"role":"user","content":"Hi"}]}"#,
        );
        let translator = find_translator(client, Dialect::Responses).unwrap();
        assert!(translator.build_continuation(&ask, &target, "Hel").is_err());
    }
}

#[test]
fn a_refused_word_of_effort_is_replaced_before_the_effort_is_left_out() {
    let abilities =
        OfferCapabilities { parameters: vec!["reasoning_effort".into()], ..OfferCapabilities::default() };
    let mut target = test_support::sample_target(Dialect::Responses, &abilities);
    let named = AdjustableMemberSet::named_in_message(|word| word == "effort" || word == "reasoning");
    let exact = AdjustableMemberSet::from_member(AdjustableMember::ExactEffort);
    assert!(named.without_containing_members().contains(AdjustableMember::ExactEffort));
    assert!(!named.without_containing_members().contains(AdjustableMember::Effort));
    for (client, body, words) in [
        (Dialect::Chat, json!({"reasoning_effort": "xhigh"}), ["xhigh", "high"]),
        (Dialect::Chat, json!({"reasoning_effort": "minimal"}), ["minimal", "low"]),
        (Dialect::Messages, json!({"output_config": {"effort": "max"}}), ["max", "high"]),
    ] {
        let mut body = body;
        body["model"] = json!("m");
        body["messages"] = json!([{"role": "user", "content": "Hi"}]);
        let ask = test_support::sample_request(client, body.to_string().as_bytes());
        let translator = find_translator(client, Dialect::Responses).unwrap();
        for (omitted, word) in [AdjustableMemberSet::NONE, exact].into_iter().zip(words) {
            target.adjustment.omitted = omitted;
            let sent = translator.build_request(&ask, &target).unwrap().concat();
            let sent: Value = serde_json::from_slice(&sent).unwrap();
            assert_eq!(sent["reasoning"]["effort"], word, "{client:?}");
        }
    }
}

#[test]
fn arguments_that_come_with_the_end_reach_every_client() {
    let call = |name: &str, arguments: &str| {
        json!({"type": "function_call", "call_id": format!("call_{name}"), "name": name,
            "arguments": arguments})
    };
    let event = |data: Value| format!("data: {data}\n\n");
    let (first, second) = (r#"{"x":"first"}"#, r#"{"y":"second"}"#);
    let mut stream = event(json!({"type": "response.created", "response": {"status": "in_progress"}}));
    for (index, name) in ["f", "g"].into_iter().enumerate() {
        let item = call(name, "");
        stream += &event(json!({"type": "response.output_item.added", "output_index": index, "item": item}));
    }
    let response = json!({"status": "completed", "output": [call("f", first), call("g", second)],
        "usage": {"input_tokens": 7, "output_tokens": 9}});
    stream += &event(json!({"type": "response.completed", "response": response}));
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(Dialect::Responses, &abilities);
    for client in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
        let body =
            br#"{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"Hi"}]}"#;
        let ask = test_support::sample_request(client, body);
        let translator = find_translator(client, Dialect::Responses).unwrap();
        let run =
            test_support::run_all_splits(&|| translator.translate_stream(&ask, &target), stream.as_bytes());
        let (text, calls) = (String::from_utf8(run.out).unwrap(), Some(FinishReason::ToolCalls));
        assert_eq!((run.fault, run.finish_reason), (None, calls), "{text}");
        assert!(text.find("first").unwrap() < text.find("second").unwrap(), "{text}");
    }
}

#[test]
fn disabled_reasoning_is_the_effort_none_and_the_least_effort_where_that_is_refused() {
    let abilities =
        OfferCapabilities { parameters: vec!["reasoning_effort".into()], ..OfferCapabilities::default() };
    for (client, member) in [
        (Dialect::Chat, r#""chat_template_kwargs":{"enable_thinking":false}"#),
        (Dialect::Chat, r#""thinking":{"type":"disabled"}"#),
        (Dialect::Chat, r#""reasoning":{"enabled":false}"#),
        (Dialect::Chat, r#""think":false"#),
        (Dialect::Chat, r#""thinking_budget":0"#),
        (Dialect::Messages, r#""max_tokens":9,"thinking":{"type":"disabled"}"#),
    ] {
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"Hi"}}],{member}}}"#);
        let ask = test_support::sample_request(client, body.as_bytes());
        let translator = find_translator(client, Dialect::Responses).unwrap();
        let refused =
            AdjustableMemberSet::named_in_message(|word| word == "effort").without_containing_members();
        for (omitted, effort) in [(AdjustableMemberSet::NONE, "none"), (refused, "low")] {
            let mut target = test_support::sample_target(Dialect::Responses, &abilities);
            target.adjustment.omitted = omitted;
            let sent = translator.build_request(&ask, &target).unwrap().concat();
            let sent: Value = serde_json::from_slice(&sent).unwrap();
            assert_eq!(sent["reasoning"]["effort"], effort, "{member}: {sent}");
        }
    }
}
