//! Tests of constraints on the output: no member is written twice, and constraints that contradict each other are
//! refused.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use crate::{find_translator, test_support};
use penstock_core::*;
use penstock_json_scan::json;
use serde_json::Value;

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
                let path = format!("structured_outputs.{key}");
                assert_eq!(refusal, (ErrorCode::Unsupported, path), "{members} {parameters:?}");
            }
        }
    }
}

#[test]
fn a_constraint_that_is_given_twice_with_one_value_is_written_once() {
    let schema: Value = serde_json::from_str(A).unwrap();
    for same in [A, r#"{ "type" : "object" }"#, r#""{ \"type\": \"object\" }""#] {
        let members = format!(r#""guided_json":{A},"structured_outputs":{{"json":{same}}}"#);
        for (listed, pointer) in [
            ("structured_outputs", "/structured_outputs/json"),
            ("guided_json", "/guided_json"),
            ("response_format", "/response_format/json_schema/schema"),
        ] {
            let (_, body) = sent(Dialect::Chat, Dialect::Chat, &members, &[listed]).unwrap();
            let value = body.pointer(pointer).unwrap().clone();
            let value = value.as_str().map_or(value.clone(), |text| serde_json::from_str(text).unwrap());
            assert_eq!(value, schema, "{listed}: {body}");
        }
        let (_, body) = sent(Dialect::Chat, Dialect::Messages, &members, &["response_format"]).unwrap();
        assert_eq!(body["output_config"]["format"]["schema"], schema);
    }
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

/// Returns a response format with the schema A for each client, with the path in its error.
fn formats() -> [(Dialect, String, &'static str); 3] {
    let schema = format!(r#"{{"type":"json_schema","json_schema":{{"name":"n","schema":{A}}}}}"#);
    let own = format!(r#"{{"type":"json_schema","schema":{A}}}"#);
    [
        (Dialect::Chat, format!(r#""response_format":{schema}"#), "response_format"),
        (Dialect::Messages, format!(r#""output_config":{{"format":{own}}}"#), "output_config.format"),
        (Dialect::Messages, format!(r#""output_format":{own}"#), "output_format"),
    ]
}

/// Lists of parameters with which an offer gets the response format in another member, with that member's name.
const REPLACING_OFFERS: [(&[&str], &str); 4] = [
    (&["structured_outputs", "guided_json"], "structured_outputs"),
    (&["guided_json", "json_schema", "guided_regex", "regex", "grammar"], "guided_json"),
    (&["json_schema", "structural_tag"], "json_schema"),
    (&["guided_json"], "guided_json"),
];

#[test]
fn a_replaced_format_is_refused_beside_any_other_constraint() {
    for (client, format, path) in &formats() {
        for (listed, _) in REPLACING_OFFERS {
            for other in [
                format!(r#""guided_json":{B}"#),
                format!(r#""json_schema":{B}"#),
                format!(r#""structured_outputs":{{"json":{B}}}"#),
                format!(r#""structured_outputs":{{"json":{A},"regex":"a"}}"#),
                r#""structured_outputs":{"json":"{"}"#.to_owned(),
                r#""structured_outputs":{"structural_tag":"a"}"#.to_owned(),
                r#""guided_json":"{""#.to_owned(),
                r#""guided_regex":"a""#.to_owned(),
                r#""guided_choice":["a"]"#.to_owned(),
                r#""guided_grammar":"a""#.to_owned(),
                r#""regex":"a""#.to_owned(),
                r#""grammar":"a""#.to_owned(),
                r#""structural_tag":"a""#.to_owned(),
            ] {
                for members in [format!("{format},{other}"), format!("{other},{format}")] {
                    let refusal = refusal(*client, Dialect::Chat, &members, listed);
                    assert_eq!(refusal, (ErrorCode::Unsupported, (*path).to_owned()), "{members}");
                }
            }
        }
    }
}

#[test]
fn a_constraint_equal_to_a_replaced_format_is_accepted_and_written_once() {
    let schema: Value = serde_json::from_str(A).unwrap();
    for (client, format, _) in &formats() {
        for (listed, written) in REPLACING_OFFERS {
            for other in [
                format!(r#""guided_json":{A}"#),
                format!(r#""json_schema":{A}"#),
                r#""json_schema":{ "type" : "obj\u0065ct" }"#.to_owned(),
                r#""json_schema":"{ \"type\": \"object\" }""#.to_owned(),
                format!(r#""structured_outputs":{{"json": {A},"regex":null,"disable_fallback":true}}"#),
                r#""structured_outputs":{"json_object":true}"#.to_owned(),
                r#""structured_outputs":{"backend":"guidance"}"#.to_owned(),
            ] {
                let members = format!("{format},{other}");
                let (text, body) = sent(*client, Dialect::Chat, &members, listed).unwrap();
                let value = match written {
                    "structured_outputs" => &body[written]["json"],
                    _ => &body[written],
                };
                assert_eq!((value, text.matches("object").count()), (&schema, 1), "{members}: {text}");
            }
        }
    }
    // Any JSON object is a schema too.
    let any = r#""response_format":{"type":"json_object"},"json_schema":{"type":"object"}"#;
    let (_, body) = sent(Dialect::Chat, Dialect::Chat, any, &["json_schema"]).unwrap();
    assert_eq!(body["json_schema"], schema);
}

#[test]
fn values_are_compared_as_parsed_json() {
    for (one, other, is_same) in [
        (r#"{"type":"object","a":[1]}"#, r#"{ "a": [ 1 ], "type": "object" }"#, true),
        (r#"["a","b"]"#, r#"["b","a"]"#, false),
        (r#""a\n""#, r#""a\u000a""#, true),
        ("{", "{", true),
        ("{", "[", false),
    ] {
        let same = crate::constraint_conflicts::is_same_value(one.as_bytes(), other.as_bytes());
        assert_eq!(same, is_same, "{one} {other}");
    }
    let deep = |space: &str| format!("{}{space}{}", "[".repeat(100_000), "]".repeat(100_000));
    let is_same = |one: &str, other: &str| {
        crate::constraint_conflicts::is_same_schema(one.as_bytes(), other.as_bytes())
    };
    assert!(is_same(&deep(""), &deep("")) && !is_same(&deep(""), &deep(" ")));
    // A schema may be a string; other constraints are compared as the strings that they are.
    assert!(is_same(r#""{}""#, "{ }") && is_same(r#""{}""#, r#""{ }""#) && !is_same(r#""{""#, "{}"));
    let members = r#""guided_regex":"{}","structured_outputs":{"regex":"{ }"}"#;
    let refusal = refusal(Dialect::Chat, Dialect::Chat, members, &["structured_outputs"]);
    assert_eq!(refusal, (ErrorCode::Unsupported, "structured_outputs.regex".to_owned()));
}

#[test]
fn a_refused_format_is_an_error_of_a_constraint_under_each_of_its_names() {
    for (client, format, path) in &formats() {
        let members = format!(r#"{format},"guided_json":{B}"#);
        let error = sent(*client, Dialect::Chat, &members, &["guided_json"]).unwrap_err();
        assert_eq!(error.param.as_deref(), Some(*path));
        assert!(crate::parameters::is_constraint_error(&error), "{path}");
    }
    let error = ApiError::unsupported("output_format_version", "");
    assert!(!crate::parameters::is_constraint_error(&error));
}

#[test]
fn a_schema_that_is_repeated_often_is_written_once() {
    let long = format!("{{{}\"type\":\"object\"}}", " ".repeat(60 << 10));
    let repeated = vec![format!(r#""json":{A}"#); 30_000].join(",");
    let members = format!(r#""structured_outputs":{{"json":{long},{repeated}}}"#);
    let format = format!(r#""response_format":{{"type":"json_object","schema":{long}}}"#);
    let members = [format!("{members},{format}"), format!(r#""guided_json":{long},{members}"#)];
    for (members, listed) in members.iter().zip([["guided_json"], ["response_format"]]) {
        let (text, _) = sent(Dialect::Chat, Dialect::Chat, members, &listed).unwrap();
        assert_eq!(text.matches("object").count(), 1);
    }
}

#[test]
fn long_schemas_are_equal_only_if_their_bytes_are() {
    let schema = |blanks: usize| format!("{{{}\"type\":\"object\"}}", " ".repeat(blanks));
    for (blanks, is_equal) in [(64 << 10, false), (10, true)] {
        let (one, other) = (schema(blanks), schema(blanks + 1));
        for value in [other.clone(), Value::from(&*other).to_string()] {
            let is_same =
                |value: &str| crate::constraint_conflicts::is_same_schema(one.as_bytes(), value.as_bytes());
            assert_eq!((is_same(&value), is_same(&one)), (is_equal, true), "{blanks}");
        }
    }
}

#[test]
fn every_output_constraint_is_an_engine_parameter_that_constrains() {
    for name in crate::output_constraint::OUTPUT_CONSTRAINTS {
        assert!(crate::parameters::is_constraint_error(&ApiError::unsupported(name, "")), "{name}");
    }
}

#[test]
fn a_schema_reaches_the_provider_in_each_form_of_a_format() {
    let forms = [
        format!(r#""response_format":{{"type":"json_object","schema":{A}}}"#),
        format!(r#""response_format":{{"type":"json_object","value":{A}}}"#),
        format!(r#""response_format":{{"type":"json_object","schema":null,"value":{A}}}"#),
        format!(r#""response_format":{{"type":"json_object","json_schema":{{"schema":{A}}}}}"#),
        format!(
            r#""response_format":{{"type":"json_schema","json_schema":{{"name":"output","schema":{A}}}}}"#
        ),
        format!(r#""structured_outputs":{{"json":{A}}}"#),
        format!(r#""guided_json":{A}"#),
    ];
    let schema: Value = serde_json::from_str(A).unwrap();
    for members in &forms {
        let (_, body) = sent(Dialect::Chat, Dialect::Responses, members, &["response_format"]).unwrap();
        let expected = serde_json::json!({"type": "json_schema", "name": "output", "schema": schema});
        assert_eq!(body["text"]["format"], expected, "{members}");
        let (_, body) = sent(Dialect::Chat, Dialect::Messages, members, &["response_format"]).unwrap();
        let expected = serde_json::json!({"type": "json_schema", "schema": schema});
        assert_eq!(body["output_config"]["format"], expected, "{members}");
    }
    for schema in ["null", "true", "\"\""] {
        let members =
            format!(r#""response_format":{{"type":"json_object","schema":{schema},"strict":true}}"#);
        let (_, body) = sent(Dialect::Chat, Dialect::Responses, &members, &["response_format"]).unwrap();
        assert_eq!(body["text"]["format"], serde_json::json!({"type": "json_object"}), "{schema}");
    }
}
