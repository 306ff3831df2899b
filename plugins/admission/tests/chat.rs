//! The chat dialect: what is taken, what is changed, what is refused and how.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use penstock_contract::{Ask, Code, Dialect, Kind, Said};
use serde_json::{Value, json};
use support::{ask_chat, assert_refused, edited};

/// A request with these members besides the required ones.
fn with(members: &str) -> String {
    format!(r#"{{"model":"m","messages":[{{"role":"user","content":"hi"}}],{members}}}"#)
}

fn conversation(messages: &str) -> String {
    format!(r#"{{"model":"m","messages":[{messages}]}}"#)
}

fn taken(body: &str) -> Ask {
    ask_chat(body).unwrap_or_else(|refusal| panic!("{body}: {}", refusal.message))
}

const CALL: &str = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]}"#;

#[test]
fn everything_the_house_must_know_is_read() {
    let body = with(
        r#""max_tokens":5,"max_completion_tokens":7,"temperature":0.5,"top_p":1,"top_k":-1,"seed":-3,"n":2,"stream":true,
        "stream_options":{"include_usage":true,"include_obfuscation":false},"stop":["a\n","b"],"preset":"reasoning",
        "parallel_tool_calls":false,"logit_bias":{"5":-100},"response_format":{"type":"json_object"},"foo":[1]"#,
    );
    let ask = taken(&body);
    assert_eq!((ask.dialect, ask.kind, &*ask.model, ask.n), (Dialect::Chat, Kind::Chat, "m", 2));
    assert_eq!(
        (ask.max_tokens, ask.stream, ask.include_usage, ask.parallel_tools),
        (Some(7), true, true, false)
    );
    assert_eq!(ask.stop, ["a\n", "b"]);
    assert_eq!(ask.preset.as_deref(), Some("reasoning"));
    assert!(ask.needs.many && ask.needs.logprobs && ask.needs.json_object);
    assert!(!ask.needs.tools && !ask.needs.json_schema && !ask.needs.prefill);
    assert_eq!(ask.value("foo"), Some(b"[1]".as_slice()));
    assert_eq!(&ask.body, &body);
    let seed = ask.fields.get("seed").unwrap();
    assert_eq!(&ask.body[seed.member.clone()], b"\"seed\":-3");
    assert!(ask.edits.is_empty());
}

#[test]
fn null_is_absent_for_every_optional_field() {
    let names = [
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "top_k",
        "stream",
        "stop",
        "seed",
        "n",
        "tools",
        "tool_choice",
        "response_format",
        "reasoning_effort",
        "preset",
        "stream_options",
        "parallel_tool_calls",
        "audio",
        "modalities",
        "web_search_options",
        "logprobs",
        "top_logprobs",
        "logit_bias",
        "frequency_penalty",
        "presence_penalty",
        "min_p",
        "repetition_penalty",
        "functions",
        "function_call",
        "user",
        "metadata",
    ];
    let nulls: Vec<String> = names.iter().map(|name| format!("\"{name}\":null")).collect();
    let ask = taken(&with(&nulls.join(",")));
    assert_eq!((ask.max_tokens, ask.n, ask.stream, ask.parallel_tools), (None, 1, false, true));
    assert_eq!(ask.needs, penstock_contract::Needs::default());
}

#[test]
#[rustfmt::skip]
fn bad_values_are_refused_by_name_with_what_was_expected_and_what_came() {
    for (members, field, says) in [
        (r#""temperature":2.1"#, "temperature", "expected a number from 0 to 2, got a number out of range."),
        (r#""temperature":-0.1"#, "temperature", "expected a number from 0 to 2, got a number out of range."),
        (r#""temperature":"hot""#, "temperature", "expected a number from 0 to 2, got a string."),
        (r#""top_p":1.01"#, "top_p", "expected a number from 0 to 1, got a number out of range."),
        (r#""frequency_penalty":-3"#, "frequency_penalty", "expected a number from -2 to 2, got a number out of range."),
        (r#""max_tokens":0"#, "max_tokens", "expected an integer of at least 1, got a number out of range."),
        (r#""max_tokens":1.5"#, "max_tokens", "expected an integer of at least 1, got a number that is no integer."),
        (r#""max_completion_tokens":"9""#, "max_completion_tokens", "expected an integer of at least 1, got a string."),
        (r#""n":0"#, "n", "expected an integer from 1 to 10, got a number out of range."),
        (r#""n":11"#, "n", "expected an integer from 1 to 10, got a number out of range."),
        (r#""seed":1e3"#, "seed", "expected an integer of at most 64 bits, got a number that is no integer."),
        (r#""top_logprobs":21"#, "top_logprobs", "expected an integer from 0 to 20, got a number out of range."),
        (r#""stream":1"#, "stream", "expected a boolean, got a number."),
        (r#""stream":"true""#, "stream", "expected a boolean, got a string."),
        (r#""stream_options":true"#, "stream_options", "expected an object, got a boolean."),
        (r#""stream_options":{"include_usage":1}"#, "stream_options.include_usage", "expected a boolean, got a number."),
        (r#""stop":5"#, "stop", "expected a string or an array of strings, got a number."),
        (r#""stop":["a",5]"#, "stop[1]", "expected a string, got a number."),
        (r#""stop":[""]"#, "stop[0]", "expected a string that is not empty."),
        (r#""preset":"fast""#, "preset", r#"expected "reasoning" or "non_reasoning", got another string."#),
        (r#""reasoning_effort":"huge""#, "reasoning_effort", r#"expected "none", "minimal", "low", "medium", "high", "xhigh" or "max", got another string."#),
        (r#""response_format":"json""#, "response_format", "expected an object, got a string."),
        (r#""response_format":{}"#, "response_format.type", r#"expected "text", "json_object" or "json_schema", but it is missing."#),
        (r#""response_format":{"type":"xml"}"#, "response_format.type", r#"expected "text", "json_object" or "json_schema", got another string."#),
        (r#""response_format":{"type":"json_schema"}"#, "response_format.json_schema", "expected an object, but it is missing."),
        (r#""response_format":{"type":"json_schema","json_schema":{"schema":{}}}"#, "response_format.json_schema.name", "expected a string, but it is missing."),
        (r#""response_format":{"type":"json_schema","json_schema":{"name":"n"}}"#, "response_format.json_schema.schema", "expected a JSON schema, but it is missing."),
        (r#""response_format":{"type":"json_schema","json_schema":{"name":"n","schema":[]}}"#, "response_format.json_schema.schema", "expected an object, got an array."),
        (r#""logit_bias":{"5":101}"#, "logit_bias", "expected an object of token ids and numbers from -100 to 100."),
        (r#""modalities":["text","audio"]"#, "modalities[1]", "only answers in text are supported."),
        (r#""audio":{"voice":"x"}"#, "audio", "spoken answers are not supported."),
        (r#""web_search_options":{}"#, "web_search_options", "web search is not supported."),
        (r#""tools":{}"#, "tools", "expected an array, got an object."),
        (r#""tools":[{"type":"custom","custom":{"name":"x"}}]"#, "tools[0].type", r#"only "function" is supported, not "custom"."#),
        (r#""tools":[{"type":"function"}]"#, "tools[0].function", "expected an object, but it is missing."),
        (r#""tools":[{"type":"function","function":{"name":""}}]"#, "tools[0].function.name", "expected a string that is not empty."),
        (r#""tools":[{"type":"function","function":{"name":"f","parameters":"{}"}}]"#, "tools[0].function.parameters", "expected an object, got a string."),
        (r#""tool_choice":"required""#, "tool_choice", "\"required\" needs `tools`."),
        (r#""tool_choice":"some""#, "tool_choice", r#"expected "auto", "none" or "required", got another string."#),
        (r#""tool_choice":5"#, "tool_choice", r#"expected "auto", "none" or "required" or an object, got a number."#),
        (r#""tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"g"}}"#, "tool_choice.function.name", "expected the name of one of the declared tools."),
        (r#""tools":[{"type":"function","function":{"name":"f"}}],"functions":[{"name":"g"}]"#, "functions", "expected either `tools` or `functions`, got both."),
        (r#""temperature":1,"temperature":1"#, "temperature", "the key comes more than once."),
        (r#""model":"x""#, "model", "the key comes more than once."),
        (r#""mod\u0065l":"x""#, "model", "the key comes more than once."),
        (r#""same":1,"same":2"#, "same", "the key comes more than once."),
        (r#""my secret":1,"my secret":2"#, "", "A key of the request body comes more than once."),
        (r#""stream_options":{"include_usage":true,"include_usage":true}"#, "stream_options.include_usage", "the key comes more than once."),
        (r#""stream_options":{"x":1,"y":1,"x":2}"#, "stream_options.x", "the key comes more than once."),
        (r#""continue_final_message":true"#, "continue_final_message", "expected the last message to be the assistant's."),
    ] {
        let body = with(members);
        assert_refused(ask_chat(&body), field, says, &body);
    }
}

#[test]
#[rustfmt::skip]
fn bad_messages_are_refused_by_their_path() {
    let image = |url: &str| format!(r#"{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"{url}"}}}}]}}"#);
    let url = "messages[0].content[0].image_url.url";
    let roles = r#""system", "developer", "user", "assistant", "tool" or "function""#;
    let parts = r#""text", "image_url", "input_audio" or "file""#;
    for (messages, field, says) in [
        ("".to_owned(), "messages", "expected at least one message.".to_owned()),
        ("5".into(), "messages[0]", "expected an object, got a number.".into()),
        ("{}".into(), "messages[0].role", format!("expected {roles}, but it is missing.")),
        (r#"{"role":"robot","content":""}"#.into(), "messages[0].role", format!("expected {roles}, got another string.")),
        (r#"{"role":5,"content":""}"#.into(), "messages[0].role", format!("expected {roles}, got a number.")),
        (r#"{"role":"user"}"#.into(), "messages[0].content", "expected a string or an array of content parts, but it is missing.".into()),
        (r#"{"role":"user","content":null}"#.into(), "messages[0].content", "expected a string or an array of content parts, but it is missing.".into()),
        (r#"{"role":"user","content":[]}"#.into(), "messages[0].content", "expected at least one content part.".into()),
        (r#"{"role":"user","content":{"a":1}}"#.into(), "messages[0].content", "expected a string or an array of content parts, got an object.".into()),
        (r#"{"role":"user","content":["x"]}"#.into(), "messages[0].content[0]", "expected an object, got a string.".into()),
        (r#"{"role":"user","content":[{"text":"x"}]}"#.into(), "messages[0].content[0].type", format!("expected {parts}, but it is missing.")),
        (r#"{"role":"user","content":[{"type":"image"}]}"#.into(), "messages[0].content[0].type", format!("expected {parts}, got another string.")),
        (r#"{"role":"user","content":[{"type":"video_url","video_url":{}}]}"#.into(), "messages[0].content[0].type", "video is not supported.".into()),
        (r#"{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":7}]}"#.into(), "messages[0].content[1].text", "expected a string, got a number.".into()),
        (r#"{"role":"user","content":"a","role":"user"}"#.into(), "messages[0].role", "the key comes more than once.".into()),
        (r#"{"role":"user","content":"a","name":7}"#.into(), "messages[0].name", "expected a string, got a number.".into()),
        (r#"{"role":"system","content":[{"type":"image_url","image_url":{"url":"https://a/b"}}]}"#.into(), "messages[0].content[0].type", r#"expected "text", got another string."#.into()),
        (image("ftp://a/b"), url, "expected a data: URL of an image or an https: URL, got a string that is neither.".into()),
        (image("file:///etc/passwd"), url, "expected a data: URL of an image or an https: URL, got a string that is neither.".into()),
        (image(""), url, "expected a data: URL of an image or an https: URL, got a string that is neither.".into()),
        (image("https://"), url, "expected an https: URL with a host.".into()),
        (image("https://a/ b"), url, "expected an https: URL with a host.".into()),
        (image("data:image/png;base64"), url, "expected a data: URL with a media type, \";base64\" and a comma.".into()),
        (image("data:image/png,AAAA"), url, "expected a data: URL in base64.".into()),
        (image("data:text/html;base64,AAAA"), url, "expected a data: URL of media type image/….".into()),
        (image("data:image/;base64,AAAA"), url, "expected a data: URL of media type image/….".into()),
        (image("data:;base64,AAAA"), url, "expected a data: URL of media type image/….".into()),
        (image("data:image/png;base64,"), url, "expected base64 (standard alphabet, padded).".into()),
        (image("data:image/png;base64,AA-_"), url, "expected base64 (standard alphabet, padded).".into()),
        (image("data:image/png;base64,AAA"), url, "expected base64 (standard alphabet, padded).".into()),
        (r#"{"role":"user","content":[{"type":"image_url","image_url":{"url":5}}]}"#.into(), url, "expected a data: URL of an image or an https: URL, got a number.".into()),
        (r#"{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://a/b","detail":"huge"}}]}"#.into(), "messages[0].content[0].image_url.detail", r#"expected "auto", "low", "high" or "original", got another string."#.into()),
        (r#"{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AAAA","format":"ogg"}}]}"#.into(), "messages[0].content[0].input_audio.format", r#"expected "wav" or "mp3", got another string."#.into()),
        (r#"{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"A","format":"wav"}}]}"#.into(), "messages[0].content[0].input_audio.data", "expected base64 (standard alphabet, padded).".into()),
        (r#"{"role":"user","content":[{"type":"file","file":{"file_id":"f"}}]}"#.into(), "messages[0].content[0].file.file_id", "files by id are not supported; send `file_data`.".into()),
        (r#"{"role":"tool","tool_call_id":"c1","content":"x"}"#.into(), "messages[0].tool_call_id", "expected the id of a tool call of an earlier assistant message.".into()),
        (format!(r#"{CALL},{{"role":"tool","content":"x"}}"#), "messages[1].tool_call_id", "expected a string, but it is missing.".into()),
        (format!(r#"{CALL},{{"role":"tool","tool_call_id":"c2","content":"x"}}"#), "messages[1].tool_call_id", "expected the id of a tool call of an earlier assistant message.".into()),
        (CALL.replace(r#""c1""#, "null"), "messages[0].tool_calls[0].id", "expected a string, but it is missing.".into()),
        (CALL.replace(r#""{}""#, "{}"), "messages[0].tool_calls[0].function.arguments", "expected a string, got an object.".into()),
        (CALL.replace(r#""function","function""#, r#""custom","function""#), "messages[0].tool_calls[0].type", r#"only calls of type "function" are supported, not "custom"."#.into()),
        (r#"{"role":"function","name":"f","content":"x"}"#.into(), "messages[0].name", "expected the name of a function called by an earlier assistant message.".into()),
        (r#"{"role":"assistant","content":5}"#.into(), "messages[0].content", "expected a string or an array of content parts, got a number.".into()),
        (r#"{"role":"assistant","content":"a","reasoning_content":[]}"#.into(), "messages[0].reasoning_content", "expected a string, got an array.".into()),
    ] {
        let body = conversation(&messages);
        assert_refused(ask_chat(&body), field, &says, &body);
    }
    for (body, field, says) in [
        ("[]", "", "The request body: expected an object, got an array."),
        ("", "", "The request body is empty: expected a JSON object."),
        ("{}", "model", "expected the name of a model, but it is missing."),
        (r#"{"model":"m"}"#, "messages", "expected an array of messages, but it is missing."),
        (r#"{"model":"","messages":[]}"#, "model", "expected a string that is not empty."),
        (r#"{"model":["m"],"messages":[]}"#, "model", "expected a string, got an array."),
        (r#"{"model":"m","messages":"hi"}"#, "messages", "expected an array, got a string."),
    ] {
        assert_refused(ask_chat(body), field, says, body);
    }
}

/// The messages as a provider gets them.
fn canonical(messages: &str) -> Value {
    edited(&taken(&conversation(messages)))["messages"].clone()
}

#[test]
fn an_answer_of_ours_comes_back_without_what_engines_reject() {
    let echo = r#"{"role":"assistant","content":"Hi","refusal":null,"annotations":[],"audio":null,"function_call":null,
        "tool_calls":null,"name":null,"reasoning_content":"because","odd":{"x":[1]}}"#;
    assert_eq!(
        canonical(echo),
        json!([{"role": "assistant", "content": "Hi", "reasoning_content": "because"}])
    );
    let call = r#"{"annotations":null,"content":null,"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{}","x":1}}],"role":"assistant"},
        {"role":"tool","tool_call_id":"c1","content":null,"is_error":false}"#;
    assert_eq!(
        canonical(call),
        json!([{"content": null, "role": "assistant", "tool_calls":
            [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": ""}])
    );
    for (from, content) in [
        (r#"{"role":"assistant"}"#, ""),
        (r#"{"role":"assistant","content":null,"tool_calls":[]}"#, ""),
        (r#"{"content":[],"role":"assistant"}"#, ""),
        (r#"{"role":"assistant","content":null,"refusal":"No \"way\""}"#, "No \"way\""),
    ] {
        assert_eq!(canonical(from), json!([{"role": "assistant", "content": content}]));
    }
    let refusal = r#"{"role":"assistant","content":[{"refusal":"No","type":"refusal"},{"type":"text","text":"x","cache_control":{}}]}"#;
    assert_eq!(
        canonical(refusal),
        json!([{"role": "assistant", "content": [{"text": "No", "type": "text"}, {"type": "text", "text": "x"}]}])
    );
}

#[test]
fn developers_are_systems_and_pictures_have_their_canonical_shape() {
    assert_eq!(
        canonical(r#"{"role":"developer","content":"x"}"#),
        json!([{"role": "system", "content": "x"}])
    );
    let parts = r#"{"role":"user","name":null,"content":[{"uuid":"u","type":"image_url","image_url":"https://a.eu/b"},
        {"type":"image_url","image_url":{"detail":"original","url":"HTTPS://a","x":1}},
        {"type":"image_url","image_url":{"url":"data:image\/png;base64,iV\u002BO\/w==","detail":null}}]}"#;
    assert_eq!(
        canonical(parts),
        json!([{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "https://a.eu/b"}},
            {"type": "image_url", "image_url": {"detail": "high", "url": "HTTPS://a"}},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iV+O/w=="}}]}])
    );
    let ask = taken(&conversation(parts));
    assert!(ask.needs.images && ask.needs.image_urls && ask.images == 3);
}

#[test]
fn functions_of_old_become_tools() {
    let body = format!(
        r#"{{"model":"m","functions":[{{"name":"f","parameters":{{}},"description":null}},{{"name":"g"}}],"tools":null,"function_call":{{"name":"g"}},"messages":[{}]}}"#,
        r#"{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}},{"role":"function","name":"f","content":"1"},
           {"role":"assistant","function_call":{"name":"f","arguments":"{}"}},{"role":"function","name":"f","content":null}"#
    );
    let ask = taken(&body);
    let call =
        |id: &str| json!([{"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}}]);
    assert_eq!(
        edited(&ask),
        json!({"model": "m",
            // A null member of the new name takes the old one.
            "functions": null,
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}, {"type": "function", "function": {"name": "g"}}],
            "tool_choice": {"type": "function", "function": {"name": "g"}},
            "messages": [
                {"role": "assistant", "content": null, "tool_calls": call("call_legacy_0")},
                {"role": "tool", "tool_call_id": "call_legacy_0", "name": "f", "content": "1"},
                {"role": "assistant", "content": null, "tool_calls": call("call_legacy_1")},
                {"role": "tool", "tool_call_id": "call_legacy_1", "name": "f", "content": ""}]})
    );
    assert!(ask.needs.tools);
    for ask in [ask, taken(&body.replace(r#""tools":null,"#, ""))] {
        assert_eq!(ask.value("tools").unwrap()[0], b'[');
        assert_eq!(ask.value("tool_choice").unwrap(), br#"{"name":"g"}"#);
        assert!(ask.value("functions").is_none() && ask.value("function_call").is_none());
    }
}

#[test]
fn only_allowed_tools_stay() {
    let tool = |name: &str| {
        format!(r#"{{"type":"function","cache_control":{{}},"function":{{"name":"{name}","strict":null}}}}"#)
    };
    let tools = format!("\"tools\":[{},{} , {}]", tool("a"), tool("b"), tool("c"));
    for (mode, allowed) in [("auto", vec!["b"]), ("required", vec!["c", "a"]), ("auto", vec!["a", "b", "c"])]
    {
        let list: Vec<_> =
            allowed.iter().map(|name| json!({"type": "function", "function": {"name": name}})).collect();
        let choice = json!({"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list}});
        let got = edited(&taken(&with(&format!("{tools},\"tool_choice\":{choice}"))));
        let names: Vec<_> =
            got["tools"].as_array().unwrap().iter().map(|tool| tool["function"]["name"].clone()).collect();
        let expected: Vec<_> = ["a", "b", "c"].into_iter().filter(|name| allowed.contains(name)).collect();
        assert_eq!(
            (names, &got["tool_choice"]),
            (expected.into_iter().map(Value::from).collect(), &Value::from(mode))
        );
        assert_eq!(got["tools"][0].as_object().unwrap().len(), 2);
    }
    let body = with(&format!(
        r#"{tools},"tool_choice":{{"type":"allowed_tools","allowed_tools":{{"mode":"auto","tools":[{{"type":"function","function":{{"name":"x"}}}}]}}}}"#
    ));
    let field = "tool_choice.allowed_tools.tools[0].function.name";
    assert_refused(ask_chat(&body), field, "expected the name of one of the declared tools.", &body);
}

#[test]
fn efforts_are_folded_to_the_contracts_three() {
    for (from, to) in [
        ("minimal", "low"),
        ("low", "low"),
        ("medium", "medium"),
        ("high", "high"),
        ("xhigh", "high"),
        ("max", "high"),
        ("none", "none"),
    ] {
        assert_eq!(
            edited(&taken(&with(&format!("\"reasoning_effort\":\"{from}\""))))["reasoning_effort"],
            to
        );
    }
}

#[test]
fn what_some_providers_do_not_take_is_seen() {
    let said = |messages: &str| taken(&conversation(messages)).said;
    let user = r#"{"role":"user","content":"\"reasoning\" \"tool_call_id\" \"system\""}"#;
    let system = r#"{"role":"system","content":"s"}"#;
    assert_eq!(said(&format!("{system},{user}")), Said::default());
    for role in ["system", "developer", r"s\u0079stem"] {
        let later = system.replace("system", role);
        assert_eq!(said(&format!("{user},{later}")), Said { later_system: true, ..Said::default() });
    }
    let result = r#"{"role":"tool","tool_call_id":"c1","content":"r"}"#;
    let called = Said { calls: true, ..Said::default() };
    assert_eq!(said(&format!("{user},{CALL},{result}")), Said { results: true, ..called });
    for name in ["reasoning", "reasoning_content"] {
        let thought = format!(r#"{user},{{"role":"assistant","content":"a","{name}":"t"}},{user}"#);
        assert_eq!(said(&thought), Said { reasoning: true, ..Said::default() });
    }
}

#[test]
fn a_prefill_is_one_only_when_it_is_said_to_be() {
    let last = r#"{"role":"user","content":"a"},{"role":"assistant","content":"b"}"#;
    assert!(!taken(&conversation(last)).needs.prefill);
    let marked = last.replace(r#""b""#, r#""b","prefix":true"#);
    assert!(taken(&conversation(&marked)).needs.prefill);
    assert_eq!(canonical(&marked)[1], json!({"role": "assistant", "content": "b"}));
    let continued = format!(r#"{{"model":"m","continue_final_message":true,"messages":[{last}]}}"#);
    assert!(taken(&continued).needs.prefill);
}

#[test]
fn inline_media_is_no_prompt_text() {
    let media = "A".repeat(40_000);
    let body = conversation(&format!(
        r#"{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"data:image/webp;base64,{media}"}}}},
        {{"type":"input_audio","input_audio":{{"data":"{media}","format":"wav"}}}},
        {{"type":"file","file":{{"filename":"a.pdf","file_data":"data:application/pdf;base64,{media}"}}}},{{"type":"text","text":"{}"}}]}}"#,
        "x".repeat(1000)
    ));
    let ask = taken(&body);
    assert!(ask.prompt_bytes > 1000 && ask.prompt_bytes < 1500, "{}", ask.prompt_bytes);
    assert!(ask.needs.images && ask.needs.audio && ask.needs.files && !ask.needs.image_urls);
    assert_eq!(ask.images, 1);
}

#[test]
fn features_that_are_not_there_have_a_code_of_their_own() {
    let code = |members: &str| ask_chat(&with(members)).unwrap_err().code;
    assert_eq!(code(r#""tools":[{"type":"web_search"}]"#), Code::Unsupported);
    assert_eq!(code(r#""modalities":["audio"]"#), Code::Unsupported);
    assert_eq!(code(r#""n":99"#), Code::InvalidRequest);
}
