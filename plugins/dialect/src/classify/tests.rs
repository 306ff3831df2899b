//! Sentences of the engines in use, and what becomes of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::*;

fn refused(status: u16, body: &str) -> Refusal {
    let fault = classify(Dialect::Chat, status, None, body.as_bytes(), 8192);
    assert_eq!(fault.kind, FaultKind::Caller, "{body}");
    *fault.refusal.unwrap()
}

#[test]
fn a_full_window_is_told_with_both_numbers_in_every_engines_words() {
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
        assert_eq!(refusal.code, Code::ContextLength, "{sentence}");
        assert_eq!(refusal.details["context_length"], 4096, "{sentence}");
        assert_eq!(refusal.details["input_tokens"], 5000, "{sentence}");
    }
}

#[test]
fn without_numbers_the_catalogues_window_is_told() {
    let refusal = refused(400, r#"{"error":{"code":"context_length_exceeded","message":"too many"}}"#);
    assert_eq!(refusal.code, Code::ContextLength);
    assert_eq!(refusal.details["context_length"], 8192);
    assert!(!refusal.details.contains_key("input_tokens"));
}

#[test]
fn an_input_that_fits_is_not_too_long_only_the_cap_is_too_high() {
    let body = r#"{"message":"'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context length is 4096 tokens and your request has 20 input tokens (5000 > 4096 - 20)."}"#;
    let refusal = refused(400, body);
    assert_eq!((refusal.code, refusal.param.as_deref()), (Code::InvalidRequest, Some("max_tokens")));
}

#[test]
fn refused_content_is_passed_on_and_not_routed_around() {
    for body in [
        r#"{"error":{"code":"content_filter","message":"The response was filtered due to the prompt triggering X's content management policy."}}"#,
        r#"{"error":{"message":"Your request was flagged","type":"invalid_request_error"}}"#,
        r#"{"code":"data_inspection_failed","message":"Input data may contain inappropriate content."}"#,
    ] {
        assert_eq!(refused(400, body).code, Code::ContentRefused, "{body}");
    }
}

#[test]
fn other_refusals_name_the_field_and_nothing_of_the_provider() {
    let body = r#"{"error":{"message":"Vendorcorp at https://10.1.2.3/v1: key sk-abc, prompt 'secret plan': bad","param":"messages[2].content","code":"x"}}"#;
    let refusal = refused(400, body);
    assert_eq!((refusal.code, refusal.param.as_deref()), (Code::InvalidRequest, Some("messages[2].content")));
    for leak in ["Vendorcorp", "10.1.2.3", "sk-abc", "secret"] {
        assert!(!refusal.message.contains(leak));
    }
    let worded = refused(422, r#"{"detail":[{"loc":["body","x"],"msg":"top_p must be below 1"}]}"#);
    assert_eq!(worded.param.as_deref(), Some("top_p"));
    let odd = refused(400, r#"{"error":{"param":"see https://vendor.example/","message":"?"}}"#);
    assert_eq!(odd.param, None);
    assert_eq!(refused(400, "not json").param, None);
    assert_eq!(refused(418, "").code, Code::InvalidRequest);
}

#[test]
fn keys_and_names_are_the_operators_affair() {
    for status in [401, 402, 403, 404] {
        let fault = classify(Dialect::Messages, status, None, b"context length", 1);
        assert_eq!(fault.kind, FaultKind::Credentials(status));
        assert!(fault.refusal.is_none());
    }
}

#[test]
fn what_another_provider_may_not_repeat_is_a_status_with_its_rest() {
    for status in [408, 409, 425, 429, 500, 502, 503, 504, 529, 302, 101] {
        let fault = classify(Dialect::Chat, status, Some("7"), b"", 1);
        assert_eq!(
            (fault.kind, fault.retry_after),
            (FaultKind::Status(status), Some(Duration::from_secs(7)))
        );
    }
    let rest = |header: &str| classify(Dialect::Chat, 429, Some(header), b"", 1).retry_after;
    assert_eq!(rest(" 1.2 "), Some(Duration::from_secs(2)));
    assert_eq!(rest("2.0"), Some(Duration::from_secs(2)));
    assert_eq!(rest("99999999"), Some(Duration::from_secs(3600)));
    assert_eq!(rest("Sun, 22 Nov 2026 01:00:00 GMT"), None);
    assert_eq!(rest("-1"), None);
}

#[test]
fn an_error_inside_a_good_answer_is_the_callers_only_where_it_says_so() {
    let kind = |body: &str| in_band(body.as_bytes()).kind;
    assert_eq!(kind(r#"{"error":{"message":"CUDA out of memory"}}"#), FaultKind::InBand);
    assert_eq!(kind(r#"{"error":{"message":"bad request","code":400}}"#), FaultKind::InBand);
    assert_eq!(kind(r#"{"error":{"message":"maximum context length is 10 tokens"}}"#), FaultKind::Caller);
    assert_eq!(kind(r#"{"error":{"code":"content_filter"}}"#), FaultKind::Caller);
}

#[test]
fn a_bound_of_the_input_is_no_count_of_it() {
    let sentence = |input: u64| {
        format!(
            r#"{{"error":{{"message":"This model's maximum context length is 16384 tokens. However, you requested 4096 output tokens and your prompt contains at least {input} input tokens, for a total of at least 20000 tokens.","param":"input_tokens"}}}}"#
        )
    };
    let beside = classify(Dialect::Chat, 400, None, sentence(12_289).as_bytes(), 16_384);
    assert!(beside.room.is_none() && beside.is_for_length());
    let refusal = refused(400, &sentence(12_289));
    assert_eq!(refusal.code, Code::ContextLength);
    assert_eq!(
        (&refusal.details["context_length"], refusal.details.get("input_tokens")),
        (&16_384.into(), None)
    );
    assert_eq!(refused(400, &sentence(16_385)).details["input_tokens"], 16_385);
}
