//! Refusals of requests that a provider's dialect cannot express name the members of the client's request.

use super::*;
use serde_json::json;

fn refusal(provider: Dialect, body: &Value) -> ApiError {
    let ask = admitted_request(body);
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(provider, &abilities);
    let pair = find_translator(Dialect::Responses, provider).unwrap();
    pair.build_request(&ask, &target).unwrap_err()
}

#[test]
fn a_part_of_the_conversation_is_named_by_its_item() {
    let call = |id: &str, arguments: &str| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": arguments});
    let output = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "ok"});
    let said = |role: &str| json!({"role": role, "content": "Hi"});
    let with = |part: Value| json!({"role": "user", "content": [{"type": "input_text", "text": "a"}, part]});
    let audio = with(json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}));
    let bitmap = json!({"type": "input_image", "image_url": "data:image/bmp;base64,AAAA"});
    let shown = json!({"type": "function_call_output", "call_id": "c", "output": [bitmap]});
    for (input, expected) in [
        (json!([said("user"), audio]), "input[1].content[1].type"),
        (json!([with(bitmap.clone())]), "input[0].content[1].image_url"),
        // Validation joins the messages and the calls of one answer, but the error names the client's item.
        (
            json!([
                said("user"),
                said("assistant"),
                call("c", "{}"),
                call("d", "7"),
                output("c"),
                output("d")
            ]),
            "input[3].arguments",
        ),
        (json!([said("user"), call("c", "{}"), call("d", "{}"), output("c"), said("user")]), "input[2]"),
        (json!([said("user"), call("c", "{}"), call("c", "{}"), output("c")]), "input[2].call_id"),
        (json!([said("user"), call("c", "{}"), output("c"), output("c")]), "input[3].call_id"),
        (json!([said("user"), call("c", "{}"), shown]), "input[2].output[0].image_url"),
    ] {
        let body = json!({"model": "m", "instructions": "Be brief.", "input": input});
        let refused = refusal(Dialect::Messages, &body);
        let named = (refused.param.as_deref(), refused.is_client_param);
        assert_eq!(named, (Some(expected), true), "{input}: {}", refused.message);
        let has_chat_words =
            ["messages[", "image_url`", "`tool`"].iter().any(|word| refused.message.contains(word));
        assert!(!has_chat_words, "{}", refused.message);
    }
}

#[test]
fn a_parameter_is_named_as_the_client_wrote_it() {
    let body = json!({"model": "m", "input": "Hi", "include": ["message.output_text.logprobs"]});
    let refused = refusal(Dialect::Chat, &body);
    assert_eq!(refused.param.as_deref(), Some("include"), "{}", refused.message);
    assert!(refused.message.contains("`include`") && !refused.message.contains("`logprobs`"));
    for (members, param) in [
        (json!({"top_logprobs": 3}), "top_logprobs"),
        (json!({"logprobs": true}), "logprobs"),
        (json!({"include": ["message.output_text.logprobs"]}), "include"),
    ] {
        for provider in [Dialect::Chat, Dialect::Messages] {
            let mut body = json!({"model": "m", "input": "Hi"});
            body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
            let refused = refusal(provider, &body);
            assert_eq!(refused.param.as_deref(), Some(param), "{provider:?}: {}", refused.message);
        }
    }
    let own = json!({"model": "m", "input": "Hi", "logit_bias": {"1": 1}});
    assert_eq!(refusal(Dialect::Chat, &own).param.as_deref(), Some("logit_bias"));
}
