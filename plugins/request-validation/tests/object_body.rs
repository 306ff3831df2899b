//! Bodies that are read without a schema: refusals name the byte or the member.
#![allow(clippy::unwrap_used)]

use penstock_request_validation::{RequestLimits, validate_object_body};

#[test]
fn an_ambiguous_or_broken_object_is_refused_with_its_place() {
    let deep = format!("{{\"metadata\":{}1{}}}", "[".repeat(200), "]".repeat(200));
    let cases: [(&[u8], &str); 11] = [
        (b"", "The request body is empty"),
        (b"[]", "expected an object, got an array"),
        (br#"{"endpoint":"a","endpoint":"b"}"#, "endpoint: the key occurs more than once."),
        (br#"{"endpoint":"a","\u0065ndpoint":"b"}"#, "endpoint: the key occurs more than once."),
        (br#"{"metadata":{"a":"1","b":"2","a":"3"}}"#, "metadata.a: the key occurs more than once."),
        (br#"{"a":"b"} x"#, "at byte 10"),
        (br#"{"a":NaN}"#, "at byte 5"),
        (br#"{"metadata":{"a":1e400}}"#, "at byte 17"),
        (br#"{"metadata":{"a":"\ud800"}}"#, "half of a surrogate pair"),
        (b"{\"a\":\"\xff\"}", "not UTF-8: byte 6"),
        (deep.as_bytes(), "nested deeper than 128 levels"),
    ];
    for (body, expected) in cases {
        let refusal = validate_object_body(body, &RequestLimits::default()).unwrap_err();
        assert!(refusal.message.contains(expected), "{expected}: {}", refusal.message);
    }
}

#[test]
fn an_object_with_unique_keys_is_accepted() {
    for body in [r#"{}"#, r#" {"a":{"b":1},"c":{"b":[{"b":1}]}} "#] {
        validate_object_body(body.as_bytes(), &RequestLimits::default()).unwrap();
    }
}
