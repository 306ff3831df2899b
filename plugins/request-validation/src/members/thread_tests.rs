//! Tests that a `thread` of the messages dialect is refused, so that clients send the whole conversation.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::tests::ask;
use crate::limits::RequestLimits;
use crate::messages::MessagesPurpose;
use bytes::Bytes;
use penstock_core::{Dialect, ErrorCode};

#[test]
fn a_thread_parameter_is_rejected_in_the_words_that_trigger_the_clients_fallback() {
    for thread in [
        r#"{"type":"create"}"#,
        r#"{"type":"continue","previous_message_id":"msg_1"}"#,
        "{}",
        "true",
        "\"x\"",
        "0",
    ] {
        let refusal = ask(Dialect::Messages, &format!(r#""thr\u0065ad":{thread}"#)).unwrap_err();
        assert_eq!((refusal.code, refusal.param.as_deref()), (ErrorCode::Unsupported, Some("thread")));
        assert_eq!(refusal.details["error_code"], "thread_unsupported_request");
        assert_eq!(refusal.details["unsupported"].as_array().unwrap(), &["thread"]);
        assert_eq!(refusal.details["code"], ErrorCode::Unsupported.spec().code);
    }
    assert!(ask(Dialect::Messages, r#""thread":null"#).is_ok());
}

#[test]
fn a_thread_parameter_is_rejected_before_errors_of_its_missing_history() {
    let turn = r#"[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x"}]}]"#;
    for purpose in [MessagesPurpose::Generate, MessagesPurpose::Count] {
        let body = format!(r#"{{"model":"m","messages":{turn},"thread":{{"type":"create"}}}}"#);
        let refusal = crate::validate_messages_request(Bytes::from(body), &RequestLimits::default(), purpose)
            .unwrap_err();
        assert_eq!(refusal.param.as_deref(), Some("thread"));
    }
}
