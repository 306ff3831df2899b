//! Results of moderations.

use super::{abilities, ask, shape, target};
use bytes::Bytes;
use penstock_core::*;
use serde_json::{Value, json};

/// Translates the answer to a moderation of one text.
fn translate(answer: &str) -> Result<Value, UpstreamErrorKind> {
    let ask = ask(ModelKind::Moderation, r#"{"model":"m","input":["a"]}"#);
    let abilities = abilities(&json!({}));
    let answer =
        UpstreamAnswer { body: Bytes::copy_from_slice(answer.as_bytes()), ..UpstreamAnswer::default() };
    let read = shape(ModelKind::Moderation, "openai").translate(&ask, &target(&abilities), vec![answer]);
    read.map(|response| serde_json::from_slice(&response.body.concat()).unwrap()).map_err(|error| error.kind)
}

fn translate_result(result: &str) -> Result<Value, UpstreamErrorKind> {
    translate(&format!(r#"{{"results":[ {result} ]}}"#)).map(|mut answer| answer["results"][0].take())
}

#[test]
fn members_have_their_types() {
    for result in [
        r#"{"flagged":true,"categories":{"own":false},"category_scores":{"own":0.5,"other":-1e-9}}"#,
        r#"{"flagged":false,"categories":{},"category_scores":{}}"#,
        r#"{"flagged":false,"categories":{"illicit":null},"category_scores":{"illicit":null}}"#,
        r#"{"flagged":false,"own":[{"a":"yes"}]}"#,
    ] {
        assert_eq!(translate_result(result), Ok(serde_json::from_str(result).unwrap()), "{result}");
    }
    for result in [
        "{}",
        r#"{"category_scores":{}}"#,
        r#"{"flagged":5}"#,
        r#"{"flagged":"false"}"#,
        r#"{"flagged":null}"#,
        r#"{"flagged":false,"categories":[]}"#,
        r#"{"flagged":true,"categories":{"own":"yes"}}"#,
        r#"{"flagged":true,"categories":{"own":1}}"#,
        r#"{"flagged":false,"category_scores":1}"#,
        r#"{"flagged":false,"category_scores":{"own":"0.9"}}"#,
        r#"{"flagged":false,"category_scores":{"own":[0.9]}}"#,
        "true",
    ] {
        assert_eq!(translate_result(result), Err(UpstreamErrorKind::Malformed), "{result}");
    }
}

#[test]
fn a_missing_verdict_is_derived_from_the_categories() {
    for (categories, flagged) in [
        (r#"{"hate":false,"own":true}"#, Ok(true)),
        (r#"{"hate":true,"own":null}"#, Ok(true)),
        (r#"{ "hate":false }"#, Ok(false)),
        (r#"{"hate":false,"own":null}"#, Err(UpstreamErrorKind::Malformed)),
        ("{}", Err(UpstreamErrorKind::Malformed)),
        ("null", Err(UpstreamErrorKind::Malformed)),
    ] {
        let result =
            translate_result(&format!(r#"{{"categories":{categories},"category_scores":{{"hate":1}}}}"#));
        if let Ok(result) = &result {
            assert_eq!(result["category_scores"], json!({"hate": 1}), "{categories}");
            assert_eq!(result["categories"], serde_json::from_str::<Value>(categories).unwrap());
        }
        assert_eq!(result.map(|result| result["flagged"].clone()), flagged.map(Value::Bool), "{categories}");
    }
}

#[test]
fn a_verdict_that_parsers_read_differently_is_malformed() {
    for result in [
        r#"{"flagged":true,"flagged":false}"#,
        r#"{"flagged":true,"\u0066lagged":false}"#,
        r#"{"flagged":false,"categories":{"hate":true},"categories":{"hate":false}}"#,
        r#"{"flagged":false,"categories":{"hate":true,"hate":false}}"#,
    ] {
        assert_eq!(translate_result(result), Err(UpstreamErrorKind::Malformed), "{result}");
    }
    let twice = r#"{"results":[{"flagged":true}],"results":[{"flagged":false}]}"#;
    assert_eq!(translate(twice), Err(UpstreamErrorKind::Malformed));
}

#[test]
fn a_result_that_strict_parsers_refuse_is_malformed() {
    for member in [
        r#""category_scores":{"hate":1e400}"#,
        r#""own":[{"a":-1e999}]"#,
        r#""own":"\ud800""#,
        r#""\udc00":1"#,
        r#""own":[{"a":1,"a":2}]"#,
    ] {
        let result = format!(r#"{{"flagged":false,{member}}}"#);
        assert_eq!(translate_result(&result), Err(UpstreamErrorKind::Malformed), "{member}");
    }
}
