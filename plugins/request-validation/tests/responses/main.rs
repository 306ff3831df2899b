//! Tests of the responses dialect: accepted, converted and refused requests.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod converted;
mod refused;
mod stored;
#[path = "../support/mod.rs"]
mod support;

use penstock_core::{Dialect, InferenceRequest};
use penstock_request_validation::{RequestLimits, ResponsesPurpose, validate_responses_request};
use serde_json::{Value, json};
use support::ask_responses;

/// Request with `model` and these members.
fn with(members: &str) -> String {
    format!(r#"{{"model":"m",{members}}}"#)
}

fn accepted(body: &str) -> InferenceRequest {
    ask_responses(body).unwrap_or_else(|refusal| panic!("{body}: {}", refusal.message))
}

/// Value of a member of the chat form.
fn member(ask: &InferenceRequest, name: &str) -> Value {
    ask.member_value(name).map_or(Value::Null, |value| serde_json::from_slice(value).unwrap())
}

/// Members that the response object repeats.
fn repeated(ask: &InferenceRequest) -> Value {
    let members = &ask.responses.as_ref().unwrap().repeated_members;
    serde_json::from_str(&format!("{{{}}}", std::str::from_utf8(members).unwrap())).unwrap()
}

#[test]
fn a_request_keeps_its_dialect_and_has_a_chat_body() {
    let ask = accepted(
        r#"{"model":"m:eco","input":"Hi","stream":true,"max_output_tokens":7,"parallel_tool_calls":false,
            "tools":[{"type":"function","name":"f","parameters":null}],"reasoning":{"effort":"low"}}"#,
    );
    assert_eq!((ask.dialect, &*ask.model, ask.stream), (Dialect::Responses, "m:eco", true));
    assert_eq!((ask.max_tokens, ask.parallel_tools, ask.required.tools), (Some(7), false, true));
    assert_eq!(member(&ask, "messages"), json!([{"role": "user", "content": "Hi"}]));
    assert_eq!(member(&ask, "reasoning_effort"), "low");
    assert_eq!(member(&ask, "input"), Value::Null);
}

#[test]
fn a_request_without_more_has_the_defaults_of_the_dialect() {
    let ask = accepted(&with(r#""input":"Hi""#));
    let repeated = repeated(&ask);
    for (name, value) in [
        ("instructions", json!(null)),
        ("metadata", json!({})),
        ("parallel_tool_calls", json!(true)),
        ("store", json!(false)),
        ("text", json!({"format": {"type": "text"}})),
        ("tool_choice", json!("auto")),
        ("tools", json!([])),
        ("truncation", json!("disabled")),
        ("reasoning", json!({"effort": null, "summary": null})),
    ] {
        assert_eq!(repeated[name], value, "{name}");
    }
    let details = ask.responses.unwrap();
    assert!(!details.seals_reasoning && details.tools.is_empty());
}

#[test]
fn the_response_repeats_what_was_sent_on_one_line() {
    let ask = accepted(
        "{\"model\":\"m\",\"input\":\"Hi\",\n\"metadata\":{\n\"a\":\"b\\nc\"},\r\n\"instructions\":\"Be\\nbrief.\",
         \"store\":true,\"truncation\":\"auto\",\"text\":{\"verbosity\":\"low\"},\"temperature\":0.5,
         \"tools\":[{\"type\":\"function\",\n\"name\":\"f\"},{\"type\":\"custom\",\"name\":\"c\"}],
         \"reasoning\":{\"effort\":\"high\",\"summary\":\"auto\"},\"user\":\"u\"}",
    );
    let details = ask.responses.as_ref().unwrap();
    assert!(!details.repeated_members.iter().any(|byte| matches!(byte, b'\n' | b'\r')));
    let repeated = repeated(&ask);
    for (name, value) in [
        ("metadata", json!({"a": "b\nc"})),
        ("instructions", json!("Be\nbrief.")),
        ("store", json!(false)),
        ("truncation", json!("disabled")),
        ("text", json!({"verbosity": "low", "format": {"type": "text"}})),
        ("temperature", json!(0.5)),
        ("reasoning", json!({"effort": "high", "summary": "auto"})),
        ("user", json!("u")),
        (
            "tools",
            json!([{"type": "function", "name": "f", "parameters": null, "strict": null},
                {"type": "custom", "name": "c"}]),
        ),
    ] {
        assert_eq!(repeated[name], value, "{name}");
    }
}

#[test]
fn a_count_takes_the_default_model() {
    let count = |body: &str, default| {
        let body = bytes::Bytes::from(body.to_owned());
        validate_responses_request(body, &RequestLimits::default(), ResponsesPurpose::Count(default))
    };
    assert_eq!(&*count(r#"{"input":"Hi"}"#, Some("d")).unwrap().model, "d");
    assert_eq!(&*count(r#"{"input":"Hi","model":"m"}"#, Some("d")).unwrap().model, "m");
    assert_eq!(count(r#"{"input":"Hi"}"#, None).unwrap_err().param.as_deref(), Some("model"));
}

#[test]
fn members_of_chat_are_passed_and_those_of_the_dialect_take_precedence() {
    let ask = accepted(&with(
        r#""input":"Hi","top_k":5,"seed":7,"stop":["x"],"max_tokens":9,"max_output_tokens":8,
           "reasoning_effort":"low","reasoning":{"effort":"high"},"verbosity":"high","text":{"verbosity":"low"},
           "chat_template_kwargs":{"a":1},"filters":{"countries":["FR"]},"preset":"reasoning""#,
    ));
    assert_eq!(
        (ask.max_tokens, &*ask.stop, ask.preset.as_deref()),
        (Some(8), &["x".to_owned()][..], Some("reasoning"))
    );
    for (name, value) in [
        ("top_k", json!(5)),
        ("seed", json!(7)),
        ("reasoning_effort", json!("high")),
        ("verbosity", json!("low")),
        ("chat_template_kwargs", json!({"a": 1})),
    ] {
        assert_eq!(member(&ask, name), value, "{name}");
    }
    assert_eq!(ask.filters.unwrap().countries.len(), 1);
}

#[test]
fn the_last_message_is_continued_as_on_chat_completions() {
    let body = |role: &str| {
        let (input, text) = (r#"{"role":"user","content":"a"}"#, "b");
        with(&format!(
            r#""continue_final_message":true,"input":[{input},{{"role":"{role}","content":"{text}"}}]"#
        ))
    };
    assert!(accepted(&body("assistant")).required.prefill);
    let refusal = ask_responses(&body("user")).unwrap_err();
    assert_eq!(refusal.param.as_deref(), Some("continue_final_message"));
}
