//! HTTP status that an error object inside a response with status 200 stands for.

use serde_json::Value;

/// Returns the HTTP status that an error object states: as a number in `code`, `status`, `http_code` or `status_code`,
/// or else by a known word in `code` or `type`; 500 if it states none.
pub(super) fn in_band_status(body: &[u8]) -> u16 {
    let (error, stated) = stated_status(body);
    let words = ["code", "type"].map(|name| error.get(name).and_then(Value::as_str).unwrap_or_default());
    let of_word = || WORDS.iter().find(|(_, known)| words.iter().any(|word| known.contains(word)));
    stated.or_else(|| of_word().map(|(status, _)| *status)).unwrap_or(500)
}

/// Returns true if an error object states a status of 500 or above.
pub(super) fn has_server_error_status(body: &[u8]) -> bool {
    stated_status(body).1.is_some_and(|status| status >= 500)
}

/// Returns the error object of a body, and the HTTP status from 400 to 599 that the object states as a number; `None`
/// if it states none.
fn stated_status(body: &[u8]) -> (Value, Option<u16>) {
    let value: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let error = value.get("error").filter(|error| error.is_object()).unwrap_or(&value);
    let stated = ["code", "status", "http_code", "status_code"].into_iter().find_map(|name| {
        let status = match error.get(name)? {
            Value::Number(number) => u16::try_from(number.as_u64()?).ok()?,
            Value::String(text) => text.parse().ok()?,
            _ => return None,
        };
        (400..600).contains(&status).then_some(status)
    });
    (error.clone(), stated)
}

/// Codes and types of error objects, each list with its status. If an object has words of several lists, the first
/// list counts. Codes that state a failure of the provider need no row, because 500 is the default.
const WORDS: [(u16, &[&str]); 5] = [
    (429, RATE_LIMIT_WORDS),
    (504, &["vector_store_timeout"]),
    (400, CLIENT_ERROR_TYPES),
    (400, CLIENT_ERROR_CODES),
    (400, FAILED_RESPONSE_CODES),
];

/// Codes and types that state a rate limit.
const RATE_LIMIT_WORDS: &[&str] = &[
    "rate_limit_error",
    "rate_limit_exceeded",
    "rate_limit_reached",
    "rate_limited",
    "RateLimitError",
    "too_many_requests",
];

/// Types that blame the request. The responses dialect has no type, and some providers write it in `code`.
const CLIENT_ERROR_TYPES: &[&str] = &[
    "BadRequestError",
    "BadRequest",
    "UnprocessableEntityError",
    "invalid_request_error",
    "invalid_request",
    "validation_error",
];

/// Codes of the chat and responses dialects that blame the request. With an HTTP status, it is 400.
const CLIENT_ERROR_CODES: &[&str] = &[
    "context_length_exceeded",
    "invalid_function_parameters",
    "invalid_json_schema",
    "invalid_type",
    "invalid_value",
    "missing_required_parameter",
    "string_above_max_length",
    "unknown_parameter",
    "unsupported_parameter",
    "unsupported_value",
];

/// Codes of failed responses that blame the prompt or one of its images.
const FAILED_RESPONSE_CODES: &[&str] = &[
    "bio_policy",
    "cyber_policy",
    "empty_image_file",
    "failed_to_download_image",
    "image_content_policy_violation",
    "image_file_not_found",
    "image_file_too_large",
    "image_parse_error",
    "image_too_large",
    "image_too_small",
    "invalid_base64_image",
    "invalid_image",
    "invalid_image_format",
    "invalid_image_mode",
    "invalid_image_url",
    "invalid_prompt",
    "misalignment_policy_violation",
    "unsupported_image_media_type",
];
