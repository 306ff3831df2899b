//! Tests that every member of the current client libraries has a treatment, and that members which ask for more than an
//! answer are refused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::*;
use crate::limits::RequestLimits;
use crate::messages::MessagesPurpose;
use bytes::Bytes;
use penstock_core::{ErrorCode, InferenceRequest};
use std::collections::BTreeSet;

fn ask(dialect: Dialect, members: &str) -> Result<InferenceRequest, ApiError> {
    let comma = if members.is_empty() { "" } else { "," };
    let conversation = match dialect {
        Dialect::Responses => r#""input":"hi""#,
        _ => r#""max_tokens":9,"messages":[{"role":"user","content":"hi"}]"#,
    };
    let body = format!(r#"{{"model":"m",{conversation}{comma}{members}}}"#);
    crate::validate_conversation(dialect, Bytes::from(body), &RequestLimits::default())
}

fn refused(dialect: Dialect) -> impl Iterator<Item = (&'static KnownMember, RefusedValues)> {
    KNOWN_MEMBERS.iter().filter(move |member| member.dialect == dialect).filter_map(|member| {
        match member.treatment {
            Refused(asks) => Some((member, asks)),
            Honoured | Harmless | Engine => None,
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
    let new: Vec<&str> = list.lines().filter(|line| !known.contains(*line)).collect();
    assert!(new.is_empty(), "without a fate: {new:?}");
}

#[test]
fn a_thread_parameter_is_rejected_in_the_words_that_trigger_the_clients_fallback() {
    for thread in [
        r#"{"type":"create"}"#,
        r#"{"type":"continue","previous_message_id":"msg_1"}"#,
        "{}",
        "true",
        "\"x\"",
        "0",
    ] {
        let refusal = ask(Dialect::Messages, &format!(r#""thr\u0065ad":{thread}"#)).unwrap_err();
        assert_eq!((refusal.code, refusal.param.as_deref()), (ErrorCode::Unsupported, Some("thread")));
        assert_eq!(refusal.details["error_code"], "thread_unsupported_request");
        assert_eq!(refusal.details["unsupported"].as_array().unwrap(), &["thread"]);
        assert_eq!(refusal.details["code"], ErrorCode::Unsupported.spec().code);
    }
    assert!(ask(Dialect::Messages, r#""thread":null"#).is_ok());
}

#[test]
fn a_thread_parameter_is_rejected_before_errors_of_its_missing_history() {
    let turn = r#"[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x"}]}]"#;
    for purpose in [MessagesPurpose::Generate, MessagesPurpose::Count] {
        let body = format!(r#"{{"model":"m","messages":{turn},"thread":{{"type":"create"}}}}"#);
        let refusal = crate::validate_messages_request(Bytes::from(body), &RequestLimits::default(), purpose)
            .unwrap_err();
        assert_eq!(refusal.param.as_deref(), Some("thread"));
    }
}

#[test]
fn every_refused_member_is_refused_by_name_and_passes_as_null() {
    let strong = |member: &KnownMember, asks: RefusedValues| match asks {
        ContextEdits => r#"{"edits":[{"type":"compact_20260112"}]}"#.to_owned(),
        ThirdPartyPayment => r#"{"type":"billing_policy","bill_to":"user_profile"}"#.to_owned(),
        ModeNotOff => r#"{"mode":"on"}"#.to_owned(),
        ProviderConstraints => r#"{"only":["x"]}"#.to_owned(),
        GuidedMembers => r#"{"guided_json":{"type":"object"}}"#.to_owned(),
        Prewarm => r#"{"prewarm":true}"#.to_owned(),
        BackgroundWindow => r#"{"completion_window":"24h"}"#.to_owned(),
        Present | NonEmpty | OutsideEu | SeveralChoices => format!("{{\"{}\":1}}", member.name),
    };
    for dialect in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
        let mut count = 0;
        for (member, asks) in refused(dialect) {
            let refusal = ask(dialect, &format!("\"{}\":{}", member.name, strong(member, asks))).unwrap_err();
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
        _ => "3",
    };
    for (name, asks, _) in REFUSED_IMAGE_MEMBERS {
        let body = format!(r#"{{"model":"m","prompt":"x","{name}":{}}}"#, value(*asks));
        let refusal = crate::validate_images(Bytes::from(body), &limits).unwrap_err();
        assert!(refusal.param.unwrap().starts_with(name), "{name}");
    }
    for (name, asks, _) in REFUSED_COMPLETION_MEMBERS {
        let body = format!(r#"{{"model":"m","prompt":"x","{name}":{}}}"#, value(*asks));
        let refusal = crate::validate_completion(Bytes::from(body), &limits).unwrap_err();
        assert!(refusal.param.unwrap().starts_with(name), "{name}");
    }
    let body = br#"{"model":"m","prompt":"x","num_images":1,"loras":[],"sampler":""}"#;
    assert!(crate::validate_images(Bytes::from_static(body), &limits).is_ok());
}
