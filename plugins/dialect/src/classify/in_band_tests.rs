//! Tests of error objects in responses with status 200, and of error messages that contain parts of the request's
//! words.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;

#[test]
fn an_error_inside_a_good_answer_is_classified_as_the_status_that_it_states() {
    let kind = |body: &str| {
        let error = classify_in_band_error(body.as_bytes());
        let error = reclassify_in_band_error(error, 8192, br#"{"messages":[]}"#);
        (error.kind, error.api_error.map(|error| error.message.into_owned()))
    };
    let (found, message) = kind(
        r#"{"error":{"message":"temperature must be between 0 and 1","type":"BadRequestError","code":400}}"#,
    );
    assert_eq!(found, UpstreamErrorKind::Caller);
    assert!(message.unwrap().ends_with("temperature must be between 0 and 1"));
    for caller in [
        r#"{"error":{"message":"tools must be a list","code":"422"}}"#,
        r#"{"error":{"message":"tools must be a list","type":"invalid_request_error"}}"#,
        r#"{"error":{"message":"Conversation roles must alternate user/assistant"}}"#,
        r#"{"error":{"message":"Conversation roles must alternate user/assistant","code":500}}"#,
        r#"{"code":"image_too_large","message":"The image is above the limit."}"#,
        r#"{"code":"failed_to_download_image","message":"No answer."}"#,
        r#"{"code":"bio_policy","message":"This request was stopped."}"#,
    ] {
        assert_eq!(kind(caller).0, UpstreamErrorKind::Caller, "{caller}");
    }
    for provider in [
        r#"{"error":{"message":"temperature must be between 0 and 1","code":500}}"#,
        r#"{"error":{"message":"bad key","code":401}}"#,
        r#"{"error":"overloaded"}"#,
        "",
    ] {
        assert_eq!(kind(provider).0, UpstreamErrorKind::InBandError, "{provider}");
    }
}

/// Returns the kind and the code of the error that an object of these members, flat and inside `error`, is classified
/// as after a short request.
fn in_band_kind(code: &str, message: &str) -> (UpstreamErrorKind, Option<ErrorCode>) {
    let members = serde_json::json!({"code": code, "message": message});
    let mut flat = members.clone();
    flat["type"] = "error".into();
    flat["param"] = "input".into();
    let kinds = [members.clone(), flat, serde_json::json!({"type": "error", "error": members})].map(|body| {
        let error = classify_in_band_error(body.to_string().as_bytes());
        let error = reclassify_in_band_error(
            error,
            131_072,
            FailedRequest { sent: b"{}", client: b"{}", max_input_tokens: 5 },
        );
        (error.kind, error.api_error.map(|error| error.code))
    });
    assert!(kinds.iter().all(|kind| *kind == kinds[0]), "{code}: {kinds:?}");
    kinds[0]
}

#[test]
fn each_code_of_a_failed_response_blames_one_party() {
    use UpstreamErrorKind::{Caller, Credentials, InBandError, Status};
    for code in ["invalid_prompt", "invalid_request_error", "unsupported_parameter"] {
        let expected = (Caller, Some(ErrorCode::InvalidRequest));
        assert_eq!(in_band_kind(code, "This request was stopped."), expected, "{code}");
    }
    for code in [
        "empty_image_file",
        "failed_to_download_image",
        "image_file_not_found",
        "image_file_too_large",
        "image_parse_error",
        "image_too_large",
        "image_too_small",
        "invalid_base64_image",
        "invalid_image",
        "invalid_image_format",
        "invalid_image_mode",
        "invalid_image_url",
        "unsupported_image_media_type",
    ] {
        let expected = (Caller, Some(ErrorCode::InvalidRequest));
        assert_eq!(in_band_kind(code, "The image cannot be read."), expected, "{code}");
    }
    for code in
        ["bio_policy", "cyber_policy", "image_content_policy_violation", "misalignment_policy_violation"]
    {
        let expected = (Caller, Some(ErrorCode::ContentRefused));
        assert_eq!(in_band_kind(code, "This request was stopped."), expected, "{code}");
    }
    for (code, expected) in [
        ("server_error", InBandError),
        ("an_unknown_code", InBandError),
        ("vector_store_timeout", Status(504)),
        ("rate_limit_exceeded", Status(429)),
        ("data_residency_mismatch", Credentials(403)),
    ] {
        assert_eq!(in_band_kind(code, "This request was stopped."), (expected, None), "{code}");
    }
}

#[test]
fn an_input_above_the_context_window_is_a_client_error_by_its_code() {
    let message =
        "Your input exceeds the context window of this model. Please adjust your input and try again.";
    let expected = (UpstreamErrorKind::Caller, Some(ErrorCode::ContextLength));
    assert_eq!(in_band_kind("context_length_exceeded", message), expected);
    assert_eq!(in_band_kind("context_length_exceeded", ""), expected);
    // Without the code, an engine that failed may mention the window for another reason.
    assert_eq!(in_band_kind("server_error", message), (UpstreamErrorKind::InBandError, None));
}

#[test]
fn an_error_inside_a_good_answer_that_states_a_rate_limit_is_one() {
    for body in [
        r#"{"error":{"message":"slow down","code":429}}"#,
        r#"{"code":"rate_limit_exceeded","message":"Rate limit reached for the model."}"#,
        r#"{"error":{"type":"rate_limit_error","message":"slow down"}}"#,
    ] {
        let error = classify_in_band_error(body.as_bytes());
        assert_eq!(
            (error.kind, error.kind.name()),
            (UpstreamErrorKind::Status(429), "rate_limited"),
            "{body}"
        );
        let error = reclassify_in_band_error(error, 8192, br#"{"messages":[]}"#);
        assert_eq!(error.kind, UpstreamErrorKind::Status(429), "{body}");
    }
}

#[test]
fn an_error_inside_a_good_answer_that_states_a_timeout_is_one() {
    for (status, expected) in [(408, 504), (504, 504), (522, 522), (524, 524)] {
        for body in [
            format!(r#"{{"error":{{"message":"upstream request timeout","code":{status}}}}}"#),
            format!(r#"{{"code":"{status}","message":"upstream request timeout"}}"#),
        ] {
            let error = classify_in_band_error(body.as_bytes());
            assert_eq!(
                (error.kind, error.kind.name()),
                (UpstreamErrorKind::Status(expected), "timeout"),
                "{body}"
            );
            let error = reclassify_in_band_error(error, 8192, br#"{"messages":[]}"#);
            assert_eq!(error.kind, UpstreamErrorKind::Status(expected), "{body}");
        }
    }
}

#[test]
fn a_part_of_a_word_of_the_request_is_removed_too() {
    let request = br#"{"messages":[{"role":"user","content":"My secret is Swordfish. Schwangerschaftsdiabetes. L\u00f6sung"}]}"#;
    let message_of = |text: &str| {
        let fault = classify_error(400, None, text.as_bytes(), 1, request);
        fault.api_error.unwrap().message.to_lowercase()
    };
    for text in [
        "truncated at: Schwangerschaftsdiab",
        "near 'My secret is Swordfi...' in the messages",
        "the text xSwordfishx is invalid",
        "the text ordfish is invalid",
    ] {
        let message = message_of(text);
        assert!(!message.contains("schwanger") && !message.contains("ordf"), "{message}");
    }
    assert!(message_of("temperature must be less than 1.5").ends_with("temperature must be less than 1.5"));
    let turned = message_of("the member tool_choice \u{202e} is bad \u{2066}now");
    assert!(!turned.contains(['\u{202e}', '\u{2066}']), "{turned:?}");
}
