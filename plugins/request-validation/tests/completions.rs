//! Tests of text completion requests.
#![allow(clippy::unwrap_used, clippy::panic)]

use bytes::Bytes;
use penstock_core::{CompletionTask, InferenceRequest, InferenceTask};
use penstock_request_validation::{RequestLimits, validate_text_completion_request};
use serde_json::{Value, json};

fn validate(body: &Value) -> Result<InferenceRequest, String> {
    let body = Bytes::from(body.to_string());
    validate_text_completion_request(body, &RequestLimits::default())
        .map_err(|refusal| format!("{} {}", refusal.spec().status, refusal.message))
}

fn task(body: &Value) -> (InferenceRequest, CompletionTask) {
    let ask = validate(body).unwrap();
    let InferenceTask::Complete(task) = ask.task.clone() else { panic!() };
    (ask, task)
}

#[test]
fn a_prompt_is_a_text_a_list_or_token_ids() {
    for (prompt, count, ids) in [
        (json!("Once"), 1, false),
        (json!(""), 1, false),
        (json!(["Once", "upon"]), 2, false),
        (json!([1, 2, 3]), 1, true),
        (json!([[1, 2], [3]]), 2, true),
        (json!(["Once", [3]]), 2, true),
    ] {
        let (ask, task) = task(&json!({"model": "m", "prompt": prompt}));
        assert_eq!((task.prompts.len(), task.has_token_ids), (count, ids), "{prompt}");
        assert_eq!((ask.n as usize, ask.max_tokens), (count, Some(16)), "the endpoint's own default");
    }
}

#[test]
fn the_work_of_all_candidates_is_bounded() {
    let body =
        json!({"model": "m", "prompt": ["a", "b"], "n": 2, "best_of": 5, "max_tokens": 7, "logprobs": 0});
    let (ask, task) = task(&body);
    assert_eq!((ask.n, ask.generation_count(), task.generations_per_prompt), (4, 10, 5));
    assert!(ask.required.logprobs && !ask.has_separable_choices());
    let many = json!({"model": "m", "prompt": vec!["a"; 600], "n": 2});
    assert!(validate(&many).unwrap_err().starts_with("400 prompt: expected at most 1024 prompts times `n`"));
}

#[test]
fn invalid_fields_are_named() {
    for (members, message) in [
        (json!({"prompt": null}), "400 prompt: expected a string, an array of strings, or token ids"),
        (
            json!({"prompt": {}}),
            "400 prompt: expected a string, an array of strings, or token ids, got an object",
        ),
        (json!({"prompt": []}), "400 prompt: expected at least one prompt, got an empty array"),
        (json!({"prompt": [[]]}), "400 prompt[0]: expected at least one token id, got an empty array"),
        (json!({"prompt": [-1]}), "400 prompt[0]: expected an integer from 0 to 4294967295"),
        (json!({"prompt": ["a", 1]}), "400 prompt[1]: expected a string, got a number"),
        (json!({"n": 0}), "400 n: expected an integer from 1 to 10"),
        (json!({"n": 11}), "400 n: expected an integer from 1 to 10"),
        (json!({"n": 3, "best_of": 2}), "400 best_of: expected at least `n`, which is 3"),
        (
            json!({"best_of": 2, "stream": true}),
            "400 best_of: the best of several answers cannot be streamed",
        ),
        (json!({"max_tokens": 0}), "400 max_tokens: expected at least 1; 0 needs `echo`"),
        (json!({"max_tokens": -2}), "400 max_tokens: expected an integer of at least 0"),
        (
            json!({"max_completion_tokens": 0}),
            "400 max_completion_tokens: expected at least 1; 0 needs `echo`",
        ),
        (json!({"system": "Be brief."}), "400 system: a completion has no roles"),
        (json!({"raw": true}), "400 raw: "),
        (json!({"stop_strings": ["x"]}), "400 stop_strings: "),
        (json!({"json_mode": true}), "400 json_mode: "),
        (json!({"num_return_sequences": 3}), "400 num_return_sequences: "),
        (json!({"sampling_params": {"stop": ["x"]}}), "400 sampling_params: "),
        (json!({"extra_body": {"n": 2}}), "400 extra_body: "),
        (json!({"max_length": 5}), "400 max_length: "),
        (json!({"num_predict": 0}), "400 num_predict: expected at least 1; 0 needs `echo`"),
        (json!({"logprobs": true}), "400 logprobs: expected an integer from 0 to 20, got a boolean"),
        (json!({"logit_bias": "abc"}), "400 logit_bias: expected an object, got a string"),
        (
            json!({"logit_bias": {"5": 1, "7": 1e9}}),
            "400 logit_bias: expected an object of token ids and numbers from -100 to 100",
        ),
        (json!({"response_format": "json"}), "400 response_format: expected an object, got a string"),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": []}}}),
            "400 response_format.json_schema.schema: expected an object, got an array",
        ),
        (json!({"structured_outputs": []}), "400 structured_outputs: expected an object, got an array"),
        (json!({"suffix": 1}), "400 suffix: expected a string, got a number"),
        (json!({"echo": "yes"}), "400 echo: expected a boolean, got a string"),
    ] {
        let mut body = json!({"model": "m", "prompt": "Once"});
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let got = validate(&body).unwrap_err();
        assert!(got.starts_with(message), "{members}: {got}");
    }
}

#[test]
fn a_bias_with_entries_needs_an_offer_that_takes_it() {
    for (bias, is_required) in
        [(json!({"5": -100, "7": 2.5}), true), (json!({}), false), (json!(null), false)]
    {
        let ask = validate(&json!({"model": "m", "prompt": "a", "logit_bias": bias})).unwrap();
        assert_eq!(ask.required.logit_bias, is_required, "{bias}");
    }
}

#[test]
fn an_echo_of_no_tokens_is_a_request() {
    let (ask, task) = task(&json!({"model": "m", "prompt": "Once", "max_tokens": 0, "echo": true}));
    assert_eq!((ask.max_tokens, task.echo), (Some(0), true));
    assert_eq!(validate(&json!({"model": "m", "prompt": "a", "max_tokens": -1})).unwrap().max_tokens, None);
}

#[test]
fn the_cap_of_other_endpoints_is_a_cap() {
    let cap = |members: Value| {
        let mut body = json!({"model": "m", "prompt": "a"});
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        validate(&body).unwrap().max_tokens
    };
    for (members, most) in [
        (json!({"max_completion_tokens": 5}), Some(5)),
        (json!({"max_output_tokens": 6, "max_tokens": null}), Some(6)),
        (json!({"max_completion_tokens": -1}), None),
        (json!({"max_new_tokens": 5}), Some(5)),
        (json!({"num_predict": 4}), Some(4)),
        (json!({"num_predict": -2}), None),
        (json!({"max_tokens": 7, "max_completion_tokens": 5}), Some(7)),
        (json!({"raw": false, "template": "", "system": null}), Some(16)),
    ] {
        assert_eq!(cap(members.clone()), most, "{members}");
    }
}
