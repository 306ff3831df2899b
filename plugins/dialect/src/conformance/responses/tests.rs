//! Tests of the checker: each changed event and member is refused.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use serde_json::json;

fn response(status: &str, output: Value) -> Value {
    let mut response: serde_json::Map<String, Value> =
        RESPONSE_MEMBERS.iter().map(|name| ((*name).to_owned(), Value::Null)).collect();
    let usage = json!({"input_tokens": 1, "output_tokens": 1, "total_tokens": 2,
        "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}});
    let known = json!({"id": "resp_1", "object": "response", "model": "m", "created_at": 1, "store": false,
        "status": status, "output": output, "usage": if status == "completed" { usage } else { Value::Null }});
    response.extend(known.as_object().unwrap().clone());
    response.into()
}

/// Events of a stream with one message, without their numbers.
fn message_stream() -> Vec<Value> {
    let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
    let item = |status: &str, content: Value| json!({"id": "msg_1", "type": "message", "role": "assistant", "status": status, "content": content});
    let inside = |kind: &str, more: Value| {
        let mut event = json!({"type": kind, "item_id": "msg_1", "output_index": 0, "content_index": 0});
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event
    };
    let done = item("completed", json!([part("Hi")]));
    vec![
        json!({"type": "response.created", "response": response("in_progress", json!([]))}),
        json!({"type": "response.in_progress", "response": response("in_progress", json!([]))}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": item("in_progress", json!([]))}),
        inside("response.content_part.added", json!({"part": part("")})),
        inside("response.output_text.delta", json!({"delta": "H", "logprobs": []})),
        inside("response.output_text.delta", json!({"delta": "i", "logprobs": []})),
        inside("response.output_text.done", json!({"text": "Hi", "logprobs": []})),
        inside("response.content_part.done", json!({"part": part("Hi")})),
        json!({"type": "response.output_item.done", "output_index": 0, "item": done}),
        json!({"type": "response.completed", "response": response("completed", json!([done]))}),
    ]
}

fn check(events: &[Value]) -> Result<(), String> {
    let mut stream = String::new();
    for (number, event) in events.iter().enumerate() {
        let mut event = event.clone();
        if event.get("sequence_number").is_none() {
            event["sequence_number"] = number.into();
        }
        stream.push_str(&format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()));
    }
    check_responses_stream(stream.as_bytes())
}

#[test]
fn a_complete_stream_passes() {
    assert_eq!(check(&message_stream()), Ok(()));
    let error = json!({"type": "error", "code": "server_error", "message": "Out.", "param": null});
    assert_eq!(check(&[error]), Ok(()));
}

#[test]
fn a_stream_with_a_missing_a_double_or_a_moved_event_is_refused() {
    let events = message_stream();
    for at in 0..events.len() {
        // If one of two equal deltas is missing, the text differs.
        let mut fewer = events.clone();
        fewer.remove(at);
        assert!(check(&fewer).is_err(), "without event {at}");
        let mut more = events.clone();
        more.insert(at, events[at].clone());
        assert!(check(&more).is_err(), "event {at} twice");
        if at > 0 && at != 5 {
            let mut moved = events.clone();
            moved.swap(at - 1, at);
            assert!(check(&moved).is_err(), "event {at} too early");
        }
    }
}

#[test]
fn each_changed_member_is_refused() {
    let changes: &[(usize, &str, Value)] = &[
        (0, "/sequence_number", json!(3)),
        (0, "/response/status", json!("completed")),
        (1, "/response/id", json!("resp_2")),
        (2, "/output_index", json!(1)),
        (2, "/item/id", json!("fc_1")),
        (2, "/item/status", json!("completed")),
        (3, "/part/text", json!("x")),
        (4, "/item_id", json!("msg_2")),
        (4, "/content_index", json!(1)),
        (4, "/logprobs", Value::Null),
        (6, "/text", json!("H")),
        (7, "/part/text", json!("H")),
        (8, "/item/content/0/text", json!("H")),
        (8, "/item/status", json!("in_progress")),
        (9, "/response/output", json!([])),
        (9, "/response/usage/total_tokens", json!(9)),
        (9, "/response/status", json!("failed")),
        (9, "/response/store", json!("yes")),
    ];
    for (at, path, value) in changes {
        let mut events = message_stream();
        for (number, event) in events.iter_mut().enumerate() {
            event["sequence_number"] = number.into();
        }
        *events[*at].pointer_mut(path).unwrap() = value.clone();
        assert!(check(&events).is_err(), "{path} of event {at}");
    }
    for name in RESPONSE_MEMBERS {
        let mut events = message_stream();
        events[9]["response"].as_object_mut().unwrap().remove(*name);
        assert!(check(&events).is_err(), "without {name}");
    }
}
