//! Tests of the edits that convert requests in legacy or nonstandard forms to the form that every engine accepts.

use crate::support::{ask_chat, assert_refused, edited};
use crate::{CALL, conversation, taken, with};
use serde_json::{Value, json};

/// Returns the messages after the edits, as a provider receives them.
pub fn canonical(messages: &str) -> Value {
    edited(&taken(&conversation(messages)))["messages"].clone()
}

#[test]
fn a_returned_answer_loses_the_members_that_engines_reject() {
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
    assert!(ask.required.images && ask.required.image_urls && ask.image_count == 3);
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
            // A `null` member with the new name gets the old name, because the two members swap their names.
            "functions": null,
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}, {"type": "function", "function": {"name": "g"}}],
            "tool_choice": {"type": "function", "function": {"name": "g"}},
            "messages": [
                {"role": "assistant", "content": null, "tool_calls": call("call_legacy_0")},
                {"role": "tool", "tool_call_id": "call_legacy_0", "name": "f", "content": "1"},
                {"role": "assistant", "content": null, "tool_calls": call("call_legacy_1")},
                {"role": "tool", "tool_call_id": "call_legacy_1", "name": "f", "content": ""}]})
    );
    assert!(ask.required.tools);
    for ask in [ask, taken(&body.replace(r#""tools":null,"#, ""))] {
        assert_eq!(ask.member_value("tools").unwrap()[0], b'[');
        assert_eq!(ask.member_value("tool_choice").unwrap(), br#"{"name":"g"}"#);
        assert!(ask.member_value("functions").is_none() && ask.member_value("function_call").is_none());
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
fn efforts_are_left_to_the_translators() {
    for effort in ["minimal", "low", "medium", "high", "xhigh", "max", "none"] {
        assert!(taken(&with(&format!("\"reasoning_effort\":\"{effort}\""))).edits.is_empty());
    }
}

#[test]
fn a_call_without_arguments_is_one_with_an_empty_object_of_them() {
    for function in [
        r#"{"name":"f"}"#,
        r#"{"name":"f","arguments":""}"#,
        r#"{"name":"f","arguments":" \n"}"#,
        r#"{"name":"f","arguments":null}"#,
        r#"{"x":1,"arguments":null,"name":"f"}"#,
        r#"{"x":1,"name":"f"}"#,
        r#"{"name":"f","argum\u0065nts":""}"#,
        r#"{"name":"f","arguments":"null"}"#,
        r#"{"name":"f","arguments":" null\n"}"#,
        r#"{"name":"f","arguments":"\"\""}"#,
        r#"{"name":"f","arguments":{}}"#,
    ] {
        let call = format!(
            r#"{{"role":"assistant","tool_calls":[{{"id":"c1","type":"function","function":{function}}}]}},{{"role":"tool","tool_call_id":"c1","content":"r"}}"#
        );
        let legacy = format!(
            r#"{{"role":"assistant","function_call":{function}}},{{"role":"function","name":"f","content":"r"}}"#
        );
        for messages in [call, legacy] {
            let sent = edited(&taken(&conversation(&messages)));
            let sent_function = &sent["messages"][0]["tool_calls"][0]["function"];
            assert_eq!(*sent_function, json!({"name": "f", "arguments": "{}"}), "{messages}");
        }
    }
    let object = CALL.replace(r#""{}""#, r#"{"a":[1, "\u00e9\n\"b\""]}"#);
    let sent = edited(&taken(&conversation(&format!(
        r#"{object},{{"role":"tool","tool_call_id":"c1","content":"r"}}"#
    ))));
    let text = r#"{"a":[1, "\u00e9\n\"b\""]}"#;
    assert_eq!(
        sent["messages"][0]["tool_calls"][0]["function"]["arguments"], text,
        "an object is its JSON text"
    );
    let cut = CALL.replace(r#""{}""#, r#""{\"a\":""#);
    let sent = edited(&taken(&conversation(&format!(
        r#"{cut},{{"role":"tool","tool_call_id":"c1","content":"r"}}"#
    ))));
    assert_eq!(sent["messages"][0]["tool_calls"][0]["function"]["arguments"], r#"{"a":"#);
}
