//! Tests of client errors that engines report with status 500.
#![allow(clippy::unwrap_used)]

use super::*;

fn failure(text: &str) -> UpstreamError {
    let body = serde_json::json!({"error": {"message": text, "type": "server_error"}}).to_string();
    classify_error(500, None, body.as_bytes(), 40_000, br#"{"messages":[]}"#)
}

#[test]
fn an_input_that_is_too_long_is_known_with_its_counts() {
    for (text, window, input) in [
        ("context shift is disabled", None, None),
        ("internal error happened, status code ResponseType.INPUT_LENGTH_ERROR", None, None),
        ("length of the sequence 45000 is over the session length 40000", Some(40_000), Some(45_000)),
        ("Request too large for model: 45000 tokens, limit 40000", Some(40_000), Some(45_000)),
        ("This request is too long for the model", None, None),
        ("the prompt exceeded the maximum length", None, None),
        ("input_ids length 45000 exceeds", None, Some(45_000)),
        ("The input token number (45000) exceeds session_len (39000)", Some(39_000), Some(45_000)),
    ] {
        let error = failure(text);
        assert_eq!(error.kind, UpstreamErrorKind::Caller, "{text}");
        let refusal = error.api_error.unwrap();
        assert_eq!(refusal.code, ErrorCode::ContextLength, "{text}");
        let number = |name: &str| refusal.details.get(name).and_then(serde_json::Value::as_u64);
        assert_eq!(number("context_length"), window.or(Some(40_000)), "{text}");
        assert_eq!(number("input_tokens"), input, "{text}");
    }
    let cap = failure("max_tokens is too large: 50000. This model supports at most 4096 completion tokens");
    assert_eq!((cap.kind, cap.max_output), (UpstreamErrorKind::Caller, Some(4096)));
}

#[test]
fn a_history_schema_file_or_value_that_an_engine_cannot_read_is_a_client_error() {
    for text in [
        "Can only get item pairs from a mapping.",
        "'str' object has no attribute 'items'",
        "the JSON object must be str, bytes or bytearray, not NoneType",
        "KeyError: 'content'",
        "Object of type Undefined is not JSON serializable",
        "unhashable type: dict",
        "No messages provided",
        "Failed to parse grammar",
        "Failed to initialize samplers: failed to parse grammar",
        "The provided JSON schema contains features not supported by xgrammar.",
        "Unsupported JSON schema",
        "unknown json schema type: foo",
        "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
        "this model is missing data required for image input",
        "Image too small: height:1 must be larger than factor:28",
        "absolute aspect ratio must be smaller than 200, got 300",
        "image file is truncated (3 bytes not processed)",
        "Incorrect padding",
        "Error opening <_io.BytesIO object at 0x7f>: Format not recognised.",
        "Failed to load audio: ffmpeg version 6",
        "Invalid data found when processing input",
        "Maximum clip duration (30s) exceeded",
        "top_p must be in (0, 1], got 0.0.",
        "`temperature` must be non-negative, got -1",
        "stop cannot contain an empty string",
        "token_id(s) [999999] in logit_bias contain out-of-vocab token ids",
    ] {
        let error = failure(text);
        assert_eq!(error.kind, UpstreamErrorKind::Caller, "{text}");
        assert!(!error.may_be_provider, "{text}");
    }
    for text in [
        "KeyError: 'gpu'",
        "unknown device type: cuda",
        "tools must be loaded",
        "Out of memory: KeyError: 'content'",
    ] {
        assert_eq!(failure(text).kind, UpstreamErrorKind::Status(500), "{text}");
    }
}
