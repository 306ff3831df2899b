//! Tests of the markers of the prompt cache (`cache_control`) that chat clients send.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::{find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;
use penstock_request_validation::{
    RequestLimits, ResponsesPurpose, validate_chat_request, validate_responses_request,
};
use serde_json::{Value, json};

const PROVIDERS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];

fn marker() -> Value {
    json!({"type": "ephemeral"})
}

fn tool(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}})
}

/// Returns the value with a marker.
fn marked(mut value: Value) -> Value {
    value["cache_control"] = marker();
    value
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// Returns the validated chat request with these messages and other members.
fn request(messages: &Value, members: &Value) -> InferenceRequest {
    let mut body = json!({"model": "m", "messages": messages});
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    validate_chat_request(Bytes::from(body.to_string()), &RequestLimits::default()).unwrap()
}

/// Returns the body for a provider, which may have rejected a member.
fn sent(ask: &InferenceRequest, provider: Dialect, omitted: AdjustableMemberSet) -> Value {
    let abilities = OfferCapabilities { replay_reasoning: true, ..OfferCapabilities::default() };
    let mut target = test_support::sample_target(provider, &abilities);
    target.adjustment.omitted = omitted;
    let pair = find_translator(ask.dialect, provider).unwrap();
    serde_json::from_slice(&pair.build_request(ask, &target).unwrap().concat()).unwrap()
}

fn sent_to_messages(messages: &Value, members: &Value) -> Value {
    sent(&request(messages, members), Dialect::Messages, AdjustableMemberSet::NONE)
}

/// Returns the conversation of an agent, with a function that may mark each value.
fn conversation(mark: impl Fn(Value) -> Value) -> Value {
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    json!([
        {"role": "system", "content": [text("S"), mark(text("T"))]},
        {"role": "user", "content": [mark(text("U")), text("V")]},
        {"role": "assistant", "reasoning_content": "R", "content": [mark(text("A"))], "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": [text("X"), mark(text("Y"))]},
        {"role": "user", "content": "W"},
    ])
}

#[test]
fn markers_of_content_parts_stay_at_their_blocks() {
    let body = sent_to_messages(&conversation(marked), &json!({}));
    assert_eq!(body["system"], json!([text("S"), marked(text("T"))]));
    assert_eq!(body["messages"][0]["content"], json!([marked(text("U")), text("V")]));
    let answer = &body["messages"][1]["content"];
    assert_eq!((&answer[0]["type"], answer[0].get("cache_control")), (&json!("thinking"), None));
    assert_eq!((&answer[1], answer[2].get("cache_control")), (&marked(text("A")), None));
    let result = &body["messages"][2]["content"][0];
    assert_eq!((&result["type"], &result["cache_control"]), (&json!("tool_result"), &marker()));
    assert_eq!(result["content"], json!([text("X"), text("Y")]));
    assert_eq!(body["messages"][2]["content"][1], text("W"));
    let image = json!({"type": "image_url", "image_url": {"url": "https://a/b.png"}});
    let messages = json!([{"role": "user", "content": [marked(image), text(" "), text("U")]}]);
    let content = &sent_to_messages(&messages, &json!({}))["messages"][0]["content"];
    assert_eq!((&content[0]["type"], &content[0]["cache_control"]), (&json!("image"), &marker()));
    // The marker of a blank text, which is not sent, moves to the block before.
    let messages = json!([{"role": "user", "content": [text("U"), marked(text(" ")), text("V")]}]);
    let body = sent_to_messages(&messages, &json!({}));
    assert_eq!(body["messages"][0]["content"], json!([marked(text("U")), text("V")]));
}

#[test]
fn the_marker_of_a_message_follows_its_last_block() {
    let messages = conversation(|value| value);
    let marked: Vec<_> = messages.as_array().unwrap().iter().take(4).cloned().map(marked).collect();
    let body = sent_to_messages(&json!(marked), &json!({}));
    assert_eq!((&body["system"][0], &body["system"][1]["cache_control"]), (&text("S"), &marker()));
    assert_eq!(body["messages"][0]["content"][1]["cache_control"], marker());
    let call = &body["messages"][1]["content"][2];
    assert_eq!((&call["type"], &call["cache_control"]), (&json!("tool_use"), &marker()));
    assert_eq!(body["messages"][2]["content"][0]["cache_control"], marker());
    let long = json!({"type": "ephemeral", "ttl": "1h"});
    let plain = json!([{"role": "user", "content": "U", "cache_control": long}]);
    let body = sent_to_messages(&plain, &json!({}));
    let expected = json!([{"type": "text", "text": "U", "cache_control": long}]);
    assert_eq!(body["messages"][0]["content"], expected);
}

#[test]
fn markers_of_tools_stay_at_their_tools() {
    let user = json!([{"role": "user", "content": "U"}]);
    let mut inner = tool("c");
    inner["function"] = marked(inner["function"].clone());
    let tools = json!([tool("a"), marked(tool("b")), inner]);
    let count = |body: &Value| -> Vec<bool> {
        let tools = body["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool.get("cache_control") == Some(&marker())).collect()
    };
    let body = sent_to_messages(&user, &json!({"tools": tools}));
    assert_eq!(count(&body), [false, true, true]);
    let functions = json!([marked(json!({"name": "a"})), {"name": "b"}]);
    assert_eq!(count(&sent_to_messages(&user, &json!({"functions": functions}))), [true, false]);
    // The marker of a tool that the choice does not allow moves to the tool before.
    let allowed = |names: &[&str]| {
        let tools: Vec<_> =
            names.iter().map(|name| json!({"type": "function", "function": {"name": name}})).collect();
        json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": tools}})
    };
    let tools = json!([tool("a"), marked(tool("b")), tool("c")]);
    for (names, expected) in
        [(&["a", "c"][..], &[true, false][..]), (&["c"], &[false]), (&["b", "c"], &[true, false])]
    {
        let body = sent_to_messages(&user, &json!({"tools": tools, "tool_choice": allowed(names)}));
        assert_eq!(count(&body), expected, "{names:?}");
    }
}

#[test]
fn the_last_markers_are_sent_if_a_request_has_too_many() {
    let tools = json!([marked(tool("a")), marked(tool("f"))]);
    let sent_count = |body: &Value| body.to_string().matches(r#""cache_control":"#).count();
    let body = sent_to_messages(&conversation(marked), &json!({"tools": tools}));
    assert_eq!((sent_count(&body), body["tools"].to_string().contains("cache_control")), (4, false));
    let automatic = json!({"tools": tools, "cache_control": marker()});
    let body = sent_to_messages(&conversation(marked), &automatic);
    assert_eq!((sent_count(&body), &body["cache_control"]), (4, &marker()));
    assert_eq!(body["system"], json!([text("S"), text("T")]));
    let parts: Vec<_> = (0..9).map(|number| marked(text(&number.to_string()))).collect();
    let body = sent_to_messages(&json!([{"role": "user", "content": parts}]), &json!({}));
    let content = body["messages"][0]["content"].as_array().unwrap();
    let marks: Vec<_> = content.iter().map(|block| block.get("cache_control").is_some()).collect();
    assert_eq!(marks, [false, false, false, false, false, true, true, true, true]);
}

#[test]
fn only_providers_of_the_messages_dialect_get_markers() {
    let tools = json!([marked(tool("f"))]);
    let automatic = json!({"tools": tools, "cache_control": marker()});
    let plain = request(&conversation(|value| value), &json!({"tools": [tool("f")]}));
    let ask = request(&conversation(marked), &automatic);
    let refused = AdjustableMemberSet::from_member(AdjustableMember::CacheControl);
    for (provider, omitted) in PROVIDERS
        .into_iter()
        .filter(|provider| *provider != Dialect::Messages)
        .map(|provider| (provider, AdjustableMemberSet::NONE))
        .chain([(Dialect::Messages, refused)])
    {
        let body = sent(&ask, provider, omitted);
        assert_eq!(body, sent(&plain, provider, AdjustableMemberSet::NONE), "{provider:?}");
        assert!(!body.to_string().contains("cache_control"), "{provider:?}: {body}");
    }
}

#[test]
fn a_value_that_is_no_marker_is_ignored() {
    for value in [json!(null), json!(true), json!("ephemeral"), json!([]), json!({}), json!({"type": "b"})] {
        let part = json!({"type": "text", "text": "U", "cache_control": value});
        let messages = json!([{"role": "user", "content": [part], "cache_control": value}]);
        let body = sent_to_messages(&messages, &json!({"cache_control": value}));
        assert!(!body.to_string().contains("cache_control"), "{value}: {body}");
    }
    let part =
        json!({"type": "text", "text": "U", "cache_control": {"type": "ephemeral", "ttl": "1d", "a": 1}});
    let body = sent_to_messages(&json!([{"role": "user", "content": [part]}]), &json!({}));
    assert_eq!(body["messages"][0]["content"], json!([marked(text("U"))]));
}

#[test]
fn the_marker_of_a_responses_request_reaches_a_provider_of_the_messages_dialect() {
    let body = json!({"model": "m", "input": "U", "cache_control": marker()}).to_string();
    let limits = RequestLimits::default();
    let ask = validate_responses_request(Bytes::from(body), &limits, ResponsesPurpose::Generate).unwrap();
    for provider in PROVIDERS {
        let body = sent(&ask, provider, AdjustableMemberSet::NONE);
        assert_eq!(body.get("cache_control").is_some(), provider == Dialect::Messages, "{provider:?}");
    }
}
