//! Calls and answers of each engine.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use super::*;

const CHAT: &[u8] = br#"{"model":"alias","messages":[{"role":"user","content":"Hi"}],"tools":null,"max_tokens":5,"user":"u"}"#;

fn call(shape: TokenizeApi, input: CountInput<'_>) -> (&'static str, Value) {
    let call = build_call(shape, "org/m", input).unwrap_or_else(|error| panic!("{shape:?}: {error}"));
    (call.path, serde_json::from_slice(&call.body).unwrap())
}

fn tokens(shape: TokenizeApi, answer: &Value) -> u64 {
    match parse_count_response(shape, 200, answer.to_string().as_bytes()) {
        Ok(CountProgress::Tokens(tokens)) => tokens,
        _ => panic!("{shape:?}: {answer}"),
    }
}

#[test]
fn only_members_of_the_prompt_are_sent() {
    let sent = json!({"model": "org/m", "messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": true});
    assert_eq!(call(TokenizeApi::Vllm, CountInput::Chat(CHAT)), ("/tokenize", sent.clone()));
    assert_eq!(call(TokenizeApi::Tgi, CountInput::Chat(CHAT)), ("/chat_tokenize", sent.clone()));
    assert_eq!(call(TokenizeApi::LlamaCpp, CountInput::Chat(CHAT)), ("/apply-template", sent));
    let messages = br#"{"model":"a","system":"S","messages":[],"max_tokens":1,"metadata":{"user_id":"x"}}"#;
    let sent = json!({"model": "org/m", "system": "S", "messages": []});
    assert_eq!(call(TokenizeApi::Vllm, CountInput::Messages(messages)), ("/v1/messages/count_tokens", sent));
}

#[test]
fn names_of_other_versions_are_translated_for_the_count_of_an_engine() {
    let format = json!({"type": "json_schema", "schema": {}});
    for (body, sent) in [
        (json!({"output_format": format}), json!({"output_config": {"format": format}})),
        (
            json!({"output_format": format, "output_config": {"effort": "low", "format": null}}),
            json!({"output_config": {"effort": "low", "format": format}}),
        ),
        (
            json!({"output_format": format, "output_config": {"format": {"type": "own"}}}),
            json!({"output_config": {"format": {"type": "own"}}}),
        ),
        (
            json!({"thinking": {"type": "auto", "display": "omitted"}}),
            json!({"thinking": {"type": "adaptive", "display": "omitted"}}),
        ),
        (json!({"thinking": {"type": "disabled"}}), json!({"thinking": {"type": "disabled"}})),
    ] {
        for shape in [TokenizeApi::Vllm, TokenizeApi::LlamaCpp] {
            let (_, mut counted) = call(shape, CountInput::Messages(body.to_string().as_bytes()));
            counted.as_object_mut().unwrap().remove("model");
            assert_eq!(counted, sent, "{body}");
        }
    }
}

#[test]
fn a_message_to_be_continued_is_not_followed_by_another() {
    let body = br#"{"messages":[],"continue_final_message":true}"#;
    let (_, sent) = call(TokenizeApi::Vllm, CountInput::Chat(body));
    assert_eq!(sent["add_generation_prompt"], false);
}

#[test]
fn rendered_prompts_get_no_special_tokens_twice() {
    for shape in [TokenizeApi::Vllm, TokenizeApi::Sglang, TokenizeApi::Tei] {
        assert_eq!(call(shape, CountInput::Prompt("p")).1["add_special_tokens"], false, "{shape:?}");
        assert_eq!(call(shape, CountInput::Document("p")).1["add_special_tokens"], true, "{shape:?}");
    }
    let refused = build_call(TokenizeApi::Tgi, "m", CountInput::Prompt("p")).err();
    assert_eq!(refused, Some(EngineError::Unsupported), "its call adds special tokens to every text");
    assert_eq!(call(TokenizeApi::Tgi, CountInput::Document("p")), ("/tokenize", json!({"inputs": "p"})));
}

#[test]
fn answers_of_every_engine_are_understood() {
    assert_eq!(
        tokens(
            TokenizeApi::Vllm,
            &json!({"count": 7, "max_model_len": 4096, "tokens": [1, 2, 3, 4, 5, 6, 7]})
        ),
        7
    );
    assert_eq!(tokens(TokenizeApi::Vllm, &json!({"input_tokens": 9})), 9);
    assert_eq!(tokens(TokenizeApi::LlamaCpp, &json!({"tokens": [1, 2, 3]})), 3);
    assert_eq!(tokens(TokenizeApi::LlamaCpp, &json!({"tokens": [{"id": 1, "piece": "a"}]})), 1);
    assert_eq!(
        tokens(TokenizeApi::Sglang, &json!({"tokens": [[1, 2], [3]], "count": [2, 1], "max_model_len": 8})),
        3
    );
    assert_eq!(tokens(TokenizeApi::Tgi, &json!([{"id": 1, "text": "a", "start": 0, "stop": 1}])), 1);
    assert_eq!(
        tokens(
            TokenizeApi::Tgi,
            &json!({"tokenize_response": [{"id": 1}, {"id": 2}], "templated_text": "ab"})
        ),
        2
    );
    assert_eq!(tokens(TokenizeApi::Tei, &json!([[{"id": 1}, {"id": 2}]])), 2);
}

#[test]
fn llama_cpp_counts_in_two_calls() {
    let Ok(CountProgress::NextCall(next)) =
        parse_count_response(TokenizeApi::LlamaCpp, 200, br#"{"prompt":"<s>Hi"}"#)
    else {
        panic!("no second call")
    };
    assert_eq!(next.path, "/tokenize");
    let sent: Value = serde_json::from_slice(&next.body).unwrap();
    assert_eq!(sent, json!({"content": "<s>Hi", "add_special": true, "parse_special": true}));
}

#[test]
fn capabilities_missing_in_an_engine_are_errors() {
    let none = |shape, input| build_call(shape, "m", input).err();
    assert_eq!(none(TokenizeApi::Sglang, CountInput::Chat(CHAT)), Some(EngineError::Unsupported));
    assert_eq!(none(TokenizeApi::Tei, CountInput::Messages(CHAT)), Some(EngineError::Unsupported));
    assert_eq!(none(TokenizeApi::Vllm, CountInput::Chat(b"[]")), Some(EngineError::InvalidInput));
    assert!(parse_count_response(TokenizeApi::Vllm, 404, b"{}") == Err(EngineError::Status(404)));
    let overflow = br#"{"count":[18446744073709551615,1]}"#;
    for answer in [b"".as_slice(), b"{}", b"7", br#"{"count":"7"}"#, br#"{"count":-1}"#, overflow] {
        assert!(
            parse_count_response(TokenizeApi::Vllm, 200, answer) == Err(EngineError::InvalidResponse),
            "{answer:?}"
        );
    }
}
