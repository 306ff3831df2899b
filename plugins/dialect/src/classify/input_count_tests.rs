//! Tests of the numbers in errors about the length of the input, of the answer, and of both together.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;

/// Context window in the catalogue.
const CATALOG_WINDOW: u64 = 32_768;

fn classify(status: u16, text: &str) -> UpstreamError {
    let body = serde_json::json!({"error": {"message": text, "code": status}}).to_string();
    classify_error(status, None, body.as_bytes(), CATALOG_WINDOW, br#"{"messages":[]}"#)
}

/// Returns the errors for a text with each status by which engines report it, and as an error of a stream.
fn errors(text: &str) -> impl Iterator<Item = UpstreamError> {
    let body = serde_json::json!({"error": {"message": text}}).to_string();
    let in_band = classify_in_band_error(body.as_bytes());
    let in_band = reclassify_in_band_error(in_band, CATALOG_WINDOW, br#"{"messages":[]}"#);
    [400, 422, 500, 503].into_iter().map(move |status| classify(status, text)).chain([in_band])
}

fn number(refusal: &ApiError, name: &str) -> Option<u64> {
    refusal.details.get(name).and_then(serde_json::Value::as_u64)
}

#[test]
fn an_input_above_its_limit_has_both_numbers_in_either_order() {
    for text in [
        "Input too long: 5000 tokens, max 4096",
        "Input too long: max 4096, got 5000 tokens",
        "Input too long (limit 4096): 5000 tokens",
        "Prompt is too long: 5000 tokens (limit 4096)",
        "Prompt is too long: limit 4096 tokens, prompt 5000 tokens",
        "Prompt too long, maximum is 4,096 tokens but received 5,000",
        "The prompt is too long: it has 5000 tokens and the limit is 4096",
        "Prompt exceeds the model context length: 5000 > 4096",
        "Prompt exceeds the model context length: 4096 < 5000",
        "The context window of 4096 is exceeded by a prompt of 5000 tokens",
        "Too many input tokens: 4096 allowed, 5000 given",
        "Context size exceeded (n_ctx: 4096, prompt: 5000)",
        "input length 5000 exceeds maximum context length 4096",
        "litellm.BadRequestError: Error code: 400 - prompt is too long: 5000 tokens (limit 4096)",
    ] {
        for error in errors(text) {
            let refusal = error.api_error.unwrap();
            assert_eq!(refusal.code, ErrorCode::ContextLength, "{text}");
            let numbers = (number(&refusal, "context_length"), number(&refusal, "input_tokens"));
            assert_eq!(numbers, (Some(4096), Some(5000)), "{text}");
            assert_eq!((error.output_budget, error.max_output), (None, None), "{text}");
        }
    }
}

#[test]
fn an_answer_above_the_maximum_is_not_a_long_input() {
    for text in [
        "too many tokens: max tokens must be less than or equal to 4096, the maximum output length for this model - received 5000.",
        "too many tokens: received 5000 max tokens, the maximum output length for this model is 4096.",
        "max_tokens (5000) exceeds the maximum output length 4096",
        "max_tokens exceeds limit 4096: 5000",
        "The output limit is 4096, which max_tokens 5000 exceeds",
    ] {
        for error in errors(text) {
            let refusal = error.api_error.unwrap();
            assert_eq!((error.max_output, error.output_budget), (Some(4096), None), "{text}");
            assert_eq!(refusal.code, ErrorCode::InvalidRequest, "{text}");
            assert!(!refusal.message.contains("32768"), "{text}: {}", refusal.message);
        }
    }
}

#[test]
fn a_number_below_a_minimum_is_no_maximum() {
    for text in [
        "max_tokens must be at least 2048, got 1000",
        "max_tokens (1000) must be greater than budget_tokens (2048)",
    ] {
        let error = classify(400, text);
        assert_eq!((error.max_output, error.output_budget), (None, None), "{text}");
        assert_eq!(classify(500, text).kind, UpstreamErrorKind::Status(500), "{text}");
    }
}

#[test]
fn a_sum_above_the_window_allows_a_shorter_answer() {
    let uncounted = |window| Some(OutputBudget::UncountedInput { window });
    for (text, budget) in [
        (
            "This model's maximum context length is 8192 tokens. However, you requested 8192 output tokens and your prompt contains at least 1 input tokens, for a total of at least 8193 tokens. Please reduce the length of the input prompt or the number of requested output tokens. (parameter=input_tokens, value=1)",
            uncounted(8192),
        ),
        (
            "This model's maximum context length is 8192 tokens. However, you requested 64 output tokens and your prompt contains at least 8129 input tokens, for a total of at least 8193 tokens.",
            uncounted(8192),
        ),
        (
            "You passed 67073 input tokens and requested 64000 output tokens. However, the model's context length is only 131072 tokens, resulting in a maximum input length of 67072 tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=67073)",
            uncounted(131_072),
        ),
        (
            "You passed 80000 input characters and requested 4096 output tokens. However, the model's context length is only 8192 tokens, resulting in a maximum input length of 4096 tokens (at most 65536 characters).",
            uncounted(8192),
        ),
        (
            "This model's maximum context length is 8192 tokens. However, you requested 4096 output tokens and your prompt contains 100000 characters (more than 40960 characters, which is the upper bound for 4096 input tokens).",
            uncounted(8192),
        ),
        (
            "max_completion_tokens=131072 cannot be greater than max_model_len=max_total_tokens=65536. Please request fewer output tokens.",
            uncounted(65_536),
        ),
        (
            "This model's maximum context length is 4097 tokens, however you requested 8212 tokens (20 in your prompt; 8192 for the completion).",
            Some(OutputBudget::Exact(4077)),
        ),
        (
            "The sum of prompt length (20.0), query length (0) max_tokens (8192) should not exceed max_seq_len (8192)",
            Some(OutputBudget::Exact(8172)),
        ),
        (
            "input length and `max_tokens` exceed context limit: 1100 + 8192 > 8192, decrease input length or `max_tokens` and try again",
            Some(OutputBudget::Exact(7092)),
        ),
    ] {
        for error in errors(text) {
            assert_eq!(error.output_budget, budget, "{text}");
            let refusal = error.api_error.unwrap();
            assert_eq!(refusal.code, ErrorCode::InvalidRequest, "{text}");
            assert_eq!(refusal.param.as_deref(), Some("max_tokens"), "{text}");
        }
    }
}

#[test]
fn a_count_that_fills_the_window_alone_is_a_lower_bound_of_a_long_input() {
    for (text, least) in [
        (
            "You passed 8193 input tokens and requested 0 output tokens. However, the model's context length is only 8192 tokens, resulting in a maximum input length of 8192 tokens.",
            8193,
        ),
        (
            "This model's maximum context length is 8192 tokens. However, you requested 1 output tokens and your prompt contains at least 8192 input tokens, for a total of at least 8193 tokens.",
            8192,
        ),
        (
            "This model's maximum context length is 8192 tokens. However, you requested 0 output tokens and your prompt contains 100000 characters (more than 81920 characters, which is the upper bound for 8192 input tokens).",
            8193,
        ),
    ] {
        for error in errors(text) {
            assert_eq!(error.output_budget, None, "{text}");
            let refusal = error.api_error.unwrap();
            assert_eq!(refusal.code, ErrorCode::ContextLength, "{text}");
            let numbers = (number(&refusal, "context_length"), number(&refusal, "input_tokens"));
            assert_eq!(numbers, (Some(8192), Some(least)), "{text}");
            assert_eq!(refusal.details["input_tokens_at_least"], true, "{text}");
        }
    }
    let exact = classify(
        400,
        "This model's maximum context length is 8192 tokens. However, you requested 64 output tokens and your prompt contains 10000 input tokens, for a total of 10064 tokens.",
    );
    let refusal = exact.api_error.unwrap();
    assert_eq!(number(&refusal, "input_tokens"), Some(10_000));
    assert!(!refusal.details.contains_key("input_tokens_at_least"));
}
