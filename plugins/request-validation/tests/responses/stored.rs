//! Tests of requests that continue a stored conversation.

use crate::{member, with};
use bytes::Bytes;
use penstock_core::{
    ApiError, ErrorCode, InferenceRequest, PreviousResponse, ResponseStorePermission, StoredResponseAccess,
};
use penstock_request_validation::{RequestLimits, ResponsesPurpose, validate_responses_request_with_storage};

use serde_json::{Value, json};

const GENERATE: ResponsesPurpose<'_> = ResponsesPurpose::Generate;
const COUNT: ResponsesPurpose<'_> = ResponsesPurpose::Count(None);
const CONTINUED: &str = r#""previous_response_id":"resp_1""#;

/// Validates a request with these members that continues a conversation with these items.
fn ask(
    members: &str,
    purpose: ResponsesPurpose<'_>,
    items: &str,
    limits: &RequestLimits,
) -> Result<InferenceRequest, ApiError> {
    let previous = PreviousResponse::Items(Bytes::from(items.to_owned()));
    let storage = StoredResponseAccess { previous, store_permission: ResponseStorePermission::Allowed };
    validate_responses_request_with_storage(Bytes::from(with(members)), limits, purpose, &storage)
}

/// Validates a short request that continues a conversation with these items.
fn continued(items: &str, limits: &RequestLimits) -> Result<InferenceRequest, ApiError> {
    ask(&format!(r#""input":"x",{CONTINUED}"#), GENERATE, items, limits)
}

/// Returns the messages of a request that continues the conversation `[user: a, assistant: b]`.
fn messages(members: &str, purpose: ResponsesPurpose<'_>) -> Result<Value, ApiError> {
    let items = r#"{"role":"user","content":"a"},{"role":"assistant","content":"b"}"#;
    let ask = ask(members, purpose, items, &RequestLimits::default())?;
    Ok(member(&ask, "messages"))
}

#[test]
fn a_request_that_continues_a_response_needs_no_input() {
    let earlier = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]);
    for input in ["", r#","input":null"#, r#","input":[]"#, r#","input":"""#] {
        for purpose in [GENERATE, COUNT] {
            let members = format!("{CONTINUED}{input}");
            assert_eq!(messages(&members, purpose).unwrap(), earlier, "{members}");
        }
        let stored = format!(r#"{CONTINUED},"store":true{input}"#);
        let stored = ask(&stored, GENERATE, r#"{"role":"user","content":"a"}"#, &RequestLimits::default());
        let details = stored.unwrap().responses.unwrap();
        assert_eq!(details.stored_input.unwrap().input, "[]", "{input}");
    }
    for members in [CONTINUED.to_owned() + r#","input":5"#, CONTINUED.to_owned() + r#","input":{}"#] {
        let refusal = messages(&members, GENERATE).unwrap_err();
        assert_eq!(refusal.param.as_deref(), Some("input"), "{members}");
    }
}

#[test]
fn only_a_count_may_have_instructions_or_tools_alone() {
    let tools = r#""tools":[{"type":"function","name":"f"}]"#;
    let alone = |members: &str, purpose| {
        let body = Bytes::from(with(members));
        let storage = StoredResponseAccess::default();
        let limits = RequestLimits::default();
        validate_responses_request_with_storage(body, &limits, purpose, &storage)
            .map(|ask| member(&ask, "messages"))
    };
    let empty = json!([{"role": "user", "content": ""}]);
    let system = json!([{"role": "system", "content": "x"}]);
    for (members, expected) in [
        (tools.to_owned(), &empty),
        (r#""instructions":"x""#.to_owned(), &system),
        (format!(r#""input":[],"instructions":"x",{tools}"#), &system),
    ] {
        assert_eq!(alone(&members, COUNT).unwrap(), *expected, "{members}");
        assert_eq!(alone(&members, GENERATE).unwrap_err().param.as_deref(), Some("input"), "{members}");
    }
    for members in
        [r#""temperature":1"#, r#""input":null"#, r#""input":[]"#, r#""instructions":"","tools":[]"#]
    {
        for purpose in [GENERATE, COUNT] {
            let refusal = alone(members, purpose).unwrap_err();
            assert_eq!((refusal.code, refusal.param.as_deref()), (ErrorCode::InvalidRequest, Some("input")));
            assert!(refusal.message.contains("`previous_response_id`"), "{}", refusal.message);
        }
    }
    // An empty text is a message of the user if nothing else is sent.
    assert_eq!(alone(r#""input":"""#, GENERATE).unwrap(), empty);
}

#[test]
fn a_cut_call_of_a_stored_response_has_a_json_object_as_arguments() {
    let call = |arguments: &str| {
        json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments}).to_string()
    };
    let wrap = |text: &str| json!({"INVALID_JSON": text}).to_string();
    for (arguments, expected) in [
        ("{\"x\":", wrap("{\"x\":")),
        ("{\"x\": \"a\u{e9}\\n", wrap("{\"x\": \"a\u{e9}\\n")),
        ("[1]", wrap("[1]")),
        ("{} {", wrap("{} {")),
        ("", "{}".to_owned()),
        (" {\"x\":1} ", " {\"x\":1} ".to_owned()),
    ] {
        let ask = continued(&call(arguments), &RequestLimits::default()).unwrap();
        let sent = member(&ask, "messages")[0]["tool_calls"][0]["function"]["arguments"].clone();
        assert_eq!(sent, expected, "{arguments}");
    }
    // The call of a client is sent as it is, so that an error names it.
    let input = format!(r#""input":[{}]"#, call("{\"x\":"));
    let ask = ask(&input, GENERATE, "", &RequestLimits::default()).unwrap();
    assert_eq!(member(&ask, "messages")[0]["tool_calls"][0]["function"]["arguments"], "{\"x\":");
}

#[test]
fn a_stored_conversation_beyond_the_limits_is_not_called_the_body() {
    let item = r#"{"role":"user","content":"0123456789"}"#;
    let items = vec![item; 100].join(",");
    let limits = |max_body, max_depth, max_values| RequestLimits {
        max_body,
        max_depth,
        max_values,
        ..RequestLimits::default()
    };
    assert!(continued(&items, &limits(items.len() + 2, 8, 501)).is_ok());
    for (limits, code, fault) in [
        (limits(1000, 8, 501), ErrorCode::TooLarge, "is larger than 1000 bytes"),
        (
            limits(10_000, 1, 501),
            ErrorCode::InvalidRequest,
            "has objects and arrays nested deeper than 1 levels",
        ),
        (limits(10_000, 8, 500), ErrorCode::InvalidRequest, "has more than 500 keys and values"),
    ] {
        let refusal = continued(&items, &limits).unwrap_err();
        let path = "previous_response_id";
        let message =
            format!("{path}: the stored conversation {fault}; send a shorter history in `input` instead.");
        assert_eq!((&*refusal.message, refusal.code), (&*message, code));
        assert_eq!((refusal.param.as_deref(), refusal.is_client_param), (Some(path), true), "{message}");
    }
}
