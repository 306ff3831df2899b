//! The checker accepts a valid stream and rejects each violation.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::check_messages_stream;

const SOUND: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0}}}

event: ping
data: {"type":"ping"}

: keep-alive

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"s"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c","name":"f","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":1,"output_tokens":2,"cache_creation_input_tokens":0,"cache_read_input_tokens":0},"environment_impact":{},"billing_cost":{}}

event: message_stop
data: {"type":"message_stop"}

"#;

const ERROR: &str = r#"event: error
data: {"type":"error","error":{"type":"overloaded_error","message":"m","code":"INFERENCE_3103","details":{"error_code":"INFERENCE_3103"}},"request_id":"r"}

"#;

#[test]
fn a_sound_stream_and_one_that_fails_at_any_event_are_accepted() {
    check_messages_stream(SOUND.as_bytes()).unwrap();
    let events: Vec<&str> = SOUND.split_inclusive("\n\n").collect();
    for end in 0..events.len() {
        let failed = format!("{}{ERROR}", events[..end].concat());
        check_messages_stream(failed.as_bytes()).unwrap();
        assert!(check_messages_stream(events[..end].concat().as_bytes()).is_err(), "cut after {end} events");
    }
}

#[test]
fn each_event_that_matters_is_missed_and_none_may_come_twice() {
    let events: Vec<&str> = SOUND.split_inclusive("\n\n").collect();
    for (at, event) in events.iter().enumerate() {
        if event.contains("ping") || event.starts_with(':') {
            continue;
        }
        let mut without = events.clone();
        without.remove(at);
        let harmless = event.contains("thinking_delta") || event.contains("input_json_delta");
        assert_eq!(check_messages_stream(without.concat().as_bytes()).is_ok(), harmless, "without {event}");
        let mut twice = events.clone();
        twice.insert(at, event);
        let harmless = event.contains("thinking_delta");
        let invalid_only = event.contains("input_json_delta");
        assert_eq!(
            check_messages_stream(twice.concat().as_bytes()).is_ok(),
            harmless && !invalid_only,
            "twice {event}"
        );
    }
}

#[test]
fn each_broken_rule_is_found() {
    for (from, to) in [
        ("event: message_stop\n", ""),
        ("\"index\":1", "\"index\":2"),
        ("\"input\":{}", "\"input\":{\"a\":1}"),
        ("\"signature\":\"\"", "\"signature\":null"),
        ("\"stop_reason\":\"tool_use\"", "\"stop_reason\":null"),
        ("\"stop_reason\":\"tool_use\"", "\"stop_reason\":\"end_turn\""),
        ("\"stop_sequence\":null},\"usage\"", "\"x\":null},\"usage\""),
        ("\"output_tokens\":2", "\"output_tokens\":2.5"),
        ("{\\\"a\\\":1}", "{\\\"a\\\":"),
        ("event: ping\ndata: {\"type\":\"ping\"}", "event: impact\ndata: {\"type\":\"impact\"}"),
        ("data: {\"type\":\"message_stop\"}\n\n", "data: {\"type\":\"message_stop\"}\n\ndata: [DONE]\n\n"),
        ("\"id\":\"msg_1\"", "\"id\":\"chatcmpl-1\""),
        ("\"name\":\"f\"", "\"name\":\"f\",\"caller\":null"),
    ] {
        let broken = SOUND.replacen(from, to, 1);
        assert_ne!(broken, SOUND);
        assert!(check_messages_stream(broken.as_bytes()).is_err(), "{from} -> {to}");
    }
}
