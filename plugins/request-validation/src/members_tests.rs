//! Tests that the gateway defines a treatment for every member of the current client libraries, and that members
//! which request unsupported features are refused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::RefusedValues::{
    BigEndian, ForcedTool, NonTextModalities, NotFloat, NotFloat32, NotTrue, RunnerOptions,
};
use super::*;
use crate::limits::RequestLimits;
use crate::messages::MessagesPurpose;
use bytes::Bytes;
use penstock_core::{ErrorCode, InferenceRequest};
use std::collections::BTreeSet;

pub(super) fn ask(dialect: Dialect, members: &str) -> Result<InferenceRequest, ApiError> {
    let comma = if members.is_empty() { "" } else { "," };
    let conversation = match dialect {
        Dialect::Responses => r#""input":"hi""#,
        _ => r#""max_tokens":9,"messages":[{"role":"user","content":"hi"}]"#,
    };
    let body = format!(r#"{{"model":"m",{conversation}{comma}{members}}}"#);
    crate::validate_generation_request(dialect, Bytes::from(body), &RequestLimits::default())
}

fn refused(dialect: Dialect) -> impl Iterator<Item = (&'static KnownMember, RefusedValues)> {
    KNOWN_MEMBERS.iter().filter(move |member| member.dialect == dialect).filter_map(|member| {
        match member.treatment {
            Refused(asks) => Some((member, asks)),
            Supported | Harmless | Engine => None,
        }
    })
}

#[test]
fn every_member_of_the_newest_client_libraries_has_a_fate() {
    let list = include_str!("../testdata/sdk_members.txt");
    assert!(list.lines().count() > 60);
    let known: BTreeSet<String> =
        KNOWN_MEMBERS.iter().map(|member| format!("{} {}", member.dialect.name(), member.name)).collect();
    assert_eq!(known.len(), KNOWN_MEMBERS.len(), "no member stands twice");
    assert!(
        KNOWN_MEMBERS
            .windows(2)
            .all(|two| (two[0].dialect as u8, two[0].name) < (two[1].dialect as u8, two[1].name))
    );
    let nested: Vec<String> = NESTED_MESSAGES_MEMBERS
        .iter()
        .map(|member| format!("messages {}.{}", member.object, member.name))
        .collect();
    let places: Vec<_> = NESTED_MESSAGES_MEMBERS.iter().map(|member| (member.object, member.name)).collect();
    assert!(places.is_sorted_by(|one, other| one < other));
    let new: Vec<&str> =
        list.lines().filter(|line| !known.contains(*line) && !nested.iter().any(|one| one == line)).collect();
    assert!(new.is_empty(), "without a fate: {new:?}");
    let gone: Vec<&String> = nested.iter().filter(|line| !list.lines().any(|one| one == *line)).collect();
    assert!(gone.is_empty(), "not in the client libraries: {gone:?}");
}

fn ask_completion(members: &str) -> Result<InferenceRequest, ApiError> {
    let body = format!(r#"{{"model":"m","prompt":"hi",{members}}}"#);
    crate::validate_text_completion_request(Bytes::from(body), &RequestLimits::default())
}

#[test]
fn text_completions_refuse_what_chat_refuses_and_what_only_chat_supports() {
    let names = |(name, asks, _): &RefusedMember| (*name, *asks);
    let of_chat = refused(Dialect::Chat).map(|(member, asks)| (member.name, asks));
    let rows = of_chat
        .chain(REFUSED_COMPLETION_MEMBERS.iter().map(names))
        .chain(COMMON_REFUSED_MEMBERS.iter().map(names))
        .filter(|(name, _)| *name != "prompt");
    for (name, asks) in rows {
        let refusal = ask_completion(&format!("\"{name}\":{}", requesting_value(asks))).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::Unsupported, "{name}");
        assert!(refusal.param.unwrap().starts_with(name), "{name}");
        assert!(ask_completion(&format!("\"{name}\":null")).is_ok(), "{name}");
    }
    for (name, value) in [
        ("tool_choice", r#"{"type":"function","function":{"name":"f"}}"#),
        ("function_call", r#"{"name":"f"}"#),
        ("top_logprobs", "3"),
        ("text", r#"{"format":{"type":"json_object"}}"#),
    ] {
        let refusal = ask_completion(&format!("\"{name}\":{value}")).unwrap_err();
        assert!(refusal.param.unwrap().starts_with(name), "{name}");
    }
    for harmless in [
        r#""tool_choice":"none""#,
        r#""tool_choice":"auto","tools":[]"#,
        r#""function_call":"none","parallel_tool_calls":false"#,
        r#""text":{"verbosity":"low"}"#,
    ] {
        assert!(ask_completion(harmless).is_ok(), "{harmless}");
    }
}

/// Returns a value that requests a refused feature.
fn requesting_value(asks: RefusedValues) -> &'static str {
    match asks {
        ContextEdits => r#"{"edits":[{"type":"compact_20260112"}]}"#,
        ThirdPartyPayment => r#"{"type":"billing_policy","bill_to":"user_profile"}"#,
        ModeNotOff => r#"{"mode":"on"}"#,
        ProviderConstraints => r#"{"only":["x"]}"#,
        GuidedMembers => r#"{"guided_json":{"type":"object"}}"#,
        FormatNotText => r#"{"type":"json_schema"}"#,
        NestedFormat => r#"{"format":{"type":"json_schema"}}"#,
        NonTextModalities => r#"["text","audio"]"#,
        RunnerOptions => r#"{"num_ctx":8,"num_predict":3}"#,
        Prewarm => r#"{"prewarm":true}"#,
        BackgroundWindow => r#"{"completion_window":"24h"}"#,
        NotFloat => r#"["float","int8"]"#,
        NotFloat32 => r#""float16""#,
        BigEndian => r#""big""#,
        NotTrue => "false",
        ForcedTool => r#""required""#,
        Present | NonEmpty | OutsideEu | SeveralChoices => r#"{"a":1}"#,
    }
}

#[test]
fn foreign_members_are_refused_at_every_conversation_endpoint() {
    let sorted = |rows: &[RefusedMember]| rows.windows(2).all(|two| two[0].0 < two[1].0);
    assert!(sorted(COMMON_REFUSED_MEMBERS) && sorted(REFUSED_MESSAGES_MEMBERS));
    for dialect in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
        let own = REFUSED_MESSAGES_MEMBERS.iter().filter(|_| dialect == Dialect::Messages);
        for (name, asks, _) in COMMON_REFUSED_MEMBERS.iter().chain(own) {
            if find_member(dialect, name).is_some_and(|row| !matches!(row.treatment, Refused(_)))
                || (dialect, *name) == (Dialect::Chat, "modalities")
            {
                continue;
            }
            let refusal = ask(dialect, &format!("\"{name}\":{}", requesting_value(*asks))).unwrap_err();
            assert_eq!(refusal.code, ErrorCode::Unsupported, "{dialect:?} {name}");
            assert!(refusal.param.unwrap().starts_with(name), "{dialect:?} {name}");
            assert!(ask(dialect, &format!("\"{name}\":null")).is_ok(), "{dialect:?} {name}");
        }
    }
}

#[test]
fn empty_values_of_members_that_are_refused_unless_empty_pass() {
    for dialect in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
        let rows = refused(dialect).filter(|(_, asks)| matches!(asks, NonEmpty | FormatNotText));
        for (member, _) in rows {
            for value in ["null", "false", r#""""#, "[]", "{}"] {
                let result = ask(dialect, &format!(r#""{}":{value}"#, member.name));
                let error = result.err().map(|error| (error.param, error.message));
                assert_eq!(error, None, "{dialect:?} {}: {value}", member.name);
            }
        }
        if dialect != Dialect::Chat {
            assert!(ask(dialect, r#""response_format":{"type":"text"}"#).is_ok(), "{dialect:?}");
        }
    }
}

#[test]
fn values_of_foreign_members_without_an_effect_pass() {
    // Ids that clients send for their traces have no effect, because the request contains the whole history.
    let ids = r#""session_id":"s","conversation_id":"c","thread_id":"t","chat_id":"x","metadata":{"a":"b"},"user":"u""#;
    let text = r#""response_format":{"type":"text"},"text":{"format":{"type":"text"},"verbosity":"low"}"#;
    let runner =
        r#""options":{"num_ctx":8192,"num_predict":-1,"temperature":0.5,"stop":[]},"keep_alive":"5m""#;
    let empty =
        r#""system":"","format":"","extra_body":{},"stop_words":[],"candidate_count":1,"json_mode":false"#;
    for members in [ids, text, runner, empty, r#""output_format":{"type":"text"},"modalities":["text"]"#] {
        for dialect in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
            let members = match dialect {
                // In this dialect these are members with other valid values, so they are skipped here.
                Dialect::Messages if members.contains("output_format") || members.contains("system") => {
                    continue;
                }
                _ => members,
            };
            let result = ask(dialect, members);
            assert!(result.is_ok(), "{dialect:?}: {members}: {}", result.unwrap_err().message);
        }
    }
}

#[test]
fn caps_under_the_names_of_engines_are_caps() {
    let cap = |members: &str| {
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"hi"}}],{members}}}"#);
        let ask = crate::validate_chat_request(Bytes::from(body), &RequestLimits::default());
        ask.unwrap().max_tokens
    };
    assert_eq!(cap(r#""max_new_tokens":5"#), Some(5));
    assert_eq!(cap(r#""num_predict":5"#), Some(5));
    assert_eq!(cap(r#""num_predict":-2"#), None);
    assert_eq!(cap(r#""max_tokens":7,"max_new_tokens":5"#), Some(7));
}

#[test]
fn parallel_calls_are_switched_off_by_the_name_of_chat_too() {
    let parallel = |members: &str| ask(Dialect::Messages, members).unwrap().parallel_tools;
    assert!(parallel("") && parallel(r#""parallel_tool_calls":true"#));
    assert!(!parallel(r#""parallel_tool_calls":false"#));
    assert!(!parallel(
        r#""parallel_tool_calls":true,"tool_choice":{"type":"auto","disable_parallel_tool_use":true}"#
    ));
}

#[test]
fn images_beside_the_content_are_refused_and_partial_is_a_prefix() {
    let limits = RequestLimits::default();
    let chat = |message: &str| {
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"hi"}},{message}]}}"#);
        crate::validate_chat_request(Bytes::from(body), &limits)
    };
    let refusal = chat(r#"{"role":"user","content":"hi","images":["aGk="]}"#).unwrap_err();
    assert_eq!(
        (refusal.code, refusal.param.as_deref()),
        (ErrorCode::Unsupported, Some("messages[1].images"))
    );
    assert!(chat(r#"{"role":"user","content":"hi","images":[]}"#).is_ok());
    for (members, is_prefill) in [
        (r#""partial":true"#, true),
        (r#""partial":false"#, false),
        (r#""partial":false,"prefix":true"#, true),
    ] {
        let ask = chat(&format!(r#"{{"role":"assistant","content":"He",{members}}}"#)).unwrap();
        assert_eq!(ask.required.prefill, is_prefill, "{members}");
    }
    let refusal = chat(r#"{"role":"assistant","content":"He","partial":"yes"}"#).unwrap_err();
    assert_eq!(refusal.param.as_deref(), Some("messages[1].partial"));
}

#[test]
fn structured_outputs_must_be_an_object() {
    for value in ["\"x\"", "[1]", "5"] {
        let refusal = ask(Dialect::Chat, &format!("\"structured_outputs\":{value}")).unwrap_err();
        assert_eq!(refusal.param.as_deref(), Some("structured_outputs"), "{value}");
    }
}

#[test]
fn every_refused_member_is_refused_by_name_and_passes_as_null() {
    for dialect in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
        let mut count = 0;
        for (member, asks) in refused(dialect) {
            let refusal =
                ask(dialect, &format!("\"{}\":{}", member.name, requesting_value(asks))).unwrap_err();
            assert_eq!(refusal.code, ErrorCode::Unsupported, "{}", member.name);
            assert!(refusal.param.unwrap().starts_with(member.name), "{}", member.name);
            assert!(refusal.message.starts_with(member.name), "{}", refusal.message);
            assert!(ask(dialect, &format!("\"{}\":null", member.name)).is_ok(), "{}", member.name);
            count += 1;
        }
        assert!(count > 5);
    }
}

#[test]
fn values_that_ask_for_nothing_pass() {
    for (dialect, members) in [
        (
            Dialect::Chat,
            r#""background":false,"context_management":[],"plugins":[ ],"instructions":"","input":[]"#,
        ),
        (
            Dialect::Chat,
            r#""store":true,"prediction":{"type":"content","content":"x"},"prompt_cache_key":"k""#,
        ),
        (Dialect::Chat, r#""search_parameters":{"mode":"off"},"moderation":{},"truncation":"auto""#),
        (
            Dialect::Messages,
            r#""mcp_servers":[],"context_management":{},"betas":["b"],"cache_control":{"type":"ephemeral"}"#,
        ),
        (
            Dialect::Messages,
            r#""context_management":{"edits":[]},"speed":"fast","service_tier":"auto","fallbacks":"default""#,
        ),
        (
            Dialect::Messages,
            r#""context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]}"#,
        ),
        (
            Dialect::Messages,
            r#""inference_geo":"EU","billing_policy":{"type":"billing_policy","bill_to":"self"}"#,
        ),
        (Dialect::Messages, r#""inference_geo":"global","diagnostics":{"previous_message_id":null}"#),
        (Dialect::Messages, r#""some_new_beta":{"a":1}"#),
        (Dialect::Messages, r#""stop":[],"background":false,"provider":{"sort":"price"}"#),
        (
            Dialect::Chat,
            r#""provider":{"only":[],"data_collection":"allow","sort":"price","allow_fallbacks":true}"#,
        ),
        // No provider trains models on requests.
        (Dialect::Chat, r#""provider":{"data_collection":"deny","zdr":false}"#),
        (Dialect::Messages, r#""provider":{"data_collection":"deny"}"#),
        (Dialect::Responses, r#""provider":{"data_collection":"deny"}"#),
        (Dialect::Chat, r#""provider":"azure","nvext":{"annotations":["x"],"guided_json":null}"#),
        (Dialect::Chat, r#""stop_sequences":[],"data_sources":[]"#),
        (Dialect::Chat, r#""prompt_cache_options":{"prewarm":false,"ttl":"1h"}"#),
        (Dialect::Responses, r#""prompt_cache_options":{"prewarm":null,"scope":"x"}"#),
        (Dialect::Responses, r#""background_options":{"completion_window":"soonest"}"#),
        (Dialect::Responses, r#""background_options":{"completion_window":null}"#),
        (Dialect::Responses, r#""background_options":{}"#),
        (Dialect::Responses, r#""messages":[]"#),
        (Dialect::Chat, r#""search_parameters":{}"#),
        (Dialect::Chat, r#""some_new_beta":{"a":1}"#),
    ] {
        assert!(ask(dialect, members).is_ok(), "{members}: {:?}", ask(dialect, members).unwrap_err().message);
    }
}

#[test]
fn a_filter_that_would_change_the_request_is_rejected_with_its_path() {
    for (dialect, members, param) in [
        (
            Dialect::Messages,
            r#""context_management":{"edits":[{"type":"clear_thinking_20251015"},{"type":"clear_tool_uses_20250919"}]}"#,
            "context_management.edits.1.type",
        ),
        (Dialect::Messages, r#""context_management":{"edits":[{}]}"#, "context_management.edits.0.type"),
        (Dialect::Messages, r#""context_management":{"edits":{}}"#, "context_management"),
        (Dialect::Messages, r#""context_management":"x""#, "context_management"),
        (Dialect::Messages, r#""container":"c_1""#, "container"),
        (Dialect::Messages, r#""inference_geo":"us""#, "inference_geo"),
        (Dialect::Messages, r#""compaction":{"type":"summarize"}"#, "compaction"),
        (Dialect::Messages, r#""billing_policy":{"bill_to":"user_profile"}"#, "billing_policy"),
        (Dialect::Chat, r#""previous_response_id":"resp_1""#, "previous_response_id"),
        (Dialect::Chat, r#""conversation":{"id":"conv_1"}"#, "conversation"),
        (Dialect::Chat, r#""background":true"#, "background"),
        (Dialect::Chat, r#""plugins":[{"id":"web"}]"#, "plugins"),
        (Dialect::Chat, r#""prompt":{"id":"pmpt_1"}"#, "prompt"),
        (Dialect::Chat, r#""provider":{"data_collection":"deny","zdr":true}"#, "provider.zdr"),
        (Dialect::Chat, r#""provider":{"order":["x"]}"#, "provider.order"),
        (Dialect::Responses, r#""provider":{"ignore":["x"]}"#, "provider.ignore"),
        (Dialect::Chat, r#""nvext":{"guided_choice":["a"]}"#, "nvext.guided_choice"),
        (Dialect::Messages, r#""prompt":{"id":"pmpt_1"}"#, "prompt"),
        (Dialect::Messages, r#""stop":"END""#, "stop"),
        (Dialect::Messages, r#""stop":" ""#, "stop"),
        (Dialect::Chat, r#""search_parameters":{"sources":[{"type":"web"}]}"#, "search_parameters"),
        (Dialect::Responses, r#""messages":[{"role":"user","content":"hi"}]"#, "messages"),
        (Dialect::Chat, r#""prompt_cache_options":{"prewarm":true}"#, "prompt_cache_options.prewarm"),
        (
            Dialect::Responses,
            r#""prompt_cache_options":{"ttl":"1h","prewarm":true}"#,
            "prompt_cache_options.prewarm",
        ),
        (
            Dialect::Responses,
            r#""background_options":{"completion_window":"24h"}"#,
            "background_options.completion_window",
        ),
        (Dialect::Responses, r#""background_options":"soonest""#, "background_options"),
    ] {
        let refusal = ask(dialect, members).unwrap_err();
        assert_eq!(
            (refusal.code, refusal.param.as_deref()),
            (ErrorCode::Unsupported, Some(param)),
            "{members}"
        );
    }
}

#[test]
fn zero_retention_is_refused_with_a_sentence_of_its_own() {
    let message = |members: &str| ask(Dialect::Chat, members).unwrap_err().message;
    let retention = message(r#""provider":{"zdr":true}"#);
    assert!(retention.contains("retention") && !retention.contains("filters"), "{retention}");
    assert!(
        message(r#""provider":{"zdr":true,"only":["x"]}"#).starts_with("provider.only: choose providers")
    );
}

#[test]
fn the_cap_of_another_endpoint_is_a_cap() {
    assert_eq!(ask(Dialect::Chat, r#""max_output_tokens":5"#).unwrap().max_tokens, Some(9));
    let body = Bytes::from_static(
        br#"{"model":"m","messages":[{"role":"user","content":"hi"}],"max_output_tokens":5}"#,
    );
    assert_eq!(crate::validate_chat_request(body, &RequestLimits::default()).unwrap().max_tokens, Some(5));
}

#[test]
fn parts_of_a_history_that_refer_to_stored_contents_are_refused() {
    let body =
        |message: &str| Bytes::from(format!(r#"{{"model":"m","max_tokens":9,"messages":[{message}]}}"#));
    let limits = RequestLimits::default();
    let chat = |message: &str| crate::validate_chat_request(body(message), &limits);
    let refusal = chat(r#"{"role":"assistant","content":null,"audio":{"id":"audio_1"}}"#).unwrap_err();
    assert_eq!((refusal.code, refusal.param.as_deref()), (ErrorCode::Unsupported, Some("messages[0].audio")));
    for message in [
        r#"{"role":"assistant","content":"Hi","audio":{"id":"audio_1"}}"#,
        r#"{"role":"assistant","content":null,"audio":null}"#,
    ] {
        assert!(chat(message).is_ok(), "{message}");
    }
    let upload = r#"{"role":"user","content":[{"type":"container_upload","file_id":"file_1"}]}"#;
    let refusal =
        crate::validate_messages_request(body(upload), &limits, MessagesPurpose::Generate).unwrap_err();
    assert_eq!(
        (refusal.code, refusal.param.as_deref()),
        (ErrorCode::Unsupported, Some("messages.0.content.0.type"))
    );
}

#[test]
fn members_of_images_and_completions_are_refused_by_name() {
    let limits = RequestLimits::default();
    let value = |asks: RefusedValues| match asks {
        ProviderConstraints => r#"{"only":["x"]}"#,
        GuidedMembers => r#"{"guided_regex":"a"}"#,
        Prewarm => r#"{"prewarm":true}"#,
        NestedFormat => r#"{"format":{"type":"json_object"}}"#,
        _ => "3",
    };
    for (name, asks, _) in REFUSED_IMAGE_MEMBERS {
        let body = format!(r#"{{"model":"m","prompt":"x","{name}":{}}}"#, value(*asks));
        let refusal = crate::validate_image_generation(Bytes::from(body), &limits).unwrap_err();
        assert!(refusal.param.unwrap().starts_with(name), "{name}");
    }
    for (name, asks, _) in REFUSED_COMPLETION_MEMBERS {
        let body = format!(r#"{{"model":"m","prompt":"x","{name}":{}}}"#, value(*asks));
        let refusal = crate::validate_text_completion_request(Bytes::from(body), &limits).unwrap_err();
        assert!(refusal.param.unwrap().starts_with(name), "{name}");
    }
    let body = br#"{"model":"m","prompt":"x","num_images":1,"loras":[],"sampler":""}"#;
    assert!(crate::validate_image_generation(Bytes::from_static(body), &limits).is_ok());
}
