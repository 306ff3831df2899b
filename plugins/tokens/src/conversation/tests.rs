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
fn merged_assistant_messages_are_those_that_a_chat_provider_receives() {
    let thinking = |thought: &str| json!({"type": "thinking", "thinking": thought, "signature": "s"});
    let text = |text: &str| json!({"type": "text", "text": text});
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "f", "input": {}});
    let user = json!({"role": "user", "content": "Q"});
    for (merged, sent) in [
        (vec![vec![thinking("T"), thinking("U")]], json!({"content": "", "reasoning_content": "T\nU"})),
        (
            vec![vec![thinking("T"), text("a")], vec![thinking("U"), text("b")]],
            json!({"content": "a\n\nb", "reasoning_content": "T\nU"}),
        ),
        (
            vec![vec![thinking("")], vec![text("a")], vec![thinking("T"), thinking(""), thinking("U")]],
            json!({"content": "a", "reasoning_content": "T\nU"}),
        ),
        (vec![vec![text("a"), text("b")], vec![text("c")]], json!({"content": "ab\n\nc"})),
        (
            vec![vec![thinking("T"), call("1")], vec![thinking("U"), call("2")]],
            json!({"content": null, "reasoning_content": "T\nU", "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "2", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}),
        ),
    ] {
        let mut turns = vec![user.clone()];
        turns.extend(merged.iter().map(|blocks| json!({"role": "assistant", "content": blocks})));
        turns.push(user.clone());
        let ours = messages(&json!({"messages": turns})).unwrap();
        let mut sent = sent.as_object().unwrap().clone();
        sent.insert("role".to_owned(), json!("assistant"));
        let theirs = chat(&json!({"messages": [user, sent, user]})).unwrap();
        let (ours, theirs) = (&ours.messages[1], &theirs.messages[1]);
        assert_eq!(ours.reasoning, theirs.reasoning, "{merged:?}");
        assert_eq!(ours.join_texts(""), theirs.join_texts(""), "{merged:?}");
        assert_eq!(ours.calls.len(), theirs.calls.len(), "{merged:?}");
        assert!(!ours.has_part_list && ours.parts.len() <= 1, "{merged:?}: providers receive one string");
    }
}

#[test]
fn an_empty_reasoning_member_hides_no_other() {
    for (message, expected) in [
        (json!({"reasoning_content": "T", "reasoning": "U"}), Some("T")),
        (json!({"reasoning_content": "", "reasoning": "U"}), Some("U")),
        (json!({"reasoning_content": null, "reasoning": "U"}), Some("U")),
        (json!({"reasoning_content": "T", "reasoning": ""}), Some("T")),
        (json!({"reasoning_content": "", "reasoning": ""}), None),
        (json!({}), None),
    ] {
        let mut sent = message.clone();
        sent["role"] = json!("assistant");
        let read = chat(&json!({"messages": [sent]})).unwrap();
        assert_eq!(read.messages[0].reasoning.as_deref(), expected, "{message}");
    }
}

#[test]
fn merged_user_messages_keep_their_parts() {
    let body = json!({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]});
    let read = messages(&body).unwrap();
    let texts = ["a", "b"].map(|text| PromptPart::Text(text.to_owned()));
    assert!(read.messages[0].parts == texts && read.messages[0].has_part_list);
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
fn an_error_in_a_nested_object_has_its_full_path() {
    let error = |message: Value| chat(&json!({"messages": [message]})).unwrap_err().to_string();
    let of_call = |call: Value| error(json!({"role": "assistant", "function_call": call}));
    assert_eq!(of_call(json!(1)), "messages[0].function_call: must be an object");
    assert_eq!(of_call(json!({"name": 1})), "messages[0].function_call.name: must be a string");
    let of_calls = |call: Value| error(json!({"role": "assistant", "tool_calls": [call]}));
    assert_eq!(of_calls(json!(1)), "messages[0].tool_calls[0]: must be an object");
    assert_eq!(of_calls(json!({"function": 1})), "messages[0].tool_calls[0].function: must be an object");
    assert_eq!(
        of_calls(json!({"function": {"name": 1}})),
        "messages[0].tool_calls[0].function.name: must be a string"
    );
    let image = json!({"role": "user", "content": [{"type": "image_url", "image_url": {"url": 1}}]});
    assert_eq!(error(image), "messages[0].content[0].image_url.url: must be a string");
    for (source, expected) in [
        (json!({"data": 1}), "messages[0].content[0].source.data: must be a string"),
        (json!({"url": 1}), "messages[0].content[0].source.url: must be a string"),
        (json!(1), "messages[0].content[0].source: must be an object"),
    ] {
        let image = json!({"role": "user", "content": [{"type": "image", "source": source}]});
        assert_eq!(messages(&json!({"messages": [image]})).unwrap_err().to_string(), expected);
    }
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
