//! Validation of requests of the responses dialect, and their conversion to the chat form.
//!
//! Every member is validated, and errors name its path in the client's request. The body is then rewritten as a chat
//! body, from slices of the client's bytes, and validated as a chat request. So token counting, constraints and
//! translation are those of the chat form. The additional data that the answer needs is in
//! [`ResponsesDetails`](penstock_core::ResponsesDetails).

mod chat_body;
mod content;
mod conversation;
mod function_name;
mod input;
mod repeated;
mod settings;
mod storage;
mod tool_choice;
mod tools;

pub use settings::{ENCRYPTED_REASONING_INCLUDE, INCLUDE_VALUES};

use crate::body::{RootObject, validate_body};
use crate::field_path::PathStyle;
use crate::limits::RequestLimits;
use crate::members;
use crate::{read, scalars};
use bytes::Bytes;
use penstock_core::{
    ApiError, Dialect, InferenceRequest, ResponsesDetails, SessionHints, StoredResponseAccess,
};
use penstock_json_scan::tape::JsonTape;

/// Purpose of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponsesPurpose<'m> {
    /// Generation of an answer by `/v1/responses`.
    Generate,
    /// Counting of tokens by `/v1/responses/input_tokens`, with the model of a request without `model`; `None` if
    /// `model` is required.
    Count(Option<&'m str>),
}

/// Validates a request of `/v1/responses` or `/v1/responses/input_tokens`.
///
/// The returned body has the chat form. Members that are not in the table of this dialect (`top_k`, `seed`, `filters`
/// …) are validated like those of the chat dialect.
///
/// # Errors
/// Returns `InvalidRequest`, `Unsupported` or `TooLarge`, with the path of the invalid field, if any, in `param`.
pub fn validate_responses_request(
    body: Bytes,
    limits: &RequestLimits,
    purpose: ResponsesPurpose<'_>,
) -> Result<InferenceRequest, ApiError> {
    validate_responses_request_with_storage(body, limits, purpose, &StoredResponseAccess::default())
}

/// Validates a request like [`validate_responses_request`], with the access to stored responses that `storage` grants.
///
/// # Errors
/// Same as [`validate_responses_request`], and a refusal of a `previous_response_id` that is not stored.
pub fn validate_responses_request_with_storage(
    body: Bytes,
    limits: &RequestLimits,
    purpose: ResponsesPurpose<'_>,
    storage: &StoredResponseAccess,
) -> Result<InferenceRequest, ApiError> {
    let converted = convert(&body, limits, purpose, storage).map_err(ApiError::mark_param_as_sent)?;
    drop(body);
    let details = converted.details;
    let mut ask = crate::validate_chat_request(Bytes::from(converted.body), &chat_limits(limits))
        .map_err(|refusal| name_member(refusal, &details))?;
    ask.dialect = Dialect::Responses;
    ask.responses = Some(Box::new(details));
    Ok(ask)
}

/// Replaces the path in an error of the chat validation by the path of the member that the client sent.
fn name_member(refusal: ApiError, details: &ResponsesDetails) -> ApiError {
    match refusal.param.as_deref() {
        Some("messages") => {}
        Some(name) if details.chat_named_members.contains(&name) => return refusal.mark_param_as_sent(),
        Some(path) => match details.client_param_path(path) {
            Some(own) => return refusal.with_param(own).mark_param_as_sent(),
            None => return refusal,
        },
        None => return refusal,
    }
    ApiError::invalid("input", "input: expected at least one item that is a message, a call or its output")
}

/// Request converted from the responses dialect to the chat dialect.
struct ConvertedRequest {
    body: Vec<u8>,
    details: ResponsesDetails,
}

fn convert(
    body: &Bytes,
    limits: &RequestLimits,
    purpose: ResponsesPurpose<'_>,
    storage: &StoredResponseAccess,
) -> Result<ConvertedRequest, ApiError> {
    let (text, nodes) = validate_body(body, limits, PathStyle::Brackets)?;
    let tape = JsonTape { text, nodes: &nodes };
    let top = RootObject::new(&tape, limits, PathStyle::Brackets)?;
    // This check comes first: if the client relies on a history stored elsewhere, later checks would report misleading
    // errors.
    members::refuse_unsupported_members(&top, Dialect::Responses)?;
    let previous = storage::previous_items(&top, storage)?;
    let in_background = match purpose {
        ResponsesPurpose::Generate => storage::is_background_request(&top, storage.store_permission)?,
        ResponsesPurpose::Count(_) => false,
    };
    let stored_input = storage::input_to_store(body, &top, storage, &previous, in_background)?;
    let model = match purpose {
        ResponsesPurpose::Generate => scalars::read_model(&top)?,
        ResponsesPurpose::Count(default) => scalars::read_model_or_default(&top, default)?,
    };
    let settings = settings::read_settings(&top)?;
    let tools = tools::read_tools(&top, limits)?;
    let choice = tool_choice::read_tool_choice(&top, &tools)?;
    let mut out = chat_body::ChatBodyWriter::new(body.len() + previous.len());
    out.write_string_member("model", &model);
    let previous =
        storage::PreviousConversation::parse(&previous, limits, &top.member_path("previous_response_id"))?;
    let needs_input = needs_input(&top, purpose, &tools);
    let conversation = input::write_messages(&top, &previous.as_tape(), &tools, needs_input, &mut out)?;
    tools.write(&mut out);
    choice.write(&mut out);
    settings.write(&mut out);
    chat_body::copy_shared_members(&top, &settings, &mut out);
    let details = ResponsesDetails {
        repeated_members: repeated::echoed_request_members(
            &top,
            &settings,
            stored_input.is_some() || in_background,
            in_background,
        ),
        tools: tools.mapped_tools(),
        reasoning: settings.reasoning_display,
        seals_reasoning: settings.seals_reasoning,
        stored_input,
        in_background,
        chat_named_members: foreign_members(&top),
        earlier_messages: conversation.joined,
        message_origins: conversation.origins,
        session: session_members(&top),
    };
    Ok(ConvertedRequest { body: out.finish(), details })
}

/// Returns true if a request needs an `input` that is not empty: it continues no response. A count of tokens may also have
/// only instructions or tools.
fn needs_input(
    top: &RootObject<'_>,
    purpose: ResponsesPurpose<'_>,
    tools: &tools::DeclaredTools<'_>,
) -> bool {
    let has_instructions = || top.get("instructions").is_some_and(|text| !input::is_empty(text));
    let is_counted =
        matches!(purpose, ResponsesPurpose::Count(_)) && (has_instructions() || !tools.is_empty());
    top.get("previous_response_id").is_none() && !is_counted
}

/// Copies the members that may identify a session. `previous_response_id` is not one of them, because it differs from
/// turn to turn. A session with this member is identified by the beginning of the stored conversation, which precedes
/// the input.
fn session_members(top: &RootObject<'_>) -> SessionHints {
    let value = |name: &str| top.get(name).map(|value| value.raw().as_bytes().into());
    SessionHints { prompt_cache_key: value("prompt_cache_key"), metadata: value("metadata") }
}

/// Returns the member names of the chat dialect that the client sent: those of members that have other names in this
/// dialect, and `top_logprobs`, which both dialects have.
fn foreign_members(top: &RootObject<'_>) -> Vec<&'static str> {
    let names = Dialect::Responses.spec().member_names.iter().map(|(name, _)| *name);
    names.chain(["top_logprobs"]).filter(|name| top.get(name).is_some()).collect()
}

/// Returns the limits for the validation of the converted body. They are larger than those of the original body, which
/// was already checked: the conversion adds members, nesting levels and the previous conversation.
fn chat_limits(limits: &RequestLimits) -> RequestLimits {
    RequestLimits {
        max_body: u32::MAX as usize,
        max_depth: limits.max_depth.saturating_add(8),
        max_fields: limits.max_fields.saturating_add(16),
        max_values: limits.max_values.saturating_mul(8),
        ..*limits
    }
}

/// Checks that a member is a string.
fn check_string(top: &RootObject<'_>, name: &str) -> Result<(), ApiError> {
    top.get(name).map(|value| read::require_string(value, &top.member_path(name))).transpose().map(|_| ())
}
