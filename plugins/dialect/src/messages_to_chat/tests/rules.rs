//! Rules that golden files do not cover.

use super::admitted_request;
use crate::{find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;
use serde_json::{Value, json};

fn find_pair(client: Dialect, provider: Dialect) -> &'static dyn Translator {
    find_translator(client, provider).unwrap()
}

fn sent_body(body: &Value, abilities: &OfferCapabilities) -> Value {
    let ask = admitted_request(Dialect::Messages, body.to_string().as_bytes());
    let target = test_support::sample_target(Dialect::Chat, abilities);
    let sent = find_pair(Dialect::Messages, Dialect::Chat).build_request(&ask, &target).unwrap().concat();
    serde_json::from_slice(&sent).unwrap()
}

#[test]
fn long_texts_and_images_are_shared_and_not_copied() {
    let image = json!({"type":"image","source":{"type":"base64","media_type":"image/png","data":"A".repeat(100_000)}});
    let body = json!({"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"text","text":"x".repeat(100_000)}, image]}]});
    let ask = admitted_request(Dialect::Messages, body.to_string().as_bytes());
    let abilities = OfferCapabilities::default();
    for provider in [Dialect::Chat, Dialect::Messages] {
        let pieces = find_pair(Dialect::Messages, provider)
            .build_request(&ask, &test_support::sample_target(provider, &abilities))
            .unwrap();
        let within = |piece: &&Bytes| ask.body.as_ptr_range().contains(&piece.as_ptr());
        let shared: usize = pieces.iter().filter(within).map(Bytes::len).sum();
        assert!(shared >= 200_000, "{shared} bytes are shared");
    }
}

#[test]
fn a_later_system_text_never_changes_the_prompt_prefix() {
    let mut messages = vec![
        json!({"role":"user","content":"one"}),
        json!({"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]}),
        json!({"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"r"}]}),
        json!({"role":"system","content":"note"}),
    ];
    for system_anywhere in [true, false] {
        let abilities = OfferCapabilities { system_anywhere, ..OfferCapabilities::default() };
        let of = |messages: &[Value]| {
            let body = json!({"model":"m","max_tokens":1,"system":"S","messages":messages});
            sent_body(&body, &abilities)["messages"].as_array().unwrap().clone()
        };
        let before = of(&messages);
        messages.push(json!({"role":"assistant","content":"two"}));
        messages.push(json!({"role":"user","content":"three"}));
        let after = of(&messages);
        assert_eq!(before[..], after[..before.len()]);
        messages.truncate(4);
    }
}

#[test]
fn folding_system_messages_retains_the_native_prompt_prefix() {
    let messages = [
        json!({"role":"user","content":"one"}),
        json!({"role":"system","content":"note"}),
        json!({"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]}),
        json!({"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"r"}]}),
        json!({"role":"system","content":"x".repeat(10_000)}),
        json!({"role":"assistant","content":"two"}),
        json!({"role":"user","content":"three"}),
    ];
    let abilities =
        OfferCapabilities { continuation: Some(ContinuationMethod::Prefill), ..OfferCapabilities::default() };
    let target = test_support::sample_target(Dialect::Messages, &abilities);
    let native = find_pair(Dialect::Messages, Dialect::Messages);
    let of = |count: usize, delivered: Option<&str>| {
        let body = json!({"model":"m","max_tokens":1,"messages":messages[..count]});
        let ask = admitted_request(Dialect::Messages, body.to_string().as_bytes());
        let pieces = match delivered {
            Some(delivered) => native.build_continuation(&ask, &target, delivered),
            None => native.build_request(&ask, &target),
        };
        let pieces = pieces.unwrap();
        let within = |piece: &&Bytes| ask.body.as_ptr_range().contains(&piece.as_ptr());
        let shared: usize = pieces.iter().filter(within).map(Bytes::len).sum();
        assert!(count < 5 || shared >= 10_000, "the client's own bytes are shared");
        let sent: Value = serde_json::from_slice(&pieces.concat()).unwrap();
        sent["messages"].as_array().unwrap().clone()
    };
    let all = of(messages.len(), None);
    let roles: Vec<&str> = all.iter().map(|turn| turn["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user"]);
    for (count, turns) in [(2, 1), (5, 3), (6, 4)] {
        assert_eq!(of(count, None)[..], all[..turns], "{count} messages");
    }
    let continued = of(5, Some("So \"far\""));
    assert_eq!(continued[..3], all[..3]);
    assert_eq!(continued[3], json!({"role":"assistant","content":"So \"far\""}));
}

#[test]
fn a_continuation_appends_the_delivered_text_to_the_client_prefill() {
    let body = json!({"model":"m","max_tokens":1,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"Ans: "}]});
    let asked = admitted_request(Dialect::Messages, body.to_string().as_bytes());
    let abilities = OfferCapabilities {
        continuation: Some(ContinuationMethod::ContinueFinalMessage),
        prefill: PrefillMethod::ContinueFinalMessage,
        ..OfferCapabilities::default()
    };
    let target = test_support::sample_target(Dialect::Chat, &abilities);
    let sent = find_pair(Dialect::Messages, Dialect::Chat)
        .build_continuation(&asked, &target, " 4\"2 ")
        .unwrap()
        .concat();
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    assert_eq!(sent["messages"][1], json!({"role":"assistant","content":"Ans: 4\"2 "}));
    assert_eq!(
        (&sent["add_generation_prompt"], &sent["continue_final_message"]),
        (&json!(false), &json!(true))
    );
    let unable = OfferCapabilities::default();
    let refused = find_pair(Dialect::Messages, Dialect::Chat).build_continuation(
        &asked,
        &test_support::sample_target(Dialect::Chat, &unable),
        "x",
    );
    assert_eq!(refused.unwrap_err().code, ErrorCode::Unsupported);
}

#[test]
fn edits_of_admission_are_applied_before_translation() {
    let body = br#"{"model":"m","messages":[{"role":"user","content":"hi"}],"functions":[{"name":"f"}]}"#;
    let mut ask = admitted_request(Dialect::Chat, body);
    let at = |text: &str| std::str::from_utf8(body).unwrap().find(text).unwrap();
    let insert = |at: usize, with: &'static str| BodyEdit {
        range: at..at,
        replacement: Bytes::from_static(with.as_bytes()),
    };
    ask.edits = vec![
        insert(at("{\"name\":\"f\"}"), r#"{"type":"function","function":"#),
        insert(body.len() - 2, "}"),
    ];
    ask.members.0[2].name = "tools".into();
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(Dialect::Messages, &abilities);
    let sent = find_pair(Dialect::Chat, Dialect::Messages).build_request(&ask, &target).unwrap().concat();
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    assert_eq!(sent["tools"][0]["name"], "f");
}

#[test]
fn ids_and_long_names_match_in_call_result_and_choice() {
    let long = format!("mcp__{}", "n".repeat(90));
    let body = json!({"model":"m","max_tokens":1,
        "tools":[{"name":long,"input_schema":{"type":"object"}}],
        "tool_choice":{"type":"tool","name":long},
        "messages":[
            {"role":"user","content":"q"},
            {"role":"assistant","content":[{"type":"tool_use","id":"toolu_01ABC","name":long,"input":{}}]},
            {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_01ABC","content":"r"}]}]});
    let sent = sent_body(&body, &OfferCapabilities { short_tool_ids: true, ..OfferCapabilities::default() });
    let call = &sent["messages"][1]["tool_calls"][0];
    assert_eq!(call["id"], sent["messages"][2]["tool_call_id"]);
    assert_eq!(call["id"].as_str().unwrap().len(), 9);
    assert_eq!(call["function"]["name"], sent["tools"][0]["function"]["name"]);
    assert_eq!(call["function"]["name"], sent["tool_choice"]["function"]["name"]);
    assert_eq!(call["function"]["name"].as_str().unwrap().len(), 64);
}

/// Tests the block types that validation accepts as blocks of vendor tools, and an unknown block type.
#[test]
fn blocks_of_vendor_tools_are_skipped_for_both_roles() {
    let abilities = OfferCapabilities::default();
    let asked = |user: Value, assistant: Value| {
        let body = json!({"model":"m","max_tokens":1,"messages":[
            {"role":"user","content":user},{"role":"assistant","content":assistant},{"role":"user","content":"q"}]});
        let ask = admitted_request(Dialect::Messages, body.to_string().as_bytes());
        let sent = find_pair(Dialect::Messages, Dialect::Chat)
            .build_request(&ask, &test_support::sample_target(Dialect::Chat, &abilities))?;
        let sent: Value = serde_json::from_slice(&sent.concat()).unwrap();
        Ok::<_, ApiError>(sent["messages"].clone())
    };
    let text = || json!({"type":"text","text":"t"});
    let expected = json!([{"role":"user","content":"t"},{"role":"assistant","content":"t"},{"role":"user","content":"q"}]);
    let names =
        ["server_tool_use", "mcp_tool_use", "container_upload", "tool_reference", "web_search_tool_result"];
    for kind in names.into_iter().chain(["mcp_tool_result", "code_execution_tool_result"]) {
        let block =
            || json!({"type":kind,"id":"i","tool_use_id":"i","name":"n","input":{},"content":[{"type":"x"}]});
        assert_eq!(asked(json!([block(), text()]), json!([text(), block()])).unwrap(), expected, "{kind}");
        // The message has content, but only the models of the vendor that runs the tool can read it.
        let refusal = asked(json!([block()]), json!([text()])).unwrap_err();
        assert_eq!(
            (refusal.code, refusal.param.as_deref()),
            (ErrorCode::Unsupported, Some("messages.0.content"))
        );
    }
    let hologram = || json!([{"type":"hologram"}]);
    for (user, assistant, at) in [(hologram(), json!([]), 0), (json!([text()]), hologram(), 1)] {
        let refusal = asked(user, assistant).unwrap_err();
        assert_eq!(refusal.param.as_deref(), Some(format!("messages.{at}.content.0.type").as_str()));
    }
}

/// Number of calls that fit in a body; a linear search for each would take minutes.
const MANY_CALLS: usize = 60_000;

#[test]
fn many_calls_and_results_are_matched_in_linear_time_with_any_escapes() {
    let id = |number: usize| format!("toolu_{number}");
    let call = |number| json!({"type":"tool_use","id":id(number),"name":"f","input":{}});
    let result = |number| json!({"type":"tool_result","tool_use_id":id(number),"content":""});
    let body = |calls: Vec<Value>, results: Vec<Value>| {
        json!({"model":"m","max_tokens":1,"messages":[
            {"role":"user","content":"q"},{"role":"assistant","content":calls},{"role":"user","content":results}]})
        .to_string()
    };
    let abilities = OfferCapabilities::default();
    let asked = |body: String| {
        let ask = admitted_request(Dialect::Messages, body.as_bytes());
        let sent = find_pair(Dialect::Messages, Dialect::Chat);
        sent.build_request(&ask, &test_support::sample_target(Dialect::Chat, &abilities))
            .map(|sent| sent.concat())
    };
    let many = body((0..MANY_CALLS).map(call).collect(), (0..MANY_CALLS).rev().map(result).collect());
    let sent = asked(many).unwrap();
    assert_eq!(String::from_utf8_lossy(&sent).matches(r#""role":"tool""#).count(), MANY_CALLS);
    assert!(asked(body(vec![call(0), call(1)], vec![result(1)])).is_err());

    let escaped = |number: usize| {
        body(vec![call(0)], vec![result(number)]).replace("_use_id\":\"t", "_use_id\":\"\\u0074")
    };
    assert!(escaped(0).contains(r#""\u0074oolu_0""#));
    assert!(asked(escaped(0)).is_ok());
    assert!(asked(escaped(1)).is_err());
    let twice = body(vec![call(0), call(0)], vec![result(0), result(0)]);
    assert_eq!(asked(twice).unwrap_err().code, ErrorCode::InvalidRequest);
}

#[test]
fn a_preset_fills_in_absent_members() {
    let preset: [(Box<str>, Box<str>); 2] =
        [("temperature".into(), "0.6".into()), ("top_p".into(), "0.95".into())];
    let body = json!({"model":"m","max_tokens":1,"temperature":0,"messages":[{"role":"user","content":"q"}]});
    for (client, provider) in [
        (Dialect::Messages, Dialect::Chat),
        (Dialect::Messages, Dialect::Messages),
        (Dialect::Chat, Dialect::Messages),
    ] {
        let ask = admitted_request(client, body.to_string().as_bytes());
        let abilities = OfferCapabilities::default();
        let target = AttemptTarget {
            preset: &preset,
            max_tokens: Some(77),
            ..test_support::sample_target(provider, &abilities)
        };
        let sent = find_pair(client, provider).build_request(&ask, &target).unwrap().concat();
        let sent: Value = serde_json::from_slice(&sent).unwrap();
        assert_eq!(
            (&sent["temperature"], &sent["top_p"], &sent["max_tokens"]),
            (&json!(0), &json!(0.95), &json!(77))
        );
    }
}

#[test]
fn a_preset_effort_is_sent_to_a_messages_provider_that_accepts_it() {
    let preset: [(Box<str>, Box<str>); 1] = [("reasoning_effort".into(), r#""high""#.into())];
    let sent = |effort: &str, parameters: &[&str]| {
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"q"}}]{effort}}}"#);
        let ask = admitted_request(Dialect::Chat, body.as_bytes());
        let parameters = parameters.iter().map(|name| (*name).into()).collect();
        let abilities = OfferCapabilities { parameters, ..OfferCapabilities::default() };
        let target =
            AttemptTarget { preset: &preset, ..test_support::sample_target(Dialect::Messages, &abilities) };
        let sent = find_pair(Dialect::Chat, Dialect::Messages).build_request(&ask, &target).unwrap().concat();
        serde_json::from_slice::<Value>(&sent).unwrap()["output_config"]["effort"].clone()
    };
    assert_eq!(sent("", &["reasoning_effort"]), "high");
    assert_eq!(sent(r#","reasoning_effort":"low""#, &["reasoning_effort"]), "low");
    assert_eq!(sent("", &["tools"]), Value::Null);
}

#[test]
fn a_temperature_above_1_is_never_sent_to_a_messages_provider() {
    let abilities = OfferCapabilities::default();
    let sent = |client: Dialect, written: Option<&str>, preset: &str| {
        let temperature = written.map(|written| format!(r#","temperature":{written}"#)).unwrap_or_default();
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"q"}}]{temperature}}}"#);
        let preset: [(Box<str>, Box<str>); 1] = [("temperature".into(), preset.into())];
        let ask = admitted_request(client, body.as_bytes());
        let target =
            AttemptTarget { preset: &preset, ..test_support::sample_target(Dialect::Messages, &abilities) };
        let sent = find_pair(client, Dialect::Messages).build_request(&ask, &target).unwrap().concat();
        serde_json::from_slice::<Value>(&sent).unwrap()["temperature"].to_string()
    };
    let cases =
        [("2", "1"), ("1.0001", "1"), ("0.2e1", "1"), ("1", "1"), ("1.0", "1.0"), ("0.3", "0.3"), ("0", "0")];
    for (written, expected) in cases {
        assert_eq!(sent(Dialect::Chat, Some(written), "0.5"), expected);
        assert_eq!(sent(Dialect::Chat, None, written), expected);
        assert_eq!(sent(Dialect::Messages, None, written), expected);
    }
}

#[test]
fn invalid_requests_are_refused_without_a_panic() {
    let bodies = [
        json!({}),
        json!({"messages":7}),
        json!({"messages":[7, null, {"role":"user"}]}),
        json!({"messages":[{"role":"robot","content":"x"}]}),
        json!({"messages":[{"role":"user","content":[{"type":"image"}]}]}),
        json!({"messages":[{"role":"user","content":[{"type":"tool_result"}]}]}),
        json!({"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":"x"}]}]}),
        json!({"messages":[{"role":"user","content":{"a":1}}]}),
    ];
    let abilities = OfferCapabilities::default();
    for body in bodies {
        let ask = admitted_request(Dialect::Messages, body.to_string().as_bytes());
        let refused = find_pair(Dialect::Messages, Dialect::Chat)
            .build_request(&ask, &test_support::sample_target(Dialect::Chat, &abilities));
        let code = refused.unwrap_err().code;
        assert!(matches!(code, ErrorCode::InvalidRequest | ErrorCode::Unsupported), "{body}");
        let ask = super::admitted_request(Dialect::Chat, body.to_string().as_bytes());
        let _ = find_pair(Dialect::Chat, Dialect::Messages)
            .build_request(&ask, &test_support::sample_target(Dialect::Messages, &abilities));
    }
}

/// The translation of a stream reports its buffered bytes for each pair of dialects: incomplete events, held events,
/// calls.
#[test]
fn buffered_bytes_of_a_stream_are_reported() {
    let long = "x".repeat(50_000);
    let event = |value: Value| match value["type"].as_str() {
        Some(kind) => format!("event: {kind}\ndata: {value}\n\n"),
        None => format!("data: {value}\n\n"),
    };
    let delta = |delta: Value| event(json!({"choices":[{"index":0,"delta":delta}]}));
    let start = event(json!({"type":"message_start","message":{"id":"i","type":"message","role":"assistant",
        "model":"m","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}));
    let text = |text: &str| match text.len() {
        0 => String::new(),
        _ => {
            event(json!({"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}))
                + &event(
                    json!({"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":text}}),
                )
        }
    };
    let call = |index: u64, arguments: &str| {
        delta(
            json!({"tool_calls":[{"index":index,"id":format!("c{index}"),"function":{"name":"f","arguments":arguments}}]}),
        )
    };
    let input = event(json!({"type":"content_block_start","index":1,
        "content_block":{"type":"tool_use","id":"t","name":"f","input":{"a":long}}}));
    for client in [Dialect::Chat, Dialect::Messages] {
        let body = json!({"model":"m","max_tokens":100000,"stream":true,"messages":[{"role":"user","content":"hi"}],
            "tools":[]});
        let ask = admitted_request(client, body.to_string().as_bytes());
        let abilities = OfferCapabilities::default();
        let cases = [
            (Dialect::Chat, vec![(delta(json!({"content":"a"})), 0), (format!("data: {long}"), 50_000)]),
            (Dialect::Chat, vec![(call(0, &long), 50_000), (call(0, &long), 100_000)]),
            (Dialect::Messages, vec![(start.clone() + &text("a"), 0), (format!("data: {long}"), 50_000)]),
            (Dialect::Messages, vec![(start.clone() + &text("a") + &input, 50_000)]),
        ];
        for (provider, pieces) in cases {
            let mut reply = find_pair(client, provider)
                .translate_stream(&ask, &test_support::sample_target(provider, &abilities));
            let mut out = OutputBuffer::default();
            for (piece, least) in pieces {
                reply.push(Bytes::from(piece), &mut out).unwrap();
                let most = least * 4 + 512;
                assert!(
                    (least..most).contains(&reply.buffered_bytes()),
                    "{client:?} {provider:?}: {}",
                    reply.buffered_bytes()
                );
            }
        }
    }
    // The second call is buffered until the first is complete.
    let ask = admitted_request(
        Dialect::Messages,
        json!({"model":"m","max_tokens":100000,"stream":true,"messages":[]}).to_string().as_bytes(),
    );
    let abilities = OfferCapabilities::default();
    let mut reply = find_pair(Dialect::Messages, Dialect::Chat)
        .translate_stream(&ask, &test_support::sample_target(Dialect::Chat, &abilities));
    let mut out = OutputBuffer::default();
    reply.push(Bytes::from(call(0, "{") + &call(1, &format!("{{\"b\":\"{long}"))), &mut out).unwrap();
    let waiting = reply.buffered_bytes();
    assert!(waiting >= 100_000, "{waiting}: as arguments, and until its block opens");
    reply.push(Bytes::from(call(0, "}")), &mut out).unwrap();
    assert!(reply.buffered_bytes() < waiting - 49_000, "{} of {waiting}", reply.buffered_bytes());
}

#[test]
fn reasoning_that_the_client_does_not_see_is_not_delivered() {
    let chunk = |delta: Value| format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta}]}));
    let reasoning = chunk(json!({"reasoning_content": "Hm, let me see. "}));
    let abilities = OfferCapabilities::default();
    for (thinking, seen) in [
        (json!({"type": "disabled"}), 0),
        (json!({"type": "enabled", "budget_tokens": 1024}), 16),
        (json!({"type": "enabled", "budget_tokens": 1024, "display": "omitted"}), 0),
    ] {
        let body = json!({"model": "m", "max_tokens": 2048, "stream": true, "thinking": thinking,
            "messages": [{"role": "user", "content": "Hi"}]});
        let ask = admitted_request(Dialect::Messages, body.to_string().as_bytes());
        let target = test_support::sample_target(Dialect::Chat, &abilities);
        let mut reply = find_pair(Dialect::Messages, Dialect::Chat).translate_stream(&ask, &target);
        let mut out = OutputBuffer::default();
        reply.push(reasoning.clone().into(), &mut out).unwrap();
        assert_eq!(reply.progress(), StreamProgress::Committed);
        let part = reply.delivered_usage();
        assert_eq!((part.bytes, part.is_empty, part.usage.output), (seen, seen == 0, seen as u64 / 4));
        reply.push(chunk(json!({"content": "Well"})).into(), &mut out).unwrap();
        let part = reply.delivered_usage();
        assert_eq!((part.bytes, part.is_empty), (seen + 4, false), "{thinking}");
        // The usage of the whole answer includes the reasoning, hidden or not.
        assert_eq!(reply.estimated_usage().output, 5);
    }
}
