//! Tests of settings that a messages provider gets under another name than the client sent.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::{find_translator, test_support};
use penstock_core::*;
use serde_json::{Value, json};

/// Returns the requests for a provider with these parameters: a plain request and a continuation.
fn sent(members: &Value, parameters: &[&str], omitted: Option<AdjustableMember>) -> [Value; 2] {
    let mut body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]});
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    let ask = test_support::sample_request(Dialect::Messages, body.to_string().as_bytes());
    let abilities = OfferCapabilities {
        parameters: parameters.iter().map(|name| (*name).into()).collect(),
        continuation: Some(ContinuationMethod::Prefill),
        ..OfferCapabilities::default()
    };
    let mut target = test_support::sample_target(Dialect::Messages, &abilities);
    target.adjustment.omitted = omitted.map_or(AdjustableMemberSet::NONE, AdjustableMemberSet::from_member);
    let pair = find_translator(Dialect::Messages, Dialect::Messages).unwrap();
    [pair.build_request(&ask, &target), pair.build_continuation(&ask, &target, "Ho")]
        .map(|sent| serde_json::from_slice(&sent.unwrap().concat()).unwrap())
}

#[test]
fn the_older_format_becomes_a_member_of_the_output_config() {
    let format = json!({"type": "json_schema", "schema": {"type": "object"}});
    for (members, expected) in [
        (json!({"output_format": format}), json!({"format": format})),
        (json!({"output_format": format, "output_config": null}), json!({"format": format})),
        (json!({"output_format": format, "output_config": {}}), json!({"format": format})),
        (
            json!({"output_format": format, "output_config": {"effort": "high"}}),
            json!({"effort": "high", "format": format}),
        ),
        (
            json!({"output_config": {"format": null, "task_budget": {"total": 9}}, "output_format": format}),
            json!({"task_budget": {"total": 9}, "format": format}),
        ),
        (json!({"output_format": format, "output_config": {"format": format}}), json!({"format": format})),
        (
            json!({"output_format": format, "reasoning_effort": "high"}),
            json!({"effort": "high", "format": format}),
        ),
        (json!({"output_format": null, "output_config": {"effort": "low"}}), json!({"effort": "low"})),
    ] {
        for sent in sent(&members, &["reasoning_effort"], None) {
            assert_eq!((&sent["output_config"], sent.get("output_format")), (&expected, None), "{members}");
        }
    }
    for sent in sent(&json!({"output_format": null, "output_config": null}), &[], None) {
        assert_eq!((sent.get("output_config"), sent.get("output_format")), (None, None));
    }
}

#[test]
fn the_limit_to_one_call_is_a_member_of_the_tool_choice() {
    let tools = json!([{"name": "f", "input_schema": {"type": "object"}}]);
    let limited = |choice: Value| {
        let mut choice = choice;
        choice["disable_parallel_tool_use"] = json!(true);
        Some(choice)
    };
    let auto = || json!({"type": "auto"});
    for (choice, expected, unlimited) in [
        (json!(null), limited(auto()), None),
        (auto(), limited(auto()), Some(auto())),
        (json!({"type": "any"}), limited(json!({"type": "any"})), Some(json!({"type": "any"}))),
        (
            json!({"type": "tool", "name": "f", "disable_parallel_tool_use": false}),
            limited(json!({"type": "tool", "name": "f"})),
            Some(json!({"type": "tool", "name": "f"})),
        ),
        (limited(auto()).unwrap(), limited(auto()), Some(auto())),
        (json!({"type": "none"}), Some(json!({"type": "none"})), Some(json!({"type": "none"}))),
    ] {
        let members = json!({"tools": tools, "tool_choice": choice, "parallel_tool_calls": false});
        for sent in sent(&members, &[], None) {
            assert_eq!(sent.get("tool_choice"), expected.as_ref(), "{choice}");
            assert_eq!(sent.get("parallel_tool_calls"), None);
        }
        for sent in sent(&members, &[], Some(AdjustableMember::ParallelTools)) {
            assert_eq!(sent.get("tool_choice"), unlimited.as_ref(), "{choice}");
        }
    }
    for members in [
        json!({"parallel_tool_calls": false}),
        json!({"tools": [], "parallel_tool_calls": false}),
        json!({"tools": tools, "parallel_tool_calls": true}),
        json!({"tools": tools, "tool_choice": null}),
    ] {
        for sent in sent(&members, &[], None) {
            assert_eq!(sent.get("tool_choice"), None, "{members}");
        }
    }
    let members = json!({"tools": tools, "parallel_tool_calls": false});
    for sent in sent(&members, &[], Some(AdjustableMember::ToolChoice)) {
        assert_eq!(sent.get("tool_choice"), None);
    }
}
