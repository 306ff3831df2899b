//! Calls and answers of each engine.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use super::*;

const CHAT: &[u8] = br#"{"model":"alias","messages":[{"role":"user","content":"Hi"}],"tools":null,"max_tokens":5,"user":"u"}"#;

fn call(shape: Shape, input: Input<'_>) -> (&'static str, Value) {
    let call = request(shape, "org/m", input).unwrap_or_else(|error| panic!("{shape:?}: {error}"));
    (call.path, serde_json::from_slice(&call.body).unwrap())
}

fn tokens(shape: Shape, answer: &Value) -> u64 {
    match parse(shape, 200, answer.to_string().as_bytes()) {
        Ok(Progress::Tokens(tokens)) => tokens,
        _ => panic!("{shape:?}: {answer}"),
    }
}

#[test]
fn only_what_makes_the_prompt_is_sent() {
    let sent = json!({"model": "org/m", "messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": true});
    assert_eq!(call(Shape::Vllm, Input::Chat(CHAT)), ("/tokenize", sent.clone()));
    assert_eq!(call(Shape::Tgi, Input::Chat(CHAT)), ("/chat_tokenize", sent.clone()));
    assert_eq!(call(Shape::LlamaCpp, Input::Chat(CHAT)), ("/apply-template", sent));
    let messages = br#"{"model":"a","system":"S","messages":[],"max_tokens":1,"metadata":{"user_id":"x"}}"#;
    let sent = json!({"model": "org/m", "system": "S", "messages": []});
    assert_eq!(call(Shape::Vllm, Input::Messages(messages)), ("/v1/messages/count_tokens", sent));
}

#[test]
fn a_turn_to_be_continued_is_not_followed_by_another() {
    let body = br#"{"messages":[],"continue_final_message":true}"#;
    let (_, sent) = call(Shape::Vllm, Input::Chat(body));
    assert_eq!(sent["add_generation_prompt"], false);
}

#[test]
fn rendered_prompts_get_no_special_tokens_twice() {
    for shape in [Shape::Vllm, Shape::Sglang, Shape::Tei] {
        assert_eq!(call(shape, Input::Prompt("p")).1["add_special_tokens"], false, "{shape:?}");
        assert_eq!(call(shape, Input::Document("p")).1["add_special_tokens"], true, "{shape:?}");
    }
}

#[test]
fn answers_of_every_engine_are_understood() {
    assert_eq!(
        tokens(Shape::Vllm, &json!({"count": 7, "max_model_len": 4096, "tokens": [1, 2, 3, 4, 5, 6, 7]})),
        7
    );
    assert_eq!(tokens(Shape::Vllm, &json!({"input_tokens": 9})), 9);
    assert_eq!(tokens(Shape::LlamaCpp, &json!({"tokens": [1, 2, 3]})), 3);
    assert_eq!(tokens(Shape::LlamaCpp, &json!({"tokens": [{"id": 1, "piece": "a"}]})), 1);
    assert_eq!(
        tokens(Shape::Sglang, &json!({"tokens": [[1, 2], [3]], "count": [2, 1], "max_model_len": 8})),
        3
    );
    assert_eq!(tokens(Shape::Tgi, &json!([{"id": 1, "text": "a", "start": 0, "stop": 1}])), 1);
    assert_eq!(
        tokens(Shape::Tgi, &json!({"tokenize_response": [{"id": 1}, {"id": 2}], "templated_text": "ab"})),
        2
    );
    assert_eq!(tokens(Shape::Tei, &json!([[{"id": 1}, {"id": 2}]])), 2);
}

#[test]
fn llama_cpp_counts_in_two_calls() {
    let Ok(Progress::Then(next)) = parse(Shape::LlamaCpp, 200, br#"{"prompt":"<s>Hi"}"#) else {
        panic!("no second call")
    };
    assert_eq!(next.path, "/tokenize");
    let sent: Value = serde_json::from_slice(&next.body).unwrap();
    assert_eq!(sent, json!({"content": "<s>Hi", "add_special": true, "parse_special": true}));
}

#[test]
fn what_an_engine_cannot_do_or_say_is_an_error() {
    let none = |shape, input| request(shape, "m", input).err();
    assert_eq!(none(Shape::Sglang, Input::Chat(CHAT)), Some(EngineError::Unsupported));
    assert_eq!(none(Shape::Tei, Input::Messages(CHAT)), Some(EngineError::Unsupported));
    assert_eq!(none(Shape::Vllm, Input::Chat(b"[]")), Some(EngineError::Input));
    assert!(parse(Shape::Vllm, 404, b"{}") == Err(EngineError::Status(404)));
    for answer in [b"".as_slice(), b"{}", b"7", br#"{"count":"7"}"#, br#"{"count":-1}"#] {
        assert!(parse(Shape::Vllm, 200, answer) == Err(EngineError::Answer), "{answer:?}");
    }
}
