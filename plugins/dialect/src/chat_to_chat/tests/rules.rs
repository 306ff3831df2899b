//! Rules that golden files do not cover.

use super::super::TRANSLATOR;
use crate::test_support;
use bytes::Bytes;
use penstock_core::*;
use serde_json::{Value, json};

fn sent_body(
    body: &str,
    change: impl FnOnce(&mut InferenceRequest),
    target: impl FnOnce(&mut AttemptTarget<'_>),
) -> Value {
    let mut ask = test_support::sample_request(Dialect::Chat, body.as_bytes());
    change(&mut ask);
    let abilities = OfferCapabilities { system_anywhere: true, ..OfferCapabilities::default() };
    let mut to = test_support::sample_target(Dialect::Chat, &abilities);
    target(&mut to);
    serde_json::from_slice(&TRANSLATOR.build_request(&ask, &to).unwrap().concat()).unwrap()
}

#[test]
fn long_messages_are_shared_and_not_copied() {
    let body = json!({"model":"m","messages":[{"role":"user","content":"x".repeat(100_000)}]}).to_string();
    let ask = test_support::sample_request(Dialect::Chat, body.as_bytes());
    let abilities = OfferCapabilities::default();
    let pieces =
        TRANSLATOR.build_request(&ask, &test_support::sample_target(Dialect::Chat, &abilities)).unwrap();
    let within = |piece: &Bytes| ask.body.as_ptr_range().contains(&piece.as_ptr());
    let shared: usize = pieces.iter().filter(|piece| within(piece)).map(Bytes::len).sum();
    assert!(shared > 99_000, "{shared} bytes are shared");
}

#[test]
fn edits_are_applied_inside_forwarded_members() {
    let body =
        r#"{"model":"m","messages":[{"role":"developer","content":"a","refusal":null}],"functions":[1]}"#;
    let edit = |from: &str, with: &str| {
        let at = body.find(from).unwrap();
        BodyEdit { range: at..at + from.len(), replacement: Bytes::copy_from_slice(with.as_bytes()) }
    };
    let edits = vec![
        edit("\"developer\"", "\"system\""),
        edit(",\"refusal\":null", ""),
        edit("\"functions\"", "\"tools\""),
    ];
    let value = sent_body(
        body,
        |ask| {
            ask.edits = edits;
            ask.members.0[2].name = "tools".into();
        },
        |_| {},
    );
    assert_eq!(value["messages"], json!([{"role":"system","content":"a"}]));
    assert_eq!(value["tools"], json!([1]));
    assert_eq!(value.get("functions"), None);
}

#[test]
fn a_preset_fills_in_absent_members() {
    let preset: [(Box<str>, Box<str>); 3] = [
        ("temperature".into(), "0.6".into()),
        ("top_p".into(), "0.95".into()),
        ("max_tokens".into(), "9".into()),
    ];
    let body = r#"{"model":"m","messages":[],"temperature":0,"top_p":null,"max_completion_tokens":5}"#;
    let ask = test_support::sample_request(Dialect::Chat, body.as_bytes());
    let abilities = OfferCapabilities::default();
    let target = AttemptTarget { preset: &preset, ..test_support::sample_target(Dialect::Chat, &abilities) };
    let value: Value =
        serde_json::from_slice(&TRANSLATOR.build_request(&ask, &target).unwrap().concat()).unwrap();
    assert_eq!(
        value,
        json!({"model":"engine/model","messages":[],"temperature":0,"max_tokens":5,"top_p":0.95})
    );
}

#[test]
fn thinking_that_the_client_turned_off_is_not_turned_on_by_a_preset() {
    let preset: [(Box<str>, Box<str>); 1] =
        [("chat_template_kwargs".into(), r#"{"enable_thinking":true,"a":1}"#.into())];
    let ask = test_support::sample_request(
        Dialect::Chat,
        br#"{"model":"m","messages":[],"reasoning_effort":"none"}"#,
    );
    let abilities = OfferCapabilities { thinking_switch: true, ..OfferCapabilities::default() };
    let target = AttemptTarget { preset: &preset, ..test_support::sample_target(Dialect::Chat, &abilities) };
    let sent = TRANSLATOR.build_request(&ask, &target).unwrap().concat();
    // Engines would use the last of two members with the same name.
    assert_eq!(String::from_utf8_lossy(&sent).matches("chat_template_kwargs").count(), 1);
    let value: Value = serde_json::from_slice(&sent).unwrap();
    assert_eq!(value["chat_template_kwargs"], json!({"enable_thinking":false,"a":1}));
}

#[test]
fn a_clamped_token_cap_replaces_that_of_the_client() {
    let body = r#"{"model":"m","messages":[],"max_tokens":64000,"max_completion_tokens":32000}"#;
    assert_eq!(sent_body(body, |_| {}, |_| {})["max_tokens"], 32000);
    assert_eq!(sent_body(body, |_| {}, |target| target.max_tokens = Some(100))["max_tokens"], 100);
}

#[test]
fn logprobs_with_unsupported_stop_sequences_are_refused() {
    let parameters = || ["logprobs", "logit_bias"].map(Into::into).into();
    let abilities =
        OfferCapabilities { max_stop: Some(4), parameters: parameters(), ..OfferCapabilities::default() };
    let asked = |more: &str, stop: &[&str]| {
        let stop = json!(stop);
        let body = format!(r#"{{"model":"m","messages":[],"stop":{stop}{more}}}"#);
        let ask = test_support::sample_request(Dialect::Chat, body.as_bytes());
        TRANSLATOR.build_request(&ask, &test_support::sample_target(Dialect::Chat, &abilities))
    };
    let five = ["a", "b", "c", "d", "e"];
    let refusal = asked(r#","logprobs":true"#, &five).unwrap_err();
    assert_eq!((refusal.code, refusal.param.as_deref()), (ErrorCode::Unsupported, Some("stop")));
    assert!(asked(r#","logprobs":true"#, &five[..4]).is_ok());
    for more in ["", r#","logprobs":false"#, r#","logprobs":null"#, r#","logit_bias":{"1":2}"#] {
        assert!(asked(more, &five).is_ok(), "{more}");
    }
}

/// Number of messages that fit in a body; quadratic processing would take minutes.
const MANY_MESSAGES: usize = 200_000;

#[test]
fn many_leading_instructions_are_joined_in_linear_time() {
    let system = [json!({"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]})];
    let mut messages = system.to_vec();
    messages.resize_with(MANY_MESSAGES, || json!({"role":"developer","content":"c"}));
    messages.push(json!({"role":"user","content":"q"}));
    let body = json!({"model":"m","messages":messages}).to_string();
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(Dialect::Chat, &abilities);
    let sent = TRANSLATOR
        .build_request(&test_support::sample_request(Dialect::Chat, body.as_bytes()), &target)
        .unwrap()
        .concat();
    let value: Value = serde_json::from_slice(&sent).unwrap();
    let wanted = ["a", "b"].into_iter().chain(std::iter::repeat_n("c", MANY_MESSAGES - 1));
    let wanted = wanted.collect::<Vec<_>>().join("\n\n");
    assert_eq!(value["messages"].as_array().unwrap().len(), 2);
    assert!(value["messages"][0] == json!({"role":"system","content":wanted}));
    assert_eq!(value["messages"][1], json!({"role":"user","content":"q"}));
}

#[test]
fn a_continuation_uses_the_method_that_the_offer_declares() {
    let asked = |body: &str, continuation, prefill| {
        let ask = test_support::sample_request(Dialect::Chat, body.as_bytes());
        let abilities = OfferCapabilities {
            continuation,
            prefill,
            system_anywhere: true,
            ..OfferCapabilities::default()
        };
        let target = test_support::sample_target(Dialect::Chat, &abilities);
        let sent = TRANSLATOR.build_continuation(&ask, &target, "so \"far\"");
        sent.map(|sent| serde_json::from_slice::<Value>(&sent.concat()).unwrap())
    };
    let body = r#"{"model":"m","messages":[{"role":"user","content":"q"}],"stream":true}"#;
    let last = |value: &Value| value["messages"].as_array().unwrap().last().unwrap().clone();

    let value = asked(body, Some(ContinuationMethod::ContinueFinalMessage), PrefillMethod::None).unwrap();
    assert_eq!(last(&value), json!({"role":"assistant","content":"so \"far\""}));
    assert_eq!(
        (&value["continue_final_message"], &value["add_generation_prompt"]),
        (&json!(true), &json!(false))
    );

    let value = asked(body, Some(ContinuationMethod::Prefill), PrefillMethod::Prefix).unwrap();
    assert_eq!(last(&value), json!({"role":"assistant","content":"so \"far\"","prefix":true}));
    assert_eq!(value.get("continue_final_message"), None);

    let value = asked(body, Some(ContinuationMethod::Prefill), PrefillMethod::Automatic).unwrap();
    assert_eq!(last(&value), json!({"role":"assistant","content":"so \"far\""}));

    assert_eq!(asked(body, None, PrefillMethod::Prefix).unwrap_err().code, ErrorCode::Unsupported);

    let begun = r#"{"model":"m","messages":[{"role":"user","content":"q"},{"role":"assistant","content":"And "}],"continue_final_message":true}"#;
    let value =
        asked(begun, Some(ContinuationMethod::ContinueFinalMessage), PrefillMethod::ContinueFinalMessage)
            .unwrap();
    assert_eq!(last(&value), json!({"role":"assistant","content":"And so \"far\""}));
    assert_eq!(value["messages"].as_array().unwrap().len(), 2);
}

#[test]
fn no_output_precedes_the_first_content_token() {
    let ask = test_support::sample_request(Dialect::Chat, br#"{"model":"m","messages":[],"stream":true}"#);
    let abilities = OfferCapabilities::default();
    let mut reply =
        TRANSLATOR.translate_stream(&ask, &test_support::sample_target(Dialect::Chat, &abilities));
    let mut out = OutputBuffer::default();
    let role = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n: hello\n\n";
    reply.push(Bytes::from_static(role.as_bytes()), &mut out).unwrap();
    assert_eq!((reply.progress(), out.len()), (StreamProgress::Pending, 0));
    let content = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
    reply.push(Bytes::from_static(content.as_bytes()), &mut out).unwrap();
    assert_eq!(reply.progress(), StreamProgress::Committed);
    assert!(!out.is_empty());
}

#[test]
fn empty_or_unrequested_log_probabilities_are_no_content() {
    let abilities = OfferCapabilities::default();
    let progress = |logprobs: bool, probabilities: Value| {
        let ask = json!({"model":"m","messages":[],"stream":true,"logprobs":logprobs});
        let ask = test_support::sample_request(Dialect::Chat, ask.to_string().as_bytes());
        let mut reply =
            TRANSLATOR.translate_stream(&ask, &test_support::sample_target(Dialect::Chat, &abilities));
        let mut out = OutputBuffer::default();
        let chunk = json!({"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":probabilities}]});
        reply.push(Bytes::from(format!("data: {chunk}\n\n")), &mut out).unwrap();
        (reply.progress(), out.is_empty())
    };
    let token = json!({"content":[{"token":"","logprob":0,"bytes":[],"top_logprobs":[]}],"refusal":null});
    for wanted in [false, true] {
        for hollow in [json!({"content":[]}), json!({"content":null,"refusal":null}), json!({})] {
            assert_eq!(progress(wanted, hollow), (StreamProgress::Pending, true));
        }
        let expected = if wanted { StreamProgress::Committed } else { StreamProgress::Pending };
        assert_eq!(progress(wanted, token.clone()), (expected, !wanted));
    }
}

#[test]
fn the_done_event_ends_the_stream_and_later_events_are_ignored() {
    let ask = test_support::sample_request(Dialect::Chat, br#"{"model":"m","messages":[],"stream":true}"#);
    let abilities = OfferCapabilities::default();
    let mut reply =
        TRANSLATOR.translate_stream(&ask, &test_support::sample_target(Dialect::Chat, &abilities));
    let mut out = OutputBuffer::default();
    let stream =
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n";
    reply.push(Bytes::from_static(stream.as_bytes()), &mut out).unwrap();
    assert_eq!(reply.progress(), StreamProgress::Finished);
    reply.push(Bytes::from_static(b"data: [DONE]\n\n"), &mut out).unwrap();
    assert_eq!(reply.progress(), StreamProgress::Ended);
    reply.push(Bytes::from_static(b"data: nonsense\n\n"), &mut out).unwrap();
    reply.end(&mut out).unwrap();
}

#[test]
fn an_endless_event_is_malformed() {
    let ask = test_support::sample_request(Dialect::Chat, br#"{"model":"m","messages":[],"stream":true}"#);
    let abilities = OfferCapabilities::default();
    let mut reply =
        TRANSLATOR.translate_stream(&ask, &test_support::sample_target(Dialect::Chat, &abilities));
    let piece = Bytes::from(vec![b'x'; 1 << 20]);
    let results = (0..10).map(|_| reply.push(piece.clone(), &mut OutputBuffer::default()));
    let faults: Vec<_> = results.filter_map(Result::err).map(|fault| fault.kind).collect();
    assert_eq!(faults.first(), Some(&UpstreamErrorKind::Malformed));
}

#[test]
fn an_unrequested_choice_is_malformed() {
    for (n, index, fault) in [
        (1, 0, None),
        (1, 1, Some(UpstreamErrorKind::Malformed)),
        (1, 5, Some(UpstreamErrorKind::Malformed)),
        (1, 15, Some(UpstreamErrorKind::Malformed)),
        (1, 16, Some(UpstreamErrorKind::Malformed)),
        (2, 1, None),
        (2, 2, Some(UpstreamErrorKind::Malformed)),
    ] {
        let mut ask =
            test_support::sample_request(Dialect::Chat, br#"{"model":"m","messages":[],"stream":true}"#);
        ask.n = n;
        let abilities = OfferCapabilities::default();
        let target = test_support::sample_target(Dialect::Chat, &abilities);
        let choice = |index: u32| json!({"index":index,"delta":{"content":"a"},"message":{"content":"a"},"finish_reason":"stop"});
        let choices: Vec<Value> =
            (0..n.saturating_sub(1)).filter(|other| *other != index).chain([index]).map(choice).collect();
        let stream: String = choices
            .iter()
            .map(|choice| format!("data: {}\n\n", json!({"choices":[choice]})))
            .chain(["data: [DONE]\n\n".to_owned()])
            .collect();
        let run =
            test_support::run_all_splits(&|| TRANSLATOR.translate_stream(&ask, &target), stream.as_bytes());
        assert_eq!(run.fault, fault, "index {index} of {n}");
        let whole =
            TRANSLATOR.translate_buffered(&ask, &target, Bytes::from(json!({"choices":choices}).to_string()));
        assert_eq!(whole.err().map(|fault| fault.kind), fault, "index {index} of {n}");
    }
}
