//! Test of every supported parameter of every client: each kind of provider gets it, translated if necessary, or the
//! gateway enforces it, or it has no equivalent. A new supported parameter needs a row in the table.
#![allow(clippy::unwrap_used)]

use crate::{find_translator, test_support};
use Outcome::{Dropped, Enforced, Refused, Sent};
use bytes::Bytes;
use penstock_core::{Dialect, OfferCapabilities};
use penstock_request_validation::members::{KNOWN_MEMBERS, MemberTreatment};
use penstock_request_validation::{
    MessagesPurpose, RequestLimits, ResponsesPurpose, validate_chat_request, validate_messages_request,
    validate_responses_request,
};
use serde_json::{Value, json};

/// Outcome of a parameter for one provider.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    /// Body for the provider has this value (JSON) at this pointer.
    Sent(&'static str, &'static str),
    /// Not sent; the gateway applies the parameter to the answer or the conversation.
    Enforced,
    /// Not sent, because the dialect has no equivalent and the answer is valid without it.
    Dropped,
    /// Refused for this provider.
    Refused,
}

/// Parameter with the members (JSON, without braces) of a sample request, and the outcomes for providers of the dialects
/// chat, messages and responses.
type Row = (&'static str, &'static str, [Outcome; 3]);

const CAP: [Outcome; 3] =
    [Sent("/max_tokens", "50"), Sent("/max_tokens", "50"), Sent("/max_output_tokens", "50")];
const TEMPERATURE: [Outcome; 3] =
    [Sent("/temperature", "0.5"), Sent("/temperature", "0.5"), Sent("/temperature", "0.5")];
const TOP_P: [Outcome; 3] = [Sent("/top_p", "0.5"), Sent("/top_p", "0.5"), Sent("/top_p", "0.5")];
const HIGH: [Outcome; 3] = [
    Sent("/reasoning_effort", r#""high""#),
    Sent("/output_config/effort", r#""high""#),
    Sent("/reasoning/effort", r#""high""#),
];
const SCHEMA: [Outcome; 3] = [
    Sent("/response_format/json_schema/schema/title", r#""zebra""#),
    Sent("/output_config/format/schema/title", r#""zebra""#),
    Sent("/text/format/schema/title", r#""zebra""#),
];
const TOOL: [Outcome; 3] = [
    Sent("/tools/0/function/name", r#""f""#),
    Sent("/tools/0/name", r#""f""#),
    Sent("/tools/0/name", r#""f""#),
];
const FORCED: [Outcome; 3] = [
    Sent("/tool_choice", r#""required""#),
    Sent("/tool_choice/type", r#""any""#),
    Sent("/tool_choice", r#""required""#),
];
const ONE_CALL: [Outcome; 3] = [
    Sent("/parallel_tool_calls", "false"),
    Sent("/tool_choice/disable_parallel_tool_use", "true"),
    Sent("/parallel_tool_calls", "false"),
];
const STREAM: [Outcome; 3] = [Sent("/stream", "true"), Sent("/stream", "true"), Sent("/stream", "true")];
const MODEL: [Outcome; 3] = [Sent("/model", r#""engine/model""#); 3];
const STOP: [Outcome; 3] = [Sent("/stop/0", r#""a""#), Sent("/stop_sequences/0", r#""a""#), Enforced];
const USER: [Outcome; 3] = [
    Sent("/messages/0/content", r#""Hi""#),
    Sent("/messages/0/content", r#""Hi""#),
    Sent("/input/0/content", r#""Hi""#),
];
const SYSTEM: [Outcome; 3] = [
    Sent("/messages/0/content", r#""Be brief.""#),
    Sent("/system", r#""Be brief.""#),
    Sent("/instructions", r#""Be brief.""#),
];
const LOGPROBS: [Outcome; 3] =
    [Sent("/logprobs", "true"), Refused, Sent("/include/0", r#""message.output_text.logprobs""#)];

#[rustfmt::skip]
const CHAT: &[Row] = &[
    ("frequency_penalty", r#""frequency_penalty":0.5"#, [Sent("/frequency_penalty", "0.5"), Dropped, Sent("/frequency_penalty", "0.5")]),
    ("function_call", r#""functions":[{"name":"f"}],"function_call":{"name":"f"}"#, [Sent("/tool_choice/function/name", r#""f""#), Sent("/tool_choice/name", r#""f""#), Sent("/tool_choice/name", r#""f""#)]),
    ("functions", r#""functions":[{"name":"f"}]"#, TOOL),
    ("logit_bias", r#""logit_bias":{"5":1}"#, [Sent("/logit_bias/5", "1"), Refused, Sent("/logit_bias/5", "1")]),
    ("logprobs", r#""logprobs":true"#, LOGPROBS),
    ("max_completion_tokens", r#""max_completion_tokens":50"#, CAP),
    ("max_new_tokens", r#""max_new_tokens":50"#, CAP),
    ("max_output_tokens", r#""max_output_tokens":50"#, CAP),
    ("max_tokens", r#""max_tokens":50"#, CAP),
    ("messages", r#""#, USER),
    ("modalities", r#""modalities":["text"]"#, [Dropped; 3]),
    ("model", r#""#, MODEL),
    ("n", r#""n":2"#, [Sent("/n", "2"), Refused, Refused]),
    ("num_predict", r#""num_predict":50"#, CAP),
    ("parallel_tool_calls", r#""tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"parallel_tool_calls":false"#, ONE_CALL),
    ("presence_penalty", r#""presence_penalty":0.5"#, [Sent("/presence_penalty", "0.5"), Dropped, Sent("/presence_penalty", "0.5")]),
    ("reasoning", r#""reasoning":{"effort":"high"}"#, HIGH),
    ("reasoning_effort", r#""reasoning_effort":"high""#, HIGH),
    ("response_format", r#""response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object","title":"zebra"}}}"#, SCHEMA),
    ("seed", r#""seed":5"#, [Sent("/seed", "5"), Dropped, Sent("/seed", "5")]),
    ("stop", r#""stop":["a"]"#, STOP),
    ("stream", r#""stream":true"#, STREAM),
    ("stream_options", r#""stream":true,"stream_options":{"include_usage":true}"#, [Sent("/stream_options/include_usage", "true"), Sent("/stream", "true"), Sent("/stream", "true")]),
    ("temperature", r#""temperature":0.5"#, TEMPERATURE),
    ("tool_choice", r#""tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"tool_choice":"required""#, FORCED),
    ("tools", r#""tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]"#, TOOL),
    ("top_logprobs", r#""logprobs":true,"top_logprobs":2"#, [Sent("/top_logprobs", "2"), Refused, Sent("/top_logprobs", "2")]),
    ("top_p", r#""top_p":0.5"#, TOP_P),
];

#[rustfmt::skip]
const MESSAGES: &[Row] = &[
    ("max_tokens", r#""max_tokens":50"#, CAP),
    ("messages", r#""#, USER),
    ("model", r#""#, MODEL),
    ("output_config", r#""output_config":{"effort":"high"}"#, HIGH),
    ("output_config", r#""output_config":{"format":{"type":"json_schema","schema":{"type":"object","title":"zebra"}}}"#, SCHEMA),
    ("output_format", r#""output_format":{"type":"json_schema","schema":{"type":"object","title":"zebra"}}"#, SCHEMA),
    ("parallel_tool_calls", r#""tools":[{"name":"f","input_schema":{"type":"object"}}],"parallel_tool_calls":false"#, ONE_CALL),
    ("stop_sequences", r#""stop_sequences":["a"]"#, STOP),
    ("stream", r#""stream":true"#, STREAM),
    ("system", r#""system":"Be brief.""#, SYSTEM),
    ("temperature", r#""temperature":0.5"#, TEMPERATURE),
    ("thinking", r#""thinking":{"type":"disabled"}"#, [Sent("/chat_template_kwargs/enable_thinking", "false"), Sent("/thinking/type", r#""disabled""#), Sent("/chat_template_kwargs/enable_thinking", "false")]),
    ("tool_choice", r#""tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"any"}"#, FORCED),
    ("tool_choice", r#""tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"auto","disable_parallel_tool_use":true}"#, ONE_CALL),
    ("tools", r#""tools":[{"name":"f","input_schema":{"type":"object"}}]"#, TOOL),
    ("top_k", r#""top_k":5"#, [Dropped, Sent("/top_k", "5"), Dropped]),
    ("top_p", r#""top_p":0.5"#, TOP_P),
];

#[rustfmt::skip]
const RESPONSES: &[Row] = &[
    ("include", r#""include":["message.output_text.logprobs"]"#, LOGPROBS),
    ("input", r#""#, USER),
    ("instructions", r#""instructions":"Be brief.""#, SYSTEM),
    ("max_output_tokens", r#""max_output_tokens":50"#, CAP),
    ("model", r#""#, MODEL),
    ("parallel_tool_calls", r#""tools":[{"type":"function","name":"f","parameters":{"type":"object"}}],"parallel_tool_calls":false"#, ONE_CALL),
    ("reasoning", r#""reasoning":{"effort":"high"}"#, HIGH),
    ("stream", r#""stream":true"#, STREAM),
    ("temperature", r#""temperature":0.5"#, TEMPERATURE),
    ("text", r#""text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object","title":"zebra"}}}"#, SCHEMA),
    ("tool_choice", r#""tools":[{"type":"function","name":"f","parameters":{"type":"object"}}],"tool_choice":"required""#, FORCED),
    ("tools", r#""tools":[{"type":"function","name":"f","parameters":{"type":"object"}}]"#, TOOL),
    ("top_logprobs", r#""top_logprobs":2"#, [Sent("/top_logprobs", "2"), Refused, Sent("/top_logprobs", "2")]),
    ("top_p", r#""top_p":0.5"#, TOP_P),
];

/// Parameters that no provider gets: they control the gateway itself.
const OF_THE_GATEWAY: [&str; 3] = ["background", "previous_response_id", "store"];

/// Returns the body for a provider; `None` if the request is refused.
fn sent(client: Dialect, provider: Dialect, members: &str) -> Option<Value> {
    let mut body = match client {
        Dialect::Responses => json!({"model": "m", "input": "Hi"}),
        Dialect::Messages => {
            json!({"model": "m", "max_tokens": 90, "messages": [{"role": "user", "content": "Hi"}]})
        }
        _ => json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]}),
    };
    let members: Value = serde_json::from_str(&format!("{{{members}}}")).unwrap();
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    let (body, limits) = (Bytes::from(body.to_string()), RequestLimits::default());
    let ask = match client {
        Dialect::Responses => validate_responses_request(body, &limits, ResponsesPurpose::Generate),
        Dialect::Messages => validate_messages_request(body, &limits, MessagesPurpose::Generate),
        _ => validate_chat_request(body, &limits),
    }
    .unwrap();
    let names =
        ["reasoning_effort", "response_format", "parallel_tool_calls", "logprobs", "logit_bias", "seed"];
    let sampling = ["temperature", "top_p", "frequency_penalty", "presence_penalty"];
    // The list of sampling parameters of a messages provider includes `top_k`, which the dialect defines.
    let listed = names.iter().chain(&sampling).chain(match provider {
        Dialect::Messages => &["top_k"][..],
        _ => &[],
    });
    let abilities = OfferCapabilities {
        parameters: listed.map(|name| (*name).into()).collect(),
        thinking_switch: true,
        ..OfferCapabilities::default()
    };
    let target = test_support::sample_target(provider, &abilities);
    let built = find_translator(client, provider).unwrap().build_request(&ask, &target).ok()?;
    Some(serde_json::from_slice(&built.concat()).unwrap())
}

#[test]
fn every_supported_parameter_has_an_effect_at_every_provider() {
    let mut failures = Vec::new();
    for (client, rows) in
        [(Dialect::Chat, CHAT), (Dialect::Messages, MESSAGES), (Dialect::Responses, RESPONSES)]
    {
        for member in KNOWN_MEMBERS.iter().filter(|member| member.dialect == client) {
            let is_listed =
                rows.iter().any(|(name, ..)| *name == member.name) || OF_THE_GATEWAY.contains(&member.name);
            let is_supported = member.treatment == MemberTreatment::Supported;
            assert!(is_listed || !is_supported, "{client:?}: `{}` has no row", member.name);
        }
        for (name, members, outcomes) in rows {
            for (provider, outcome) in
                [Dialect::Chat, Dialect::Messages, Dialect::Responses].into_iter().zip(outcomes)
            {
                let body = sent(client, provider, members);
                let is_as_expected = match (outcome, &body) {
                    (Sent(pointer, value), Some(body)) => {
                        body.pointer(pointer) == Some(&serde_json::from_str(value).unwrap())
                    }
                    (Enforced | Dropped, Some(_)) => body == sent(client, provider, ""),
                    (Refused, None) => true,
                    _ => false,
                };
                if !is_as_expected {
                    failures.push(format!("{client:?} to {provider:?}: {name} {outcome:?}: {body:?}"));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
