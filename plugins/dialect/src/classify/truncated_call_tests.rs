//! Tests of failures that a truncated tool call in the history may have caused.
#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn a_truncated_tool_call_in_the_history_that_fails_an_engine_is_a_client_error() {
    let request = |arguments: &str| {
        let call = serde_json::json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}});
        serde_json::json!({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]}]}).to_string()
    };
    let fault = |arguments: &str, status| {
        classify_error(status, None, b"Internal Server Error", 1, request(arguments).as_bytes())
    };
    for cut in ["{\"a\":", "{\"a\": 1", "[1]", "x"] {
        let fault = fault(cut, 500);
        let param = fault.api_error.as_deref().unwrap().param.clone();
        assert_eq!((fault.kind, fault.may_be_provider), (UpstreamErrorKind::Caller, true));
        assert_eq!(param.as_deref(), Some("messages[1].tool_calls[0].function.arguments"));
    }
    for whole in ["{}", "", "null", "{\"a\":1}"] {
        assert_eq!(fault(whole, 500).kind, UpstreamErrorKind::Status(500), "{whole}");
    }
    assert_eq!(fault("{", 503).kind, UpstreamErrorKind::Status(503));
    for status in [500, 502, 503] {
        for text in [
            r#"{"error":{"message":"Internal server error: Expecting value: line 1 column 7 (char 6)"}}"#,
            r#"{"message":"Failed to parse tool call arguments as JSON"}"#,
            "json.decoder.JSONDecodeError: Unterminated string starting at: line 1",
        ] {
            let kind = |arguments: &str| {
                let request = request(arguments);
                let error = classify_error(status, None, text.as_bytes(), 1, request.as_bytes());
                (error.kind, error.may_be_provider)
            };
            assert_eq!(kind("{\"a\":"), (UpstreamErrorKind::Caller, false), "{status} {text}");
        }
    }
    let kind = |status: u16, text: &str, request: &str| {
        classify_error(status, None, text.as_bytes(), 1, request.as_bytes()).kind
    };
    let memory = "CUDA error: out of memory while it read a tool call";
    assert_eq!(kind(503, memory, &request("{")), UpstreamErrorKind::Status(503));
    assert_eq!(kind(503, "Expecting value", &request("{}")), UpstreamErrorKind::Status(503), "a whole call");
    let item = |arguments: &str| {
        serde_json::json!({"input": [{"type": "function_call", "arguments": arguments}]}).to_string()
    };
    assert_eq!(kind(500, "It broke.", &item("{\"a\":")), UpstreamErrorKind::Caller);
    assert_eq!(kind(500, "It broke.", &item("{}")), UpstreamErrorKind::Status(500));
}

#[test]
fn a_message_names_the_call_where_the_client_wrote_it() {
    let call = r#"{"function":{"name":"f","arguments":"{\"a\":"}}"#;
    let sent = format!(r#"{{"messages":[{{"role":"user"}},{{"role":"assistant","tool_calls":[{call}]}}]}}"#);
    let item = r#"{"input":[{"type":"function_call","arguments":"{\"a\":"}]}"#;
    let fault = |client: &str| {
        let request =
            FailedRequest { sent: sent.as_bytes(), client: client.as_bytes(), max_input_tokens: u64::MAX };
        let error = classify_error(500, None, b"It broke.", 1, request);
        let refusal = error.api_error.unwrap();
        (refusal.param, refusal.message.into_owned())
    };
    assert_eq!(fault(item).0, Some("input[0].arguments".to_owned()));
    // The truncated call is in the stored response that the request continues, and not in the client's body.
    let (param, message) = fault(r#"{"input":"go on","previous_response_id":"resp_1"}"#);
    assert!(param.is_none() && message.contains("tool call") && !message.contains("messages["), "{message}");
    // The client sent the truncated call, but the gateway did not send it to the provider.
    let request = FailedRequest { sent: b"{}", client: sent.as_bytes(), max_input_tokens: u64::MAX };
    let error = classify_error(500, None, b"It broke.", 1, request);
    assert_eq!(error.kind, UpstreamErrorKind::Status(500));
}
