//! Tests of the messages dialect: accepted and refused requests.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use bytes::Bytes;
use penstock_core::{Dialect, ErrorCode, HistoryFeatures, InferenceRequest, ThinkingDisplay};
use penstock_request_validation::{MessagesPurpose, RequestLimits, validate_messages_request};
use support::{ask_messages, assert_refused};

fn with(members: &str) -> String {
    format!(
        r#"{{"model":"claude-x","max_tokens":9,"messages":[{{"role":"user","content":"hi"}}],{members}}}"#
    )
}

fn conversation(messages: &str) -> String {
    format!(r#"{{"model":"claude-x","max_tokens":9,"messages":[{messages}]}}"#)
}

fn user(blocks: &str) -> String {
    format!(r#"{{"role":"user","content":[{blocks}]}}"#)
}

fn taken(body: &str) -> InferenceRequest {
    ask_messages(body).unwrap_or_else(|refusal| panic!("{body}: {}", refusal.message))
}

const CALL: &str = r#"{"role":"assistant","content":[{"type":"text","text":""},{"type":"tool_use","id":"t1","name":"f","input":{"a":[1]},"caller":null}]}"#;
const RESULT: &str =
    r#"{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"ok"}],"is_error":null}"#;

#[test]
fn every_member_that_the_gateway_needs_is_read() {
    let body = with(
        r#""system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"},"citations":null}],"stream":true,
        "stop_sequences":["\u0041","b"],"temperature":1,"top_k":5,"tools":[{"name":"f","input_schema":{"type":"object"},"type":null}],
        "tool_choice":{"type":"auto","disable_parallel_tool_use":true},"thinking":{"type":"adaptive"},
        "output_config":{"effort":"max","format":{"type":"json_schema","schema":{}}},"metadata":{"user_id":"u"},
        "cache_control":{"type":"ephemeral"},"service_tier":"auto","betas":["x"],"mcp_servers":[]"#,
    );
    let ask = taken(&body);
    assert_eq!(
        (ask.dialect, &*ask.model, ask.max_tokens, ask.n),
        (Dialect::Messages, "claude-x", Some(9), 1)
    );
    assert!(ask.stream && !ask.include_usage && !ask.parallel_tools);
    assert_eq!(ask.stop, ["A", "b"]);
    assert!(ask.required.tools && ask.required.json_schema && !ask.required.prefill);
    assert_eq!(ask.thinking, ThinkingDisplay::Shown);
    assert!(ask.edits.is_empty());
    assert_eq!(&ask.body, &body);
}

#[test]
fn every_block_of_the_dialect_is_taken_where_it_may_stand() {
    let body = conversation(&format!(
        r#"{{"role":"system","content":"first"}},
        {},{{"role":"assistant","content":[{{"type":"thinking","thinking":"t","signature":"s"}},{{"type":"redacted_thinking","data":"d"}},
        {{"type":"server_tool_use","id":"s","name":"web_search","input":{{}}}},{{"type":"web_search_tool_result","tool_use_id":"s","content":[]}},
        {{"type":"tool_use","id":"t1","name":"f","input":{{}}}},{{"type":"tool_use","id":"t2","name":"f","input":{{}}}}]}},
        {{"role":"system","content":[{{"type":"text","text":"mid"}}]}},
        {{"role":"user","content":[{{"type":"text","text":"before"}},{{"type":"tool_result","tool_use_id":"t2"}}]}},
        {{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t1","is_error":true,"content":[{{"type":"image","source":{{"type":"url","url":"https://a/b"}}}}]}}]}},
        {{"role":"assistant","content":"prefill "}}"#,
        user(
            r#"{"type":"text","text":""},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}},
            {"type":"document","title":"t","context":null,"source":{"type":"text","media_type":"text/plain","data":"x"}},
            {"type":"document","source":{"type":"content","content":[{"type":"text","text":"x"},{"type":"image","source":{"type":"url","url":"http://a"}}]}},
            {"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AAAA"}},
            {"type":"search_result","source":"s","title":"t","content":[{"type":"text","text":"x"}]}"#
        )
    ));
    let ask = taken(&body);
    assert!(ask.required.images && ask.required.image_urls && ask.required.files && ask.required.prefill);
    assert_eq!(ask.image_count, 3);
}

#[test]
fn a_call_without_input_is_one_with_an_empty_object() {
    for (input, is_missing) in [("", true), (r#","input":null"#, true), (r#","input":{}"#, false)] {
        let call = format!(
            r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"t1","name":"f"{input}}}]}},{}"#,
            user(RESULT)
        );
        assert_eq!(taken(&conversation(&call)).history.calls_without_input, is_missing, "{input}");
    }
}

#[test]
fn nested_members_of_new_clients_are_taken() {
    taken(&with(
        r#""tools":[{"name":"f","input_schema":{},"allowed_callers":["direct","code_execution_20260120"],
        "defer_loading":true,"eager_input_streaming":true,"input_examples":[{}]}]"#,
    ));
    let system = |members: &str| format!(r#"{{"role":"system",{members}}},{{"role":"user","content":"x"}}"#);
    let effort = r#""output_config":{"effort":"low"}"#;
    for (members, is_hidden) in [
        (effort, false),
        (r#""content":"x","output_config":{},"clear_at":"never""#, false),
        (r#""content":"x","clear_at":"next_user_message""#, true),
    ] {
        let history = taken(&conversation(&system(members))).history;
        assert_eq!(
            (history.late_system_messages, history.hidden_system_messages),
            (true, is_hidden),
            "{members}"
        );
    }
    let last =
        r#"{"role":"user","content":"x"},{"role":"system","content":"x","clear_at":"next_user_message"}"#;
    assert!(!taken(&conversation(last)).history.hidden_system_messages);
    let blocks = r#"{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"fallback","from":{},"to":{}},{"type":"mcp_tool_listing"}]}"#;
    taken(&conversation(blocks));
}

#[test]
fn thinking_is_shown_hidden_or_off() {
    for (thinking, expected) in [
        ("null", ThinkingDisplay::Off),
        (r#"{"type":"disabled"}"#, ThinkingDisplay::Off),
        (r#"{"type":"disabled","display":"omitted"}"#, ThinkingDisplay::Off),
        (r#"{"type":"enabled","budget_tokens":1024}"#, ThinkingDisplay::Shown),
        (r#"{"type":"between_tools"}"#, ThinkingDisplay::Shown),
        (r#"{"type":"auto"}"#, ThinkingDisplay::Shown),
        (r#"{"type":"adaptive","display":"summarized"}"#, ThinkingDisplay::Shown),
        (r#"{"type":"adaptive","display":"omitted"}"#, ThinkingDisplay::Omitted),
    ] {
        assert_eq!(taken(&with(&format!("\"thinking\":{thinking}"))).thinking, expected, "{thinking}");
    }
}

#[test]
#[rustfmt::skip]
fn bad_values_are_refused_by_name() {
    for (members, field, says) in [
        (r#""temperature":1.5"#, "temperature", "expected a number from 0 to 1, got a number out of range."),
        (r#""top_k":-1"#, "top_k", "expected an integer of at least 0, got a number out of range."),
        (r#""max_tokens":5"#, "max_tokens", "the key occurs more than once."),
        (r#""system":5"#, "system", "expected a string or an array of text blocks, got a number."),
        (r#""system":[{"type":"image"}]"#, "system.0.type", r#"expected "text", got another string."#),
        (r#""stop_sequences":"x""#, "stop_sequences", "expected an array of strings, got a string."),
        (r#""stop_sequences":["x",null]"#, "stop_sequences.1", "expected a string, got null."),
        (r#""tools":[{"type":"web_search_20250305","name":"web_search"}]"#, "tools.0.type", r#"the vendor's server tool "web_search_20250305" is not supported, only tools of your own."#),
        (r#""tools":[{"type":"my tool","name":"f","input_schema":{}}]"#, "tools.0.type", r#"only tools of your own are supported, of the type "custom"."#),
        (r#""tools":[{"type":"","name":"f","input_schema":{}}]"#, "tools.0.type", r#"only tools of your own are supported, of the type "custom"."#),
        (r#""tools":[{"name":"f"}]"#, "tools.0.input_schema", "expected a JSON schema, but it is missing."),
        (r#""tools":[{"name":"f","input_schema":[]}]"#, "tools.0.input_schema", "expected an object, got an array."),
        (r#""tools":[{"input_schema":{}}]"#, "tools.0.name", "expected a string, but it is missing."),
        (r#""tools":[{"name":"f","input_schema":{},"allowed_callers":["code_execution_20250825"]}]"#, "tools.0.allowed_callers", "expected \"direct\" among them; the model calls each tool itself."),
        (r#""tools":[{"name":"f","input_schema":{},"defer_loading":"no"}]"#, "tools.0.defer_loading", "expected a boolean, got a string."),
        (r#""tool_choice":"auto""#, "tool_choice", "expected an object, got a string."),
        (r#""tool_choice":{"type":"required"}"#, "tool_choice.type", r#"expected "auto", "any", "tool" or "none", got another string."#),
        (r#""tool_choice":{"type":"any"}"#, "tool_choice.type", "\"any\" needs `tools`."),
        (r#""tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"tool"}"#, "tool_choice.name", "expected a string, but it is missing."),
        (r#""tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"tool","name":"g"}"#, "tool_choice.name", "expected the name of one of the declared tools."),
        (r#""thinking":{"type":"enabled"}"#, "thinking.budget_tokens", "expected an integer of at least 1024, but it is missing."),
        (r#""thinking":{"type":"enabled","budget_tokens":100}"#, "thinking.budget_tokens", "expected an integer of at least 1024, got a number out of range."),
        (r#""thinking":{"type":"on"}"#, "thinking.type", r#"expected "enabled", "adaptive", "auto", "disabled" or "between_tools", got another string."#),
        (r#""output_config":{"effort":"huge"}"#, "output_config.effort", r#"expected "low", "medium", "high", "xhigh" or "max", got another string."#),
        (r#""output_config":{"format":{"type":"json_schema"}}"#, "output_config.format.schema", "expected a JSON schema, but it is missing."),
        (r#""chat_template_kwargs":{"enable_thinking":"false"}"#, "chat_template_kwargs.enable_thinking", "expected a boolean, got a string."),
        (r#""mcp_servers":[{"url":"https://a"}]"#, "mcp_servers", "MCP servers are not supported; declare their tools instead."),
    ] {
        let body = with(members);
        assert_refused(ask_messages(&body), field, says, &body);
    }
}

#[test]
#[rustfmt::skip]
fn bad_messages_are_refused_by_their_path() {
    let image = |source: &str| user(&format!(r#"{{"type":"image","source":{source}}}"#));
    let source = "messages.0.content.0.source";
    let here = r#""text", "image", "tool_result", "document" or "search_result""#;
    let once = "expected the id of a tool_use block of the assistant's turn before, each answered once.";
    let each = "each tool_use block needs a tool_result block in the user's turn after it.";
    for (messages, field, says) in [
        (String::new(), "messages".to_owned(), "expected at least one message.".to_owned()),
        (r#"{"role":"tool","content":"x"}"#.into(), "messages.0.role".into(), r#"expected "user", "assistant" or "system", got another string."#.into()),
        (r#"{"role":"user"}"#.into(), "messages.0.content".into(), "expected a string or an array of content blocks, but it is missing.".into()),
        (r#"{"role":"user","content":""}"#.into(), "messages.0.content".into(), "expected a string that is not empty.".into()),
        (user(""), "messages.0.content".into(), "expected content that is not empty.".into()),
        (user(r#"{"type":"text","text":""}"#), "messages.0.content".into(), "expected content that is not empty.".into()),
        (user(r#"{"type":"text"}"#), "messages.0.content.0.text".into(), "expected a string, but it is missing.".into()),
        (user(r#"{"type":"sound"}"#), "messages.0.content.0.type".into(), format!("expected {here}, got another string.")),
        (user(r#"{"type":"tool_use","id":"t","name":"f","input":{}}"#), "messages.0.content.0.type".into(), format!("expected {here}, got another string.")),
        (image(r#"{"type":"base64","media_type":"image/png","data":"A"}"#), format!("{source}.data"), "expected base64 (standard alphabet, padded).".into()),
        (image(r#"{"type":"base64","media_type":"image/png","data":"data:image/png;base64,AAAA"}"#), format!("{source}.data"), "expected base64 (standard alphabet, padded).".into()),
        (image(r#"{"type":"base64","media_type":"image/bmp","data":"AAAA"}"#), format!("{source}.media_type"), r#"expected "image/jpeg", "image/png", "image/gif" or "image/webp", got another string."#.into()),
        (image(r#"{"type":"file","file_id":"f"}"#), format!("{source}.type"), "files by id are not supported.".into()),
        (image(r#"{"type":"url","url":"data:image/png;base64,AAAA"}"#), format!("{source}.url"), "expected an http: or https: URL; send data in a source of the type \"base64\".".into()),
        (image(r#"{"type":"url","url":"https://"}"#), format!("{source}.url"), "expected an http: or https: URL with a host.".into()),
        (r#"{"role":"system","content":"x"}"#.into(), "messages".into(), "expected at least one message of the user or the assistant.".into()),
        (r#"{"role":"system","output_config":{}},{"role":"user","content":"x"}"#.into(), "messages.0.content".into(), "expected a string or an array of text blocks, but it is missing.".into()),
        (r#"{"role":"system","content":"x","clear_at":"now"},{"role":"user","content":"x"}"#.into(), "messages.0.clear_at".into(), r#"expected "next_user_message" or "never", got another string."#.into()),
        (r#"{"role":"user","content":"x","clear_at":"never"}"#.into(), "messages.0.clear_at".into(), "only a message of the role \"system\" may have it.".into()),
        (user(r#"{"type":"image","transformations":{"oversized_image":"crop"},"source":{"type":"url","url":"https://a"}}"#), "messages.0.content.0.transformations.oversized_image".into(), r#"expected "downsize" or "error", got another string."#.into()),
        (image("5"), source.into(), "expected an object, got a number.".into()),
        (user(RESULT), "messages.0.content.0.tool_use_id".into(), once.into()),
        (format!("{CALL},{}", user(&format!("{RESULT},{RESULT}"))), "messages.1.content.1.tool_use_id".into(), once.into()),
        (format!("{CALL},{},{{\"role\":\"assistant\",\"content\":\"x\"}},{}", user(RESULT), user(RESULT)), "messages.3.content.0.tool_use_id".into(), once.into()),
        (CALL.to_owned(), "messages.0".into(), each.into()),
        (format!(r#"{CALL},{{"role":"user","content":"and?"}}"#), "messages.0".into(), each.into()),
        (format!(r#"{CALL},{{"role":"user","content":"and?"}},{{"role":"assistant","content":"x"}},{{"role":"user","content":"y"}}"#), "messages.0".into(), each.into()),
        (CALL.replace(r#"{"a":[1]}"#, r#""{}""#), "messages.0.content.1.input".into(), "expected an object, got a string.".into()),
        (CALL.replace(r#""f""#, r#""""#), "messages.0.content.1.name".into(), "expected a string that is not empty.".into()),
        (format!("{CALL},{}", user(&RESULT.replace(r#"[{"type":"text","text":"ok"}]"#, r#"[{"type":"tool_use"}]"#))), "messages.1.content.0.content.0.type".into(), r#"expected "text", "image", "document" or "search_result", got another string."#.into()),
        (format!("{CALL},{}", user(&RESULT.replace("null", "\"yes\""))), "messages.1.content.0.is_error".into(), "expected a boolean, got a string.".into()),
        (r#"{"role":"assistant","content":[{"type":"image","source":{}}]}"#.into(), "messages.0.content.0.type".into(), r#"expected "text", "tool_use", "thinking" or "redacted_thinking", got another string."#.into()),
    ] {
        let body = conversation(&messages);
        assert_refused(ask_messages(&body), &field, &says, &body);
    }
}

#[test]
fn tool_results_are_matched_across_adjacent_messages() {
    for messages in [
        format!("{CALL},{}", user(RESULT)),
        format!(r#"{CALL},{{"role":"system","content":"x"}},{}"#, user(RESULT)),
        format!(r#"{CALL},{{"role":"user","content":"wait"}},{}"#, user(RESULT)),
        format!("{CALL},{},{CALL},{}", user(RESULT), user(RESULT)),
        format!("{CALL},{CALL},{},{}", user(RESULT), user(&RESULT.replace("t1", "t9")))
            .replacen("t1", "t9", 1),
    ] {
        taken(&conversation(&messages));
    }
}

#[test]
fn empty_answers_of_ours_may_come_back() {
    for content in [r#""""#, "[]", r#"[{"type":"text","text":""}]"#] {
        taken(&conversation(&format!(
            r#"{{"role":"user","content":"a"}},{{"role":"assistant","content":{content}}},{{"role":"user","content":"b"}}"#
        )));
    }
}

#[test]
fn max_tokens_is_required_to_generate_and_not_to_count() {
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
    assert_refused(
        ask_messages(body),
        "max_tokens",
        "expected an integer of at least 0, but it is missing.",
        body,
    );
    let count = |body: &str| {
        validate_messages_request(
            Bytes::from(body.to_owned()),
            &RequestLimits::default(),
            MessagesPurpose::Count,
        )
    };
    assert_eq!(count(body).unwrap().max_tokens, None);
    assert_eq!(taken(&body.replace("\"model\"", "\"max_tokens\":0,\"model\"")).max_tokens, Some(0));
    // Tokens may be counted while a tool is still running.
    assert!(count(&conversation(CALL)).is_ok());
    let negative = body.replace("\"model\"", "\"max_tokens\":-1,\"model\"");
    let says = "expected an integer of at least 0, got a number out of range.";
    assert_refused(count(&negative), "max_tokens", says, &negative);
}

#[test]
fn inline_media_is_no_prompt_text() {
    let block = format!(
        r#"{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{}"}}}}"#,
        "A".repeat(40_000)
    );
    let ask = taken(&conversation(&user(&block)));
    assert!(ask.prompt_bytes < 300, "{}", ask.prompt_bytes);
}

#[test]
fn server_tools_have_the_code_of_features_that_are_not_there() {
    let refusal = ask_messages(&with(r#""tools":[{"type":"bash_20250124","name":"bash"}]"#)).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::Unsupported);
}

#[test]
fn parameters_that_some_providers_reject_are_detected() {
    let history = |messages: &str| taken(&conversation(messages)).history;
    let hi = user(r#"{"type":"text","text":"\"system\" \"text\":\"\""}"#);
    assert_eq!(history(&hi), HistoryFeatures::default());
    let system = HistoryFeatures { late_system_messages: true, ..HistoryFeatures::default() };
    for role in ["system", r"s\u0079stem"] {
        let turn = format!(r#"{{"role":"{role}","content":"s"}}"#);
        assert_eq!(history(&format!("{turn},{hi}")), system);
        assert_eq!(history(&format!("{hi},{turn}")), system);
    }
    let idle = HistoryFeatures { removable_text: true, ..HistoryFeatures::default() };
    let empty = r#"{"type":"text","text":""}"#;
    let result =
        r#"{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":""}]}"#.to_owned();
    for messages in [
        user(&format!(r#"{empty},{{"type":"text","text":"x"}}"#)),
        format!(r#"{hi},{{"role":"assistant","content":[{empty}]}},{hi}"#),
        format!(r#"{hi},{{"role":"assistant","content":""}},{hi}"#),
        format!(r#"{hi},{{"role":"assistant","content":[]}},{hi}"#),
        format!("{hi},{},{}", CALL.replacen(empty, r#"{"type":"text","text":"x"}"#, 1), user(&result)),
    ] {
        assert_eq!(history(&messages), idle, "{messages}");
    }
    let billing = r#""system":[{"type":"text","text":"x-anthropic-billing-header: cch=1"}]"#;
    assert_eq!(taken(&with(billing)).history, idle);
    assert_eq!(taken(&with(&billing.replace("x-anthropic-b", "b"))).history, HistoryFeatures::default());
}
