//! Tests of members of system messages inside `messages`, and of further nested members, for providers of each dialect.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::{find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;
use penstock_request_validation::{MessagesPurpose, RequestLimits, validate_messages_request};
use serde_json::{Value, json};

const PROVIDERS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];

/// Validates a request with these members, and builds the body for a provider that accepts system messages anywhere, or
/// only at the start.
fn build(provider: Dialect, system_anywhere: bool, members: &Value) -> Result<String, ApiError> {
    let mut body = json!({"model": "m", "max_tokens": 9});
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    let limits = RequestLimits::default();
    let ask = validate_messages_request(Bytes::from(body.to_string()), &limits, MessagesPurpose::Generate)?;
    let abilities = OfferCapabilities { system_anywhere, ..OfferCapabilities::default() };
    let target = test_support::sample_target(provider, &abilities);
    let sent = find_translator(Dialect::Messages, provider).unwrap().build_request(&ask, &target)?;
    Ok(String::from_utf8(sent.concat()).unwrap())
}

fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

/// Returns a system message with the text `hint` and further members.
fn system(members: &Value) -> Value {
    let mut message = message("system", "hint");
    message.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    message
}

#[test]
fn a_system_message_is_left_out_once_a_user_message_hides_it() {
    let cleared = system(&json!({"clear_at": "next_user_message"}));
    let kept = system(&json!({"clear_at": "never"}));
    let (ask, answer, next) = (message("user", "one"), message("assistant", "two"), message("user", "three"));
    for (messages, is_shown) in [
        (json!([ask, cleared]), true),
        (json!([ask, cleared, answer, next]), false),
        (json!([cleared, ask]), false),
        (json!([ask, cleared, next]), false),
        (json!([ask, answer, next, cleared]), true),
        (json!([ask, kept, answer, next]), true),
        (json!([ask, system(&json!({"clear_at": null})), answer, next]), true),
    ] {
        for provider in PROVIDERS {
            for anywhere in [false, true] {
                let sent = build(provider, anywhere, &json!({"messages": messages})).unwrap();
                assert_eq!(sent.contains("hint"), is_shown, "{provider:?} {anywhere} {messages}: {sent}");
                assert!(sent.contains("one"), "{sent}");
            }
        }
    }
    let twice = json!([ask, cleared, answer, next, cleared]);
    for provider in PROVIDERS {
        let sent = build(provider, true, &json!({"messages": twice})).unwrap();
        assert_eq!(sent.matches("hint").count(), 1, "{provider:?}: {sent}");
    }
}

#[test]
fn the_effort_of_a_system_message_reaches_the_provider_or_is_refused() {
    for message in [
        system(&json!({"output_config": {"effort": "low"}})),
        json!({"role": "system", "output_config": {"effort": "low"}}),
    ] {
        let members = json!({"messages": [{"role": "user", "content": "Hi"}, message]});
        for provider in PROVIDERS {
            for anywhere in [false, true] {
                let built = build(provider, anywhere, &members);
                if provider == Dialect::Messages && anywhere {
                    assert!(built.unwrap().contains(r#""output_config":{"effort":"low"}"#));
                } else {
                    let error = built.unwrap_err();
                    assert_eq!(error.code, ErrorCode::Unsupported, "{provider:?} {anywhere}");
                    assert_eq!(error.param.as_deref(), Some("messages.1.output_config.effort"));
                }
            }
        }
    }
    let blank = json!({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": ""},
        {"role": "user", "content": "Ho"}, {"role": "system", "output_config": {"effort": "max"}}]});
    assert!(build(Dialect::Messages, true, &blank).unwrap().contains(r#""effort":"max""#));
    for effort in [json!({}), json!({"effort": null})] {
        let members = json!({"messages": [{"role": "user", "content": "Hi"}, system(&json!({"output_config": effort}))]});
        for provider in PROVIDERS {
            assert!(build(provider, false, &members).unwrap().contains("hint"), "{provider:?}");
        }
    }
}

#[test]
fn a_conversation_without_turns_is_refused_for_each_provider() {
    for messages in [
        json!([{"role": "system", "content": "S"}]),
        json!([{"role": "assistant", "content": ""}]),
        json!([{"role": "system", "content": "S"}, {"role": "assistant", "content": []}]),
    ] {
        for provider in PROVIDERS {
            for anywhere in [false, true] {
                let error = build(provider, anywhere, &json!({"messages": messages})).unwrap_err();
                assert_eq!(error.param.as_deref(), Some("messages"), "{provider:?} {anywhere} {messages}");
                assert_eq!(error.code, ErrorCode::InvalidRequest);
            }
        }
    }
}

#[test]
fn an_image_that_must_not_be_scaled_is_refused_by_providers_that_may_scale_it() {
    let image = |transformations: Value| {
        json!({"type": "image", "transformations": transformations,
            "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}})
    };
    let strict = image(json!({"oversized_image": "error"}));
    let user = |block: &Value| json!({"messages": [{"role": "user", "content": [block]}]});
    let result = json!({"messages": [{"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [strict]}]}]});
    for (members, path) in
        [(user(&strict), "messages.0.content.0"), (result, "messages.2.content.0.content.0")]
    {
        for provider in [Dialect::Chat, Dialect::Responses] {
            let error = build(provider, true, &members).unwrap_err();
            assert_eq!(error.code, ErrorCode::Unsupported);
            assert_eq!(error.param, Some(format!("{path}.transformations.oversized_image")));
        }
        assert!(build(Dialect::Messages, true, &members).unwrap().contains("oversized_image"));
    }
    for transformations in [json!({"oversized_image": "downsize"}), json!({}), Value::Null] {
        for provider in PROVIDERS {
            build(provider, true, &user(&image(transformations.clone()))).unwrap();
        }
    }
}

#[test]
fn blocks_of_another_service_are_left_out_of_the_history() {
    let fallback = json!({"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}});
    let listing = json!({"type": "mcp_tool_listing", "server_name": "s", "tools": []});
    let members = json!({"messages": [{"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [fallback, listing, {"type": "text", "text": "So"}]},
        {"role": "user", "content": "And?"}]});
    for provider in PROVIDERS {
        let sent = build(provider, true, &members).unwrap();
        let passes = provider == Dialect::Messages;
        assert_eq!((sent.contains("fallback"), sent.contains("So")), (passes, true), "{provider:?}: {sent}");
    }
}
