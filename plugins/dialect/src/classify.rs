//! Classification of a provider's error: the party at fault, and the message for the client.
//!
//! A provider's message is passed on only in part: no address, secret or id. Names of the protocol and common words of
//! error messages are always passed on, other common words only if they do not repeat a text of the request (see
//! `sanitized_message`).

mod common_words;
mod compared_numbers;
#[cfg(test)]
mod content_refusal_tests;
mod content_refusals;
#[cfg(test)]
mod engine_failure_tests;
#[cfg(test)]
mod engine_sentence_tests;
mod error_signals;
mod failed_request;
mod field_names;
mod in_band_status;
#[cfg(test)]
mod in_band_tests;
mod inline_media;
mod input_count;
#[cfg(test)]
mod input_count_tests;
mod message_numbers;
#[cfg(test)]
mod named_member_scope_tests;
#[cfg(test)]
mod named_member_tests;
mod named_members;
mod number_phrases;
mod output_cap;
mod phrases;
mod protocol_names;
#[cfg(test)]
mod provider_fault_tests;
mod provider_faults;
mod python_error;
mod refusal_words;
mod request_echo;
mod request_texts;
mod retry_after;
mod sanitized_message;
#[cfg(test)]
mod sanitized_message_tests;
#[cfg(test)]
mod tests;
mod token_numbers;
#[cfg(test)]
mod truncated_call_tests;
mod truncated_calls;
mod unknown_member;
#[cfg(test)]
mod wording_tests;

use error_signals::ErrorSignals;
pub use failed_request::{FailedRequest, join_sent_body};
use input_count::InputCount;
use penstock_core::{
    ApiError, ErrorCode, OutputBudget, RefusedMembers, UpstreamError, UpstreamErrorKind, is_timeout_status,
};
pub use retry_after::{parse_retry_after, parse_retry_after_ms};
use std::time::Duration;

/// Classifies a provider's error response. `retry_after` is the delay that the provider demands; `model_window` is the
/// model's context window in the catalogue, 0 if it is unknown.
///
/// - 401 to 404: error of the operator's account or configuration; 403 with an error about refused content: client
///   error.
/// - 400, 422 and other 4xx except 408, 409, 424, 425 and 429: client error, with its own code for a full context
///   window and for refused content. If its code or text is about the gateway's account, a rate limit or an overload,
///   and not about refused content, it is an error of the operator or of the provider instead.
/// - 424 and 500 to 503: client error if the text is about the length of the input, the limit on generated tokens, or a
///   history that the engine cannot read. If the history has a truncated tool call, it is a client error if the text is
///   about tool arguments, and a 500 with any other text may be one. Otherwise an error of the provider.
/// - All others: error of the provider.
#[must_use]
pub fn classify_error<'r>(
    status: u16,
    retry_after: Option<Duration>,
    body: &[u8],
    model_window: u64,
    request: impl Into<FailedRequest<'r>>,
) -> UpstreamError {
    let request = request.into();
    let error = match status {
        401..=404 => match content_refusal(status, body, model_window, request.sent) {
            Some(refusal) => return refusal,
            None => UpstreamError::new(UpstreamErrorKind::Credentials(status)),
        },
        400 | 405..=407 | 410..=423 | 426..=428 | 430..=499 => {
            let about = ErrorSignals::parse(body).without_request_echo(request.sent);
            match about.provider_fault(request.sent) {
                Some(kind) if !about.is_content_refused() => UpstreamError::new(kind),
                _ => return client_error(&about, status, body, model_window, request.sent),
            }
        }
        424 | 500..=503 => match engine_failure(status, body, model_window, &request) {
            error if error.kind == UpstreamErrorKind::Caller => return error,
            error => error,
        },
        _ => UpstreamError::new(UpstreamErrorKind::Status(status)),
    };
    UpstreamError { retry_after, ..error }
}

/// Returns the client error of a response with status 403 whose error is about refused content; `None` for others.
fn content_refusal(status: u16, body: &[u8], model_window: u64, request: &[u8]) -> Option<UpstreamError> {
    if status != 403 {
        return None;
    }
    let about = ErrorSignals::parse(body).without_request_echo(request);
    about.is_content_refused().then(|| client_error(&about, status, body, model_window, request))
}

/// Classifies an error whose status engines use for their own failures and also for requests that they cannot process.
fn engine_failure(status: u16, body: &[u8], model_window: u64, request: &FailedRequest<'_>) -> UpstreamError {
    let about = ErrorSignals::parse(body).without_request_echo(request.sent);
    let may_exceed = |stated: Option<u64>| request.may_exceed_window(stated.unwrap_or(model_window));
    if about.is_input_length_failure(may_exceed)
        || about.is_unprocessable_request()
        || about.is_output_cap_failure()
    {
        return client_error(&about, status, body, model_window, request.sent);
    }
    let is_about_calls = about.is_tool_arguments_failure();
    if (is_about_calls || status == 500) && truncated_calls::find_truncated_call(request.sent).is_some() {
        let refusal = truncated_calls::truncated_call_error(request.client);
        return UpstreamError { may_be_provider: !is_about_calls, ..UpstreamError::caller_error(refusal) };
    }
    let refused_members = if matches!(status, 500 | 501) {
        about.unsupported_extra_members(body, request.sent)
    } else {
        RefusedMembers::NONE
    };
    UpstreamError { refused_members, ..UpstreamError::new(UpstreamErrorKind::Status(status)) }
}

/// Returns the client error of a response.
fn client_error(
    about: &ErrorSignals,
    status: u16,
    body: &[u8],
    model_window: u64,
    request: &[u8],
) -> UpstreamError {
    let mut refusal = api_error(about, model_window);
    let too_large = status == 413 && refusal.message == NOT_ACCEPTED_MESSAGE;
    if too_large {
        refusal.code = ErrorCode::TooLarge;
        refusal.message = "The request is too large for the model's provider.".into();
    }
    let plain = too_large || refusal.message == NOT_ACCEPTED_MESSAGE;
    let refused_members = if plain && matches!(status, 400 | 422) {
        about.refused_extra_members(body, request)
    } else {
        RefusedMembers::NONE
    };
    if let Some(detail) = sanitized_message::sanitize_message(body, request).filter(|_| plain) {
        let lead = refusal.message.trim_end_matches('.');
        refusal.message = format!("{lead}: {detail}").into();
    }
    let max_output = about.max_output_tokens().filter(|_| matches!(status, 400 | 422 | 424 | 500..=503));
    UpstreamError {
        output_budget: output_budget(about, model_window),
        max_output,
        refused_members,
        ..UpstreamError::caller_error(refusal)
    }
}

/// Message of a client error for which the provider's response names no reason that the gateway knows.
const NOT_ACCEPTED_MESSAGE: &str = "The model's provider does not accept this request.";

/// Classifies an error object inside a successful response without knowledge of the request. The error is a client
/// error only if it is about the context window or refused content and states no status of 500 or above. An error that
/// states a timeout or a rate limit gets the kind of that status. [`reclassify_in_band_error`] classifies the error
/// again with the model's context window and the request.
pub(crate) fn classify_in_band_error(body: &[u8]) -> UpstreamError {
    let about = ErrorSignals::parse(body);
    let is_refusal = about.is_context_window_exceeded() || about.is_content_refused();
    let error = if is_refusal && !in_band_status::has_server_error_status(body) {
        UpstreamError::caller_error(api_error(&about, 0))
    } else {
        let kind = match in_band_status::in_band_status(body) {
            // Status 408 would mean that the request was not processed. An error inside a response may come after the
            // processing, so 408 becomes 504.
            408 => UpstreamErrorKind::Status(504),
            status if status == 429 || is_timeout_status(status) => UpstreamErrorKind::Status(status),
            _ => UpstreamErrorKind::InBandError,
        };
        UpstreamError::new(kind)
    };
    let body = body.get(..MAX_IN_BAND_BYTES).unwrap_or(body);
    UpstreamError { in_band_body: Some(body.into()), ..error }
}

/// Maximum number of bytes of an error object from a successful response that are stored for the second classification.
const MAX_IN_BAND_BYTES: usize = 16 << 10;

/// Classifies an error of a decoder again, with the model's context window and the request. The error object is treated
/// as if the provider had sent it with an error status: the status that the object states by a number, type or code, or
/// else 500. An error that remains one of the provider keeps its kind. However, if it is no timeout and its text is
/// about the gateway's account, a rate limit or an overload, it gets the kind for that. An error without an error
/// object (`in_band_body`) is returned unchanged.
#[must_use]
pub fn reclassify_in_band_error<'r>(
    mut error: UpstreamError,
    model_window: u64,
    request: impl Into<FailedRequest<'r>>,
) -> UpstreamError {
    let Some(body) = error.in_band_body.take() else { return error };
    let request = request.into();
    let status = in_band_status::in_band_status(&body);
    let about = ErrorSignals::parse(&body).without_request_echo(request.sent);
    let is_refused = about.is_content_refused() && !in_band_status::has_server_error_status(&body);
    if is_refused {
        return client_error(&about, status, &body, model_window, request.sent);
    }
    if let Some(kind) = about.provider_fault(request.sent).filter(|_| !is_timeout(error.kind)) {
        return UpstreamError::new(kind);
    }
    let as_status = classify_error(status, None, &body, model_window, request);
    match (as_status.kind, error.kind) {
        (UpstreamErrorKind::Caller, _) => as_status,
        (_, UpstreamErrorKind::Caller) => UpstreamError::new(UpstreamErrorKind::InBandError),
        _ => error,
    }
}

/// Returns true for an error whose status states a timeout.
fn is_timeout(kind: UpstreamErrorKind) -> bool {
    matches!(kind, UpstreamErrorKind::Status(status) if is_timeout_status(status))
}

/// Returns the tokens that the context window leaves for the answer; `None` unless the error is about the sum of the
/// input and the requested answer.
fn output_budget(about: &ErrorSignals, model_window: u64) -> Option<OutputBudget> {
    if about.is_content_refused() || !about.is_context_window_exceeded() || about.is_input_limit() {
        return None;
    }
    let window = about.context_window().unwrap_or(model_window);
    match about.input_count(window) {
        InputCount::Exact(input) => {
            window.checked_sub(input).filter(|left| *left > 0).map(OutputBudget::Exact)
        }
        InputCount::AtLeast(least) if least < window => Some(OutputBudget::UncountedInput { window }),
        InputCount::AtLeast(_) | InputCount::Unstated => None,
    }
}

fn api_error(about: &ErrorSignals, model_window: u64) -> ApiError {
    if about.is_content_refused() {
        return ApiError::new(ErrorCode::ContentRefused);
    }
    if !about.is_context_window_exceeded() {
        let refusal = ApiError::with_message(ErrorCode::InvalidRequest, NOT_ACCEPTED_MESSAGE);
        return match about.blamed_field() {
            Some(field) => refusal.with_param(field),
            None => refusal,
        };
    }
    let window = about.context_window().unwrap_or(model_window);
    let context_length = || ApiError::new(ErrorCode::ContextLength);
    match about.input_count(window) {
        InputCount::Exact(input) if window > 0 && input <= window && about.is_input_limit() => {
            context_length().with_details_member("input_tokens", input)
        }
        InputCount::Exact(input) if window > 0 && input <= window => ApiError::invalid(
            "max_tokens",
            format!("max_tokens does not fit: the input has {input} tokens, the context window {window}."),
        ),
        InputCount::Exact(input) if window > 0 => ApiError::context_length_exceeded(window, input),
        InputCount::AtLeast(least) if window > 0 && least >= window => {
            ApiError::context_length_exceeded(window, least)
                .with_details_member("input_tokens_at_least", true)
        }
        InputCount::AtLeast(_) if window > 0 => ApiError::invalid(
            "max_tokens",
            format!(
                "max_tokens does not fit: input and answer together exceed the context window of {window} tokens."
            ),
        ),
        InputCount::AtLeast(_) => ApiError::invalid(
            "max_tokens",
            "max_tokens does not fit: input and answer together exceed the context window.",
        ),
        InputCount::Unstated if window > 0 => context_length().with_details_member("context_length", window),
        InputCount::Exact(_) | InputCount::Unstated => context_length(),
    }
}
