//! Error bodies in the formats of engines and vendors.

use super::fault::ErrorShape;
use super::parsed_request::RequestError;
use serde_json::{Value, json};

/// Returns an error object in vLLM's format.
pub(super) fn vllm(status: u16, kind: &str, message: &str, field: Option<&str>) -> Value {
    json!({ "error": { "message": message, "type": kind, "param": field, "code": status } })
}

/// Returns an error object in the format of the vendor that defined the messages dialect.
pub(super) fn messages(kind: &str, message: &str) -> Value {
    json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": "req_simulated" })
}

/// Returns an error body for this status: in the format of the messages dialect if `native` is true, otherwise in
/// that of vLLM.
pub(super) fn status_error(native: bool, status: u16) -> Value {
    let (vllm_kind, native_kind, message) = match status {
        400 => ("BadRequestError", "invalid_request_error", "The simulated engine does not accept this."),
        401 => ("AuthenticationError", "authentication_error", "Incorrect API key (simulated)."),
        402 => ("PaymentRequiredError", "billing_error", "The balance is used up (simulated)."),
        403 => ("PermissionDeniedError", "permission_error", "Not allowed (simulated)."),
        404 => ("NotFoundError", "not_found_error", "The model does not exist (simulated)."),
        413 => ("BadRequestError", "request_too_large", "The body is too large (simulated)."),
        429 => ("RateLimitError", "rate_limit_error", "Too many requests (simulated)."),
        503 | 529 => ("ServiceUnavailableError", "overloaded_error", "Overloaded (simulated)."),
        504 => ("GatewayTimeoutError", "timeout_error", "Timed out (simulated)."),
        _ => ("InternalServerError", "api_error", "The simulated engine failed."),
    };
    if native { messages(native_kind, message) } else { vllm(status, vllm_kind, message, None) }
}

/// Returns the error of a request that cannot be parsed.
pub(super) fn invalid_request(native: bool, error: &RequestError) -> Value {
    if native {
        messages("invalid_request_error", &error.message)
    } else {
        vllm(400, "BadRequestError", &error.message, error.field)
    }
}

/// Returns the error of a prompt that is longer than the window.
pub(super) fn prompt_too_long(shape: ErrorShape, prompt: u64, window: u64) -> Value {
    match shape {
        ErrorShape::Vllm => vllm(
            400,
            "BadRequestError",
            &format!(
                "This model's maximum context length is {window} tokens. However, your request has {prompt} \
                 input tokens. Please reduce the length of the input messages."
            ),
            Some("input_tokens"),
        ),
        ErrorShape::LlamaCpp => json!({ "error": {
            "code": 400,
            "message": format!(
                "request ({prompt} tokens) exceeds the available context size ({window} tokens), try increasing it"
            ),
            "type": "exceed_context_size_error",
            "n_prompt_tokens": prompt,
            "n_ctx": window,
        } }),
        ErrorShape::Generic => json!({ "error": {
            "message": format!(
                "This model's maximum context length is {window} tokens. However, your messages resulted in \
                 {prompt} tokens. Please reduce the length of the messages."
            ),
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        } }),
        ErrorShape::Messages => messages(
            "invalid_request_error",
            &format!("prompt is too long: {prompt} tokens > {window} maximum"),
        ),
    }
}

/// Returns vLLM's error for a prompt that fits into the window, but not together with its answer.
pub(super) fn window_exceeded(prompt: u64, most: u64, window: u64) -> Value {
    let message = format!(
        "'max_tokens' or 'max_completion_tokens' is too large: {most}. This model's maximum context length is \
         {window} tokens and your request has {prompt} input tokens ({most} > {window} - {prompt})."
    );
    vllm(400, "BadRequestError", &message, Some("max_tokens"))
}

/// Returns the error of refused content.
pub(super) fn content_refused(shape: ErrorShape) -> Value {
    match shape {
        ErrorShape::Vllm => {
            vllm(400, "data_inspection_failed", "Input data may contain inappropriate content.", None)
        }
        ErrorShape::LlamaCpp => json!({ "error": {
            "message": "The response was filtered due to the prompt triggering the content management policy.",
            "type": null,
            "param": "prompt",
            "code": "content_filter",
            "status": 400,
            "innererror": { "code": "ResponsibleAIPolicyViolation", "content_filter_result": {} },
        } }),
        ErrorShape::Generic => json!({ "error": {
            "message": "Your request was rejected as a result of our safety system.",
            "type": "invalid_request_error",
            "param": null,
            "code": "content_policy_violation",
        } }),
        ErrorShape::Messages => {
            messages("invalid_request_error", "Output blocked by content filtering policy")
        }
    }
}
