//! Tests of requests that continue a stored conversation.

use crate::with;
use bytes::Bytes;
use penstock_core::{ApiError, ErrorCode, InferenceRequest, PreviousResponse, StoredResponseAccess};
use penstock_request_validation::{RequestLimits, ResponsesPurpose, validate_responses_request_with_storage};

/// Validates a short request that continues a conversation with these items.
fn continued(items: &str, limits: &RequestLimits) -> Result<InferenceRequest, ApiError> {
    let body = Bytes::from(with(r#""input":"x","previous_response_id":"resp_1""#));
    let previous = PreviousResponse::Items(Bytes::from(items.to_owned()));
    let storage = StoredResponseAccess { previous, ..StoredResponseAccess::default() };
    validate_responses_request_with_storage(body, limits, ResponsesPurpose::Generate, &storage)
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
