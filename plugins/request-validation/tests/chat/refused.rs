//! Tests of refused requests: each error names the path of the field, the expected and the actual value.

use crate::support::{ask_chat, assert_refused};
use crate::{CALL, conversation, with};
use penstock_core::ErrorCode;

#[test]
#[rustfmt::skip]
fn an_invalid_value_is_rejected_with_field_expectation_and_value() {
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
        (r#""reasoning_effort":"huge""#, "reasoning_effort", r#"expected "none", "minimal", "low", "medium", "high", "xhigh", "max" or "default", got another string."#),
        (r#""reasoning":{"effort":"huge"}"#, "reasoning.effort", r#"expected "none", "minimal", "low", "medium", "high", "xhigh", "max" or "default", got another string."#),
        (r#""reasoning":"high""#, "reasoning", "expected an object, got a string."),
        (r#""thinking":{"type":"on"}"#, "thinking.type", r#"expected "enabled", "disabled", "adaptive" or "auto", got another string."#),
        (r#""thinking":"on""#, "thinking", "expected a boolean, got a string."),
        (r#""enable_thinking":"no""#, "enable_thinking", "expected a boolean, got a string."),
        (r#""chat_template_kwargs":[]"#, "chat_template_kwargs", "expected an object, got an array."),
        (r#""chat_template_kwargs":{"x":1,"enable_thinking":"false"}"#, "chat_template_kwargs.enable_thinking", "expected a boolean, got a string."),
        (r#""chat_template_kwargs":{"thinking":0}"#, "chat_template_kwargs.thinking", "expected a boolean, got a number."),
        (r#""chat_template_kwargs":{"enable_thinking":false,"enable_thinking":true}"#, "chat_template_kwargs.enable_thinking", "the key occurs more than once."),
        (r#""chat_template_kwargs":{"x":1,"y":2,"x":3}"#, "chat_template_kwargs.x", "the key occurs more than once."),
        (r#""response_format":"json""#, "response_format", "expected an object, got a string."),
        (r#""output_config":{"effort":"huge"}"#, "output_config.effort", r#"expected "none", "minimal", "low", "medium", "high", "xhigh", "max" or "default", got another string."#),
        (r#""output_config":"low""#, "output_config", "expected an object, got a string."),
        (r#""response_format":{}"#, "response_format.type", r#"expected "text", "json_object" or "json_schema", but it is missing."#),
        (r#""response_format":{"type":"json_object","schema":5}"#, "response_format.schema", "expected an object, got a number."),
        (r#""response_format":{"type":"xml"}"#, "response_format.type", r#"expected "text", "json_object" or "json_schema", got another string."#),
        (r#""response_format":{"type":"json_schema"}"#, "response_format.json_schema", "expected an object, but it is missing."),
        (r#""response_format":{"type":"json_schema","json_schema":{"schema":{}}}"#, "response_format.json_schema.name", "expected a string, but it is missing."),
        (r#""response_format":{"type":"json_schema","json_schema":{"name":"n"}}"#, "response_format.json_schema.schema", "expected a JSON schema, but it is missing."),
        (r#""response_format":{"type":"json_schema","json_schema":{"name":"n","schema":[]}}"#, "response_format.json_schema.schema", "expected an object, got an array."),
        (r#""logit_bias":{"5":101}"#, "logit_bias", "expected an object of token ids and numbers from -100 to 100."),
        (r#""logit_bias":{"5":1,"6":2,"5":3}"#, "logit_bias", "a key occurs more than once."),
        (r#""modalities":["text","audio"]"#, "modalities[1]", "only answers in text are supported."),
        (r#""audio":{"voice":"x"}"#, "audio", "audio output is not supported."),
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
        (r#""temperature":1,"temperature":1"#, "temperature", "the key occurs more than once."),
        (r#""model":"x""#, "model", "the key occurs more than once."),
        (r#""mod\u0065l":"x""#, "model", "the key occurs more than once."),
        (r#""same":1,"same":2"#, "same", "the key occurs more than once."),
        (r#""my secret":1,"my secret":2"#, "", "A key of the request body occurs more than once."),
        (r#""stream_options":{"include_usage":true,"include_usage":true}"#, "stream_options.include_usage", "the key occurs more than once."),
        (r#""stream_options":{"x":1,"y":1,"x":2}"#, "stream_options.x", "the key occurs more than once."),
        (r#""continue_final_message":true"#, "continue_final_message", "expected the last message to be the assistant's."),
    ] {
        let body = with(members);
        assert_refused(ask_chat(&body), field, says, &body);
    }
}

#[test]
fn a_type_is_quoted_only_if_it_is_an_identifier() {
    for (kind, quoted) in [("custom", ", not \"custom\""), ("my tool", ""), ("", ""), ("ü", "")] {
        let call = format!(r#"{{"id":"c","type":"{kind}","function":{{"name":"f"}}}}"#);
        let body = conversation(&format!(r#"{{"role":"assistant","tool_calls":[{call}]}}"#));
        let says = format!("only calls of type \"function\" are supported{quoted}.");
        assert_refused(ask_chat(&body), "messages[0].tool_calls[0].type", &says, &body);
        let body = with(&format!(r#""tools":[{{"type":"{kind}"}}]"#));
        let says = format!("only \"function\" is supported{quoted}.");
        assert_refused(ask_chat(&body), "tools[0].type", &says, &body);
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
        (r#"{"role":"user","content":"a","role":"user"}"#.into(), "messages[0].role", "the key occurs more than once.".into()),
        (r#"{"role":"user","content":"a","name":7}"#.into(), "messages[0].name", "expected a string, got a number.".into()),
        (r#"{"role":"system","content":[{"type":"image_url","image_url":{"url":"https://a/b"}}]}"#.into(), "messages[0].content[0].type", r#"expected "text", got another string."#.into()),
        (image("ftp://a/b"), url, "expected a data: URL of an image, or an http: or https: URL, got another string.".into()),
        (image("file:///etc/passwd"), url, "expected a data: URL of an image, or an http: or https: URL, got another string.".into()),
        (image(""), url, "expected a data: URL of an image, or an http: or https: URL, got another string.".into()),
        (image("https://"), url, "expected an http: or https: URL with a host.".into()),
        (image("https://a/ b"), url, "expected an http: or https: URL with a host.".into()),
        (image("data:image/png;base64"), url, "expected a data: URL with a media type, \";base64\" and a comma.".into()),
        (image("data:image/png,AAAA"), url, "expected a data: URL in base64.".into()),
        (image("data:text/html;base64,AAAA"), url, "expected a data: URL of media type image/….".into()),
        (image("data:image/;base64,AAAA"), url, "expected a data: URL of media type image/….".into()),
        (image("data:;base64,AAAA"), url, "expected a data: URL of media type image/….".into()),
        (image("data:image/png;base64,"), url, "expected base64 (standard alphabet, padded).".into()),
        (image("data:image/png;base64,AA-_"), url, "expected base64 (standard alphabet, padded).".into()),
        (image("data:image/png;base64,AAA"), url, "expected base64 (standard alphabet, padded).".into()),
        (r#"{"role":"user","content":[{"type":"image_url","image_url":{"url":5}}]}"#.into(), url, "expected a data: URL of an image, or an http: or https: URL, got a number.".into()),
        (r#"{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://a/b","detail":"huge"}}]}"#.into(), "messages[0].content[0].image_url.detail", r#"expected "auto", "low", "high" or "original", got another string."#.into()),
        (r#"{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AAAA","format":"ogg"}}]}"#.into(), "messages[0].content[0].input_audio.format", r#"expected "wav" or "mp3", got another string."#.into()),
        (r#"{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"A","format":"wav"}}]}"#.into(), "messages[0].content[0].input_audio.data", "expected base64 (standard alphabet, padded).".into()),
        (r#"{"role":"user","content":[{"type":"file","file":{"file_id":"f"}}]}"#.into(), "messages[0].content[0].file.file_id", "files by id are not supported; send `file_data`.".into()),
        (r#"{"role":"tool","tool_call_id":"c1","content":"x"}"#.into(), "messages[0].tool_call_id", "expected the id of a tool call of an earlier assistant message.".into()),
        (format!(r#"{CALL},{{"role":"tool","content":"x"}}"#), "messages[1].tool_call_id", "expected a string, but it is missing.".into()),
        (format!(r#"{CALL},{{"role":"tool","tool_call_id":"c2","content":"x"}}"#), "messages[1].tool_call_id", "expected the id of a tool call of an earlier assistant message.".into()),
        (CALL.replace(r#""c1""#, "null"), "messages[0].tool_calls[0].id", "expected a string, but it is missing.".into()),
        (CALL.replace(r#""{}""#, "[]"), "messages[0].tool_calls[0].function.arguments", "expected a string, got an array.".into()),
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

#[test]
fn limits_in_bytes_count_the_text_without_escapes() {
    let body = |model: usize, tool: usize, stop: usize| {
        let text = |characters: usize| r"\u00e9".repeat(characters);
        let (model, tool, stop) = (text(model), text(tool), text(stop));
        format!(
            r#"{{"model":"{model}","messages":[{{"role":"user","content":"x"}}],"stop":["{stop}"],
               "tools":[{{"type":"function","function":{{"name":"{tool}"}}}}]}}"#
        )
    };
    assert!(ask_chat(&body(128, 128, 512)).is_ok());
    for (body, field, says) in [
        (body(129, 1, 1), "model", "expected a string of at most 256 bytes."),
        (body(1, 129, 1), "tools[0].function.name", "expected a string of at most 256 bytes."),
        (body(1, 1, 513), "stop[0]", "expected at most 1024 bytes."),
    ] {
        assert_refused(ask_chat(&body), field, says, &body);
    }
}

#[test]
fn features_that_are_not_there_have_a_code_of_their_own() {
    let code = |members: &str| ask_chat(&with(members)).unwrap_err().code;
    assert_eq!(code(r#""tools":[{"type":"web_search"}]"#), ErrorCode::Unsupported);
    assert_eq!(code(r#""modalities":["audio"]"#), ErrorCode::Unsupported);
    assert_eq!(code(r#""n":99"#), ErrorCode::InvalidRequest);
}

#[test]
fn each_byte_of_a_long_image_is_checked() {
    let url = |data: &str| {
        conversation(&format!(
            r#"{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{data}"}}}}]}}"#
        ))
    };
    for length in [4_096, 8_192, 8_260, 80_000] {
        let data = "Ab9+".repeat(length / 4);
        assert!(ask_chat(&url(&data)).is_ok());
        assert!(ask_chat(&url(&format!("{}YQ==", &data[4..]))).is_ok());
        assert!(ask_chat(&url(&format!("{data}A"))).is_err(), "not a whole group");
        for at in [0, 1, 63, 64, 4_000, 4_095, length / 2, length - 65, length - 64, length - 1] {
            for foreign in ["-", "=", " "] {
                let is_padding = foreign == "=" && at == length - 1;
                let mut data = data.clone();
                data.replace_range(at..=at, foreign);
                assert_eq!(ask_chat(&url(&data)).is_ok(), is_padding, "{foreign:?} at {at} of {length}");
            }
        }
    }
}
