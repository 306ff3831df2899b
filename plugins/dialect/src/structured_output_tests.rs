//! Tests of constraints on the output: no member is written twice, and constraints that contradict each other are
//! refused.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use crate::{find_translator, test_support};
use penstock_core::*;
use penstock_json_scan::json;
use serde_json::{Value, json};

const A: &str = r#"{"type":"object"}"#;
const B: &str = r#"{"type":"array"}"#;

/// Returns the body for a provider of an offer with these parameters.
fn sent(
    client: Dialect,
    provider: Dialect,
    members: &str,
    parameters: &[&str],
) -> Result<(String, Value), ApiError> {
    let body =
        format!(r#"{{"model":"m","max_tokens":9,"messages":[{{"role":"user","content":"Hi"}}],{members}}}"#);
    let ask = test_support::sample_request(client, body.as_bytes());
    let abilities = OfferCapabilities {
        parameters: parameters.iter().map(|name| (*name).into()).collect(),
        ..OfferCapabilities::default()
    };
    let target = test_support::sample_target(provider, &abilities);
    let built = find_translator(client, provider).unwrap().build_request(&ask, &target)?.concat();
    let text = String::from_utf8(built).unwrap();
    assert_names_are_unique(&text);
    Ok((text.clone(), serde_json::from_str(&text).unwrap()))
}

/// Asserts that no object of a JSON text has two members of the same name.
fn assert_names_are_unique(text: &str) {
    let mut names = Vec::new();
    for member in json::members(text.as_bytes()) {
        let name = text[member.key].to_owned();
        assert!(!names.contains(&name), "{name} is written twice: {text}");
        names.push(name);
        assert_names_are_unique(&text[member.value]);
    }
    json::elements(text.as_bytes()).for_each(|element| assert_names_are_unique(&text[element]));
}

fn refusal(client: Dialect, provider: Dialect, members: &str, parameters: &[&str]) -> (ErrorCode, String) {
    match sent(client, provider, members, parameters) {
        Err(error) => (error.code, error.param.unwrap_or_default().to_string()),
        Ok((text, _)) => panic!("{members} {parameters:?}: {text}"),
    }
}

#[test]
fn a_constraint_with_two_values_is_refused_under_whichever_name_the_offer_takes_it() {
    for (legacy, key) in [
        ("guided_json", "json"),
        ("guided_regex", "regex"),
        ("guided_choice", "choice"),
        ("guided_grammar", "grammar"),
    ] {
        let (one, other) = match key {
            "json" => (A, B),
            "choice" => (r#"["a"]"#, r#"["b"]"#),
            _ => (r#""a""#, r#""b""#),
        };
        for members in [
            format!(r#""{legacy}":{one},"structured_outputs":{{"{key}":{other}}}"#),
            format!(r#""structured_outputs":{{"{key}":{other}}},"{legacy}":{one}"#),
        ] {
            for parameters in [&["structured_outputs"][..], &[legacy], &["response_format"]] {
                let refusal = refusal(Dialect::Chat, Dialect::Chat, &members, parameters);
                let path = match (key, parameters) {
                    ("json", _) | (_, ["structured_outputs"]) => format!("structured_outputs.{key}"),
                    (_, [listed]) if *listed == legacy => format!("structured_outputs.{key}"),
                    _ => legacy.to_owned(),
                };
                assert_eq!(refusal, (ErrorCode::Unsupported, path), "{members} {parameters:?}");
            }
        }
    }
}

#[test]
fn a_constraint_that_is_given_twice_with_one_value_is_written_once() {
    let members = format!(r#""guided_json":{A},"structured_outputs":{{"json":{A}}}"#);
    let schema: Value = serde_json::from_str(A).unwrap();
    for (listed, pointer) in [
        ("structured_outputs", "/structured_outputs/json"),
        ("guided_json", "/guided_json"),
        ("response_format", "/response_format/json_schema/schema"),
    ] {
        let (_, body) = sent(Dialect::Chat, Dialect::Chat, &members, &[listed]).unwrap();
        assert_eq!(body.pointer(pointer), Some(&schema), "{listed}: {body}");
    }
    let (_, body) = sent(Dialect::Chat, Dialect::Messages, &members, &["response_format"]).unwrap();
    assert_eq!(body["output_config"]["format"]["schema"], schema);
}

#[test]
fn an_older_member_beside_another_constraint_is_joined_with_it() {
    let members = format!(r#""guided_json":{A},"structured_outputs":{{"regex":"a"}}"#);
    let (_, body) = sent(Dialect::Chat, Dialect::Chat, &members, &["structured_outputs"]).unwrap();
    assert_eq!(body["structured_outputs"], json!({"json": {"type": "object"}, "regex": "a"}));
    // The offer takes both names, so that each member goes out as it came.
    let members = format!(r#""guided_json":{A},"structured_outputs":{{"json":{B}}}"#);
    let both = ["guided_json", "structured_outputs"];
    let (_, body) = sent(Dialect::Chat, Dialect::Chat, &members, &both).unwrap();
    assert_eq!(
        (&body["guided_json"]["type"], &body["structured_outputs"]["json"]["type"]),
        (&json!("object"), &json!("array"))
    );
}

#[test]
fn a_format_is_refused_beside_the_member_that_it_is_written_in() {
    let schema = format!(r#"{{"type":"json_schema","json_schema":{{"name":"n","schema":{A}}}}}"#);
    let chat = format!(r#""response_format":{schema}"#);
    let messages = format!(r#""output_config":{{"format":{{"type":"json_schema","schema":{A}}}}}"#);
    let older = format!(r#""output_format":{{"type":"json_schema","schema":{A}}}"#);
    for (client, format, path) in [
        (Dialect::Chat, &chat, "response_format"),
        (Dialect::Messages, &messages, "output_config.format"),
        (Dialect::Messages, &older, "output_format"),
    ] {
        for (listed, value) in
            [("structured_outputs", r#"{"regex":"a"}"#), ("guided_json", B), ("json_schema", B)]
        {
            for members in
                [format!(r#"{format},"{listed}":{value}"#), format!(r#""{listed}":{value},{format}"#)]
            {
                let refusal = refusal(client, Dialect::Chat, &members, &[listed]);
                assert_eq!(refusal, (ErrorCode::Unsupported, path.to_owned()), "{client:?} {members}");
            }
            // A value without an effect is no constraint.
            for idle in ["null", "{}"] {
                let members = format!(r#""{listed}":{idle},{format}"#);
                let (text, _) = sent(client, Dialect::Chat, &members, &[listed]).unwrap();
                assert!(text.contains(A) && text.contains(listed), "{client:?} {text}");
            }
        }
    }
}
