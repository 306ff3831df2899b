//! Tests of the reasoning parameters of engines that an offer lists.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::{find_translator, test_support};
use bytes::Bytes;
use penstock_core::{Dialect, OfferCapabilities};
use penstock_request_validation::{
    MessagesPurpose, RequestLimits, ResponsesPurpose, validate_chat_request, validate_messages_request,
    validate_responses_request,
};
use serde_json::{Value, json};

const CLIENTS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];

/// Returns the members about reasoning that a provider of an offer with these parameters gets.
fn sent(client: Dialect, provider: Dialect, parameters: &[&str], members: &str) -> Value {
    let conversation = match client {
        Dialect::Responses => r#""input":"Hi""#,
        _ => r#""max_tokens":9,"messages":[{"role":"user","content":"Hi"}]"#,
    };
    let body = Bytes::from(format!(r#"{{"model":"m",{conversation},{members}}}"#));
    let limits = RequestLimits::default();
    let ask = match client {
        Dialect::Chat => validate_chat_request(body, &limits),
        Dialect::Messages => validate_messages_request(body, &limits, MessagesPurpose::Generate),
        _ => validate_responses_request(body, &limits, ResponsesPurpose::Generate),
    }
    .unwrap();
    let abilities = OfferCapabilities {
        parameters: parameters.iter().map(|name| (*name).into()).collect(),
        ..OfferCapabilities::default()
    };
    let target = test_support::sample_target(provider, &abilities);
    let pair = find_translator(client, provider).unwrap();
    let body: Value = serde_json::from_slice(&pair.build_request(&ask, &target).unwrap().concat()).unwrap();
    let names =
        ["enable_thinking", "thinking_budget", "reasoning_effort", "chat_template_kwargs", "reasoning"];
    names.into_iter().filter_map(|name| Some((name.to_owned(), body.get(name)?.clone()))).collect()
}

#[test]
fn a_listed_parameter_reaches_each_provider_from_each_client() {
    let listed = ["temperature", "stream", "enable_thinking", "thinking_budget"];
    for client in CLIENTS {
        for provider in [Dialect::Chat, Dialect::Responses] {
            for (members, expected) in [
                (r#""enable_thinking":false"#, json!({"enable_thinking": false})),
                (r#""enable_thinking":true"#, json!({"enable_thinking": true})),
                (r#""thinking_budget":500"#, json!({"thinking_budget": 500})),
                (
                    r#""enable_thinking":true,"thinking_budget":500"#,
                    json!({"enable_thinking": true, "thinking_budget": 500}),
                ),
            ] {
                assert_eq!(sent(client, provider, &listed, members), expected, "{client:?} {provider:?}");
                let unlisted = sent(client, provider, &["temperature"], members);
                assert_eq!(unlisted, json!({}), "{client:?} {provider:?} {members}");
            }
        }
    }
}

#[test]
fn disabled_thinking_is_not_contradicted_by_an_effort() {
    for client in CLIENTS {
        for (members, parameters, expected) in [
            (r#""enable_thinking":false"#, &["enable_thinking"][..], json!({"enable_thinking": false})),
            (r#""think":false"#, &["enable_thinking"], json!({"enable_thinking": false})),
            (r#""thinking_budget":0"#, &["enable_thinking"], json!({"enable_thinking": false})),
            (r#""thinking_budget":0"#, &["thinking_budget"], json!({"thinking_budget": 0})),
            (r#""enable_thinking":false"#, &["thinking_budget"], json!({"reasoning_effort": "low"})),
        ] {
            let parameters = [parameters, &["reasoning_effort"]].concat();
            assert_eq!(sent(client, Dialect::Chat, &parameters, members), expected, "{client:?} {members}");
        }
        let parameters = ["enable_thinking", "reasoning_effort"];
        let body = sent(client, Dialect::Responses, &parameters, r#""enable_thinking":false"#);
        let expected = json!({"enable_thinking": false, "reasoning": {"effort": "none"}});
        assert_eq!(body, expected, "{client:?}");
        let both = r#""enable_thinking":true,"thinking_budget":9000"#;
        let expected = json!({"enable_thinking": true, "reasoning_effort": "high"});
        assert_eq!(sent(client, Dialect::Chat, &parameters, both), expected, "{client:?}");
    }
}

#[test]
fn the_parameter_with_precedence_replaces_the_others() {
    let all = ["enable_thinking", "chat_template_kwargs", "temperature"];
    for client in CLIENTS {
        for (members, parameters, expected) in [
            (
                r#""enable_thinking":true,"chat_template_kwargs":{"x":1,"enable_thinking":false}"#,
                &all[1..],
                json!({"chat_template_kwargs": {"enable_thinking": true, "x": 1}}),
            ),
            (
                r#""enable_thinking":false,"chat_template_kwargs":{"thinking":true}"#,
                &all[..],
                json!({"enable_thinking": false,
                    "chat_template_kwargs": {"enable_thinking": false, "thinking": false}}),
            ),
            (
                r#""chat_template_kwargs":{"enable_thinking":false}"#,
                &all[1..],
                json!({"chat_template_kwargs": {"enable_thinking": false}}),
            ),
            (
                r#""enable_thinking":true,"chat_template_kwargs":{"x":[false]}"#,
                &all[1..],
                json!({"chat_template_kwargs": {"x": [false]}}),
            ),
        ] {
            assert_eq!(sent(client, Dialect::Chat, parameters, members), expected, "{client:?} {members}");
        }
    }
    for (members, on) in [
        (r#""reasoning_effort":"high","enable_thinking":false"#, true),
        (r#""reasoning_effort":"none","enable_thinking":true"#, false),
    ] {
        let body = sent(Dialect::Chat, Dialect::Chat, &["enable_thinking"], members);
        assert_eq!(body, json!({"enable_thinking": on}), "{members}");
    }
}
