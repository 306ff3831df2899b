//! Validation of chat-completions requests.

mod cache_control;
mod calls;
mod format;
mod message;
mod part;
mod tools;

use crate::body::{RootObject, validate_body};
use crate::body_edits::BodyEdits;
use crate::field_path::PathStyle;
use crate::filters::read_offer_filters;
use crate::limits::RequestLimits;
use crate::members;
use crate::read;
use crate::scalars::{self, IntegerRanges, NumberRanges};
use bytes::Bytes;
use cache_control::CacheMarkers;
use penstock_core::{
    ApiError, CachePosition, Dialect, HistoryFeatures, InferenceRequest, InferenceTask, ModelKind,
    RequiredCapabilities, ThinkingDisplay,
};
use penstock_json_scan::tape::{JsonTape, JsonValue};

const NUMBERS: NumberRanges = &[
    ("temperature", 0.0, 2.0),
    ("top_p", 0.0, 1.0),
    ("min_p", 0.0, 1.0),
    ("frequency_penalty", -2.0, 2.0),
    ("presence_penalty", -2.0, 2.0),
    ("repetition_penalty", 0.0, 10.0),
];
const INTEGERS: IntegerRanges =
    &[("top_k", -1, i64::MAX), ("seed", i64::MIN, i64::MAX), ("n", 1, 10), ("top_logprobs", 0, 20)];
const BOOLEANS: &[&str] = &["stream", "logprobs", "parallel_tool_calls", "continue_final_message"];
const THINKING: &[&str] = &["enabled", "disabled", "adaptive", "auto"];
/// Accepted reasoning efforts; `default` means the default of the model.
const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max", "default"];

/// Validates a request of `/v1/chat/completions`.
///
/// `max_completion_tokens` takes precedence over `max_tokens`, and `max_tokens` over the names of other APIs, such as
/// `max_output_tokens`; -1 means no cap. The translators interpret the reasoning effort. `functions` and
/// `function_call` are renamed to `tools` and `tool_choice`, both in the list of members and in the body.
///
/// # Errors
/// Returns `InvalidRequest`, `Unsupported` or `TooLarge`, with the path of the invalid field, if any, in `param`.
pub fn validate_chat_request(body: Bytes, limits: &RequestLimits) -> Result<InferenceRequest, ApiError> {
    let mut ask = validate_request(&body, limits)?;
    ask.body = body;
    Ok(ask)
}

/// Results collected while the request is validated.
#[derive(Default)]
struct ChatFindings {
    edits: BodyEdits,
    needs: RequiredCapabilities,
    history: HistoryFeatures,
    images: u32,
    /// Total length in bytes of the media in the request: of `data:` URLs and base64 strings, as sent.
    media: usize,
    cache_markers: CacheMarkers,
}

fn validate_request(body: &[u8], limits: &RequestLimits) -> Result<InferenceRequest, ApiError> {
    let (text, nodes) = validate_body(body, limits, PathStyle::Brackets)?;
    let tape = JsonTape { text, nodes: &nodes };
    let top = RootObject::new(&tape, limits, PathStyle::Brackets)?;
    let mut found = ChatFindings::default();
    members::refuse_unsupported_members(&top, Dialect::Chat)?;
    found.cache_markers.add(top.get("cache_control"), CachePosition::Request);
    let model = scalars::read_model(&top)?;
    let messages =
        read::require_member(top.get("messages"), &top.member_path("messages"), "an array of messages")?;
    scalars::validate_scalars(&top, NUMBERS, INTEGERS, BOOLEANS)?;
    check_modalities(&top)?;
    let filters = read_offer_filters(&top, ModelKind::Chat)?;
    let max_tokens = scalars::read_token_cap(&top, "max_tokens")?;
    let max_completion_tokens = scalars::read_token_cap(&top, "max_completion_tokens")?;
    let max_output_tokens = scalars::read_token_cap(&top, "max_output_tokens")?;
    let max_new_tokens = scalars::read_token_cap(&top, "max_new_tokens")?;
    let num_predict = scalars::read_token_cap(&top, "num_predict")?;
    let n = candidate_count(&top);
    check_effort(&top)?;
    read_logprobs(&top, &mut found)?;
    format::validate_response_format(&top, &mut found)?;
    let fields = tools::validate_tools(&top, limits, &mut found)?;
    message::validate_messages(messages, &top, &mut found)?;
    found.needs.multiple_choices = n > 1;
    let text_bytes = top.total_value_bytes(&["messages", "tools", "functions", "response_format"]);
    Ok(InferenceRequest {
        dialect: Dialect::Chat,
        kind: ModelKind::Chat,
        task: InferenceTask::Chat,
        body: Bytes::new(),
        members: fields,
        edits: found.edits.into_sorted_edits(),
        model,
        stream: scalars::read_bool_or_false(&top, "stream")?,
        include_usage: read_include_usage(&top)?,
        max_tokens: max_completion_tokens
            .or(max_tokens)
            .or(max_output_tokens)
            .or(max_new_tokens)
            .or(num_predict),
        n,
        parallel_tools: read::read_optional_bool(
            top.get("parallel_tool_calls"),
            &top.member_path("parallel_tool_calls"),
        )?
        .unwrap_or(true),
        stop: scalars::read_stop_sequences(&top, "stop", true, limits)?,
        preset: scalars::read_optional_keyword(&top, "preset", &["reasoning", "non_reasoning"])?
            .map(Into::into),
        required: found.needs,
        filters,
        thinking: ThinkingDisplay::Off,
        responses: None,
        prompt_bytes: text_bytes.saturating_sub(found.media),
        image_count: found.images,
        history: found.history,
        cache_markers: found.cache_markers.into_markers(),
    })
}

/// Returns the number of requested choices: `n`, already validated to be 1 to 10, or 1 if it is absent.
fn candidate_count(top: &RootObject<'_>) -> u32 {
    top.get("n").and_then(|n| n.raw().parse().ok()).unwrap_or(1)
}

/// Reads `stream_options.include_usage`.
pub(crate) fn read_include_usage(top: &RootObject<'_>) -> Result<bool, ApiError> {
    let path = top.member_path("stream_options");
    let Some(options) = top.get("stream_options") else { return Ok(false) };
    let [include_usage] = read::read_named_members(options, &path, ["include_usage"])?;
    Ok(read::read_optional_bool(include_usage, &path.member("include_usage"))?.unwrap_or(false))
}

/// Validates `response_format` and `structured_outputs`.
pub(crate) fn check_response_format(top: &RootObject<'_>) -> Result<(), ApiError> {
    format::validate_response_format(top, &mut ChatFindings::default())
}

/// Refuses answer modalities other than text.
fn check_modalities(top: &RootObject<'_>) -> Result<(), ApiError> {
    let path = top.member_path("modalities");
    let Some(modalities) = top.get("modalities") else { return Ok(()) };
    for (index, item) in read::require_array(modalities, &path)?.items().enumerate() {
        let path = path.item(index);
        if !read::require_string(item, &path)?.equals_text("text") {
            return Err(path.unsupported_error("only answers in text are supported"));
        }
    }
    Ok(())
}

/// Validates the reasoning effort, which vendors write in different members; the translators interpret it.
fn check_effort(top: &RootObject<'_>) -> Result<(), ApiError> {
    scalars::read_optional_keyword(top, "reasoning_effort", EFFORTS)?;
    if let Some(reasoning) = top.get("reasoning") {
        let path = top.member_path("reasoning");
        let [effort, enabled, exclude] =
            read::read_named_members(reasoning, &path, ["effort", "enabled", "exclude"])?;
        read::read_optional_bool(exclude, &path.member("exclude"))?;
        effort.map(|effort| read::read_keyword(effort, &path.member("effort"), EFFORTS)).transpose()?;
        read::read_optional_bool(enabled, &path.member("enabled"))?;
    }
    if let Some(thinking) = top.get("thinking").filter(JsonValue::is_object) {
        let path = top.member_path("thinking");
        let [kind] = read::read_named_members(thinking, &path, ["type"])?;
        kind.map(|kind| read::read_keyword(kind, &path.member("type"), THINKING)).transpose()?;
    } else {
        read::read_optional_bool(top.get("thinking"), &top.member_path("thinking"))?;
    }
    if let Some(config) = top.get("output_config") {
        let path = top.member_path("output_config");
        let [effort] = read::read_named_members(config, &path, ["effort"])?;
        effort.map(|effort| read::read_keyword(effort, &path.member("effort"), EFFORTS)).transpose()?;
    }
    check_thinking_switches(top)
}

/// Validates the members by which engines and vendors switch thinking on or off, at the top level and in
/// `chat_template_kwargs`.
pub(crate) fn check_thinking_switches(top: &RootObject<'_>) -> Result<(), ApiError> {
    for name in ["enable_thinking", "disable_reasoning"] {
        read::read_optional_bool(top.get(name), &top.member_path(name))?;
    }
    let path = top.member_path("chat_template_kwargs");
    let Some(kwargs) = top.get("chat_template_kwargs") else { return Ok(()) };
    let names = ["enable_thinking", "thinking"];
    for (name, value) in names.into_iter().zip(read::read_named_members(kwargs, &path, names)?) {
        read::read_optional_bool(value, &path.member(name))?;
    }
    Ok(())
}

fn read_logprobs(top: &RootObject<'_>, found: &mut ChatFindings) -> Result<(), ApiError> {
    let mut wanted = scalars::read_bool_or_false(top, "logprobs")?;
    wanted |= top.get("top_logprobs").is_some_and(|count| !matches!(count.raw(), "0" | "-0"));
    found.needs.logit_bias = scalars::has_logit_bias(top)?;
    found.needs.logprobs = wanted;
    Ok(())
}
