//! Tests of members that the client itself sends. After the provider has refused such a member, the gateway omits it:
//! it enforces the meaning of the member itself, or the value is the default.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::{find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;
use penstock_request_validation::{
    MessagesPurpose, RequestLimits, ResponsesPurpose, validate_chat_request, validate_messages_request,
    validate_responses_request,
};
use serde_json::{Value, json};

const CLIENTS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];

/// Returns a valid request with stop sequences and tools in the dialect of the client.
fn request(client: Dialect, stop: &Value) -> InferenceRequest {
    let (limits, schema) = (RequestLimits::default(), json!({"type": "object"}));
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let body = match client {
        Dialect::Chat => json!({"model": "m", "stream": true, "messages": messages, "stop": stop,
            "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}],
            "tool_choice": "auto", "parallel_tool_calls": false}),
        Dialect::Messages => json!({"model": "m", "stream": true, "max_tokens": 90, "messages": messages,
            "stop_sequences": stop, "tools": [{"name": "f", "input_schema": schema}],
            "tool_choice": {"type": "auto", "disable_parallel_tool_use": true}}),
        _ => json!({"model": "m", "stream": true, "input": "Hi", "stop": stop,
            "tools": [{"type": "function", "name": "f", "parameters": schema}],
            "tool_choice": "auto", "parallel_tool_calls": false}),
    };
    let body = Bytes::from(body.to_string());
    match client {
        Dialect::Chat => validate_chat_request(body, &limits),
        Dialect::Messages => validate_messages_request(body, &limits, MessagesPurpose::Generate),
        _ => validate_responses_request(body, &limits, ResponsesPurpose::Generate),
    }
    .unwrap()
}

/// Calls the function for each pair of dialects, with a target that has refused these members.
fn for_each_pair(
    omitted: AdjustableMemberSet,
    mut check: impl FnMut(Dialect, &dyn Translator, &AttemptTarget<'_>),
) {
    let abilities = OfferCapabilities {
        parameters: vec!["parallel_tool_calls".into(), "stop".into()],
        ..OfferCapabilities::default()
    };
    for client in CLIENTS {
        for provider in CLIENTS {
            let mut target = test_support::sample_target(provider, &abilities);
            target.adjustment.omitted = omitted;
            check(client, find_translator(client, provider).unwrap(), &target);
        }
    }
}

fn sent_body(pair: &dyn Translator, ask: &InferenceRequest, target: &AttemptTarget<'_>) -> Value {
    serde_json::from_slice(&pair.build_request(ask, target).unwrap().concat()).unwrap()
}

/// Returns a stream of the provider with these fragments of text.
fn text_stream(provider: Dialect, texts: [&str; 2]) -> String {
    let event = |data: Value| match provider {
        Dialect::Chat => format!("data: {data}\n\n"),
        _ => format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap()),
    };
    let deltas = |delta: &dyn Fn(&str) -> Value| texts.map(|text| event(delta(text))).concat();
    match provider {
        Dialect::Chat => {
            deltas(&|text| json!({"choices": [{"index": 0, "delta": {"content": text}}]}))
                + &event(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
        }
        Dialect::Messages => {
            let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
                "content": [], "usage": {"input_tokens": 1, "output_tokens": 1}});
            event(json!({"type": "message_start", "message": message}))
                + &event(json!({"type": "content_block_start", "index": 0,
                    "content_block": {"type": "text", "text": ""}}))
                + &deltas(&|text| {
                    json!({"type": "content_block_delta", "index": 0,
                    "delta": {"type": "text_delta", "text": text}})
                })
                + &event(json!({"type": "content_block_stop", "index": 0}))
                + &event(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
                    "usage": {"output_tokens": 3}}))
                + &event(json!({"type": "message_stop"}))
        }
        _ => {
            let item = json!({"type": "message", "id": "msg_1", "role": "assistant", "content": []});
            event(json!({"type": "response.created", "response": {"status": "in_progress"}}))
                + &event(json!({"type": "response.output_item.added", "output_index": 0, "item": item}))
                + &deltas(&|text| {
                    json!({"type": "response.output_text.delta", "output_index": 0,
                    "content_index": 0, "delta": text})
                })
                + &event(
                    json!({"type": "response.completed", "response": {"status": "completed", "output": []}}),
                )
        }
    }
}

#[test]
fn refused_stop_sequences_are_enforced_by_the_gateway_for_every_client() {
    for_each_pair(AdjustableMemberSet::from_member(AdjustableMember::Stop), |client, pair, target| {
        for stop in [json!(["STOP", "END"]), json!([])] {
            let ask = request(client, &stop);
            let sent = sent_body(pair, &ask, target);
            assert_eq!((sent.get("stop"), sent.get("stop_sequences")), (None, None), "{client:?} {sent}");
        }
        let ask = request(client, &json!(["STOP", "END"]));
        let stream = text_stream(target.dialect, ["one EN", "D two"]);
        let run = test_support::run_all_splits(&|| pair.translate_stream(&ask, target), stream.as_bytes());
        let out = String::from_utf8(run.out).unwrap();
        assert_eq!(run.fault, None, "{client:?} {:?}: {out}", target.dialect);
        assert!(out.contains("one ") && !out.contains("two"), "{client:?} {:?}: {out}", target.dialect);
    });
}

#[test]
fn refused_members_about_tool_calls_are_omitted_for_every_client() {
    for_each_pair(
        AdjustableMemberSet::from_member(AdjustableMember::ParallelTools),
        |client, pair, target| {
            let sent = sent_body(pair, &request(client, &json!([])), target).to_string();
            assert!(sent.contains("tool_choice") && !sent.contains("parallel"), "{client:?} {sent}");
        },
    );
    let both = AdjustableMemberSet::from_member(AdjustableMember::ParallelTools)
        .union(AdjustableMemberSet::from_member(AdjustableMember::ToolChoice));
    for_each_pair(both, |client, pair, target| {
        let sent = sent_body(pair, &request(client, &json!([])), target);
        assert_eq!(
            (sent.get("tool_choice"), sent["tools"].as_array().unwrap().len()),
            (None, 1),
            "{client:?}"
        );
    });
}

#[test]
fn a_choice_other_than_the_default_is_sent_although_the_member_was_refused() {
    let refused = AdjustableMemberSet::from_member(AdjustableMember::ToolChoice);
    for_each_pair(refused, |client, pair, target| {
        let mut ask = request(client, &json!([]));
        let body = String::from_utf8(ask.body.to_vec()).unwrap();
        // The other word has the same length, so that the recorded ranges of the members remain valid.
        ask.body = body.replace("\"auto\"", "\"none\"").into();
        let sent = sent_body(pair, &ask, target);
        assert!(sent["tool_choice"].to_string().contains("none"), "{client:?} {sent}");
    });
}
