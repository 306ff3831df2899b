//! Tests that no part of a request and no detail of a provider is passed on in an error message.
#![allow(clippy::unwrap_used)]

use super::*;
use serde_json::json;

/// Returns the client's error message for a provider's message about a request with this prompt.
fn passed_on(prompt: &str, message: &str) -> String {
    let request = json!({"messages": [{"role": "user", "content": prompt}]}).to_string();
    about(&request, message)
}

fn about(request: &str, message: &str) -> String {
    let body = json!({"error": {"message": message}}).to_string();
    let error = classify_error(400, None, body.as_bytes(), 0, request.as_bytes());
    error.api_error.unwrap().message.into_owned()
}

#[test]
fn a_long_prompt_without_blanks_is_compared() {
    let csv = "Johansson,diabetes\nMeierhofer,hepatitis\n".repeat(150);
    let echo = "Invalid content: Johansson has diabetes and Meierhofer hepatitis";
    let records = json!(vec![json!({"patient": "Johansson", "illness": "diabetes"}); 200]).to_string();
    let call = json!({"function": {"name": "f", "arguments": json!({"x": records}).to_string()}});
    let with_call =
        json!({"messages": [{"role": "assistant", "content": null, "tool_calls": [call]}]}).to_string();
    for message in [passed_on(&csv, echo), passed_on(&records, echo), about(&with_call, echo)] {
        let lower = message.to_lowercase();
        for word in ["johansson", "diabetes"] {
            assert!(!lower.contains(word), "{message}");
        }
    }
    let lost = passed_on(&csv, echo);
    assert!(!lost.contains("Meierhofer") && !lost.contains("hepatitis"), "{lost}");
}

#[test]
fn a_prompt_in_a_script_without_blanks_is_compared_by_pairs_of_letters() {
    let chinese = "\u{6211}\u{7684}\u{540d}\u{5b57}\u{662f}\u{5f20}\u{4f1f}\u{4f4f}\u{5728}\u{5317}\u{4eac}";
    let thai =
        "\u{0e09}\u{0e31}\u{0e19}\u{0e0a}\u{0e37}\u{0e48}\u{0e2d}\u{0e2a}\u{0e21}\u{0e0a}\u{0e32}\u{0e22}";
    for (prompt, name) in [
        (chinese.repeat(150), "\u{5f20}\u{4f1f}"),
        (chinese.to_owned(), "\u{5f20}\u{4f1f}"),
        (thai.repeat(150), "\u{0e2a}\u{0e21}\u{0e0a}\u{0e32}\u{0e22}"),
    ] {
        for echo in [
            format!("Invalid content: {name}"),
            format!("Invalid content: \u{5185}\u{5bb9}{name}\u{65e0}\u{6548}"),
            format!("Invalid content: {prompt}"),
        ] {
            let message = passed_on(&prompt, &echo);
            assert!(!message.contains(name), "{message}");
        }
    }
    // Arguments of a call may escape all letters beyond ASCII.
    let arguments = r#"{"name":"\u5f20\u4f1f"}"#;
    let call = json!({"messages": [{"tool_calls": [{"function": {"arguments": arguments}}]}]}).to_string();
    let message = about(&call, "Invalid content: \u{5f20}\u{4f1f}");
    assert!(!message.contains('\u{5f20}'), "{message}");
}

#[test]
fn no_name_of_a_machine_an_account_or_a_secret_is_passed_on() {
    let lead = "The model's provider does not accept this request: ";
    for (message, expected) in [
        (
            "Connection to llama-prod-service refused by redis-master in namespace inference",
            "Connection to \u{2026} refused by \u{2026} in namespace inference",
        ),
        (
            "Your organization acme-gmbh is not verified; project phoenix",
            "Your organization \u{2026} is not verified; project",
        ),
        (
            "Account 123456789 and customer 4915112345 are blocked",
            "Account \u{2026} and customer \u{2026} are blocked",
        ),
        ("The value 4915112345 is not valid", "The value \u{2026} is not valid"),
        (
            "Invalid value qwertzuiopasdfghjkl for header X-Api-Key secretpassword",
            "Invalid value \u{2026} for header",
        ),
        ("Invalid prompt tokens: [9906, 1917, 0]", "Invalid prompt tokens:"),
        ("Invalid prompt tokens: [9906, 1917]", "Invalid prompt tokens:"),
        ("Invalid prompt tokens 9906, 1917, 0, 358 here", "Invalid prompt tokens \u{2026} here"),
        ("Range of max_tokens should be [1, 4096]", "Range of max_tokens should be [1, 4096]"),
        (
            "messages[0].content.JohnSmith: Input should be valid",
            "messages[0].content \u{2026} Input should be valid",
        ),
        ("the value must not be greater than 2147483647", "the value must not be greater than 2147483647"),
    ] {
        assert_eq!(passed_on("x", message).strip_prefix(lead), Some(expected), "{message}");
    }
    let routed = json!({"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": "{\"error\":{\"message\":\"tools are not supported by this endpoint\"}}", "provider_name": "Foo"}}});
    let error = classify_error(400, None, routed.to_string().as_bytes(), 0, b"{}");
    let message = error.api_error.unwrap().message;
    assert!(message.ends_with("tools are not supported by this endpoint"), "{message}");
}

#[test]
fn only_a_name_of_the_protocol_is_passed_on_as_param() {
    let param = |param: &str| {
        let body = json!({"error": {"message": "This is a bad thing", "param": param}}).to_string();
        let error = classify_error(400, None, body.as_bytes(), 0, b"{}");
        error.api_error.unwrap().param
    };
    for (given, expected) in [
        ("vllm.internal.example", None),
        ("John_Smith.has_hiv", None),
        ("messages[0].content.John", Some("messages[0].content")),
        ("messages.1.role", Some("messages.1.role")),
        ("top_k", Some("top_k")),
        ("input", Some("input")),
    ] {
        assert_eq!(param(given).as_deref(), expected, "{given}");
    }
}

#[test]
fn a_message_in_another_script_is_passed_on_for_the_largest_request_and_cut_if_it_is_long() {
    let message = "\u{53c2}\u{6570}\u{65e0}\u{6548} \u{7c7b}\u{578b}\u{9519}\u{8bef}";
    let prompt = "\u{6211}".repeat(340_000);
    assert!(passed_on(&prompt, message).contains(message));
    assert!(!passed_on(&format!("{prompt}\u{9519}\u{8bef}"), message).contains("\u{9519}\u{8bef}"));
    let letter = |number: u32| char::from_u32(0x5000 + number).unwrap();
    let long: String = (0..590).flat_map(|number| [letter(number), letter(number + 1), ' ']).collect();
    let sent = passed_on(&prompt, &long);
    let passed = sent.chars().filter(|letter| ('\u{5000}'..'\u{6000}').contains(letter)).count();
    assert!((2..100).contains(&passed), "{passed}: {sent}");
}

#[test]
fn a_name_of_the_protocol_remains_even_if_the_request_contains_it() {
    let lead = "The model's provider does not accept this request: ";
    let schema =
        json!({"type": "object", "additionalProperties": true, "properties": {"x": {"maxItems": 5}}});
    let request = json!({
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Johansson strict summary"}]},
            {"role": "assistant", "content": "a", "reasoning_content": "b"},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "is_error": true}]},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "strict": true, "parameters": schema}}],
        "enable_thinking": true,
    })
    .to_string();
    for (message, expected) in [
        (
            "The `reasoning_content` in the thinking mode must be passed back to the API.",
            "The `reasoning_content` in the thinking mode must be passed back to the API.",
        ),
        ("Unrecognized request argument supplied: strict", "Unrecognized request argument supplied: strict"),
        ("Unknown parameter: 'strict'.", "Unknown parameter: 'strict'."),
        (
            "Invalid schema for response_format 'x': In context=(), 'additionalProperties' is required to be supplied and to be false.",
            "Invalid schema for response_format \u{2026} In \u{2026} 'additionalProperties' is required to be supplied and to be false.",
        ),
        (
            "In context=('properties', 'Johansson'), 'maxItems' is not permitted.",
            "In \u{2026} 'maxItems' is not permitted.",
        ),
        (
            "Unexpected tool_use_id found in tool_result blocks: c",
            "Unexpected tool_use_id found in tool_result blocks:",
        ),
        (
            "The \"function.arguments\" parameter of the code model must be in JSON format.",
            "The \"function.arguments\" parameter of the code model must be in JSON format.",
        ),
        (
            "parameter.enable_thinking must be set to false for non-streaming calls",
            "parameter.enable_thinking must be set to false for non-streaming calls",
        ),
        // A word of a text remains only where the message names a member.
        ("The text strict Johansson is bad", "The text \u{2026} is bad"),
        ("The text summary of 'Johansson strict' is bad", "The text \u{2026} of \u{2026} is bad"),
        (
            "The value #strict or /tool_use or \u{1f600}tool_use is bad",
            "The value \u{2026} or \u{2026} or \u{2026} is bad",
        ),
        ("function.Johansson and strict.Johansson are bad", "\u{2026} and \u{2026} are bad"),
    ] {
        assert_eq!(about(&request, message).strip_prefix(lead), Some(expected), "{message}");
    }
}

#[test]
fn a_status_before_a_message_is_no_markup() {
    let lead = "The model's provider does not accept this request: ";
    for (message, expected) in [
        (
            "<400> InternalError.Algo.InvalidParameter: The \"function.arguments\" parameter of the code model must be in JSON format.",
            "\u{2026} The \"function.arguments\" parameter of the code model must be in JSON format.",
        ),
        (
            "<400> InternalError.Algo.InvalidParameter: Range of top_p should be (0.0, 1.0]",
            "\u{2026} Range of top_p should be (0.0, 1.0]",
        ),
        (
            "<400> InternalError.Algo.InvalidParameter: parameter.enable_thinking must be set to false for non-streaming calls",
            "\u{2026} parameter.enable_thinking must be set to false for non-streaming calls",
        ),
        ("<|im_start|> tokens are not allowed", "\u{2026} tokens are not allowed"),
        ("< 5 messages are not allowed", "< 5 messages are not allowed"),
    ] {
        assert_eq!(passed_on("hi", message).strip_prefix(lead), Some(expected), "{message}");
    }
    for message in [
        "<html><body>The value is not allowed</body></html>",
        "<400> <html>The value is not allowed",
        "<400> {\"host\": \"The value is not allowed",
        "<!DOCTYPE html> The value is not allowed",
        "</p> The value is not allowed",
        "<?xml version='1.0'?> The value is not allowed",
        "<400>",
        "<400",
    ] {
        let silent = "The model's provider does not accept this request.";
        assert_eq!(passed_on("hi", message), silent, "{message}");
    }
}
