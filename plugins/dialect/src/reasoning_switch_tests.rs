//! Tests of the switch for thinking in requests, and of reasoning that a client asks to leave out.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::{conformance, find_translator, test_support};
use bytes::Bytes;
use penstock_core::{Dialect, OfferCapabilities};
use serde_json::{Value, json};

/// Returns the request that a provider with these parameters and a switch receives.
fn sent(client: Dialect, provider: Dialect, parameters: &[&str], members: &str) -> Value {
    let body =
        format!(r#"{{"model":"m","max_tokens":9,"messages":[{{"role":"user","content":"Hi"}}],{members}}}"#);
    let ask = test_support::sample_request(client, body.as_bytes());
    let abilities = OfferCapabilities {
        thinking_switch: true,
        parameters: parameters.iter().map(|name| (*name).into()).collect(),
        ..OfferCapabilities::default()
    };
    let target = test_support::sample_target(provider, &abilities);
    let pair = find_translator(client, provider).unwrap();
    serde_json::from_slice(&pair.build_request(&ask, &target).unwrap().concat()).unwrap()
}

/// Returns the request that a messages provider with effort levels and without a switch receives.
fn sent_without_switch(client: Dialect, members: &str) -> Value {
    let body =
        format!(r#"{{"model":"m","max_tokens":9,"messages":[{{"role":"user","content":"Hi"}}],{members}}}"#);
    let ask = test_support::sample_request(client, body.as_bytes());
    let abilities =
        OfferCapabilities { parameters: vec!["reasoning_effort".into()], ..OfferCapabilities::default() };
    let target = test_support::sample_target(Dialect::Messages, &abilities);
    let pair = find_translator(client, Dialect::Messages).unwrap();
    serde_json::from_slice(&pair.build_request(&ask, &target).unwrap().concat()).unwrap()
}

const CHAT_LEVELS: [&str; 6] = [
    r#""output_config":{"effort":"high"}"#,
    r#""reasoning_effort":"high""#,
    r#""reasoning_effort":"low""#,
    r#""reasoning":{"effort":"high"}"#,
    r#""reasoning":{"max_tokens":2000}"#,
    r#""think":"high""#,
];
const OFF: [&str; 7] = [
    r#""chat_template_kwargs":{"enable_thinking":false}"#,
    r#""enable_thinking":false"#,
    r#""reasoning_effort":"none""#,
    r#""think":false"#,
    r#""thinking_budget":0"#,
    r#""reasoning":{"effort":"none"}"#,
    r#""disable_reasoning":true"#,
];

#[test]
fn a_level_switches_thinking_on_where_the_offer_takes_no_effort() {
    let on = json!({"enable_thinking": true});
    for (client, levels) in [
        (Dialect::Chat, &CHAT_LEVELS[..]),
        (Dialect::Messages, &[r#""output_config":{"effort":"high"}"#, r#""reasoning_effort":"low""#]),
    ] {
        for level in levels {
            let body = sent(client, Dialect::Chat, &["temperature"], level);
            assert_eq!((&body["chat_template_kwargs"], body.get("reasoning_effort")), (&on, None), "{level}");
            let body = sent(client, Dialect::Chat, &["reasoning_effort"], level);
            assert_eq!(body.get("chat_template_kwargs"), None, "{level}");
            assert!(body["reasoning_effort"].is_string(), "{level}");
        }
    }
    let body = sent(Dialect::Chat, Dialect::Messages, &["temperature"], r#""reasoning_effort":"high""#);
    assert_eq!((&body["thinking"]["type"], body.get("output_config")), (&json!("adaptive"), None));
}

#[test]
fn the_reasoning_parameters_of_a_messages_client_reach_a_messages_provider_as_those_of_a_chat_client() {
    let on = [
        r#""enable_thinking":true"#,
        r#""chat_template_kwargs":{"reasoning_effort":"high"}"#,
        r#""chat_template_kwargs":{"enable_thinking":true}"#,
        r#""reasoning":{"enabled":true}"#,
        r#""output_config":{"task_budget":{"total":9}},"reasoning_effort":"max""#,
        r#""output_config":{"effort":null},"think":true"#,
    ];
    for members in CHAT_LEVELS[1..].iter().chain(&on) {
        let (chat, own) =
            (sent_without_switch(Dialect::Chat, members), sent_without_switch(Dialect::Messages, members));
        assert_eq!(chat["thinking"]["type"], "adaptive", "{members}");
        assert_eq!(own["thinking"], chat["thinking"], "{members}");
        assert_eq!(own["output_config"]["effort"], chat["output_config"]["effort"], "{members}");
        for parameters in [&["temperature"][..], &["reasoning_effort"]] {
            let chat = sent(Dialect::Chat, Dialect::Messages, parameters, members);
            let own = sent(Dialect::Messages, Dialect::Messages, parameters, members);
            assert_eq!(own["thinking"], chat["thinking"], "{members}");
            assert_eq!(own["output_config"]["effort"], chat["output_config"]["effort"], "{members}");
        }
    }
    let members = r#""output_config":{"task_budget":{"total":9}},"reasoning_effort":"max""#;
    let config = json!({"task_budget": {"total": 9}, "effort": "max"});
    assert_eq!(sent_without_switch(Dialect::Messages, members)["output_config"], config);
    // The members of the client's dialect have precedence over other parameters.
    for own in [r#""thinking":{"type":"disabled"}"#, r#""output_config":{"effort":"low"}"#] {
        let members = format!(r#"{own},"reasoning_effort":"high""#);
        let body = sent_without_switch(Dialect::Messages, &members);
        let expected: Value = serde_json::from_str(&format!("{{{own}}}")).unwrap();
        assert_eq!(body.get("thinking"), expected.get("thinking"), "{members}");
        assert_eq!(body.get("output_config"), expected.get("output_config"), "{members}");
    }
}

#[test]
fn each_type_of_thinking_reaches_each_provider() {
    for kind in ["enabled", "adaptive", "auto"] {
        let members = format!(r#""thinking":{{"type":"{kind}"}}"#);
        let body = sent(Dialect::Chat, Dialect::Messages, &["temperature"], &members);
        assert_eq!(body["thinking"]["type"], "adaptive", "{kind}");
        let expected = if kind == "auto" { "adaptive" } else { kind };
        let body = sent(Dialect::Messages, Dialect::Messages, &["temperature"], &members);
        assert_eq!(body["thinking"], json!({"type": expected}), "{kind}");
        let body = sent(Dialect::Chat, Dialect::Chat, &["temperature"], &members);
        assert_eq!(body["chat_template_kwargs"], json!({"enable_thinking": true}), "{kind}");
        let members = format!(r#"{members},"output_config":{{"effort":"max"}}"#);
        let body = sent(Dialect::Chat, Dialect::Messages, &["reasoning_effort"], &members);
        assert_eq!(
            (&body["thinking"]["type"], &body["output_config"]["effort"]),
            (&json!("adaptive"), &json!("max"))
        );
        let body = sent(Dialect::Chat, Dialect::Responses, &["reasoning_effort"], &members);
        assert_eq!(body["reasoning"]["effort"], "max");
    }
}

#[test]
fn every_spelling_of_no_thinking_reaches_an_offer_with_a_switch() {
    let off = json!({"enable_thinking": false});
    for client in [Dialect::Chat, Dialect::Messages] {
        for members in OFF {
            for parameters in [&["temperature"][..], &["reasoning_effort", "chat_template_kwargs"]] {
                let body = sent(client, Dialect::Chat, parameters, members);
                assert_eq!(body["chat_template_kwargs"], off, "{client:?}: {members}");
                assert_eq!(body.get("reasoning_effort"), None, "{client:?}: {members}");
            }
            let body = sent(client, Dialect::Messages, &["temperature"], members);
            assert_eq!(body["thinking"], json!({"type": "disabled"}), "{client:?}: {members}");
        }
    }
    for members in OFF {
        let chat = sent_without_switch(Dialect::Chat, members);
        assert_eq!(chat["thinking"], json!({"type": "disabled"}), "{members}");
        assert_eq!(
            sent_without_switch(Dialect::Messages, members)["thinking"],
            chat["thinking"],
            "{members}"
        );
    }
    // The members of the client's dialect have precedence over parameters of engines.
    let both = r#""thinking":{"type":"adaptive"},"enable_thinking":false"#;
    let body = sent(Dialect::Messages, Dialect::Chat, &["temperature"], both);
    assert_eq!(body["chat_template_kwargs"], json!({"enable_thinking": true}));
}

#[test]
fn other_members_for_the_template_stay_beside_the_switch() {
    let members = r#""thinking":{"type":"disabled"},"chat_template_kwargs":{"x":1,"enable_thinking":true}"#;
    for client in [Dialect::Chat, Dialect::Messages] {
        let body = sent(client, Dialect::Chat, &["chat_template_kwargs"], members);
        assert_eq!(body["chat_template_kwargs"], json!({"enable_thinking": false, "x": 1}), "{client:?}");
    }
}

#[test]
fn reasoning_is_left_out_of_a_chat_answer_on_request() {
    let chunk = |delta: Value, finish: Value| {
        format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}))
    };
    let stream = chunk(json!({"reasoning_content": "Think"}), Value::Null)
        + &chunk(json!({"content": "Text"}), Value::Null)
        + &chunk(json!({}), json!("stop"))
        + "data: [DONE]\n\n";
    let message = json!({"role": "assistant", "content": "Text", "reasoning_content": "Think"});
    let plain = json!({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).to_string();
    let (abilities, pair) =
        (OfferCapabilities::default(), find_translator(Dialect::Chat, Dialect::Chat).unwrap());
    let target = test_support::sample_target(Dialect::Chat, &abilities);
    for (members, is_shown) in [
        (r#""include_reasoning":false"#, false),
        (r#""reasoning":{"exclude":true}"#, false),
        (r#""reasoning_format":"hidden""#, false),
        (r#""include_reasoning":true,"reasoning":{"exclude":false},"reasoning_format":"parsed""#, true),
    ] {
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"Hi"}}],{members}}}"#);
        let ask = test_support::sample_request(Dialect::Chat, body.as_bytes());
        let answer = pair.translate_buffered(&ask, &target, Bytes::from(plain.clone())).unwrap();
        let text = String::from_utf8(answer.body.concat()).unwrap();
        assert_eq!((text.contains("Think"), text.contains("Text")), (is_shown, true), "{members}: {text}");
        assert_eq!(answer.output_bytes, 9, "hidden reasoning counts: {members}");
        let run = test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), stream.as_bytes());
        let out = String::from_utf8(run.out).unwrap();
        assert_eq!((run.fault, run.output_bytes), (None, 9), "{members}");
        assert_eq!(
            conformance::check_stream(Dialect::Chat, out.as_bytes(), false),
            Ok(()),
            "{members}: {out}"
        );
        assert_eq!((out.contains("Think"), out.contains("Text")), (is_shown, true), "{members}: {out}");
    }
}
