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
    let error = classify_error(Dialect::Chat, 400, None, body.as_bytes(), 0, request.as_bytes());
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
