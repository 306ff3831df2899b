//! Validation of messages requests.

mod block;
mod conversation;
mod settings;
mod source;
mod tools;

use crate::body::{RootObject, validate_body};
use crate::chat::check_thinking_switches;
use crate::field_path::PathStyle;
use crate::filters::read_offer_filters;
use crate::limits::RequestLimits;
use crate::members;
use crate::read;
use crate::scalars::{self, IntegerRanges, NumberRanges};
use bytes::Bytes;
use penstock_core::{
    ApiError, Dialect, HistoryFeatures, InferenceRequest, InferenceTask, ModelKind, RequiredCapabilities,
};
use penstock_json_scan::tape::JsonTape;

const NUMBERS: NumberRanges = &[("temperature", 0.0, 1.0), ("top_p", 0.0, 1.0)];
const INTEGERS: IntegerRanges = &[("top_k", 0, i64::MAX)];
const BOOLEANS: &[&str] = &["stream"];

/// Purpose of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessagesPurpose {
    /// Generation of an answer by `/v1/messages`: `max_tokens` is required.
    Generate,
    /// Counting of tokens by `/v1/messages/count_tokens`: `max_tokens` is optional, and the conversation may end with
    /// unanswered tool calls.
    Count,
}

/// Validates a request of `/v1/messages` or `/v1/messages/count_tokens`.
///
/// The body is not edited. Consecutive messages of one role count as one turn; `system` messages may have any position.
///
/// # Errors
/// Returns `InvalidRequest`, `Unsupported` or `TooLarge`, with the path of the invalid field, if any, in `param`.
pub fn validate_messages_request(
    body: Bytes,
    limits: &RequestLimits,
    purpose: MessagesPurpose,
) -> Result<InferenceRequest, ApiError> {
    let mut ask = validate_request(&body, limits, purpose, None)?;
    ask.body = body;
    Ok(ask)
}

/// Validates a request of `/v1/messages/count_tokens`; `default` is the model of a request without `model`.
///
/// # Errors
/// Same as [`validate_messages_request`].
pub fn validate_count_tokens_request(
    body: Bytes,
    limits: &RequestLimits,
    default: Option<&str>,
) -> Result<InferenceRequest, ApiError> {
    let mut ask = validate_request(&body, limits, MessagesPurpose::Count, default)?;
    ask.body = body;
    Ok(ask)
}

/// Results collected while the request is validated.
#[derive(Default)]
struct MessagesFindings {
    needs: RequiredCapabilities,
    images: u32,
    /// Total length in bytes of the base64 strings of media in the request, as sent.
    media: usize,
    history: HistoryFeatures,
}

fn validate_request(
    body: &[u8],
    limits: &RequestLimits,
    purpose: MessagesPurpose,
    default: Option<&str>,
) -> Result<InferenceRequest, ApiError> {
    let (text, nodes) = validate_body(body, limits, PathStyle::Dots)?;
    let tape = JsonTape { text, nodes: &nodes };
    let top = RootObject::new(&tape, limits, PathStyle::Dots)?;
    let mut found = MessagesFindings::default();
    // This check comes first: if the client relies on a history stored elsewhere, later checks would report misleading
    // errors.
    members::refuse_unsupported_members(&top, Dialect::Messages)?;
    let model = scalars::read_model_or_default(&top, default)?;
    let list =
        read::require_member(top.get("messages"), &top.member_path("messages"), "an array of messages")?;
    let max_tokens = scalars::read_token_count(&top, "max_tokens", 0)?;
    if max_tokens.is_none() && purpose == MessagesPurpose::Generate {
        return Err(top.member_path("max_tokens").missing_error("an integer of at least 0"));
    }
    scalars::validate_scalars(&top, NUMBERS, INTEGERS, BOOLEANS)?;
    let filters = read_offer_filters(&top, ModelKind::Chat)?;
    let thinking = settings::read_thinking_display(&top)?;
    settings::validate_output_config(&top, &mut found)?;
    check_thinking_switches(&top)?;
    if let Some(system) = top.get("system") {
        block::validate_texts(system, &top.member_path("system"), &mut found)?;
    }
    let parallel_tools = tools::validate_tools(&top, limits, &mut found)?;
    conversation::validate_messages(list, &top, purpose, &mut found)?;
    let text_bytes = top.total_value_bytes(&["messages", "system", "tools", "output_config"]);
    Ok(InferenceRequest {
        dialect: Dialect::Messages,
        kind: ModelKind::Chat,
        task: InferenceTask::Chat,
        body: Bytes::new(),
        members: top.to_body_members(),
        edits: Vec::new(),
        model,
        stream: scalars::read_bool_or_false(&top, "stream")?,
        include_usage: false,
        max_tokens,
        n: 1,
        parallel_tools,
        stop: scalars::read_stop_sequences(&top, "stop_sequences", false, limits)?,
        preset: None,
        required: found.needs,
        filters,
        thinking,
        responses: None,
        prompt_bytes: text_bytes.saturating_sub(found.media),
        image_count: found.images,
        history: found.history,
        cache_markers: Vec::new(),
    })
}
