//! Tests of refused content in the words of different hosts.
#![allow(clippy::unwrap_used)]

use super::*;
use serde_json::{Value, json};

const REQUEST: &[u8] = br#"{"messages":[{"role":"user","content":"hi"}]}"#;

/// Returns the errors of a body as the response to a request and as an error in a stream.
fn errors(status: u16, body: &Value) -> [UpstreamError; 2] {
    let body = body.to_string();
    let in_band = classify_in_band_error(body.as_bytes());
    [
        classify_error(status, None, body.as_bytes(), 8192, REQUEST),
        reclassify_in_band_error(in_band, 8192, REQUEST),
    ]
}

#[test]
fn a_refusal_of_content_is_known_in_the_words_of_each_host() {
    let chat = |message: &str, code: &str| json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": code}});
    for (status, body) in [
        (400, chat("Content Exists Risk", "invalid_request_error")),
        (
            400,
            json!({"contentFilter": [{"level": 0, "role": "user"}], "error": {"code": "1301", "message": "\u{7cfb}\u{7edf}\u{68c0}\u{6d4b}\u{5230}\u{8f93}\u{5165}\u{6216}\u{751f}\u{6210}\u{5185}\u{5bb9}\u{53ef}\u{80fd}\u{5305}\u{542b}\u{4e0d}\u{5b89}\u{5168}\u{6216}\u{654f}\u{611f}\u{5185}\u{5bb9}\u{ff0c}\u{8bf7}\u{60a8}\u{907f}\u{514d}\u{8f93}\u{5165}"}}),
        ),
        (
            400,
            json!({"error": {"code": "1301", "message": "System detected potentially unsafe or sensitive content in input or generation. Please avoid using prompts that may generate sensitive content."}}),
        ),
        (
            400,
            chat(
                "<400> InternalError.Algo.DataInspectionFailed: Input data may contain inappropriate content.",
                "data_inspection_failed",
            ),
        ),
        (
            400,
            json!({"code": "DataInspectionFailed", "message": "Output data may contain inappropriate content.", "request_id": "x"}),
        ),
        (400, json!({"message": "The generated text has been blocked by our content filters."})),
        (
            400,
            json!({"error": {"code": "SensitiveContentDetected", "message": "The request failed because the input text may contain sensitive information.", "type": "BadRequest"}}),
        ),
        (
            400,
            json!({"error": {"code": "SensitiveContentDetected.SevereViolation", "message": "x", "type": "BadRequest"}}),
        ),
        (
            400,
            json!({"error": {"code": "OutputTextSensitiveContentDetected", "message": "x", "type": "BadRequest"}}),
        ),
        (400, json!({"error": {"code": "InputTextRiskDetection", "message": "x"}})),
        (
            400,
            json!({"type": "error", "error": {"type": "bad_request_error", "message": "invalid params, input new_sensitive (1026)", "http_code": "400"}}),
        ),
        (400, json!({"base_resp": {"status_code": 1027, "status_msg": "output new_sensitive"}})),
        (
            451,
            json!({"error": {"message": "The content you provided or machine outputted is blocked.", "type": "censorship_blocked"}}),
        ),
        (
            400,
            json!({"error": {"message": "The request was rejected because it was considered high risk", "type": "content_filter"}}),
        ),
        (
            400,
            json!({"error": {"message": "The request was rejected because it was considered high risk", "type": "invalid_request_error"}}),
        ),
        (
            400,
            json!({"error": {"message": "The response was filtered", "code": "content_filter", "innererror": {"code": "ResponsibleAIPolicyViolation"}}}),
        ),
        (
            403,
            json!({"code": "permission-denied", "error": "Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_BIO"}),
        ),
        (
            400,
            json!({"type": "error", "error": {"type": "invalid_request_error", "message": "Output blocked by content filtering policy"}}),
        ),
        (
            400,
            json!({"error": {"code": "OperationDenied.TextIllegalDetected", "message": "\u{6587}\u{672c}\u{5305}\u{542b}\u{8fdd}\u{6cd5}\u{8fdd}\u{89c4}\u{4fe1}\u{606f}\u{ff0c}\u{5ba1}\u{6838}\u{4e0d}\u{901a}\u{8fc7}\u{3002}"}}),
        ),
        (400, chat("NSFW content detected in the prompt", "x")),
    ] {
        for error in errors(status, &body) {
            assert_eq!(error.kind, UpstreamErrorKind::Caller, "{body}");
            let refusal = error.api_error.unwrap();
            assert_eq!(refusal.code, ErrorCode::ContentRefused, "{body}");
            assert!(!refusal.message.contains('\u{2026}'), "{}", refusal.message);
        }
    }
}

#[test]
fn an_ordinary_error_is_no_refusal_of_content() {
    for message in [
        "stop sequences are case-sensitive",
        "The header contains sensitive information",
        "Invalid value for sensitivity: high risk",
        "content exists already",
        "Request blocked: too many headers",
        "The inappropriate role of a message",
        "Unsafe integer in top_k",
        "Range of top_p should be (0.0, 1.0]",
        "code 1301 is unknown",
        "model output was filtered by top_k",
        "the filter of the content type is invalid",
        "sensitive_content is not a parameter",
        "Unknown parameter: new_sensitive",
    ] {
        let body = json!({"error": {"message": message, "code": "invalid_request_error"}});
        let [error, _] = errors(400, &body);
        assert_eq!(error.api_error.unwrap().code, ErrorCode::InvalidRequest, "{message}");
    }
    let echo = json!({"error": {"message": "Invalid text 'Content Exists Risk' in messages"}}).to_string();
    let request = br#"{"messages":[{"role":"user","content":"Content Exists Risk"}]}"#;
    let error = classify_error(400, None, echo.as_bytes(), 8192, request);
    assert_eq!(error.api_error.unwrap().code, ErrorCode::InvalidRequest);
}
