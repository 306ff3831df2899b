//! Tests of the chat form of a request.

use crate::{accepted, member, with};
use penstock_core::{EarlierAnswerMessage, ReasoningDisplay, encode_opaque_reasoning};
use serde_json::{Value, json};

fn messages(input: &Value) -> Value {
    member(&accepted(&with(&format!(r#""input":{input}"#))), "messages")
}

#[test]
fn instructions_come_first_and_empty_ones_are_left_out() {
    let ask =
        accepted(&with(r#""instructions":"Be \"brief\".","input":[{"role":"developer","content":"More"}]"#));
    assert_eq!(
        member(&ask, "messages"),
        json!([{"role": "system", "content": "Be \"brief\"."}, {"role": "system", "content": "More"}])
    );
    let ask = accepted(&with(r#""instructions":"","input":"Hi""#));
    assert_eq!(member(&ask, "messages"), json!([{"role": "user", "content": "Hi"}]));
}

#[test]
fn parts_become_parts_of_chat() {
    let input = json!([{"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": "See \u{e9}\n"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low", "file_id": null},
        {"type": "input_image", "image_url": "https://example.org/a.png"},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]}]);
    let ask = accepted(&with(&format!(r#""input":{input}"#)));
    assert_eq!(
        (ask.image_count, ask.required.images, ask.required.image_urls, ask.required.audio),
        (2, true, true, true)
    );
    assert_eq!(
        member(&ask, "messages"),
        json!([{"role": "user", "content": [
            {"type": "text", "text": "See \u{e9}\n"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]}])
    );
}

#[test]
fn arguments_may_be_absent_or_an_object() {
    for (arguments, text) in [
        ("", "{}"),
        (r#","arguments":null"#, "{}"),
        (r#","arguments":"""#, "{}"),
        (r#","arguments":"null""#, "{}"),
        (r#","arguments":{}"#, "{}"),
        (r#","arguments":{"a":"\"b\""}"#, r#"{"a":"\"b\""}"#),
        (r#","arguments":"{\"a\":""#, r#"{"a":"#),
    ] {
        let input = format!(
            r#""input":[{{"type":"function_call","call_id":"c","name":"f"{arguments}}},{{"type":"function_call_output","call_id":"c","output":"1"}}]"#
        );
        let messages = member(&accepted(&with(&input)), "messages");
        assert_eq!(messages[0]["tool_calls"][0]["function"]["arguments"], text, "{input}");
    }
}

#[test]
fn items_of_one_answer_become_one_message() {
    let input = json!([
        {"role": "user", "content": "Go"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "A\"b"}]},
        {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
            "content": [{"type": "output_text", "text": "Let ", "annotations": []},
                {"type": "refusal", "refusal": "me."}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{\"a\":\"\\\"\"}"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "g", "input": "x\n\"y\" \\ \u{e9}"},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "2"}]},
        {"type": "message", "role": "assistant", "content": "Done"},
    ]);
    let input_of_g = json!({"input": "x\n\"y\" \\ \u{e9}"}).to_string();
    assert_eq!(
        messages(&input),
        json!([
            {"role": "user", "content": "Go"},
            {"role": "assistant", "content": "Let me.", "reasoning_content": "A\"b", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":\"\\\"\"}"}},
                {"id": "c2", "type": "function", "function": {"name": "g", "arguments": input_of_g}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "1"},
            {"role": "tool", "tool_call_id": "c2", "content": "2"},
            {"role": "assistant", "content": "Done"},
        ])
    );
}

#[test]
fn reasoning_is_read_from_its_sealed_form_its_content_or_its_summary() {
    let answer = |reasoning: Value| {
        let mut item = json!({"type": "reasoning", "id": "rs_1"});
        item.as_object_mut().unwrap().extend(reasoning.as_object().unwrap().clone());
        messages(&json!([item, {"role": "assistant", "content": "x"}]))[0]["reasoning_content"].clone()
    };
    let sealed = encode_opaque_reasoning("sealed \u{1F600}");
    let text = |kind: &str, text: &str| json!([{"type": kind, "text": text}]);
    let summary = text("summary_text", "summary");
    assert_eq!(answer(json!({"summary": summary, "encrypted_content": sealed})), "sealed \u{1F600}");
    assert_eq!(answer(json!({"summary": summary, "content": text("reasoning_text", "content")})), "content");
    assert_eq!(answer(json!({"summary": summary, "content": null, "encrypted_content": null})), "summary");
    // No provider can read content that another vendor encrypted, and the summary comes from another model, so both
    // are dropped.
    assert_eq!(answer(json!({"summary": summary, "encrypted_content": "gAAAA"})), Value::Null);
    // Reasoning of an interrupted answer, without text or calls, is dropped.
    assert_eq!(
        messages(&json!([{"type": "reasoning", "summary": [], "content": text("reasoning_text", "a")},
            {"role": "user", "content": "Go"}])),
        json!([{"role": "user", "content": "Go"}])
    );
}

#[test]
fn tools_become_functions() {
    let tools = json!([
        {"type": "function", "name": "f", "description": "F", "parameters": {"type": "object"}, "strict": true},
        {"type": "custom", "name": "g", "description": "G", "format": {"type": "text"}},
        {"type": "custom", "name": "h", "format": {"type": "grammar", "syntax": "regex", "definition": "\\d+\n"}},
        {"type": "namespace", "name": "ns", "description": "N", "tools": [{"type": "function", "name": "f"}]},
    ]);
    let ask = accepted(&with(&format!(r#""input":"Hi","tools":{tools}"#)));
    let tools = member(&ask, "tools");
    assert_eq!(
        tools[0],
        json!({"type": "function", "function": {"name": "f", "description": "F", "parameters": {"type": "object"},
            "strict": true}})
    );
    let schema = json!({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"],
        "additionalProperties": false});
    assert_eq!(tools[1]["function"]["parameters"], schema);
    let description = tools[1]["function"]["description"].as_str().unwrap();
    assert!(description.starts_with("G\n\n") && description.contains("`input`"), "{description}");
    assert!(tools[2]["function"]["description"].as_str().unwrap().ends_with("(regex):\n\\d+\n"));
    assert_eq!(tools[3], json!({"type": "function", "function": {"name": "ns__f"}}));
    let details = ask.responses.unwrap();
    assert!(details.mapped_tool("f").is_none());
    assert!(details.mapped_tool("g").unwrap().is_custom);
    let in_namespace = details.mapped_tool("ns__f").unwrap();
    assert_eq!((in_namespace.namespace.as_deref(), &*in_namespace.name), (Some("ns"), "f"));
}

#[test]
fn a_tool_choice_has_the_form_of_chat() {
    let tools =
        r#"[{"type":"function","name":"f"},{"type":"function","name":"g"},{"type":"custom","name":"c"}]"#;
    let function = |name: &str| json!({"type": "function", "function": {"name": name}});
    for (choice, converted) in [
        (json!("none"), json!("none")),
        (json!({"type": "function", "name": "f"}), function("f")),
        (json!({"type": "custom", "name": "c"}), function("c")),
    ] {
        let ask = accepted(&with(&format!(r#""input":"Hi","tools":{tools},"tool_choice":{choice}"#)));
        assert_eq!(member(&ask, "tool_choice"), converted);
    }
    let allowed = json!({"type": "allowed_tools", "mode": "required",
        "tools": [{"type": "function", "name": "g"}, {"type": "custom", "name": "c"}]});
    let ask = accepted(&with(&format!(r#""input":"Hi","tools":{tools},"tool_choice":{allowed}"#)));
    let body = crate::support::edited(&ask);
    assert_eq!(body["tool_choice"], "required");
    let names: Vec<&str> = body["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["g", "c"]);
}

#[test]
fn a_namespace_in_allowed_tools_allows_all_its_tools() {
    let tools = json!([
        {"type": "function", "name": "f"},
        {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "c"}]},
        {"type": "namespace", "name": "empty", "tools": []},
    ]);
    let body = |name: &str| {
        let allowed =
            json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "namespace", "name": name}]});
        with(&format!(r#""input":"Hi","tools":{tools},"tool_choice":{allowed}"#))
    };
    let edited = crate::support::edited(&accepted(&body("ns")));
    let tools = edited["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["ns__f", "ns__c"]);
    for unknown in ["empty", "f", "other"] {
        let refusal = crate::support::ask_responses(&body(unknown)).unwrap_err();
        assert_eq!(refusal.param.as_deref(), Some("tool_choice.tools[0].name"), "{unknown}");
    }
}

#[test]
fn formats_and_reasoning_have_the_form_of_chat() {
    let format = json!({"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": true,
        "description": "d"});
    let ask = accepted(&with(&format!(r#""input":"Hi","text":{{"format":{format},"verbosity":"low"}}"#)));
    assert!(ask.required.json_schema);
    assert_eq!(
        member(&ask, "response_format"),
        json!({"type": "json_schema", "json_schema":
            {"name": "n", "description": "d", "schema": {"type": "object"}, "strict": true}})
    );
    assert_eq!(member(&ask, "verbosity"), "low");
    let ask = accepted(&with(
        r#""input":"Hi","text":{"format":{"type":"json_object","schema":{"type":"object"}}}"#,
    ));
    assert_eq!(
        member(&ask, "response_format"),
        json!({"type": "json_schema", "json_schema": {"name": "output", "schema": {"type": "object"}}})
    );
    let ask = accepted(&with(r#""input":"Hi","text":{"format":{"type":"json_object"}}"#));
    assert!(ask.required.json_object);
    for (reasoning, display) in [
        (r#"{"effort":"low"}"#, ReasoningDisplay::Content),
        (r#"{"summary":"none"}"#, ReasoningDisplay::Content),
        (r#"{"summary":"detailed"}"#, ReasoningDisplay::Summary),
        (r#"{"generate_summary":"concise"}"#, ReasoningDisplay::Summary),
        (r#"{"mode":"standard","context":"auto","effort":null}"#, ReasoningDisplay::Content),
    ] {
        let ask = accepted(&with(&format!(r#""input":"Hi","reasoning":{reasoning}"#)));
        assert_eq!(ask.responses.unwrap().reasoning, display, "{reasoning}");
    }
    let ask = accepted(&with(
        r#""input":"Hi","top_logprobs":2,"include":["message.output_text.logprobs","web_search_call.results"]"#,
    ));
    assert!(ask.required.logprobs);
    assert_eq!((member(&ask, "logprobs"), member(&ask, "top_logprobs")), (json!(true), json!(2)));
}

#[test]
fn the_reasoning_of_other_vendors_is_that_of_chat() {
    for (reasoning, effort, kept) in [
        (json!({"enabled": false}), Value::Null, true),
        (json!({"max_tokens": 9000, "summary": "auto"}), Value::Null, true),
        (json!({"enabled": true, "effort": "low"}), json!("low"), false),
        (json!({"effort": "low"}), json!("low"), false),
        (json!({"enabled": null}), Value::Null, false),
    ] {
        let ask = accepted(&with(&format!(r#""input":"Hi","reasoning":{reasoning}"#)));
        assert_eq!(member(&ask, "reasoning_effort"), effort, "{reasoning}");
        assert_eq!(member(&ask, "reasoning"), if kept { reasoning } else { Value::Null });
    }
}

#[test]
fn messages_of_one_answer_are_joined_by_a_blank_line_and_keep_their_phases() {
    let text = |phase: Value, text: &str| json!({"type": "message", "role": "assistant", "phase": phase, "content": [{"type": "output_text", "text": text}]});
    let input = json!([{"role": "user", "content": "Hi"}, text(json!("commentary"), "I \"look\"."),
        text(Value::Null, ""), text(json!("final_answer"), "Done."), {"role": "user", "content": "More"},
        {"role": "assistant", "content": "One"}]);
    let ask = accepted(&with(&format!(r#""input":{input}"#)));
    let messages = member(&ask, "messages");
    assert_eq!(messages[1], json!({"role": "assistant", "content": "I \"look\".\n\nDone."}));
    let of = |phase, bytes| EarlierAnswerMessage { phase, bytes };
    assert_eq!(
        ask.responses.unwrap().earlier_messages,
        [vec![of(Some("commentary"), 11), of(Some("final_answer"), 5)], vec![of(None, 3)]]
    );
}
