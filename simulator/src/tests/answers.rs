//! Tests of the content of answers: equal requests get equal answers.

use super::super::schema;
use super::{CHAT, MESSAGES, ask, post, server};

const COMPLETIONS: &str = "/v1/completions";
use serde_json::{Value, json};

fn text(body: &Value) -> String {
    body["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_answer_says_first_that_it_is_simulated_and_by_whom() {
    let server = server().await;
    let seen = post(server.address, CHAT, &ask(&json!({}))).await;
    assert!(text(&seen.json()).starts_with("This is a simulated answer from Test."));
    assert_eq!(seen.header("x-simulated"), Some("true"));
}

#[tokio::test]
async fn the_same_seed_and_request_give_the_same_bytes() {
    let (one, two) = (server().await, server().await);
    let body = ask(&json!({ "n": 2 }));
    let first = post(one.address, CHAT, &body).await;
    assert_eq!(first.body, post(two.address, CHAT, &body).await.body);
    let other = post(two.address, CHAT, &ask(&json!({ "seed": 7 }))).await;
    assert_ne!(text(&first.json()), text(&other.json()));
    let choices = first.json()["choices"].clone();
    assert_ne!(choices[0]["message"], choices[1]["message"]);
}

#[tokio::test]
async fn the_bound_of_tokens_ends_an_answer_with_length() {
    let server = server().await;
    let seen = post(server.address, CHAT, &ask(&json!({ "max_tokens": 3 }))).await.json();
    assert_eq!(text(&seen), "This is a");
    assert_eq!(seen["choices"][0]["finish_reason"], "length");
    assert_eq!(seen["usage"]["completion_tokens"], 3);
    let seen = post(server.address, MESSAGES, &ask(&json!({ "max_tokens": 3 }))).await.json();
    assert_eq!(seen["stop_reason"], "max_tokens");
}

#[tokio::test]
async fn a_request_that_ignores_the_end_gets_exactly_the_tokens_it_bounds() {
    let server = server().await;
    let seen =
        post(server.address, CHAT, &ask(&json!({ "max_tokens": 1000, "ignore_eos": true }))).await.json();
    assert_eq!(seen["usage"]["completion_tokens"], 1000);
    let seen = post(server.address, CHAT, &ask(&json!({ "model": "m#tokens=500" }))).await.json();
    assert_eq!(seen["usage"]["completion_tokens"], 500);
}

#[tokio::test]
async fn an_answer_ends_before_a_stop_string() {
    let server = server().await;
    let seen = post(server.address, CHAT, &ask(&json!({ "stop": [" from", "absent"] }))).await.json();
    assert_eq!(text(&seen), "This is a simulated answer");
    assert_eq!(
        (&seen["choices"][0]["finish_reason"], &seen["choices"][0]["stop_reason"]),
        (&json!("stop"), &json!(" from"))
    );
    let seen = post(server.address, MESSAGES, &ask(&json!({ "stop_sequences": [" from"] }))).await.json();
    assert_eq!((&seen["stop_reason"], &seen["stop_sequence"]), (&json!("stop_sequence"), &json!(" from")));
}

#[tokio::test]
async fn a_repeated_prefix_is_reported_as_cached() {
    let server = server().await;
    let long = "All work and no play. ".repeat(40);
    let turn = |text: &str| json!({ "messages": [{ "role": "user", "content": long }, { "role": "user", "content": text }] });
    let cached = |body: Value| body["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert_eq!(cached(post(server.address, CHAT, &ask(&turn("one"))).await.json()), 0);
    let again = post(server.address, CHAT, &ask(&turn("two"))).await.json();
    let prompt = again["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(cached(again), (prompt - 5) / 16 * 16);
}

#[tokio::test]
async fn a_begun_answer_is_continued_word_for_word() {
    let server = server().await;
    let whole = text(&post(server.address, CHAT, &ask(&json!({}))).await.json());
    let (begun, rest) = whole.split_at(18);
    let messages = json!([{ "role": "user", "content": "Hello" }, { "role": "assistant", "content": begun }]);
    let asked =
        json!({ "messages": messages, "continue_final_message": true, "add_generation_prompt": false });
    assert_eq!(text(&post(server.address, CHAT, &ask(&asked)).await.json()), rest);
    let seen = post(server.address, MESSAGES, &ask(&json!({ "messages": messages }))).await.json();
    assert_eq!(seen["content"][0]["text"], rest);
}

#[tokio::test]
async fn tools_are_called_when_the_request_or_the_prompt_says_so() {
    let server = server().await;
    let parameters = json!({ "type": "object", "required": ["city", "days"], "properties": {
        "city": { "type": "string", "minLength": 12 }, "days": { "type": "integer", "minimum": 3 }, "x": {} } });
    let tools = json!([{ "type": "function", "function": { "name": "other", "parameters": {} } },
        { "type": "function", "function": { "name": "weather", "parameters": parameters } }]);
    let seen = post(server.address, CHAT, &ask(&json!({ "tools": tools }))).await.json();
    assert_eq!(seen["choices"][0]["finish_reason"], "stop");
    let named = json!({ "type": "function", "function": { "name": "weather" } });
    let seen =
        post(server.address, CHAT, &ask(&json!({ "tools": tools, "tool_choice": named }))).await.json();
    let call = &seen["choices"][0]["message"]["tool_calls"][0]["function"];
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(
        (&call["name"], arguments["city"].as_str().unwrap().len(), &arguments["days"]),
        (&json!("weather"), 12, &json!(3))
    );
    assert_eq!(seen["choices"][0]["finish_reason"], "tool_calls");
    let both = json!([{ "role": "user", "content": "Please use the tools." }]);
    let seen = post(server.address, CHAT, &ask(&json!({ "tools": tools, "messages": both }))).await.json();
    assert_eq!(seen["choices"][0]["message"]["tool_calls"].as_array().unwrap().len(), 2);
    let native = json!([{ "name": "weather", "input_schema": parameters }]);
    let asked = json!({ "tools": native, "tool_choice": { "type": "any" } });
    let seen = post(server.address, MESSAGES, &ask(&asked)).await.json();
    assert_eq!((&seen["stop_reason"], &seen["content"][0]["input"]["days"]), (&json!("tool_use"), &json!(3)));
}

#[tokio::test]
async fn json_formats_get_json_that_satisfies_the_schema() {
    let server = server().await;
    let seen =
        post(server.address, CHAT, &ask(&json!({ "response_format": { "type": "json_object" } }))).await;
    assert_eq!(serde_json::from_str::<Value>(&text(&seen.json())).unwrap()["simulated"], true);
    let schema =
        json!({ "type": "object", "required": ["kind"], "properties": { "kind": { "enum": ["a", "b"] } } });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": schema } });
    let seen = post(server.address, CHAT, &ask(&json!({ "response_format": format }))).await;
    assert_eq!(serde_json::from_str::<Value>(&text(&seen.json())).unwrap(), json!({ "kind": "a" }));
}

#[tokio::test]
async fn engine_parameters_constrain_the_text_or_are_refused() {
    let server = server().await;
    let schema =
        json!({ "type": "object", "required": ["kind"], "properties": { "kind": { "enum": ["a"] } } });
    let whole = r#"{"kind":"a"}"#;
    let format = json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": schema } });
    for (members, expected) in [
        (json!({ "structured_outputs": { "json": schema } }), Some(whole)),
        (
            json!({ "output_config": { "format": { "schema": schema } }, "response_format": format }),
            Some(whole),
        ),
        (json!({ "structured_outputs": { "json": schema.to_string(), "backend": "x" } }), Some(whole)),
        (json!({ "guided_json": schema }), Some(whole)),
        (json!({ "structured_outputs": { "choice": ["yes or no", "b"] } }), Some("yes or no")),
        (json!({ "guided_choice": ["yes"] }), Some("yes")),
        (json!({ "structured_outputs": { "json": null, "choice": ["c"] } }), Some("c")),
        (json!({ "structured_outputs": { "regex": "a+" } }), None),
        (json!({ "structured_outputs": { "grammar": "a" } }), None),
        (json!({ "guided_regex": "a+" }), None),
        (json!({ "guided_json": "{" }), None),
        (json!({ "guided_choice": [] }), None),
    ] {
        for path in [CHAT, MESSAGES, COMPLETIONS] {
            let mut body = ask(&members);
            body["prompt"] = json!("Hi");
            let seen = post(server.address, path, &body).await;
            let (status, seen) = (seen.status, seen.json());
            let text = [
                &seen["choices"][0]["message"]["content"],
                &seen["content"][0]["text"],
                &seen["choices"][0]["text"],
            ]
            .into_iter()
            .find_map(Value::as_str);
            assert_eq!(text, expected, "{path} {members}");
            assert_eq!(status, if expected.is_some() { 200 } else { 400 }, "{path} {members}");
        }
    }
    let seen = ask(&json!({ "structured_outputs": { "json_object": true } }));
    let seen = post(server.address, CHAT, &seen).await.json();
    assert_eq!(serde_json::from_str::<Value>(&text(&seen)).unwrap()["simulated"], true);
}

#[test]
fn schemas_are_followed_through_references_branches_and_bounds() {
    let schema = json!({
        "$defs": { "node": { "type": "object", "required": ["at", "next"], "properties": {
            "at": { "type": "string", "format": "date" }, "next": { "anyOf": [{ "type": "null" }, { "$ref": "#/$defs/node" }] } } } },
        "type": "object", "required": ["list", "step", "ratio", "both"],
        "properties": {
            "list": { "type": "array", "minItems": 2, "items": { "$ref": "#/$defs/node" } },
            "step": { "type": "integer", "minimum": 4, "multipleOf": 5 },
            "ratio": { "type": "number", "minimum": 0, "maximum": 1 },
            "both": { "allOf": [{ "type": "object", "required": ["a"], "properties": { "a": { "const": 1 } } },
                { "required": ["b"], "properties": { "b": { "type": ["boolean", "null"] } } }] },
        },
    });
    let node = json!({ "at": "2000-01-01", "next": null });
    let wanted = json!({ "list": [node, node], "step": 5, "ratio": 0.5, "both": { "a": 1, "b": true } });
    assert_eq!(schema::example(&schema), wanted);
}

#[test]
fn a_schema_without_end_ends() {
    let schema = json!({ "$ref": "#/$defs/a", "$defs": { "a": { "type": "object", "required": ["a"], "properties": { "a": { "$ref": "#/$defs/a" } } } } });
    assert!(schema::example(&schema).is_object());
}

#[tokio::test]
async fn models_that_reason_do_so_first_unless_asked_not_to() {
    let server = server().await;
    let seen = post(server.address, CHAT, &ask(&json!({ "model": "x-thinking" }))).await.json();
    let message = &seen["choices"][0]["message"];
    assert!(message["reasoning_content"].as_str().unwrap().starts_with("Simulated reasoning"));
    assert!(seen["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap() >= 16);
    let off = json!({ "model": "x-thinking", "chat_template_kwargs": { "enable_thinking": false } });
    let seen = post(server.address, CHAT, &ask(&off)).await.json();
    assert!(seen["choices"][0]["message"]["reasoning_content"].is_null());
    for (model, parameters, reasons) in [
        ("x", json!({ "enable_thinking": true }), true),
        ("x", json!({ "thinking": { "type": "enabled" } }), true),
        ("x-thinking", json!({ "enable_thinking": false }), false),
        ("x-thinking", json!({ "thinking": { "type": "disabled" } }), false),
    ] {
        let mut asked = ask(&parameters);
        asked["model"] = json!(model);
        let seen = post(server.address, CHAT, &asked).await.json();
        assert_eq!(seen["choices"][0]["message"]["reasoning_content"].is_string(), reasons, "{asked}");
    }
    let on = json!({ "thinking": { "type": "enabled", "budget_tokens": 1024 } });
    let seen = post(server.address, MESSAGES, &ask(&on)).await.json();
    assert_eq!(
        (&seen["content"][0]["type"], &seen["content"][1]["type"]),
        (&json!("thinking"), &json!("text"))
    );
}

#[tokio::test]
async fn probabilities_are_returned_for_every_token_with_as_many_alternatives_as_asked() {
    let server = server().await;
    let asked = json!({ "logprobs": true, "top_logprobs": 3, "max_tokens": 5 });
    let seen = post(server.address, CHAT, &ask(&asked)).await.json();
    let tokens = seen["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(tokens.len(), 5);
    assert!(tokens.iter().all(|token| token["top_logprobs"].as_array().unwrap().len() == 3));
    let joined: String = tokens.iter().map(|token| token["token"].as_str().unwrap()).collect();
    assert_eq!(joined, text(&seen));
}
