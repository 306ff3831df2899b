//! Reading both dialects.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use serde_json::json;

fn chat(body: &Value) -> Result<PromptConversation, PromptParseError> {
    PromptConversation::from_chat(body.to_string().as_bytes())
}

fn messages(body: &Value) -> Result<PromptConversation, PromptParseError> {
    PromptConversation::from_messages(body.to_string().as_bytes())
}

#[test]
fn the_two_dialects_give_one_conversation() {
    let schema = json!({"type": "object", "properties": {"z": {}, "a": {}}});
    let ours = messages(&json!({
        "system": [{"type": "text", "text": "x-anthropic-billing-header: 1"}, {"type": "text", "text": "A"}, {"type": "text", "text": "B"}],
        "messages": [
            {"role": "user", "content": "Q"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "T", "signature": "s"},
                {"type": "text", "text": ""},
                {"type": "tool_use", "id": "1", "name": "f", "input": {"z": 1, "a": 2}},
                {"type": "tool_use", "id": "2", "name": "f", "input": {}}]},
            {"role": "user", "content": [
                {"type": "text", "text": "and"},
                {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "r"}, {"type": "text", "text": "s"}]},
                {"type": "tool_result", "tool_use_id": "2", "is_error": true, "content": "no"}]},
            {"role": "system", "content": "hurry"},
        ],
        "tools": [{"name": "f", "input_schema": schema, "cache_control": {"type": "ephemeral"}}],
    }));
    let theirs = chat(&json!({
        "messages": [
            {"role": "developer", "content": "A\n\nB"},
            {"role": "user", "content": "Q", "name": null},
            {"role": "assistant", "content": null, "reasoning_content": "T", "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"z\":1,\"a\":2}"}},
                {"id": "2", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "1", "content": "r\ns"},
            {"role": "tool", "tool_call_id": "2", "content": "Error: no"},
            {"role": "user", "content": "and"},
            {"role": "system", "content": "hurry"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}],
    }));
    assert!(ours.unwrap() == theirs.unwrap());
}

#[test]
fn a_trailing_assistant_message_is_continued_in_the_messages_dialect_only() {
    let body = json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]});
    assert!(messages(&body).unwrap().continues);
    assert!(!chat(&body).unwrap().continues);
}

#[test]
fn images_documents_and_unknown_blocks_keep_their_kind() {
    let read = messages(&json!({"messages": [{"role": "user", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "R0lGODlhCgAUAQ=="}},
        {"type": "document", "title": "Title", "source": {"type": "text", "media_type": "text/plain", "data": "Body"}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}},
        {"type": "search_result", "title": "t", "source": "s", "content": [{"type": "text", "text": "c"}]},
    ]}]}))
    .unwrap();
    let parts = &read.messages[0].parts;
    assert!(parts[0] == PromptPart::Image(PromptImage { size: Some((10, 276)) }));
    assert!(parts[1] == PromptPart::Text("Title\nBody".to_owned()));
    assert!(matches!(&parts[2], PromptPart::Opaque { kind, bytes } if kind == "document" && *bytes >= 4));
    assert!(parts[3] == PromptPart::Text("t\ns\nc".to_owned()));
    assert_eq!(read.first_opaque_part(), Some("document"));
}

#[test]
fn effort_comes_from_either_dialect() {
    let effort = |body: Value| PromptConversation::from_messages(body.to_string().as_bytes()).unwrap().effort;
    assert_eq!(
        effort(json!({"messages": [], "output_config": {"effort": "xhigh"}})),
        Some(PromptEffort::High)
    );
    assert_eq!(
        effort(json!({"messages": [], "thinking": {"type": "enabled", "budget_tokens": 1024}})),
        Some(PromptEffort::Low)
    );
    assert_eq!(effort(json!({"messages": []})), None);
    assert_eq!(
        chat(&json!({"messages": [], "reasoning_effort": "minimal"})).unwrap().effort,
        Some(PromptEffort::Low)
    );
}

#[test]
fn an_error_names_the_field_and_not_the_content() {
    let error = |body: &str| PromptConversation::from_chat(body.as_bytes()).unwrap_err().to_string();
    assert_eq!(error("{"), "body: is not valid JSON");
    assert_eq!(error("[]"), "body: must be a JSON object");
    assert_eq!(error(r#"{"messages":"secret"}"#), "messages: must be a list");
    assert_eq!(
        error(r#"{"messages":[{"role":"secret"}]}"#),
        "messages[0].role: must be system, developer, user, assistant or tool"
    );
    assert_eq!(
        error(r#"{"messages":[{"role":"user","content":5}]}"#),
        "messages[0].content: must be a string or a list of parts"
    );
    assert_eq!(error(r#"{"messages":[],"tools":[{"function":{}}]}"#), "tools[0].function.name: is missing");
}

#[test]
fn printing_a_conversation_shows_no_content() {
    let read = chat(&json!({"messages": [{"role": "user", "content": "secret"}]})).unwrap();
    assert!(!format!("{read:?}").contains("secret"));
}

#[test]
fn bodies_with_millions_of_values_are_not_read() {
    let list = |count: usize| format!("{{\"tools\":[{}0]}}", "0,".repeat(count));
    // The depths sum up to: one object at depth one, a list at depth two, and the values of the list.
    assert!(PromptConversation::fits_parse_memory_limit(list(524_286).as_bytes()));
    assert!(!PromptConversation::fits_parse_memory_limit(list(524_287).as_bytes()));
    let text =
        format!("{{\"messages\":[{{\"role\":\"user\",\"content\":\"{}\"}}]}}", ",[\\\"{".repeat(1 << 20));
    assert!(PromptConversation::fits_parse_memory_limit(text.as_bytes()), "what stands in a text is text");
    assert!(!PromptConversation::fits_parse_memory_limit("[".repeat(2_000).as_bytes()));
    assert!(PromptConversation::fits_parse_memory_limit(b"]]]}}\"\\"), "nothing is too odd");
}
