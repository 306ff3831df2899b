//! Tests of failures of the provider with the status of a client error, and of a client's own words in an error.
#![allow(clippy::unwrap_used)]

use super::*;
use serde_json::{Value, json};

fn request(prompt: &str) -> String {
    json!({"model": "theirs", "messages": [{"role": "user", "content": prompt}]}).to_string()
}

fn kind(status: u16, body: &Value, prompt: &str) -> UpstreamErrorKind {
    let body = body.to_string();
    classify_error(status, None, body.as_bytes(), 8192, request(prompt).as_bytes()).kind
}

fn in_band(body: &Value, prompt: &str) -> UpstreamErrorKind {
    let error = classify_in_band_error(body.to_string().as_bytes());
    reclassify_in_band_error(error, 8192, request(prompt).as_bytes()).kind
}

/// Errors about the gateway's own account, a model name, a rate limit or an overload, with the status of each.
fn faults() -> Vec<(u16, Value)> {
    vec![
        (
            402,
            json!({"type": "error", "error": {"type": "invalid_request_error", "message": "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."}}),
        ),
        (
            401,
            json!({"error": {"code": 400, "message": "API key not valid. Please pass a valid API key.", "status": "INVALID_ARGUMENT"}}),
        ),
        (
            401,
            json!({"code": "Client specified an invalid argument", "error": "Incorrect API key provided: xa***12. You can obtain an API key from https://console.x.ai."}),
        ),
        (
            402,
            json!({"error": {"code": "Arrearage", "message": "Access denied, please make sure your account is in good standing.", "type": "Arrearage"}}),
        ),
        (403, json!({"error": {"message": "Your account org-abc123 has been suspended", "type": "x"}})),
        (
            402,
            json!({"error": {"message": "Your account org-abc123 <ak-1> is suspended due to insufficient balance", "type": "x"}}),
        ),
        (
            402,
            json!({"error": {"message": "You have exceeded it", "type": "x", "code": "insufficient_quota"}}),
        ),
        (429, json!({"error": {"message": "Slow", "type": "tokens", "code": "rate_limit_exceeded"}})),
        (
            404,
            json!({"object": "error", "message": "Invalid model: mistral-foo", "type": "invalid_model", "param": null, "code": "1500"}),
        ),
        (404, json!({"object": "error", "message": "Invalid model: mistral-foo", "code": "1500"})),
        (
            404,
            json!({"error": {"message": "Model Not Exist", "type": "invalid_request_error", "param": null, "code": "invalid_request_error"}}),
        ),
        (
            404,
            json!({"error": {"message": "The model `theirs` does not exist or you do not have access to it."}}),
        ),
        (
            404,
            json!({"error": {"message": "The model `org/theirs-8b-v1` has been decommissioned and is no longer supported."}}),
        ),
        (
            404,
            json!({"error": {"message": "litellm.BadRequestError: Invalid model name passed in model=theirs. Call `/v1/models` to view available models for your key.", "type": "None", "code": "400"}}),
        ),
        (404, json!({"error": {"message": "theirs is not a valid model ID", "code": 400}})),
        (403, json!({"error": {"message": "This organization has been disabled."}})),
        (503, json!({"error": {"message": "no healthy upstream"}})),
        (503, json!({"error": {"message": "The server is overloaded, please retry"}})),
        (503, json!({"error": {"message": "x", "type": "overloaded_error"}})),
        (503, json!({"error": {"message": "moderation service unavailable"}})),
        (
            429,
            json!({"error": {"message": "Request too large for model `theirs` in organization `org_01hxyz` service tier `on_demand` on tokens per minute (TPM): Limit 6000, Requested 8187, please reduce your message size and try again.", "type": "tokens", "code": "rate_limit_exceeded"}}),
        ),
        (
            503,
            json!({"error": "Request failed during generation: Server error: CUDA out of memory", "error_type": "generation"}),
        ),
        (
            402,
            json!({"error": {"message": "Provider returned error", "metadata": {"raw": "{\"error\":{\"message\":\"Insufficient credits\"}}"}}}),
        ),
    ]
}

fn expected(status: u16) -> UpstreamErrorKind {
    match status {
        401..=404 => UpstreamErrorKind::Credentials(status),
        _ => UpstreamErrorKind::Status(status),
    }
}

#[test]
fn a_failure_of_the_provider_or_the_account_is_none_of_the_client() {
    for (meant, body) in faults() {
        for status in [400, 413, 422] {
            assert_eq!(kind(status, &body, "Hi"), expected(meant), "{status}: {body}");
        }
        assert_eq!(in_band(&body, "Hi"), expected(meant), "{body}");
    }
    let memory = json!({"error": "Request failed during generation: Server error: CUDA out of memory", "error_type": "generation"});
    assert_eq!(kind(424, &memory, "Hi"), UpstreamErrorKind::Status(424));
    let long =
        json!({"error": "Input validation error: `inputs` must have less than 512 tokens. Given: 992"});
    assert_eq!(kind(424, &long, "Hi"), UpstreamErrorKind::Caller);
}

#[test]
fn words_of_the_client_are_no_failure_of_the_provider() {
    for words in [
        "Your credit balance is too low",
        "the server is overloaded",
        "API key not valid",
        "invalid model: x",
        "insufficient balance",
        "The model `x` does not exist",
    ] {
        let prompt = format!("Translate: {words}. Thanks!");
        for text in [
            format!("Invalid value: {words} is no list"),
            format!("Invalid value: '{words}' is no list"),
            words.to_owned(),
        ] {
            let body = json!({"error": {"message": text, "type": "invalid_request_error"}});
            assert_eq!(kind(400, &body, &prompt), UpstreamErrorKind::Caller, "{text}");
        }
        let echo =
            json!({"detail": [{"type": "string_type", "loc": ["body"], "msg": "Bad", "input": words}]});
        assert_eq!(kind(422, &echo, "x"), UpstreamErrorKind::Caller, "{words}");
    }
    // A member `code` comes from the provider, even if the prompt contains the same word.
    let limited = json!({"error": {"message": "Slow", "code": "rate_limit_exceeded"}});
    assert_eq!(kind(400, &limited, "Explain rate_limit_exceeded"), UpstreamErrorKind::Status(429));
    for text in [
        "The model `theirs` does not support tools",
        "Error while fetching the image: 503, message='Service Unavailable', url='https://x.example'",
        "Invalid model parameters",
        "File x does not exist",
    ] {
        let body = json!({"error": {"message": text}});
        assert_eq!(kind(400, &body, "Hi"), UpstreamErrorKind::Caller, "{text}");
    }
    let filtered = json!({"error": {"message": "Your request was flagged", "code": "rate_limit_exceeded"}});
    assert_eq!(kind(400, &filtered, "Hi"), UpstreamErrorKind::Caller, "refused content is not routed around");
}

#[test]
fn words_of_the_client_decide_no_code() {
    let code = |status: u16, body: &Value, prompt: &str| {
        let body = body.to_string();
        let error = classify_error(status, None, body.as_bytes(), 8192, request(prompt).as_bytes());
        (error.api_error.unwrap().code, error.refused_members)
    };
    for prompt in [
        "Please write a content policy for our moderation team",
        "How long is the context length of llama?",
        "What do stream_options do?",
    ] {
        let input = json!([{"type": "text", "text": prompt}]);
        for body in [
            json!({"detail": [{"type": "string_type", "loc": ["body", "messages", 0, "content"], "msg": "Input should be a valid string", "input": input}]}),
            json!({"detail": [{"type": "value_error", "loc": ["body"], "msg": "Bad", "ctx": {"error": prompt}}]}),
            json!({"error": {"message": format!("Invalid value: {prompt} is not of type object")}}),
            json!({"error": {"message": format!("[{{'msg': 'Bad', 'input': '{prompt}'}}]")}}),
            json!({"error": {"message": format!("1 validation error [type=x, input_value='{prompt}']")}}),
        ] {
            let (code, refused) = code(422, &body, prompt);
            assert_eq!((code, refused), (ErrorCode::InvalidRequest, RefusedMembers::NONE), "{body}");
        }
    }
    let quoted = json!({"error": {"message": "Input should be a valid string, got 'moderation'"}});
    assert_eq!(code(400, &quoted, "moderation").0, ErrorCode::InvalidRequest);
    assert_eq!(code(400, &quoted, "x").0, ErrorCode::ContentRefused);
}

#[test]
fn a_busy_provider_is_neither_a_full_window_nor_refused_content() {
    for (status, text) in [
        (503, "Server is busy: too many tokens in the queue, try again"),
        (503, "Maximum number of tokens in flight exceeded, retry later"),
        (503, "Scheduler overload: running requests exceed max_num_tokens"),
        (500, "KV cache exceeded: not enough blocks for context length, engine restarting"),
        (500, "worker lost: context window cache overflow"),
        (500, "moderation service unavailable"),
    ] {
        let body = json!({"error": {"message": text, "code": status}});
        assert_eq!(kind(status, &body, "Hi"), UpstreamErrorKind::Status(status), "{text}");
        assert_ne!(in_band(&body, "Hi"), UpstreamErrorKind::Caller, "{text}");
    }
    for text in ["The safety system timed out", "content_filter backend error"] {
        assert_ne!(in_band(&json!({"error": {"message": text}}), "Hi"), UpstreamErrorKind::Caller, "{text}");
    }
    let flagged = json!({"error": {"message": "content_filter", "code": 400}});
    assert_eq!(in_band(&flagged, "Hi"), UpstreamErrorKind::Caller);
}

#[test]
fn a_failure_without_counts_is_about_the_length_only_of_a_long_input() {
    let kind = |text: &str, tokens: u64, body: &str| {
        let request =
            FailedRequest { sent: body.as_bytes(), client: body.as_bytes(), max_input_tokens: tokens };
        let error = json!({"error": {"message": text}}).to_string();
        classify_error(502, None, error.as_bytes(), 8192, request).kind
    };
    let (caller, provider) = (UpstreamErrorKind::Caller, UpstreamErrorKind::Status(502));
    for text in ["upstream: session_len cache limit exceeded", "Prompt exceeds max length", "prompt too long"]
    {
        assert_eq!(kind(text, 8193, "{}"), caller, "{text}");
        assert_eq!(kind(text, 8192, "{}"), provider, "{text}");
        assert_eq!(kind(text, 8000, r#"{"max_tokens":200}"#), caller, "{text}");
    }
    // The context window that the message states takes precedence over that of the catalogue.
    let text = "the prompt is too long for the context length of 4096 tokens";
    assert_eq!((kind(text, 4097, "{}"), kind(text, 4000, "{}")), (caller, provider));
    let counted = "prompt is too long: 9000 tokens > 8192 maximum";
    assert_eq!(kind("prompt length 9000 exceeds 8192", 100, "{}"), caller, "{counted}");
}

#[test]
fn the_search_for_phrases_takes_no_longer_for_a_text_that_repeats_them() {
    // The time is linear in the length of the error text, and the request is read only once for all phrases.
    let known = |status: u16, text: &str, prompt: &str| {
        let body = json!({"error": {"message": text}}).to_string();
        let request = json!({"messages": [{"role": "user", "content": prompt}]}).to_string();
        classify_error(status, None, body.as_bytes(), 0, request.as_bytes()).kind
    };
    let begun = "model organization account ".repeat(2000);
    assert_eq!(known(400, &begun, "Hi"), UpstreamErrorKind::Caller);
    assert_eq!(known(400, &format!("model x not found. {begun}"), "Hi"), UpstreamErrorKind::Credentials(404));
    let long = format!("model {} not found", "x".repeat(200));
    assert_eq!(known(400, &long, "Hi"), UpstreamErrorKind::Caller);
    let accented = format!("model {} not found", "\u{e9}".repeat(50));
    assert_eq!(known(400, &accented, "Hi"), UpstreamErrorKind::Credentials(404));
    // If the error has several phrases, the one that the request does not contain decides.
    let two = "server is busy; insufficient balance";
    assert_eq!(known(400, two, "Is the SERVER IS BUSY?"), UpstreamErrorKind::Credentials(402));
    assert_eq!(known(400, two, "insufficient balance"), UpstreamErrorKind::Status(503));
    assert_eq!(known(400, two, "insufficient balance, or server is busy"), UpstreamErrorKind::Caller);
}
