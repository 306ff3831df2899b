//! Tests that streams follow the event grammar of their dialect.

use super::{CHAT, MESSAGES, RESPONSES, ask, post, server, streamed};
use serde_json::{Value, json};

#[tokio::test]
async fn a_chat_stream_has_a_role_tokens_a_reason_the_usage_and_the_end() {
    let server = server().await;
    let asked = json!({ "stream_options": { "include_usage": true } });
    let seen = post(server.address, CHAT, &streamed(&asked)).await;
    assert!(seen.whole && seen.text().ends_with("data: [DONE]\n\n"));
    assert_eq!(seen.header("content-type"), Some("text/event-stream; charset=utf-8"));
    let plain = post(server.address, CHAT, &ask(&json!({ "n": 1 }))).await.json();
    assert_eq!(seen.answer_text(), plain["choices"][0]["message"]["content"].as_str().unwrap());
    let events = seen.events();
    assert_eq!(events[0]["choices"][0]["delta"], json!({ "role": "assistant", "content": "" }));
    let usage = &events[events.len() - 1];
    assert_eq!(
        (&usage["choices"], &usage["usage"]["completion_tokens"]),
        (&json!([]), &plain["usage"]["completion_tokens"])
    );
    assert_eq!(events[events.len() - 2]["choices"][0]["finish_reason"], "stop");
    assert!(
        events
            .iter()
            .all(|event| event["id"] == events[0]["id"] && event["object"] == "chat.completion.chunk")
    );
}

#[tokio::test]
async fn a_chat_stream_tells_no_usage_unasked() {
    let server = server().await;
    let seen = post(server.address, CHAT, &streamed(&json!({}))).await;
    assert!(seen.events().iter().all(|event| event.get("usage").is_none() && event["choices"] != json!([])));
}

#[tokio::test]
async fn choices_of_a_stream_begin_in_order_and_each_ends_once() {
    let server = server().await;
    let events = post(server.address, CHAT, &streamed(&json!({ "n": 3 }))).await.events();
    let index = |event: &Value| event["choices"][0]["index"].as_u64().unwrap();
    assert_eq!(events.iter().take(3).map(index).collect::<Vec<_>>(), [0, 1, 2]);
    let mut ends: Vec<u64> =
        events.iter().filter(|event| !event["choices"][0]["finish_reason"].is_null()).map(index).collect();
    ends.sort_unstable();
    assert_eq!(ends, [0, 1, 2]);
}

#[tokio::test]
async fn a_tool_call_in_a_chat_stream_is_named_once_and_its_arguments_come_in_pieces() {
    let server = server().await;
    let tools = json!([{ "type": "function", "function": { "name": "f", "parameters": {
        "required": ["word"], "properties": { "word": { "type": "string" } } } } }]);
    let seen =
        post(server.address, CHAT, &streamed(&json!({ "tools": tools, "tool_choice": "required" }))).await;
    let calls: Vec<Value> = seen
        .events()
        .iter()
        .filter_map(|event| event.pointer("/choices/0/delta/tool_calls/0").cloned())
        .collect();
    assert_eq!(calls.iter().filter(|call| call.get("id").is_some()).count(), 1);
    let arguments: String =
        calls.iter().map(|call| call["function"]["arguments"].as_str().unwrap()).collect();
    assert_eq!(arguments, r#"{"word":"simulated"}"#);
    assert!(calls.len() > 3);
}

#[tokio::test]
async fn a_messages_stream_follows_the_whole_grammar() {
    let server = server().await;
    let tools = json!([{ "name": "f", "input_schema": { "required": ["a"], "properties": { "a": { "type": "integer" } } } }]);
    let think = json!({ "type": "enabled", "budget_tokens": 1024 });
    for (asked, kinds) in [
        (json!({}), vec!["text"]),
        (json!({ "thinking": think }), vec!["thinking", "text"]),
        (
            json!({ "thinking": think, "tools": tools, "tool_choice": { "type": "any" } }),
            vec!["thinking", "tool_use"],
        ),
    ] {
        let seen = post(server.address, MESSAGES, &streamed(&asked)).await;
        assert!(seen.whole);
        let names: Vec<String> =
            seen.text().lines().filter_map(|line| line.strip_prefix("event: ").map(str::to_owned)).collect();
        let events = seen.events();
        assert!(names.iter().zip(&events).all(|(name, event)| event["type"] == **name));
        assert_eq!(names.len(), events.len());
        assert_eq!(names[..2], ["message_start", "ping"]);
        assert_eq!(names[names.len() - 2..], ["message_delta", "message_stop"]);
        // Checks that content blocks do not overlap: each is opened and closed before the next.
        let mut opened: Vec<Value> = Vec::new();
        let mut open = false;
        for event in &events {
            match event["type"].as_str().unwrap() {
                "content_block_start" => {
                    assert!(!open && event["index"] == opened.len());
                    opened.push(event["content_block"]["type"].clone());
                    open = true;
                }
                "content_block_delta" => assert!(open && event["index"] == opened.len() - 1),
                "content_block_stop" => {
                    assert!(open && event["index"] == opened.len() - 1);
                    open = false;
                }
                _ => assert!(!open),
            }
        }
        assert_eq!(opened, kinds);
        assert!(events[events.len() - 2]["usage"]["output_tokens"].as_u64().unwrap() > 0);
    }
}

#[tokio::test]
async fn text_streamed_in_messages_is_the_text_of_the_plain_answer() {
    let server = server().await;
    let seen = post(server.address, MESSAGES, &streamed(&json!({}))).await;
    let plain = post(server.address, MESSAGES, &ask(&json!({}))).await.json();
    assert_eq!(seen.answer_text(), plain["content"][0]["text"].as_str().unwrap());
}

#[tokio::test]
async fn a_responses_stream_has_numbered_events_and_the_items_of_the_plain_answer() {
    let server = server().await;
    let body = |stream: bool| {
        json!({ "model": "thinking", "input": "Please use the tool.", "stream": stream, "max_output_tokens": 500,
            "tools": [{ "type": "function", "name": "f", "parameters": { "type": "object" } }] })
    };
    for (change, types) in [
        (json!({}), vec!["reasoning", "function_call"]),
        (json!({ "tools": [] }), vec!["reasoning", "message"]),
        (json!({ "tools": [], "reasoning": { "effort": "none" } }), vec!["message"]),
        (json!({ "tools": [], "max_output_tokens": 5 }), vec!["reasoning"]),
    ] {
        let with = |stream: bool| {
            let mut body = body(stream);
            body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            body
        };
        let plain = post(server.address, RESPONSES, &with(false)).await.json();
        let found: Vec<&str> =
            plain["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
        assert_eq!(found, types);
        let seen = post(server.address, RESPONSES, &with(true)).await;
        let events = seen.events();
        assert!((0..).zip(&events).all(|(number, event)| event["sequence_number"] == number));
        let last = events.last().unwrap();
        assert_eq!(last["type"], format!("response.{}", plain["status"].as_str().unwrap()));
        assert_eq!(
            (&last["response"]["output"], &last["response"]["usage"]),
            (&plain["output"], &plain["usage"])
        );
        let cut = plain["status"] == "incomplete";
        assert_eq!(cut, plain["incomplete_details"]["reason"] == "max_output_tokens");
    }
}

#[tokio::test]
async fn a_responses_request_with_members_of_chat_is_refused() {
    let server = server().await;
    for change in [
        json!({ "stop": ["a"] }),
        json!({ "messages": [] }),
        json!({ "input": null }),
        json!({ "model": null }),
    ] {
        let mut body = json!({ "model": "m", "input": "Hi" });
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let seen = post(server.address, RESPONSES, &body).await;
        assert_eq!(seen.status, 400, "{change}");
        assert!(seen.json()["error"]["message"].is_string());
    }
}
