//! Tests of refused requests: each error names the path of the field, the expected and the actual value.

use crate::support::{ask_responses, assert_refused};
use crate::{accepted, with};
use bytes::Bytes;
use penstock_core::ErrorCode;
use penstock_request_validation::{RequestLimits, ResponsesPurpose, validate_responses_request};
use serde_json::{Value, json};

#[test]
#[rustfmt::skip]
fn bad_members_are_refused_by_name() {
    for (members, field, says) in [
        (r#""model":"m""#, "input", "expected one of `input` and `previous_response_id`."),
        (r#""input":null"#, "input", "expected one of `input` and `previous_response_id`."),
        (r#""input":5"#, "input", "expected a string or an array of input items, got a number."),
        (r#""input":[]"#, "input", "expected at least one item, or `previous_response_id`."),
        (r#""input":"x","instructions":["x"]"#, "instructions", "expected a string, got an array."),
        (r#""input":"x","max_output_tokens":0"#, "max_output_tokens", "expected an integer of at least 1, got a number out of range."),
        (r#""input":"x","temperature":3"#, "temperature", "expected a number from 0 to 2, got a number out of range."),
        (r#""input":"x","top_logprobs":21"#, "top_logprobs", "expected an integer from 0 to 20, got a number out of range."),
        (r#""input":"x","max_tool_calls":0"#, "max_tool_calls", "expected an integer of at least 1, got a number out of range."),
        (r#""input":"x","truncation":"middle""#, "truncation", r#"expected "auto" or "disabled", got another string."#),
        (r#""input":"x","chat_template_kwargs":{"thinking":"false"}"#, "chat_template_kwargs.thinking", "expected a boolean, got a string."),
        (r#""input":"x","store":"no""#, "store", "expected a boolean, got a string."),
        (r#""input":"x","metadata":["a"]"#, "metadata", "expected an object, got an array."),
        (r#""input":"x","metadata":{"a":5}"#, "metadata.a", "expected a string."),
        (r#""input":"x","include":["reasoning.encrypted_content",5]"#, "include[1]", r#"expected "code_interpreter_call.outputs", "computer_call_output.output.image_url", "file_search_call.results", "message.input_image.image_url", "message.output_text.logprobs", "reasoning.encrypted_content", "web_search_call.action.sources" or "web_search_call.results", got a number."#),
        (r#""input":"x","include":["zz"]"#, "include[0]", r#"expected "code_interpreter_call.outputs", "computer_call_output.output.image_url", "file_search_call.results", "message.input_image.image_url", "message.output_text.logprobs", "reasoning.encrypted_content", "web_search_call.action.sources" or "web_search_call.results", got another string."#),
        (r#""input":"x","reasoning":{"effort":"huge"}"#, "reasoning.effort", r#"expected "none", "minimal", "low", "medium", "high", "xhigh" or "max", got another string."#),
        (r#""input":"x","reasoning":{"summary":"long"}"#, "reasoning.summary", r#"expected "auto", "concise", "detailed" or "none", got another string."#),
        (r#""input":"x","reasoning":{"enabled":"no"}"#, "reasoning.enabled", "expected a boolean, got a string."),
        (r#""input":"x","reasoning":{"max_tokens":-1}"#, "reasoning.max_tokens", "expected an integer of at least 0, got a number out of range."),
        (r#""input":"x","reasoning":{"mode":"pro"}"#, "reasoning.mode", r#"only "standard" is supported; leave it out."#),
        (r#""input":"x","reasoning":{"mode":5}"#, "reasoning.mode", "expected a string, got a number."),
        (r#""input":"x","reasoning":{"context":"all_turns"}"#, "reasoning.context", r#"only "auto" is supported; leave it out."#),
        (r#""input":"x","text":{"verbosity":"huge"}"#, "text.verbosity", r#"expected "low", "medium" or "high", got another string."#),
        (r#""input":"x","text":{"format":{"type":"json_object","schema":[]}}"#, "text.format.schema", "expected an object, got an array."),
        (r#""input":"x","text":{"format":{"type":"xml"}}"#, "text.format.type", r#"expected "text", "json_object" or "json_schema", got another string."#),
        (r#""input":"x","text":{"format":{"type":"json_schema","name":"n"}}"#, "text.format.schema", "expected a JSON schema, but it is missing."),
        (r#""input":"x","prompt_cache_key":5"#, "prompt_cache_key", "expected a string, got a number."),
        (r#""input":"x","stream_options":{"include_obfuscation":1}"#, "stream_options.include_obfuscation", "expected a boolean, got a number."),
        (r#""input":"x","tools":[{"name":"f"}]"#, "tools[0].type", r#"expected "function" or "custom", but it is missing."#),
        (r#""input":"x","tools":[{"type":"function","name":"f","allowed_callers":["programmatic"]}]"#, "tools[0].allowed_callers", r#"expected "direct" among them; the model calls each tool itself."#),
        (r#""input":"x","tools":[{"type":"custom","name":"f","allowed_callers":"direct"}]"#, "tools[0].allowed_callers", "expected an array, got a string."),
        (r#""input":"x","tools":[{"type":"function","name":"f","allowed_callers":["direct",5]}]"#, "tools[0].allowed_callers[1]", "expected a string, got a number."),
        (r#""input":"x","tools":[{"type":"function","name":"f","async":true}]"#, "tools[0].async", "the model waits for the output of each tool."),
        (r#""input":"x","tools":[{"type":"function","name":"f","defer_loading":"yes"}]"#, "tools[0].defer_loading", "expected a boolean, got a string."),
        (r#""input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f","async":true}]}]"#, "tools[0].tools[0].async", "the model waits for the output of each tool."),
        (r#""input":"x","tools":[{"type":"function"}]"#, "tools[0].name", "expected a string, but it is missing."),
        (r#""input":"x","tools":[{"type":"function","name":"f","parameters":[]}]"#, "tools[0].parameters", "expected an object, got an array."),
        (r#""input":"x","tools":[{"type":"function","name":"f"},{"type":"custom","name":"f"}]"#, "tools[1].name", "another tool has the same name."),
        (r#""input":"x","tools":[{"type":"custom","name":"f","format":{"type":"grammar","syntax":"ebnf","definition":""}}]"#, "tools[0].format.syntax", r#"expected "lark" or "regex", got another string."#),
        (r#""input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"web_search"}]}]"#, "tools[0].tools[0].type", r#"the tool "web_search" is not offered; declare a tool of type "function" or "custom" and run it yourself."#),
        (r#""input":"x","tool_choice":"some""#, "tool_choice", r#"expected "auto", "none" or "required", got another string."#),
        (r#""input":"x","tool_choice":"required""#, "tool_choice", "\"required\" needs `tools`."),
        (r#""input":"x","tool_choice":{"type":"function","name":"g"}"#, "tool_choice.name", "expected the name of one of the declared tools of this type."),
        (r#""input":"x","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"custom","name":"f"}"#, "tool_choice.name", "expected the name of one of the declared tools of this type."),
        (r#""input":"x","tool_choice":{"type":"file_search"}"#, "tool_choice.type", r#"the tool "file_search" is not offered."#),
        (r#""input":"x","tool_choice":{"type":"allowed_tools","mode":"auto","tools":[]}"#, "tool_choice.tools", "expected at least one tool."),
    ] {
        let body = with(members);
        let body = if members.starts_with(r#""model""#) { r#"{"model":"m"}"#.to_owned() } else { body };
        assert_refused(ask_responses(&body), field, says, &body);
    }
}

#[test]
fn a_name_of_a_tool_or_a_namespace_has_at_most_256_bytes() {
    let tools = |namespace: &str, name: &str| {
        let tool = format!(r#"{{"type":"function","name":"{name}"}}"#);
        with(&format!(
            r#""input":"x","tools":[{{"type":"namespace","name":"{namespace}","tools":[{tool}]}}]"#
        ))
    };
    let (longest, escaped) = ("n".repeat(256), r"\u00e9".repeat(128));
    accepted(&tools(&longest, &longest));
    accepted(&tools(&escaped, &escaped));
    let says = "expected a string of at most 256 bytes.";
    assert_refused(ask_responses(&tools(&(longest.clone() + "n"), "f")), "tools[0].name", says, "namespace");
    assert_refused(ask_responses(&tools("n", &(longest + "f"))), "tools[0].tools[0].name", says, "name");
}

/// Returns copies of `value`; in each copy another one of its values is replaced by `other`.
fn replaced(value: &Value, other: &Value) -> Vec<Value> {
    let mut all = vec![other.clone()];
    let children: Vec<(String, &Value)> = match value {
        Value::Array(items) => items.iter().enumerate().map(|(at, item)| (at.to_string(), item)).collect(),
        Value::Object(members) => members.iter().map(|(name, member)| (name.clone(), member)).collect(),
        _ => Vec::new(),
    };
    for (step, child) in children {
        for changed in replaced(child, other) {
            let mut whole = value.clone();
            *whole.pointer_mut(&format!("/{step}")).unwrap() = changed;
            all.push(whole);
        }
    }
    all
}

#[test]
fn no_refusal_has_a_path_of_the_converted_body() {
    let body = json!({"model": "m", "instructions": "s", "temperature": 1, "top_logprobs": 1,
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "c"}]},
        "tools": [{"type": "function", "name": "f", "parameters": {"a": 1}, "strict": true, "description": "d"},
            {"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "lark", "definition": "a"}},
            {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}],
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {}, "strict": true, "description": "d"}},
        "reasoning": {"effort": "low", "summary": "auto", "enabled": true, "max_tokens": 5},
        "input": [{"role": "developer", "content": "a"},
            {"role": "user", "content": [{"type": "input_text", "text": "x"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"},
                {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]},
            {"type": "function_call", "call_id": "a", "name": "f", "namespace": "n", "arguments": "{}"},
            {"type": "custom_tool_call", "call_id": "b", "name": "c", "input": "x"},
            {"type": "function_call_output", "call_id": "a", "output": "x"},
            {"type": "custom_tool_call_output", "call_id": "b",
                "output": [{"type": "input_text", "text": "y"}]}]});
    accepted(&body.to_string());
    let long = "x".repeat(300);
    for other in
        [json!(null), json!(""), json!(long), json!(5), json!(true), json!([]), json!({}), json!(["x"])]
    {
        for changed in replaced(&body, &other) {
            let Err(refusal) = ask_responses(&changed.to_string()) else { continue };
            let path = refusal.param.clone().unwrap_or_default();
            let is_own = !path.starts_with("messages") && !path.contains(".function");
            assert!(is_own, "{}: {changed}", refusal.message);
        }
    }
}

#[test]
fn metadata_has_at_most_16_short_strings() {
    let metadata = |pairs: usize, key: usize, value: usize| {
        let pair = |number: usize| format!("\"{number:0>key$}\":\"{}\"", "\u{e9}".repeat(value));
        let pairs: Vec<String> = (0..pairs).map(pair).collect();
        with(&format!(r#""input":"x","metadata":{{{}}}"#, pairs.join(",")))
    };
    accepted(&metadata(16, 64, 512));
    let path = format!("metadata.{:0>64}", 0);
    for (body, field, says) in [
        (metadata(17, 64, 512), "metadata", "expected at most 16 pairs."),
        (metadata(1, 65, 1), "metadata", "expected keys of at most 64 characters."),
        (metadata(1, 64, 513), path.as_str(), "expected at most 512 characters."),
        (
            with(r#""input":"x","metadata":{"my secret plan":1}"#),
            "metadata",
            "expected a string in each value.",
        ),
        (
            with(&format!(r#""input":"x","metadata":{{"my secret":"{}"}}"#, "x".repeat(513))),
            "metadata",
            "expected at most 512 characters in each value.",
        ),
        (
            with(r#""input":"x","metadata":{"a":"1","b":"2","\u0061":"3"}"#),
            "metadata",
            "a key occurs more than once.",
        ),
        (
            with(r#""input":"x","background_options":{"my secret plan":1}"#),
            "background_options",
            "a background response starts as soon as possible; send \"completion_window\": \"soonest\", or leave it out.",
        ),
    ] {
        assert_refused(ask_responses(&body), field, says, &body);
    }
}

#[test]
#[rustfmt::skip]
fn bad_items_are_refused_by_their_path() {
    for (item, field, says) in [
        (r#""x""#, "", "expected an object, got a string."),
        (r#"{"type":"message","content":"x"}"#, ".role", r#"expected "user", "assistant", "system" or "developer", but it is missing."#),
        (r#"{"role":"robot","content":"x"}"#, ".role", r#"expected "user", "assistant", "system" or "developer", got another string."#),
        (r#"{"role":"assistant","content":"x","phase":"draft"}"#, ".phase", r#"expected "commentary" or "final_answer", got another string."#),
        (r#"{"role":"user"}"#, ".content", "expected a string or an array of content parts, but it is missing."),
        (r#"{"role":"user","content":[]}"#, ".content", "expected at least one content part."),
        (r#"{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"video"}]}"#, ".content[1].type", r#"expected "input_text", "input_image", "input_audio" or "output_text", got another string."#),
        (r#"{"role":"user","content":[{"type":"input_text"}]}"#, ".content[0].text", "expected a string, but it is missing."),
        (r#"{"role":"user","content":[{"type":"input_file","file_data":"x"}]}"#, ".content[0].type", "files are not read here; send their text."),
        (r#"{"role":"user","content":[{"type":"input_image","file_id":"f"}]}"#, ".content[0].file_id", "files by id are not supported; send `image_url`."),
        (r#"{"role":"user","content":[{"type":"input_image","image_url":"file:///etc"}]}"#, ".content[0].image_url", "expected a data: URL of an image, or an http: or https: URL, got another string."),
        (r#"{"role":"system","content":[{"type":"input_image","image_url":"https://a/b"}]}"#, ".content[0].type", r#"expected "input_text" or "output_text", got another string."#),
        (r#"{"type":"function_call","call_id":"c","name":"f","arguments":[]}"#, ".arguments", "expected a string, got an array."),
        (r#"{"type":"function_call","name":"f","arguments":"{}"}"#, ".call_id", "expected a string, but it is missing."),
        (r#"{"type":"custom_tool_call","call_id":"c","name":"f"}"#, ".input", "expected a string, but it is missing."),
        (r#"{"type":"function_call_output","call_id":"c","output":"x"}"#, ".call_id", "expected the `call_id` of a tool call earlier in `input`."),
        (r#"{"type":"reasoning","summary":[{"type":"summary_text"}]}"#, ".summary[0].text", "expected a string, but it is missing."),
        (r#"{"type":"item_reference","id":"msg_1"}"#, ".type", "this API key stores no responses; send the item itself (clients do so with `store: false`)."),
        (r#"{"id":"msg_1"}"#, ".type", "expected the type of an item, but it is missing."),
        (r#"{"type":"web_search_call","id":"ws_1"}"#, ".type", r#"items of type "web_search_call" are not supported."#),
        (r#"{"role":"user","role":"user","content":"x"}"#, ".role", "the key occurs more than once."),
    ] {
        let body = with(&format!(r#""input":[{{"role":"user","content":"Hi"}},{item}]"#));
        assert_refused(ask_responses(&body), &format!("input[1]{field}"), says, &body);
    }
}

#[test]
fn tools_that_run_elsewhere_are_refused_by_name() {
    for kind in ["web_search", "file_search", "code_interpreter", "mcp", "image_generation", "local_shell"] {
        let body = with(&format!(r#""input":"x","tools":[{{"type":"{kind}"}}]"#));
        let refusal = ask_responses(&body).unwrap_err();
        assert_eq!((refusal.code, refusal.param.as_deref()), (ErrorCode::Unsupported, Some("tools[0].type")));
        assert!(refusal.message.contains(kind), "{}", refusal.message);
    }
}

#[test]
fn a_stored_response_is_refused_with_what_to_send() {
    for (member, value) in [("previous_response_id", r#""resp_1""#), ("conversation", r#"{"id":"conv_1"}"#)] {
        let refusal = ask_responses(&with(&format!(r#""input":"x","{member}":{value}"#))).unwrap_err();
        assert_eq!((refusal.code, refusal.param.as_deref()), (ErrorCode::Unsupported, Some(member)));
        assert!(refusal.message.contains("send the whole history"), "{}", refusal.message);
    }
    accepted(&with(
        r#""input":"x","previous_response_id":null,"conversation":null,"background":false,"prompt":null"#,
    ));
}

#[test]
fn the_size_of_the_chat_form_is_that_of_the_body() {
    // The input of a custom tool is escaped twice in the chat form, so the converted body is larger than the original
    // one.
    let quotes = r#"\""#.repeat(10_000);
    let call = format!(r#"{{"type":"custom_tool_call","call_id":"c","name":"f","input":"{quotes}"}}"#);
    let body = with(&format!(r#""input":[{call}]"#));
    let size = body.len();
    let limits = RequestLimits { max_body: size, ..RequestLimits::default() };
    let ask = validate_responses_request(Bytes::from(body), &limits, ResponsesPurpose::Generate).unwrap();
    assert!(ask.body.len() < 3 * size, "{} of {size}", ask.body.len());
    let limits = RequestLimits { max_body: size - 1, ..limits };
    let body = with(&format!(r#""input":[{call}]"#));
    let refusal =
        validate_responses_request(Bytes::from(body), &limits, ResponsesPurpose::Generate).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::TooLarge);
}

#[test]
fn a_refusal_names_the_member_that_the_client_sent() {
    for (members, param) in [
        (r#""messages":[{"role":"user","content":"x"}]"#, "messages"),
        (r#""input":"x","response_format":{"type":"json_object"}"#, "response_format"),
        (r#""input":"x","logprobs":5"#, "logprobs"),
        (r#""input":"x","max_tokens":"many""#, "max_tokens"),
    ] {
        let refusal = ask_responses(&with(members)).unwrap_err();
        assert_eq!((refusal.param.as_deref(), refusal.is_client_param), (Some(param), true), "{members}");
    }
    for (members, foreign) in [
        (r#""include":["message.output_text.logprobs"]"#, vec![]),
        (r#""top_logprobs":2"#, vec!["top_logprobs"]),
        (r#""logprobs":true,"verbosity":"low""#, vec!["verbosity", "logprobs"]),
    ] {
        let ask = accepted(&with(&format!(r#""input":"x",{members}"#)));
        assert_eq!(ask.responses.unwrap().chat_named_members, foreign, "{members}");
    }
}
