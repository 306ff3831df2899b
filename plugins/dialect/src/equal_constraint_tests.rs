//! Tests of requests with two constraints on the output, for each pair of dialects: equal ones are sent once, and
//! different ones are refused with the names of both.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::{find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;
use penstock_request_validation::{RequestLimits, ResponsesPurpose, validate_responses_request};
use serde_json::{Value, json};

const CLIENTS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];
const PROVIDERS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];
/// Schema with a word that occurs once in a body that has the schema once.
const SCHEMA: &str = r#"{"type":"object","title":"zebra"}"#;
const OTHER_SCHEMA: &str = r#"{"type":"array","title":"zebra"}"#;

/// Path of a constraint in a request, and its member.
type Constraint = (&'static str, Value);

/// Returns the constraints that demand a schema, under all names that requests of this client may have.
fn schema_constraints(client: Dialect, schema: &str) -> Vec<Constraint> {
    let schema: Value = serde_json::from_str(schema).unwrap();
    let own = json!({"type": "json_schema", "schema": schema});
    let named = json!({"type": "json_schema", "name": "n", "schema": schema});
    let mut constraints = match client {
        Dialect::Messages => vec![
            ("output_config.format", json!({"output_config": {"format": own, "effort": "low"}})),
            ("output_format", json!({"output_format": own})),
        ],
        Dialect::Responses => vec![("text.format", json!({"text": {"format": named}}))],
        _ => {
            let format = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}});
            vec![("response_format", json!({ "response_format": format }))]
        }
    };
    constraints.extend([
        ("guided_json", json!({"guided_json": schema})),
        ("json_schema", json!({"json_schema": schema.to_string()})),
        ("structured_outputs.json", json!({"structured_outputs": {"json": schema, "backend": "a"}})),
    ]);
    constraints
}

/// Returns constraints that are no schemas.
fn other_constraints() -> Vec<Constraint> {
    vec![
        ("guided_regex", json!({"guided_regex": "a"})),
        ("regex", json!({"regex": "b"})),
        ("guided_choice", json!({"guided_choice": ["a"]})),
        ("guided_grammar", json!({"guided_grammar": "a"})),
        ("grammar", json!({"grammar": "b"})),
        ("ebnf", json!({"ebnf": "c"})),
        ("structural_tag", json!({"structural_tag": "a"})),
        ("guided_decoding_params", json!({"guided_decoding_params": {"a": 1}})),
        ("guided_json_object", json!({"guided_json_object": true})),
    ]
}

fn request(client: Dialect, constraints: &[&Constraint]) -> InferenceRequest {
    let mut body = match client {
        Dialect::Responses => json!({"model": "m", "input": "Hi"}),
        _ => json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}),
    };
    for (_, members) in constraints {
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    }
    let body = body.to_string();
    if client == Dialect::Responses {
        let (body, limits) = (Bytes::from(body), RequestLimits::default());
        return validate_responses_request(body, &limits, ResponsesPurpose::Generate).unwrap();
    }
    test_support::sample_request(client, body.as_bytes())
}

/// Returns the body for the provider of an offer that lists these parameters.
fn sent(ask: &InferenceRequest, provider: Dialect, parameters: &[&str]) -> Result<String, ApiError> {
    let abilities = OfferCapabilities {
        parameters: parameters.iter().map(|name| (*name).into()).collect(),
        ..OfferCapabilities::default()
    };
    let target = test_support::sample_target(provider, &abilities);
    let built = find_translator(ask.dialect, provider).unwrap().build_request(ask, &target)?.concat();
    Ok(String::from_utf8(built).unwrap())
}

/// Lists of parameters of offers.
const OFFERS: [&[&str]; 6] = [
    &["response_format"],
    &["guided_json"],
    &["json_schema"],
    &["structured_outputs"],
    &["response_format", "guided_json", "json_schema", "structured_outputs"],
    &["guided_json", "guided_regex", "regex", "guided_choice", "grammar", "ebnf", "structured_outputs"],
];

/// Calls `check` with two constraints of a client that are given under different names.
fn for_each_pair(
    constraints: &[Constraint],
    others: &[Constraint],
    check: impl Fn(&Constraint, &Constraint),
) {
    for one in constraints {
        others.iter().filter(|other| other.0 != one.0).for_each(|other| check(one, other));
    }
}

#[test]
fn equal_constraints_are_one_ability_and_are_sent_once() {
    for (client, provider) in CLIENTS.iter().flat_map(|client| PROVIDERS.map(|provider| (*client, provider)))
    {
        let constraints = schema_constraints(client, SCHEMA);
        for parameters in OFFERS {
            for_each_pair(&constraints, &constraints, |one, other| {
                let run = |given: &[&Constraint]| sent(&request(client, given), provider, parameters);
                let context = format!("{client:?} {provider:?} {parameters:?} {} {}", one.0, other.0);
                let both = run(&[one, other]);
                let is_supported = [one, other].map(|given| run(&[given]).is_ok());
                assert_eq!(both.is_ok(), is_supported.contains(&true), "{context}: {both:?}");
                if let Ok(text) = both {
                    assert_eq!(text.matches("zebra").count(), 1, "{context}: {text}");
                }
            });
        }
    }
}

#[test]
fn different_constraints_are_refused_with_both_names() {
    for (client, provider) in CLIENTS.iter().flat_map(|client| PROVIDERS.map(|provider| (*client, provider)))
    {
        let constraints = schema_constraints(client, SCHEMA);
        let others = [schema_constraints(client, OTHER_SCHEMA), other_constraints()].concat();
        for parameters in OFFERS {
            for_each_pair(&constraints, &others, |one, other| {
                let error = sent(&request(client, &[one, other]), provider, parameters).unwrap_err();
                let context = format!("{client:?} {provider:?} {parameters:?}: {error:?}");
                assert_eq!(error.code, ErrorCode::Unsupported, "{context}");
                for path in [one.0, other.0] {
                    assert!(error.message.contains(&format!("`{path}`")), "{path} {context}");
                }
                assert!(crate::parameters::is_constraint_error(&error), "{context}");
            });
        }
    }
    let others = other_constraints();
    for_each_pair(&others, &others, |one, other| {
        let error = sent(&request(Dialect::Chat, &[one, other]), Dialect::Chat, OFFERS[5]).unwrap_err();
        assert!([one.0, other.0].iter().all(|path| error.message.contains(path)), "{error:?}");
    });
}

#[test]
fn the_same_pattern_under_two_names_is_sent_once() {
    for (names, value) in [
        (["guided_regex", "regex"], json!("zebra")),
        (["guided_grammar", "grammar"], json!("zebra")),
        (["grammar", "ebnf"], json!("zebra")),
    ] {
        for listed in names {
            let constraints = names.map(|name| (name, json!({ name: value })));
            let [one, other] = &constraints;
            let text = sent(&request(Dialect::Chat, &[one, other]), Dialect::Chat, &[listed]).unwrap();
            assert_eq!(text.matches("zebra").count(), 1, "{text}");
            assert!(text.contains(&format!("\"{listed}\"")), "{text}");
        }
    }
}

#[test]
fn a_constraint_with_two_values_in_one_member_is_refused() {
    for member in [r#"{"json":{},"json":{"a":1}}"#, r#"{"json":{"a":1},"regex":"a"}"#, r#"{"a":"b","c":"d"}"#]
    {
        let body = format!(r#"{{"model":"m","messages":[],"structured_outputs":{member}}}"#);
        let ask = test_support::sample_request(Dialect::Chat, body.as_bytes());
        for provider in PROVIDERS {
            let error = sent(&ask, provider, &["structured_outputs", "response_format"]).unwrap_err();
            assert_eq!(error.code, ErrorCode::Unsupported, "{member}");
        }
    }
}

#[test]
fn an_unknown_member_beside_a_constraint_is_named_as_unknown() {
    for (outputs, param, message) in [
        (r#"{"json":{},"foo":1}"#, "structured_outputs.foo", "`structured_outputs.foo` is unknown."),
        (r#"{"foo":1,"json":{}}"#, "structured_outputs.foo", "`structured_outputs.foo` is unknown."),
        (r#"{"json":{},"f o":1}"#, "structured_outputs", "`structured_outputs` has an unknown member."),
    ] {
        let body = format!(r#"{{"model":"m","messages":[],"structured_outputs":{outputs}}}"#);
        let ask = test_support::sample_request(Dialect::Chat, body.as_bytes());
        for provider in PROVIDERS {
            let error = sent(&ask, provider, &["structured_outputs", "response_format"]).unwrap_err();
            assert_eq!((error.param.as_deref(), &*error.message), (Some(param), message), "{outputs}");
        }
    }
    // An unknown constraint without another one is left to an engine whose offer lists the member.
    let body = br#"{"model":"m","messages":[],"structured_outputs":{"foo":1}}"#;
    let ask = test_support::sample_request(Dialect::Chat, body);
    assert!(sent(&ask, Dialect::Chat, &["structured_outputs"]).unwrap().contains("foo"));
}
