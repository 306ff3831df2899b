//! Tests of the error envelopes as client libraries read them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::*;

fn parsed(dialect: Dialect, refusal: &ApiError) -> Value {
    serde_json::from_slice(&error_envelope(dialect, refusal, "req_1")).unwrap()
}

#[test]
fn the_chat_envelope_has_string_code_and_a_param_or_null() {
    let refusal = ApiError::invalid("messages[0].role", "no such role \"x\"").with_details_member("n", 1);
    assert_eq!(
        parsed(Dialect::Chat, &refusal),
        json!({"error":{"message":"no such role \"x\"","type":"invalid_request_error","code":"INFERENCE_3201",
               "param":"messages[0].role","details":{"name":"invalid_request_error","n":1}},"request_id":"req_1"})
    );
    assert_eq!(parsed(Dialect::Chat, &ApiError::new(ErrorCode::InvalidKey))["error"]["param"], Value::Null);
}

#[test]
fn a_member_that_the_client_sent_keeps_its_name() {
    let refusal = ApiError::unsupported("response_format", "not here");
    assert_eq!(parsed(Dialect::Responses, &refusal)["error"]["param"], "text.format");
    let refusal = refusal.mark_param_as_sent();
    assert_eq!(parsed(Dialect::Responses, &refusal)["error"]["param"], "response_format");
}

#[test]
fn the_messages_envelope_has_the_code_where_its_clients_look_for_it() {
    let refusal = ApiError::new(ErrorCode::Unavailable).with_details_member("attempts", 2);
    assert_eq!(
        parsed(Dialect::Messages, &refusal),
        json!({"type":"error","error":{"type":"overloaded_error","message":ErrorCode::Unavailable.spec().message,
               "code":"INFERENCE_3103","details":{"error_code":"INFERENCE_3103","name":"service_unavailable",
               "attempts":2}},"request_id":"req_1"})
    );
    let named = parsed(Dialect::Messages, &ApiError::invalid("max_tokens", "too many"));
    assert_eq!(named["error"]["details"]["param"], "max_tokens");
}

#[test]
fn a_full_context_window_is_reported_in_the_words_that_frameworks_search_for() {
    let refusal = ApiError::context_length_exceeded(4096, 5000);
    let chat = parsed(Dialect::Chat, &refusal);
    assert_eq!(
        chat["error"]["message"],
        "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000 tokens. \
         (context_length_exceeded)"
    );
    assert_eq!(
        chat["error"]["details"],
        json!({"name":"context_length_exceeded","context_length":4096,"input_tokens":5000})
    );
    let messages = parsed(Dialect::Messages, &refusal);
    assert_eq!(messages["error"]["message"], "prompt is too long: 5000 tokens > 4096 maximum");
    let unknown = ApiError::new(ErrorCode::ContextLength);
    assert!(
        parsed(Dialect::Chat, &unknown)["error"]["message"]
            .as_str()
            .unwrap()
            .contains("context_length_exceeded")
    );
    assert!(
        parsed(Dialect::Messages, &unknown)["error"]["message"]
            .as_str()
            .unwrap()
            .contains("prompt is too long")
    );
}

#[test]
fn every_error_has_a_name_in_both_dialects() {
    for code in ErrorCode::ALL {
        for dialect in [Dialect::Chat, Dialect::Messages] {
            let name = &parsed(dialect, &ApiError::new(code))["error"]["details"]["name"];
            assert_eq!(name, code.spec().chat_type, "{code:?} {dialect:?}");
        }
    }
    // Error names of the public contract.
    assert_eq!(ErrorCode::InvalidKey.spec().chat_type, "invalid_api_key");
    assert_eq!(ErrorCode::InsufficientScope.spec().chat_type, "insufficient_scope");
}
