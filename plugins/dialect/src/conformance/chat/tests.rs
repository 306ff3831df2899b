//! The checker accepts a valid stream and rejects each violation.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::check_chat_stream;

const FACE: &str = r#""id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m""#;

fn chunk(choice: &str) -> String {
    format!("data: {{{FACE},\"choices\":[{choice}]}}\n\n")
}

fn role() -> String {
    chunk(r#"{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}"#)
}

fn delta(delta: &str) -> String {
    chunk(&format!(r#"{{"index":0,"delta":{delta},"finish_reason":null}}"#))
}

fn finish(word: &str) -> String {
    chunk(&format!(r#"{{"index":0,"delta":{{}},"finish_reason":"{word}"}}"#))
}

/// Returns the last chunk of a stream without `include_usage`.
fn last(word: &str) -> String {
    let usage = r#""usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}"#;
    format!(
        "data: {{{FACE},\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"{word}\"}}],{usage}}}\n\n"
    )
}

fn usage() -> String {
    format!(
        "data: {{{FACE},\"choices\":[],\"usage\":{{\"prompt_tokens\":1,\"completion_tokens\":1,\"total_tokens\":2}}}}\n\n"
    )
}

const DONE: &str = "data: [DONE]\n\n";
const START: &str =
    r#"{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":""}}]}"#;

fn rule(parts: &[&str], include_usage: bool) -> String {
    check_chat_stream(parts.concat().as_bytes(), include_usage).expect_err("this stream breaks a rule")
}

#[test]
fn good_streams_are_taken() {
    let text = [role(), delta(r#"{"content":"a"}"#), last("stop"), DONE.to_owned()].concat();
    assert_eq!(check_chat_stream(text.as_bytes(), false), Ok(()));
    let tools = [&role(), &delta(START), ": keep-alive\n\n", &finish("tool_calls"), &usage(), DONE].concat();
    assert_eq!(check_chat_stream(tools.as_bytes(), true), Ok(()));
    let failed = [
        &role(),
        "data: {\"error\":{\"message\":\"m\",\"type\":\"t\",\"code\":\"c\",\"param\":null}}\n\n",
        DONE,
    ];
    assert_eq!(check_chat_stream(failed.concat().as_bytes(), true), Ok(()));
}

#[test]
fn each_broken_rule_is_named() {
    let (r, f, l) = (role(), finish("stop"), last("stop"));
    let later = r#"{"tool_calls":[{"index":0,"id":"c","function":{"arguments":""}}]}"#;
    let gap =
        r#"{"tool_calls":[{"index":1,"id":"c","type":"function","function":{"name":"f","arguments":""}}]}"#;
    let nameless = r#"{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"arguments":""}}]}"#;
    let second = chunk(r#"{"index":1,"delta":{"role":"assistant"},"finish_reason":null}"#);
    let nothing = "data: {\"choices\":[]}\n\n";
    let error = "data: {\"error\":{\"message\":\"m\",\"type\":\"t\",\"code\":\"c\",\"param\":null}}\n\n";
    let objects = format!("data: {{{FACE},\"choices\":[],\"environment_impact\":{{}}}}\n\n");
    let cases: Vec<(&str, Vec<&str>, bool)> = vec![
        ("[DONE] is missing", vec![&r, &f], false),
        ("a finish reason is missing", vec![&r, DONE], false),
        ("no choice has content", vec![DONE], false),
        ("something follows [DONE]", vec![&r, &f, DONE, &f], false),
        ("[DONE] comes twice", vec![&r, &f, DONE, DONE], false),
        ("continues after its finish reason", vec![&r, &f, &f, DONE], false),
        ("usage is missing", vec![&r, &f, DONE], true),
        ("usage is missing", vec![&r, &f, DONE], false),
        ("usage is on an unexpected chunk", vec![&r, &l, DONE], true),
        ("something follows the last chunk", vec![&r, &l, &*usage().leak(), DONE], false),
        ("was not requested", vec![&r, &f, &*usage().leak(), DONE], false),
        ("usage comes before a finish", vec![&r, &*usage().leak(), &f, DONE], true),
        ("object must be", vec![nothing, DONE], false),
        ("the role must come first", vec![&*delta("{}").leak(), &f, DONE], false),
        ("the role must come first", vec![&r, &r, &f, DONE], false),
        ("out of order", vec![&second, DONE], false),
        ("id and type must come once", vec![&r, &*delta(START).leak(), &*delta(later).leak(), DONE], false),
        ("no gaps", vec![&r, &*delta(gap).leak(), DONE], false),
        ("begins without name", vec![&r, &*delta(nameless).leak(), DONE], false),
        ("something in it", vec![&r, &*delta(r#"{"tool_calls":[]}"#).leak(), DONE], false),
        ("unknown finish reason", vec![&r, &*finish("eos").leak(), DONE], false),
        ("tool_calls without a call", vec![&r, &*finish("tool_calls").leak(), DONE], false),
        ("stop with tool calls", vec![&r, &*delta(START).leak(), &f, DONE], false),
        ("a delta has an unknown key", vec![&r, &*delta(r#"{"reasoning":"x"}"#).leak(), DONE], false),
        ("a text must be a string", vec![&r, &*delta(r#"{"content":null}"#).leak(), DONE], false),
        ("something follows the error", vec![&r, error, &f, DONE], false),
        ("an error follows a finish", vec![&r, &f, error, DONE], false),
        ("has no usage", vec![&r, &f, &objects, DONE], true),
        ("neither data nor a comment", vec!["event: x\n", &r, &f, DONE], false),
        ("no blank line", vec![&r, &f, "data: [DONE]\n"], false),
        ("is not JSON", vec!["data: {\n\n"], false),
    ];
    for (words, parts, include_usage) in cases {
        let broken = rule(&parts, include_usage);
        assert!(broken.contains(words), "{words:?} was expected, not {broken:?}");
    }
}
