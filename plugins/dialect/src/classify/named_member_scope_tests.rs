//! Tests of the scope of a refusal: a provider refuses a member in each request, or only its value or its combination
//! with other members in one request.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use super::classify_error;
use penstock_core::{AdjustableMember as E, NamedMembers, RefusalScope, RefusedMembers, UpstreamError};
use serde_json::{Value, json};

fn classify(status: u16, body: &Value, sent: &Value) -> UpstreamError {
    classify_error(status, None, body.to_string().as_bytes(), 131_072, sent.to_string().as_bytes())
}

fn named(status: u16, body: &Value, sent: &Value) -> NamedMembers {
    match classify(status, body, sent).refused_members {
        RefusedMembers::Named(named) => named,
        RefusedMembers::Unnamed => panic!("no name in {body}"),
    }
}

fn sentence(sentence: &str) -> Value {
    json!({"error": {"message": sentence, "type": "invalid_request_error"}})
}

#[test]
fn a_refused_value_of_the_cap_does_not_change_its_name() {
    let sent = json!({"model": "m", "max_tokens": 20_000, "messages": [{"role": "user", "content": "Hi"}]});
    for (text, most) in [
        ("max_tokens参数非法。请检查文档。", None),
        ("`max_tokens` must be less than 4097", Some(4_096)),
        ("Invalid value for 'max_tokens': 20000", None),
        ("max_tokens is out of range", None),
        ("'max_tokens' is too big", None),
        ("max_tokens should not exceed 8192", Some(8_192)),
        ("max_tokens must be smaller than 8193", Some(8_192)),
        (
            "Invalid 'max_tokens': integer above maximum value. Expected a value <= 8192, but got 20000 instead.",
            Some(8_192),
        ),
        ("max_tokens of 20000 is not allowed", None),
        ("max_tokens=20000 is not supported by this model", None),
        ("max_tokens 20000 is not supported", None),
        ("Unsupported value: 'max_tokens' does not support 20000 with this model.", None),
        ("Unsupported parameter value for max_tokens", None),
        ("max_tokens: 20000 not permitted", None),
        ("max_tokens or max_completion_tokens must be smaller, use 4096 instead", None),
        ("unknown field `foo`, expected one of `model`, `max_tokens`, `stop`", None),
        ("Unknown parameter: 'foo'. Did you mean 'max_tokens'?", None),
    ] {
        let mut bodies = vec![sentence(text), json!({"error": {"code": "1214", "message": text}})];
        if !text.contains("foo") {
            bodies.push(json!({"error": {"message": text, "param": "max_tokens", "code": "invalid_value"}}));
        }
        for body in bodies {
            let error = classify(400, &body, &sent);
            let named = named(400, &body, &sent);
            assert!(!named.all.contains(E::CapName) && named.lasting.is_empty(), "{body} {named:?}");
            assert_eq!(error.max_output, most, "{body}");
        }
    }
    let detail = json!({"detail": [
        {"type": "less_than_equal", "loc": ["body", "max_tokens"], "msg": "Input should be less than or equal to 4096", "input": 20_000},
        {"type": "extra_forbidden", "loc": ["body", "store"], "msg": "Extra inputs are not permitted", "input": false}]});
    let python = "2 validation errors for Request\nmax_tokens\n  Input should be less than or equal to 4096 [type=less_than_equal, input_value=20000]\nstore\n  Extra inputs are not permitted [type=extra_forbidden, input_value=False]";
    for body in [
        detail.clone(),
        json!({"object": "error", "message": detail["detail"].to_string(), "code": 400}),
        sentence(python),
    ] {
        let named = named(422, &body, &sent);
        assert!(!named.all.contains(E::CapName) && named.lasting.contains(E::Store), "{body} {named:?}");
    }
}

#[test]
fn a_refused_name_of_the_cap_is_remembered() {
    let sent = json!({"model": "m", "max_tokens": 77, "messages": []});
    for text in [
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "max_tokens: Extra inputs are not permitted",
        "[{'type': 'extra_forbidden', 'loc': ('body', 'max_tokens'), 'msg': 'Extra inputs are not permitted', 'input': 77}]",
        "Unrecognized request argument supplied: max_tokens",
        "unknown field `max_tokens`, expected one of `model`, `messages`",
        "max_tokens is not supported, please use max_completion_tokens",
        "`max_tokens` is deprecated and must be replaced: use `max_completion_tokens` instead.",
        "This model does not support max_tokens",
        "max_tokens is not permitted",
        "max_tokens: unexpected keyword",
        "该模型不支持max_tokens参数",
    ] {
        let named = named(400, &sentence(text), &sent);
        assert!(named.lasting.contains(E::CapName), "{text} {named:?}");
        assert_eq!(classify(400, &sentence(text), &sent).max_output, None, "{text}");
    }
}

#[test]
fn a_refused_value_or_combination_is_left_out_of_one_request_only() {
    let sent = json!({"model": "m", "reasoning_effort": "high", "reasoning": {"effort": "high"},
        "chat_template_kwargs": {"enable_thinking": true}, "n": 8, "stop": ["a"], "tool_choice": "auto",
        "messages": [{"role": "user", "content": "Hi"}]});
    for (member, text) in [
        (E::Thinking, "Thinking may not be enabled when tool_choice forces tool use."),
        (E::Thinking, "`temperature` may only be set to 1 when thinking is enabled."),
        (E::Thinking, "thinking is not supported with tools"),
        (E::Thinking, "`max_tokens` must be greater than `thinking.budget_tokens`."),
        (E::Effort, "reasoning_effort must be one of low, medium; got high"),
        (E::Effort, "reasoning_effort 'high' is not supported"),
        (E::Effort, "Unsupported reasoning_effort: high"),
        (E::Effort, "reasoning_effort: unknown variant `high`, expected one of `low`, `medium`"),
        (E::Effort, "Unsupported value: 'reasoning_effort' does not support 'high' with this model."),
        (E::Effort, "reasoning_effort is not allowed together with tools"),
        (
            E::ExactEffort,
            "Unsupported value: 'reasoning.effort' does not support 'high'. Supported values are: 'low'.",
        ),
        (E::ReasoningObject, "reasoning is not supported for streaming"),
        (E::ThinkingSwitch, "parameter.enable_thinking must be set to false for non-streaming calls"),
        (E::ThinkingSwitch, "The value of the enable_thinking parameter is restricted to True."),
        (E::ReasoningName, "The `reasoning_content` in the thinking mode must be passed back to the API."),
        (E::Signature, "messages.1.content.0: Invalid `signature` in `thinking` block"),
        (E::Stop, "Invalid 'stop': array too long. Expected an array with maximum length 4."),
        (E::Strict, "Invalid schema: in strict mode, additionalProperties must be false"),
        (E::Instructions, "instructions are too long"),
        (E::MultipleChoices, "n must be between 1 and 4"),
        (E::MultipleChoices, "n=8 is not supported"),
        (E::MultipleChoices, "n must be 1 when using greedy sampling, got 8."),
        (E::ParallelTools, "parallel_tool_calls is only allowed when 'tools' are specified"),
        (E::StreamOptions, "stream_options is only allowed if stream is true"),
        (E::Temperature, "`temperature` may only be set to 1 when thinking is enabled."),
        (E::TopP, "`temperature` and `top_p` cannot both be specified for this model."),
        (E::ContinueFinal, "Cannot set both add_generation_prompt and continue_final_message"),
        (E::MediaFormat, "timestamp_granularities must not contain 'word'"),
        (E::ToolChoice, "tool_choice is not supported with thinking"),
        (E::ThinkingDisplay, "thinking.display is not allowed in streaming"),
    ] {
        for body in [sentence(text), json!({"error": {"code": "1214", "message": text}})] {
            let refused = classify(400, &body, &sent).refused_members;
            assert!(refused.possible_members().contains(member), "{member:?} {text}");
            assert_eq!(refused.scope_of(member), RefusalScope::Request, "{member:?} {text}");
        }
    }
}

#[test]
fn a_refused_member_is_left_out_of_each_request() {
    let sent = json!({"model": "m", "stream_options": {"include_usage": true}, "n": 8, "messages": []});
    for (member, text) in [
        (E::Thinking, "thinking: Extra inputs are not permitted"),
        (E::Thinking, "adaptive thinking is not supported on this model"),
        (E::Effort, "Unrecognized request argument supplied: reasoning_effort"),
        (E::Effort, "reasoning_effort is not supported with this model"),
        (E::ThinkingSwitch, "unknown field `chat_template_kwargs`"),
        (E::ReasoningName, "reasoning_content: unexpected keyword"),
        (E::Stop, "Unsupported parameter: 'stop'"),
        (E::Strict, "tools.0.strict: Extra inputs are not permitted"),
        (E::MultipleChoices, "You must provide n=1 for this model."),
        (E::MultipleChoices, "n_cmpl cannot be greater than the number of slots"),
        (E::MultipleChoices, "n > 1 is not supported"),
        (E::MultipleChoices, "n: Extra inputs are not permitted"),
        (E::StreamOptions, "stream_options: invalid value"),
        (E::MediaFormat, "Currently do not support verbose_json for mistralai/Voxtral-Mini-3B-2507"),
        (
            E::MediaFormat,
            "response_format 'verbose_json' is not compatible with model 'x'. Use 'json' instead.",
        ),
        (E::MediaFormat, "Unsupported parameter: timestamp_granularities"),
        (E::Temperature, "temperature must be below 1"),
        (E::Store, "store must be true"),
        (E::ThinkingDisplay, "thinking.adaptive.display: Extra inputs are not permitted"),
        (E::AnthropicVersion, "anthropic-version: \"2023-06-01\" is not a valid version"),
    ] {
        let named = named(400, &sentence(text), &sent);
        assert!(named.lasting.contains(member), "{member:?} {text} {named:?}");
    }
}
