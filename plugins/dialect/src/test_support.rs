//! Tests only: support shared by all pairs: sample requests, streams with every split, golden cases.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use bytes::Bytes;
use penstock_core::*;
use penstock_json_scan::json;
use serde_json::Value;
use std::path::Path;

/// Creates a request from a canonical body, with the values that validation would compute.
pub(crate) fn sample_request(dialect: Dialect, body: &[u8]) -> InferenceRequest {
    let value: Value = serde_json::from_slice(body).unwrap();
    let mut fields = BodyMembers::default();
    for member in json::members(body) {
        let name = json::unescape(&body[member.key.start + 1..member.key.end - 1]).unwrap();
        let whole = member.key.start..member.value.end;
        fields.0.push(BodyMember {
            name: name.as_ref().into(),
            member_range: whole,
            value_range: member.value,
            long_strings: Vec::new(),
        });
    }
    let strings = |value: &Value| match value {
        Value::String(one) => vec![one.clone()],
        Value::Array(many) => many.iter().map(|stop| stop.as_str().unwrap().to_owned()).collect(),
        _ => Vec::new(),
    };
    let set =
        |name: &str| value.get(name).is_some_and(|value| !value.is_null() && *value != Value::Bool(false));
    InferenceRequest {
        dialect,
        kind: ModelKind::Chat,
        task: InferenceTask::Chat,
        body: Bytes::copy_from_slice(body),
        members: fields,
        edits: Vec::new(),
        model: value["model"].as_str().unwrap_or("m").into(),
        stream: value["stream"] == true,
        include_usage: value["stream_options"]["include_usage"] == true,
        max_tokens: value["max_completion_tokens"].as_u64().or(value["max_tokens"].as_u64()),
        n: u32::try_from(value["n"].as_u64().unwrap_or(1)).unwrap(),
        parallel_tools: value["parallel_tool_calls"] != false,
        stop: strings(&value["stop"]),
        preset: None,
        filters: None,
        required: RequiredCapabilities {
            logprobs: set("logprobs") || set("top_logprobs"),
            logit_bias: set("logit_bias"),
            prefill: set("continue_final_message"),
            ..RequiredCapabilities::default()
        },
        thinking: ThinkingDisplay::Off,
        responses: None,
        prompt_bytes: body.len(),
        image_count: u32::try_from(String::from_utf8_lossy(body).matches("\"image_url\":").count()).unwrap(),
        history: history_features(&value),
        cache_markers: Vec::new(),
    }
}

/// Returns the history features of the `messages` of a chat request.
fn history_features(body: &Value) -> HistoryFeatures {
    let messages = body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let has =
        |names: &[&str]| messages.iter().any(|message| names.iter().any(|name| !message[name].is_null()));
    let role = |message: &Value, roles: &[&str]| roles.iter().any(|role| message["role"] == **role);
    HistoryFeatures {
        reasoning: has(&["reasoning", "reasoning_content"]),
        calls: has(&["tool_calls", "tool_call_id", "function_call"])
            || messages.iter().any(|message| role(message, &["function"])),
        results: messages.iter().any(|message| role(message, &["tool", "function"])),
        late_system_messages: messages.iter().skip(1).any(|message| role(message, &["system", "developer"])),
        ..HistoryFeatures::default()
    }
}

/// Parses capabilities from JSON: the fields of [`OfferCapabilities`] by name.
pub(crate) fn parse_capabilities(value: &Value) -> OfferCapabilities {
    let flag = |name: &str| value[name] == true;
    OfferCapabilities {
        parameters: value["parameters"]
            .as_array()
            .map(|names| names.iter().map(|name| name.as_str().unwrap().into()).collect())
            .unwrap_or_default(),
        continuation: match value["continuation"].as_str() {
            Some("continue_final_message") => Some(ContinuationMethod::ContinueFinalMessage),
            Some("prefill") => Some(ContinuationMethod::Prefill),
            _ => None,
        },
        prefill: match value["prefill"].as_str() {
            Some("continue_final_message") => PrefillMethod::ContinueFinalMessage,
            Some("prefix") => PrefillMethod::Prefix,
            Some("automatic") => PrefillMethod::Automatic,
            _ => PrefillMethod::None,
        },
        replay_reasoning: flag("replay_reasoning"),
        thinking_switch: flag("thinking_switch"),
        short_tool_ids: flag("short_tool_ids"),
        tool_images: flag("tool_images"),
        system_anywhere: flag("system_anywhere"),
        max_stop: value["max_stop"].as_u64().map(|most| usize::try_from(most).unwrap()),
        ..OfferCapabilities::default()
    }
}

/// Returns the target of a sample attempt at a provider of this dialect.
pub(crate) fn sample_target(dialect: Dialect, abilities: &OfferCapabilities) -> AttemptTarget<'_> {
    AttemptTarget {
        model: "engine/model",
        dialect,
        capabilities: abilities,
        preset: &[],
        max_tokens: None,
        adjustment: penstock_core::RequestAdjustment::default(),
        answer_model: "org/model",
        answer_id: "4b8e",
        answer_created: 1_763_650_000,
    }
}

/// Sample of the members that the gateway adds to an answer: its footprint and its cost.
pub(crate) const SAMPLE_PENSTOCK_OBJECTS: &[u8] =
    br#""environment_impact":{"energy_kwh":0.000012},"billing_cost":{"credits":0.034}"#;

/// Result of translating a whole sample stream.
#[derive(Debug, PartialEq)]
pub(crate) struct StreamRun {
    pub(crate) out: Vec<u8>,
    pub(crate) fault: Option<UpstreamErrorKind>,
    pub(crate) usage: Option<TokenUsage>,
    pub(crate) measured_energy: Option<MeasuredEnergy>,
    pub(crate) finish_reason: Option<FinishReason>,
    pub(crate) output_bytes: usize,
}

/// Pushes pieces into a translation as the gateway does; asserts that there is no output before the first content
/// token.
pub(crate) fn run_stream<'a>(
    reply: &mut dyn StreamTranslation,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> StreamRun {
    let mut out = OutputBuffer::default();
    let mut result = Ok(());
    for piece in pieces {
        result = reply.push(Bytes::copy_from_slice(piece), &mut out);
        assert!(reply.progress() > StreamProgress::Pending || out.is_empty(), "something came out too early");
        let is_over = reply.progress() == StreamProgress::Ended && !reply.awaits_usage();
        if result.is_err() || is_over {
            break;
        }
    }
    if result.is_ok() {
        result = reply.end(&mut out);
    }
    let (usage, measured, finish) = (reply.usage(), reply.measured_energy(), reply.finish_reason());
    let output_bytes = reply.delivered_text_bytes();
    let fault = result.err().map(|fault| fault.kind);
    match fault {
        None => {
            let counted =
                TokenUsage { input: 7, output: 3, source: UsageSource::Gateway, ..TokenUsage::default() };
            reply.write_end(&usage.unwrap_or(counted), SAMPLE_PENSTOCK_OBJECTS, &mut out);
        }
        Some(_) if reply.progress() > StreamProgress::Pending => {
            reply.write_error(&ApiError::new(ErrorCode::Unavailable), "req_1", b"", &mut out);
        }
        Some(_) => {}
    }
    StreamRun {
        out: out.0.concat(),
        fault,
        usage,
        measured_energy: measured,
        finish_reason: finish,
        output_bytes,
    }
}

/// Translates a stream as one chunk, byte by byte, in chunks of some sizes, and in two chunks (split at each position
/// of a small stream, at about 400 positions of a large one); asserts that all outcomes are equal.
pub(crate) fn run_all_splits(new: &dyn Fn() -> Box<dyn StreamTranslation>, stream: &[u8]) -> StreamRun {
    let whole = run_stream(&mut *new(), [stream]);
    assert_eq!(run_stream(&mut *new(), stream.chunks(1)), whole, "byte by byte");
    for size in [2, 3, 7, 64, 333] {
        assert_eq!(run_stream(&mut *new(), stream.chunks(size)), whole, "in pieces of {size}");
    }
    for at in (1..stream.len()).step_by(1 + stream.len() / 400) {
        let (first, second) = stream.split_at(at);
        assert_eq!(run_stream(&mut *new(), [first, second]), whole, "cut at {at}");
    }
    whole
}

/// Compares output with a golden file, or writes the file if `PENSTOCK_BLESS` is set.
pub(crate) fn assert_golden(path: &Path, got: &[u8]) {
    if std::env::var_os("PENSTOCK_BLESS").is_some() {
        std::fs::write(path, got).unwrap();
    }
    let want = std::fs::read(path).unwrap_or_else(|_| panic!("{} is missing", path.display()));
    let (got, want) = (String::from_utf8_lossy(got), String::from_utf8_lossy(&want));
    assert_eq!(got, want, "{}", path.display());
}
