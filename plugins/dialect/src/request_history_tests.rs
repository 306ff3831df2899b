//! Tests of translated requests: calls without an input, schemas without a type, a schema for the output under each
//! of its possible names, and reasoning under either of its names.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use crate::{find_translator, test_support};
use penstock_core::*;
use penstock_request_validation::{
    MessagesPurpose, RequestLimits, validate_chat_request, validate_messages_request,
};
use serde_json::{Value, json};

fn sent(ask: &InferenceRequest, provider: Dialect, parameters: &[&str]) -> Result<Value, ApiError> {
    let abilities = OfferCapabilities {
        parameters: parameters.iter().map(|name| (*name).into()).collect(),
        ..OfferCapabilities::default()
    };
    let target = test_support::sample_target(provider, &abilities);
    let built = find_translator(ask.dialect, provider).unwrap().build_request(ask, &target)?;
    Ok(serde_json::from_slice(&built.concat()).unwrap())
}

#[test]
fn a_call_without_input_reaches_every_provider_with_an_empty_one() {
    for input in ["", r#","input":null"#, r#","input":{}"#] {
        let body = format!(
            r#"{{"model":"m","max_tokens":9,"messages":[{{"role":"user","content":"Hi"}},
            {{"role":"assistant","content":[{{"type":"tool_use","id":"t1","name":"f"{input} }}]}},
            {{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t1","content":"5"}}]}}]}}"#
        );
        let ask =
            validate_messages_request(body.into(), &RequestLimits::default(), MessagesPurpose::Generate)
                .unwrap();
        let messages = sent(&ask, Dialect::Messages, &[]).unwrap();
        assert_eq!(messages["messages"][1]["content"][0]["input"], json!({}), "{input}: {messages}");
        let chat = sent(&ask, Dialect::Chat, &[]).unwrap();
        let call = &chat["messages"][1]["tool_calls"][0];
        assert_eq!(call["function"]["arguments"], "{}", "{input}: {chat}");
        let responses = sent(&ask, Dialect::Responses, &[]).unwrap();
        assert_eq!(responses["input"][1]["arguments"], "{}", "{input}: {responses}");
    }
}

#[test]
fn a_schema_for_the_output_is_one_ability_under_each_of_its_names() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    for (constraint, path) in [
        (json!({"guided_json": schema}), "guided_json"),
        (json!({"guided_json": schema.to_string()}), "guided_json"),
        (json!({"structured_outputs": {"json": schema}}), "structured_outputs.json"),
    ] {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]});
        body.as_object_mut().unwrap().extend(constraint.as_object().unwrap().clone());
        let ask = test_support::sample_request(Dialect::Chat, body.to_string().as_bytes());
        for listed in [["temperature", "response_format"], ["temperature", "guided_json"]] {
            let sent = sent(&ask, Dialect::Messages, &listed).unwrap();
            assert_eq!(sent["output_config"]["format"]["schema"], schema, "{path} {listed:?}");
        }
        let refusal = sent(&ask, Dialect::Messages, &["temperature"]).unwrap_err();
        assert_eq!((refusal.code, refusal.param.as_deref()), (ErrorCode::Unsupported, Some(path)));
    }
}

#[test]
fn the_schema_of_a_tool_has_a_type_at_messages_providers() {
    for (schema, expected) in [
        (r#"{}"#, json!({"type": "object"})),
        (r#"{"type":null}"#, json!({"type": "object"})),
        (
            r#"{"type": null, "properties": {"a": {"type": null}}}"#,
            json!({"type": "object", "properties": {"a": {"type": null}}}),
        ),
        (r#"{"properties":{},"typ\u0065":null}"#, json!({"type": "object", "properties": {}})),
        (r#"{"type":"object"}"#, json!({"type": "object"})),
        (r#"{"type":["object","null"]}"#, json!({"type": ["object", "null"]})),
    ] {
        let messages = r#""messages":[{"role":"user","content":"Hi"}]"#;
        let chat = format!(
            r#"{{"model":"m",{messages},"tools":[{{"type":"function","function":{{"name":"f","parameters":{schema}}}}}]}}"#
        );
        let own = format!(
            r#"{{"model":"m","max_tokens":9,{messages},"tools":[{{"name":"f","input_schema":{schema}}}]}}"#
        );
        for (client, body) in [(Dialect::Chat, chat), (Dialect::Messages, own)] {
            let ask = test_support::sample_request(client, body.as_bytes());
            let sent = sent(&ask, Dialect::Messages, &["tools"]).unwrap();
            assert_eq!(sent["tools"][0]["input_schema"], expected, "{client:?} {schema}");
        }
    }
}

#[test]
fn an_empty_member_for_reasoning_does_not_hide_the_other_one() {
    let abilities = OfferCapabilities { replay_reasoning: true, ..OfferCapabilities::default() };
    for provider in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
        for (members, expected) in [
            (r#""reasoning_content":"Hm","reasoning":"Hm""#, Some("Hm")),
            (r#""reasoning_content":"","reasoning":"Hm""#, Some("Hm")),
            (r#""reasoning":"Hm","reasoning_content":"""#, Some("Hm")),
            (r#""reasoning":"Hm","reasoning_content":null"#, Some("Hm")),
            (r#""reasoning":"","reasoning_content":"Hm""#, Some("Hm")),
            (r#""reasoning":"","reasoning_content":"""#, None),
            // Of two different texts, that of `reasoning_content` counts, in any order.
            (r#""reasoning_content":"Hm","reasoning":"Other""#, Some("Hm")),
            (r#""reasoning":"Other","reasoning_content":"Hm""#, Some("Hm")),
        ] {
            let body = format!(
                r#"{{"model":"m","messages":[{{"role":"user","content":"Hi"}},
                {{"role":"assistant","content":"Ho",{members}}},{{"role":"user","content":"And?"}}]}}"#
            );
            let ask = validate_chat_request(body.into(), &RequestLimits::default()).unwrap();
            let target = test_support::sample_target(provider, &abilities);
            let pair = find_translator(Dialect::Chat, provider).unwrap();
            let sent = String::from_utf8(pair.build_request(&ask, &target).unwrap().concat()).unwrap();
            let texts: Vec<&str> =
                ["\"Hm\"", "Other"].into_iter().filter(|text| sent.contains(text)).collect();
            assert_eq!(texts, expected.map(|_| "\"Hm\"").as_slice(), "{provider:?} {members}: {sent}");
        }
    }
}
