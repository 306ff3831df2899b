//! Tests of the members that a provider's error message names, in the formats of known APIs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::classify_error;
use penstock_core::{
    AdjustableMember, AdjustableMemberSet, MEMBER_ERROR_WORDS, RefusedMembers, UpstreamErrorKind,
};
use serde_json::{Value, json};

fn refused(status: u16, body: &Value) -> RefusedMembers {
    classify_error(status, None, body.to_string().as_bytes(), 1, b"{}").refused_members
}

fn named(status: u16, body: &Value) -> AdjustableMemberSet {
    match refused(status, body) {
        RefusedMembers::Named(named) => named.all,
        RefusedMembers::Unnamed => panic!("no name in {body}"),
    }
}

/// Refusals of a path such as `reasoning.summary` or `tools.0.strict`.
fn refusals(path: &[&str]) -> Vec<(u16, Value)> {
    let dotted = path.join(".");
    let bracketed = path.iter().fold(String::new(), |all, step| match step.parse::<u32>() {
        Ok(index) => format!("{all}[{index}]"),
        Err(_) if all.is_empty() => (*step).to_owned(),
        Err(_) => format!("{all}.{step}"),
    });
    let mut location = vec![json!("body")];
    location.extend(
        path.iter().map(|step| step.parse::<u32>().map_or_else(|_| json!(step), |index| json!(index))),
    );
    let detail = json!([{"type": "extra_forbidden", "loc": location, "msg": "Extra inputs are not permitted", "input": {}}]);
    let unknown = |path: &str| json!({"error": {"message": format!("Unknown parameter: '{path}'."), "type": "invalid_request_error", "param": path, "code": "unknown_parameter"}});
    vec![
        (422, json!({"detail": detail})),
        (
            422,
            json!({"object": "error", "message": {"detail": detail}, "type": "invalid_request_error", "param": null, "code": null}),
        ),
        (422, json!({"error": {"message": {"detail": detail}, "type": "invalid_request_error"}})),
        (400, json!({"object": "error", "message": json!({"detail": detail}).to_string(), "code": 400})),
        (400, unknown(&dotted)),
        (400, unknown(&bracketed)),
        (
            400,
            json!({"type": "error", "error": {"type": "invalid_request_error", "message": format!("{dotted}: Extra inputs are not permitted")}}),
        ),
        (
            400,
            json!({"error": {"message": format!("Unsupported {}", path.last().unwrap().replace('_', " "))}}),
        ),
    ]
}

#[test]
fn every_member_is_found_in_every_shape_of_refusal() {
    for (extra, words) in MEMBER_ERROR_WORDS.iter().filter(|(extra, _)| extra.header_names().is_empty()) {
        for (status, body) in refusals(&[words[0]]) {
            assert!(named(status, &body).contains(*extra), "{extra:?}: {body}");
        }
    }
}

#[test]
fn a_path_names_the_member_at_its_end() {
    for (path, extra) in [
        (&["reasoning", "summary"][..], AdjustableMember::ReasoningSummary),
        (&["reasoning", "effort"], AdjustableMember::ExactEffort),
        (&["tools", "0", "strict"], AdjustableMember::Strict),
        (&["tools", "0", "function", "strict"], AdjustableMember::Strict),
        (&["messages", "1", "assistant", "reasoning_content"], AdjustableMember::ReasoningName),
        (&["input", "0", "content", "1", "input_image", "detail"], AdjustableMember::ImageDetail),
        (&["thinking", "adaptive", "display"], AdjustableMember::ThinkingDisplay),
        (&["messages", "1", "content", "0", "thinking", "signature"], AdjustableMember::Signature),
    ] {
        for (status, body) in refusals(path) {
            let named = named(status, &body).without_containing_members();
            assert!(named.contains(extra), "{extra:?}: {body}");
            // The last word of a path to one of these two members is also a name of a broader member.
            let is_shared = matches!(extra, AdjustableMember::ExactEffort | AdjustableMember::ReasoningName);
            let broader = [AdjustableMember::ReasoningObject, AdjustableMember::Thinking];
            let is_alone = broader.iter().all(|broad| !named.contains(*broad));
            assert!(is_shared || is_alone, "{extra:?}: {body}");
        }
    }
}

#[test]
fn prose_has_blanks_instead_of_underscores() {
    for (sentence, extra) in [
        ("Unsupported response format: verbose_json", AdjustableMember::MediaFormat),
        ("Unsupported response format", AdjustableMember::MediaFormat),
        ("Tool choice is not supported.", AdjustableMember::ToolChoice),
        ("stream options are not supported", AdjustableMember::StreamOptions),
    ] {
        assert!(named(400, &json!({"error": {"message": sentence}})).contains(extra), "{sentence}");
    }
    assert!(named(500, &json!({"error": {"message": "stream options"}})).is_empty());
}

#[test]
fn a_failed_engine_may_name_a_member_that_it_does_not_support() {
    for (sentence, extra) in [
        ("stream_options is not implemented", AdjustableMember::StreamOptions),
        ("create() got an unexpected keyword argument 'stream_options'", AdjustableMember::StreamOptions),
        ("response format verbose_json is not supported", AdjustableMember::MediaFormat),
        ("reasoning_effort unsupported", AdjustableMember::Effort),
    ] {
        for status in [500, 501] {
            let body = json!({"error": {"message": sentence}});
            let error = classify_error(status, None, body.to_string().as_bytes(), 1, b"{}");
            assert_eq!(error.kind, UpstreamErrorKind::Status(status), "{sentence}");
            assert!(named(status, &body).contains(extra), "{sentence}");
        }
        assert!(named(503, &json!({"error": {"message": sentence}})).is_empty(), "{sentence}");
    }
    for sentence in ["stream_options failed", "CUDA error: operation not supported in stream_options"] {
        assert!(named(500, &json!({"error": {"message": sentence}})).is_empty(), "{sentence}");
    }
}

#[test]
fn a_refusal_that_names_no_member_may_mean_each_added_one() {
    for (status, body) in [
        (422, json!({"detail": "Extra inputs are not permitted"})),
        (400, json!({"error": {"message": "Request contains unknown fields"}})),
        (400, json!({"error": {"message": "Additional properties are not allowed"}})),
    ] {
        assert_eq!(refused(status, &body), RefusedMembers::Unnamed, "{body}");
    }
    for (status, body) in [
        (413, json!({"detail": "Extra inputs are not permitted"})),
        (400, json!({"error": {"message": "The request is invalid"}})),
        (400, json!({"error": {"message": "Unknown parameter", "param": "min_tokens"}})),
        (400, json!({"error": {"message": "Unknown field in messages"}})),
        // Errors about members that the gateway never adds.
        (400, json!({"error": {"message": "Unknown parameter: 'foo'"}})),
        (
            422,
            json!({"detail": [{"type": "extra_forbidden", "loc": ["body", "chat_template"], "msg": "Extra inputs are not permitted"}]}),
        ),
    ] {
        assert_eq!(named(status, &body), AdjustableMemberSet::NONE, "{body}");
    }
}
