//! Tests of the different wordings in which engines report the same failure.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;

fn classify(status: u16, text: &str) -> UpstreamError {
    let body = serde_json::json!({"error": {"message": text, "code": status}}).to_string();
    classify_error(status, None, body.as_bytes(), 8192, br#"{"messages":[]}"#)
}

/// Returns the code of the refusal, with the stated window and input.
fn refusal(error: UpstreamError) -> (ErrorCode, Option<u64>, Option<u64>) {
    assert_eq!(error.kind, UpstreamErrorKind::Caller);
    let refusal = error.api_error.unwrap();
    let number = |name: &str| refusal.details.get(name).and_then(serde_json::Value::as_u64);
    (refusal.code, number("context_length"), number("input_tokens"))
}

fn in_band(text: &str) -> UpstreamError {
    let body = serde_json::json!({"error": {"message": text}}).to_string();
    reclassify_in_band_error(classify_in_band_error(body.as_bytes()), 8192, br#"{"messages":[]}"#)
}

#[test]
fn a_negative_limit_of_generated_tokens_is_an_overflow_under_each_of_its_names() {
    for name in [
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "max_new_tokens",
        "`max_tokens`",
        "max tokens",
    ] {
        for text in [
            format!("{name} must be at least 1, got -63"),
            format!("{name} must be at least 1, but got -63."),
            format!("{name} must be greater than or equal to 1, got -63"),
            format!("Value error, {name} must be >= 1 (got -63)"),
            format!("{name} must be positive, got -63"),
            format!("{name}: must be greater than 0. Received: -63"),
        ] {
            let expected = (ErrorCode::ContextLength, Some(8192), Some(8255));
            for status in [400, 422, 500, 503] {
                assert_eq!(refusal(classify(status, &text)), expected, "{status}: {text}");
            }
            assert_eq!(refusal(in_band(&text)), expected, "{text}");
        }
    }
    for text in [
        "max_output_tokens: expected a value >= 16, but got 5",
        "n must be at least 1, got -1",
        "max_tokens must be a positive integer for model gpt-4o",
        "max_tokens must be a positive integer for model org/llama-3-8b of region eu-0",
        "max_tokens must be positive or -1",
        "max_tokens must be at least 1 for model v 0",
    ] {
        assert_eq!(refusal(classify(400, text)).0, ErrorCode::InvalidRequest, "{text}");
        assert_eq!(classify(500, text).kind, UpstreamErrorKind::Status(500), "{text}");
    }
}

#[test]
fn a_limit_of_zero_that_the_request_contains_is_no_overflow() {
    let text = "max_tokens must be at least 1 for model gpt-4o, got 0";
    let body = serde_json::json!({"error": {"message": text}}).to_string();
    let is_overflow = |request: &[u8]| {
        let error = classify_error(400, None, body.as_bytes(), 8192, request);
        error.api_error.unwrap().message.contains("the input has 8192 tokens")
    };
    assert!(!is_overflow(br#"{"max_tokens":0,"echo":true}"#));
    assert!(is_overflow(br#"{"max_tokens":50}"#));
    assert!(is_overflow(b"{}"), "the engine computed the limit");
}

#[test]
fn the_numbers_of_an_excess_are_read_with_and_without_brackets() {
    for text in [
        "Requested tokens (5000) exceed context window of 4096",
        "prompt_tokens (5000) exceed context window (4096)",
        "tokenized prompt length 5000 is greater than max_seq_len 4096",
        "Input length 5000 exceeds the maximum allowed length 4096",
        "Input length (5,000 tokens) exceeds maximum input length (4,096)",
        "prompt (5000 tokens) too long for context window (4096 tokens)",
        "inputs must have less than 4096 tokens. Given: 5000",
        "Sequence length 5000 exceeds maximum 4096",
        "Prompt length 5000 > max 4096",
        "input tokens: 5000, which is more than the context size: 4096",
    ] {
        let expected = (ErrorCode::ContextLength, Some(4096), Some(5000));
        for status in [400, 413, 422, 500, 503] {
            assert_eq!(refusal(classify(status, text)), expected, "{status}: {text}");
        }
        assert_eq!(refusal(in_band(text)), expected, "{text}");
    }
    let text = "Total tokens of image and text exceed max message tokens";
    assert_eq!(refusal(classify(500, text)), (ErrorCode::ContextLength, Some(8192), None));
    for text in [
        "Stop sequence length 40 exceeds maximum 32",
        "Prompt length 5 > max 4096",
        "Token count 9000 exceeds 60 TPM",
    ] {
        assert_eq!(classify(500, text).kind, UpstreamErrorKind::Status(500), "{text}");
        assert_eq!(refusal(classify(400, text)).0, ErrorCode::InvalidRequest, "{text}");
    }
}

#[test]
fn a_short_phrase_inside_a_word_is_not_that_phrase() {
    for text in [
        "prompt is too long for the classroom",
        "The prompt is too long; make room by a shorter prompt",
        "Context window exceeded while a quotation was read",
        "Failed to apply chat template: zoom",
        "Prompt is too long, in the form given by the carpmap",
    ] {
        assert_eq!(classify(500, text).kind, UpstreamErrorKind::Caller, "{text}");
    }
    for text in [
        "OOM while the prompt was too long",
        "worker was OOMKilled: prompt is too long",
        "cuda_oom: context window exceeded",
        "prompt too long for 1000tpm",
        "insufficient_quota: too many tokens in the context window",
    ] {
        assert_eq!(classify(500, text).kind, UpstreamErrorKind::Status(500), "{text}");
    }
}

#[test]
fn a_conversation_or_a_schema_that_an_engine_cannot_read_is_a_client_error() {
    for text in [
        "System message must be at the beginning.",
        "Assistant message must have either content or tool_calls, but not none.",
        "messages must alternate between user and assistant",
        "At most 1 image(s) may be provided in one request.",
        "Unable to generate parser for this template. Automatic parser generation failed",
        "Failed to compile grammar: invalid schema",
    ] {
        for status in [400, 500, 503] {
            assert_eq!(refusal(classify(status, text)).0, ErrorCode::InvalidRequest, "{status}: {text}");
        }
        assert_eq!(in_band(text).kind, UpstreamErrorKind::Caller, "{text}");
    }
}

#[test]
fn numbers_of_accounts_are_removed_and_technical_words_remain() {
    let lead = "The model's provider does not accept this request: ";
    for (text, expected) in [
        ("account 123456789012 is not valid", "account \u{2026} is not valid"),
        ("value must be less than 2147483647", "value must be less than 2147483647"),
        ("value must be at most 1,000,000", "value must be at most 1,000,000"),
        ("content is not valid base64", "content is not valid base64"),
        ("roles must be user/assistant/user", "roles must be user/assistant/user"),
        ("file /user/assistant is missing", "file \u{2026} is missing"),
        ("file home/jane is missing", "file \u{2026} is missing"),
    ] {
        let message = classify(400, text).api_error.unwrap().message;
        assert_eq!(message.strip_prefix(lead), Some(expected), "{text}");
    }
}

#[test]
fn an_overflow_of_the_window_is_known_in_the_words_of_each_engine() {
    for text in [
        "This model's maximum context length is 8192 tokens. However, you requested 512 output tokens and your prompt contains at least 9000 input tokens, for a total of at least 9512 tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
        "This model's maximum context length is 8192 tokens. However, your request has 9000 input tokens. Please reduce the length of the input messages.",
        "The decoder prompt (length 9000) is longer than the maximum model length of 8192. Make sure that `max_model_len` is no smaller than the number of text tokens.",
        "The engine prompt length 9000 exceeds the max_model_len 8192. Please reduce prompt.",
        "Input length (9000) exceeds model's maximum context length (8192).",
        "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
        "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 9200 tokens: 9000 tokens from the input messages and 200 tokens for the completion. Please reduce the number of tokens in the input messages or the completion to fit within the limit.",
        "Input length (9000 tokens) exceeds the maximum allowed length (8192 tokens). Use a shorter input or enable --allow-auto-truncate.",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192. Given: 9000 `inputs` tokens and 100 `max_new_tokens`",
        "The sum of prompt length (9000.0), query length (0) should not exceed max_num_tokens (8192)",
        "Prompt length (9000) exceeds maximum input length (8192). Set log level to info and check TRTGptModel logs for how maximum input length is set",
        "default_max_tokens (-808) should be greater than 0, default_max_tokens (-808) = max_seq_len (8192) - (splited_prompt_len (9000) - query_token_len (0))",
        "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
        "input (9000 tokens) is too large to process. increase the physical batch size (current batch size: 8192)",
        "prompt too long; exceeded max context length by 808 tokens",
        "prompt is too long: 9000 > 8192",
        "prompt is too long: 9000 tokens > 8192 maximum",
        "The input token length 9000 exceeds session length 8192",
        "Prompt contains 9000 tokens and 0 draft tokens, too large for model with 8192 maximum context length",
        "This model's maximum context length is 8192 tokens. However, you requested 9500 tokens (9000 in the messages, 500 in the completion). Please reduce the length of the messages or completion.",
        "Request prompt has 9000 tokens in total, larger than the model input length limit 8192.",
        "The prompt is too long: 9000, model maximum context length: 8192",
        "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192",
        "Number of prompt tokens: 9000 exceeds model max length: 8192",
        "Prompt length 9000 is greater than max_seq_len 8192",
        "Context length 9000 is greater than max_seq_len 8192",
        "Input length of input_ids is 9000, but `max_length` is set to 8192",
        "Your request exceeded model token limit: 8192 (requested: 9000)",
    ] {
        for status in [400, 413, 422, 500] {
            let expected = (ErrorCode::ContextLength, Some(8192), Some(9000));
            assert_eq!(refusal(classify(status, text)), expected, "{status}: {text}");
        }
    }
}

#[test]
fn names_of_members_and_words_of_an_api_are_no_prompt() {
    let sentence = |request: serde_json::Value, text: &str| {
        let body = serde_json::json!({"error": {"message": text}}).to_string();
        let error = classify_error(400, None, body.as_bytes(), 8192, request.to_string().as_bytes());
        let message = error.api_error.unwrap().message.into_owned();
        message.split_once(": ").map(|(_, sentence)| sentence.to_owned()).unwrap_or_default()
    };
    let speech = serde_json::json!({"model": "m", "input": "My secret plan", "voice": "nova", "instructions": "Softly"});
    let image = serde_json::json!({"prompt": "A quiet cat", "quality": "high", "size": "512x512"});
    let rank = serde_json::json!({"query": "salary", "documents": ["Jane Doe"]});
    for (request, text) in [
        (&speech, "instructions are not supported by this engine"),
        (&rank, "query is too short"),
        (&image, "quality high is not supported"),
        (&image, "Invalid size 512x512. Supported sizes are 1024x1024 and 1536x1024"),
    ] {
        assert_eq!(sentence(request.clone(), text), text);
    }
    for (request, text, passed) in [
        // Words other than common ones are removed, because they may be names of machines or persons.
        (&speech, "The voice nova does not exist", "The voice … does not exist"),
        (&speech, "Unknown voice. Available voices: af_bella, am_adam", "Unknown voice. Available voices:"),
        (&speech, "input My secret plan is too long", "input … is too long"),
        (&speech, "The voice Softly does not exist", "The voice … does not exist"),
        (&rank, "query salary is too short", "query … is too short"),
        (&image, "The size A quiet cat is not supported", "The size A … is not supported"),
    ] {
        assert_eq!(sentence(request.clone(), text), passed, "{text}");
    }
    // A member name below the top level, and a value with spaces, count as texts of the client and are removed.
    let nested =
        serde_json::json!({"tools": [{"parameters": {"properties": {"lookup": {}}}}], "voice": "a lamp"});
    assert_eq!(sentence(nested.clone(), "property lookup is missing"), "property … is missing");
    assert_eq!(sentence(nested, "voice lamp is missing"), "voice … is missing");
    // A word of the API is removed if the prompt contains it too.
    let both = serde_json::json!({"input": "nova is mine", "voice": "nova"});
    assert_eq!(sentence(both, "The voice nova does not exist"), "The voice … does not exist");
}
