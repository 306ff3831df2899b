//! Tests of the members that the gateway adds to the provider's request. Each of these members can be omitted if the
//! provider refuses it by name, unless every request of the dialect needs it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use crate::{find_translator, test_support};
use penstock_core::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Members without which the request has no conversation, tool, format, or cap on tokens.
const REQUIRED: [&str; 37] = [
    "arguments",
    "call_id",
    "content",
    "data",
    "description",
    "format",
    "function",
    "id",
    "image_url",
    "input",
    "input_schema",
    "json_schema",
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "media_type",
    "messages",
    "model",
    "name",
    "output",
    "parameters",
    "properties",
    "response_format",
    "role",
    "schema",
    "source",
    "stream",
    "system",
    "text",
    "tool_call_id",
    "tool_calls",
    "tool_use_id",
    "tools",
    "type",
    "url",
    // Members of objects that can be omitted as a whole.
    "enable_thinking",
    "include_usage",
];

fn collect_names(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            // Empty lists are skipped, because a replayed reasoning item must have a summary, even an empty one.
            for (name, value) in members.iter().filter(|(_, value)| **value != json!([])) {
                names.insert(name.clone());
                collect_names(value, names);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_names(item, names)),
        _ => {}
    }
}

fn names_of(value: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    collect_names(value, &mut names);
    names
}

/// Chat requests for which the gateway adds as many members as possible: each setting is given under each of its names.
fn chat_requests() -> Vec<Value> {
    let image = "data:image/png;base64,AAAA";
    let messages = json!([{"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": {"url": image}}]},
        {"role": "assistant", "content": "Ho", "reasoning_content": "Hm",
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "5"},
        {"role": "user", "content": "And?"}]);
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let settings = [
        json!({"thinking": {"type": "enabled", "budget_tokens": 2000}}),
        json!({"reasoning": {"effort": "high"}}),
        json!({"enable_thinking": false}),
        json!({}),
    ];
    let request = |setting: Value| {
        let mut body = json!({"model": "m", "stream": true, "messages": messages, "tools": tools});
        body.as_object_mut().unwrap().extend(setting.as_object().unwrap().clone());
        body
    };
    settings.into_iter().map(request).collect()
}

fn messages_requests() -> Vec<Value> {
    let source = json!({"type": "base64", "media_type": "image/png", "data": "AAAA"});
    let messages = json!([{"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "image", "source": source}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm", "signature": "s"},
            {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "5"}]}]);
    let schema = json!({"type": "object"});
    let request = |setting: Value| {
        let mut body = json!({"model": "m", "max_tokens": 4096, "stream": true, "system": "Be brief.",
            "messages": messages, "tools": [{"name": "f", "input_schema": schema}],
            "tool_choice": {"type": "auto", "disable_parallel_tool_use": true}});
        body.as_object_mut().unwrap().extend(setting.as_object().unwrap().clone());
        body
    };
    vec![
        request(json!({"thinking": {"type": "enabled", "budget_tokens": 2000}})),
        request(
            json!({"output_config": {"effort": "high", "format": {"type": "json_schema", "schema": schema}}}),
        ),
        request(json!({"tool_choice": null, "parallel_tool_calls": false, "reasoning_effort": "high"})),
        request(json!({})),
    ]
}

fn abilities() -> OfferCapabilities {
    OfferCapabilities {
        parameters: [
            "reasoning_effort",
            "parallel_tool_calls",
            "response_format",
            "temperature",
            "verbosity",
        ]
        .map(Into::into)
        .to_vec(),
        replay_reasoning: true,
        thinking_switch: true,
        tool_images: true,
        system_anywhere: true,
        ..OfferCapabilities::default()
    }
}

fn preset() -> Vec<(Box<str>, Box<str>)> {
    let numbers = [
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "seed",
    ];
    let words = [("verbosity", r#""low""#), ("reasoning_effort", r#""low""#)];
    let numbers = numbers.map(|name| (name.into(), "1".into()));
    let words = words.map(|(name, value)| (name.into(), value.into()));
    [numbers.to_vec(), words.to_vec()].concat()
}

#[test]
fn every_member_that_the_gateway_adds_can_be_left_out() {
    let (abilities, preset) = (abilities(), preset());
    let mut found = BTreeSet::new();
    for (client, bodies) in [(Dialect::Chat, chat_requests()), (Dialect::Messages, messages_requests())] {
        for (provider, body, preset) in [Dialect::Chat, Dialect::Messages, Dialect::Responses]
            .into_iter()
            .flat_map(|provider| bodies.iter().map(move |body| (provider, body)))
            .flat_map(|(provider, body)| [(provider, body, &preset[..]), (provider, body, &[])])
        {
            let mut ask = test_support::sample_request(client, body.to_string().as_bytes());
            ask.parallel_tools &= body["tool_choice"]["disable_parallel_tool_use"] != true;
            ask.thinking =
                if body["thinking"].is_null() { ThinkingDisplay::Off } else { ThinkingDisplay::Shown };
            let target = test_support::sample_target(provider, &abilities);
            let mut target = AttemptTarget { preset, ..target };
            let translator = find_translator(client, provider).unwrap();
            let mut build = |omitted: AdjustableMemberSet| -> Value {
                target.adjustment.omitted = omitted;
                serde_json::from_slice(&translator.build_request(&ask, &target).unwrap().concat()).unwrap()
            };
            let own = names_of(body);
            let is_added = |name: &&String| !own.contains(*name) && !REQUIRED.contains(&&***name);
            for name in names_of(&build(AdjustableMemberSet::NONE)).iter().filter(is_added) {
                let named = AdjustableMemberSet::named_in_message(|word| word == name);
                assert!(!named.is_empty(), "{client:?} to {provider:?}: `{name}` is not in the table");
                let rest = build(named.without_containing_members());
                // After a refusal, reasoning is sent under its other member name, and effort as another value. Both
                // are omitted if the provider refuses these too.
                let is_replaced = name.starts_with("reasoning") || name == "effort";
                let rest = if is_replaced && names_of(&rest).contains(name) {
                    build(named.union(AdjustableMemberSet::from_member(AdjustableMember::Reasoning)))
                } else {
                    rest
                };
                assert!(!names_of(&rest).contains(name), "{client:?} to {provider:?}: {name} stays: {rest}");
                found.insert(name.clone());
            }
        }
    }
    for name in
        ["store", "strict", "summary", "detail", "instructions", "display", "signature", "stream_options"]
    {
        assert!(found.contains(name), "{name} is not covered: {found:?}");
    }
}
