//! Classification of error messages of the supported engines.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::*;

/// Request with the texts `secret plan` and `Jane Doe 4711`.
const REQUEST: &[u8] = br#"{"model":"org/m","messages":[{"role":"user","content":"secret plan"},{"role":"user","content":"J\u0061ne Doe 4711"}],"tools":[{"type":"function","function":{"name":"lookup_salary","parameters":{}}}]}"#;

fn asked(status: u16, body: &str, window: u64) -> UpstreamError {
    classify_error(status, None, body.as_bytes(), window, REQUEST)
}

fn refused(status: u16, body: &str) -> ApiError {
    let fault = asked(status, body, 8192);
    assert_eq!(fault.kind, UpstreamErrorKind::Caller, "{body}");
    *fault.api_error.unwrap()
}

#[test]
fn both_numbers_of_a_full_context_window_are_read_from_every_engines_message() {
    let sentences = [
        r#"{"error":{"message":"This model's maximum context length is 4096 tokens. However, you requested 5100 tokens (5000 in the messages, 100 in the completion).","code":"context_length_exceeded"}}"#,
        r#"{"object":"error","message":"This model's maximum context length is 4096 tokens. However, your request has 5000 input tokens. Please reduce the length.","code":400}"#,
        r#"{"error":{"message":"This model's maximum context length is 4,096 tokens. However, your messages resulted in 5,000 tokens."}}"#,
        r#"{"object":"error","message":"The input (5000 tokens) is longer than the model's context length (4096 tokens).","code":400}"#,
        r#"{"message":"Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 5100 tokens: 5000 tokens from the input messages and 100 tokens for the completion."}"#,
        r#"{"error":"Input validation error: `inputs` must have less than 4096 tokens. Given: 5000","error_type":"validation"}"#,
        r#"{"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 100 `max_new_tokens`"}"#,
        r#"{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":5000,"n_ctx":4096}}"#,
        r#"{"object":"error","message":"Prompt contains 5000 tokens and 0 draft tokens, too large for model with 4096 maximum context length","type":"invalid_request_error"}"#,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 5000 tokens > 4096 maximum"}}"#,
    ];
    for sentence in sentences {
        let refusal = refused(400, sentence);
        assert_eq!(refusal.code, ErrorCode::ContextLength, "{sentence}");
        assert_eq!(refusal.details["context_length"], 4096, "{sentence}");
        assert_eq!(refusal.details["input_tokens"], 5000, "{sentence}");
    }
}

#[test]
fn without_numbers_the_catalog_context_window_is_reported() {
    let refusal = refused(400, r#"{"error":{"code":"context_length_exceeded","message":"too many"}}"#);
    assert_eq!(refusal.code, ErrorCode::ContextLength);
    assert_eq!(refusal.details["context_length"], 8192);
    assert!(!refusal.details.contains_key("input_tokens"));
}

#[test]
fn an_input_that_fits_is_not_too_long_only_the_cap_is_too_high() {
    let body = r#"{"message":"'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context length is 4096 tokens and your request has 20 input tokens (5000 > 4096 - 20)."}"#;
    let refusal = refused(400, body);
    assert_eq!((refusal.code, refusal.param.as_deref()), (ErrorCode::InvalidRequest, Some("max_tokens")));
}

#[test]
fn refused_content_is_passed_on_and_not_routed_around() {
    for body in [
        r#"{"error":{"code":"content_filter","message":"The response was filtered due to the prompt triggering X's content management policy."}}"#,
        r#"{"error":{"message":"Your request was flagged","type":"invalid_request_error"}}"#,
        r#"{"code":"data_inspection_failed","message":"Input data may contain inappropriate content."}"#,
    ] {
        assert_eq!(refused(400, body).code, ErrorCode::ContentRefused, "{body}");
    }
}

#[test]
fn other_refusals_name_the_field_and_nothing_of_the_provider() {
    let body = r#"{"error":{"message":"Vendorcorp at https://10.1.2.3/v1: key sk-abc, prompt 'secret plan': bad","param":"messages[2].content","code":"x"}}"#;
    let refusal = refused(400, body);
    assert_eq!(
        (refusal.code, refusal.param.as_deref()),
        (ErrorCode::InvalidRequest, Some("messages[2].content"))
    );
    for leak in ["https", "10.1.2.3", "sk-abc", "secret", "plan"] {
        assert!(!refusal.message.contains(leak), "{}", refusal.message);
    }
    let worded = refused(422, r#"{"detail":[{"loc":["body","x"],"msg":"top_p must be below 1"}]}"#);
    assert_eq!(worded.param.as_deref(), Some("top_p"));
    let odd = refused(400, r#"{"error":{"param":"see https://vendor.example/","message":"?"}}"#);
    assert_eq!(odd.param, None);
    assert_eq!(refused(400, "not json").param, None);
    assert_eq!(refused(418, "").code, ErrorCode::InvalidRequest);
}

#[test]
fn the_maximum_output_tokens_are_read_from_every_engines_message() {
    for text in [
        "max_tokens: 8192 > 4096, which is the maximum allowed number of output tokens for claude-3-opus-20240229",
        "The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens value that is lower than 4096.",
        "max_tokens is too large: 8192. This model supports at most 4096 completion tokens, whereas you provided 8192.",
        "`max_tokens` must be less than or equal to `4096`, the maximum value for `max_tokens` is less than the `context_window` for this model",
        "Invalid max_tokens value, the valid range of max_tokens is [1, 4096]",
        "Range of max_tokens should be [1, 4,096]",
        "max_completion_tokens cannot exceed 4096 for this model",
    ] {
        let body =
            serde_json::json!({"type": "error", "error": {"type": "invalid_request_error", "message": text}});
        let fault = asked(400, &body.to_string(), 200_000);
        assert_eq!(
            (fault.max_output, fault.output_budget, fault.is_output_length_error()),
            (Some(4096), None, true),
            "{text}"
        );
    }
    let listed = r#"{"detail":[{"type":"less_than_equal","loc":["body","max_tokens"],"msg":"Input should be less than or equal to 4096","ctx":{"le":4096}}]}"#;
    assert_eq!(asked(422, listed, 200_000).max_output, Some(4096));
    for (status, text) in [
        (400, "max_tokens must be at least 1, got -7"),
        (400, "max_tokens: 8192 > 0"),
        (400, "temperature must be less than or equal to 1"),
        (400, "max_tokens is too large"),
        (
            400,
            "This model's maximum context length is 4096 tokens; max_tokens must be less than or equal to 96",
        ),
        (500, "max_tokens is 4096, worker crashed"),
    ] {
        let body = serde_json::json!({"error": {"message": text}});
        assert_eq!(asked(status, &body.to_string(), 200_000).max_output, None, "{text}");
    }
}

#[test]
fn keys_and_names_are_the_operators_affair() {
    for status in [401, 402, 403, 404] {
        let fault = classify_error(status, None, b"context length", 1, b"{}");
        assert_eq!(fault.kind, UpstreamErrorKind::Credentials(status));
        assert!(fault.api_error.is_none());
    }
}

#[test]
fn a_refusal_of_content_with_status_403_is_an_error_of_the_client() {
    for error in [
        serde_json::json!({"message": "Your input was flagged by moderation", "code": "content_filter"}),
        serde_json::json!({"message": "flagged", "code": 403, "metadata": {"flagged_input": "x", "reasons": ["hate"]},
            "type": "content_policy_violation"}),
    ] {
        let body = serde_json::json!({"error": error}).to_string();
        let fault = classify_error(403, None, body.as_bytes(), 1, b"{}");
        assert_eq!(fault.kind, UpstreamErrorKind::Caller, "{body}");
        assert_eq!(fault.api_error.unwrap().code, ErrorCode::ContentRefused, "{body}");
        let fault = classify_error(401, None, body.as_bytes(), 1, b"{}");
        assert_eq!(fault.kind, UpstreamErrorKind::Credentials(401), "{body}");
    }
}

#[test]
fn a_status_that_forbids_a_retry_elsewhere_passes_with_its_cooldown() {
    for status in [408, 409, 425, 429, 500, 502, 503, 504, 529, 302, 101] {
        let fault = classify_error(status, Some(Duration::from_secs(7)), b"", 1, b"{}");
        assert_eq!(
            (fault.kind, fault.retry_after),
            (UpstreamErrorKind::Status(status), Some(Duration::from_secs(7)))
        );
    }
}

#[test]
fn an_error_inside_a_good_answer_is_the_callers_only_where_it_says_so() {
    let kind = |body: &str| classify_in_band_error(body.as_bytes()).kind;
    assert_eq!(kind(r#"{"error":{"message":"CUDA out of memory"}}"#), UpstreamErrorKind::InBandError);
    assert_eq!(kind(r#"{"error":{"message":"bad request","code":400}}"#), UpstreamErrorKind::InBandError);
    assert_eq!(
        kind(r#"{"error":{"message":"maximum context length is 10 tokens"}}"#),
        UpstreamErrorKind::Caller
    );
    assert_eq!(kind(r#"{"error":{"code":"content_filter"}}"#), UpstreamErrorKind::Caller);
}

#[test]
fn a_bound_of_the_input_is_no_count_of_it() {
    let sentence = |input: u64| {
        format!(
            r#"{{"error":{{"message":"This model's maximum context length is 16384 tokens. However, you requested 4096 output tokens and your prompt contains at least {input} input tokens, for a total of at least 20000 tokens.","param":"input_tokens"}}}}"#
        )
    };
    for status in [400, 500] {
        let beside = asked(status, &sentence(12_289), 32_768);
        assert_eq!(beside.output_budget, Some(OutputBudget::UncountedInput { window: 16_384 }));
        assert!(beside.is_output_length_error());
        let refusal = *beside.api_error.unwrap();
        assert_eq!((refusal.code, refusal.param.as_deref()), (ErrorCode::InvalidRequest, Some("max_tokens")));
    }
    assert_eq!(refused(400, &sentence(16_385)).details["input_tokens"], 16_385);
}

#[test]
#[rustfmt::skip]
fn an_oversized_prompt_is_recognised_with_any_status_and_its_counts() {
    let (window, input) = ("context_length", "input_tokens");
    for (text, known, counts) in [
        ("prompt length (40000) exceeds max_input_len (32768)", 32_768, vec![(window, 32_768), (input, 40_000)]),
        ("input (992 tokens) is too large to process. increase the physical batch size", 8192, vec![(input, 992)]),
        ("input (992 tokens) is too large to process. increase the physical batch size (current batch size: 512)", 8192, vec![(window, 512), (input, 992)]),
        ("max_tokens must be at least 1, got -63", 8192, vec![(window, 8192), (input, 8255)]),
        ("max_tokens must be at least 1, got -63.", 0, vec![]),
        ("Invalid request: Your request exceeded model token limit: 8192", 8192, vec![(window, 8192)]),
        ("Prompt exceeds max length", 8192, vec![(window, 8192)]),
        ("Prompt \u{8d85}\u{957f}", 8192, vec![(window, 8192)]),
        ("The input (5000 tokens) is longer than the model's context length (4096 tokens).", 8192, vec![(window, 4096), (input, 5000)]),
        ("Input length (5000 tokens) exceeds the maximum allowed length (4096 tokens).", 8192, vec![(window, 4096), (input, 5000)]),
        ("Encountered an error in forwardAsync function: Prompt length (5000) exceeds maximum input length (4096).", 8192, vec![(window, 4096), (input, 5000)]),
        ("The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that `max_model_len` is no smaller.", 8192, vec![(window, 4096), (input, 5000)]),
        ("Input validation error: `inputs` must have less than 4096 tokens. Given: 5000", 8192, vec![(window, 4096), (input, 5000)]),
        ("Prompt contains 5000 tokens and 0 draft tokens, too large for model with 4096 maximum context length", 8192, vec![(window, 4096), (input, 5000)]),
        ("too many tokens: total number of tokens in the prompt cannot exceed 4096 - received 5000", 8192, vec![(window, 4096), (input, 5000)]),
        ("This model's maximum prompt length is 4096 but the request contains 5000 tokens.", 8192, vec![(window, 4096), (input, 5000)]),
        ("The input token count (5000) exceeds the maximum number of tokens allowed (4096).", 8192, vec![(window, 4096), (input, 5000)]),
        ("The prompt is too long: 5000, model maximum context length: 4096", 8192, vec![(window, 4096), (input, 5000)]),
        ("the input length exceeds the context length", 8192, vec![(window, 8192)]),
        ("Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough.", 8192, vec![(window, 4096), (input, 5000)]),
        ("Reached context length of 4096 tokens with model (arch: llama) that does not currently support mid-generation context overflow.", 8192, vec![(window, 4096)]),
        ("The sum of prompt length (5000.0), query length (0) max_tokens (200) should not exceed max_seq_len (4096)", 8192, vec![(window, 4096), (input, 5000)]),
        ("Token indices sequence length is longer than the specified maximum sequence length for this model (600 > 512)", 8192, vec![(window, 512), (input, 600)]),
        ("Cannot truncate prompt with n_keep (5000) >= n_ctx (4096)", 8192, vec![(window, 4096), (input, 5000)]),
        ("prompt tokens (40000) exceed n_ctx (32768)", 65536, vec![(window, 32_768), (input, 40_000)]),
        ("too many tokens: total number of tokens in the prompt exceeds the limit of 4081. Try using a shorter prompt.", 8192, vec![(window, 4081)]),
        ("Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)", 8192, vec![(window, 131_072), (input, 140_000)]),
        ("This endpoint's maximum context length is 32768 tokens. However, you requested about 40000 tokens (39000 of text input, 1000 in the output).", 65536, vec![(window, 32_768), (input, 39_000)]),
        ("Range of input length should be [1, 4096]", 8192, vec![(window, 4096)]),
    ] {
        for status in [400, 422, 500, 503] {
            let body = serde_json::json!({"error": {"message": text, "code": status}}).to_string();
            let fault = asked(status, &body, known);
            let refusal = fault.api_error.unwrap_or_else(|| panic!("{status}: {text}"));
            assert_eq!((fault.kind, refusal.code), (UpstreamErrorKind::Caller, ErrorCode::ContextLength), "{status}: {text}");
            let reported: Vec<_> = [window, input].into_iter().filter_map(|name| Some((name, refusal.details.get(name)?.as_u64()?))).collect();
            assert_eq!(reported, counts, "{status}: {text}");
        }
    }
}

#[test]
fn an_internal_engine_failure_is_a_provider_failure_for_any_message() {
    for text in [
        "Internal Server Error",
        "CUDA out of memory while the KV cache for the maximum context length was allocated",
        "worker for context length 4096 is starting",
        "Too many tokens per minute",
        "Failed to parse grammar backend: xgrammar crashed",
        "",
    ] {
        let body = serde_json::json!({"error": {"message": text}}).to_string();
        assert_eq!(asked(500, &body, 8192).kind, UpstreamErrorKind::Status(500), "{text}");
    }
    let busy = asked(400, r#"{"error":{"message":"Too many tokens per minute"}}"#, 8192);
    assert_eq!(busy.kind, UpstreamErrorKind::Status(429));
    assert_eq!(asked(504, "prompt is too long", 8192).kind, UpstreamErrorKind::Status(504));
    assert_eq!(asked(529, "prompt is too long", 8192).kind, UpstreamErrorKind::Status(529));
}

#[test]
fn a_history_that_a_template_does_not_take_is_the_callers() {
    for text in [
        "Conversation roles must alternate user/assistant/user/assistant/...",
        "After the optional system message, conversation roles must alternate user and assistant roles",
        "System role not supported",
        "Not the same number of function calls and responses",
        "[json.exception.parse_error.101] parse error at line 1, column 1",
        "No user query found in messages.",
        "'dict object' has no attribute 'content'",
        "can only concatenate str (not \"NoneType\") to str",
        "Value is not callable: null at row 12, column 5",
        "Cannot have 2 or more assistant messages at the end of the list.",
        "Assistant response prefill is incompatible with enable_thinking.",
        "Failed to convert schema to grammar: Unrecognized schema: {}",
        "At most 1 image(s) may be provided in one prompt.",
    ] {
        let fault =
            asked(500, &serde_json::json!({"error": {"message": text, "code": 500}}).to_string(), 8192);
        assert_eq!(
            (fault.kind, fault.api_error.unwrap().code),
            (UpstreamErrorKind::Caller, ErrorCode::InvalidRequest),
            "{text}"
        );
    }
}

#[test]
#[rustfmt::skip]
fn a_providers_message_is_passed_on_without_internal_details() {
    let message_of = |status: u16, body: &str| refused(status, body).message.into_owned();
    let lead = "The model's provider does not accept this request";
    for (body, sentence) in [
        (r#"{"error":{"message":"temperature must be less than 1.5"}}"#, "temperature must be less than 1.5"),
        (r#"{"detail":[{"loc":["body","x"],"msg":"Input should be a valid list","input":"secret plan"}]}"#, "… Input should be a valid list"),
        (r#"{"message":"Invalid image"}"#, "Invalid image"),
        (r#"{"error":"The tool lookup_salary has no description"}"#, "The tool … has no description"),
        (r#"{"error":{"message":"Cannot parse 'secret plan' of Jane Doe, account 4711, as JSON"}}"#, "Cannot parse … of … account … as JSON"),
        (r#"{"error":{"message":"See https://docs.vendor.example/errors or mail help@vendor.example for req_8f2a91c0b7"}}"#, "See … or mail … for"),
        (r#"{"error":{"message":"Key sk-abc is not valid at 10.1.2.3 port localhost:8000 in /srv/app/main.py"}}"#, "Key … is not valid at … port … in"),
        (r#"{"error":{"message":"1 validation error: messages.0.role [type=literal_error, input_value='secret', input_type=str]"}}"#, "1 validation error: messages.0.role"),
        (r#"{"error":{"message":"bad value {\"role\": \"secret plan\"} in messages"}}"#, "bad value … in messages"),
        ("min_tokens must be positive", "min_tokens must be positive"),
        (r#"{"message":{"detail":[{"type":"missing","loc":["body","messages",0,"role"],"msg":"Field required"}]}}"#, "messages[0].role: Field required"),
        (r#"{"error":{"message":"{\"error\":{\"message\":\"Invalid image\"}}"}}"#, "Invalid image"),
        (r#"{"error_msg":"Invalid image"}"#, "Invalid image"),
        (r#"{"reason":"Invalid image"}"#, "Invalid image"),
        (r#"{"error":{"message":"litellm.BadRequestError: OpenAIException - Error code: 400 - {'error': {'message': 'tools must be a list'}}"}}"#, "tools must be a list"),
    ] {
        assert_eq!(message_of(400, body), format!("{lead}: {sentence}"), "{body}");
    }
    for silent in ["", "<html><body>Bad Request at host</body></html>", "\u{fffd}\u{0}", r#"{"error":{}}"#, "{\"error\":5}", r#"{"error":{"message":"secret plan Jane Doe"}}"#, "Traceback (most recent call last): x"] {
        assert_eq!(message_of(400, silent), format!("{lead}."), "{silent}");
    }
    let long = format!("bad {}", "sound words ".repeat(500));
    assert!(message_of(400, &long).chars().count() < 400);
}

#[test]
fn words_without_spaces_are_compared_by_letters() {
    let request = "{\"messages\":[{\"role\":\"user\",\"content\":\"\u{6211}\u{7684}\u{79d8}\u{5bc6}\u{8ba1}\u{5212}\"}]}";
    let message_of = |text: &str| {
        let fault = classify_error(400, None, text.as_bytes(), 1, request.as_bytes());
        fault.api_error.unwrap().message.into_owned()
    };
    assert!(!message_of("Bad text: \u{79d8}\u{5bc6}\u{8ba1}\u{5212} here").contains('\u{5bc6}'));
    assert!(message_of("Bad text: \u{683c}\u{5f0f}\u{9519}\u{8bef} here").contains('\u{683c}'));
}

#[test]
fn a_request_that_is_too_large_for_the_provider_stays_that() {
    let refusal = refused(413, r#"{"error":{"message":"Request body is larger than allowed"}}"#);
    assert_eq!(refusal.code, ErrorCode::TooLarge);
    assert_eq!(
        refusal.message,
        "The request is too large for the model's provider: Request body is larger than allowed"
    );
    assert_eq!(refused(413, "").message, "The request is too large for the model's provider.");
    let length = refused(413, r#"{"error":"`inputs` must have less than 512 tokens. Given: 700"}"#);
    assert_eq!((length.code, &length.details["input_tokens"]), (ErrorCode::ContextLength, &700.into()));
}
