//! Classification of a provider's error: the party at fault, and the message for the client.
//!
//! Only plain words of a provider's message are passed on: no address, key or id, and nothing from the texts of the
//! request.

mod about;
mod history;
mod sentence;
#[cfg(test)]
mod tests;
mod words;

use about::About;
use penstock_contract::{Code, Dialect, Extras, Fault, FaultKind, Refusal};
use std::time::Duration;

/// Maximum accepted `Retry-After` of a provider, in seconds.
const MAX_REST: u64 = 3600;

/// Classifies a provider's error response by its status, its `Retry-After` in seconds (the caller converts a date), its
/// body, the model's context window in the catalogue (0 if unknown), and the request.
///
/// 401, 402, 403 and 404 are errors of the operator; 408, 409, 425, 429 and everything but 4xx are errors of the
/// provider; any other 4xx is a client error, with a specific code for a full context window and for refused content.
/// Client errors are also a 500 to 503 whose text is about the length of the input or about a history that the engine
/// cannot read, and a 500 to a history with a truncated tool call.
#[must_use]
pub fn classify(
    _provider: Dialect,
    status: u16,
    retry_after: Option<&str>,
    body: &[u8],
    model_window: u64,
    request: &[u8],
) -> Fault {
    let kind = match status {
        401..=404 => FaultKind::Credentials(status),
        400 | 405..=407 | 410..=424 | 426..=428 | 430..=499 => {
            return callers(&About::read(body), status, body, model_window, request);
        }
        500..=503 => {
            let about = About::read(body);
            if about.failed_for_length() || about.failed_for_history() {
                return callers(&about, status, body, model_window, request);
            }
            if let Some(at) = history::cut_call(request).filter(|_| status == 500) {
                let sentence = format!(
                    "{at}: the arguments are no JSON object, and the model's provider fails on them."
                );
                return Fault::caller(Refusal::invalid(at, sentence));
            }
            FaultKind::Status(status)
        }
        _ => FaultKind::Status(status),
    };
    Fault { retry_after: retry_after.and_then(seconds), ..Fault::new(kind) }
}

/// Returns the client error of a response.
fn callers(about: &About, status: u16, body: &[u8], model_window: u64, request: &[u8]) -> Fault {
    let mut refusal = refusal(about, model_window);
    let too_large = status == 413 && refusal.message == NOT_ACCEPTED;
    if too_large {
        refusal.code = Code::TooLarge;
        refusal.message = "The request is too large for the model's provider.".into();
    }
    let plain = too_large || refusal.message == NOT_ACCEPTED;
    let named = if plain && matches!(status, 400 | 422) { about.extras() } else { Extras::NONE };
    if let Some(said) = sentence::of(body, request).filter(|_| plain) {
        let lead = refusal.message.trim_end_matches('.');
        refusal.message = format!("{lead}: {said}").into();
    }
    let max_output = about.max_output().filter(|_| matches!(status, 400 | 422));
    Fault { room: room(about, model_window), max_output, named, ..Fault::caller(refusal) }
}

/// Error message if nothing more specific is known.
const NOT_ACCEPTED: &str = "The model's provider does not accept this request.";

/// Classifies an error object inside a successful response. It is a client error only if it is about the context window
/// or refused content.
pub(crate) fn in_band(body: &[u8]) -> Fault {
    let about = About::read(body);
    if about.window_is_full() || about.content_is_refused() {
        Fault::caller(refusal(&about, 0))
    } else {
        Fault::new(FaultKind::InBand)
    }
}

/// Returns the tokens of the context window left for the answer, if the input fits and the requested answer does not.
fn room(about: &About, model_window: u64) -> Option<u64> {
    if about.content_is_refused() || !about.window_is_full() || about.is_of_the_input() {
        return None;
    }
    let window = about.window().unwrap_or(model_window);
    window.checked_sub(about.input_beside(window)?).filter(|room| *room > 0)
}

fn refusal(about: &About, model_window: u64) -> Refusal {
    if about.content_is_refused() {
        return Refusal::new(Code::ContentRefused);
    }
    if !about.window_is_full() {
        let refusal = Refusal::because(Code::InvalidRequest, NOT_ACCEPTED);
        return match about.field() {
            Some(field) => refusal.at(field),
            None => refusal,
        };
    }
    let window = about.window().unwrap_or(model_window);
    match about.input_beside(window) {
        Some(input) if window > 0 && input <= window && about.is_of_the_input() => {
            Refusal::new(Code::ContextLength).with("input_tokens", input)
        }
        Some(input) if window > 0 && input <= window => Refusal::invalid(
            "max_tokens",
            format!("max_tokens does not fit: the input has {input} tokens, the context window {window}."),
        ),
        Some(input) if window > 0 => Refusal::context(window, input),
        _ if window > 0 => Refusal::new(Code::ContextLength).with("context_length", window),
        _ => Refusal::new(Code::ContextLength),
    }
}

/// Parses a number of seconds, rounded up.
fn seconds(retry_after: &str) -> Option<Duration> {
    let (whole, part) = retry_after.trim().split_once('.').unwrap_or((retry_after.trim(), ""));
    let whole: u64 = whole.parse().ok()?;
    let more = part.bytes().any(|digit| digit != b'0');
    Some(Duration::from_secs(whole.saturating_add(more.into()).min(MAX_REST)))
}
