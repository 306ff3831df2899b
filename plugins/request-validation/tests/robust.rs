//! Tests that damaged bodies are refused at once with a clear error.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use bytes::Bytes;
use penstock_core::ErrorCode;
use penstock_request_validation::{
    MessagesPurpose, RequestLimits, ResponsesPurpose, validate_chat_request, validate_messages_request,
    validate_responses_request,
};
use proptest::prelude::*;
use support::{DEEP, ask_chat, ask_messages, ask_responses, edited};

const CHAT: &str = r#"{"model":"m","n":2,"stop":["a"],"stream_options":{"include_usage":true},"logit_bias":{"1":2.5e0},
 "tools":[{"type":"function","function":{"name":"f","parameters":{"a":[1,{}]},"strict":null}}],
 "tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"f"}}]}},
 "response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{},"strict":true}},
 "messages":[{"role":"developer","content":"\u00e9 é \ud83d\ude00"},
  {"role":"user","name":null,"content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"data:image\/png;base64,AAAA","detail":null}}]},
  {"role":"assistant","content":null,"refusal":null,"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}],"audio":null},
  {"role":"tool","tool_call_id":"c","content":[]},
  {"role":"assistant","function_call":{"name":"g","arguments":""}},{"role":"function","name":"g","content":null}]}"#;

const MESSAGES: &str = r#"{"model":"m","max_tokens":5,"system":[{"type":"text","text":"s"}],"thinking":{"type":"enabled","budget_tokens":2000},
 "tools":[{"name":"f","input_schema":{"x":[]}}],"tool_choice":{"type":"tool","name":"f"},"stop_sequences":["\n"],
 "messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}},{"type":"text","text":"é"}]},
  {"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"a":{"b":[]}}}]},
  {"role":"system","content":"now"},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"y"}]}]}]}"#;

const RESPONSES: &str = r#"{"model":"m","instructions":"s","tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"custom","name":"c"}]},
 "tools":[{"type":"function","name":"f","parameters":{"a":[1,{}]},"strict":null},{"type":"custom","name":"c","format":{"type":"grammar","syntax":"lark","definition":"a\nb"}},{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}],
 "text":{"format":{"type":"json_schema","name":"n","schema":{}},"verbosity":"low"},"reasoning":{"effort":"low","summary":"auto"},"include":["reasoning.encrypted_content"],"metadata":{"a":"b"},"background_options":{"completion_window":"soonest"},
 "input":[{"role":"developer","content":"\u00e9 é \ud83d\ude00"},{"type":"message","role":"user","content":[{"type":"input_text","text":"x"},{"type":"input_image","image_url":"data:image\/png;base64,AAAA"}]},
  {"type":"reasoning","summary":[],"encrypted_content":"psr1_AAAA","content":[{"type":"reasoning_text","text":"t"}]},
  {"type":"function_call","call_id":"a","name":"f","namespace":"n","arguments":"{}"},{"type":"custom_tool_call","call_id":"b","name":"c","input":"\"\\"},
  {"type":"function_call_output","call_id":"a","output":"x"},{"type":"custom_tool_call_output","call_id":"b","output":[{"type":"input_text","text":"y"}]}]}"#;

fn responses(body: &[u8]) -> bool {
    let body = Bytes::copy_from_slice(body);
    let ask = validate_responses_request(body, &RequestLimits::default(), ResponsesPurpose::Generate);
    if let Ok(ask) = &ask {
        edited(ask);
        let members = &ask.responses.as_ref().unwrap().repeated_members;
        let object = [b"{", &members[..], b"}"].concat();
        serde_json::from_slice::<serde_json::Value>(&object).unwrap();
    }
    ask.is_ok()
}

#[test]
fn a_responses_body_is_accepted_whole_and_answered_however_it_is_damaged() {
    assert!(responses(RESPONSES.as_bytes()));
    for end in 0..RESPONSES.len() {
        assert!(!responses(&RESPONSES.as_bytes()[..end]), "cut at {end}");
        for byte in [b'"', b'\\', b'{', b']', b'0', b'n', b' ', 0, 0xff] {
            let mut body = RESPONSES.as_bytes().to_vec();
            body[end] = byte;
            responses(&body);
        }
    }
}

fn both(body: &[u8]) -> [bool; 2] {
    let limits = RequestLimits::default();
    let bytes = Bytes::copy_from_slice(body);
    let chat = validate_chat_request(bytes.clone(), &limits);
    if let Ok(ask) = &chat {
        edited(ask);
    }
    let messages = [MessagesPurpose::Generate, MessagesPurpose::Count]
        .map(|purpose| validate_messages_request(bytes.clone(), &limits, purpose).is_ok());
    [chat.is_ok(), messages[0]]
}

#[test]
fn whole_bodies_are_taken_and_cut_ones_never_are() {
    assert!(ask_chat(CHAT).is_ok(), "{:?}", ask_chat(CHAT));
    assert!(ask_messages(MESSAGES).is_ok(), "{:?}", ask_messages(MESSAGES));
    for body in [CHAT, MESSAGES] {
        for end in 0..body.len() {
            assert_eq!(both(&body.as_bytes()[..end]), [false, false], "cut at {end}");
        }
    }
}

#[test]
fn each_byte_replaced_by_any_other_gives_an_answer() {
    for body in [CHAT, MESSAGES] {
        for at in 0..body.len() {
            for byte in [b'"', b'\\', b'{', b']', b'0', b'n', b' ', 0, 0xff] {
                let mut body = body.as_bytes().to_vec();
                body[at] = byte;
                both(&body);
            }
        }
    }
}

#[test]
fn invalid_json_is_reported_with_its_position() {
    for (body, field, says) in [
        (r#"{"model":"m",}"#, None, "something else instead of a key, at byte 13."),
        (r#"{"model":"m"} x"#, None, "more bytes after the end of the document, at byte 14."),
        (r#"{"model":"#, Some("model"), "the end instead of a value, at byte 9 inside model."),
        (
            r#"{"messages":[{"role":"user","content":[{"text":"a\qb"}]}]}"#,
            Some("messages[0].content[0].text"),
            "an unknown escape inside a string, at byte 49 inside messages[0].content[0].text.",
        ),
        (r#"{"my secret plan":[1,}"#, None, "an invalid value, at byte 21."),
        (r#"{"n":01}"#, None, "neither a comma nor the end of the object, at byte 6."),
        (r#"nope"#, None, "an invalid value, at byte 0."),
    ] {
        let refusal = ask_chat(body).unwrap_err();
        assert_eq!(refusal.message, format!("The request body is not valid JSON: {says}"), "{body}");
        assert_eq!((refusal.code, refusal.param.as_deref()), (ErrorCode::InvalidRequest, field), "{body}");
    }
    let refusal =
        validate_chat_request(Bytes::from_static(b"{\"model\":\"\xff\"}"), &RequestLimits::default())
            .unwrap_err();
    assert_eq!(refusal.message, "The request body is not UTF-8: byte 10 is invalid.");
}

#[test]
fn json_that_cannot_be_represented_is_not_called_invalid() {
    for (value, says) in [
        ("1e999", "has a number out of range, at byte 22 inside x.a."),
        (r#""\ud83d""#, "has half of a surrogate pair inside a string, at byte 23 inside x.a."),
    ] {
        let body = format!(r#"{{"model":"m","x":{{"a":{value}}}}}"#);
        for refusal in [ask_chat(&body).unwrap_err(), ask_messages(&body).unwrap_err()] {
            assert_eq!(refusal.message, format!("The request body {says}"), "{body}");
            assert_eq!(refusal.code, ErrorCode::InvalidRequest);
        }
    }
}

#[test]
fn depth_size_and_number_are_bounded() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let value = format!("{}1{}", open.repeat(DEEP), close.repeat(DEEP));
        for field in ["x", "metadata", "messages", "tools", "model"] {
            let body = format!("{{\"{field}\":{value}}}");
            for refusal in [ask_chat(&body).unwrap_err(), ask_messages(&body).unwrap_err()] {
                assert_eq!(refusal.code, ErrorCode::InvalidRequest);
                let says = "The request body has objects and arrays nested deeper than 128 levels, at byte ";
                assert!(refusal.message.starts_with(says), "{refusal:?}");
                assert!(refusal.message.len() < 300);
            }
        }
    }
    let limits = RequestLimits { max_body: CHAT.len() - 1, ..RequestLimits::default() };
    assert_eq!(validate_chat_request(CHAT.into(), &limits).unwrap_err().code, ErrorCode::TooLarge);
    let limits = RequestLimits { max_values: 50, ..RequestLimits::default() };
    let refusal = validate_chat_request(CHAT.into(), &limits).unwrap_err();
    assert!(refusal.message.starts_with("The request body has more than 50 keys and values, at byte "));
    let limits = RequestLimits { max_fields: 3, ..RequestLimits::default() };
    assert_eq!(
        validate_chat_request(CHAT.into(), &limits).unwrap_err().message,
        "The request body has more than 3 fields."
    );
    let limits = RequestLimits { max_stop: 0, ..RequestLimits::default() };
    assert_eq!(validate_chat_request(CHAT.into(), &limits).unwrap_err().param.as_deref(), Some("stop"));
    let limits = RequestLimits { max_tools: 0, ..RequestLimits::default() };
    assert_eq!(validate_chat_request(CHAT.into(), &limits).unwrap_err().param.as_deref(), Some("tools"));
}

#[test]
fn no_rejection_repeats_client_input() {
    let secret = "my secret plan";
    for body in [CHAT, MESSAGES, RESPONSES] {
        // Replaces one string of the body by the secret, for each string in turn: values and keys.
        let quotes: Vec<usize> = body.match_indices('"').map(|(at, _)| at).collect();
        for pair in quotes.windows(2) {
            let body = format!("{}{secret}{}", &body[..=pair[0]], &body[pair[1]..]);
            let results = [ask_chat(&body), ask_messages(&body), ask_responses(&body)];
            for refusal in results.into_iter().filter_map(Result::err) {
                let spoken = format!("{refusal:?}");
                assert!(!spoken.contains("secret"), "{spoken}");
            }
        }
    }
}

#[test]
fn many_unknown_keys_cost_no_more_than_their_number() {
    let keys: Vec<String> = (0..100_000).map(|index| format!("\"k{index}\":1")).collect();
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"x",{}}}]}}"#, keys.join(","));
    assert!(ask_chat(&body).is_ok());
    let twice = body.replace("\"k99999\"", "\"k7\"");
    assert_eq!(ask_chat(&twice).unwrap_err().param.as_deref(), Some("messages[0].k7"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn damage_of_any_kind_never_panics(
        is_chat: bool,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut body = if is_chat { CHAT } else { MESSAGES }.as_bytes().to_vec();
        for (at, other, byte) in damage {
            let (at, other) = (at.index(body.len()), other.index(body.len()));
            match byte % 4 {
                0 => body[at] = byte,
                1 => { body.remove(at); }
                2 => body.swap(at, other),
                _ => { let piece = body[at.min(other)..at.max(other)].to_vec(); body.splice(at..at, piece); }
            }
        }
        body.truncate(100_000);
        both(&body);
    }
}
