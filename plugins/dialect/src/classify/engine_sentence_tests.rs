//! Tests that the sentences of common engines stay legible, and that no sentence repeats the prompt.
#![allow(clippy::unwrap_used)]

use super::*;
use serde_json::{Value, json};

const LEAD: &str = "The model's provider does not accept this request: ";
/// Sentences of engines, one per line, each followed by ` => ` and the sentence for the client if they differ.
const SENTENCES: &str = include_str!("engine_sentences.txt");

/// Returns the sentence for the client about an error body.
fn passed_on(body: &Value, prompt: &str) -> String {
    let request = json!({"messages": [{"role": "user", "content": prompt}]}).to_string();
    let error = classify_error(400, None, body.to_string().as_bytes(), 0, request.as_bytes());
    let message = error.api_error.unwrap().message;
    message.strip_prefix(LEAD).unwrap_or(&message).to_owned()
}

/// Returns the sentences of engines with the sentences for the client.
fn sentences() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = SENTENCES.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_once(" => ").unwrap_or((line, line)))
}

#[test]
fn the_sentences_of_engines_are_legible() {
    assert!(sentences().count() > 100);
    let mut lost = Vec::new();
    for (sentence, expected) in sentences() {
        let sent = passed_on(&json!({"error": {"message": sentence, "code": 400}}), "hi");
        if sent != expected {
            lost.push(format!("{sentence}\n  passed on: {sent}"));
        }
    }
    assert!(lost.is_empty(), "{}", lost.join("\n"));
}

#[test]
fn the_forms_of_error_bodies_are_read() {
    let python =
        |text: &str| json!({"object": "error", "message": text, "type": "BadRequestError", "code": 400});
    let openai = json!({"type": "error", "error": {"type": "invalid_request_error", "message": "messages: at least one message is required"}});
    for (body, expected) in [
        (
            python(
                "[{'type': 'extra_forbidden', 'loc': ('body', 'top_k'), 'msg': 'Extra inputs are not permitted', 'input': 1}]",
            ),
            "top_k: Extra inputs are not permitted",
        ),
        (
            python(
                "[{'type': 'missing', 'loc': ('body', 'messages', 0, 'content'), 'msg': 'Field required', 'input': {'role': 'user'}}]",
            ),
            "messages[0].content: Field required",
        ),
        (
            python(
                "1 validation error:\n  {'type': 'literal_error', 'loc': ('body', 'reasoning_effort'), 'msg': \"Input should be 'low', 'medium' or 'high'\", 'input': 'x'}\n\n  File \"/x.py\", line 5",
            ),
            "reasoning_effort: Input should be 'low', 'medium' or 'high'",
        ),
        (
            python(
                "1 validation error for ChatCompletionRequest\nmessages.0.content\n  Input should be a valid string [type=string_type, input_value=5, input_type=int]\n    For further information visit https://errors.pydantic.dev/2.11/v/string_type",
            ),
            "1 validation error for \u{2026} messages.0.content Input should be a valid string",
        ),
        (
            json!({"detail": [{"type": "string_type", "loc": ["body", "messages", 0, "content", "str"], "msg": "Input should be a valid string", "input": 5}]}),
            "messages[0].content.str: Input should be a valid string",
        ),
        (
            json!({"object": "error", "message": {"detail": [{"type": "extra_forbidden", "loc": ["body", "top_k"], "msg": "Extra inputs are not permitted", "input": 1}]}, "type": "invalid_request_error"}),
            "top_k: Extra inputs are not permitted",
        ),
        (
            json!([{"error": {"code": 400, "message": "Invalid value at 'generation_config.top_p' (TYPE_FLOAT)", "status": "INVALID_ARGUMENT"}}]),
            "Invalid value at \u{2026} (TYPE_FLOAT)",
        ),
        (openai.clone(), "messages: at least one message is required"),
        (
            json!({"error": "invalid_voice", "detail": "This voice is not available."}),
            "This voice is not available.",
        ),
        (
            json!({"detail": {"error": "validation_error", "message": "This voice is not available."}}),
            "This voice is not available.",
        ),
        (
            json!({"status": 400, "error": "Bad Request", "message": "The value of top_p is not allowed", "path": "/v1"}),
            "The value of top_p is not allowed",
        ),
        (
            json!({"error": "invalid_request", "error_description": "The value of top_p is not allowed"}),
            "The value of top_p is not allowed",
        ),
        (json!({"error": "too many tools", "message": "invalid"}), "too many tools"),
        (
            python(&format!(
                "litellm.BadRequestError: AnthropicException - b'{openai}'. Received Model Group=x"
            )),
            "messages: at least one message is required",
        ),
        (
            python(
                "litellm.BadRequestError: Error code: 400 - {'error': {'message': \"Unknown parameter: 'foo'.\", 'type': 'x'}}",
            ),
            "Unknown parameter:",
        ),
        (json!("tools are not supported"), "tools are not supported"),
        (json!({"error": "model is required"}), "model is required"),
    ] {
        assert_eq!(passed_on(&body, "hi"), expected, "{body}");
    }
}

#[test]
fn a_wrapped_error_has_its_signals() {
    let text =
        "This model's maximum context length is 8192 tokens. However, your request has 9000 input tokens.";
    let body = json!([{"error": {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}}]).to_string();
    let error = classify_error(400, None, body.as_bytes(), 0, &b"{}"[..]);
    assert_eq!(error.api_error.unwrap().code, ErrorCode::ContextLength);
    for name in ["message", "detail", "error_description"] {
        let body = json!({"error": "bad_request", name: text}).to_string();
        let error = classify_error(400, None, body.as_bytes(), 0, &b"{}"[..]);
        assert_eq!(error.api_error.unwrap().code, ErrorCode::ContextLength, "{name}");
    }
    let body = json!([{"error": {"message": "This is a bad thing", "param": "top_k"}}]).to_string();
    let error = classify_error(400, None, body.as_bytes(), 0, &b"{}"[..]);
    assert_eq!(error.api_error.unwrap().param.as_deref(), Some("top_k"));
}

#[test]
fn no_form_of_an_error_repeats_the_prompt() {
    let prompt = "Johansson permitted hepatitis";
    for body in [
        json!({"message": format!("[{{'loc': ('body', 'Johansson'), 'msg': 'Value {prompt} is bad', 'input': '{prompt}'}}]")}),
        json!({"message": format!("[{{'msg': \"{prompt}\\\" is bad\", 'loc': ('{prompt}',)}}]")}),
        json!({"error": {"message": format!("top_k={prompt} max_tokens=Johansson is bad {prompt}(s)")}}),
        json!([{"error": {"message": format!("Bad value {prompt}")}}]),
        json!({"error": {"message": format!("0.Johansson.arguments: bad value 0.{prompt}")}}),
    ] {
        let sent = passed_on(&body, prompt).to_lowercase();
        for word in prompt.to_lowercase().split(' ') {
            assert!(!sent.contains(word), "{body}: {sent}");
        }
    }
    for (message, expected) in [
        ("account=123456 user=123456 is bad", "\u{2026} is bad"),
        ("top_k=5 and seed=123456789 is bad", "top_k=5 and \u{2026} is bad"),
        ("host=localhost stream=secret is bad", "\u{2026} is bad"),
    ] {
        assert_eq!(passed_on(&json!({"error": {"message": message}}), "hi"), expected, "{message}");
    }
}
